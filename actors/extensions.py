"""Finds whatever is extended by adding a module: ours lie in a package, a plug-in's are named by entry points.

A plug-in is an installed distribution with entry points in one of the `GROUPS`. Each names a module that defines the same
constants as our own modules do (`docs/contributing/plug-ins.md`).
"""

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

# The groups of entry points, and the constants of which a module must define at least one.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "assay.families": ("FAMILY",),
    "assay.shapes": ("SHAPES", "PROMPT_SHAPES"),
    "assay.trainers": ("FORMATS",),
    "assay.loggers": ("LOGGER",),
}

Extension = TypeVar("Extension")
Kind = TypeVar("Kind")

_LEFT_OUT = set[tuple[str, str]]()  # groups and entry points of plug-ins that a warning was given of


def modules_in(package: str, path: Iterable[str]) -> list[ModuleType]:
    """The modules directly in a package, imported, by name. `path` is the package's `__path__`.

    Ours must all import: an error in one is raised.
    """
    return [importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path)]


def plugin_module(group: str, name: str) -> ModuleType | None:
    """The module that a plug-in names in a group; None if none has this name, or if it can't be imported.

    Then the reason is in a warning.
    """
    for entry_point in entry_points(group=group, name=name):
        try:
            return _load(entry_point)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a plug-in's module raises
            _leave_out(entry_point, error)
    return None


class Extensions(Mapping[str, Extension], Generic[Extension]):
    """What our modules in `package` and plug-ins of a group define under a constant, by name.

    They are imported at the first use, not before: a plug-in imports the definitions of this package. A plug-in that
    can't be imported, defines nothing or repeats a name is left out, with a warning in the log.
    """

    def __init__(self, group: str, package: str, constant: str, kind: type[Extension]) -> None:
        # Nothing is imported yet: a plug-in imports `assay.plugins`, and so the very module that this object is defined in.
        self._group, self._package, self._constant, self._kind = group, package, constant, kind

    def only(self, kind: type[Kind]) -> "Extensions[Kind]":
        return _Narrowed(self, kind)

    def __getitem__(self, name: str) -> Extension:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def plugin_of(self, name: str) -> str | None:
        """The distribution and version of the plug-in that defines a name; None for ours, and for an unknown name."""
        return self._loaded[1].get(name)

    @property
    def _by_name(self) -> Mapping[str, Extension]:
        return self._loaded[0]

    @cached_property
    def _loaded(self) -> tuple[Mapping[str, Extension], Mapping[str, str]]:
        by_name: dict[str, Extension] = {}
        plugins: dict[str, str] = {}
        # Ours first, so that a plug-in can't take one of our names: scores would silently mean something else.
        package = importlib.import_module(self._package)
        for module in modules_in(self._package, package.__path__):
            by_name.update(self._defined_in(module))
        for entry_point in entry_points(group=self._group):
            try:
                defined = self._defined_in(_load(entry_point))
                # All of it or nothing: of a module with several formats, a part would be hard to explain.
                if repeated := sorted(defined.keys() & by_name.keys()):
                    raise ValueError(f"the name {', '.join(repeated)} is taken")
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a plug-in's module raises
                _leave_out(entry_point, error)
                continue
            by_name.update(defined)
            plugins.update(dict.fromkeys(defined, _distribution(entry_point)))
        # By name, not by the order of installation: messages and help list them alike on every machine.
        return {name: by_name[name] for name in sorted(by_name)}, plugins

    def _defined_in(self, module: ModuleType) -> dict[str, Extension]:
        value = getattr(module, self._constant, ())
        extensions = value if isinstance(value, tuple) else (value,)  # `FAMILY` is one, `SHAPES` are several
        for extension in extensions:
            if not isinstance(extension, self._kind):
                actual, expected = type(extension).__name__, self._kind.__name__
                raise TypeError(f"{module.__name__}.{self._constant} has a {actual}, and must have a {expected}")
        return {_name(extension): extension for extension in extensions}


class _Narrowed(Extensions[Kind]):
    def __init__(self, extensions: Extensions[Any], kind: type[Kind]) -> None:
        self._extensions, self._narrow = extensions, kind

    @cached_property
    def _loaded(self) -> tuple[Mapping[str, Kind], Mapping[str, str]]:
        by_name, plugins = self._extensions._loaded
        return {name: extension for name, extension in by_name.items() if isinstance(extension, self._narrow)}, plugins


def _name(extension: Any) -> str:
    return str(extension.name)


def _load(entry_point: EntryPoint) -> ModuleType:
    module = entry_point.load()
    constants = GROUPS[entry_point.group]
    if not isinstance(module, ModuleType):
        raise TypeError(f"{entry_point.value} must be a module, and is a {type(module).__name__}")
    if not any(hasattr(module, constant) for constant in constants):
        raise ValueError(f"{entry_point.value} defines no {' and no '.join(constants)}")
    return module


def _leave_out(entry_point: EntryPoint, error: BaseException) -> None:
    key = (entry_point.group, entry_point.name)
    if key in _LEFT_OUT:  # two constants of one group, or a look by name: one warning is enough
        return
    _LEFT_OUT.add(key)
    logging.getLogger(__name__).warning(
        "the plug-in %r (%s) is left out of %s: %s: %s",
        entry_point.name, _distribution(entry_point), entry_point.group, type(error).__name__, error,
    )  # fmt: skip


def _distribution(entry_point: EntryPoint) -> str:
    distribution = entry_point.dist
    return "of an unknown distribution" if distribution is None else f"{distribution.name} {distribution.version}"
