"""The vocabulary of Assay, from requests to scores. Imports nothing of Assay.

A `ScoreRequest` is a context with one or more named responses. Rendering turns it into a `RenderedRequest`: prompts as
token ids, and the responses that can't be judged. The scorer turns that into one `Score` per response.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class JudgeRole(StrEnum):
    """Roles that only NVIDIA's judges have, for what they judge. No message of a row has one of these."""

    PRINCIPLE = "principle"
    RESPONSE_1 = "response_1"
    RESPONSE_2 = "response_2"


class Status(StrEnum):
    """The outcome for a response. Only `SCORED` has a reward."""

    SCORED = "scored"
    REJECTED = "rejected"
    FAILED = "failed"


class Reasoning(StrEnum):
    """What to do with reasoning in responses and turns before them: reject such responses, remove or keep it."""

    REJECT = "reject"
    STRIP = "strip"
    KEEP = "keep"


class Reason(StrEnum):
    """Why a response has no reward. The first group are faults of the row, the second failures of a model."""

    NOT_UTF8 = "not_utf8"
    BROKEN_JSON = "broken_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    RECORD_TOO_LARGE = "record_too_large"
    LONE_SURROGATE = "lone_surrogate"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    SHAPE_FAILED = "shape_failed"  # the code of a plug-in's shape raised an error on the row
    TWO_SHAPES = "two_shapes"  # or more, of a row in a mixed corpus: it is unknown which of them holds what is judged
    NO_MESSAGES = "no_messages"
    UNKNOWN_ROLE = "unknown_role"
    TWO_SYSTEM_PROMPTS = "two_system_prompts"  # that differ: it is unknown which of them the model was given
    TOOL_CALL = "tool_call"
    CONTEXT_GAP = "context_gap"  # of a trajectory: a part of what the agent was shown before its turn isn't in the file
    NO_FINAL_ASSISTANT = "no_final_assistant"
    COLUMN_COLLISION = "column_collision"
    CONTENT_NOT_TEXT = "content_not_text"
    WRITTEN_OUT = "written_out"  # a conversation as one text, which can't be taken apart into its turns
    EMPTY_CONTENT = "empty_content"
    CONTROL_TOKEN = "control_token"
    ROLE_NOT_IN_TEMPLATE = "role_not_in_template"
    TEMPLATE_REFUSED = "template_refused"
    TOO_LONG = "too_long"
    REASONING = "reasoning"  # it has some, and neither settings nor card say what to do; or it never ended
    UNKNOWN_TOKEN = "unknown_token"  # a token id of a client's own, and the model has none of that number
    TOO_MANY_PROMPTS = "too_many_prompts"  # its responses, principles and orders come to more than one row may ask
    NO_PRINCIPLE = "no_principle"
    NO_REFERENCE = "no_reference"  # a verifier or model that compares with one
    BAD_REFERENCE = "bad_reference"  # one that can't be read, or a list where a single text is meant
    NO_OPPONENT = "no_opponent"  # a judge that only compares, and no other response that it can be compared with

    NOT_FINITE = "not_finite"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_TIMEOUT = "engine_timeout"
    ENGINE_KILLER = "engine_killer"
    NO_ANSWER = "no_answer"  # a response in which a verifier finds nothing that it could compare
    CUT_OFF = "cut_off"  # a judge that hadn't ended when its tokens did
    NO_VERDICT = "no_verdict"  # a judge whose text has none where it should be
    TWO_VERDICTS = "two_verdicts"  # or several that differ
    OUT_OF_RANGE = "out_of_range"  # or one that isn't on the scale
    UNFINISHED = "unfinished"  # a candidate that hadn't ended when its tokens did
    UNJUDGED = "unjudged"  # a candidate whose turn to be judged comes when all are drawn
    ENDPOINT_FAILED = "endpoint_failed"  # a prompt on which an endpoint breaks each time, or never takes, and answers others
    ENDPOINT_REFUSED = "endpoint_refused"  # a prompt that the policy's endpoint refuses each time, and answers others
    NO_BASELINE = "no_baseline"  # of an ensemble: too few different responses to the prompt to make z-scores of


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in an assistant's turn. `arguments` is the JSON text of an object; `id` is None if the row has none."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. An assistant's with `calls` may have no content.

    `call_id` of a tool's turn is the id of the call that it answers, None where a row has none.
    """

    role: Role | JudgeRole
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An assistant turn to be judged, under the name it has in its row: `final`, `A`, `chosen`, `rejected[2]`, `turn[3]`."""

    name: str
    content: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A context, and the responses to it that are judged, by the `principles` if the model follows any.

    `fields` are texts beside the conversation, by name, such as `reference`. `tools` are the schemas of the tools that the
    assistant could call, each the JSON text of an object. `reasoning` overrides the settings for this request.
    """

    context: tuple[Message, ...]
    responses: tuple[Response, ...]
    principles: tuple[str, ...] = ()
    reasoning: Reasoning | None = None
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    tools: tuple[str, ...] = ()

    @property
    def prompt_hash(self) -> str:
        """32 hex digits that are equal for equal contexts, principles, fields and tools, on every machine and process."""
        digest = hashlib.sha256()
        for message in self.context:
            _update_digest(digest, message.role, message.content)
            for call in message.calls:
                _update_digest(digest, "call", json.dumps([call.name, call.arguments, call.id]))
            if message.call_id is not None:
                _update_digest(digest, "call_id", message.call_id)
        for principle in self.principles:
            _update_digest(digest, JudgeRole.PRINCIPLE, principle)
        for name, content in sorted(self.fields.items()):
            _update_digest(digest, "field", name)
            _update_digest(digest, "content", content)
        for tool in self.tools:
            _update_digest(digest, "tool", tool)
        return digest.hexdigest()[:32]


def _update_digest(digest: "hashlib._Hash", kind: str, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    digest.update(b"%b:%d:" % (kind.encode(), len(content)))
    digest.update(content)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt for the engine: its token ids, and the positions in the request of the responses it shows, in that order.

    A head's outputs are read at the positions `at` of the ids, in this order, or at the last one if it is empty. A judge
    generates `times` texts; `opening` is the beginning of its answer that the template has written. `redraw` is how often
    a judge has been asked again by `retry` after texts without a verdict: each time draws texts with other seeds. `criteria`
    are those of the row that it asks about, as JSON: how its answers are read depends on them.
    A verifier's prompt has no ids, but the `texts` that it compares.
    """

    ids: Sequence[int]
    response_positions: tuple[int, ...]
    at: tuple[int, ...] = ()
    times: int = 1
    opening: str = ""
    principle: str | None = None
    redraw: int = 0
    criteria: str | None = None
    texts: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """All positions of the ids where the outputs are read."""
        return self.at or (len(self.ids) - 1,)


@dataclass(frozen=True, slots=True)
class RenderedResponse:
    """A response after rendering: `reason` says why it can't be judged, `truncated` that turns before it were dropped.

    `reasoned`: there was reasoning, in it or in turns before it, whether it was kept or not.
    """

    name: str
    reason: Reason | None = None
    truncated: bool = False
    reasoned: bool = False
    detail: str = field(default="", compare=False)
    """What was wrong, for a person."""

    @property
    def refusal(self) -> "Score | None":
        """Its score if it can't be judged, else None."""
        return None if self.reason is None else replace(Score.rejected(self.reason, self.detail), reasoned=self.reasoned)


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """A request as prompts for the engine. A response that isn't rejected is judged by at least one prompt.

    The answers about a response are read in the order of its prompts.
    """

    prompt_hash: str
    responses: tuple[RenderedResponse, ...]
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a family reads from the engine's answers: the reward, the model's named outputs, and a reward for each step.

    Of a judge also its `votes`: the reward by each readable text about the response, in the order of prompts and votes.
    """

    reward: float
    scores: Mapping[str, float]
    steps: tuple[float, ...] = ()
    votes: tuple[float, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether every number is finite: with a NaN or an infinity the response has failed."""
        return all(map(math.isfinite, (self.reward, *self.scores.values(), *self.steps, *self.votes)))


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """One text of a judge, with the names of the responses that its prompt showed, in that order, and what was read in it.

    `vote` is the reward that it gives the response whose trace this is; None, with the `reason`, if it couldn't be read.
    """

    shown: tuple[str, ...]
    principle: str | None
    text: str
    finish_reason: str | None
    vote: float | None
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Score:
    """The result for one response. `reward` and `scores` are present if, and only if, `status` is `SCORED`.

    `prompt_tokens` counts all prompts about the response, and `completion_tokens` what was generated for them; responses
    that are shown together share both. `reasoned`: there was reasoning, in it or in turns before it. `steps` has the rewards
    of its steps, if the model judges steps, `votes` the rewards by each text of a judge, and `trace` these texts, if the
    settings ask for them.
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
    """Prompt tokens that came from the engine's prefix cache, or went through the model with an equal prompt or in a longer
    one. Not compared: it depends on the other requests of the time."""
    from_store: bool = field(default=False, compare=False)
    """Whether it is that of an earlier, equal request. Not compared: it says where the numbers are from."""
    detail: str = field(default="", compare=False)
    """For a person: what is wrong with a rejected response; of a judge, the text that decided, cut to its ends."""

    @classmethod
    def scored(cls, reading: Reading, prompt_tokens: int) -> Self:
        """The score of a response with a reward."""
        return cls(
            Status.SCORED, None, reading.reward, reading.scores, prompt_tokens, steps=reading.steps, votes=reading.votes
        )

    @classmethod
    def rejected(cls, reason: Reason, detail: str = "") -> Self:
        """The score of a response that can't be judged."""
        return cls(Status.REJECTED, reason, detail=detail)

    @classmethod
    def failed(cls, reason: Reason, prompt_tokens: int | None = None) -> Self:
        """The score of a response on which the model gave no usable answer."""
        return cls(Status.FAILED, reason, prompt_tokens=prompt_tokens)
