"""The commands `sample`, `refine`, `choose`, `pairs` and `export`; and the steps that a recipe has, too."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipelines.cli.flags import argument, build_from, command, json_option, settings_options, silence_ray
from pipelines.cli.plain_console import Report, say, tell, tell_made
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import SampleSettings, ScoreSettings

if TYPE_CHECKING:
    pass


@command()
@argument("inputs", SampleSettings, nargs=-1, required=True)
@argument("output", SampleSettings)
@settings_options(SampleSettings, "inputs", "output", "response_column", model=("--judge",), n=("-n",))
@json_option
def sample(as_json: bool, **options: Any) -> None:
    """Generate -n answers to each prompt in INPUTS with a policy, judge them, and write both to the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each candidate; `choose` keeps the best of them. Run the same command again to
    resume after an interruption.
    """
    do_run("sample", build_from(SampleSettings, options), as_json)


@command()
@argument("inputs", RefineSettings, nargs=-1, required=True)
@argument("output", RefineSettings)
@settings_options(RefineSettings, "inputs", "output", "response_column", model=("--select",), endpoint=(), max_cost=())
@json_option
def refine(as_json: bool, **options: Any) -> None:
    """Draft answers to the prompts in INPUTS, criticise and edit them, judge all, and write them to the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each draft and each edit; `choose` keeps the best of them. Run the same command
    again to resume after an interruption.
    """
    do_run("refine", build_from(RefineSettings, options), as_json)


@command()
@argument("scored", ChooseSettings)
@argument("output", ChooseSettings)
@settings_options(ChooseSettings, "scored", "output", k=("-k",))
@json_option
def choose(as_json: bool, **options: Any) -> None:
    """Write the candidates of each prompt in SCORED that --strategy chooses, such as the best, to OUTPUT."""
    do_export("choose", build_from(ChooseSettings, options), as_json)


@command()
@argument("scored", PairSettings)
@argument("output", PairSettings)
@settings_options(PairSettings, "scored", "output", trainer=("--for",))
@json_option
def pairs(as_json: bool, **options: Any) -> None:
    """Write preference pairs of the candidates in the scored corpus SCORED to OUTPUT, in a trainer's format."""
    do_export("pairs", build_from(PairSettings, options), as_json)


@command()
@argument("scored", ExportSettings)
@argument("output", ExportSettings)
@settings_options(ExportSettings, "scored", "output", trainer=("--for",))
@json_option
def export(as_json: bool, **options: Any) -> None:
    """Write the responses in the scored corpus SCORED to OUTPUT, with labels made of their scores, in a trainer's format."""
    do_export("export", build_from(ExportSettings, options), as_json)


def do_run(step: str, settings: ScoreSettings | SampleSettings | RefineSettings, as_json: bool, **shared: Any) -> None:
    """Run the step `score`, `sample` or `refine`. Raises `NothingScored` if no response has a score.

    `shared` is the `start_pipeline` of a `score` step whose engines aren't its alone.
    """
    from pipelines.cli import report
    from pipelines.run.runtime.progress import TerminalProgress
    from pipelines.run.sampling import refine_prompts, sample_prompts
    from pipelines.run.scoring import score_corpus
    from pipelines.workflows.run_logging.logged_progress import observers_of

    steps: dict[str, tuple[Callable[..., Any], Callable[..., Report]]] = {
        "score": (score_corpus.score, report.scored_report),
        "sample": (sample_prompts.sample, report.sampled_report),
        "refine": (refine_prompts.refine, report.refined_report),
    }
    run, make_report = steps[step]
    with silence_ray():
        summary = run(settings, TerminalProgress(), observers=observers_of(settings), **shared)
    tell(as_json, summary.as_json(), make_report(summary, settings))
    (summary if step == "score" else summary.scored).check_scored()


def do_export(step: str, settings: ChooseSettings | PairSettings | ExportSettings, as_json: bool) -> None:
    """Run the step `choose`, `pairs` or `export`, and print its summary."""
    from pipelines.cli.report import export_report
    from pipelines.results.exports.export_commands import JOBS
    from pipelines.results.exports.export_job import run_export
    from pipelines.results.hub.upload import check_hub, upload_made

    check_hub(settings, settings.output)
    summary = run_export(JOBS[step](settings), lambda text: say(f"{step}: {text}", err=True))
    upload = upload_made(settings, settings.output)
    tell_made(as_json, summary.as_json(), export_report(settings.output, summary), upload)
