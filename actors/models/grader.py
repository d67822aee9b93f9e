"""The verifier `grader`: OpenAI's graders that ask no model, by the numbers that these give.

`string_check` is 1 or 0, `text_similarity` the similarity, and `multi` what its formula makes of several.
"""

from collections.abc import Mapping
from typing import Any

from actors.contracts.verifier import Texts, Verifier, without_weights
from actors.errors import Rejected, SettingsError, Unreadable
from actors.models.matches import fuzzy_match
from actors.records import Reason, ScoreRequest
from actors.settings.grader import OUTPUT, calculate, field_name, pieces
from actors.settings.verifier import VerifierSettings


class Grader(Verifier):
    """A grader in a file."""

    name = "grader"
    summary = "a grader of OpenAI's that asks no model (verifier.grader; no weights)"
    source = "openai.types.graders (openai 3.52)"
    read_at = "what the grader names: {{ sample.output_text }}, and fields of the row as {{ item.NAME }}"
    range = "the grader's"
    models = without_weights(name, "string_check, text_similarity, or a multi of these")
    takes, common = frozenset({"grader"}), frozenset()
    libraries = ("rapidfuzz",)

    def with_verifier_settings(self, settings: VerifierSettings) -> "Grader":
        if settings.grader is None:
            raise SettingsError("--model grader needs --set verifier.grader=FILE, a grader of OpenAI's as JSON")
        return super().with_verifier_settings(settings)

    @property
    def field_names(self) -> tuple[str, ...]:
        places = {name for template in self._templates for _, name in pieces(template)}
        return tuple(sorted(field_name(name) for name in places - {"", OUTPUT}))

    def texts(self, request: ScoreRequest, position: int) -> Texts:
        # Input and reference of each string_check or text_similarity, in their order.
        response = request.responses[position].content
        return tuple(
            "".join(text + _field(request, response, name) for text, name in pieces(template))
            for template in self._templates
        )

    def score(self, response: str, references: list[str]) -> float:
        texts = iter([response, *references])
        values = {name: _value(grader, next(texts), next(texts)) for name, grader in self._graders.items()}
        if (formula := (self.settings.grader or {}).get("calculate_output")) is None:
            return values[""]
        try:
            return calculate(formula, values)
        except ArithmeticError:
            raise Unreadable(Reason.NOT_FINITE) from None

    def compare(self, answer: str, reference: str) -> float:
        raise NotImplementedError("a grader compares several texts")

    @property
    def _templates(self) -> list[str]:
        return [grader[side] for grader in self._graders.values() for side in ("input", "reference")]

    @property
    def _graders(self) -> Mapping[str, Mapping[str, Any]]:
        grader: Mapping[str, Any] = self.settings.grader or {}
        graders: Mapping[str, Mapping[str, Any]] = grader.get("graders", {"": grader})
        return graders


def _field(request: ScoreRequest, response: str, name: str) -> str:
    """What a grader's place holds. Raises `Rejected` if the row has no such field."""
    if name in ("", OUTPUT):
        return response if name else ""
    if (field := field_name(name)) not in request.fields:
        raise Rejected(Reason.NO_REFERENCE, f"the row has no {name}")
    return request.fields[field]


def _value(grader: Mapping[str, Any], text: str, reference: str) -> float:
    # The number of a text_similarity, 0 to 1, or of a string_check, 1 or 0: `ilike` is `like` in any case.
    if grader["type"] == "text_similarity":
        return fuzzy_match(text, reference)
    match grader["operation"]:
        case "eq":
            return float(text == reference)
        case "ne":
            return float(text != reference)
        case "like":
            return float(reference in text)
    return float(reference.casefold() in text.casefold())


FAMILY = Grader()
