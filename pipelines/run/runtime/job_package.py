"""Packs a recipe for a cluster into one archive: our packages, the built-in models that it names, and the recipe.

A job runs in a folder that Ray unpacks for it and later deletes, so the recipe's paths mustn't depend on the current folder:
relative paths are made absolute, as seen from this machine, and small text files are packed along.
"""

import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

import yaml

import actors
from actors.checkpoint.checkpoint_files import BUILT_IN, locate
from actors.errors import SettingsError
from actors.settings.base import Settings
from pipelines.data import storage
from pipelines.settings.recipe import NAME, Recipe

S = TypeVar("S", bound=Settings)

# By the names of settings, at any depth of a recipe. A test demands that each text is in one of these or known for no path.
FOLDERS = frozenset({"inputs", "output", "scored", "rest", "store", "spill", "against"})
# Each a local folder, a built-in model, or a hub id.
MODELS = frozenset({"model", "adapter", "policy", "policy_adapter", "feedback", "edit"})
TEXTS = frozenset({"feedback_prompt", "edit_prompt", "labels"})  # small files that the job reads once, at its start

_PACKAGES = {name: Path(actors.__file__).parents[1] / name for name in ("actors", "assay", "pipelines")}


@dataclass(frozen=True)
class JobPackage:
    """The content of a job's archive. `moved` maps the recipe's relative paths to the absolute ones that replace them."""

    recipe: Recipe
    moved: Mapping[str, str]
    files: Mapping[str, Path]

    def write(self, archive: Path) -> int:
        """Write the zip; returns its size in bytes.

        The bytes are reproducible (fixed order, dates and rights), so a cluster that has the archive doesn't get it again.
        """
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, file in sorted(self.files.items()):
                packed.writestr(_entry(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
            settings = self.recipe.model_dump(mode="json", exclude_unset=True)
            packed.writestr(_entry(NAME), yaml.safe_dump(settings, sort_keys=False), zipfile.ZIP_DEFLATED)
        return archive.stat().st_size


def job_package(recipe: Recipe) -> JobPackage:
    """The package of a recipe. Raises `UserError` if a text file or a built-in model that it names doesn't exist."""
    collector = _Collector()
    sent_recipe = _map_texts(recipe, collector.as_sent)
    code = {name: file for package, folder in _PACKAGES.items() for name, file in _files(folder, package).items()}
    return JobPackage(sent_recipe, collector.moved, code | collector.files)


@dataclass
class _Collector:
    """Replaces the paths of a recipe, and collects the files to be sent along."""

    moved: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def as_sent(self, name: str, value: str) -> str:
        """The value of a setting in the job. Collects the file that the setting names, if it is sent along."""
        if name in FOLDERS or (name in MODELS and _is_here(value)):
            # An evaluation takes BENCHMARK=FILE, unless there is a folder of the whole name, such as day=1.
            benchmark, mark, path = value.partition("=")
            is_named = name == "scored" and re.fullmatch(r"[\w-]+", benchmark) and not Path(value).exists()
            return f"{benchmark}={self._absolute(path)}" if mark and is_named else self._absolute(value)
        if name in MODELS and (place := Path(locate(value))).is_relative_to(BUILT_IN):
            self.files |= _files(place, f"{BUILT_IN.name}/{place.name}")
        if name in TEXTS and not storage.is_remote(value):
            if not (file := Path(value).expanduser()).is_file():
                raise SettingsError(
                    f"{name}: {value} is no file; it is sent with the job, so it must be one on this machine"
                )
            self.files[f"{name}{file.suffix}"] = file
            return f"{name}{file.suffix}"
        return value

    def _absolute(self, path: str) -> str:
        if storage.is_remote(path) or os.path.isabs(path):
            return path
        self.moved[path] = storage.absolute(path)
        return self.moved[path]


def _is_here(model: str) -> bool:
    # By the rules of `locate`. Only for models: of a long text, such as a system prompt, the system refuses to look.
    return model.startswith((".", "~")) or Path(model).exists()


def _map_texts(settings: S, change: Callable[[str, str], str]) -> S:
    """The settings with `change(name, text)` applied to each of their texts, at any depth."""
    changed = {name: _change_value(name, getattr(settings, name), change) for name in type(settings).model_fields}
    return settings.model_copy(update={name: new for name, new in changed.items() if new != getattr(settings, name)})


def _change_value(name: str, value: object, change: Callable[[str, str], str]) -> object:
    match value:
        case Enum():  # one of a few words, which isn't the text that another step has under this name
            return value
        case Settings():
            return _map_texts(value, change)
        case tuple():
            return tuple(_change_value(name, item, change) for item in value)
        case str():
            return change(name, value)
        case _:
            return value


def _files(folder: Path, name: str) -> dict[str, Path]:
    relative_paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        f"{name}/{relative.as_posix()}": path
        for relative, path in relative_paths.items()
        if "__pycache__" not in relative.parts
    }


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # of 1980-01-01
    entry.external_attr = 0o644 << 16  # the upper 16 bits are Unix' mode
    return entry
