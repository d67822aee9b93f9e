"""The command `evaluate`."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli.flags import OneValue, given_options, json_option, settings_options
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build

if TYPE_CHECKING:
    from pipelines.evaluation.results import Evaluation


@click.command()
@click.argument("scored", nargs=-1, required=True)
@click.option("--as", "benchmark", cls=OneValue, help="benchmark whose rules grade the items; default: found by the rows")
@click.option("--out", "output", cls=OneValue, metavar="FOLDER", help="folder for results.json, table.md and the items")
@settings_options(EvaluateSettings, "scored", "benchmark", "output")
@json_option
def evaluate(as_json: bool, **options: Any) -> None:
    """Evaluate reward models by the scored corpora SCORED of benchmark files or labelled preferences.

    Grades items as the benchmark's authors do, and shows each figure with its interval, coverage and ties. Starts no engine.
    """
    from pipelines.evaluation.evaluate_corpus import evaluate as run
    from pipelines.evaluation.results import document

    settings = build(EvaluateSettings, given_options(options))
    evaluations = run(settings)
    if as_json:
        click.echo(json.dumps(document(evaluations, settings.model_dump(mode="json"))))
    else:
        _show(evaluations)


def _show(evaluations: "Sequence[Evaluation]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for evaluation in evaluations:
        table = Table("measure", "value", "95 % interval", "items", "convention", title_justify="left")
        table.title = f"{evaluation.model} on {evaluation.benchmark}"
        for figure in evaluation.figures:
            value = "" if figure.value is None else f"{figure.value:.2%}" + (" near chance" if figure.near_chance else "")
            interval = "" if figure.low is None or figure.high is None else f"{figure.low:.1%} to {figure.high:.1%}"
            table.add_row(figure.name, value, interval, f"{figure.n:,}", figure.convention)
        console.print(table)
        console.print(f"Coverage {evaluation.coverage:.1%}, ties {evaluation.tie_rate:.1%}", soft_wrap=True)
        for subset, counts in evaluation.subsets.items():
            for reason, count in counts.reasons.items():
                console.print(f"Without a grade: {count:,} of {subset}: {reason}", soft_wrap=True, markup=False)
            if counts.expected is not None and counts.items != counts.expected:
                console.print(f"{subset}: {counts.items:,} items, and the published file has {counts.expected:,}")
