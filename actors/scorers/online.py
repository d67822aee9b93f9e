"""A model behind an endpoint: one engine, and all that a request from outside may ask of it. Knows no Ray.

`score` is what the batch job does. `read` is for prompts that somebody else has rendered, whose control tokens are meant.
`write` and `stream` give a judge's own text, for clients that read it themselves. All run on the caller's event loop; the
engine has its own, and so have the tokenizers, in a thread, since they would keep that loop from everybody else.
"""

import asyncio
import itertools
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from actors.checkpoint.checkpoint_files import locate
from actors.contracts.family import Rows
from actors.engine.protocol import Generation, Sampling
from actors.errors import AssayError, EngineDead, EngineError, EngineTimeout, Rejected
from actors.launch.start_engine import start_engine
from actors.records import Message, Prompt, Reason, RenderedRequest, Score, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.head_scorer import Scores
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, RenderSettings
from actors.text.stems import GoOn

T = TypeVar("T")


class _Abandoned(AssayError):
    """Nobody waits for this work any more."""


@dataclass(frozen=True, slots=True)
class RequestScores:
    """What became of a request: one score per response, in its order."""

    prompt_hash: str
    scores: Scores


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt that somebody else has made: its text, or its token ids.

    `begin` puts the token for the beginning of a text before it, where the tokenizer has one and the text hasn't.
    """

    prompt: str | tuple[int, ...]
    begin: bool = True


@dataclass(frozen=True, slots=True)
class RawOutputs:
    """A head's raw outputs at each place where they are read, and what the model's authors make of them."""

    rows: Rows
    score: Score


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a judge wrote nothing. A value and no exception, since it goes from process to process."""

    reason: Reason


class Unfit(StrEnum):
    """Why a model can't choose between labels."""

    NOT_ONE_TOKEN = "label_not_one_token"
    IN_REASONING = "answer_in_reasoning"
    """Its template begins a block of reasoning, whatever it is told."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How likely each label is to be the next token: its natural-log probability among all tokens, in the labels' order."""

    logprobs: tuple[float, ...]
    label_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What a judge wrote, so far or at its end, and how many tokens it was shown."""

    said: Generation
    prompt_tokens: int


class OnlineScorer:
    """A model's contract on an engine of its own. Every coroutine raises `EngineDead` once the engine is gone."""

    def __init__(self, model: RewardModel, render: RenderSettings, engine: EngineSettings) -> None:
        """Returns when the engine is ready and the self-test passed. Raises what `start_engine` and `self_test` raise."""
        self.model = model
        rehearsal = engine.engine == "fake"  # whose numbers are made up
        self._renderer = Renderer(model, render)
        self._engine = start_engine(model, engine, online=True)
        try:
            if not rehearsal:
                self_test(model, self._engine)
        except BaseException:
            self._engine.close()
            raise
        traced = replace(model, judge=model.judge.model_copy(update={"trace": True}))
        self._scorer = scorer_of(traced, self._engine, rehearsal=rehearsal)
        self._adapter = model.adapter and locate(model.adapter)
        self._tokenizing = ThreadPoolExecutor(1, "rendering")
        self._ids = map("{}-{}".format, itertools.repeat(uuid.uuid4().hex[:8]), itertools.count())
        self.tokens_under_way = 0
        """Of prompts that wait for the engine or are in it."""

    async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
        """Score requests, in their order. What can't be judged is in the scores."""
        rendered = await self._in_thread(lambda go_on: self._renderer.render(requests, go_on))
        with self._count_tokens(prompt for one in rendered for prompt in one.prompts):
            scores = await self._on_engine(self._scorer.score(rendered))
        return [RequestScores(one.prompt_hash, own) for one, own in zip(rendered, scores, strict=True)]

    async def read(self, prompts: Sequence[Rendered | ScoreRequest]) -> list[RawOutputs]:
        """A head's outputs for prompts as they are, or for conversations with one response. In their order."""
        ready = await self._in_thread(lambda go_on: [self._render_one(prompt, go_on) for prompt in prompts])
        with self._count_tokens(prompt for request in ready for prompt in request.prompts):
            return await self._on_engine(self._read_requests(ready))

    async def write(self, request: ScoreRequest, sampling: Sampling) -> list[Written] | Refused:
        """A judge's answers to its question about all responses of a request, `sampling.n` of them."""
        prompt = await self._prompt_about_all(request)
        if isinstance(prompt, Refused):
            return prompt
        try:
            with self._count_tokens([prompt]):
                generations = await self._on_engine(
                    self._engine.generate(prompt.ids, self._with_adapter(sampling), next(self._ids))
                )
        except EngineError as error:
            return _refused(error)
        return [_judge_text(prompt, generation) for generation in generations]

    async def stream(self, request: ScoreRequest, sampling: Sampling) -> AsyncIterator[Written | Refused]:
        """One answer while it is being written, each time with all of the text so far. Closing it ends the writing."""
        prompt = await self._prompt_about_all(request)
        if isinstance(prompt, Refused):
            yield prompt
            return
        try:
            with self._count_tokens([prompt]):
                states = self._engine.stream(prompt.ids, self._with_adapter(sampling), next(self._ids))
                async with aclosing(states) as states:  # type: ignore[type-var]
                    async for generation in states:
                        yield _judge_text(prompt, generation)
        except EngineError as error:
            yield _refused(error)

    async def choose(self, messages: Sequence[Message], labels: Sequence[str]) -> Choice | Refused | Unfit:
        """How likely each of some labels is as a generative model's answer to a conversation."""
        try:
            choosing = await self._in_thread(lambda go_on: self._renderer.choosing(messages, labels, go_on))
        except Rejected as rejected:
            return Refused(rejected.reason)
        ids = tuple(token for token in choosing.labels if token is not None)
        if choosing.reasoning:
            return Unfit.IN_REASONING
        if len(set(ids)) < len(labels):
            return Unfit.NOT_ONE_TOKEN
        sampling = self._with_adapter(Sampling(max_tokens=1, verdict_ids=ids))
        try:
            with self._count_tokens([Prompt(choosing.ids, ())]):
                (generation,) = await self._on_engine(self._engine.generate(choosing.ids, sampling, next(self._ids)))
        except EngineError as error:
            return _refused(error)
        return Choice(tuple(generation.logprobs[0][token] for token in ids), ids, tuple(choosing.ids))

    async def health(self) -> None:
        """Returns if the engine can work, raises `EngineDead` if it can't."""
        await self._on_engine(self._engine.health())

    def close(self) -> None:
        """Stop the engine. Safe to call twice."""
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        self._engine.close()

    def _render_one(self, prompt: Rendered | ScoreRequest, go_on: GoOn) -> RenderedRequest:
        go_on()
        if isinstance(prompt, Rendered):
            return self._renderer.as_it_is(prompt.prompt, prompt.begin)
        (rendered,) = self._renderer.render([prompt], go_on)
        return rendered

    async def _read_requests(self, ready: Sequence[RenderedRequest]) -> list[RawOutputs]:
        return list(await asyncio.gather(*map(self._read_request, ready)))

    async def _read_request(self, request: RenderedRequest) -> RawOutputs:
        (response,) = request.responses
        if response.refusal is not None:
            return RawOutputs((), response.refusal)
        rows: list[Rows] = []
        tokens = sum(len(prompt.ids) for prompt in request.prompts)
        for prompt in request.prompts:
            try:
                pooled = await self._engine.pool(prompt.ids, next(self._ids), prompt.reads)
            except EngineDead:
                raise
            except EngineTimeout:
                return RawOutputs((), Score.failed(Reason.ENGINE_TIMEOUT, tokens))
            except EngineError:
                return RawOutputs((), Score.failed(Reason.ENGINE_REFUSED, tokens))
            rows.append(pooled.rows)
        reading = self.model.family.reading(rows, self.model.weights)
        score = Score.scored(reading, tokens) if reading.finite else Score.failed(Reason.NOT_FINITE, tokens)
        return RawOutputs(
            [row for prompt_rows in rows for row in prompt_rows],
            replace(score, truncated=response.truncated, reasoned=response.reasoned),
        )

    async def _prompt_about_all(self, request: ScoreRequest) -> Prompt | Refused:
        """The one that shows all responses, in their order."""
        (rendered,) = await self._in_thread(lambda go_on: self._renderer.render([request], go_on))
        reasons = [response.reason for response in rendered.responses if response.reason is not None]
        if reasons:  # that one has no opponent only follows from what is wrong with the other
            return Refused(min(reasons, key=lambda reason: reason is Reason.NO_OPPONENT))
        everybody = tuple(range(len(request.responses)))
        return next((prompt for prompt in rendered.prompts if prompt.judges == everybody), Refused(Reason.TEMPLATE_REFUSED))

    def _with_adapter(self, sampling: Sampling) -> Sampling:
        return replace(sampling, adapter=self._adapter)

    async def _in_thread(self, work: Callable[[GoOn], T]) -> T:
        """The work's result, from the tokenizers' thread. What nobody awaits any more ends before its next prompt."""
        left = threading.Event()

        def go_on() -> None:
            if left.is_set():
                raise _Abandoned

        try:
            return await asyncio.get_running_loop().run_in_executor(self._tokenizing, work, go_on)
        finally:
            left.set()

    async def _on_engine(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._engine.submit(work))

    @contextmanager
    def _count_tokens(self, prompts: "Sequence[Prompt] | Iterator[Prompt]") -> Iterator[None]:
        tokens = sum(len(prompt.ids) for prompt in prompts)
        self.tokens_under_way += tokens
        try:
            yield
        finally:
            self.tokens_under_way -= tokens


def _refused(error: EngineError) -> Refused:
    """An engine that is gone is nothing that a request has done."""
    if isinstance(error, EngineDead):
        raise error
    return Refused(Reason.ENGINE_TIMEOUT if isinstance(error, EngineTimeout) else Reason.ENGINE_REFUSED)


def _judge_text(prompt: Prompt, generation: Generation) -> Written:
    return Written(replace(generation, text=prompt.opening + generation.text), len(prompt.ids))
