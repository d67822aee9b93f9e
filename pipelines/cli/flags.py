"""What commands share. Options are generated from settings: one for each field, with its type, default and description."""

import contextlib
import enum
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from actors.errors import SettingsError
from actors.settings.base import Settings
from pipelines.settings.options import Leaf, from_yaml, leaves

Command = Callable[..., None]


def _pair_formats() -> list[str]:
    from pipelines.exports.trainers import PAIR_FORMATS

    return sorted(PAIR_FORMATS)


def _export_formats() -> list[str]:
    from pipelines.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS

    return sorted([*PAIR_FORMATS, *RESPONSE_FORMATS])


def _row_shapes() -> list[str]:
    from pipelines.formats import SHAPES

    return sorted(SHAPES)


def _prompt_shapes() -> list[str]:
    from pipelines.formats import PROMPT_SHAPES

    return sorted(PROMPT_SHAPES)


def _all_shapes() -> list[str]:
    """Both kinds: without a policy, `sample` judges the rows' own responses."""
    return sorted({*_prompt_shapes(), *_row_shapes()})


def _families() -> list[str]:
    from actors.reward_model import families

    return sorted(families())


VALUES: Mapping[str, Callable[[], list[str]]] = {
    "pairs trainer": _pair_formats,
    "export trainer": _export_formats,
    "sample format": _all_shapes,
    "refine format": _prompt_shapes,
    "score format": _row_shapes,
    "plan format": _row_shapes,
    "ensemble format": _row_shapes,
    "family": _families,
}
"""The values of options that take a name found in a folder; keys are an option's name, or a command and an option."""


class OneValue(click.Option):
    """An option that takes one value. Given twice it is an error, where click would silently take the last."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "multiple": True})

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option's help, with its possible values from `VALUES`, which are imported only when help is shown."""
        record = super().get_help_record(ctx)
        names = VALUES.get(f"{ctx.info_name} {self.name}") or VALUES.get(f"{self.name}")
        return (record[0], f"{record[1]}; there are {', '.join(names())}") if record and names else record

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The value, or None. Raises `click.UsageError` if there are several."""
        values = super().process_value(ctx, value)
        if values and len(values) > 1:
            raise click.UsageError(f"{self.opts[0]} takes one value, and it is given {' and '.join(map(repr, values))}", ctx)
        return values[0] if values else None


json_option = click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")


@contextlib.contextmanager
def silence_ray() -> Iterator[None]:
    """Discard standard output in the block: Ray prints tracebacks of dead actors there, where --json's summary belongs.

    The progress, on standard error, or the final error says the same in one line.
    """
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def settings_options(settings: type[Settings], *but: str, **also: tuple[str, ...]) -> Callable[[Command], Command]:
    """A decorator that adds a click option for each leaf of the settings, except those named in `but`.

    `also` replaces the flags of a setting: `n=("-n",)`.
    """

    def decorate(command: Command) -> Command:
        for leaf in reversed(list(leaves(settings))):  # decorators apply from the last to the first: --help keeps the order
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
    return click.option(*flags, leaf.name, cls=OneValue, type=_click_type(kind), required=required, help=shown)


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


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given on the command line; the settings have the defaults of all others."""
    return {name: value for name, value in options.items() if value is not None}
