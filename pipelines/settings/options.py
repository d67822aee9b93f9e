"""One flat set of names for nested settings: what the command line, a recipe and Python call the same thing the same.

`ScoreSettings` nests its fields by who needs them; a person writes `--tensor-parallel 2`, or `tensor_parallel=2`.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from actors.errors import SettingsError
from actors.settings.base import Settings
from actors.settings.credentials import check_no_credentials
from actors.settings.plain_yaml import parse_yaml

S = TypeVar("S", bound=Settings)


class Leaf(NamedTuple):
    """A single setting: its name, the sections it lies in, and what pydantic knows of it."""

    name: str
    sections: tuple[str, ...]
    field: FieldInfo


def leaves(settings: type[Settings], sections: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All single settings, in the order they are declared."""
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from leaves(field.annotation, (*sections, name))
        else:
            yield Leaf(name, sections, field)


def from_yaml(text: str, what: str) -> Any:
    """The value that a text in YAML stands for. Raises `SettingsError` that names `what` couldn't be read."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{what} is no YAML: {error}") from error


def build(settings: type[S], flat: Mapping[str, Any]) -> S:
    """Settings from flat names. Raises `SettingsError` that tells every mistake at once."""
    known = {leaf.name: leaf for leaf in leaves(settings)}
    nested: dict[str, Any] = {}
    for leaf in known.values():
        section = nested
        for step in leaf.sections:
            section = section.setdefault(step, {})
        if leaf.name in flat:
            section[leaf.name] = flat[leaf.name]
    unknown = [_unknown(name, known) for name in sorted(flat.keys() - known.keys())]
    try:
        found = validate(settings, nested)
    except SettingsError as error:
        raise SettingsError("; ".join([*unknown, str(error)])) from None
    if unknown:
        raise SettingsError("; ".join(unknown))
    return found


def validate(settings: type[S], nested: object) -> S:
    """Settings from nested values, as in a recipe. Raises `SettingsError` that tells every mistake and its place."""
    try:
        check_no_credentials(nested)  # before another mistake is told with what was given
    except ValueError as error:
        raise SettingsError(str(error)) from None
    try:
        return settings.model_validate(nested)
    except ValidationError as error:
        raise SettingsError("; ".join(_told(settings, problem) for problem in error.errors())) from None


def _told(settings: type[Settings], problem: Any) -> str:
    place = ".".join(map(str, problem["loc"])) or "the settings"
    if problem["type"] == "extra_forbidden":
        return f"{place} is no setting; " + _unknown(str(problem["loc"][-1]), _fields_at(settings, problem["loc"][:-1]))
    if problem["type"] == "missing":
        return f"{place} is missing"
    return f"{place} = {problem['input']!r}: {problem['msg'].removeprefix('Input ')}"


def _fields_at(settings: type[Settings], steps: tuple[int | str, ...]) -> Mapping[str, Any]:
    for step in steps:
        if isinstance(step, int):  # which of a list: all of them have the same fields
            continue
        annotation = settings.model_fields[step].annotation
        nested = [kind for kind in (annotation, *getattr(annotation, "__args__", ())) if isinstance(kind, type)]
        settings = next(kind for kind in nested if issubclass(kind, Settings))
    return settings.model_fields


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{name} isn't known; {meant}There are {', '.join(known)}"
