"""What must be left out of a command to resume it: `overwrite` would delete what is written."""

from collections.abc import Sequence

from actors.errors import UserError
from pipelines.settings.recipe import Recipe, read_recipe


def change_of_command(words: Sequence[str]) -> str:
    """See `change_of_recipe`, of a command without its program. If its recipe can't be read any more, to be sure."""
    if words[:1] != ["run"]:
        return ", without --overwrite" if "--overwrite" in words else ""
    try:
        return change_of_recipe(read_recipe(next((word for word in words[1:] if not word.startswith("-")), "")))
    except UserError:
        return ", without `overwrite`"


def change_of_recipe(recipe: Recipe) -> str:
    """The end of `to resume`: how the recipe must differ then, or nothing if it resumes as it is."""
    return f", without `overwrite` in {' and '.join(recipe.starting_anew)}" if recipe.starting_anew else ""
