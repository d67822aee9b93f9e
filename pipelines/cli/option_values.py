"""The values of options that take a name: for their help, and for the shell's completion. Loaded when one asks for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from pipelines.settings.options import Leaf

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _pair_formats() -> list[str]:
    from pipelines.exports.trainers import PAIR_FORMATS

    return sorted(PAIR_FORMATS)


def _response_formats() -> list[str]:
    from pipelines.exports.trainers import RESPONSE_FORMATS

    return sorted(RESPONSE_FORMATS)


def _row_shapes() -> list[str]:
    from pipelines.formats import FORMATS

    return sorted(FORMATS)


def _prompt_shapes() -> list[str]:
    from pipelines.formats import PROMPT_FORMATS

    return sorted(PROMPT_FORMATS)


def _families() -> list[str]:
    from actors.reward_model import families

    return sorted(families())


def _arguments_of_assay() -> list[str]:
    from actors.engine.engine_arguments import OURS

    return sorted(OURS)


def _built_in_models() -> list[str]:
    from actors.checkpoint.checkpoint_files import BUILT_IN

    return sorted({f"tiny-{path.parent.name}" for path in BUILT_IN.glob("*/*config.json")})


VALUES: Mapping[str, Callable[[], list[str]]] = {
    "pairs trainer": _pair_formats,
    "export trainer": _response_formats,
    "sample format": _prompt_shapes,
    "refine format": _prompt_shapes,
    "score format": _row_shapes,
    "plan format": _row_shapes,
    "ensemble format": _row_shapes,
    "family": _families,
}
"""The values of options that take a name found in a folder; keys are an option's name, or a command and an option."""
_REFUSED = {"engine_args": _arguments_of_assay, "policy_engine_args": _arguments_of_assay}
_MODELS = {"model", "models", "policy", "feedback", "edit"}


def listed_values(command: str | None, option: str | None) -> list[tuple[str, list[str]]]:
    """What the help of an option says of names: introductions, each with the names that the option takes or refuses."""
    if names := VALUES.get(f"{command} {option}") or VALUES.get(f"{option}"):
        return [("there are", names())]
    return [("refused, because other settings decide them:", _REFUSED[option]())] if option in _REFUSED else []


def complete_assignment(settings: Sequence[Leaf], incomplete: str) -> list["CompletionItem"]:
    """What the shell offers after --set: paths of the settings that have no option."""
    from click.shell_completion import CompletionItem

    paths = [f"{leaf.path}=" for leaf in settings if not leaf.is_option]
    return [CompletionItem(path) for path in paths if path.startswith(incomplete)]


def complete_value(context: click.Context, parameter: click.Parameter, incomplete: str) -> list["CompletionItem"]:
    """The values that the shell offers for an option or argument that takes text: names, or else paths."""
    from click.shell_completion import CompletionItem

    names = VALUES.get(f"{context.info_name} {parameter.name}") or VALUES.get(f"{parameter.name}")
    if names is None and parameter.name in _MODELS:
        names = _built_in_models
    matching = [CompletionItem(name) for name in (names() if names else ()) if name.startswith(incomplete)]
    return matching or [CompletionItem(incomplete, type="file")]
