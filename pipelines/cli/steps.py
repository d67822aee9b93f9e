"""The jobs of commands that a recipe has as steps, too: done here for both, so that both print and end alike.

Jobs are imported when a step runs: `assay --help` loads none of them.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pipelines.cli.flags import silence_ray

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines.cli.plain_console import Report


def do_step(name: str, settings: Any, as_json: bool, start_pipeline: Any = None) -> None:
    """Do the step of a name with its settings, and print its summary. Raises what its job raises.

    `start_pipeline` is for a `score` step whose engines aren't its alone (`recipe_engines`).
    """
    from pipelines.cli.commands import evaluate, report

    if name == "evaluate":
        evaluate.run_evaluation(settings, as_json)
    elif name == "report":
        report.write_report(settings, as_json)
    elif name in ("filter", "choose", "pairs", "export"):
        _write_result(name, settings, as_json)
    else:
        _run(name, settings, as_json, start_pipeline)


def _run(name: str, settings: Any, as_json: bool, start_pipeline: Any) -> None:
    from pipelines.cli import report
    from pipelines.cli.plain_console import tell
    from pipelines.run.runtime.progress import TerminalProgress
    from pipelines.run.sampling import refine_prompts, sample_prompts
    from pipelines.run.scoring import score_corpus
    from pipelines.workflows.cascades import score_cascade
    from pipelines.workflows.ensembles import score_ensemble
    from pipelines.workflows.run_logging.logged_progress import observers_of

    # The job, its report, and what of its summary is that of the scored corpus: all of it where nothing stands.
    jobs: dict[str, tuple[Callable[..., Any], Callable[..., Report], str | None]] = {
        "score": (score_corpus.score, report.scored_report, None),
        "sample": (sample_prompts.sample, report.sampled_report, "scored"),
        "refine": (refine_prompts.refine, report.refined_report, "scored"),
        "ensemble": (score_ensemble.ensemble, report.ensemble_report, "combined"),
        "cascade": (score_cascade.cascade, report.cascade_report, "combined"),
    }
    run, make_report, scored_corpus = jobs[name]
    # Each member of an ensemble or a cascade is a run of its own, which gets its observers there.
    options: dict[str, Any] = {} if scored_corpus == "combined" else {"observers": observers_of(settings)}
    if name == "score":
        options["start_pipeline"] = start_pipeline
    with silence_ray():
        summary = run(settings, TerminalProgress(), **options)
    tell(as_json, summary.as_json(), make_report(summary, settings))
    # Last, so that the counts and reasons are printed before the error (exit code 4).
    (summary if scored_corpus is None else getattr(summary, scored_corpus)).check_scored()


def _write_result(name: str, settings: Any, as_json: bool) -> None:
    from pipelines.cli.plain_console import say, tell, upload_text
    from pipelines.cli.report import export_report, kept_report
    from pipelines.results.exports.export_commands import JOBS
    from pipelines.results.exports.export_job import run_export
    from pipelines.results.filtering import filter_corpus
    from pipelines.results.hub.upload import check_hub, upload_made

    def notify(text: str) -> None:
        say(f"{name}: {text}", err=True)

    check_hub(settings, settings.output)  # before any work: a wrong name would be noticed after hours else
    lines: Iterable[str | Table]
    if name == "filter":
        summary: Any = filter_corpus.keep(settings, notify)
        lines = kept_report(summary, settings)
    else:
        summary = run_export(JOBS[name](settings), notify)
        lines = export_report(settings.output, summary)
    upload = upload_made(settings, settings.output)
    hub = {} if upload is None else {"hub": upload}
    tell(as_json, {**summary.as_json(), **hub}, [*lines, *map(upload_text, hub.values())])
