"""The commands of rejection sampling and preference data: `sample`, `refine`, `choose`, `pairs`, `export`."""

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from actors.errors import SettingsError
from pipelines.flags import given, json_option, no_words_of_ray, settings_options
from pipelines.make_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.options import build
from pipelines.settings import RefineSettings, SampleSettings, ScoreSettings

_CANDIDATES = "candidates"


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


def do_sample(settings: SampleSettings, as_json: bool) -> None:
    """Sample, and then choose where that is asked for."""
    from pipelines import report, sampling, scoring
    from pipelines.progress import Lines

    _check_choice(settings)
    if settings.policy.policy is None:
        own = _score_settings(settings)
        with no_words_of_ray():
            scored = scoring.score(own, Lines())
        _finish(settings, scored, as_json, functools.partial(report.show_scored, scored, own))
        return
    with no_words_of_ray():
        sampled = sampling.sample(settings, Lines())
    _finish(settings, sampled, as_json, functools.partial(report.show_sampled, sampled, settings))


def do_refine(settings: RefineSettings, as_json: bool) -> None:
    """Refine, and then choose where that is asked for."""
    from pipelines import refining, report
    from pipelines.progress import Lines

    _check_choice(settings)
    with no_words_of_ray():
        refined = refining.refine(settings, Lines())
    _finish(settings, refined, as_json, functools.partial(report.show_refined, refined, settings))


def _check_choice(settings: SampleSettings | RefineSettings) -> None:
    """Raise `SettingsError` before anything runs."""
    from pipelines import choosing

    if settings.choice.keep is not None:
        choosing.check(settings.choice)
    elif settings.choice.model_dump(exclude_defaults=True):
        raise SettingsError("there is nothing to choose by: give --keep, too")


def _finish(settings: SampleSettings | RefineSettings, summary: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Choose, where that is asked for, and say what came of it all."""
    from pipelines import made, report

    chosen = made.choose(_choice(settings)) if settings.choice.keep is not None else None
    if as_json:
        click.echo(json.dumps(summary.as_json() | ({"kept": chosen.as_json()} if chosen else {})))
        return
    show()
    if chosen is not None:
        report.show_made(_choice(settings).output, chosen, _CANDIDATES)


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
    return ScoreSettings(**{name: getattr(settings, name) for name in ScoreSettings.model_fields})


def _choice(settings: SampleSettings | RefineSettings) -> ChooseSettings:
    from pipelines import storage
    from pipelines.making import OWN

    folder = storage.folder(settings.output).sub(OWN).path
    own = settings.choice.model_dump()
    return ChooseSettings(scored=settings.output, output=folder, per="row", overwrite=True, **own)


def do_choose(settings: ChooseSettings, as_json: bool) -> None:
    """Choose, and say what was."""
    from pipelines import made

    _told(settings.output, made.choose(settings), as_json, _CANDIDATES)


def do_pairs(settings: PairSettings, as_json: bool) -> None:
    """Make pairs, and say how many."""
    from pipelines import made

    summary = made.make_pairs(settings)
    _told(settings.output, summary, as_json, "pairs", made.advice(settings.trainer, summary))


def do_export(settings: ExportSettings, as_json: bool) -> None:
    """Export, and say how much."""
    from pipelines import made

    summary = made.export(settings)
    _told(settings.output, summary, as_json, "rows", made.advice(settings.trainer, summary))


def _told(output: str, summary: Any, as_json: bool, what: str, advice: dict[str, Any] | None = None) -> None:
    from pipelines.report import show_made

    if as_json:
        click.echo(json.dumps(summary.as_json() | ({"scale": advice} if advice else {})))
    else:
        show_made(output, summary, what, advice)
