"""A recipe: scoring and filtering in one YAML file, with the settings of the command line."""

from pathlib import Path

from actors.errors import SettingsError
from actors.settings import Settings
from pipelines.options import from_yaml, validated
from pipelines.settings import FilterSettings, ScoreSettings


class Recipe(Settings):
    """What a recipe file holds."""

    score: ScoreSettings
    filter: FilterSettings | None = None


def read_recipe(path: str) -> Recipe:
    """Read and check a recipe. Raises `SettingsError` that tells every mistake and its place."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"the recipe {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the recipe {path} is no YAML: {error}") from error
    document = from_yaml(text, f"the recipe {path}")
    try:
        return validated(Recipe, document)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
