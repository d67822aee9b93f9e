"""The command `diff`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from actors.errors import GateFailed
from actors.text.model_names import short_names
from actors.text.visible import line
from pipelines.cli.flags import argument, build_from, command, json_option, settings_options
from pipelines.cli.plain_console import Report, tell
from pipelines.settings.diff_settings import DiffSettings

if TYPE_CHECKING:
    from pipelines.results.comparison.results import Differences

# Of a text in an example: with the row's name it fits on a line of most terminals.
_SHOWN_CHARACTERS = 70


@command()
@argument("first", DiffSettings)
@argument("second", DiffSettings)
@settings_options(DiffSettings, "first", "second", output=("--out",), numbers=("--number",))
@json_option
def diff(as_json: bool, **options: Any) -> None:
    """Compare the scored corpora FIRST and SECOND of the same rows: by another model, version, card or prompt.

    Shows what is in one only, statuses that changed, rank correlation, the largest moves, and with --where, --top-fraction
    and so on what that filter would keep in one and not in the other. Starts no engine. Exit code 5 if a gate doesn't let
    the differences pass: --max-move, --min-rank-correlation, --max-status-changes, --max-kept-changes, --max-unmatched.
    """
    from pipelines.results.comparison.diff_folders import diff as compare

    differences = compare(build_from(DiffSettings, options))
    tell(as_json, differences.as_json(), _report(differences))
    # After the report, so that a failing gate in CI shows what differs.
    if differences.failures:
        raise GateFailed(line("; ".join(differences.failures)))


def _report(differences: "Differences") -> Report:
    from pipelines.cli.report import MADE_UP

    yield from _sides(differences)
    yield ""
    yield f"{differences.changed_statuses:,} responses have another status or reason"
    for change in differences.status_changes:
        before, after = (
            " ".join(filter(None, pair))
            for pair in ((change.first, change.first_reason), (change.second, change.second_reason))
        )
        yield f"  {change.responses:,}: {before} to {after}"
    yield from _numbers(differences)
    if differences.moves and differences.largest_move:
        # Numbers of two models aren't on one scale, so their moves are those of ranks.
        unit = "percentile points of rank" if differences.unit == "percentile" else "units of the number"
        yield f"Largest moves of {differences.numbers[0].name}, in {unit}:"
        yield _moves(differences)
    yield from _kept(differences)
    if differences.is_made_up:
        yield MADE_UP


def _sides(differences: "Differences") -> Iterator[str]:
    by = {"row": "input file, place and name", "content": "prompt and text"}[differences.matched_by]
    names = short_names([differences.first.model, differences.second.model])
    for name, side in (("first", differences.first), ("second", differences.second)):
        yield f"{name}: {side.folder}, {side.responses:,} responses by {names[side.model]}; {side.only:,} only there"
    yield f"{differences.matched:,} responses are in both, matched by {by}"
    counts = {
        "are duplicates, matched one to one in order": differences.duplicates,
        "have another prompt or other principles": differences.other_prompts,
        "have a number in one folder only": differences.number_only,
    }
    yield from (f"{count:,} of them {what}" for what, count in counts.items() if count)
    if differences.differs:
        yield f"Made with another {', '.join(differences.differs)}"
    yield from _examples(differences.examples["only_in_first"], "a", "only in the first")
    yield from _examples(differences.examples["only_in_second"], "b", "only in the second")


def _examples(rows: Sequence[Mapping[str, Any]], side: str, what: str) -> Iterator[str]:
    for row in rows:
        yield f"  {what}: {row[f'{side}_row']} ({row[f'{side}_name']}) {_text(row)}"


def _numbers(differences: "Differences") -> Report:
    # Without frames: the longest names of scores and six columns fit into 80 characters.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("number", no_wrap=True)
    for heading in ("in both", "rank correlation", "mean change", "mean |change|", "largest |change|"):
        table.add_column(heading, justify="right")
    for number in differences.numbers:
        changes = (number.mean_difference, number.mean_absolute_difference, number.largest_difference)
        table.add_row(
            number.name,
            f"{number.responses:,}",
            "" if number.rank_correlation is None else f"{number.rank_correlation:.6f}",
            *("" if change is None else f"{change:.4g}" for change in changes),
        )
    yield table
    for why in dict.fromkeys(number.why_not for number in differences.numbers if number.why_not):
        yield f"No rank correlation: {why}"
    if not differences.same_model:
        yield "Not one model: their numbers aren't on one scale, so ranks are compared"


def _moves(differences: "Differences") -> Table:
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
    return table


def _kept(differences: "Differences") -> Iterator[str]:
    if (kept := differences.kept) is None:
        return
    yield ""
    only = f"only in the first {kept.first_only:,}, only in the second {kept.second_only:,}"
    yield f"{kept.filter}: kept in both {kept.both:,}, {only}"
    if kept.first_unmatched or kept.second_unmatched:
        unmatched = f"{kept.first_unmatched:,} in the first, {kept.second_unmatched:,} in the second"
        yield f"and of those in one folder only {unmatched}"
    yield from _examples(differences.examples["kept_in_first_only"], "a", "kept only in the first")
    yield from _examples(differences.examples["kept_in_second_only"], "b", "kept only in the second")


def _text(row: Mapping[str, Any]) -> str:
    plain = line(" ".join((row.get("text") or "").split()))
    return plain if len(plain) <= _SHOWN_CHARACTERS else f"{plain[:_SHOWN_CHARACTERS]} ..."
