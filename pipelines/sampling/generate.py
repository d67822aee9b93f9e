"""Where candidates come from: a pool of engines, an endpoint of somebody's, or an earlier pass of the same run."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import pyarrow.compute as pc

from actors.errors import EndpointError, RunStopped
from actors.records import Reason
from actors.scorers.head_scorer import gather
from actors.scorers.policy import Draw, Drawn, failed_candidate
from actors.settings.replica import PolicySettings
from pipelines.corpus.corpus_files import Range
from pipelines.prepare.policy_prompts import PromptRow
from pipelines.sampling.endpoint_client import EndpointFault, FaultKind, Patience
from pipelines.sampling.endpoint_faults import fault_of, is_about_length, named
from pipelines.sampling.engine_actors import Pool
from pipelines.scored_corpus.columns import CANDIDATE, CANDIDATE_TOKENS, FINISH_REASON, REASON, RESPONSE, ROW
from pipelines.scored_corpus.parts import Parts, read_tables

_CONNECT_S, _LEAST_PROBE_S = 30.0, 60.0
_PROBE = "Hello"
"""What an endpoint is asked to know whether it answers: with all that candidates are drawn with."""

_SERVED = {"id", "root", "parent"}
"""What of a model's card tells which one it is: vLLM says what the model and its adapter were loaded from."""

_READ = (ROW, RESPONSE, CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS, REASON)


class Asked(NamedTuple):
    """A row, its prompt, and a seed for each candidate that is wanted now."""

    row: str
    asked: PromptRow
    seeds: tuple[int, ...]


def calls_prefix(work: str) -> str:
    """What calls about the same rows have in common: a call's name is that, a slash and its round."""
    return work.rpartition("/")[0]


class Drawer(Protocol):
    """Draws candidates."""

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        """The candidates of each row, one per seed. `work` names the call, the same whenever it is made again."""


@dataclass(frozen=True)
class FromPool:
    """A policy of ours."""

    pool: Pool

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        """See `Drawer`."""
        draws = [Draw(row.asked.ids, row.seeds, row.asked.opening) for row in rows]
        found: list[tuple[Drawn, ...]] = await self.pool.by(calls_prefix(work)).draw.remote(work, draws)
        return found


@dataclass(frozen=True)
class FromEndpoint:
    """An OpenAI-compatible endpoint. The key is the environment's OPENAI_API_KEY, on the machines that do the work."""

    settings: PolicySettings
    at_a_time: int
    timeout_s: float
    patience_s: float

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        """See `Drawer`. Raises as `Patience.ask` does, but for a prompt that the endpoint doesn't answer by itself."""
        return await gather(map(self._candidates, rows))

    async def _candidates(self, row: Asked) -> tuple[Drawn, ...]:
        return tuple(await gather(self._one(row, seed) for seed in row.seeds))

    async def _one(self, row: Asked, seed: int) -> Drawn:
        messages = [{"role": turn.role.value, "content": turn.content} for turn in row.asked.request.context]
        try:
            return await self._patience.ask(lambda: self._send(messages, seed))
        except EndpointFault as fault:
            if fault.kind is not FaultKind.REFUSED:
                return failed_candidate(Reason.ENDPOINT_FAILED)
            return failed_candidate(Reason.TOO_LONG if is_about_length(fault) else Reason.ENDPOINT_REFUSED)

    async def _send(self, messages: Any, seed: int) -> Drawn:
        """Ask once. Raises `EndpointFault`."""
        import openai  # seconds of import, which only a run with an endpoint pays for

        settings = self.settings
        try:
            answer = await self._client.chat.completions.create(
                model=await self._model(),
                messages=messages,
                max_tokens=settings.policy_max_tokens,
                temperature=settings.policy_temperature,
                top_p=settings.policy_top_p,
                stop=list(settings.policy_stop) or None,
                seed=seed,
            )
            return _drawn(answer)
        except (openai.APIError, ValueError, TypeError, AttributeError) as error:  # or what came is no completion
            raise fault_of(error) from error

    async def _probe(self) -> None:
        system = [{"role": "system", "content": text} for text in [self.settings.policy_system] if text]
        try:
            async with asyncio.timeout(max(_LEAST_PROBE_S, self.patience_s)):
                await self._send([*system, {"role": "user", "content": _PROBE}], self.settings.policy_seed)
        except TimeoutError as error:
            raise EndpointFault(FaultKind.TIMED_OUT, "gives no answer in time") from error

    @cached_property
    def _patience(self) -> Patience:
        assert self.settings.policy is not None
        where = named(self.settings.policy)
        return Patience(where, self._probe, at_a_time=self.at_a_time, patience_s=self.patience_s)

    @cached_property
    def _client(self) -> Any:
        import openai

        key = os.environ.get("OPENAI_API_KEY", "none")
        timeout = openai.Timeout(self.timeout_s, connect=min(_CONNECT_S, self.timeout_s))
        return openai.AsyncOpenAI(base_url=self.settings.policy, api_key=key, max_retries=0, timeout=timeout)

    @cached_property
    def _names(self) -> list[str]:
        """The models of the endpoint, once they are known: a probe asks for them first."""
        return []

    async def _model(self) -> str:
        if self.settings.policy_name is not None:
            return self.settings.policy_name
        if not self._names:
            names = [model.id async for model in self._client.models.list()]
            if len(names) != 1:
                raise EndpointFault(FaultKind.UNUSABLE, f"serves {', '.join(names) or 'nothing'}; give --policy-name")
            self._names.extend(names)
        return self._names[0]


def served_by(settings: PolicySettings) -> dict[str, Any] | None:
    """Which model an endpoint serves under the name that it is asked for, as it says itself; None where it doesn't.

    Raises `EndpointError` if it can't be asked or serves several, and `RunStopped` if it can't be asked now.
    """
    import openai

    assert settings.policy is not None
    where, name = named(settings.policy), settings.policy_name
    key = os.environ.get("OPENAI_API_KEY", "none")
    try:
        with openai.OpenAI(base_url=settings.policy, api_key=key, max_retries=2, timeout=_CONNECT_S) as client:
            cards = [card.model_dump(include=_SERVED, exclude_none=True) for card in client.models.list()]
    except openai.NotFoundError:
        cards = []
    except (openai.APIError, ValueError, TypeError, AttributeError) as error:
        fault = fault_of(error)
        if fault.kind is FaultKind.UNUSABLE or fault.kind is FaultKind.REFUSED:
            raise EndpointError(f"the endpoint {where} {fault.text}") from error
        raise RunStopped(
            f"the endpoint {where} can't be asked which model it serves, and a run goes on with the same one alone: it "
            f"{fault.text}; the same command goes on when it can"
        ) from error
    own = [card for card in cards if name in (None, card["id"])]
    if name is None and len(own) != 1:
        serves = ", ".join(card["id"] for card in own) or "nothing"
        raise EndpointError(f"the endpoint {where} serves {serves}; give --policy-name")
    return own[0] if own else None


def _drawn(found: Any) -> Drawn:
    (choice,) = found.choices
    text = choice.message.content or ""
    finish, usage = choice.finish_reason or "", found.usage
    reason = Reason.UNFINISHED if finish != "stop" else Reason.EMPTY_CONTENT if not text.strip() else None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Drawn(text, finish, usage.completion_tokens if usage else 0, usage.prompt_tokens if usage else 0, cached, reason)


@dataclass(frozen=True)
class FromParts:
    """The first pass of a run that draws and judges in turns."""

    parts: Parts
    prefix: str

    def of(self, file: int, stretch: Range) -> dict[str, list[Drawn]]:
        """What was drawn for the rows of a stretch of a file, by row."""
        found: dict[str, list[Drawn]] = {}
        names = [self.prefix + name for name in _READ]
        for part in self.parts.listing():
            if part.file != file or part.range.end <= stretch.start or stretch.end <= part.range.start:
                continue
            for table in read_tables(self.parts.path(part), names):
                table = table.rename_columns(list(_READ))
                for row in table.filter(pc.match_substring(table.column(RESPONSE), "[")).to_pylist():
                    found.setdefault(row[ROW], []).append(_again(row))
        return found


def _again(row: dict[str, Any]) -> Drawn:
    reason = None if row[REASON] == Reason.UNJUDGED else Reason(row[REASON])
    return Drawn(row[CANDIDATE] or "", row[FINISH_REASON], row[CANDIDATE_TOKENS] or 0, 0, 0, reason)


def pieces(rows: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Rows in groups that are asked about together."""
    return [rows[at : at + size] for at in range(0, len(rows), size)]
