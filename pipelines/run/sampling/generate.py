"""Sources of candidates: a pool of engines, an OpenAI-compatible endpoint, or the folder of a run that has drawn them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from actors.endpoint.client import CircuitBreaker, EndpointClient
from actors.endpoint.completion import read_completion
from actors.endpoint.faults import CHAT, MODELS, EndpointFault, display_url
from actors.endpoint.http import http_client, listed_models, send
from actors.errors import EndpointError, EngineError
from actors.records import Reason
from actors.scorers.head_scorer import gather
from actors.scorers.policy import CandidatePrompt, GeneratedCandidate, failed_candidate, read_candidate
from actors.settings.replica import PolicySettings
from pipelines.data.corpus.corpus_files import Range
from pipelines.folders.run_folder.columns import CANDIDATE, CANDIDATE_TOKENS, FINISH_REASON, REASON, ROW
from pipelines.folders.run_folder.earlier_run import DRAWN
from pipelines.folders.run_folder.parts import Parts, read_tables
from pipelines.run.prepare.policy_prompts import PromptRow
from pipelines.run.runtime.engine_actors import Pool

_MOST_CAUSE = 160  # characters of what an endpoint says, in a summary
# The user turn of a probe. Sampling settings are those of the run, so that a setting which is refused shows at once.
_PROBE = "Hello"
# Fields of a model's card that identify it. In vLLM `root` is the path of the weights, `parent` the base of an adapter.
_CARD_FIELDS = ("id", "root", "parent")

_COLUMNS = (ROW, CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS, REASON)


class CandidateRequest(NamedTuple):
    """A row's id, its prompt, and a seed for each candidate to generate in this round."""

    row: str
    prompt: PromptRow
    seeds: tuple[int, ...]


def calls_prefix(work: str) -> str:
    """The name of a call without its round, `FILE-START-END/GROUP`.

    All rounds of a row, policy's and judge's, share the prefix, so they go to one engine, whose cache holds the prompt.
    """
    return work.rpartition("/")[0]


@dataclass(frozen=True)
class FromPool:
    """A policy on engines of this run."""

    pool: Pool

    async def generate(self, work: str, requests: Sequence[CandidateRequest]) -> list[tuple[GeneratedCandidate, ...]]:
        """The candidates of each row, one per seed, in order. `work` is the name of the call, equal when it is repeated."""
        draws = [CandidatePrompt(request.prompt.ids, request.seeds, request.prompt.opening) for request in requests]
        candidates: list[tuple[GeneratedCandidate, ...]] = await self.pool.by(calls_prefix(work)).draw.remote(work, draws)
        return candidates


@dataclass(frozen=True)
class FromEndpoint:
    """An OpenAI-compatible endpoint. The key is the environment's OPENAI_API_KEY, on the machines that do the work.

    `name` is the model's name there. `ledger` is the actor that keeps, for the user, what fails there.
    """

    settings: PolicySettings
    name: str
    at_a_time: int
    timeout_s: float
    patience_s: float
    ledger: Any = None

    async def generate(self, work: str, requests: Sequence[CandidateRequest]) -> list[tuple[GeneratedCandidate, ...]]:
        """See `FromPool.generate`.

        A prompt that the endpoint refuses gets failed candidates; else raises as `EndpointClient.ask`.
        """
        return await gather(map(self._candidates, requests))

    async def _candidates(self, request: CandidateRequest) -> tuple[GeneratedCandidate, ...]:
        # A request for each seed rather than one with `n`: `n` candidates would share a seed, and fail together.
        return tuple(await gather(self._candidate(request, seed) for seed in request.seeds))

    async def _candidate(self, request: CandidateRequest, seed: int) -> GeneratedCandidate:
        messages = [{"role": turn.role.value, "content": turn.content} for turn in request.prompt.request.context]
        times = itertools.count()

        async def draw() -> GeneratedCandidate:
            retries = next(times)
            return replace(await self._send(messages, seed), retries=retries)

        try:
            return await self._endpoint.ask(draw)
        except EndpointFault as fault:  # of this request alone: what fails for all raises through `ask`
            cause = fault.text if len(fault.text) <= _MOST_CAUSE else f"{fault.text[:_MOST_CAUSE]}..."
            return replace(failed_candidate(fault.reason, cause), retries=next(times) - 1)

    async def _send(self, messages: Any, seed: int) -> GeneratedCandidate:
        """One request, once. Raises `EndpointFault`."""
        settings = self.settings
        body = {
            "model": self.name,
            "messages": messages,
            "max_tokens": settings.policy_max_tokens,
            "temperature": settings.policy_temperature,
            "top_p": settings.policy_top_p,
            **({"stop": list(settings.policy_stop)} if settings.policy_stop else {}),  # some endpoints refuse an empty list
            "seed": seed,
        }
        longest = settings.policy_max_tokens
        return await send(self._client, CHAT, body, lambda answer: read_candidate(read_completion(answer, longest)))

    async def _probe(self) -> None:
        system = [{"role": "system", "content": text} for text in [self.settings.policy_system] if text]
        messages = [*system, {"role": "user", "content": _PROBE}]
        await self._send(messages, self.settings.policy_seed)

    # Cached properties are made in the worker: clients and event loops can't be pickled, the settings can.

    @cached_property
    def _endpoint(self) -> EndpointClient:
        breaker = CircuitBreaker(display_url(self.settings.policy), self._probe, self.patience_s)
        return EndpointClient(breaker, self.at_a_time, None if self.ledger is None else self.ledger.warn.remote)

    @cached_property
    def _client(self) -> Any:
        return http_client(self.settings.policy, self.timeout_s)


def served_by(settings: PolicySettings) -> dict[str, Any]:
    """The identifying fields of the endpoint's card of the policy (`policy_name`); empty if it lists no such model.

    Raises `EndpointError` if the endpoint refuses the list, or serves several models and no name is set; `RunStopped` if it
    can't be reached now.
    """
    name = settings.policy_name
    # No route for models is allowed: the run's identity then holds the name alone.
    listed = listed_models(settings.policy, MODELS) or []
    matches = [card for card in listed if name in (None, card["id"])]
    if name is None and len(matches) != 1:
        serves = ", ".join(card["id"] for card in matches) or "nothing"
        raise EndpointError(f"the endpoint {display_url(settings.policy)} serves {serves}; give --set policy_name=...")
    return {field: card[field] for card in matches[:1] for field in _CARD_FIELDS if card.get(field) is not None}


@dataclass(frozen=True)
class FromFolder:
    """Candidates that an earlier run has drawn and committed unjudged."""

    parts: Parts
    prefix: str

    def at(self, file: int, stretch: Range) -> "DrawnCandidates":
        """The candidates of a stretch of a file, in the order in which they were drawn.

        Raises `SourceError` if a part can't be read.
        """
        by_row: dict[str, list[GeneratedCandidate]] = {}
        names = [self.prefix + name for name in _COLUMNS]
        for part in self.parts.listing():
            if part.file != file or part.range.end <= stretch.start or stretch.end <= part.range.start:
                continue  # no overlap; parts of the two runs may be cut at different rows
            for table in read_tables(self.parts.path(part), names):
                for row in table.rename_columns(list(_COLUMNS)).to_pylist():
                    by_row.setdefault(row[ROW], []).append(_restore_candidate(row))
        return DrawnCandidates(by_row)


@dataclass(frozen=True)
class DrawnCandidates:
    """Candidates that are there, by row and in the order in which they were generated."""

    by_row: Mapping[str, Sequence[GeneratedCandidate]]

    async def generate(self, work: str, requests: Sequence[CandidateRequest]) -> list[tuple[GeneratedCandidate, ...]]:
        """See `FromPool.generate`. Raises `EngineError` if a row has none."""
        if lacking := [request.row for request in requests if request.row not in self.by_row]:
            raise EngineError(f"{lacking[0]} has no candidates in {DRAWN}/; run the same command again, which draws them")
        return [tuple(self.by_row[request.row]) for request in requests]


CandidateSource = FromPool | FromEndpoint | DrawnCandidates


def _restore_candidate(row: dict[str, Any]) -> GeneratedCandidate:
    """The candidate of a row. Its prompt tokens are 0: the run that drew it has counted them."""
    reason = None if row[REASON] == Reason.UNJUDGED else Reason(row[REASON])
    return GeneratedCandidate(row[CANDIDATE] or "", row[FINISH_REASON], row[CANDIDATE_TOKENS] or 0, 0, 0, reason)
