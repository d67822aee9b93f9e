"""The values of options that take a name: for their help, and for the shell's completion. Loaded when one asks for them."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where the names are that an option takes, as MODULE:NAME: imported only for help and completion, as most are heavy. Keys
# are an option's name, or a command and an option.
_PLACES: Mapping[str, str] = {
    "pairs trainer": "pipelines.results.exports.trainers:PAIR_FORMATS",
    "export trainer": "pipelines.results.exports.trainers:RESPONSE_FORMATS",
    "sample format": "pipelines.data.formats:prompt_formats",
    "refine format": "pipelines.data.formats:prompt_formats",
    "score format": "pipelines.data.formats:formats",
    "plan format": "pipelines.data.formats:formats",
    "ensemble format": "pipelines.data.formats:formats",
    "cascade format": "pipelines.data.formats:formats",
    "family": "actors.reward_model:families",
}
_REFUSED: Mapping[str, str] = dict.fromkeys(("engine_args", "policy_engine_args"), "actors.engine.engine_arguments:OURS")
_MODELS = {"model", "models", "policy", "feedback", "edit"}


def listed_values(command: str | None, option: str | None) -> list[tuple[str, list[str]]]:
    """What the help of an option says of names: introductions, each with the names that the option takes or refuses."""
    if place := _PLACES.get(f"{command} {option}") or _PLACES.get(f"{option}"):
        return [("there are", _names_at(place))]
    place = _REFUSED.get(f"{option}")
    return [("refused, because other settings decide them:", _names_at(place))] if place else []


def complete_value(context: click.Context, parameter: click.Parameter, incomplete: str) -> list["CompletionItem"]:
    """The values that the shell offers for an option or argument that takes text: names, or else paths.

    Where none of the names begins so, paths are offered: a model may be a folder.
    """
    from click.shell_completion import CompletionItem

    place = _PLACES.get(f"{context.info_name} {parameter.name}") or _PLACES.get(f"{parameter.name}")
    # Models of the hub aren't offered: the shell must not wait for a network.
    names = _names_at(place) if place else _built_in_models() if parameter.name in _MODELS else []
    matching = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return matching or [CompletionItem(incomplete, type="file")]


def _names_at(place: str) -> list[str]:
    module, _, name = place.partition(":")
    names = getattr(importlib.import_module(module), name)
    # Formats and families are found by plug-ins, too, so they are a function.
    return sorted(names() if callable(names) else names)


def _built_in_models() -> list[str]:
    from actors.checkpoint.checkpoint_files import BUILT_IN

    return sorted({f"tiny-{path.parent.name}" for path in BUILT_IN.glob("*/*config.json")})
