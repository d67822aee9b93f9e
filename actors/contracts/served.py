"""A model of an endpoint of `assay serve` as a family: what its card says, and conversations in place of prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

from actors.contracts.family import ChatTemplate, Family, Question
from actors.contracts.known_model import KnownModel
from actors.engine.protocol import Task
from actors.errors import SettingsError
from actors.records import Reasoning, ScoreRequest
from actors.settings.replica import RenderSettings


class Served(Family):
    """How an endpoint judges, by the model's card. Its checks, prompts and readings are the endpoint's."""

    name = "served"
    summary = "a model of an endpoint of `assay serve`"
    source = "the endpoint"
    prompt_form = "whole conversations"
    read_at = "the endpoint's answer"
    range = "the endpoint's"
    models: tuple[KnownModel, ...] = ()  # type: ignore[misc]

    def __init__(self, card: Mapping[str, Any]) -> None:
        self._card = card
        self._identity = card["identity"]
        # Of the identity, in each answer; None of an endpoint by an earlier Assay.
        self.fingerprint: str | None = card.get("system_fingerprint")
        self.task = Task.GENERATE if card["kind"] == "judge" else Task.CLASSIFY  # type: ignore[misc]

    def outputs(self) -> tuple[str, ...]:
        return tuple(self._card["outputs"])

    def card_weights(self) -> Mapping[str, float]:
        return dict(self._card["weights"])

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        if custom is not None:
            raise SettingsError("weights: an endpoint of `assay serve` gives rewards as it was started")
        return self.card_weights()

    def text(self, question: Question, template: ChatTemplate) -> str:
        raise NotImplementedError

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        raise NotImplementedError

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(self._card.get("fields", ()))

    @property
    def takes_principles(self) -> bool:
        return bool(self._card["takes_principles"])

    @property
    def needs_principles(self) -> bool:
        return bool(self._card["needs_principles"])

    @property
    def compares(self) -> bool:
        return True  # who is judged beside whom is the endpoint's to say, so a request is never taken apart

    @property
    def steps(self) -> bool:
        return bool(self._identity["steps"])

    def is_within_row(self, weights: Mapping[str, float]) -> bool:
        return bool(self._identity["within_row"])

    def reasoning_by(self, settings: RenderSettings) -> Reasoning | None:
        return settings.reasoning or Reasoning(self._identity["reasoning"])
