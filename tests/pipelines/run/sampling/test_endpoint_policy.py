"""A policy behind an OpenAI-compatible endpoint: asked with seeds, not more at a time than may be, again after errors."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from actors.endpoint.faults import EndpointFault, FaultKind, fault_of
from actors.errors import EndpointError, RunStopped
from actors.records import Message, Reason, Role, ScoreRequest
from actors.scorers.policy import GeneratedCandidate
from actors.settings.replica import PolicySettings
from pipelines.cli.plain_console import show
from pipelines.cli.report import refined_report
from pipelines.folders.run_folder.manifest import differences
from pipelines.run.prepare.policy_prompts import PromptRow
from pipelines.run.sampling.generate import CandidateRequest, FromEndpoint, served_by
from pipelines.run.sampling.refine_prompts import refine
from pipelines.run.sampling.sample_prompts import sampling_identity
from pipelines.settings.options import build
from pipelines.settings.refine_settings import RefineSettings
from tests.pipelines.run.sampling.test_sample_prompts import prompts, run_sample, sample_settings
from tests.support.corpora import lines, scored, write
from tests.support.endpoints import free_port, listening


class Endpoint:
    """Answers with what it was asked, and with errors at first."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.errors: Counter[int] = Counter()
        self.most = 0
        self.refusal: tuple[int, str] | None = None
        self.refuses = ""
        """A text: only prompts that hold it are refused."""
        self.refused = 0
        self.usage: Any = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        self.name, self.root, self.started = "parrot", "models/parrot", 0
        self._at_a_time = 0
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.complete)

    async def models(self) -> dict[str, Any]:
        self.started += 1
        card = {"id": self.name, "root": self.root, "object": "model", "created": self.started, "owned_by": "me"}
        return {"object": "list", "data": [card]}

    async def complete(self, request: Request) -> Any:
        body = await request.json()
        self._at_a_time += 1
        self.most = max(self.most, self._at_a_time)
        await asyncio.sleep(0.001)  # so that others arrive
        self._at_a_time -= 1
        if self.refusal is not None and self.refuses in body["messages"][-1]["content"]:
            self.refused += 1
            status, message = self.refusal
            return JSONResponse({"error": {"message": message}}, status)
        if body["seed"] % 3 == 0 and self.errors[body["seed"]] < 2:
            self.errors[body["seed"]] += 1
            return JSONResponse({"error": {"message": "busy"}}, 429 if body["seed"] % 2 else 503, {"Retry-After": "0"})
        self.requests.append(body)
        text = f"{body['messages'][-1]['content']} {body['seed']}"
        finish = "length" if body["seed"] % 5 == 0 else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "parrot", "choices": [choice]}
        return {**answer, "usage": self.usage}


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def address(endpoint: Endpoint) -> Iterator[str]:
    with listening(endpoint.app) as texts:
        yield f"{texts}/v1"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "prompts.jsonl", lines(prompts(12)))


@pytest.mark.usefixtures("local_ray")
def test_candidates_come_from_the_endpoint(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    result = run_sample(
        corpus, tmp_path / "out", policy=address, policy_max_in_flight=5, policy_system="Be brief.", policy_top_p=0.9
    )
    rows = scored(tmp_path / "out")
    assert result.drawn == len(rows) == 48
    for row in rows:
        question, _, seed = row["candidate"].rpartition(" ")
        assert question == f"What is {row['id']} + 1?"
        assert (row["reason"] == "unfinished") == (int(seed) % 5 == 0)
    assert len({row["candidate"] for row in rows}) == 48
    assert sum(endpoint.errors.values()) > 10, "it was asked again after errors"
    of_probes = endpoint.errors.pop(0)  # the seed of a probe
    assert (result.usage.retries, of_probes) == (sum(endpoint.errors.values()), 2)
    assert endpoint.most <= 5
    request = endpoint.requests[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["model"], request["max_tokens"], request["temperature"], request["top_p"]) == ("parrot", 64, 1.0, 0.9)
    assert (result.usage.policy, result.tokens) == (7 * 48, 3 * 48)
    again = run_sample(corpus, tmp_path / "again", policy=address, policy_system="Be brief.", policy_top_p=0.9)
    assert [row["candidate"] for row in scored(tmp_path / "again")] == [row["candidate"] for row in rows]
    assert again.mean_reward == pytest.approx(result.mean_reward)


@pytest.mark.usefixtures("local_ray")
def test_what_the_endpoint_never_answers_has_failed(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    endpoint.refusal, endpoint.refuses = (400, "This model's maximum context length is 10 tokens"), "What"
    result = run_sample(corpus, tmp_path / "out", policy=address, limit=2, n=1)
    ((cause, count),) = result.causes.items()
    assert (count, result.usage.retries) == (2, 2)
    assert cause.startswith("answers 400: ")
    assert "maximum context length" in cause
    assert {(row["status"], row["reason"]) for row in scored(tmp_path / "out")} == {("failed", "too_long")}


@pytest.mark.usefixtures("local_ray")
def test_what_a_refinement_fails_by_is_told(
    endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it is the feedback that the endpoint refuses, and not the edit."""
    endpoint.refusal, endpoint.refuses = (403, "no criticism"), "Criticise"
    template = write(tmp_path / "feedback.txt", b"Criticise: {{ response }}")
    flat = {"inputs": (str(corpus),), "output": str(tmp_path / "out"), "limit": 2, "model": "tiny-attributes"}
    writing = {"engine": "fake", "policy": address, "drafts": 1, "feedbacks": 2, "feedback_prompt": str(template)}
    settings = build(RefineSettings, {**flat, **writing})
    result = refine(settings)
    rows = [row for row in scored(tmp_path / "out") if ".edit[" in row["response_name"]]
    assert rows
    assert {row["reason"] for row in rows} == {"endpoint_refused"}
    ((cause, count),) = result.causes.items()
    assert count == len(rows)
    assert cause.startswith("answers 403: ")
    assert "no criticism" in cause
    assert result.as_json()["refining"]["causes"] == {cause: count}
    show(refined_report(result, settings))
    assert f"The endpoint gave no candidate, this time {count} times: it answers 403: " in capsys.readouterr().out


@pytest.mark.usefixtures("local_ray")
def test_an_endpoint_that_cant_be_used_ends_the_run(endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path) -> None:
    endpoint.refusal = (401, "no such key")
    with pytest.raises(EndpointError, match=r"answers 401: .*no such key.*OPENAI_API_KEY"):
        run_sample(corpus, tmp_path / "out", policy=address)
    assert endpoint.refused == 1


@pytest.mark.usefixtures("local_ray")
@pytest.mark.long
def test_what_an_endpoint_doesnt_give_now_is_drawn_by_the_same_command(
    endpoint: Endpoint, address: str, corpus: Path, tmp_path: Path
) -> None:
    endpoint.refusal = (500, "out of order")
    with pytest.raises(RunStopped, match=r"127.0.0.1:\d+/v1 answers 500: .*out of order.* 2 s \(--endpoint-patience-s\)"):
        run_sample(corpus, tmp_path / "out", policy=address, part_rows=3, endpoint_patience_s=2)
    assert 3 <= endpoint.refused <= 10, "probes alone"
    assert not list((tmp_path / "out" / "parts").iterdir())
    endpoint.refusal = None
    run_sample(corpus, tmp_path / "out", policy=address, part_rows=3, endpoint_patience_s=2)
    assert {row["reason"] for row in scored(tmp_path / "out")} == {None, "unfinished"}
    assert len(scored(tmp_path / "out")) == 48


@pytest.mark.parametrize("name", [None, "parrot"])
def test_the_model_that_an_endpoint_serves_is_in_the_identity(
    endpoint: Endpoint, address: str, name: str | None, tmp_path: Path
) -> None:
    item = sample_settings(tmp_path, tmp_path / "out", policy=address, policy_name=name)
    before, again = (sampling_identity(item, None) for _ in range(2))
    assert before["policy"]["served"] == {"id": "parrot", "root": "models/parrot"}
    assert before == again
    endpoint.root = "models/another"
    assert differences(before, sampling_identity(item, None))


def test_an_endpoint_that_doesnt_tell_is_known_by_the_name_it_is_asked_for(endpoint: Endpoint, address: str) -> None:
    assert served_by(PolicySettings(policy=address, policy_name="another")) == {}
    elsewhere = address.removesuffix("/v1")
    assert served_by(PolicySettings(policy=elsewhere, policy_name="parrot")) == {}
    with pytest.raises(EndpointError, match="serves nothing; give --set policy_name"):
        served_by(PolicySettings(policy=elsewhere))
    with pytest.raises(RunStopped, match=r"didn't say which model it serves.*connection refused"):
        served_by(PolicySettings(policy=f"http://127.0.0.1:{free_port()}/v1"))


def answered(policy: str, *texts: str, name: str = "parrot", **options: Any) -> list[tuple[GeneratedCandidate, ...]]:
    """What an endpoint gives, without a run around it."""
    source = FromEndpoint(PolicySettings(policy=policy, **options), name, at_a_time=4, timeout_s=60.0, patience_s=2.0)
    rows = [
        CandidateRequest(text, PromptRow(ScoreRequest((Message(Role.USER, text),), ())), (seed,))
        for seed, text in enumerate(texts, 1)
    ]

    async def draw() -> list[tuple[GeneratedCandidate, ...]]:
        try:
            return await source.generate("work", rows)
        finally:
            await source._client.close()

    return asyncio.run(draw())


def test_a_prompt_that_is_refused_beside_others_has_that_outcome(endpoint: Endpoint, address: str) -> None:
    endpoint.refusal, endpoint.refuses = (403, "no such talk"), "bad"
    texts = ["good", "a bad text", "fine"]
    assert [item.reason for (item,) in answered(address, *texts)] == [None, Reason.ENDPOINT_REFUSED, None]
    assert endpoint.refused == 2
    (refused,) = answered(address, *texts)[1]
    assert refused.cause.startswith("answers 403: ")
    assert "no such talk" in refused.cause
    assert refused.retries == 1, "one refusal may be temporary"
    assert [item.reason for (item,) in answered(address, "bad alone")] == [Reason.ENDPOINT_REFUSED], "the last of a run"


def test_counts_that_an_endpoint_doesnt_give_are_0(endpoint: Endpoint, address: str) -> None:
    for usage in (None, {}, {"total_tokens": 8}, {"prompt_tokens": None, "completion_tokens": 3}):
        endpoint.usage = usage
        ((candidate,),) = answered(address, "good")
        tokens = 3 if usage and "completion_tokens" in usage else 0
        assert (candidate.reason, candidate.prompt_tokens, candidate.tokens) == (None, 0, tokens)


def test_nobody_there_is_told() -> None:
    port = free_port()
    with pytest.raises(RunStopped, match=rf"^the endpoint http://127.0.0.1:{port}/v1 can't be reached: connection refused"):
        answered(f"http://127.0.0.1:{port}/v1", "a", "b")


def test_an_address_at_which_something_else_is_is_told(endpoint: Endpoint, address: str) -> None:
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse("<html>")

    with pytest.raises(EndpointError, match="answers 404"):
        answered(address.removesuffix("/v1"), "a")
    endpoint.app.post("/page/chat/completions")(page)
    with pytest.raises(EndpointError, match="something other than a chat completion"):
        answered(address.replace("/v1", "/page"), "a")


def test_causes_are_told_apart() -> None:
    request = httpx.Request("POST", "http://there/v1/chat/completions")
    errors: Any = openai

    def status(code: int, **headers: str) -> EndpointFault:
        response = httpx.Response(
            code, headers={name.replace("_", "-"): text for name, text in headers.items()}, request=request
        )
        return fault_of(errors.APIStatusError("words", response=response, body=None))

    def lost(cause: Exception, deeper: Exception | None = None) -> EndpointFault:
        error = errors.APIConnectionError(request=request)
        error.__cause__, cause.__cause__ = cause, deeper
        return fault_of(error)

    kinds = {code: status(code).kind for code in (*range(400, 430), 431, 451, 500, 503)}
    assert kinds == {
        **dict.fromkeys((*range(400, 430), 431, 451), FaultKind.REFUSED),
        **dict.fromkeys((401, 402, 404, 405), FaultKind.UNUSABLE),
        **dict.fromkeys((408, 409, 425, 429), FaultKind.BUSY),
        **dict.fromkeys((500, 503), FaultKind.FAILED),
    }
    assert (status(503, retry_after="7").kind, status(503, retry_after="7").retry_after_s) == (FaultKind.BUSY, 7.0)
    assert status(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT").retry_after_s == 0
    assert status(429, retry_after="soon").retry_after_s == 0
    refused = lost(httpx.ConnectError("all attempts failed"), ConnectionRefusedError(111, "Connection refused"))
    assert (refused.kind, refused.text) == (FaultKind.BUSY, "can't be reached: connection refused")
    assert lost(httpx.ConnectError("x"), socket.gaierror(socket.EAI_NONAME, "not known")).kind is FaultKind.UNUSABLE
    assert lost(httpx.ConnectError("x"), socket.gaierror(socket.EAI_AGAIN, "try again")).kind is FaultKind.BUSY
    assert lost(httpx.RemoteProtocolError("disconnected")).kind is FaultKind.FAILED
    assert fault_of(errors.APITimeoutError(request=request)).kind is FaultKind.TIMED_OUT
