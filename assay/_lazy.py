"""Modules whose names are imported when they are first asked for, so that `import assay` brings neither Ray nor torch."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(module: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a module with names of other modules; `homes` are those, each with its names."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return get, lambda: sorted(home_of)
