"""An engine without a model, for tests and rehearsals. The same contract tests run against it and vLLM.

Its numbers are hashes of the token ids alone: the same on every machine, in every process and in every order.
"""

import asyncio
import hashlib
import math
import os
import re
import struct
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from types import MappingProxyType

from actors.engine.admission import Admission
from actors.engine.protocol import Engine, Generation, Places, Pooled, Sampling, activation, check_ids, positions
from actors.errors import EngineError

_WORDS = ("yes", "no", "good", "bad", "clear", "vague", "short", "long")
_DIGEST_NUMBERS = 8  # a blake2b digest is eight 64-bit numbers


class FakeFault(StrEnum):
    """What can go wrong with a prompt."""

    DIE = "die"  # the engine dies, and the process with the actor around it lives
    EXIT = "exit"  # the process ends without an error message
    HANG = "hang"  # no answer, ever
    REFUSE = "refuse"  # `EngineError` for this prompt
    NAN = "nan"  # for every output, from this token on


Reply = Callable[[Sequence[int], Sampling, int], str]
"""Makes a judge's text from the prompt, the sampling and the number of the sample."""


IN_FLIGHT = 512  # prompts that it works on at a time


class FakeEngine(Engine):
    """Made-up logits between -4 and 4, and made-up text, from a loop in a thread of its own like a real engine's.

    The logits at a position depend on the tokens up to there alone, as a causal model's do. A word is a token.
    """

    def __init__(
        self,
        labels: int,
        max_model_len: int,
        *,
        vocabulary: int = 2**31,
        max_in_flight: int = IN_FLIGHT,
        request_timeout_s: float = 600.0,
        latency_s: float = 0.0,
        at: Mapping[int, FakeFault] = MappingProxyType({}),
        die_after: int | None = None,
        reply: Reply | None = None,
        every_position: bool = False,
    ) -> None:
        """`latency_s` is what a pool or a generated token takes. `reply` makes the text; by default it is a few words.

        `at` has the fault of prompts that contain a token id, so that a fault follows its row to any engine and block.
        `die_after` is the number of requests that are answered before the engine dies.
        `every_position` is what `Task.TOKEN_CLASSIFY` is to a real engine: that it reads anywhere, not at the end alone.
        """
        super().__init__()
        self._labels = labels
        self.max_model_len = max_model_len
        self.runner = "fake"
        self._vocabulary = vocabulary
        self._latency_s = latency_s
        self._fault_of, self._die_after = at, die_after
        self._reply = reply or _make_words
        self._every_position = every_position
        self._answered = 0
        self._admission = Admission(max_in_flight, request_timeout_s)

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        read = positions(ids, at, self._every_position)
        fault = self._check_prompt(ids, longest=self.max_model_len)
        # Other prompts never wait: a block of them is one turn of the loop, and a rehearsal times all but the engine.
        if self._latency_s or fault is FakeFault.HANG:
            async with self._admission.place(context, len(ids)):
                await self._work(fault)
        rows = [self._row(ids[: position + 1]) for position in read]
        return Pooled(tuple(map(activation, rows) if activated else rows), 0, len(ids))

    def _row(self, ids: Sequence[int]) -> tuple[float, ...]:
        if self._fault(ids) is FakeFault.NAN:
            return (math.nan,) * self._labels
        return _logits(_key(ids), self._labels)

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        if sampling.n > 1 and not sampling.temperature:
            raise EngineError("greedy samples would all be the same")
        samples = []
        async with self._admission.place(context, len(ids)):
            for number in range(sampling.n):
                async with aclosing(self._states(ids, sampling, number)) as states:
                    samples.append([state async for state in states][-1])
        return tuple(samples)

    async def health(self) -> None:
        self._admission.check()

    def kill(self) -> None:
        self.submit(self._die("it was killed")).result()

    async def _end(self) -> None:
        self._admission.die("it was closed")

    async def _die(self, cause: str) -> None:
        self._admission.die(cause)

    def _check_prompt(self, ids: Sequence[int], longest: int) -> FakeFault | None:
        # Make the checks of a real engine, then apply the faults that take no time; the prompt's fault is returned.
        self._admission.check()
        check_ids(ids, self._vocabulary)
        if len(ids) > longest:
            raise EngineError(f"the prompt has {len(ids)} tokens, and at most {longest} are possible")
        if self._answered == self._die_after:
            raise self._admission.die(f"it had answered {self._answered} requests")
        fault = self._fault(ids)
        match fault:
            case FakeFault.EXIT:
                os._exit(1)
            case FakeFault.DIE:
                raise self._admission.die("a prompt killed it")
            case FakeFault.REFUSE:
                raise EngineError("the prompt is refused")
            case _:
                self._answered += 1
                return fault

    def _fault(self, ids: Sequence[int]) -> FakeFault | None:
        # The first token that has one; without any fault prompts of a hundred thousand tokens aren't looked through.
        faults = self._fault_of
        return next((faults[token] for token in ids if token in faults), None) if faults else None

    async def _work(self, fault: FakeFault | None) -> None:
        await asyncio.sleep(math.inf if fault is FakeFault.HANG else self._latency_s)

    async def _states(self, ids: Sequence[int], sampling: Sampling, number: int) -> AsyncGenerator[Generation, None]:
        """A sample as it grows, word by word; a word is a token."""
        if sampling.max_tokens < 1:
            raise EngineError("at least one token must be allowed")
        fault = self._check_prompt(ids, longest=self.max_model_len - 1)
        words = re.findall(r"\s*\S+", self._reply(ids, sampling, number))
        room = min(sampling.max_tokens, self.max_model_len - len(ids))
        for length in range(1, min(len(words), room) + 1):
            await self._work(fault)
            text = "".join(words[:length])
            stops = [text.index(stop) for stop in sampling.stop if stop in text]
            ended = bool(stops) or length == len(words)
            cut_off = length == room and not ended
            tokens = tuple(_key_of_text(word) % self._vocabulary for word in words[:length])
            yield Generation(
                text=text[: min(stops)] if stops else text,
                token_ids=tokens,
                finish_reason="stop" if ended else "length" if cut_off else None,
                logprobs=tuple(
                    _verdict_logprobs(ids, tokens[: position + 1], sampling.verdict_ids) for position in range(length)
                )
                if sampling.verdict_ids
                else (),
                cached_tokens=0,
                computed_tokens=len(ids),
            )
            if ended:
                return


def _key(ids: Sequence[int]) -> bytes:
    return array("q", ids).tobytes()


def _key_of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _logits(key: bytes, count: int) -> tuple[float, ...]:
    """`count` numbers in [-4, 4), spread evenly."""
    # A digest is eight numbers; the number of the eight is its salt, so that a ninth label isn't the first again.
    blocks = range(0, count, _DIGEST_NUMBERS)
    digest = b"".join([hashlib.blake2b(key, salt=block.to_bytes(8, "little")).digest() for block in blocks])
    return tuple([number / 2**61 - 4 for number in struct.unpack_from(f"<{count}Q", digest)])


def _make_words(ids: Sequence[int], sampling: Sampling, number: int) -> str:
    # Two to nine words; which ones depends on the seed and the sample only where a real engine would draw.
    varying = (number, -1 if sampling.seed is None else sampling.seed) if sampling.temperature else ()
    logits = _logits(_key((*ids, *varying)), 10)
    return " ".join(_WORDS[int(logit) + 4] for logit in logits[: 2 + int(logits[-1]) + 4])


def _verdict_logprobs(ids: Sequence[int], tokens: Sequence[int], verdict_ids: Sequence[int]) -> Mapping[int, float]:
    # Log-probabilities of the verdict tokens and of the generated one; the rest up to 1 is that of all other tokens.
    targets = dict.fromkeys((*verdict_ids, tokens[-1]))
    weights = [math.exp(logit) for logit in _logits(_key((*ids, *tokens)), len(targets))]
    total = 1 + sum(weights)
    return {token: math.log(weight / total) for token, weight in zip(targets, weights, strict=True)}
