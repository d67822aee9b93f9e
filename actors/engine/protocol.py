"""What Assay asks of an inference engine. One module implements it on vLLM, one fakes it.

An engine owns an event loop in a thread of its own, where all its coroutines run. `submit` hands a coroutine over, so a
block of a thousand prompts crosses threads once.
"""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from actors.engine.admission import Admission
from actors.engine.loop_thread import LoopThread
from actors.errors import EngineDead, EngineError

T = TypeVar("T")

Places = Sequence[int] | None  # positions of a prompt, counted from 0; None is the last token alone


class Task(StrEnum):
    """What an engine is started for; each engine does one of these."""

    CLASSIFY = "classify"  # the head's outputs at the last token
    TOKEN_CLASSIFY = "token_classify"  # the head's outputs at every position
    EMBED = "embed"  # the outputs at the last token of a `StateHead`, which is outside of the engine's model
    GENERATE = "generate"
    VERIFY = "verify"  # no model: code compares texts

    @property
    def pools(self) -> bool:
        return self in (Task.CLASSIFY, Task.TOKEN_CLASSIFY, Task.EMBED)

    @property
    def writes(self) -> bool:
        return self is Task.GENERATE

    @property
    def deadline_s(self) -> float:
        """The default deadline of a prompt in seconds."""
        # A judge that reasons writes for half an hour; code that takes over ten seconds for two texts never ends.
        return {Task.GENERATE: 3600.0, Task.VERIFY: 10.0}.get(self, 600.0)

    @property
    def every_position(self) -> bool:
        return self is Task.TOKEN_CLASSIFY


@dataclass(frozen=True, slots=True)
class Sampling:
    """How text is generated. `top_k` 0 samples from all tokens, and temperature 0 takes the likeliest.

    `verdict_ids` are token ids whose log-probability is returned at every position. `schema` is a JSON schema that the text
    must meet. `keep_special` keeps special tokens in the text, except the last one.
    """

    max_tokens: int
    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: str | None = None
    verdict_ids: tuple[int, ...] = ()
    keep_special: bool = False


@dataclass(frozen=True, slots=True)
class Pooled:
    """The raw outputs of a head for one prompt: logits with the stored bias, never an activation.

    `rows` has the outputs at each position that was asked for, in that order. `cached_tokens` came out of the prefix cache,
    `computed_tokens` went through the model; their sum is the prompt.
    """

    rows: tuple[tuple[float, ...], ...]
    cached_tokens: int
    computed_tokens: int

    @property
    def values(self) -> tuple[float, ...]:
        return self.rows[-1]


@dataclass(frozen=True, slots=True)
class Generation:
    """One sample of text. `finish_reason` is vLLM's: `stop` if the model ended by itself, `length` if it was cut off.

    `logprobs` has one mapping per entry of `token_ids` (token id to natural-log probability before temperature), empty
    unless `Sampling.verdict_ids` asked for it.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    logprobs: tuple[Mapping[int, float], ...]
    cached_tokens: int
    computed_tokens: int


class StateHead(Protocol):
    """A head outside of the engine's model, for `Task.EMBED`: it is applied to hidden states."""

    @property
    def left_out(self) -> Sequence[str]:
        """How the names of its tensors begin among the checkpoint's, which the engine's model doesn't have."""

    def ends(self, ids: Sequence[int]) -> Sequence[int]:
        """The lengths at which a prompt is cut, whose last tokens' states it takes; the last is the whole prompt's."""

    def outputs(self, *states: Any) -> tuple[float, ...]:
        """The outputs by these states, one for each of `ends`, which are tensors of torch, [hidden] each."""


class Engine(ABC):
    """A live model. Every coroutine raises `EngineDead` once the engine is gone, and within its deadline if it hangs.

    Whoever cancels a coroutine gives up on its request. An engine implements what its task needs: the rest raises
    `EngineError`.
    """

    max_model_len: int  # the longest prompt in tokens, with what is generated
    reads_ids: ClassVar[bool] = True  # the ids of prompts are tokens, and no bytes of messages
    runner: str  # vLLM's model runner, `V1` or `V2`, for messages and for a run's record
    _admission: Admission

    def __init__(self) -> None:
        self._thread = LoopThread("engine")

    @property
    def load(self) -> tuple[int, int]:
        """The number of requests that were answered so far, and of those that wait or are being answered."""
        return self._admission.answered, self._admission.request_count

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's own loop; callable from any thread but that loop's."""
        return self._thread.submit(work)

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        """The head's raw outputs at some positions of `ids`, counted from 0, or at the last token alone.

        Prompts with an equal `context`, if they must wait, go one after another where a prefix cache helps (`Admission`).
        `activated` is for the self-test: it returns the outputs after the activation that the engine applies by default, or,
        of `Task.EMBED`, those of the states at length one.
        `uncached`: all tokens go through the model, even if the prefix cache has them.
        Raises `EngineError` if the engine refuses the prompt, or can't read a position: one for `Task.CLASSIFY` reads only
        the last token.
        """
        raise EngineError("this engine has no head")

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        """`sampling.n` samples. `context` is as in `pool`."""
        raise EngineError("this engine writes no text")

    @abstractmethod
    async def health(self) -> None:
        """Returns if the engine can work, raises `EngineDead` if it can't."""

    def close(self) -> None:
        """Stop the engine and its processes. Safe to call twice."""
        with contextlib.suppress(EngineDead):  # it was closed before
            self.submit(self._end()).result()
            self._thread.stop()

    @abstractmethod
    async def _end(self) -> None:
        """What is to be done on the loop before it stops."""


def check_ids(ids: Sequence[int], vocabulary: int) -> None:
    """Raise `EngineError` for a prompt without tokens, or with an id that isn't below `vocabulary`."""
    if not ids:
        raise EngineError("the prompt has no tokens")
    for token in (min(ids), max(ids)):
        if not 0 <= token < vocabulary:
            raise EngineError(f"token id {token} is outside the vocabulary of {vocabulary} tokens")


def positions(ids: Sequence[int], at: Places, every_position: bool) -> Sequence[int]:
    """The positions where `Engine.pool` reads; `every_position`: the engine can read any position.

    Raises `EngineError` for a position outside of the prompt, or one that the engine can't read.
    """
    last = len(ids) - 1
    if at is None:
        return (last,)
    if not at:
        raise EngineError("no position to read was given")
    if wrong := [position for position in at if not 0 <= position <= last]:
        raise EngineError(f"position {wrong[0]} is outside the prompt of {len(ids)} tokens")
    if not every_position and (early := [position for position in at if position != last]):
        raise EngineError(
            f"position {early[0]} can't be read: an engine for {Task.CLASSIFY} reads the last token alone, here {last}; "
            f"one for {Task.TOKEN_CLASSIFY} reads every position"
        )
    return at


def activation(values: Sequence[float]) -> tuple[float, ...]:
    """The activation that vLLM applies to logits by default: a sigmoid of one, a softmax of several.

    Numbers from 0 to 1, as many as the logits; families that need it apply it themselves to raw outputs.
    """
    if len(values) == 1:
        return (1 / (1 + math.exp(-values[0])),)
    highest = max(values)  # subtracted, so that `exp` doesn't overflow
    powers = [math.exp(value - highest) for value in values]
    return tuple(power / sum(powers) for power in powers)
