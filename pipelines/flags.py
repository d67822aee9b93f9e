"""What commands have in common. Options are made of settings: one for each, with its type, default and description."""

import contextlib
import enum
import os
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import click

from actors.errors import SettingsError
from actors.settings_base import Settings
from pipelines.options import Leaf, from_yaml, leaves

Command = Callable[..., None]

json_option = click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")


@contextlib.contextmanager
def no_words_of_ray() -> Iterator[None]:
    """Ray prints what died to standard output, with tracebacks; a person hears of it from the progress, or in one error."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def settings_options(settings: type[Settings], *but: str, **also: tuple[str, ...]) -> Callable[[Command], Command]:
    """One click option for every single setting, with its default and its description.

    `also` are flags by which a setting is known here, in place of its own name: `n=("-n",)`.
    """

    def decorate(command: Command) -> Command:
        for leaf in reversed(list(leaves(settings))):
            if leaf.name not in but:
                flags = also.get(leaf.name, (f"--{leaf.name.replace('_', '-')}",))
                command = _option(leaf, flags)(command)
        return command

    return decorate


def _option(leaf: Leaf, flags: tuple[str, ...]) -> Callable[[Command], Command]:
    kind, flag = _plain(leaf.field.annotation), flags[0]
    text = leaf.field.description
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}" if leaf.field.default else flag, is_flag=True, default=None, help=text)
    if typing.get_origin(kind) is tuple:
        several = f"{text}; may be given more than once"
        return click.option(*flags, leaf.name, multiple=True, callback=_several, help=several)
    if typing.get_origin(kind) is dict:
        is_text = _plain(typing.get_args(kind)[1]) is str
        return click.option(flag, multiple=True, metavar="NAME=VALUE", callback=_texts if is_text else _values, help=text)
    default = None if leaf.field.is_required() else leaf.field.default
    shown = f"{text}  [default: {default}]" if default not in (None, "") else text
    required = leaf.field.is_required()
    return click.option(*flags, leaf.name, type=_click_type(kind), default=None, required=required, help=shown)


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


def _several(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return values or None


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


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that were given."""
    return {name: value for name, value in options.items() if value is not None}
