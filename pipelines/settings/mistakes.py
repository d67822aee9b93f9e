"""What is wrong with settings, in a person's words: the place, the value, and what is allowed there."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from actors.settings.base import Settings, is_settings, plain_type

Place = tuple[int | str, ...]  # the names and list positions that lead to a value, from the outermost

_WHOLE_NUMBER, _NUMBER, _YES_OR_NO = "must be a whole number", "must be a number", "must be true or false"
_MAPPING, _TEXT = "must be a mapping of names to values", "must be text"
# What is allowed, by pydantic's type of an error, filled in with its context. A type that isn't here raises: it is a fault
# of ours.
ALLOWED: Mapping[str, str] = {
    **dict.fromkeys(("bool_parsing", "bool_type"), _YES_OR_NO),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _WHOLE_NUMBER),
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    **dict.fromkeys(("string_type", "string_unicode"), _TEXT),
    "string_too_short": "must not be empty",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
    "tuple_type": "must be text, or a list",
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), _MAPPING),
    "value_error": "{error}",
}
# What the patterns of settings allow, as nobody reads a regular expression in a message.
PATTERNS: Mapping[str, str] = {
    r"\S": "must not be empty",
    r"^[A-Za-z_]\w*$": "must be letters, digits and _, without a digit first",
    r"^[A-Za-z_]\w*$|^$": "must be letters, digits and _, without a digit first, or empty",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "must be the letters A to Z, digits and _, without a digit first",
    r"^(\*|https?://[^/\s]+)$": "must be an origin, https://HOST or https://HOST:PORT without a path, or * for all",
    r"^https?://\S+$": "must be an address, http://HOST:PORT/v1 or https://HOST/v1",
    r"^[A-Z]{2,26}$": "must be two or more of the letters A to Z",
    r"^[^:/\s\[\]]+$": "must be a host's name alone, without a scheme, port or path",
}
# Names that people write for others, by what they are called elsewhere: flags, SQL, another command.
_MEANT: Mapping[str, tuple[str, ...]] = {
    "for": ("trainer",),
    "select": ("model",),
    **dict.fromkeys(("filter", "condition", "keep"), ("where", "strategy")),
}
# What to do without a setting that must be given, by its name.
_WITHOUT: Mapping[str, str] = {
    "policy": "it writes the answers; `assay score` judges those that the rows hold, and `assay choose` keeps the best",
}
_LONGEST = 100  # characters of a value that are shown


def mistakes(settings: type[Settings], error: ValidationError, spell: Callable[[Place], str]) -> list[str]:
    """Each mistake once, in the order of the settings. `spell` writes a place; of the settings as a whole, it is empty.

    A union reports a mistake for each of its kinds, so several of pydantic's errors may come to one sentence.
    """
    problems: list[Any] = error.errors()
    wrong_inside = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    return list(
        dict.fromkeys(
            _mistake(settings, problem, spell)
            for problem in problems  # pydantic doesn't count wrong items, and calls their list too short as well
            if not (problem["type"] == "too_short" and problem["loc"] in wrong_inside)
        )
    )


def path(place: Place) -> str:
    """A place as in a recipe: `score.corpus.inputs[0]`. Empty for the settings as a whole."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def alternatives(name: str, allowed: Iterable[str], close_to: Iterable[str] = ()) -> str:
    """The names that somebody may have meant, of those that are allowed and those of `close_to`, and all allowed ones."""
    names = [*allowed, *close_to]
    close = [other for other in _MEANT.get(name, ()) if other in names] or difflib.get_close_matches(name, names, n=3)
    meant = f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
    return f"{meant}Allowed: {', '.join(allowed)}"


def _mistake(settings: type[Settings], problem: Any, spell: Callable[[Place], str]) -> str:
    place: Place = problem["loc"]
    if problem["type"] in ("extra_forbidden", "invalid_key"):
        place = (*place[:-1], name := str(place[-1]))
        allowed, inner = _names_at(settings, place[:-1])
        return f"{spell(place)} isn't a setting; {alternatives(name, allowed, inner)}"
    if problem["type"] == "missing":
        place = _required_at(settings, place)
        return "; ".join(filter(None, (f"{spell(place)} is missing", _WITHOUT.get(str(place[-1])))))
    if place and place[-1] == "[key]":
        return f"{spell(place[:-2])}: the name {place[-2]!r} {_allowed(problem)}"
    if problem["type"] in ("too_short", "too_long") and problem["input"]:
        return f"{spell(place)} has {problem['ctx']['actual_length']}: {_allowed(problem)}"
    if problem["type"] == "value_error" and (not place or _is_named(problem["input"], _allowed(problem))):
        return ": ".join(filter(None, (spell(place), _allowed(problem))))
    return f"{_describe(spell(place), problem['input'])}: {_allowed(problem)}"


def _allowed(problem: Any) -> str:
    context = problem.get("ctx", {})
    if problem["type"] == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], f"must match {context['pattern']}")
    return ALLOWED[problem["type"]].format(**context)


def _is_named(value: Any, message: str) -> bool:
    # A message of a validator may say the value already, or be of several values.
    return not isinstance(value, str | int | float) or (isinstance(value, str) and repr(value)[1:-1] in message)


def _describe(place: str, value: Any) -> str:
    place = place or "the content"
    if value is None:
        return f"{place} is empty"
    if isinstance(value, str | int | float):
        is_assigned = place.startswith("--set ")  # and shown as it was written there
        joint = "=" if is_assigned else " " if place.startswith("-") else " = "
        shown = str(value).lower() if isinstance(value, bool) else str(value) if is_assigned else repr(value)
        return f"{place}{joint}{shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '...'}"
    if isinstance(value, list | tuple | Mapping):
        kind = "a mapping" if isinstance(value, Mapping) else "a list"
        return f"{place} is {kind if value else 'empty'}"
    return f"{place} is of another kind"


def _names_at(settings: type[Settings], place: Place) -> tuple[list[str], list[str]]:
    # The settings of sections may stand beside them, too (`Settings.expand`).
    settings = _settings_at(settings, place)
    return list(settings.model_fields), list(settings.section_of())


def _required_at(settings: type[Settings], place: Place) -> Place:
    """The place of what is missing: of a section that is missing, that of its first setting without a default.

    It is named without the section, as whoever writes settings may leave sections out.
    """
    section = _settings_at(settings, place[:-1]).model_fields.get(str(place[-1]))
    if section is None or not is_settings(section.annotation):
        return place
    required = (name for name, field in section.annotation.model_fields.items() if field.is_required())
    return (*place[:-1], next(required, place[-1]))


def _settings_at(settings: type[Settings], place: Place) -> type[Settings]:
    # A list's items may be one of several kinds, or null; only one of these is a class of settings.
    for step in place:
        if isinstance(step, str):  # and no position in a list, whose items all have the same fields
            kind = plain_type(settings.model_fields[step].annotation)
            settings = next(part for part in (kind, *getattr(kind, "__args__", ())) if is_settings(part))
    return settings
