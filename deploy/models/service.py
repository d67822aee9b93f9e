"""The models of an endpoint by name. Each call has a deadline, a budget, and errors that a client understands."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import methodcaller
from typing import Any, Protocol, TypeVar

from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from actors.engine.admission import answer_by
from actors.engine.protocol import Sampling
from actors.errors import EngineDead
from actors.records import Reason, Reasoning, Response, ScoreRequest
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import HeadOutputs
from actors.scorers.online import JudgeText, OnlineScorer, Rendered, RequestScores
from actors.settings.replica import EngineSettings, RenderSettings
from deploy.errors import UNKNOWN_MODEL, ApiError, BadRequest, replica_gone
from deploy.metrics.counters import count_scores, count_tokens
from deploy.models.cohorts import Cohorts
from deploy.models.work import CharacterBudget, RequestWork, work_of, work_of_texts
from deploy.settings import LimitSettings
from pipelines.folders.run_folder.manifest import ENGINE, identity_mark, versions

T = TypeVar("T")

_ONE_RESPONSE = ScoreRequest((), (Response("final", ""),))
_LEAVING_S = 2.0  # at most, for an answer's way from the engine to the client

# The header X-Timeout-Seconds of this request, in seconds; set by `Gate` before the route runs.
timeout_s: ContextVar[float | None] = ContextVar("timeout_s", default=None)


class Scoring(Protocol):
    """What an endpoint needs of a model: replicas of an `OnlineScorer`, in this process or on a cluster.

    Closing or cancelling `answer` ends the work on the replica.
    """

    async def answer(self, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        """The answer of a replica, whole. `call` calls a method of the scorer; it is pickled on its way."""


@dataclass(frozen=True)
class ServedModel:
    """A model with its names and limits. Answers, errors and metrics carry the first name.

    Its coroutines check a request before a replica gets it, and raise `ApiError` for all that goes wrong.
    """

    names: tuple[str, ...]
    model: RewardModel
    scoring: Scoring
    limits: LimitSettings
    budget: CharacterBudget = field(default_factory=CharacterBudget)
    render: RenderSettings = field(default_factory=RenderSettings)  # how conversations become prompts
    engine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def name(self) -> str:
        return self.names[0]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the numbers depend on, as a scored corpus records it: of two equal ones, rewards are the same."""
        model, family = self.model, self.model.family
        return {
            # The keys of a run's manifest: a client compares these with a scored corpus, entry by entry.
            "revision": model.revision,
            **model.identity_on(self.engine),
            "versions": {name: version for name, version in versions().items() if name in ENGINE},
            "render": self.render.recorded(),
            "reasoning": (model.reasoning_by(self.render) or Reasoning.REJECT).value,
            "steps": family.steps,
            "within_row": family.is_within_row(model.weights),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Of the identity, for answers: while a model is replaced, replicas of two models answer under one name."""
        return identity_mark(self.identity)

    async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
        """Score requests, in their order. Raises `ApiError`; for the deadline only where nothing was answered in time."""
        # By count first: even adding up the work below takes time that grows with the items.
        self.check_count(sum(len(request.responses) for request in requests))
        self._check_read(requests)
        work = work_of(self.model.family, requests)
        began = time.monotonic()
        results: list[RequestScores] = await self._ask(work, methodcaller("score", requests))
        scores = [score for result in results for score in result.scores]
        with _errors_for_clients(self._timeout_s):
            is_late = time.monotonic() - began >= self._engine_s
            if is_late and scores and all(score.reason is Reason.ENGINE_TIMEOUT for score in scores):
                raise TimeoutError
        count_scores(self.name, scores)
        return results

    async def read(self, prompts: Sequence[Rendered | ScoreRequest], *, raw: bool) -> list[HeadOutputs]:
        """A head's raw outputs for each prompt; `raw` if the caller shows these, and not only the reward made of them.

        Raises `ApiError`, also if the model is a judge, or if several principles would have to answer as one.
        """
        if not self.model.task.pools:
            raise ApiError(400, f"{self.name} has no reward head; use /v1/rewards or /v1/chat/completions")
        self.check_count(len(prompts))
        requests = [prompt for prompt in prompts if isinstance(prompt, ScoreRequest)]
        self._check_read(requests)
        # A reward is the mean over principles; raw outputs are of one prompt, and a rendered prompt shows one principle.
        for request in requests if raw else ():
            self._check_questions(request)
        if len(requests) < len(prompts):
            self._check_questions(_ONE_RESPONSE)
        work = work_of(self.model.family, prompts)
        outputs: list[HeadOutputs] = await self._ask(work, methodcaller("read", prompts, raw=raw))
        count_scores(self.name, [output.score for output in outputs])
        return outputs

    async def write(self, request: ScoreRequest, sampling: Sampling) -> list[JudgeText] | Reason:
        """A judge's texts, `sampling.n` of them, or the reason why it wrote nothing. Raises `ApiError`."""
        self._check_read([request])
        work = work_of_texts(request, sampling.n)
        written: list[JudgeText] | Reason = await self._ask(work, methodcaller("write", request, sampling))
        if not isinstance(written, Reason):
            # The prompt is read once for all texts, so its tokens count once.
            count_tokens(self.name, written[0].prompt_tokens, sum(len(text.generation.token_ids) for text in written))
        return written

    def check_count(self, count: int) -> None:
        """Raise `ApiError` if there are more items than one request may hold."""
        if count > self.limits.max_items:
            raise ApiError(413, f"{count} items in one request; at most {self.limits.max_items}: send several requests")

    def _check_read(self, requests: Sequence[ScoreRequest]) -> None:
        """Raise `ApiError` for principles or fields that the model ignores: silence would look as if they counted."""
        names = self.model.family.field_names
        if unread := [name for request in requests for name in request.fields if name not in names]:
            raise ApiError(
                400,
                f"{self.name} reads no field {unread[0][:100]!a} of a request; it reads {', '.join(names) or 'none'}",
                code="no_such_field",
                param="fields",
            )
        if not self.model.family.takes_principles and any(request.principles for request in requests):
            raise ApiError(
                400, f"{self.name} doesn't go by principles of a request", code="no_principles", param="principles"
            )

    def _check_questions(self, request: ScoreRequest) -> None:
        """Raise `ApiError` if a response is asked about in several prompts, each of which has outputs of its own."""
        if (count := self.model.family.question_count(replace(request, responses=_ONE_RESPONSE.responses))) > 1:
            raise BadRequest(
                f"{self.name} goes by {count} principles, with a prompt and an output for each, and this answer has the "
                "output of one prompt: ask /v1/rewards, or serve the model with one principle"
            )

    @property
    def _timeout_s(self) -> float:
        requested = timeout_s.get()
        return self.limits.answer_timeout_s if requested is None else min(requested, self.limits.answer_timeout_s)

    @property
    def _engine_s(self) -> float:
        # Engines give up a little before the deadline: a slow response then costs its number alone, not its whole request.
        return self._timeout_s - min(_LEAVING_S, self._timeout_s / 10)

    async def _ask(self, work: RequestWork, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        # Room first: what is refused must not reach a replica. The time-out is the innermost, so that its TimeoutError
        # becomes an ApiError as well.
        with self.budget.reserve(work, self.limits), _errors_for_clients(self._timeout_s):
            async with asyncio.timeout(self._timeout_s):
                return await self.scoring.answer(partial(_call_within, self._engine_s, call))


class Service:
    """All models of an endpoint.

    `cohorts` are this process's: rollouts that must meet must come to one process.
    """

    def __init__(self, models: Sequence[ServedModel], limits: LimitSettings) -> None:
        self.models = tuple(models)
        self.cohorts = Cohorts()
        self.limits = limits
        # Names are unique: `EndpointSettings` refuses two models of one name.
        self._by_name: Mapping[str, ServedModel] = {name: model for model in models for name in model.names}

    def find(self, name: str | None) -> ServedModel:
        """The model of this name; without a name, the only model.

        Raises `ApiError`: 400 if several need a name, 404 for one that isn't there. The message lists all.
        """
        if name is None and len(self.models) == 1:
            return self.models[0]
        if name is None:
            raise ApiError(
                400, f"this endpoint serves several models, {self._names}: choose one with `model`", param="model"
            )
        if name not in self._by_name:
            raise ApiError(
                404, f"unknown model; this endpoint serves {self._names}",
                code=UNKNOWN_MODEL, param="model",
            )  # fmt: skip
        return self._by_name[name]

    @property
    def _names(self) -> str:
        return ", ".join(self._by_name)


async def _call_within(seconds: float, call: Callable[[OnlineScorer], Awaitable[T]], scorer: OnlineScorer) -> T:
    answer_by.set(time.monotonic() + seconds)  # in the replica's process: clocks of two machines differ
    return await call(scorer)


@contextmanager
def _errors_for_clients(timeout_s: float) -> Iterator[None]:
    """Turn errors of Ray, of Serve and of deadlines into `ApiError`. 429 and 503 carry Retry-After: asking again can help.

    An error of a replica's code is told by its type alone; its message may hold a user's text.
    """
    try:
        yield
    # `from None`: the causes are Ray's and asyncio's, whose tracebacks tell nothing beyond the code. A defect's is kept.
    except TimeoutError:
        raise ApiError(
            504,
            f"the answer took longer than {timeout_s:g} s, the limit of this endpoint or of the request's "
            "X-Timeout-Seconds: ask for less in one request, or later",
            code="timeout",
        ) from None
    except BackPressureError:
        raise ApiError(429, "too many requests wait for this model", code="overloaded", retry_after_s=1) from None
    except (EngineDead, RayActorError, DeploymentUnavailableError):
        raise replica_gone() from None
    except TaskCancelledError:
        raise ApiError(503, "the request was cancelled; send it again", code="cancelled", retry_after_s=1) from None
    except RayTaskError as error:
        raise ApiError(500, f"the replica failed: {type(error.cause).__name__}", code="internal_error") from error
