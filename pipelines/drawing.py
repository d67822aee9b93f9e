"""Where candidates come from: a pool of engines, an endpoint of somebody's, or an earlier pass of the same run."""

import asyncio
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import pyarrow.compute as pc

from actors.errors import EngineError
from actors.policy import Draw, Drawn, undrawn
from actors.records import Reason
from actors.scorer import gathered
from actors.settings import PolicySettings
from pipelines.asking import AskedRow
from pipelines.columns import CANDIDATE, CANDIDATE_TOKENS, FINISH_REASON, REASON, RESPONSE, ROW
from pipelines.parts import Parts, read_tables
from pipelines.pools import Pool
from pipelines.sources import Range

_ATTEMPTS = 5
_FATAL = (400, 401, 403, 404)
"""Answers of an endpoint that no other prompt would change: the run stops, and says why."""


_READ = (ROW, RESPONSE, CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS, REASON)


class Asked(NamedTuple):
    """A row, its prompt, and a seed for each candidate that is wanted now."""

    row: str
    asked: AskedRow
    seeds: tuple[int, ...]


def same(work: str) -> str:
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
        draws = [Draw(row.asked.ids, row.seeds) for row in rows]
        found: list[tuple[Drawn, ...]] = await self.pool.by(same(work)).draw.remote(work, draws)
        return found


@dataclass(frozen=True)
class FromEndpoint:
    """An OpenAI-compatible endpoint. The key is the environment's OPENAI_API_KEY, on the machines that do the work."""

    settings: PolicySettings
    at_a_time: int
    timeout_s: float

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        """See `Drawer`. Raises `EngineError` if the endpoint can't be used at all."""
        return await gathered(map(self._candidates, rows))

    async def _candidates(self, row: Asked) -> tuple[Drawn, ...]:
        return tuple(await gathered(self._one(row, seed) for seed in row.seeds))

    async def _one(self, row: Asked, seed: int) -> Drawn:
        import openai  # seconds of import, which only a run with an endpoint pays for

        own = self.settings
        messages: Any = [{"role": turn.role.value, "content": turn.content} for turn in row.asked.request.context]
        try:
            async with self._places:
                found = await self._client.chat.completions.create(
                    model=await self._model(),
                    messages=messages,
                    max_tokens=own.policy_max_tokens,
                    temperature=own.policy_temperature,
                    top_p=own.policy_top_p,
                    stop=list(own.policy_stop) or None,
                    seed=seed,
                )
        except openai.APIStatusError as error:
            if error.status_code in _FATAL and not _about_length(error):
                raise EngineError(f"the endpoint {own.policy} answers {error.status_code}: {error.message}") from error
            return undrawn(Reason.TOO_LONG if _about_length(error) else Reason.ENDPOINT_FAILED)
        except openai.APIError:  # connections and deadlines, as often as may be
            return undrawn(Reason.ENDPOINT_FAILED)
        return _drawn(found)

    @cached_property
    def _client(self) -> Any:
        import openai

        key = os.environ.get("OPENAI_API_KEY", "none")
        return openai.AsyncOpenAI(
            base_url=self.settings.policy, api_key=key, max_retries=_ATTEMPTS - 1, timeout=self.timeout_s
        )

    @cached_property
    def _places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.at_a_time)

    @functools.cached_property
    def _listed(self) -> "asyncio.Task[list[str]]":
        async def names() -> list[str]:
            return [model.id async for model in self._client.models.list()]

        return asyncio.ensure_future(names())

    async def _model(self) -> str:
        if self.settings.policy_name is not None:
            return self.settings.policy_name
        names = await self._listed
        if len(names) != 1:
            raise EngineError(
                f"the endpoint {self.settings.policy} serves {', '.join(names) or 'nothing'}; give --policy-name"
            )
        return names[0]


def _about_length(error: Any) -> bool:
    """Whether an endpoint refuses a prompt for its length; vLLM, OpenAI and NIM all say so in these words."""
    return error.status_code == 400 and "context length" in str(error.message)


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
            for table in read_tables(self.parts.parts_folder.file(part.name), names):
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
