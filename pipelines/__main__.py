"""The command line: `assay`, or `python -m pipelines`. Commands load what they need when they run, so --help is instant."""

import contextlib
import enum
import json
import os
import shlex
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import click

from actors.errors import AssayError, AuditError, SettingsError, UserError
from actors.settings_base import Settings
from pipelines.options import Leaf, build, from_yaml, leaves
from pipelines.settings import CheckSettings, EnsembleSettings, FilterSettings, ScoreSettings

Command = Callable[..., None]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 2 can't be done as given, 3 stopped early, 4 the audit failed."""
    try:
        cli(standalone_mode=False, prog_name="assay")
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail(f"interrupted; what is written stays, and this goes on from there:\n  {_same_command()}", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AuditError as error:
        _fail(str(error), 4)
    except UserError as error:
        _fail(str(error), 2)
    except AssayError as error:
        _fail(f"{error}\nWhat is written stays, and this goes on from there:\n  {_same_command()}", 3)


def _same_command() -> str:
    """The command that goes on with this one; --overwrite would start it again."""
    program = "assay" if os.path.basename(sys.argv[0]) == "assay" else "python -m pipelines"
    return f"{program} {shlex.join(word for word in sys.argv[1:] if word != '--overwrite')}"


def _fail(message: str, code: int) -> None:
    click.echo(f"assay: {message}", err=True)
    sys.exit(code)


def settings_options(settings: type[Settings], *but: str) -> Callable[[Command], Command]:
    """One click option for every single setting, with its default and its description."""

    def decorate(command: Command) -> Command:
        for leaf in reversed(list(leaves(settings))):
            if leaf.name not in but:
                command = _option(leaf)(command)
        return command

    return decorate


def _option(leaf: Leaf) -> Callable[[Command], Command]:
    kind, flag = _plain(leaf.field.annotation), f"--{leaf.name.replace('_', '-')}"
    text = leaf.field.description
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}" if leaf.field.default else flag, is_flag=True, default=None, help=text)
    if typing.get_origin(kind) is dict:
        is_text = _plain(typing.get_args(kind)[1]) is str
        return click.option(flag, multiple=True, metavar="NAME=VALUE", callback=_texts if is_text else _values, help=text)
    default = None if leaf.field.is_required() else leaf.field.default
    shown = f"{text}  [default: {default}]" if default not in (None, "") else text
    return click.option(flag, type=_click_type(kind), default=None, required=leaf.field.is_required(), help=shown)


def _plain(annotation: Any) -> Any:
    """The type without `Annotated` and `| None`."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _plain(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return _plain(next(kind for kind in typing.get_args(annotation) if kind is not type(None)))
    return annotation


def _click_type(kind: Any) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        return click.Choice(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Settings):
        return str  # a file that holds them
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return click.Choice([member.value for member in kind])
    return kind


def _values(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any] | None:
    """In YAML. Of a name that is given again the last value counts, as of any option: so a command is gone on with."""
    return {name: from_yaml(value, f"{parameter.opts[0]} {name}") for name, value in _pairs(parameter, values)} or None


def _texts(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    """As they are written: a principle may hold a colon, or a #. None may be lost for another one of its name."""
    pairs = _pairs(parameter, values)
    if len(dict(pairs)) < len(pairs):
        raise SettingsError(f"{parameter.opts[0]} gives one name twice: {', '.join(name for name, _ in pairs)}")
    return dict(pairs) or None


def _pairs(parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = [value.partition("=") for value in values]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise SettingsError(f"{parameter.opts[0]} takes NAME=VALUE, and {wrong[0]!r} isn't")
    return [(name, value) for name, _, value in pairs]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


json_option = click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def cli() -> None:
    """Trustworthy rewards on massive corpora: score with any reward model, filter by the scores."""


@cli.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List the reward models that Assay knows; `models explain ID` says how one of them is asked and read."""
    from pipelines.explaining import show_models

    if context.invoked_subcommand is None:
        show_models()


@models.command()
@click.argument("model")
@click.option("--family", help="as for `score`")
@json_option
def explain(model: str, family: str | None, as_json: bool) -> None:
    """Say how MODEL is asked, where its number is read, its range, context, licence and source."""
    from pipelines.explaining import explained, show_explained

    found = explained(model, family)
    if as_json:
        click.echo(json.dumps(found))
    else:
        show_explained(found)


@cli.command()
@click.argument("model")
@settings_options(CheckSettings, "model")
def check(**options: Any) -> None:
    """Start MODEL and run the checks that every replica runs before its first row."""
    from pipelines.checking import check as run_check

    run_check(build(CheckSettings, _given(options)), lambda passed: click.echo(f"ok  {passed}"))


@cli.command()
@click.argument("model")
@click.argument("folder")
@click.option("--revision", help="branch, tag or commit of a hub model")
@click.option("--family", help="as for `score`")
def convert(model: str, folder: str, revision: str | None, family: str | None) -> None:
    """Write MODEL, whose reward is read from a language model's logits, into FOLDER as a checkpoint with a reward head.

    For tensor parallelism where the first GPU hasn't these logits: `score` says so. Weights are linked, where that can be.
    """
    from actors.converting import convert as write

    write(model, folder, revision, family, click.echo)


@cli.command()
@click.argument("inputs", nargs=-1, required=True)
@click.argument("output")
@settings_options(ScoreSettings, "inputs", "output")
@json_option
def score(as_json: bool, **options: Any) -> None:
    """Score the corpus INPUTS (files, globs, folders) into the folder OUTPUT.

    The same command again goes on where an earlier one ended.
    """
    _score(build(ScoreSettings, _given(options)), as_json)


@cli.command()
@click.argument("inputs", nargs=-1, required=True)
@click.argument("output")
@click.option("--model", "models", multiple=True, required=True, help="a reward model; give it twice or more often")
@settings_options(EnsembleSettings, "inputs", "output", "models")
@json_option
def ensemble(as_json: bool, **options: Any) -> None:
    """Score the corpus INPUTS with several models, and combine what they say into the folder OUTPUT.

    OUTPUT is a scored corpus like any other, and OUTPUT/models/ holds one for each model. The reward is by default the mean
    of the models' z-scores, each among that model's rewards of the responses to the same prompt: raw rewards of different
    models are on different scales. The same command again goes on where an earlier one ended; with another --combine or
    --suspect-... it combines anew, and no model runs again. Models that need settings of their own are given in a recipe.
    """
    _ensemble(build(EnsembleSettings, _given(options)), as_json)


@cli.command("filter")
@click.argument("scored")
@click.argument("output", required=False)
@settings_options(FilterSettings, "scored", "output")
@json_option
def filter_(as_json: bool, **options: Any) -> None:
    """Keep the rows of the folder SCORED that meet a condition, in the folder OUTPUT; without OUTPUT, count them."""
    _filter(build(FilterSettings, _given(options)), as_json)


@cli.command()
@click.argument("recipe")
@json_option
def run(recipe: str, as_json: bool) -> None:
    """Score with one model or several, and then filter, as the file RECIPE says; each may be left out."""
    from pipelines.recipe import read_recipe

    steps = read_recipe(recipe)
    if steps.score is not None:
        _score(steps.score, as_json)
    if steps.ensemble is not None:
        _ensemble(steps.ensemble, as_json)
    if steps.filter is not None:
        _filter(steps.filter, as_json)


@cli.command()
@click.argument("scored")
@json_option
def status(scored: str, as_json: bool) -> None:
    """Tell how far the run in the folder SCORED is, and when its last part came, from the folder alone."""
    from pipelines.report import show_status
    from pipelines.status import status as look

    found = look(scored)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        show_status(found)


def _score(settings: ScoreSettings, as_json: bool) -> None:
    from pipelines import scoring
    from pipelines.progress import Lines
    from pipelines.report import show_scored

    with _no_words_of_ray():
        summary = scoring.score(settings, Lines())
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        show_scored(summary, settings)


def _ensemble(settings: EnsembleSettings, as_json: bool) -> None:
    from pipelines import ensembling
    from pipelines.progress import Lines
    from pipelines.report import show_ensemble

    with _no_words_of_ray():
        summary = ensembling.ensemble(settings, Lines())
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        show_ensemble(summary, settings)


@contextlib.contextmanager
def _no_words_of_ray() -> Iterator[None]:
    """Ray prints what died to standard output, with tracebacks; a person hears of it from the progress, or in one error."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _filter(settings: FilterSettings, as_json: bool) -> None:
    from pipelines import filtering
    from pipelines.report import show_kept

    summary = filtering.keep(settings)
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        show_kept(summary, settings)


if __name__ == "__main__":
    main()
