"""The settings of the commands, for tests of all of them."""

from actors.settings.base import Settings, is_settings, plain_type
from pipelines.settings.recipe import Recipe


def steps() -> dict[str, type[Settings]]:
    """The settings of each step of a recipe."""
    kinds = {name: plain_type(field.annotation) for name, field in Recipe.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if is_settings(kind)}
