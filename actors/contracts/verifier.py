"""A verifier: a family without weights, whose code compares a response with the row's reference, or with a rule.

It is asked on a `ProcessEngine`, in a process that is bounded in time and memory. A response in which no answer is found has
no reward, unless `unparsed` says one; a reference that can't be read is a fault of the row.
"""

import collections
import copy
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import REFERENCE, ChatTemplate, Family, Question
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import Task
from actors.errors import Rejected, SettingsError, Unreadable
from actors.records import Reading, Reason, Score, ScoreRequest
from actors.settings.verifier import AS_GIVEN, VerifierSettings
from actors.text.patterns import linear

READER = 3
"""Version of the verifiers, in a run's identity: it goes up when a text is read differently than before."""
Texts = tuple[str, ...]
"""What is compared: the response, and the references, of which any is right."""


class Verifier(Family):
    """One way to compare. The model's id is the family's name.

    It is called in a process of its own, bounded in time and memory: a formula or pattern of a row may need either without
    end.
    """

    task = Task.VERIFY
    recognised = False
    head_labels = 0
    source = "Assay"
    prompt_form = "nothing: code reads the response"
    range = "1 or 0"
    # The fields of `VerifierSettings` that apply to it, beside `common`. Another one is refused.
    takes: ClassVar[frozenset[str]] = frozenset()
    common: ClassVar[frozenset[str]] = frozenset({"unparsed", "answer_pattern", "reference_pattern", "any_of"})
    # The distributions that decide its numbers, whose versions a run's identity holds.
    libraries: ClassVar[tuple[str, ...]] = ()
    # The extra of Assay that installs them, if they don't come with it.
    extra: ClassVar[str | None] = None
    settings: VerifierSettings = AS_GIVEN

    @abstractmethod
    def compare(self, answer: str, reference: str) -> float:
        """The score of an answer by one reference.

        Raises `Rejected` for a reference that can't be read, first, and then `Unreadable` for a response without an answer.
        """

    @property
    def needs_reference(self) -> bool:
        return True

    @property
    def field_names(self) -> tuple[str, ...]:
        return (REFERENCE,) if self.needs_reference else ()

    @property
    def needed_fields(self) -> tuple[str, ...]:
        return self.field_names

    def prepare(self) -> None:
        """Import what takes time, in a new process, before it is asked anything."""

    def with_verifier_settings(self, settings: VerifierSettings) -> Self:
        """A copy with these settings. Raises `SettingsError` for one that doesn't apply, or not with another."""
        takes = self.takes | self.common
        if unknown := sorted(settings.model_dump(exclude_defaults=True).keys() - takes):
            raise SettingsError(f"verifier.{unknown[0]}: {self.name} doesn't take it; it takes {', '.join(sorted(takes))}")
        verifier = copy.copy(self)
        verifier.settings = settings
        return verifier

    def recorded(self) -> dict[str, Any]:
        return {"reader": READER, **self.settings.model_dump(mode="json", exclude_defaults=True)}

    def texts(self, request: ScoreRequest, position: int) -> Texts:
        """What is compared of the response at a position. Raises `Rejected` for a row without a usable reference."""
        response = request.responses[position].content
        if not self.needs_reference:
            return (response, "")
        reference = request.fields.get(REFERENCE, "")
        if not reference.strip():
            raise Rejected(Reason.NO_REFERENCE)
        references = [self._read_reference(text) for text in self._alternatives(reference)]
        if not all(map(str.strip, references)):  # a blank one is in every response
            raise Rejected(Reason.NO_REFERENCE)
        return (response, *references)

    def verify(self, texts: Texts) -> Score:
        response, *references = texts
        try:
            score = self.score(response, references)
        except Rejected as rejected:
            return Score.rejected(rejected.reason)
        except Unreadable as unreadable:
            if self.settings.unparsed is None or unreadable.reason is not Reason.NO_ANSWER:
                return Score.failed(unreadable.reason, 0)
            score = self.settings.unparsed
        except Exception as error:  # noqa: BLE001  whatever a plug-in's code, or a library, raises on a text
            detail = f"{self.name} raised {type(error).__name__}: {error}"
            return replace(Score.failed(Reason.ENGINE_REFUSED, 0), detail=detail)
        reading = Reading(score, {"score": score})
        return Score.scored(reading, 0) if reading.finite else Score.failed(Reason.NOT_FINITE, 0)

    def score(self, response: str, references: list[str]) -> float:
        """The best score by any of the references. Raises as `compare`."""
        pattern = self.settings.answer_pattern
        answer = response if pattern is None else last_match(pattern, response)
        scores = [self.compare(answer or "", reference) for reference in references]  # first: a bad one is the row's fault
        if answer is None or not answer.strip():
            raise Unreadable(Reason.NO_ANSWER)
        return 0.0 + max(scores)  # a plug-in may return what is no number, which raises here

    def _alternatives(self, reference: str) -> list[str]:
        # The references of a row; a list counts as several only where the settings say so, numbers as they stand.
        number = str if self.settings.any_of else None
        try:
            listed = json.loads(reference, parse_int=number, parse_float=number)
        except (ValueError, RecursionError):
            return [reference]
        if not isinstance(listed, list):
            return [reference]
        is_several = bool(listed) and all(isinstance(text, str) for text in listed)
        if is_several != self.settings.any_of:
            raise Rejected(Reason.BAD_REFERENCE, "it is a list: of texts or numbers, all right, with verifier.any_of alone")
        return listed if is_several else [reference]

    def _read_reference(self, reference: str) -> str:
        pattern = self.settings.reference_pattern
        text = reference if pattern is None else last_match(pattern, reference)
        if text is None:
            raise Rejected(Reason.BAD_REFERENCE, f"{pattern} isn't in it")
        return text

    # What only models with weights have.

    def fits(self, checkpoint: Checkpoint) -> bool:
        return False

    def knows(self, model: str) -> KnownModel | None:
        return next((entry for entry in self.models if entry.id == model), None)

    def outputs(self) -> tuple[str, ...]:
        return ("score",)

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        if custom is not None:
            raise SettingsError(f"weights: {self.name} has one number, which is the reward")
        return super().weights(custom)

    def text(self, question: Question, template: ChatTemplate) -> str:
        raise NotImplementedError("a verifier has no prompt")


def last_match(pattern: str, text: str) -> str | None:
    """The group of a pattern's last match in a text, without white space around it; None if there is no match.

    RE2 finds it in linear time, whatever the pattern.
    """
    last = next(iter(collections.deque(linear(pattern).finditer(text), maxlen=1)), None)
    return None if last is None or last[1] is None else last[1].strip()


def without_weights(name: str, note: str, *examples: tuple[str, str, float]) -> tuple[KnownModel, ...]:
    """A verifier's entry in the list of models, with examples of response, reference and reward for the self-test."""
    goldens = tuple(
        Golden.answers("?", {response: reward}, 1e-9, fields={REFERENCE: reference})
        for response, reference, reward in examples
    )
    return (KnownModel(name, f"no weights; {note}", "Apache-2.0", golden=goldens),)
