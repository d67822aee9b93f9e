"""The vocabulary of Assay: what is judged, and what comes of it. Imports nothing of Assay.

A `ScoreRequest` is a context with one or more named responses. Rendering turns it into a `RenderedRequest`: prompts as
token ids, and the responses that were rejected on the way. The scorer turns that into one `Score` per response.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self


class Role(StrEnum):
    """Who speaks in a conversation."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Shown(StrEnum):
    """Roles of NVIDIA's judges alone, in which their templates show what is judged. No row's turn has one."""

    PRINCIPLE = "principle"
    RESPONSE_1 = "response_1"
    RESPONSE_2 = "response_2"


class Status(StrEnum):
    """What became of a response. Only `SCORED` carries a number."""

    SCORED = "scored"
    REJECTED = "rejected"
    FAILED = "failed"


class Reasoning(StrEnum):
    """What becomes of the reasoning in what is judged, of a model that thinks before it answers."""

    REJECT = "reject"
    STRIP = "strip"
    KEEP = "keep"


class Reason(StrEnum):
    """Why a response has no reward. The first group is read off the row, the second off the model."""

    NOT_UTF8 = "not_utf8"
    BROKEN_JSON = "broken_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    RECORD_TOO_LARGE = "record_too_large"
    LONE_SURROGATE = "lone_surrogate"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    NO_MESSAGES = "no_messages"
    UNKNOWN_ROLE = "unknown_role"
    TWO_SYSTEM_PROMPTS = "two_system_prompts"  # that differ: nobody can tell which of them the model was given
    TOOL_CALL = "tool_call"
    NO_FINAL_ASSISTANT = "no_final_assistant"
    COLUMN_COLLISION = "column_collision"
    CONTENT_NOT_TEXT = "content_not_text"
    EMPTY_CONTENT = "empty_content"
    CONTROL_TOKEN = "control_token"
    ROLE_NOT_IN_TEMPLATE = "role_not_in_template"
    TEMPLATE_REFUSED = "template_refused"
    TOO_LONG = "too_long"
    REASONING = "reasoning"  # it holds some, and nobody said what becomes of it; or it never ended, so there is no answer
    UNKNOWN_TOKEN = "unknown_token"  # a token id of a client's own, and the model has none of that number
    TOO_MANY_PROMPTS = "too_many_prompts"  # its responses, principles and orders come to more than one row may ask
    NO_PRINCIPLE = "no_principle"
    NO_OPPONENT = "no_opponent"  # a judge that only compares, and no other response that it can be compared with

    NOT_FINITE = "not_finite"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_TIMEOUT = "engine_timeout"
    ENGINE_KILLER = "engine_killer"
    CUT_OFF = "cut_off"  # a judge that hadn't ended when its tokens did
    NO_VERDICT = "no_verdict"  # a judge whose text has none where it should be
    TWO_VERDICTS = "two_verdicts"  # or several that differ
    OUT_OF_RANGE = "out_of_range"  # or one that isn't on the scale
    UNFINISHED = "unfinished"  # a candidate that hadn't ended when its tokens did
    UNJUDGED = "unjudged"  # a candidate whose turn to be judged comes when all are drawn
    ENDPOINT_FAILED = "endpoint_failed"  # a prompt on which the policy's endpoint breaks each time, and answers others
    ENDPOINT_REFUSED = "endpoint_refused"  # a prompt that the policy's endpoint refuses each time, and answers others
    NO_BASELINE = "no_baseline"  # of an ensemble: too few different responses to the prompt to make z-scores of


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role | Shown
    content: str


@dataclass(frozen=True, slots=True)
class Response:
    """An assistant turn to be judged, under the name it has in its row: `final`, `A`, `chosen`, `rejected[2]`, `turn[3]`."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A context, and the responses to it that are judged; `principles` are what a principle-following judge goes by.

    `reasoning` is what becomes of it here, instead of what the settings say.
    """

    context: tuple[Message, ...]
    responses: tuple[Response, ...]
    principles: tuple[str, ...] = ()
    reasoning: Reasoning | None = None

    @property
    def prompt_hash(self) -> str:
        """16 hex digits that are equal for equal contexts and principles, on every machine and in every process."""
        digest = hashlib.sha256()
        turns = [(message.role.value, message.content) for message in self.context]
        for kind, text in (*turns, *(("principle", principle) for principle in self.principles)):
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{kind}:{len(content)}:".encode())
            digest.update(content)
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question to the engine: its token ids, and the positions (in its request) of the responses it judges, as shown.

    A head's outputs are read at the ids' positions `at`, in this order, or at the last one alone. A judge is asked `times`
    times; its text begins with what the template has written of it already, `opening`.
    """

    ids: Sequence[int]
    judges: tuple[int, ...]
    at: tuple[int, ...] = ()
    times: int = 1
    opening: str = ""
    principle: str | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """All positions where the outputs are read."""
        return self.at or (len(self.ids) - 1,)


@dataclass(frozen=True, slots=True)
class RenderedResponse:
    """A response after rendering: `reason` says why it can't be judged, `truncated` that turns before it were dropped.

    `reasoned` says that there was reasoning, in it or in turns before it, whatever became of that.
    """

    name: str
    reason: Reason | None = None
    truncated: bool = False
    reasoned: bool = False

    @property
    def refusal(self) -> "Score | None":
        """What it comes to if it can't be judged."""
        return None if self.reason is None else replace(Score.rejected(self.reason), reasoned=self.reasoned)


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """A request made ready for the engine. A response that isn't rejected is judged by at least one prompt.

    The answers about a response are read in the order of its prompts.
    """

    prompt_hash: str
    responses: tuple[RenderedResponse, ...]
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a family read off the engine's answers: the reward, the model's named outputs, and a reward for each step.

    Of a judge also its `votes`: what each judgement about the response came to, in the order in which they were asked.
    """

    reward: float
    scores: Mapping[str, float]
    steps: tuple[float, ...] = ()
    votes: tuple[float, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether every number is one: a NaN or an infinity is a failure, never a reward."""
        return all(map(math.isfinite, (self.reward, *self.scores.values(), *self.steps, *self.votes)))


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """What a judge wrote once: about which responses, by name and as it was shown them, and what was read in it.

    `vote` is what it came to for the response whose trace this is; None, with the `reason`, if it couldn't be read.
    """

    shown: tuple[str, ...]
    principle: str | None
    text: str
    finish_reason: str | None
    vote: float | None
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Score:
    """What became of one response. `reward` and `scores` are there if, and only if, `status` is `SCORED`.

    `prompt_tokens` counts all prompts about the response, and `completion_tokens` what was written about it; responses that
    are shown together share both. `reasoned` says that there was reasoning, in it or in turns before it. `steps` has the
    rewards of its steps, where a model judges these, `votes` what the judgements came to, and `trace` what a judge wrote,
    where that is asked for.
    """

    status: Status
    reason: Reason | None = None
    reward: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: int | None = None
    truncated: bool = False
    reasoned: bool = False
    steps: tuple[float, ...] = ()
    votes: tuple[float, ...] = ()
    completion_tokens: int | None = None
    trace: tuple[JudgeAnswer, ...] = ()
    cached_tokens: int | None = field(default=None, compare=False)
    """Of the prompt tokens, those that the engine had in its prefix cache: a matter of what else was asked."""

    @classmethod
    def scored(cls, reading: Reading, prompt_tokens: int) -> Self:
        """A reward as the model gave it."""
        return cls(
            Status.SCORED, None, reading.reward, reading.scores, prompt_tokens, steps=reading.steps, votes=reading.votes
        )

    @classmethod
    def rejected(cls, reason: Reason) -> Self:
        """The response can't be judged as it is."""
        return cls(Status.REJECTED, reason)

    @classmethod
    def failed(cls, reason: Reason, prompt_tokens: int | None = None) -> Self:
        """The model was asked, and gave no usable answer."""
        return cls(Status.FAILED, reason, prompt_tokens=prompt_tokens)
