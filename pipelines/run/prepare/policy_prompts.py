"""From raw rows to prompts for a policy: parsed, checked, rendered to token ids. Runs on CPUs, before the sampling step."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from actors.records import Reason, Reasoning, RenderedRequest, Response, ScoreRequest
from actors.scorers.policy import Policy
from actors.settings.replica import RenderSettings
from pipelines.data.corpus.readers import PREPARED
from pipelines.data.formats import CANDIDATE, RowRequests, with_policy_system
from pipelines.run.prepare.score_requests import Preparation, parse_rows, renderer


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A row's prompt as messages and token ids, or the reason why it was rejected.

    `ids` is empty for an endpoint, which tokenises by itself. `opening` is the opening reasoning tag that the ids end with:
    the policy's text then begins inside of its reasoning.
    """

    request: ScoreRequest
    ids: Sequence[int] = ()
    opening: str = ""
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True)
class PromptPreparation:
    """Every setting that decides how a row becomes a prompt. `policy` is None for an endpoint."""

    preparation: Preparation
    policy: Policy | None
    system: str | None

    def rows(self, requests: Sequence[RowRequests | None]) -> list[PromptRow | None]:
        prompt_rows = [None if row is None else self._row(row) for row in requests]
        rendered = iter(self.rendered([row for row in prompt_rows if row is not None]))
        return [row and next(rendered) for row in prompt_rows]

    def rendered(self, prompt_rows: Sequence[PromptRow]) -> list[PromptRow]:
        """The prompts with token ids, or with the reason why rendering rejected them. All are rendered in one batch."""
        if self.policy is None:
            return list(prompt_rows)
        # The policy's template treats reasoning itself. The renderer tells rejections by response, so each prompt has one.
        settings = RenderSettings(reasoning=Reasoning.KEEP)
        renderable = [replace(row.request, responses=_UNANSWERED) for row in prompt_rows if row.reason is None]
        prompts = iter(renderer(self.policy, settings).render(renderable))
        return [row if row.reason else _with_ids(row, next(prompts)) for row in prompt_rows]

    def _row(self, row: RowRequests) -> PromptRow:
        if not row.requests:
            return PromptRow(_NOTHING, reason=row.rejected[0].reason, detail=row.rejected[0].detail)
        (request,) = row.requests
        return PromptRow(replace(request, context=with_policy_system(request.context, self.system)))


_NOTHING = ScoreRequest((), ())  # of a row that can't be read: not even its prompt has a hash
_UNANSWERED = (Response(CANDIDATE, ""),)


def _with_ids(row: PromptRow, rendered: RenderedRequest) -> PromptRow:
    (response,) = rendered.responses
    if response.reason is not None:
        return replace(row, reason=response.reason, detail=response.detail)
    (prompt,) = rendered.prompts
    return replace(row, ids=prompt.ids, opening=prompt.opening)


def prepare_prompts(table: pa.Table, preparation: PromptPreparation) -> pa.Table:
    """Raw rows in, the same rows out: their ranges, the carried columns, and each row's `PromptRow`, pickled."""
    rows, ranges = parse_rows(table, preparation.preparation.row_shape, preparation.preparation.columns)
    blobs = pa.array([pickle.dumps(row) for row in preparation.rows(rows)], pa.large_binary())
    return ranges.append_column(PREPARED, blobs)


def read_prompt_rows(table: pa.Table) -> list[PromptRow | None]:
    """The rows of a table that `prepare_prompts` returned; None for a range without a row.

    Only of tables of this run: a pickle from elsewhere could run anything.
    """
    return [pickle.loads(blob.as_buffer()) for blob in table.column(PREPARED)]
