"""A recipe: scoring and filtering in one YAML file, with the settings of the command line."""

from pathlib import Path

import yaml

from actors.errors import SettingsError
from actors.settings import Settings
from pipelines.options import validated
from pipelines.settings import FilterSettings, ScoreSettings


class Recipe(Settings):
    """What a recipe file holds."""

    score: ScoreSettings
    filter: FilterSettings | None = None


def read_recipe(path: str) -> Recipe:
    """Read and check a recipe. Raises `SettingsError` that tells every mistake and its place."""
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"the recipe {path} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: text that isn't UTF-8, or a date that there isn't
        raise SettingsError(f"the recipe {path} is no YAML: {error}") from error
    try:
        return validated(Recipe, document)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
