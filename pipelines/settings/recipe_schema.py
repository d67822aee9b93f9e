"""The JSON Schema of recipes, with the short forms in which people write them (`Settings.expand`)."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from actors.settings.base import Settings, is_settings, plain_type
from actors.settings.rubric import RubricSettings
from pipelines.settings.recipe import Recipe

Schema = dict[str, Any]


def recipe_schema() -> Schema:
    """The schema of all steps and their settings. What it refuses, `assay run` refuses; some mistakes only the run finds."""
    schema = Recipe.model_json_schema()
    definitions: dict[str, Schema] = schema["$defs"]
    for settings in set(_all_settings(Recipe)):
        _allow_lists_of_one(definitions[settings.__name__])
    for settings in set(_all_settings(Recipe)) - {Recipe}:
        _allow_settings_of_sections(settings, definitions[settings.__name__])
        if settings.bare_field is not None:
            definition = definitions[settings.__name__]
            definition["type"] = ["object", *_types(definition["properties"][settings.bare_field], definitions)]
    definitions[RubricSettings.__name__]["type"] = ["object", "string"]  # a file that has them
    title = f"A recipe of Assay {version('assay')}"
    # Its own properties at the top, where people look for them, and once more below, where `then` refers to them.
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **definitions[Recipe.__name__],
        "title": title,
        "$defs": definitions,
    }


def _all_settings(settings: type[Settings]) -> Iterator[type[Settings]]:
    yield settings
    for field in settings.model_fields.values():
        kind = plain_type(field.annotation)
        for inner in (kind, *getattr(kind, "__args__", ())):
            if is_settings(inner) and inner is not settings:
                yield from _all_settings(inner)


def _allow_lists_of_one(definition: Schema) -> None:
    for name, setting in definition["properties"].items():
        if setting.get("type") == "array" and "items" in setting:
            definition["properties"][name] = {
                "anyOf": [setting, setting["items"]],
                "description": setting.get("description"),
            }


def _allow_settings_of_sections(settings: type[Settings], definition: Schema) -> None:
    """A setting of a section may stand beside the section: then the section itself may be missing."""
    for name in settings.section_of().keys() - settings.model_fields.keys():
        definition["properties"][name] = {"$ref": f"#/$defs/{_home_of(settings, name).__name__}/properties/{name}"}
    sections = {name for name in definition.get("required", ()) if is_settings(settings.model_fields[name].annotation)}
    definition["required"] = [name for name in definition.get("required", ()) if name not in sections]
    alternatives = [_any_of(section, *_settings_in(settings, section)) for section in sorted(sections)]
    if alternatives:
        definition["allOf"] = alternatives


def _any_of(*names: str) -> Schema:
    return {"anyOf": [{"required": [name]} for name in names]}


def _settings_in(settings: type[Settings], section: str) -> list[str]:
    return [name for name, home in settings.section_of().items() if home == section]


def _home_of(settings: type[Settings], name: str) -> type[Settings]:
    """The section, at whatever depth, that has a setting."""
    while name not in settings.model_fields:
        section: Any = settings.model_fields[settings.section_of()[name]].annotation
        settings = section
    return settings


def _types(setting: Schema, definitions: dict[str, Schema]) -> list[str]:
    """The types that a setting's values may have."""
    if "$ref" in setting:
        return _types(definitions[setting["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in setting:
        return sorted({kind for choice in setting["anyOf"] for kind in _types(choice, definitions) if kind != "null"})
    return [setting["type"]] if "type" in setting else ["string"]
