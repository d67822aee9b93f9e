"""Maps flat option names to nested settings, and validates settings from the command line, a recipe or Python.

`ScoreSettings` nests its fields by the component that needs them; a person writes `--tensor-parallel 2` or
`tensor_parallel=2`, without the section. Names are therefore unique within a settings class.
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
    """A single setting: its name, the nested sections that lead to it, and its pydantic field."""

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
    """Parse YAML text. Raises `SettingsError`, which begins with `what`: the file or option that the text is from."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{what} isn't valid YAML: {error}") from error


def build(settings: type[S], flat: Mapping[str, Any]) -> S:
    """Build nested settings from flat names. Raises one `SettingsError` that lists every mistake."""
    by_name = {leaf.name: leaf for leaf in leaves(settings)}
    nested: dict[str, Any] = {}
    for leaf in by_name.values():
        section = nested
        for step in leaf.sections:
            section = section.setdefault(step, {})
        if leaf.name in flat:
            section[leaf.name] = flat[leaf.name]
    unknown = [_unknown_name(name, by_name) for name in sorted(flat.keys() - by_name.keys())]
    try:
        validated = validate(settings, nested)
    except SettingsError as error:
        raise SettingsError("; ".join([*unknown, str(error)])) from None
    if unknown:
        raise SettingsError("; ".join(unknown))
    return validated


def validate(settings: type[S], nested: object) -> S:
    """Validate nested values, as in a recipe. Raises one `SettingsError` that lists every mistake with its path."""
    try:
        check_no_credentials(nested)  # first: the messages below quote values, and a credential must not be printed
    except ValueError as error:
        raise SettingsError(str(error)) from None
    try:
        return settings.model_validate(nested)
    except ValidationError as error:
        raise SettingsError("; ".join(_problem_text(settings, problem) for problem in error.errors())) from None


def _problem_text(settings: type[Settings], problem: Any) -> str:
    place = ".".join(map(str, problem["loc"])) or "the settings"
    if problem["type"] == "extra_forbidden":
        return f"{place} isn't a setting; " + _alternatives(
            str(problem["loc"][-1]), _fields_at(settings, problem["loc"][:-1])
        )
    if problem["type"] == "missing":
        return f"{place} is missing"
    return f"{place} = {problem['input']!r}: {problem['msg'].removeprefix('Input ')}"


def _fields_at(settings: type[Settings], steps: tuple[int | str, ...]) -> Mapping[str, Any]:
    for step in steps:
        if isinstance(step, int):  # an index into a list: all its items have the same fields
            continue
        annotation = settings.model_fields[step].annotation
        nested = [kind for kind in (annotation, *getattr(annotation, "__args__", ())) if isinstance(kind, type)]
        settings = next(kind for kind in nested if issubclass(kind, Settings))
    return settings.model_fields


def _unknown_name(name: str, allowed: Mapping[str, Any]) -> str:
    return f"{name} is unknown; {_alternatives(name, allowed)}"


def _alternatives(name: str, allowed: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, allowed, n=3)
    return (f"did you mean {' or '.join(close)}? " if close else "") + f"Allowed: {', '.join(allowed)}"
