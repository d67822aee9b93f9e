"""The command line: `assay`, or `python -m assay`. Commands import what they need when they run: --help is instant."""

import atexit
import contextlib
import errno
import importlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import click

from actors.errors import AssayError, AuditError, GateFailed, UserError
from actors.text.visible import visible
from pipelines.cli.flags import argument, build_from, json_option, option, recipe_assignments, settings_options
from pipelines.cli.grouped_help import Command, CommandGroup
from pipelines.cli.steps import do_step
from pipelines.data.storage import is_in_job
from pipelines.settings.filter_settings import FilterSettings, LabelSampleSettings
from pipelines.settings.run_settings import CascadeSettings, CheckSettings, EnsembleSettings, ScoreSettings

PROGRAM = "assay"
# What shells show of a program that SIGPIPE ended (128 + 13): the reader of its output had enough, as `head` does.
_BROKEN_PIPE = 141


def main() -> None:
    """Run the command line.

    Exit codes: 0 done, 2 can't be done as given, 3 stopped early, 4 audit failed or nothing scored, 5 a gate failed.

    Ends the process by `os._exit`: during Python's own shutdown, threads of Ray and other libraries are still running, and a
    segmentation fault there has replaced the exit code of a run that was complete.
    """
    code: Any = 0
    stdout = sys.stdout
    try:
        _run()
    except SystemExit as end:
        # Where the reader of the output has ended, rich and click exit with 1, and click replaces both streams.
        code = _BROKEN_PIPE if isinstance(end.__context__, BrokenPipeError) or sys.stdout is not stdout else end.code
    except BrokenPipeError:
        code = _BROKEN_PIPE
    # `os._exit` skips these; among them is the end of Ray's session and of engines.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # A command that failed keeps its exit code, whoever reads its output.
            code = code or (_BROKEN_PIPE if isinstance(error, BrokenPipeError) else 1)
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _run() -> None:
    try:
        cli(standalone_mode=False, prog_name=PROGRAM)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("interrupted" if _writes_nothing() else f"interrupted; what is written stays, and {_how_to_resume()}", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AuditError as error:
        _fail(str(error), 4)
    except GateFailed as error:
        _fail(str(error), 5)
    # A full disk ends any step of a run, also one that reports it as a wrong setting of a folder: resumable (3), not wrong
    # (2).
    except UserError as error:
        _fail(*(_stop_message(error) if _is_full(error) else (str(error), 2)))
    except AssayError as error:
        _fail(*_stop_message(error))
    except OSError as error:
        if not _is_full(error):
            raise
        _fail(*_stop_message(error))


def _stop_message(error: Exception) -> tuple[str, int]:
    return str(error) if _writes_nothing() else f"{error}\nWhat is written stays, and {_how_to_resume()}", 3


def _writes_nothing() -> bool:
    return sys.argv[1:2] in (["check"], ["diff"], ["models"], ["plan"], ["serve"], ["status"], ["verify"])


def _is_full(error: BaseException | None) -> bool:
    # A full disk or quota, wherever in the chain of causes: then the command is right, and resumes once there is space.
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _how_to_resume() -> str:
    # The command as it was given, but without what would delete the rows that are written.
    from pipelines.settings.recipe import read_recipe

    words = _without_overwrite(sys.argv[1:])
    change = "" if words == sys.argv[1:] else ", without --overwrite"
    if sys.argv[1:2] == ["run"]:
        change = ", without `overwrite`"  # to be sure, where the recipe can't be read any more
        with contextlib.suppress(UserError):
            change = read_recipe(next((word for word in sys.argv[2:] if not word.startswith("-")), "")).change_to_resume
    if is_in_job():
        return f"submit the same job again to resume{change}"
    # As it was called: `assay` may not be on the path.
    program = PROGRAM if os.path.basename(sys.argv[0]) == PROGRAM else "python -m assay"
    return f"to resume{change}:\n  {program} {shlex.join(words)}"


def _without_overwrite(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for word in words:
        if re.fullmatch(r"(--set=)?([\w.]+\.)?overwrite=.*", word):
            # `--set overwrite=true` may be two words: the first one goes, too.
            kept = kept[:-1] if kept[-1:] == ["--set"] else kept
        elif word != "--overwrite":
            kept.append(word)
    return kept


def _fail(message: str, code: int) -> None:
    click.echo(f"assay: {visible(message)}", err=True)
    sys.exit(code)


class _Commands(CommandGroup):
    """The commands by job. Those of other modules are imported when such a command or --help is run."""

    command_class = Command
    JOBS: ClassVar[Mapping[str, Sequence[str]]] = {
        "Score and filter": ("score", "ensemble", "cascade", "filter", "label-sample", "report", "diff", "status"),
        "Check and mend what is scored": ("verify", "retry"),
        "Sample and train": ("sample", "refine", "choose", "pairs", "export", "upload"),
        "Choose and check models": ("models", "evaluate", "certify", "check", "plan"),
        "Serve": ("serve",),
        "Run recipes, here or on a cluster": ("run", "submit", "schema"),
        "Shell": ("completion",),
    }
    # By module: the shell completes while a person waits, and needs the one command only.
    ELSEWHERE: ClassVar = {
        **dict.fromkeys(("sample", "refine", "choose", "pairs", "export", "upload"), "pipelines.cli.commands.sampling"),
        **dict.fromkeys(("verify", "retry"), "pipelines.cli.commands.rescoring"),
        **dict.fromkeys(("submit", "schema"), "pipelines.cli.commands.submit"),
        **{name: f"pipelines.cli.commands.{name}" for name in ("evaluate", "certify", "plan", "report", "diff", "status")},
        "serve": "deploy.command",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self.JOBS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(self.ELSEWHERE[cmd_name]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for job, names in self.JOBS.items():
            self.write_commands(ctx, formatter, job, names)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="assay", message="assay %(version)s", help="print the version, and exit")
def cli() -> None:
    """Score corpora and online requests with reward models; filter, sample, choose and export by the scores."""


@cli.group(cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List the reward models that Assay knows. `models explain ID` shows one model's prompt format and outputs."""
    from pipelines.cli.commands.explain import known_models
    from pipelines.cli.plain_console import show

    if context.invoked_subcommand is None:
        show(known_models())


@models.command(cls=Command)
@argument("model", "a local folder, a hub id, or one of the built-in tiny-* models")
@option("--family", help="family of the model, as for `score`")
@json_option
def explain(model: str, family: str | None, as_json: bool) -> None:
    """Show the prompt format of MODEL, where its reward is read, its range, context length, licence and source."""
    from pipelines.cli.commands.explain import explained, explanation
    from pipelines.cli.plain_console import tell

    about = explanation(model, family)
    tell(as_json, about, [explained(about)])


@cli.command()
@argument("model", CheckSettings)
@click.option("--timing", is_flag=True, help="print when each step of the start began, in seconds, in all processes")
@settings_options(CheckSettings, "model", endpoint=(), max_cost=())
@json_option
def check(timing: bool, as_json: bool, **options: Any) -> None:
    """Start an engine with MODEL and run the self-test that every replica runs before its first row.

    A judge that gives a right and a wrong answer the same is a warning. With --json: versions, each check that passed,
    warnings, and the error of the one that didn't pass, for a report of a fault.
    """
    from pipelines.cli.commands.check import check as run_check
    from pipelines.cli.commands.check import timed, write_json

    settings = build_from(CheckSettings, options)
    # Printed as they pass: an engine may take minutes to start.
    in_words = (lambda passed: click.echo(f"ok  {passed}")), (lambda doubt: click.echo(f"warning  {doubt}"))
    report = write_json(settings) if as_json else contextlib.nullcontext(in_words)
    with timed(click.echo) if timing else contextlib.nullcontext(), report as (note_passed, note_doubt):
        run_check(settings, note_passed, note_doubt)


@cli.command()
@argument("inputs", ScoreSettings, nargs=-1, required=True)
@argument("output", ScoreSettings)
@settings_options(ScoreSettings, "inputs", "output")
@json_option
def score(as_json: bool, **options: Any) -> None:
    """Score the corpus INPUTS (files, globs, folders) and write the scores to the folder OUTPUT.

    Run the same command again to resume after an interruption.
    """
    do_step("score", build_from(ScoreSettings, options), as_json)


@cli.command()
@argument("inputs", EnsembleSettings, nargs=-1, required=True)
@argument("output", EnsembleSettings)
@settings_options(EnsembleSettings, "inputs", "output", models=("--model",))
@json_option
def ensemble(as_json: bool, **options: Any) -> None:
    """Score the corpus INPUTS with several models, and write their combined scores to the folder OUTPUT.

    OUTPUT is a scored corpus like any other; OUTPUT/models/ holds one for each model. By default, the reward is the mean of
    the models' z-scores, which each model's rewards have among the responses to one prompt: raw rewards of different models
    are on different scales. Run the same command again to resume after an interruption; with another --combine, the scores
    are combined again without running a model. To give models different settings, use a recipe.
    """
    do_step("ensemble", build_from(EnsembleSettings, options), as_json)


@cli.command()
@argument("inputs", CascadeSettings, nargs=-1, required=True)
@argument("output", CascadeSettings)
@settings_options(
    CascadeSettings,
    *("inputs", "output"),
    only=("models", "where", "error", "miss", "confidence", "overwrite"),
    models=("--model",),
)
@json_option
def cascade(as_json: bool, **options: Any) -> None:
    """Decide which responses of INPUTS the last model's filter keeps, with as few rows for it as the allowed error lets.

    The first --model scores all rows; the last one those whose outcome the models before it leave open, and a random slice
    by which it is calibrated what they leave open. OUTPUT is a scored corpus whose column `kept` has the decision. Run the
    same command again to resume after an interruption.
    """
    do_step("cascade", build_from(CascadeSettings, options), as_json)


@cli.command("filter")
@argument("scored", FilterSettings)
@argument("output", FilterSettings, required=False)
@settings_options(FilterSettings, "scored", "output")
@json_option
def filter_(as_json: bool, **options: Any) -> None:
    """Write the rows of the scored corpus SCORED that meet a condition to the folder OUTPUT; without OUTPUT, count them."""
    do_step("filter", build_from(FilterSettings, options), as_json)


@cli.command("label-sample")
@argument("scored", LabelSampleSettings)
@argument("output", LabelSampleSettings)
@settings_options(LabelSampleSettings, "scored", "output", n=("-n",))
@json_option
def label_sample(as_json: bool, **options: Any) -> None:
    """Draw responses of the scored corpus SCORED at random, for people to label, into the JSONL file OUTPUT.

    Put true or false in the place of each `label`; `filter --labels OUTPUT --precision 0.9` then finds the cut by them.
    """
    from pipelines.cli.plain_console import tell
    from pipelines.results.filtering.label_sample import draw_labels

    drawn = draw_labels(build_from(LabelSampleSettings, options))
    lines = [
        f"Drawn: {drawn.drawn:,} of {drawn.responses:,} responses with a reward, each for {drawn.weight:,.4g} of them",
        f"To be labelled: {drawn.output}",
    ]
    tell(as_json, drawn, lines)


@cli.command()
@argument("recipe", "YAML file with the settings of one step or several")
@recipe_assignments
@json_option
def run(recipe: str, assignments: tuple[str, ...], as_json: bool) -> None:
    """Run the steps in the file RECIPE, one after another.

    In this order: sample, refine, score, ensemble or cascade, filter, choose, pairs, export, evaluate, report.
    """
    from pipelines.cli import recipe_preflight
    from pipelines.cli.recipe_engines import recipe_engines
    from pipelines.settings.recipe import read_recipe

    stages = [stage.steps for stage in read_recipe(recipe, assignments).stages]
    # All stages before the first engine starts: a run may take days.
    recipe_preflight.check_stages(stages)
    with recipe_engines(stages) as engines_for:
        for steps in stages:
            recipe_preflight.check_steps(steps)
            for name, step in steps.items():
                do_step(name, step, as_json, engines_for(step))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="the shell that completes")
def completion(shell: str) -> None:
    """Print a script that makes SHELL complete commands, options, their values, and paths."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has one for each of the choices
    click.echo(kind(cli, {}, PROGRAM, "_ASSAY_COMPLETE").source())
