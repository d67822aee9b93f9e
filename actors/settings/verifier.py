"""The settings of verifiers, which compare a response with the row's reference, or with a rule, by code."""

from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from actors.extensions import plugin_module
from actors.settings.base import OPTION, Settings
from actors.settings.grader import read_grader
from actors.settings.plain_yaml import read_mapping
from actors.text.json_schema import check_schema
from actors.text.patterns import linear

# A set of names, since a command must know whether it starts engines before any family is imported.
VERIFIERS = frozenset(
    {
        "exact-match", "grader", "json-schema", "math-equal", "multiple-choice", "normalised-match", "regex",
        "text-similarity",
    }
)  # fmt: skip
"""Our families that need no weights: the name of the family is the model. Here, as settings know no family."""


def is_verifier(model: str) -> bool:
    """Whether a model is a family that needs no weights: one of ours, or a plug-in's, whose entry point has its name.

    Of a plug-in the module is imported, as its entry point alone doesn't say what it holds.
    """
    plugin = None if model in VERIFIERS else plugin_module("assay.families", model)
    return model in VERIFIERS or getattr(getattr(plugin, "FAMILY", None), "task", None) == "verify"


def verifiers() -> list[str]:
    """The names of all families that need no weights, in order: ours, and those of plug-ins."""
    plugins = {entry_point.name for entry_point in entry_points(group="assay.families")}
    return sorted(VERIFIERS.union(filter(is_verifier, plugins)))


class VerifierSettings(Settings):
    """How a verifier reads responses and references. `unparsed` and the first three of the others are for all of them."""

    unparsed: float | None = Field(default=None, json_schema_extra=OPTION)
    """verifiers: reward of a response in which no answer is found; default: none, it is `failed: no_answer`"""
    answer_pattern: str | None = None
    """verifiers: regular expression (RE2) with a group around the answer in a response; the last match counts"""
    reference_pattern: str | None = None
    """verifiers: the same for references, such as '#### (.+)'"""
    any_of: bool = False
    """verifiers: the reference is a JSON list of texts or numbers, of which any is right"""
    choices: str = Field(default="ABCDEFGHIJ", pattern=r"^[A-Z]{2,26}$")
    """multiple-choice: letters of the choices"""
    answer_schema: Annotated[dict[str, Any] | None, BeforeValidator(lambda value: read_mapping(value, "schema"))] = None
    """json-schema: file with the schema; default: each row's reference is one"""
    answer_regex: str | None = Field(default=None, min_length=1)
    """regex: regular expression (RE2) that must match somewhere in the response; default: each row's reference is one"""
    grader: Annotated[dict[str, Any] | None, BeforeValidator(read_grader)] = None
    """grader: JSON file with a grader of OpenAI's that asks no model: string_check, text_similarity, or a multi of these"""

    @field_validator("answer_pattern", "reference_pattern")
    @classmethod
    def _has_group(cls, pattern: str | None) -> str | None:
        if pattern is not None and linear(pattern).groups != 1:
            raise ValueError(f"{pattern!r} needs one group, around the answer, such as '#### (.+)'")
        return pattern

    @field_validator("answer_regex")
    @classmethod
    def _is_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            linear(pattern)
        return pattern

    @field_validator("answer_schema")
    @classmethod
    def _is_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if schema is None else check_schema(schema)


AS_GIVEN = VerifierSettings()
