"""`--set section.name=value`: settings by their names in a recipe, for all commands and for recipes.

As in a recipe, sections may be left out: `votes`, `judge.votes` and `model.judge.votes` are one setting.
"""

import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from actors.errors import SettingsError
from actors.settings.base import is_settings, plain_type
from pipelines.settings.options import Leaf, from_yaml

_PATH = re.compile(r"[\w.-]+")


class Assignment(NamedTuple):
    """A setting with its value; `keys` lead to the item of a mapping that the value is of."""

    leaf: Leaf
    keys: tuple[str, ...]
    value: Any

    @property
    def place(self) -> tuple[str, ...]:
        return (*self.leaf.sections, self.leaf.name, *self.keys)


def read_assignments(texts: Sequence[str], settings: Sequence[Leaf]) -> list[Assignment]:
    """Read `path=value` texts, each of one of the settings. Raises `SettingsError` for the first that isn't, or comes again.

    A value is read by the setting's type: numbers and text as they stand; a list in brackets, a mapping, and an argument of
    an engine as YAML.
    """
    assignments: list[Assignment] = []
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not _PATH.fullmatch(path):
            shown = repr(text) if _PATH.fullmatch(text) else "what was given"  # which may hold a credential
            raise SettingsError(f"--set takes section.name=value, and {shown} isn't that")
        assignment = _read(path, value, settings)
        for other in assignments:
            # `engine_args` and `engine_args.x` overlap, too: which of them counts would depend on their order.
            shared = min(len(other.place), len(assignment.place))
            if other.place[:shared] == assignment.place[:shared]:
                raise SettingsError(f"--set {path} is given twice")
        assignments.append(assignment)
    return assignments


def assign(kind: Any, values: Any, place: Sequence[str], value: Any) -> Any:
    """Values of a kind of settings, as somebody wrote them, with another value at a place.

    Short forms on the way to it are written out. Values that are no mapping come back as they are: validation names them.
    """
    if not place:
        return value
    full = kind.expand({} if values is None else values) if is_settings(kind) else values or {}
    if not isinstance(full, Mapping):
        return values
    step, *inner_steps = place
    inner = plain_type(kind.model_fields[step].annotation) if is_settings(kind) else None
    return {**full, step: assign(inner, full.get(step), inner_steps, value)}


def _read(path: str, text: str, settings: Sequence[Leaf]) -> Assignment:
    leaf, keys = _setting_at(path, settings)
    kind = plain_type(leaf.field.annotation)
    # Items of an engine's arguments are nested mappings; in all others a dot is a part of the name, as in row.a=b.
    if keys:
        kind = plain_type(typing.get_args(kind)[1])
        keys = keys if kind is Any else (".".join(keys),)
    is_list = typing.get_origin(kind) is tuple and text.startswith("[")
    is_yaml = kind is Any or is_list or typing.get_origin(kind) is dict
    value = from_yaml(text, f"--set {path}") if is_yaml else text
    return Assignment(leaf, keys, value)


def _setting_at(path: str, settings: Sequence[Leaf]) -> tuple[Leaf, tuple[str, ...]]:
    # The longest path to a setting counts; the steps after it lead to an item, and only of a mapping.
    steps = tuple(path.split("."))
    for depth in range(len(steps), 0, -1):
        leaves = [leaf for leaf in settings if _leads_to(steps[:depth], leaf)]
        if depth < len(steps):
            leaves = [leaf for leaf in leaves if typing.get_origin(plain_type(leaf.field.annotation)) is dict]
        if len(leaves) > 1:
            places = " or ".join(".".join((*leaf.sections, leaf.name)) for leaf in leaves)
            raise SettingsError(f"--set {path} may mean {places}: say which")
        if leaves:
            return leaves[0], steps[depth:]
    paths = {".".join(names): leaf.path for leaf in settings for names in ((leaf.name,), (*leaf.sections, leaf.name))}
    paths |= {leaf.path: leaf.path for leaf in settings}
    close = [*difflib.get_close_matches(path, paths, n=3), *difflib.get_close_matches(steps[-1], paths, n=3)]
    meant = " or ".join(list(dict.fromkeys(paths[name] for name in close))[:3])
    meant = f"did you mean {meant}? " if meant else ""
    raise SettingsError(f"--set {path} isn't a setting; {meant}`assay COMMAND --help-all` lists all that a command has")


def _leads_to(steps: Sequence[str], leaf: Leaf) -> bool:
    """Whether steps are the name of a setting after some of its sections, in their order."""
    sections = iter(leaf.sections)
    return steps[-1] == leaf.name and all(step in sections for step in steps[:-1])
