"""Maps flat names to nested settings, and validates settings from the command line, a recipe or Python.

`ScoreSettings` nests its fields by the component that needs them; a person writes `--tensor-parallel 2` or
`tensor_parallel=2`, without the section. Names are therefore unique within a settings class.
"""

import typing
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from actors.errors import SettingsError
from actors.settings.base import Settings, is_settings, plain_type
from actors.settings.credentials import check_no_credentials
from actors.settings.plain_yaml import parse_yaml
from pipelines.settings.mistakes import Place, alternatives, mistakes, path

S = TypeVar("S", bound=Settings)


class Leaf(NamedTuple):
    """A single setting: its name, the nested sections that lead to it, the class that has it, and its pydantic field."""

    name: str
    sections: tuple[str, ...]
    settings: type[Settings]
    field: FieldInfo
    is_flagless: bool = False  # whether a command has no option for it that others have

    @property
    def is_option(self) -> bool:
        # Whether it is an option of the command line; all others are set by their path.
        extra = self.field.json_schema_extra
        is_option = self.field.is_required() or (isinstance(extra, dict) and bool(extra.get("option")))
        return is_option and not self.is_flagless

    @property
    def path(self) -> str:
        # Its name after that of its section, as in a recipe and after --set.
        return ".".join((*self.sections[-1:], self.name))

    @property
    def about(self) -> str:
        return " ".join((self.field.description or "").split())

    @property
    def choices(self) -> tuple[str, ...]:
        # The values that it may have, if they are few and have names.
        kind = plain_type(self.field.annotation)
        if typing.get_origin(kind) is typing.Literal:
            return typing.get_args(kind)
        if kind is bool:
            return ("true", "false")
        return tuple(map(str, kind)) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()

    @property
    def default(self) -> Any:
        return None if self.field.is_required() else self.field.get_default(call_default_factory=True)


def leaves(settings: type[Settings], sections: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All single settings, in the order they are declared, which is that of the help and of recipes.

    `sections` are the names that lead to the settings themselves.
    """
    for name, field in settings.model_fields.items():
        if is_settings(field.annotation):
            yield from leaves(field.annotation, (*sections, name))
        else:
            yield Leaf(name, sections, settings, field)


def from_yaml(text: str, what: str) -> Any:
    """Parse YAML text. Raises `SettingsError`, which begins with `what`: the file or option that the text is from."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{what} isn't valid YAML: {error}") from error


def build(settings: type[S], flat: Mapping[str, Any], spell: Callable[[str], str] = str) -> S:
    """Build nested settings from flat names. Raises one `SettingsError` that lists every mistake; `spell` writes names."""
    by_name = {leaf.name: leaf for leaf in leaves(settings)}
    nested: dict[str, Any] = {}
    for leaf in by_name.values():
        # Sections are there even if nothing is set in them, so that what is missing is named with its place.
        section = nested
        for step in leaf.sections:
            section = section.setdefault(step, {})
        if leaf.name in flat:
            section[leaf.name] = flat[leaf.name]

    def spell_place(place: Place) -> str:
        depth = next((depth for depth, step in enumerate(place) if _is_leaf(by_name.get(str(step)), place, depth)), None)
        if depth is None:
            return ""
        name, inner = str(place[depth]), place[depth + 1 :]
        file = flat.get(name) if inner else None  # a rubric's settings are in the file whose path was given
        return f"{spell(name)} {file}: {path(inner)}" if isinstance(file, str) else path((spell(name), *inner))

    _refuse_credentials(flat)
    unknown = [f"{name} is unknown; {alternatives(name, by_name)}" for name in sorted(flat.keys() - by_name.keys())]
    wrong, validated = _validate(settings, nested, spell_place)
    if validated is None or unknown:
        raise SettingsError("\n  ".join([*unknown, *wrong]))
    return validated


def validate(settings: type[S], nested: object) -> S:
    """Validate nested values, as in a recipe.

    Raises one `SettingsError` that lists every mistake with its path.
    """
    _refuse_credentials(nested)
    wrong, validated = _validate(settings, nested, path)
    if validated is None:
        raise SettingsError("\n  ".join(wrong))
    return validated


def _refuse_credentials(values: object) -> None:
    # Before anything else: messages quote values, and a credential must not be printed.
    try:
        check_no_credentials(values)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _validate(settings: type[S], nested: object, spell: Callable[[Place], str]) -> tuple[list[str], S | None]:
    try:
        return [], settings.model_validate(nested)
    except ValidationError as error:
        return mistakes(settings, error, spell), None


def _is_leaf(leaf: Leaf | None, place: Place, depth: int) -> bool:
    return leaf is not None and leaf.sections == place[:depth]
