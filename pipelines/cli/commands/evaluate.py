"""The command `evaluate`."""

import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from actors.errors import GateFailed, SettingsError
from actors.text.counted import shown_lines
from actors.text.visible import line
from pipelines.cli.flags import argument, build_from, command, json_option, option, settings_options, silence_ray
from pipelines.cli.plain_console import Report, say, tell
from pipelines.settings.evaluate_settings import EvaluateSettings

if TYPE_CHECKING:
    from pipelines.results.evaluation.gate import BaselineComparison, Drift
    from pipelines.results.evaluation.results import Results
    from pipelines.results.evaluation.sections import Section

_SHOWN_FLIPS = 20


@command()
@argument("scored", EvaluateSettings, nargs=-1, required=True)
@option("--junit", metavar="FILE", help="--against: write the comparison as JUnit XML, for CI")
@settings_options(EvaluateSettings, "scored", benchmark=("--as",), output=("--out",), max_cost=())
@json_option
def evaluate(as_json: bool, junit: str | None, **options: Any) -> None:
    """Evaluate reward models by the scored corpora SCORED of benchmark files or labelled preferences.

    Grades items as the benchmark's authors do, and shows each figure with its interval, coverage and ties. Starts no engine,
    unless --model names models: SCORED are then files, as BENCHMARK=FILE or alone, which each model scores into --out first.

    With --as-published, each is scored a second time as authors ran it on the benchmark, where that is known.

    With --endpoint, --model is a model of an endpoint that scores the files: one of `assay serve`, or with --rubric or
    --family any one of chat completions, as a judge.

    With --against, SCORED may be folders of results; exit code 5 if a headline fell by more than --max-drop.
    """
    run_evaluation(build_from(EvaluateSettings, options), as_json, junit)


def run_evaluation(settings: EvaluateSettings, as_json: bool, junit: str | None = None) -> None:
    """Do what the command does, or a recipe's step: evaluate, or compare with earlier results, and print.

    A comparison of folders of results evaluates nothing; one of scored corpora evaluates them first, in a temporary folder
    if no output is given.
    """
    from pipelines.results.evaluation.saved_results import is_results

    # JUnit's cases are the measures that may fail, and without a baseline nothing can.
    if junit is not None and settings.against is None:
        raise SettingsError("--junit is the report of a comparison: give --against, too")
    if settings.against is None:
        _evaluate(settings, as_json)
        return
    results = [folder for folder in settings.scored if not settings.scores_files and is_results(folder)]
    if results:
        if not_results := [folder for folder in settings.scored if folder not in results]:
            raise SettingsError(
                f"{not_results[0]} holds no results of an evaluation, and {results[0]} does: give one or the other"
            )
        _compare(settings, results, as_json, junit)
    else:
        # A comparison reads results, so they are written even if nobody wants to keep them.
        with tempfile.TemporaryDirectory() as place:
            output = settings.output or str(Path(place, "results"))
            _evaluate(settings.model_copy(update={"output": output}), as_json=False, quiet=as_json)
            _compare(settings, [output], as_json, junit)


def _evaluate(settings: EvaluateSettings, as_json: bool, *, quiet: bool = False) -> None:
    from pipelines.results.evaluation.evaluate_corpus import evaluate as run

    results: Results
    if settings.scores_files:
        # Imported here alone: the other way starts no engine, and is to be quick.
        from pipelines.run.runtime.progress import TerminalProgress
        from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate

        with silence_ray():
            results = score_and_evaluate(settings, TerminalProgress())
    else:
        results = run(settings, partial(say, err=True))
    if not quiet:
        tell(as_json, results.document(settings.model_dump(mode="json")), _report(results.sections))


def _compare(settings: EvaluateSettings, folders: Sequence[str], as_json: bool, junit_file: str | None) -> None:
    from pipelines.results.evaluation.evaluate_corpus import write_file
    from pipelines.results.evaluation.gate import compare, junit
    from pipelines.results.evaluation.saved_results import read_evaluations

    results = [evaluation for folder in folders for evaluation in read_evaluations(folder)]
    comparisons = compare(results, read_evaluations(str(settings.against)))
    # Before the gates: who fails must see by how much.
    tell(as_json, {"comparisons": comparisons}, itertools.chain.from_iterable(map(_comparison_report, comparisons)))
    if junit_file is not None:
        place, name = os.path.split(junit_file)
        write_file(place or ".", name, junit(comparisons, settings.max_drop, settings.min_coverage))
    if failures := [
        line for comparison in comparisons for line in comparison.failures(settings.max_drop, settings.min_coverage)
    ]:
        raise GateFailed(line("; ".join(failures)))


def _comparison_report(comparison: "BaselineComparison") -> Report:
    from pipelines.results.evaluation.results import MADE_UP

    title = f"{comparison.model} on {comparison.benchmark}, against {comparison.baseline_model}"
    if comparison.is_gone:
        yield f"{title}: it isn't in these results"
        return
    table = Table("measure", "before", "now", "points", title=title, title_justify="left")
    for change in comparison.changes:
        before, now = ("" if value is None else f"{value:.2%}" for value in (change.before, change.now))
        # `+ 0.0` makes a zero of -0.0, which would be shown with a sign.
        table.add_row(change.name, before, now, "" if change.drop is None else f"{-change.drop + 0.0:+.2f}")
    yield table
    if comparison.unmatched:
        yield comparison.unmatched
    if comparison.drift is not None:
        drift = comparison.drift
        yield f"Rewards of {_moved(drift, ':')}"
        if len(drift.subsets) > 1:
            yield from (f"  {part.subset}: {_moved(part, ',')}" for part in drift.subsets)
    yield f"{len(comparison.flips):,} items have another grade"
    yield from shown_lines([_flip_text(flip) for flip in comparison.flips], _SHOWN_FLIPS)
    if comparison.is_made_up:
        yield MADE_UP


def _flip_text(flip: Mapping[str, Any]) -> str:
    before, now = ("no grade" if cell is None else f"{cell:g}" for cell in (flip["before"], flip["now"]))
    return f"{flip['row']} ({flip['subset']}): {before} to {now}"


def _moved(drift: "Drift", mark: str) -> str:
    return (
        f"{drift.responses:,} responses{mark} mean difference {drift.mean:.3g}, largest {drift.largest:.3g}; "
        f"{drift.rank_flips:,} of {drift.compared:,} pairs of responses rank otherwise"
    )


def _report(sections: "Sequence[Section]") -> Report:
    for section in sections:
        table = Table(*section.columns, title=section.title, title_justify="left")
        for row in section.rows:
            table.add_row(*row)
        yield table
        yield from section.notes
