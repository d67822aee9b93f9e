"""A model behind an endpoint: one engine, and everything that a request from outside can do with it. Knows no Ray.

`score` does what the batch job does. `read` is for prompts that a client has rendered: their control tokens are intended.
`write` returns a judge's texts, for clients that parse them themselves, or the `Reason` why it wrote nothing: a value, since
it is sent between processes. All run on the caller's event loop. The engine has a loop of its own, and rendering runs in a
thread, since tokenizing a long prompt would block the caller's loop.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from actors.engine.protocol import Generation, Sampling
from actors.errors import AssayError, EngineDead, EngineError
from actors.launch.start_engine import start_engine
from actors.records import Prompt, Reason, RenderedRequest, ScoreRequest
from actors.rendering.choose_renderer import renderer_of
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.fair_turns import FairTurns
from actors.scorers.head_scorer import HeadOutputs, HeadScorer, ScoreRequests, Scores
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, RenderSettings
from actors.text.stems import CheckCancelled
from actors.text.tool_calls import size_of

T = TypeVar("T")


class ScoreMemory(Protocol):
    """Answers what it remembers, and asks the scorer that it lies around for the rest. On one event loop.

    A `ScoreRequests` with an end: the score store, behind an endpoint.
    """

    async def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """A `ScoreRequests`."""

    def close(self) -> None:
        """Keep what isn't kept yet. May block for some seconds."""


WithScoreMemory = Callable[[ScoreRequests], ScoreMemory]

# Requests that take turns in rendering; more wait for one of these to end. Only one works at a time (`FairTurns`): the
# others wait, so that this bounds memory and not speed.
_THREADS = 64
_SHORT = 4096  # characters that are rendered in about a millisecond, during which no other request is read
_TURN = 64  # what rendering a turn's header costs, in characters
_IDS_PER_CHARACTER = 16  # ids that came rendered cost as much together as one character: they are only range-checked


class _Abandoned(AssayError):
    """The client has left: nothing awaits this work any more."""


@dataclass(frozen=True, slots=True)
class RequestScores:
    """The result of a request: one score per response, in its order.

    `prompt_hash` groups answers to one prompt, as in a scored corpus.
    """

    prompt_hash: str
    scores: Scores


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt that a client has rendered: its text, or its token ids.

    `begin` prepends BOS where the tokenizer has one and the text doesn't begin with it.
    """

    prompt: str | tuple[int, ...]
    begin: bool = True


@dataclass(frozen=True, slots=True)
class JudgeText:
    """A judge's text, and how many tokens its prompt has.

    The text begins with what the template has opened the answer with, such as `<think>`.
    """

    generation: Generation
    prompt_tokens: int


class OnlineScorer:
    """A model's contract on an engine of its own. Every coroutine raises `EngineDead` once the engine is gone.

    One event loop calls it; any number of its coroutines run at a time, and cancelling one ends its work on the engine.
    """

    def __init__(
        self,
        model: RewardModel,
        render: RenderSettings,
        engine: EngineSettings,
        remember: WithScoreMemory | None = None,
    ) -> None:
        """Returns when the engine is ready and the self-test passed. Raises what `start_engine` and `self_test` raise."""
        self.model = model
        rehearsal = engine.engine == "fake"  # whose numbers are made up
        self._renderer = renderer_of(model, render)
        self._memory = remember and remember(self._score_on_engine)
        self._score: ScoreRequests = self._memory or self._score_on_engine
        self._engine = start_engine(model, engine, online=True)
        try:
            if not rehearsal:
                self_test(model, self._engine)
        except BaseException:
            self._engine.close()  # else its process would keep the GPU's memory
            raise
        # Always with its texts: a client may ask for them in any request, and a tie of Gym's is broken by them.
        self._scorer = scorer_of(model.tracing, self._engine, rehearsal=rehearsal)
        self._tokenizing = ThreadPoolExecutor(_THREADS, "rendering")
        self._turns = FairTurns()
        self.tokens_under_way = 0  # prompt tokens that wait for the engine or are in it: the load of this replica

    async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
        """Score requests, in their order. A response that can't be judged has a score with the reason."""
        rendered_requests = await self._run_rendering(
            requests, lambda check_cancelled: self._renderer.render(requests, check_cancelled)
        )
        all_scores = await self._score(rendered_requests)
        return [
            RequestScores(request.prompt_hash, scores) for request, scores in zip(rendered_requests, all_scores, strict=True)
        ]

    async def read(self, prompts: Sequence[Rendered | ScoreRequest], *, raw: bool = True) -> list[HeadOutputs]:
        """A head's outputs for rendered prompts, or for conversations with one response, in their order.

        Without `raw` the scores alone, which may be remembered.
        """
        rendered_requests = await self._run_rendering(
            prompts, lambda check_cancelled: [self._render_one(prompt, check_cancelled) for prompt in prompts]
        )
        if not raw:
            return [HeadOutputs(scores, ()) for scores in await self._score(rendered_requests)]
        assert isinstance(self._scorer, HeadScorer), "a judge has no head"
        with self._count_tokens(prompt for request in rendered_requests for prompt in request.prompts):
            return await self._run_on_engine(self._scorer.read(rendered_requests))

    async def write(self, request: ScoreRequest, sampling: Sampling) -> list[JudgeText] | Reason:
        """`sampling.n` texts of a judge, for the prompt that shows all responses of a request."""
        prompt = await self._prompt_about_all(request)
        if isinstance(prompt, Reason):
            return prompt
        try:
            with self._count_tokens([prompt]):  # the prompt once, however many texts: the engine reads it once
                generations = await self._run_on_engine(self._engine.generate(prompt.ids, sampling))
        except EngineDead:
            raise
        except EngineError as error:
            return error.reason
        # With the mark that the template has opened the answer with, such as `<think>`: the engine never generated it.
        texts = [replace(generation, text=prompt.opening + generation.text) for generation in generations]
        return [JudgeText(generation, len(prompt.ids)) for generation in texts]

    async def health(self) -> None:
        await self._run_on_engine(self._engine.health())

    def close(self) -> None:
        # Not waited for: a thread ends before its next prompt, and nobody wants what it renders any more.
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        if self._memory is not None:
            self._memory.close()
        self._engine.close()

    @property
    def _prompt_renderer(self) -> Renderer:
        assert isinstance(self._renderer, Renderer), "a verifier has no prompts"
        return self._renderer

    def _render_one(self, prompt: Rendered | ScoreRequest, check_cancelled: CheckCancelled) -> RenderedRequest:
        check_cancelled()
        if isinstance(prompt, Rendered):
            return self._prompt_renderer.from_rendered(prompt.prompt, prompt.begin)
        (rendered,) = self._renderer.render([prompt], check_cancelled)
        return rendered

    async def _prompt_about_all(self, request: ScoreRequest) -> Prompt | Reason:
        """The prompt that shows all responses, in their order, or why there is none."""
        (rendered,) = await self._run_rendering(
            [request], lambda check_cancelled: self._renderer.render([request], check_cancelled)
        )
        reasons = [response.reason for response in rendered.responses if response.reason is not None]
        if reasons:  # the cause first: that a response has no opponent only follows from the other one's rejection
            return min(reasons, key=lambda reason: reason is Reason.NO_OPPONENT)
        all_positions = tuple(range(len(request.responses)))
        return next(
            (prompt for prompt in rendered.prompts if prompt.response_positions == all_positions),
            Reason.TEMPLATE_REFUSED,
        )

    async def _run_rendering(self, prompts: Sequence[Rendered | ScoreRequest], work: Callable[[CheckCancelled], T]) -> T:
        """The result of `work`, which renders `prompts`: here if they are short, and nothing else is rendered now.

        A thread would take longer to begin than such a prompt takes, and would wait for the interpreter's lock.
        """
        if _are_short(prompts) and self._turns.take_if_free():
            try:
                return work(lambda: None)
            finally:
                self._turns.leave()
        return await self._run_in_thread(work)

    async def _run_in_thread(self, work: Callable[[CheckCancelled], T]) -> T:
        """The result of `work`, run in a rendering thread. Once it is cancelled here, it ends before its next prompt.

        A thread can't be cancelled from outside, and none may render megabytes for a client that has left. Requests take
        turns between prompts: a large one doesn't hold up those behind it.
        """
        is_abandoned = threading.Event()

        def check_cancelled() -> None:
            if is_abandoned.is_set():
                raise _Abandoned
            self._turns.give_way()

        def render() -> T:
            with self._turns.taken():
                return work(check_cancelled)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._tokenizing, render)
        finally:
            is_abandoned.set()

    async def _score_on_engine(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        with self._count_tokens(prompt for request in requests for prompt in request.prompts):
            return await self._run_on_engine(self._scorer.score(requests))

    async def _run_on_engine(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._engine.submit(work))

    @contextmanager
    def _count_tokens(self, prompts: Iterable[Prompt]) -> Iterator[None]:
        tokens = sum(len(prompt.ids) for prompt in prompts)
        self.tokens_under_way += tokens
        try:
            yield
        finally:
            self.tokens_under_way -= tokens


def _are_short(prompts: Sequence[Rendered | ScoreRequest]) -> bool:
    """Whether all prompts of some requests have at most `_SHORT` tokens or characters together."""
    total = 0
    for prompt in prompts:
        if isinstance(prompt, Rendered):
            # Ids are only compared with the vocabulary's size.
            total += len(prompt.prompt) if isinstance(prompt.prompt, str) else len(prompt.prompt) // _IDS_PER_CHARACTER
        else:
            count = len(prompt.responses) * max(1, len(prompt.principles))
            shown = sum(map(size_of, prompt.context)) + sum(map(size_of, prompt.responses))
            shown += sum(map(len, (*prompt.fields.values(), *prompt.tools)))
            # Squared: a judge of pairs may have a prompt for each two of them, and each shows the whole context.
            total += count * count * (shown + _TURN * len(prompt.context))
        if total > _SHORT:
            return False
    return True
