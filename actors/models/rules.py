"""Verifiers that hold a response against a rule: a JSON schema, or a regular expression."""

import json
import re

from actors.contracts.verifier import Verifier, without_weights
from actors.errors import Rejected, Unreadable
from actors.records import Reason
from actors.text.json_schema import check_schema, meets
from actors.text.patterns import linear

_FENCED = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*)\n\s*```\s*\Z", re.DOTALL)


class JsonSchema(Verifier):
    """The response is JSON, and meets a schema."""

    name = "json-schema"
    summary = "the response is JSON that meets a schema (no weights)"
    read_at = "the whole response as JSON, without a code fence around it; what is no JSON has no answer"
    models = without_weights(
        name, "JSON by a schema", ('{"a": 1}', '{"required": ["a"]}', 1.0), ('"a"', '{"type": "integer"}', 0.0)
    )
    takes = frozenset({"answer_schema"})
    libraries = ("jsonschema",)

    @property
    def needs_reference(self) -> bool:
        return self.settings.answer_schema is None

    def compare(self, answer: str, reference: str) -> float:
        schema = self.settings.answer_schema
        try:
            schema = check_schema(json.loads(reference)) if schema is None else schema
        except (ValueError, RecursionError) as error:
            raise Rejected(Reason.BAD_REFERENCE, str(error)) from error
        fenced = _FENCED.match(answer)
        try:
            # Python would read NaN and Infinity, which are no JSON.
            value = json.loads(fenced[1] if fenced else answer, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise Unreadable(Reason.NO_ANSWER) from None
        if (is_met := meets(schema, value)) is None:
            raise Rejected(Reason.BAD_REFERENCE, "a $ref of the schema leads nowhere, or the nesting has no end")
        return float(is_met)


class Regex(Verifier):
    """A regular expression matches somewhere in the response."""

    name = "regex"
    summary = "a regular expression matches in the response (no weights)"
    read_at = "anywhere in the response, by RE2"
    models = without_weights(name, "a pattern in the response", ("order 66", r"\d+", 1.0), ("no order", r"\d+", 0.0))
    takes = frozenset({"answer_regex"})
    libraries = ("google-re2",)

    @property
    def needs_reference(self) -> bool:
        return self.settings.answer_regex is None

    def compare(self, answer: str, reference: str) -> float:
        try:
            pattern = linear(self.settings.answer_regex or reference)
        except ValueError as error:
            raise Rejected(Reason.BAD_REFERENCE, str(error)) from error
        return float(pattern.search(answer) is not None)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} isn't JSON")


FAMILY = (JsonSchema(), Regex())
