"""A policy behind an OpenAI-compatible endpoint: asked with seeds, not more at a time than may be, again after errors."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from actors.errors import RunStopped
from tests.corpora import lines, scored, write
from tests.endpoints import listening
from tests.pipelines.test_sampling import drawn, prompts

pytestmark = pytest.mark.usefixtures("local_ray")


class Endpoint:
    """Answers with what it was asked, and with errors at first."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.errors: Counter[int] = Counter()
        self.most = 0
        self.refusal: tuple[int, str] | None = None
        self._at_a_time = 0
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.complete)

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "parrot", "object": "model", "created": 0, "owned_by": "me"}]}

    async def complete(self, request: Request) -> Any:
        body = await request.json()
        self._at_a_time += 1
        self.most = max(self.most, self._at_a_time)
        await asyncio.sleep(0.001)  # so that others arrive
        self._at_a_time -= 1
        if self.refusal is not None:
            status, message = self.refusal
            return JSONResponse({"error": {"message": message}}, status)
        if body["seed"] % 3 == 0 and self.errors[body["seed"]] < 2:
            self.errors[body["seed"]] += 1
            return JSONResponse({"error": {"message": "busy"}}, 429 if body["seed"] % 2 else 503, {"Retry-After": "0"})
        self.asked.append(body)
        said = f"{body['messages'][-1]['content']} {body['seed']}"
        finish = "length" if body["seed"] % 5 == 0 else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": finish}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "parrot", "choices": [choice], "usage": usage}


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def address(endpoint: Endpoint) -> Iterator[str]:
    with listening(endpoint.app) as own:
        yield f"{own}/v1"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "prompts.jsonl", lines(prompts(12)))


def test_candidates_come_from_the_endpoint(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    found = drawn(
        corpus, tmp_path / "out", policy=address, policy_max_in_flight=5, policy_system="Be brief.", policy_top_p=0.9
    )
    rows = scored(tmp_path / "out")
    assert found.drawn == len(rows) == 48
    for row in rows:
        question, _, seed = row["candidate"].rpartition(" ")
        assert question == f"What is {row['id']} + 1?"
        assert (row["reason"] == "unfinished") == (int(seed) % 5 == 0)
    assert len({row["candidate"] for row in rows}) == 48
    assert sum(endpoint.errors.values()) > 10, "it was asked again after errors"
    assert endpoint.most <= 5
    asked = endpoint.asked[0]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (asked["model"], asked["max_tokens"], asked["temperature"], asked["top_p"]) == ("parrot", 64, 1.0, 0.9)
    assert (found.usage.policy, found.tokens) == (7 * 48, 3 * 48)
    again = drawn(corpus, tmp_path / "again", policy=address, policy_system="Be brief.", policy_top_p=0.9)
    assert [row["candidate"] for row in scored(tmp_path / "again")] == [row["candidate"] for row in rows]
    assert again.mean_reward == pytest.approx(found.mean_reward)


def test_what_the_endpoint_never_answers_has_failed(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    endpoint.refusal = (400, "This model's maximum context length is 10 tokens")
    drawn(corpus, tmp_path / "out", policy=address, limit=2, n=1)
    assert {(row["status"], row["reason"]) for row in scored(tmp_path / "out")} == {("failed", "too_long")}


def test_an_endpoint_that_cant_be_used_ends_the_run(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    endpoint.refusal = (401, "no such key")
    with pytest.raises(RunStopped, match=r"answers 401: .*no such key"):
        drawn(corpus, tmp_path / "out", policy=address)
