"""NeMo Gym's resources server and slime's reward model: what their clients send and read, restated, on the fake engine."""

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from ray.exceptions import TaskCancelledError
from ray.serve.exceptions import BackPressureError

from actors.errors import EngineDead
from actors.scorers.online import OnlineScorer
from actors.settings.replica import Aggregate, EngineSettings, JudgeSettings
from deploy.errors import ApiError
from deploy.settings import LimitSettings
from tests.deploy.api.test_compare import Recording, answered
from tests.support.endpoints import QUESTION, application, client, post, rewards, scorer

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"


class SimpleAgentVerifyResponse(BaseModel):
    """As Gym's agent declares it (0.5.1): the request's two parts must come back, and the reward is a number."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, OnlineScorer]]:
    made = {HEAD: scorer(HEAD, reasoning="strip"), JUDGE: scorer(JUDGE, reasoning="strip")}
    yield made
    for item in made.values():
        item.close()


@pytest.fixture(scope="module")
def head(scorers: dict[str, OnlineScorer]) -> Any:
    return application([scorers[HEAD]])


def row(text: str, **more: Any) -> dict[str, Any]:
    """What Gym's simple agent posts: the row, with all parameters of a request, most of them null, and the response."""
    parameters = {"input": QUESTION, "instructions": None, "tools": [], "parallel_tool_calls": True, "temperature": None}
    return {"responses_create_params": parameters, "response": answered(text), "verifier_metadata": {"a": [1]}, **more}


def verified(app: Any, text: str, **more: Any) -> dict[str, Any]:
    response = post(app, "/verify", row(text, **more))
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    SimpleAgentVerifyResponse(**body)
    return body


def reward_components_match(body: dict[str, Any]) -> bool:
    """As NeMo-RL's `validate_reward_components_match_scalar`."""
    return math.isclose(body["reward"], sum(body["reward_components"].values()), rel_tol=1e-5, abs_tol=1e-6)


def test_a_rollout_has_the_reward_of_our_own_format_and_its_parts_add_up(head: Any) -> None:
    body = verified(head, "7", _ng_task_index=3, _ng_rollout_index=1)
    (truth,) = post(head, "/v1/rewards", {"conversations": [{"messages": QUESTION, "responses": ["7"]}]}).json()["data"]
    assert body["reward"] == truth["responses"][0]["reward"]
    assert body["reward_components"]["verbosity"] == -0.33 * truth["responses"][0]["scores"]["verbosity"]
    assert len(body["reward_components"]) == 5
    assert reward_components_match(body)
    assert (body["mask_sample"], body["failure_kind"], body["failure_reason"]) == (False, None, None)
    sent = row("7", _ng_task_index=3, _ng_rollout_index=1)
    assert {name: body[name] for name in sent} == sent, "token ids and log-probabilities are read from what comes back"
    again = verified(head, "7", _ng_failure_class="judge_failed", mask_sample=True, failure_kind="assay:cut_off")
    assert "_ng_failure_class" not in again, "as it would be filed under failures for ever"
    assert (again["reward"], again["mask_sample"], again["failure_kind"]) == (body["reward"], False, None)
    masked = verified(head, " ", instance_config={"id": "x"})
    config = verified(head, "7", mask_sample=True, instance_config=masked["instance_config"])["instance_config"]
    assert config == {"id": "x", "mask_sample": False}, "as NeMo-RL would leave it out for ever"
    agents = {"mask_sample": True}
    assert verified(head, "7", instance_config=agents)["instance_config"] == agents, "which isn't the endpoint's to say"


def test_the_last_turn_of_a_trajectory_is_judged_after_its_tools(scorers: dict[str, OnlineScorer]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    steps = [call, {"type": "function_call_output", "call_id": "c", "output": "7"}, *answered("7")["output"]]
    recording: Any = Recording(scorers[HEAD])
    body = verified(application([recording]), "", response={"output": steps})
    (request,) = recording.requests
    assert [turn.role for turn in request.context] == ["user", "assistant", "tool"]
    assert request.context[1].calls[0].name == "add"
    assert request.responses[0].content.endswith("7")
    assert (body["mask_sample"], body["failure_kind"]) == (True, "assay:tool_call"), "this head knows no tools"


def test_what_is_no_text_comes_back_as_it_came(head: Any) -> None:
    assert verified(head, "7", more="half of a pair \ud83d")["more"] == "half of a pair \ud83d"


def test_what_has_no_reward_is_masked_wherever_a_version_looks(head: Any) -> None:
    body = verified(head, " ", instance_config={"id": "x"})
    assert (body["reward"], body["reward_components"]) == (0.0, {})
    assert body["mask_sample"] is True
    assert (body["failure_kind"], body["failure_reason"]) == ("assay:empty_content", "rejected: empty_content")
    assert body["instance_config"] == {"id": "x", "mask_sample": True}, "where NeMo-RL 0.6 looks"
    assert (body["_ng_failure_class"], body["_ng_failure_terminal"]) == ("judge_failed", True), "where Gym 0.5 does"


class Failing(Recording):
    """A scorer whose replica fails."""

    def __init__(self, scorer: OnlineScorer, error: Exception) -> None:
        super().__init__(scorer)
        self._error = error

    async def score(self, requests: Any) -> Any:
        raise self._error


PASSING: list[tuple[Exception, str]] = [
    (BackPressureError(num_queued_requests=1, max_queued_requests=1), "overloaded"),
    (EngineDead("gone"), "replica_gone"),
    (TaskCancelledError(), "cancelled"),
    (TimeoutError(), "timeout"),
    (ApiError(500, "the replica failed: OSError", code="internal_error"), "internal_error"),
]


@pytest.mark.parametrize(("error", "kind"), PASSING, ids=[kind for _, kind in PASSING])
@pytest.mark.parametrize("name", [HEAD, JUDGE])
def test_what_fails_for_a_moment_is_a_masked_row_as_by_gyms_failsafe(
    scorers: dict[str, OnlineScorer], name: str, error: Exception, kind: str
) -> None:
    """Gym never asks again by a status: an HTTP error would end its whole run."""
    failing: Any = Failing(scorers[name], error)
    seven, empty, nine = cohort_of(application([failing], LimitSettings(num_rollouts_per_prompt=3)), ["7", " ", "9"])
    assert seven["failure_kind"] == nine["failure_kind"] == f"assay:{kind}"
    assert (seven["reward"], seven["reward_components"], seven["mask_sample"]) == (0.0, {}, True)
    assert seven["failure_reason"].startswith("failed: ")
    assert seven["instance_config"] == {"mask_sample": True}
    # As Gym's `judge_failsafe`; on resuming, its collector asks again.
    assert (seven["_ng_failure_class"], seven["_ng_failure_terminal"]) == ("judge_failed", False)
    assert seven["_ng_failure_judge_error"].startswith(f"assay:{kind}: ")
    assert (empty["failure_kind"], empty["_ng_failure_terminal"]) == ("assay:empty_content", True), "whatever fails"


def test_a_deadline_is_a_masked_row() -> None:
    slow = scorer(HEAD, engine=EngineSettings(engine="fake", engine_args={"latency_s": 30.0}), reasoning="strip")
    try:
        body = verified(application([slow], LimitSettings(answer_timeout_s=0.5)), "7")
    finally:
        slow.close()
    assert (body["failure_kind"], body["_ng_failure_terminal"]) == ("assay:timeout", False)


def test_a_mistake_of_the_clients_stays_an_error(head: Any) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"model": "none"}, 404),
        ({"response": {}, "principle": 7}, 400),
        ({"principle": "Be kind."}, 400),
    ]
    for more, status in cases:
        assert post(head, "/verify", row("7", **more)).status_code == status
    tight = application([head._app.state.service.models[0].scoring._scorer], LimitSettings(max_characters=1))
    assert post(tight, "/verify", row("7")).status_code == 413


def test_sessions_and_the_mode_of_verifying_again(head: Any) -> None:
    assert post(head, "/seed_session", row("7")).json() == {}

    async def mode(app: Any) -> Any:
        async with client(app) as http:
            return (await http.get("/reverify_mode")).json()

    assert asyncio.run(mode(head)) == "stateless"


def cohort_of(app: Any, texts: list[str], **more: Any) -> list[dict[str, Any]]:
    async def work() -> list[dict[str, Any]]:
        async with client(app, **{"Content-Type": "application/json"}) as http:
            rows = [row(text, _ng_task_index=5, _ng_rollout_index=at, **more) for at, text in enumerate(texts)]
            calls = [http.post("/verify", content=json.dumps(item), timeout=60) for item in reversed(rows)]
            answers = [answer.json() for answer in await asyncio.gather(*calls)]
            return answers[::-1]

    return asyncio.run(work())


@pytest.mark.parametrize("texts", [["7", "9", "11"], ["7", " ", "11"], ["7", "9"]])
def test_a_cohort_has_the_rewards_of_compare(scorers: dict[str, OnlineScorer], texts: list[str]) -> None:
    app = application([scorers[JUDGE]], LimitSettings(num_rollouts_per_prompt=len(texts)))
    body = {"conversation_history": QUESTION, "response_objs": list(map(answered, texts))}
    truth = post(app, "/compare", body).json()
    answers = cohort_of(app, texts)
    assert [None if answer["mask_sample"] else answer["reward"] for answer in answers] == truth["rewards"]
    assert [answer["failure_kind"] for answer in answers] == truth["failure_kind"]
    assert [answer["mask_sample"] for answer in answers] == truth["mask_sample"]
    assert all(map(reward_components_match, answers))


def test_a_cohort_that_is_never_complete_is_masked(scorers: dict[str, OnlineScorer]) -> None:
    app = application([scorers[JUDGE]], LimitSettings(num_rollouts_per_prompt=3, cohort_timeout_s=0.05))
    for answer in cohort_of(app, ["7", "9"]):
        assert (answer["mask_sample"], answer["failure_kind"]) == (True, "cohort_incomplete")
        assert not answer["_ng_failure_terminal"], "with its whole cohort it may have a reward"


def test_groups_and_attempts_dont_mix(scorers: dict[str, OnlineScorer]) -> None:
    """NeMo-RL sends a group again under the next attempt, while rollouts of the first may still wait."""
    app = application([scorers[JUDGE]], LimitSettings(num_rollouts_per_prompt=2, cohort_timeout_s=0.5))

    async def work() -> list[Any]:
        async with client(app, **{"Content-Type": "application/json"}) as http:
            places = [(0, 0, "7"), (1, 0, "7"), (1, 1, "9")]
            rows = [
                row(text, _ng_group_id="g", _ng_group_attempt=attempt, _ng_rollout_index=at) for attempt, at, text in places
            ]
            return [answer.json() for answer in await asyncio.gather(*(http.post("/verify", json=item) for item in rows))]

    assert [answer["failure_kind"] for answer in asyncio.run(work())] == ["cohort_incomplete", None, None]


def test_rollouts_that_went_on_differently_arent_compared(scorers: dict[str, OnlineScorer]) -> None:
    app = application([scorers[JUDGE]], LimitSettings(num_rollouts_per_prompt=2))
    other = {"input": [*QUESTION, {"role": "assistant", "content": "?"}, *QUESTION]}
    both = {"_ng_group_id": 1, "_ng_group_attempt": 0}

    async def work() -> list[Any]:
        async with client(app, **{"Content-Type": "application/json"}) as http:
            rows = [
                row("7", **both, _ng_rollout_index=0),
                row("9", **both, _ng_rollout_index=1, responses_create_params=other),
            ]
            return [answer.json() for answer in await asyncio.gather(*(http.post("/verify", json=item) for item in rows))]

    for answer in asyncio.run(work()):
        assert (answer["mask_sample"], answer["failure_kind"]) == (True, "assay:no_opponent")
        assert "several conversations" in answer["failure_reason"]


def test_a_judge_that_compares_gives_nothing_without_a_cohort(scorers: dict[str, OnlineScorer]) -> None:
    body = verified(application([scorers[JUDGE]]), "7")
    assert (body["reward"], body["failure_kind"]) == (0.0, "assay:no_opponent"), "and never Gym's 3.0"


def test_a_share_of_wins_isnt_made_of_outputs() -> None:
    judge = scorer(JUDGE, judge=JudgeSettings(aggregate=Aggregate.WIN_RATE), reasoning="strip")
    try:
        app = application([judge], LimitSettings(num_rollouts_per_prompt=2))
        assert [answer["reward_components"].keys() for answer in cohort_of(app, ["7", "9"])] == [{"reward"}, {"reward"}]
    finally:
        judge.close()


def slimes(app: Any, **body: Any) -> Any:
    return post(app, "/rm", {"prompt": QUESTION, "response": "7", "label": None, **body})


def test_slime_gets_a_bare_number_or_an_error(head: Any) -> None:
    truth = rewards(post(head, "/v1/rewards", {"conversations": [{"messages": QUESTION, "responses": ["7"]}]}))
    written = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    for prompt, answer in ((QUESTION, "7"), (written, "7<|im_end|>")):
        response = slimes(head, prompt=prompt, response=answer, label="7")
        assert response.json() == truth[0]
        assert isinstance(response.json(), float)
    assert slimes(head, response=" ").status_code == 400
    assert slimes(head, prompt="What is 3 + 4?").json()["error"]["code"] == "unknown_template"


def test_a_label_or_reference_is_a_text_or_a_number() -> None:
    verifier = scorer("exact-match", engine=EngineSettings(engine="none"), reasoning="strip")
    try:
        app = application([verifier])
        assert [slimes(app, label=label).json() for label in ("7", "8", 7)] == [1.0, 0.0, 1.0]
        for fields in ({"reference": 7}, {"reference": [7]}, {"reference": "7"}, {"fields": {"reference": 7}}):
            conversation = {"messages": QUESTION, "responses": ["7", "8"], **fields}
            assert rewards(post(app, "/v1/rewards", {"conversations": [conversation]})) == [1.0, 0.0]
        assert slimes(app).json()["error"]["code"] == "no_reference"
        assert verified(app, "7", reference="7")["reward"] == 1.0
        assert verified(app, "7")["failure_kind"] == "assay:no_reference"
    finally:
        verifier.close()
