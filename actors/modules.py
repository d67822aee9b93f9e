"""Finds the modules of a package: whatever is extended by adding a file to a folder is found here, not listed by hand."""

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType


def modules_in(package: str, path: Iterable[str]) -> list[ModuleType]:
    """The modules directly in a package, imported, by name. `path` is the package's `__path__`."""
    return [importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path)]
