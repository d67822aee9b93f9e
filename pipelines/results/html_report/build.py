"""Builds the page: reads the folders, runs the sections, and writes one file."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.errors import OutputError, SettingsError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CERTIFIED
from pipelines.data.storage import error_text
from pipelines.folders.scored_corpus.unscored import first_examples
from pipelines.results.evaluation.saved_results import is_results, read_results
from pipelines.results.html_report.page import MARK, render
from pipelines.results.html_report.responses import Responses, opened
from pipelines.results.html_report.sections import judging
from pipelines.results.html_report.sections.comparison import comparison
from pipelines.results.html_report.sections.correlations import correlations
from pipelines.results.html_report.sections.evaluation import evaluation
from pipelines.results.html_report.sections.examples import example_places, examples
from pipelines.results.html_report.sections.explorer import explorer, neighbour_places
from pipelines.results.html_report.sections.groups import groups
from pipelines.results.html_report.sections.outputs import outputs
from pipelines.results.html_report.sections.overview import overview
from pipelines.results.html_report.sections.sampling import sampling
from pipelines.settings.report_settings import ReportSettings


@dataclass(frozen=True)
class WrittenReport:
    """A page that was written: its file and size in bytes, how long it took in seconds, and what it warns of."""

    path: str
    size: int
    seconds: float
    warnings: Sequence[str]
    is_new: bool = True
    """Whether the file wasn't there already, as it is now."""


def build(settings: ReportSettings) -> WrittenReport:
    """Write the page. Raises a `UserError` if a folder can't be shown, or another file is where the page should be.

    A page that has the same content already isn't written again, and `is_new` is false.
    """
    started, path = time.monotonic(), Path(settings.output)
    before = _read_earlier(path)  # first: minutes of work mustn't end at a file that can't be replaced
    shown = _page_data(settings)
    content = render(shown).encode()
    if content != before:
        _write(path, content)
    warnings = _warnings(shown.get("runs", ()))
    return WrittenReport(str(path), len(content), time.monotonic() - started, warnings, content != before)


def _warnings(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{run['folder']}: {warning}" if len(runs) > 1 else warning
        for run in runs
        for warning in run["correlations"]["warnings"]
    ]


def _page_data(settings: ReportSettings) -> dict[str, Any]:
    if certificates := list(filter(None, map(CERTIFIED.read, settings.scored))):
        if len(certificates) < len(settings.scored):
            raise SettingsError("one of the folders is a certificate and the other isn't: give two of a kind")
        return {"folders": settings.scored, "certificates": certificates}
    # By what lies in a folder, as the command has one form for all of them.
    results = [is_results(folder) for folder in settings.scored]
    if all(results):
        if settings.by:
            raise SettingsError("--by shows groups of a scored corpus; an evaluation has its subsets already")
        return {"folders": settings.scored, "evaluation": evaluation(list(map(read_results, settings.scored)))}
    if any(results):
        raise SettingsError(
            f"{settings.scored[results.index(True)]} is an evaluation and the other folder isn't: give two of a kind"
        )
    with ExitStack() as stack:
        runs = [
            stack.enter_context(
                opened(folder, partial=settings.partial, by=settings.by, sample=settings.sample, seed=settings.seed)
            )
            for folder in settings.scored
        ]
        return {
            "folders": settings.scored,
            "comparison": comparison(*runs) if len(runs) == 2 else None,
            "runs": [_run(responses, settings) for responses in runs],
        }


def _run(responses: Responses, settings: ReportSettings) -> dict[str, Any]:
    # A filter's result has no notes: those of the parts are of responses that it may have left out.
    noted = [] if responses.corpus.kept else first_examples(responses.corpus.responses.parts)
    shown = example_places(responses, noted)
    # All texts at once, as each pass reads every part with a sampled response.
    responses.read_texts([*neighbour_places(responses), *(place for places in shown.values() for place in places)])
    sections: Mapping[str, Any] = {
        "overview": overview(responses, settings.gpu_price),
        "outputs": outputs(responses),
        "explorer": explorer(responses),
        "correlations": correlations(responses),
        "groups": groups(responses, settings.by),
        "votes": judging.votes(responses),
        "position_bias": judging.position_bias(responses),
        "labels": judging.labels(responses),
        "steps": judging.steps(responses),
        "sampling": sampling(responses),
        "examples": examples(responses, shown, noted),
    }
    return {
        "folder": responses.folder,
        "total": responses.total,
        "sampled": len(responses.sampled),
        "share_error": responses.share_error,
        **sections,
    }


def _read_earlier(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error_text(error)}") from error
    if MARK.encode() not in content[:200]:  # what isn't ours is never written over
        raise OutputError(
            f"{path} is there and isn't a page of `assay report`; give another file with --out, or move it away"
        )
    return content


def _write(path: Path, content: bytes) -> None:
    try:
        storage.folder(storage.absolute(str(path.parent))).replace(path.name, content)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error_text(error)}") from error
