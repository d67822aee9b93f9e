"""What commands share. Options are generated from settings, with the type, default and description of each field."""

import contextlib
import functools
import os
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import click

from actors.errors import SettingsError
from actors.settings.base import Settings, plain_type
from pipelines.cli.grouped_help import ASSIGNED, AssignedSettings, Command, OneValue, settable
from pipelines.cli.option_values import complete_value
from pipelines.settings.options import Leaf, build, leaves

Function = Callable[..., None]
S = TypeVar("S", bound=Settings)

command = functools.partial(click.command, cls=Command)  # declares a command whose --help-all lists its settings
json_option = click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")

recipe_assignments = click.option(
    *("--set", "assignments"),
    multiple=True,
    metavar="STEP.NAME=VALUE",
    help="set what a step of the recipe has otherwise, e.g. score.work.part_rows=64; `assay STEP --help-all` lists a step's",
)


@contextlib.contextmanager
def silence_ray() -> Iterator[None]:
    """Discard standard output in the block: Ray prints tracebacks of dead actors there, where --json's summary belongs.

    The progress, on standard error, or the final error says the same in one line.
    """
    with open(os.devnull, "w") as devnull, contextlib.redirect_stdout(devnull):
        yield


def argument(name: str, about: str | type[Settings], **options: Any) -> Callable[[Function], Function]:
    """A decorator that adds a positional argument, which the shell completes. `about` is its help, or its settings."""
    if not isinstance(about, str):
        about = next(leaf.about for leaf in leaves(about) if leaf.name == name)
    return click.argument(name, help=about, shell_complete=complete_value, **options)


def option(*flags: str, **options: Any) -> Callable[[Function], Function]:
    """A decorator that adds an option which takes one text, and of which the shell completes the value."""
    return click.option(*flags, cls=OneValue, shell_complete=complete_value, **options)


def settings_options(
    settings: type[Settings], *but: str, only: Collection[str] | None = None, **also: tuple[str, ...]
) -> Callable[[Function], Function]:
    """A decorator that adds a click option for each setting that is one, and `--set` for the others; but those of `but`.

    `only` names the settings that are options of this command. `also` replaces the flags of a setting: `n=("-n",)`; with
    none it is set by `--set`.
    """

    def has_no_flag(name: str) -> bool:
        return also.get(name) == () or (only is not None and name not in only)

    def decorate(function: Function) -> Function:
        settable = [leaf._replace(is_flagless=has_no_flag(leaf.name)) for leaf in leaves(settings) if leaf.name not in but]
        # Without settings that need it, --set would only repeat the options.
        if not all(leaf.is_option for leaf in settable):
            function = click.option("--set", ASSIGNED, cls=AssignedSettings, settings=settable)(function)
        for leaf in reversed(settable):  # decorators apply from the last to the first: --help keeps the order
            if leaf.is_option:
                function = _option(leaf, also.get(leaf.name, (f"--{leaf.name.replace('_', '-')}",)))(function)
        return function

    return decorate


def build_from(settings: type[S], options: Mapping[str, Any]) -> S:
    """The settings of options that were given. Raises one `SettingsError` that lists every mistake with its flag."""
    return build(settings, given_options(options), spell)


def spell(name: str) -> str:
    """How a person writes a setting of the command that runs."""
    parameters = click.get_current_context().command.params
    parameter = next((parameter for parameter in parameters if parameter.name == name), None)
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    if parameter is not None:
        return parameter.human_readable_name
    paths = {leaf.name: leaf.path for leaf in settable(parameters)}
    return f"--set {paths[name]}" if name in paths else name


def _option(leaf: Leaf, flags: tuple[str, ...]) -> Callable[[Function], Function]:
    kind, text, required = plain_type(leaf.field.annotation), leaf.about, leaf.field.is_required()
    if kind is bool:
        # None tells "not given" from "given as false"; the settings have the default. So for all options below.
        return click.option(*flags, is_flag=True, default=None, help=text)
    if typing.get_origin(kind) is tuple:
        about = f"{text}; may be given more than once"
        several = functools.partial(click.option, multiple=True, callback=_several, shell_complete=complete_value)
        return several(*flags, leaf.name, required=required, help=about)
    if typing.get_origin(kind) is dict:
        about = f"{text}; may be given more than once"
        return click.option(*flags, leaf.name, multiple=True, callback=_mapping, metavar="NAME=VALUE", help=about)
    about = text if leaf.default in (None, "") else f"{text}  [default: {leaf.default}]"
    value = click.Choice(leaf.choices) if leaf.choices else kind if kind in (int, float) else str
    declared = functools.partial(
        click.option, cls=OneValue, type=value, shell_complete=complete_value if value is str else None
    )
    return declared(*flags, leaf.name, required=required, help=about)


def _several(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return values or None


def _mapping(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [value.partition("=") for value in values]
    # A text may hold "=", so only the first one separates.
    if wrong := [value for value, (name, _, text) in zip(values, pairs, strict=True) if not (name and text)]:
        raise click.BadParameter(f"{wrong[0]!r} isn't NAME=VALUE")
    if twice := [name for name, count in Counter(name for name, *_ in pairs).items() if count > 1]:
        raise click.BadParameter(f"{twice[0]} is given twice")
    return {name: text for name, _, text in pairs} or None


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options and settings that were given on the command line; the settings have the defaults of all others.

    Raises `SettingsError` for a setting that is given both as an option and by `--set`.
    """
    options_given = {name: value for name, value in options.items() if value is not None and name != ASSIGNED}
    assigned = options.get(ASSIGNED) or {}
    # Neither is taken over the other: which one is meant, only the person knows.
    if twice := sorted(options_given.keys() & assigned.keys()):
        raise SettingsError(f"{spell(twice[0])} and --set {twice[0]} are one setting: give either")
    return options_given | assigned
