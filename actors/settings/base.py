"""What all settings have in common."""

import os
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, TypeGuard

from pydantic import BaseModel, ConfigDict, model_validator

from actors.settings.credentials import check_no_credentials

# `json_schema_extra` of a field that most people set: it is an option of the command line, and all others are reached by
# `--set section.name=value`. Fields without a default are options, too.
OPTION: dict[str, Any] = {"option": True}


class Settings(BaseModel):
    """Frozen, an unknown key is an error, and so is a credential. No error that is raised here shows what was given."""

    # An error is printed and logged, and the value may be a credential, so no input is shown. NaN as a limit would compare
    # as false with every number.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, use_attribute_docstrings=True
    )
    bare_field: ClassVar[str | None] = None
    """The field that a bare value stands for, where a mapping of these settings is meant."""

    @model_validator(mode="before")
    @classmethod
    def _expand_and_check(cls, values: Any) -> Any:
        # Check the raw values in their full form; sections that are `Settings` objects have been checked already.
        full = cls.expand(values)
        check_no_credentials(full)
        return full

    @classmethod
    def expand(cls, values: Any) -> Any:
        """The full form of what people write short; anything else is returned as it is.

        A bare value is a mapping of `bare_field`; a setting of a section may stand beside the section; a bare value where a
        list is meant is a list of one; a path object is its text. Raises `ValueError` for a setting in both places.
        """
        if cls.bare_field and isinstance(values, str | int | float | list | tuple | os.PathLike):
            values = {cls.bare_field: values}
        if not isinstance(values, Mapping):
            return values
        full = {name: _path_text(value) for name, value in values.items()}
        # A list of them first: each moves into its section while `full` is walked.
        for name in [name for name in full if name not in cls.model_fields]:
            cls._move_into_section(name, full)
        for name in full.keys() & cls.model_fields.keys():
            is_bare = isinstance(full[name], str | Mapping | Settings)
            if is_bare and typing.get_origin(plain_type(cls.model_fields[name].annotation)) is tuple:
                full[name] = [full[name]]
        return full

    @classmethod
    def _move_into_section(cls, name: str, full: dict[str, Any]) -> None:
        if (section := cls.section_of().get(name)) is None:
            return  # unknown, which pydantic says
        kind: Any = cls.model_fields[section].annotation
        settings_of_section = kind.expand(full.get(section, {}))
        if not isinstance(settings_of_section, Mapping):
            return
        if name in settings_of_section:
            raise ValueError(f"{name} is given twice, beside `{section}` and in it")
        full[section] = {**settings_of_section, name: full.pop(name)}

    @classmethod
    @cache
    def section_of(cls) -> dict[str, str]:
        """The section in which each setting lies, at whatever depth: names are unique within the settings of a command."""
        return {
            name: section
            for section, field in cls.model_fields.items()
            if is_settings(field.annotation)
            for name in (*field.annotation.model_fields, *field.annotation.section_of())
        }


def is_settings(annotation: Any) -> TypeGuard[type[Settings]]:
    """Whether it is a class of settings: a section."""
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def plain_type(annotation: Any) -> Any:
    """The type without `Annotated` and `| None`."""
    if typing.get_origin(annotation) is typing.Annotated:
        return plain_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return plain_type(next(kind for kind in typing.get_args(annotation) if kind is not type(None)))
    return annotation


def _path_text(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_path_text(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
