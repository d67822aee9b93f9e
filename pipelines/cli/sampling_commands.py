"""The commands of rejection sampling and preference data: `sample`, `refine`, `choose`, `pairs`, `export`."""

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from actors.errors import SettingsError
from pipelines.cli.flags import given, json_option, no_words_of_ray, settings_options
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import RefineSettings, SampleSettings, ScoreSettings

if TYPE_CHECKING:
    from pipelines.scored_corpus.summary import Summary

_WHAT = {"choose": "candidates", "pairs": "pairs", "export": "rows"}
"""What each step makes."""


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.argument("output")
@settings_options(SampleSettings, "inputs", "output", model=("--judge",), n=("-n",), k=("-k",))
@json_option
def sample(as_json: bool, **options: Any) -> None:
    """Answer the prompts in INPUTS with a policy, -n times each, and judge the answers, into the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each candidate; with --keep, OUTPUT/kept holds those that are chosen of each
    prompt, as conversations. The same command again goes on where an earlier one ended. Without --policy the candidates are
    the responses that the rows have.
    """
    do_sample(build(SampleSettings, given(options)), as_json)


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.argument("output")
@settings_options(RefineSettings, "inputs", "output", model=("--select",), k=("-k",))
@json_option
def refine(as_json: bool, **options: Any) -> None:
    """Draft answers to the prompts in INPUTS, criticise and edit them, and judge all, into the folder OUTPUT.

    OUTPUT is a scored corpus with a row for each draft and each edit; with --keep, OUTPUT/kept holds those that are chosen.
    The same command again goes on where an earlier one ended.
    """
    do_refine(build(RefineSettings, given(options)), as_json)


@click.command()
@click.argument("scored")
@click.argument("output")
@settings_options(ChooseSettings, "scored", "output", k=("-k",))
@json_option
def choose(as_json: bool, **options: Any) -> None:
    """Keep the candidates of each prompt in the folder SCORED that are asked for, as conversations in OUTPUT."""
    do_choose(build(ChooseSettings, given(options)), as_json)


@click.command()
@click.argument("scored")
@click.argument("output")
@settings_options(PairSettings, "scored", "output", trainer=("--for",))
@json_option
def pairs(as_json: bool, **options: Any) -> None:
    """Make preference pairs of the candidates in the folder SCORED, in a trainer's format, in OUTPUT."""
    do_pairs(build(PairSettings, given(options)), as_json)


@click.command()
@click.argument("scored")
@click.argument("output")
@settings_options(ExportSettings, "scored", "output", trainer=("--for",))
@json_option
def export(as_json: bool, **options: Any) -> None:
    """Write the responses in the folder SCORED, with their labels, in a trainer's format, in OUTPUT."""
    do_export(build(ExportSettings, given(options)), as_json)


def do_sample(settings: SampleSettings, as_json: bool, jobs: Sequence[Any] = ()) -> None:
    """Sample; `jobs` are done along the way."""
    from pipelines.cli import report
    from pipelines.exports import export_commands
    from pipelines.runtime.progress import Lines
    from pipelines.sampling import sample_prompts
    from pipelines.scoring import score_corpus

    if settings.policy.policy is None:
        own, choosing = _score_settings(settings), export_commands.jobs_of_run(settings)
        with no_words_of_ray():
            scored = score_corpus.score(own, Lines(), jobs=[*choosing, *jobs])
        tell(scored, as_json, functools.partial(report.show_scored, scored, own), scored)
        return
    with no_words_of_ray():
        sampled = sample_prompts.sample(settings, Lines(), jobs)
    tell(sampled, as_json, functools.partial(report.show_sampled, sampled, settings), sampled.scored)


def do_refine(settings: RefineSettings, as_json: bool, jobs: Sequence[Any] = ()) -> None:
    """Refine; `jobs` are done along the way."""
    from pipelines.cli import report
    from pipelines.runtime.progress import Lines
    from pipelines.sampling import refine_prompts

    with no_words_of_ray():
        refined = refine_prompts.refine(settings, Lines(), jobs)
    tell(refined, as_json, functools.partial(report.show_refined, refined, settings), refined.scored)


def tell(summary: Any, as_json: bool, show: Callable[[], None], scored: "Summary") -> None:
    """Say what came of a run, and of what was done along the way. Raises `NothingScored` if that is nothing."""
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        from pipelines.cli import report
        from pipelines.exports import export_commands

        show()
        for job, found in scored.made:
            report.show_made(
                job.output, found, _WHAT[job.kind.name], export_commands.advice(job.settings.get("trainer"), found)
            )
    scored.check_scored()


def _score_settings(settings: SampleSettings) -> ScoreSettings:
    """To judge the responses that are there. Raises `SettingsError` for what is asked of a policy."""
    asked = {
        **settings.policy.model_dump(exclude_defaults=True),
        **settings.policy_engine.model_dump(exclude_defaults=True),
        **settings.draw.model_dump(exclude_defaults=True),
        **({"in_turns": True} if settings.in_turns else {}),
    }
    if asked:
        flags = ", ".join(f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}" for name in sorted(asked))
        raise SettingsError(f"{flags}: without --policy nothing is drawn, and the rows' own responses are judged")
    return ScoreSettings(**{name: getattr(settings, name) for name in ScoreSettings.model_fields if name != "plan"})


def do_choose(settings: ChooseSettings, as_json: bool) -> None:
    """Choose, and say what was."""
    from pipelines.exports import export_commands

    _told(settings.output, export_commands.choose(settings), as_json, "choose")


def do_pairs(settings: PairSettings, as_json: bool) -> None:
    """Make pairs, and say how many."""
    from pipelines.exports import export_commands

    summary = export_commands.make_pairs(settings)
    _told(settings.output, summary, as_json, "pairs", export_commands.advice(settings.trainer, summary))


def do_export(settings: ExportSettings, as_json: bool) -> None:
    """Export, and say how much."""
    from pipelines.exports import export_commands

    summary = export_commands.export(settings)
    _told(settings.output, summary, as_json, "export", export_commands.advice(settings.trainer, summary))


def _told(output: str, summary: Any, as_json: bool, what: str, advice: dict[str, Any] | None = None) -> None:
    from pipelines.cli.report import show_made

    if as_json:
        click.echo(json.dumps(summary.as_json() | ({"scale": advice} if advice else {})))
    else:
        show_made(output, summary, _WHAT[what], advice)
