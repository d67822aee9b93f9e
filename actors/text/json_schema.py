"""JSON schemas of users: checked before their use, their patterns matched in linear time. Nothing is fetched for one."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from actors.text.patterns import linear

_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_LATEST = "https://json-schema.org/draft/2020-12/schema"
_VALUES = frozenset({"enum", "const", "default", "examples"})


def check_schema(schema: Any) -> Any:
    """The schema. Raises `ValueError` for one that isn't valid, or that can't be checked in linear time.

    That is one with `patternProperties`, with a pattern that RE2 can't take, or with a `$ref` that leads nowhere.
    """
    import jsonschema  # only who has a schema needs it

    try:
        _validator(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a valid JSON schema: {error.message}") from error
    for name, pattern in _find_patterns(schema):
        if name == "patternProperties":
            raise ValueError("patternProperties can't be checked in linear time: name the properties")
        linear(pattern)
    if meets(schema, None) is None:
        raise ValueError("a $ref of the schema leads to nothing that is in it, or back to itself")
    return schema


def meets(schema: Any, value: Any) -> bool | None:
    """Whether a value meets a schema that `check_schema` has taken; None if a $ref for it leads nowhere, or has no end."""
    from referencing import Registry  # jsonschema brings it
    from referencing.exceptions import Unresolvable

    try:
        return bool(_validator(schema)(schema, registry=Registry()).is_valid(value))
    except (OverflowError, UnicodeEncodeError):  # a huge number, half a character
        return False
    except (RecursionError, Unresolvable):
        return None


def _find_patterns(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for item in schema:
            yield from _find_patterns(item)
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        if name == "patternProperties" or (name == "pattern" and isinstance(value, str)):
            yield name, value
        elif name in _BY_NAME and isinstance(value, dict):  # whose keys are no keywords
            yield from _find_patterns(list(value.values()))
        elif name not in _VALUES:
            yield from _find_patterns(value)


def _validator(schema: Any) -> Any:
    """The validator class for the draft that a schema names, else for the latest. Raises `ValueError` for another."""
    return _validator_of(str(schema.get("$schema", _LATEST)) if isinstance(schema, dict) else _LATEST)


@lru_cache(maxsize=8)
def _validator_of(draft: str) -> Any:
    from jsonschema import ValidationError, validators

    def meets_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not linear(pattern).search(value):
            yield ValidationError("another text than its pattern")

    libraries: Any = validators
    if (validator := libraries.validator_for({"$schema": draft}, default=None)) is None:
        raise ValueError(f"$schema {draft!r} is unknown here: there are {_LATEST} and older drafts")
    return libraries.extend(validator, {"pattern": meets_pattern})
