"""The command `diff`."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from actors.errors import GateFailed
from actors.text.visible import line
from pipelines.cli.flags import argument, build_from, command, json_option, option, settings_options
from pipelines.settings.diff_settings import DiffSettings

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.comparison.results import Differences

_SHOWN_CHARACTERS = 70


@command()
@argument("first", DiffSettings)
@argument("second", DiffSettings)
@option("--out", "output", metavar="FOLDER", help="folder for diff.json, and moves.parquet with every move")
@settings_options(DiffSettings, "first", "second", "output", numbers=("--number",))
@json_option
def diff(as_json: bool, **options: Any) -> None:
    """Compare the scored corpora FIRST and SECOND of the same rows: by another model, version, card or prompt.

    Shows what is in one only, statuses that changed, rank correlation, the largest moves, and with --keep, --top-fraction
    and so on what that filter would keep in one and not in the other. Starts no engine. Exit code 5 if a gate doesn't let
    the differences pass: --max-move, --min-rank-correlation, --max-status-changes, --max-kept-changes, --max-unmatched.
    """
    from pipelines.comparison.diff_folders import diff as compare

    differences = compare(build_from(DiffSettings, options))
    if as_json:
        click.echo(json.dumps(differences.as_json()))
    else:
        _show(differences)
    if differences.failures:
        raise GateFailed(line("; ".join(differences.failures)))


def _show(differences: "Differences") -> None:
    from pipelines.cli.plain_console import plain_console
    from pipelines.cli.report import MADE_UP

    console = plain_console(soft_wrap=True)
    _show_sides(console, differences)
    _show_statuses(console, differences)
    _show_numbers(console, differences)
    _show_moves(console, differences)
    _show_kept(console, differences)
    if differences.is_made_up:
        console.print(MADE_UP)


def _show_sides(console: "Console", differences: "Differences") -> None:
    by = {"row": "input file, place and name", "content": "prompt and text"}[differences.matched_by]
    for name, side in (("first", differences.first), ("second", differences.second)):
        console.print(f"{name}: {side.folder}, {side.responses:,} responses by {side.model}; {side.only:,} only there")
    console.print(f"{differences.matched:,} responses are in both, matched by {by}")
    if differences.duplicates:
        console.print(f"{differences.duplicates:,} of them are duplicates, matched one to one in order")
    if differences.other_prompts:
        console.print(f"{differences.other_prompts:,} of them have another prompt or other principles")
    if differences.number_only:
        console.print(f"{differences.number_only:,} of them have a number in one folder only")
    if differences.differs:
        console.print(f"Made with another {', '.join(differences.differs)}")
    _show_examples(console, differences.examples["only_in_first"], "a", "only in the first")
    _show_examples(console, differences.examples["only_in_second"], "b", "only in the second")


def _show_examples(console: "Console", rows: Sequence[Mapping[str, Any]], side: str, what: str) -> None:
    for row in rows:
        console.print(f"  {what}: {row[f'{side}_row']} ({row[f'{side}_name']}) {_text(row)}")


def _show_statuses(console: "Console", differences: "Differences") -> None:
    console.print()
    console.print(f"{differences.changed_statuses:,} responses have another status or reason")
    for change in differences.status_changes:
        before, after = (
            " ".join(filter(None, pair))
            for pair in ((change.first, change.first_reason), (change.second, change.second_reason))
        )
        console.print(f"  {change.responses:,}: {before} to {after}")


def _show_numbers(console: "Console", differences: "Differences") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Without frames: the longest names of scores and six columns fit into 80 characters.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("number", no_wrap=True)
    for heading in ("in both", "rank correlation", "mean change", "mean |change|", "largest |change|"):
        table.add_column(heading, justify="right")
    for number in differences.numbers:
        table.add_row(
            number.name,
            f"{number.responses:,}",
            "" if number.rank_correlation is None else f"{number.rank_correlation:.6f}",
            *(
                "" if value is None else f"{value:.4g}"
                for value in (number.mean_difference, number.mean_absolute_difference, number.largest_difference)
            ),
        )
    console.print(table)
    for why in dict.fromkeys(number.why_not for number in differences.numbers if number.why_not):
        console.print(f"No rank correlation: {why}")
    if not differences.same_model:
        console.print(
            "Not one model: their numbers aren't on one scale, so ranks are compared; --unit value compares numbers"
        )


def _show_moves(console: "Console", differences: "Differences") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if not differences.moves or not differences.largest_move:
        return
    unit = "percentile points of rank" if differences.unit == "percentile" else "units of the number"
    console.print(f"Largest moves of {differences.numbers[0].name}, in {unit}:")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("move", "first", "second", "ranks"):
        table.add_column(heading, justify="right", no_wrap=True)
    # It may wrap. Were no column allowed to, all would be cut alike, and 80 characters would have no room for the numbers.
    table.add_column("response, and its text", overflow="fold")
    for move in differences.moves:
        table.add_row(
            f"{move['move']:+.4g}",
            f"{move['a_number']:.4g}",
            f"{move['b_number']:.4g}",
            f"{move['a_position']:,.10g} to {move['b_position']:,.10g}",
            Text(f"{line(move['a_row'])} ({move['a_name']})\n{_text(move)}"),
        )
    console.print(table)


def _show_kept(console: "Console", differences: "Differences") -> None:
    if (kept := differences.kept) is None:
        return
    console.print()
    console.print(f"{kept.filter}: kept in both {kept.both:,}, only in the first {kept.first_only:,}, ", end="")
    console.print(f"only in the second {kept.second_only:,}")
    if kept.first_unmatched or kept.second_unmatched:
        console.print(
            f"and of those in one folder only {kept.first_unmatched:,} in the first, {kept.second_unmatched:,} in the second"
        )
    _show_examples(console, differences.examples["kept_in_first_only"], "a", "kept only in the first")
    _show_examples(console, differences.examples["kept_in_second_only"], "b", "kept only in the second")


def _text(row: Mapping[str, Any]) -> str:
    """A text on one line, for a terminal."""
    plain = line(" ".join((row.get("text") or "").split()))
    return plain if len(plain) <= _SHOWN_CHARACTERS else f"{plain[:_SHOWN_CHARACTERS]} ..."
