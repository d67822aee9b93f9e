"""What commands share. Options are generated from settings: one for each field, with its type, default and description."""

import contextlib
import enum
import functools
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from actors.errors import SettingsError
from actors.settings.base import Settings, is_settings, plain_type
from pipelines.cli.grouped_help import OTHERS, Command, GroupedOption, OneValue
from pipelines.cli.option_values import complete_value
from pipelines.settings.options import Leaf, build, from_yaml, leaves

Function = Callable[..., None]
S = TypeVar("S", bound=Settings)

command = functools.partial(click.command, cls=Command)
"""Declares a command whose help is in groups."""
json_option = click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")


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
        about = next(leaf.field.description or "" for leaf in leaves(about) if leaf.name == name)
    return click.argument(name, help=about, shell_complete=complete_value, **options)


def option(*flags: str, **options: Any) -> Callable[[Function], Function]:
    """A decorator that adds an option which takes one text, and of which the shell completes the value."""
    return click.option(*flags, cls=OneValue, shell_complete=complete_value, **options)


def settings_options(settings: type[Settings], *but: str, **also: tuple[str, ...]) -> Callable[[Function], Function]:
    """A decorator that adds a click option for each leaf of the settings, except those named in `but`.

    `also` replaces the flags of a setting: `n=("-n",)`.
    """

    def decorate(function: Function) -> Function:
        for leaf in reversed(list(leaves(settings))):  # decorators apply from the last to the first: --help keeps the order
            if leaf.name not in but:
                flags = also.get(leaf.name, (f"--{leaf.name.replace('_', '-')}",))
                function = _option(leaf, flags)(function)
        return function

    return decorate


def build_from(settings: type[S], options: Mapping[str, Any]) -> S:
    """The settings of options that were given. Raises one `SettingsError` that lists every mistake with its flag."""
    return build(settings, given_options(options), _flag)


def _flag(name: str) -> str:
    """How a person writes a setting of the command that runs."""
    parameters = click.get_current_context().command.params
    parameter = next((parameter for parameter in parameters if parameter.name == name), None)
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.human_readable_name if parameter else name


def _option(leaf: Leaf, flags: tuple[str, ...]) -> Callable[[Function], Function]:
    kind, flag, group = plain_type(leaf.field.annotation), flags[0], _group(leaf)
    text = leaf.field.description
    if kind is bool:
        switch = f"{flag}/--no-{flag[2:]}" if leaf.field.default else flag
        return click.option(switch, cls=GroupedOption, group=group, is_flag=True, default=None, help=text)
    if typing.get_origin(kind) is tuple:
        several = {"multiple": True, "callback": _several, "help": f"{text}; may be given more than once"}
        return click.option(*flags, leaf.name, cls=GroupedOption, group=group, **several)
    if typing.get_origin(kind) is dict:
        is_text = plain_type(typing.get_args(kind)[1]) is str
        pairs = {"multiple": True, "metavar": "NAME=VALUE", "callback": _texts if is_text else _values, "help": text}
        return click.option(flag, cls=GroupedOption, group=group, **pairs)
    required = leaf.field.is_required()
    default = None if required else leaf.field.get_default(call_default_factory=True)
    shown = f"{text}  [default: {default}]" if default not in (None, "") else text
    value = _click_type(kind)
    complete = {"shell_complete": complete_value} if value is str else {}
    return click.option(*flags, leaf.name, cls=OneValue, group=group, type=value, required=required, help=shown, **complete)


def _group(leaf: Leaf) -> str:
    """The section of a setting and what that is about; of none, if the setting matters to most people."""
    extra = leaf.field.json_schema_extra
    if leaf.field.is_required() or (isinstance(extra, dict) and extra.get("matters")):
        return ""
    if not leaf.sections:
        return OTHERS
    about = (leaf.settings.__doc__ or "").split(". ")[0].rstrip(".")
    return f"{leaf.sections[-1].replace('_', ' ').capitalize()}: {about[:1].lower()}{about[1:]}"


def _click_type(kind: Any) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        return click.Choice(typing.get_args(kind))
    if is_settings(kind):
        return str  # a file that holds them
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return click.Choice([member.value for member in kind])
    return kind


def _several(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return values or None


def _values(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any] | None:
    """Values are YAML: numbers and lists have their types."""
    return {name: from_yaml(value, f"{parameter.opts[0]} {name}") for name, value in _pairs(parameter, values)} or None


def _texts(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    """Values are text as written: in YAML, a principle with a colon or # would be something else."""
    return dict(_pairs(parameter, values)) or None


def _pairs(parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names with their values. Raises `SettingsError` for a value without `=`, or for a name that is given twice."""
    pairs = [value.partition("=") for value in values]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        shown = repr(wrong[0]) if wrong[0].isidentifier() else "what was given"  # which may hold a credential
        raise SettingsError(f"{parameter.opts[0]} takes NAME=VALUE, and {shown} isn't")
    names = [name for name, *_ in pairs]
    if len(set(names)) < len(names):
        raise SettingsError(f"{parameter.opts[0]} gives one name twice: {', '.join(names)}")
    return [(name, value) for name, _, value in pairs]


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given on the command line; the settings have the defaults of all others."""
    return {name: value for name, value in options.items() if value is not None}
