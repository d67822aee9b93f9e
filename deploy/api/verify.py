"""NeMo Gym's resources server: `POST /verify`, with `/seed_session` and `GET /reverify_mode`, as Gym 0.5 to 0.7 ask it.

A body is a rollout, and is read as `assay score` reads a file of them (the shape `gym-rollout`). The answer is the body with
the `reward`, as in Gym's `BaseVerifyResponse`, and the weighted outputs that add up to it as `reward_components`
(`BaseMultiRewardVerifyResponse`; NeMo-RL compares the sum, and makes a column of each).

Gym's reward is a number, always. So a response without one has 0 and says that it isn't to be learned from, wherever a
version looks: `mask_sample`, `failure_kind` and `failure_reason` (Gym 0.7), `instance_config.mask_sample` (NeMo-RL), and
`_ng_failure_class`, by which Gym's collector files a row under failures and leaves it out of its metrics. So does one that
can't be scored now: Gym never asks again by a status, and a single HTTP error ends its whole run.

A judge that compares responses gets the cohort of a prompt: `limits.num_rollouts_per_prompt` of them, each in a request
of its own, found by `_ng_group_id` and `_ng_group_attempt`, else by `_ng_task_index` or `prompt_id` with the prompt. Their
rewards are those of `/compare`. Source: `nemo_gym/base_resources_server.py`, `nemo_gym/judge.py` and
`resources_servers/genrm_compare/app.py`.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi import Response as Answer
from pydantic import BaseModel, ConfigDict, Field

from actors.contracts.judge import Judge
from actors.errors import Rejected
from actors.records import Reason, Score, Status
from actors.settings.replica import Aggregate
from deploy.api.compare import judge_together, read_rollout
from deploy.errors import ApiError
from deploy.models.cohorts import Member, Seat
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import RequestBody, Serving
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats.own_columns import field_text
from pipelines.data.formats.values import is_blank

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class VerifyRequest(RequestBody):
    """A rollout. What else its row holds comes back with the answer; a field that the model reads stands under its name."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any] = Field(description="of OpenAI's Responses: `input`, `instructions`, `tools`")
    response: dict[str, Any] = Field(description="of OpenAI's Responses: `output`")
    model: str | None = Field(default=None, description="needed if there are several")
    principle: str | None = Field(default=None, description="what it is judged by, for models that go by principles")
    prompt_id: str | None = None
    group_id: str | int | None = Field(default=None, alias="_ng_group_id")
    group_attempt: int | None = Field(default=None, alias="_ng_group_attempt")
    task_index: int | None = Field(default=None, alias="_ng_task_index")
    rollout_index: int | None = Field(default=None, alias="_ng_rollout_index")

    @property
    def row(self) -> dict[str, Any]:
        """All that was sent, by its names there."""
        # Not a dump: a response may hold 100,000 numbers of tokens, and a copy of each would take a tenth of a second.
        sent = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return {name: value for name, value in sent.items() if value is not None} | (self.model_extra or {})

    @property
    def cohort(self) -> str:
        """The key of the cohort that it belongs to, as Gym makes it."""
        if self.group_id is not None:
            return json.dumps(["group", self.group_id, self.group_attempt])
        prompt = json.dumps([self.responses_create_params.get("input"), self.principle], sort_keys=True)
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return json.dumps(["task", self.task_index, self.prompt_id if self.task_index is None else None, digest])


class VerifyResponse(BaseModel):
    """The request, and what it came to.

    Beside these fields it has all that was sent, and where there is no reward Gym's `_ng_failure_` fields.
    """

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float = Field(description="0 if `mask_sample`")
    reward_components: dict[str, float] = Field(description="each output times its weight, and `offset`: they add up")
    mask_sample: bool = Field(description="there is no reward: not to be learned from")
    failure_kind: str | None = Field(description="`assay:` with a reason or an error's code, or `cohort_incomplete`")
    failure_reason: str | None


@router.post("/verify", response_model=VerifyResponse)
async def verify(body: VerifyRequest, service: Serving) -> Answer:
    """The reward of a rollout; of a judge that compares, once all rollouts of its prompt are there.

    0 with `mask_sample` where there is none, after `limits.cohort_timeout_s` too.
    """
    served = service.find(body.model)
    member = await off_loop(lambda: _read(body, served))
    size = service.limits.num_rollouts_per_prompt

    async def judge(members: Sequence[Member]) -> list[Score]:
        return await judge_together(served, members)

    score: Score | ApiError | None
    try:
        if size > 1 and served.model.family.together:
            key = json.dumps([served.name, body.cohort])
            seat = Seat(key, body.rollout_index, size, service.limits.cohort_timeout_s)
            score = await service.cohorts.join(seat, member, judge)
        else:
            (score,) = await judge([member])
    except ApiError as error:
        if error.status != 429 and error.status < 500:  # the client's mistake
            raise
        score = Score.rejected(member) if isinstance(member, Reason) else error  # no failure of the others' changes a reason
    # Not what an earlier answer said of this rollout, if it is verified again.
    sent = {name: value for name, value in body.row.items() if not name.startswith("_ng_failure_")}
    content = sent | _outcome(served, body, score)
    # As ASCII: what comes back may hold half of a surrogate pair, as the request did.
    return Answer(await off_loop(lambda: json.dumps(content, allow_nan=False)), media_type="application/json")


@router.post("/seed_session")
async def seed_session(_body: dict[str, Any]) -> dict[str, Any]:
    """Nothing: an endpoint has no sessions."""
    return {}


@router.get("/reverify_mode")
async def reverify_mode(service: Serving) -> str:
    """Whether rollouts can be verified again, one by one: not where a judge needs all of a prompt's."""
    together = any(served.model.family.together for served in service.models)
    return "unsupported" if together and service.limits.num_rollouts_per_prompt > 1 else "stateless"


def _read(body: VerifyRequest, served: ServedModel) -> Member:
    """The request for a rollout's last turn, or why it can't be judged."""
    row = body.row
    try:
        names = served.model.family.field_names
        fields = {name: field_text(name, row[name], name) for name in names if not is_blank(row.get(name))}
    except Rejected as rejected:
        return rejected.reason
    principles = () if body.principle is None or is_blank(body.principle) else (body.principle,)
    return read_rollout(body.responses_create_params, body.response, principles, fields)


def _outcome(served: ServedModel, body: VerifyRequest, score: Score | ApiError | None) -> dict[str, Any]:
    config = body.row.get("instance_config")
    config = config if isinstance(config, dict) else {}
    if isinstance(score, Score) and score.reward is not None:
        components = components_of(served, score, score.reward)
        failure: dict[str, Any] = {"mask_sample": False, "failure_kind": None, "failure_reason": None}
        if body.row.get("mask_sample") and config:  # an earlier answer's
            failure["instance_config"] = {**config, "mask_sample": False}
        return {"reward": score.reward, "reward_components": components, **failure}
    kind, reason = "cohort_incomplete", "not all rollouts of its prompt came in time, or it was sent again"  # Gym's kind
    if isinstance(score, ApiError):
        kind, reason = f"assay:{score.code}", f"failed: {score}"
    elif score is not None:
        kind, reason = f"assay:{score.reason}", f"{score.status}: {score.reason} {score.detail}".rstrip()
    return {
        "reward": 0.0,
        "reward_components": {},
        "mask_sample": True,
        "failure_kind": kind,
        "failure_reason": reason,
        "instance_config": {**config, "mask_sample": True},
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": f"{kind}: {reason}",
        "_ng_failure_terminal": isinstance(score, Score) and score.status is Status.REJECTED,  # so it would be again
    }


def components_of(served: ServedModel, score: Score, reward: float) -> dict[str, float]:
    """Each output times its weight, and what is missing to the reward as `offset`, such as Gym's for a tie."""
    family, weights = served.model.family, served.model.weights
    components = {name: weight * score.scores[name] for name, weight in weights.items() if name in score.scores}
    is_sum = not isinstance(family, Judge) or (family.asks.aggregate or family.aggregate) is Aggregate.MEAN
    if not components or not is_sum:  # a share of wins isn't made of outputs
        return {"reward": reward}
    offset = reward - sum(components.values())
    exact = math.isclose(offset, 0.0, abs_tol=1e-9 * max(1.0, *map(abs, components.values())))
    return components if exact else components | {"offset": offset}
