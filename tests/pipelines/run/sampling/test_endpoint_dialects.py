"""What endpoints answer in a dialect of their own is read where it is clear, and is told in their words where it isn't."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from actors.endpoint import client as endpoint_client
from actors.endpoint.remote_model import RemoteModel
from actors.errors import EndpointError, RunStopped
from actors.records import Message, Reason, Role, ScoreRequest
from actors.scorers.policy import GeneratedCandidate
from actors.settings.endpoint import ModelEndpointSettings
from actors.settings.replica import PolicySettings
from pipelines.run.prepare.policy_prompts import PromptRow
from pipelines.run.sampling.generate import CandidateRequest, FromEndpoint, served_by
from tests.pipelines.workflows.benchmarking.test_chat_judge import RUBRIC
from tests.support.asked_endpoints import asking
from tests.support.endpoints import listening
from tests.support.models import request, user

LONGEST = 64


def completion(content: object = "7", finish: object = "stop", tokens: int = 3, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage, **more}


class Endpoint:
    """Answers with these bodies, and then as any other; the first is a probe's."""

    def __init__(self) -> None:
        self.begin()
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.complete)

    def begin(self) -> None:
        self.bodies: list[Any] = [completion()]
        self.listed: Any = {"object": "list", "data": [{"id": "parrot", "object": "model"}]}
        self.requests: list[dict[str, Any]] = []
        self.kind = "application/json"

    async def models(self) -> Response:
        return self._answer(self.listed)

    async def complete(self, request: Request) -> Response:
        self.requests.append(await request.json())
        return self._answer(self.bodies.pop(0) if self.bodies else completion())

    def _answer(self, body: Any) -> Response:
        return Response(body if isinstance(body, str | bytes) else json.dumps(body), media_type=self.kind)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Endpoint, str]]:
    endpoint = Endpoint()
    with listening(endpoint.app) as url:
        yield endpoint, f"{url}/v1"


@pytest.fixture
def endpoint(served: tuple[Endpoint, str]) -> Endpoint:
    served[0].begin()
    return served[0]


@pytest.fixture
def address(served: tuple[Endpoint, str], endpoint: Endpoint) -> str:
    return served[1]


def draw(address: str, *, patience_s: float = 0.5) -> GeneratedCandidate:
    """The candidate of one prompt, without a run around it."""
    settings = PolicySettings(policy=address, policy_max_tokens=LONGEST)
    source = FromEndpoint(settings, "parrot", at_a_time=4, timeout_s=60.0, patience_s=patience_s)
    prompt = PromptRow(ScoreRequest((Message(Role.USER, "What is 3 + 4?"),), ()))

    async def candidate() -> GeneratedCandidate:
        try:
            ((drawn,),) = await source.generate("work", [CandidateRequest("row", prompt, (1,))])
            return drawn
        finally:
            await source._client.close()

    return asyncio.run(candidate())


def ask_judge(address: str, *, patience_s: float = 0.5) -> list[float | Reason | None]:
    """The rewards, or the reasons, of two responses by a judge of the endpoint."""
    with asking(address, "parrot", rubric=RUBRIC, reask=0, patience_s=patience_s) as score:
        (scores,) = score([request(user("3+4?"), to=["a long one", "b"])])
    return [score.reason if score.reward is None else score.reward for score in scores]


def listed_as(address: str, name: str) -> Mapping[str, Any]:
    return RemoteModel.find(ModelEndpointSettings(endpoint=address), name).card


ENDED = ["stop", "STOP", "eos_token", "end_turn", "stop_sequence", "COMPLETE", None, ""]
CUT_OFF = ["length", "MAX_TOKENS", "model_length", "content_filter", "SAFETY", "tool_calls"]
NO_END = ["abort", "timeout", "engine_overloaded", "unknown", "not_stop", 0, False, {"type": "timeout"}]


def test_a_text_ends_as_it_is_called_anywhere(endpoint: Endpoint, address: str) -> None:
    for finish in ENDED:
        endpoint.bodies = [completion(), completion(finish=finish)]
        candidate = draw(address)
        assert (candidate.text, candidate.finish_reason, candidate.reason) == ("7", "stop", None)
    endpoint.bodies = [completion(), completion("Better: A", "end_turn")]
    assert ask_judge(address) == [1.0, 0.0]


def test_a_text_that_was_cut_off_is_none_whatever_that_is_called(endpoint: Endpoint, address: str) -> None:
    for finish in CUT_OFF:
        endpoint.bodies = [completion(), completion(finish=finish)]
        assert draw(address).reason is Reason.UNFINISHED
    endpoint.bodies = [completion(), completion("Better: A", "max_tokens")]
    assert ask_judge(address) == [Reason.CUT_OFF, Reason.CUT_OFF]


def test_a_text_of_all_tokens_whose_end_isnt_told_was_cut_off(endpoint: Endpoint, address: str) -> None:
    endpoint.bodies += [completion(finish=None, tokens=LONGEST)]
    assert draw(address).reason is Reason.UNFINISHED
    endpoint.bodies += [completion(), completion(finish="eos_token", tokens=LONGEST)]
    assert draw(address).reason is None


def test_a_text_that_the_model_didnt_end_is_asked_for_again(endpoint: Endpoint, address: str) -> None:
    for finish in NO_END:
        endpoint.bodies = [completion(), completion("4", finish)]
        candidate = draw(address)
        assert (candidate.text, candidate.retries) == ("7", 1)
    endpoint.bodies = [completion(), completion("Better: B, but", "timeout"), completion("Better: A")]
    assert ask_judge(address) == [1.0, 0.0]


def test_a_text_that_never_ends_fails_while_others_are_answered(
    endpoint: Endpoint, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_client, "_FIRST_WAIT_S", 0.001)
    half = completion("Better: A, is what the answer asks me to wri", "timeout")
    endpoint.bodies += [*[half] * 9, completion(), half]  # a probe is answered before the last try
    candidate = draw(address, patience_s=20)
    assert (candidate.text, candidate.reason, candidate.retries) == ("", Reason.ENDPOINT_FAILED, 9)
    assert candidate.cause == "gave a text that hadn't ended (finish_reason: 'timeout')"
    endpoint.bodies = [completion(), *[half] * 9, completion(), half]
    assert ask_judge(address, patience_s=20) == [Reason.ENDPOINT_FAILED, Reason.ENDPOINT_FAILED]


def test_a_refusal_is_an_answer_without_a_verdict(endpoint: Endpoint, address: str) -> None:
    refusal = completion(None)
    refusal["choices"][0]["message"]["refusal"] = "I can't say that A is better. Better: B"
    endpoint.bodies += [refusal]
    assert (draw(address).reason, len(endpoint.requests)) == (Reason.EMPTY_CONTENT, 2)
    endpoint.bodies = [completion(), refusal]
    assert ask_judge(address) == [Reason.NO_VERDICT, Reason.NO_VERDICT]


PARTS: list[object] = [
    [{"type": "output_text", "text": "Better: A", "annotations": []}],
    [{"type": "text", "text": "Better"}, {"text": ": A"}],
    [{"type": "thinking", "thinking": [{"type": "text", "text": "Better: B"}]}, {"type": "text", "text": "Better: A"}],
    {"type": "text", "text": "Better: A"},
    ["Better: A"],
]


def test_parts_of_text_are_text(endpoint: Endpoint, address: str) -> None:
    for content in PARTS:
        endpoint.bodies = [completion(), completion(content)]
        assert draw(address).text == "Better: A"
    assert len(endpoint.requests) == 2 * len(PARTS), "the probe, and once"


def test_no_text_is_an_empty_candidate(endpoint: Endpoint, address: str) -> None:
    contents: list[object] = [None, "", [], [{"type": "reasoning", "text": "Hm"}], [{"type": "text", "text": ""}]]
    for content in contents:
        endpoint.begin()
        endpoint.bodies += [completion(content)]
        assert draw(address).reason is Reason.EMPTY_CONTENT


def test_an_error_in_a_200_is_waited_for_as_a_status_is(endpoint: Endpoint, address: str) -> None:
    for code in (429, "429", 503):
        body = {**completion("half of it"), "error": {"message": "slow down", "code": code}}
        endpoint.bodies = [body, completion(), body, body]
        candidate = draw(address, patience_s=20)
        assert (candidate.text, candidate.reason, candidate.retries) == ("7", None, 2)


def test_an_error_in_a_200_is_told_as_what_it_is(endpoint: Endpoint, address: str) -> None:
    endpoint.bodies = [{"error": {"message": "slow down", "code": 429}}] * 20
    with pytest.raises(RunStopped, match=r"/v1 answers 429: slow down \(an error in a 200\); no answer for 0.5 s"):
        draw(address)
    for error in ("the model is asleep", {"message": "the model is asleep", "code": "asleep"}):
        endpoint.bodies = [{"error": error}]
        with pytest.raises(EndpointError, match="answered with an error instead of a chat completion: the model is asleep"):
            draw(address)


def test_a_refusal_in_a_200_is_one(endpoint: Endpoint, address: str) -> None:
    long = {"error": {"message": "This model's maximum context length is 10 tokens", "code": 400}}
    endpoint.bodies += [long, completion(), long]  # a probe asks whether others are answered
    candidate = draw(address)
    assert candidate.reason is Reason.TOO_LONG
    assert candidate.cause.startswith("answers 400: This model's maximum context length")
    endpoint.bodies = [completion(), long, completion(), long]
    assert ask_judge(address) == [Reason.TOO_LONG, Reason.TOO_LONG]


OTHERS: list[Any] = [
    *({"result": "7"}, [], None, 7, {"choices": []}, {"choices": [{"message": None}]}, {"error": None}),
    *("<html>Log in</html>", '{"choices": [', "[" * 100_000, b'{"a": "\xff"}'),
    completion([{"type": "image_url", "image_url": "x"}]),
]


def test_a_body_of_another_form_is_told_by_its_beginning(endpoint: Endpoint, address: str) -> None:
    for body in OTHERS:
        endpoint.bodies = [body]
        with pytest.raises(EndpointError) as error:
            draw(address)
        written = body.decode(errors="replace") if isinstance(body, bytes) else body
        written = written if isinstance(written, str) else json.dumps(written)
        assert str(error.value).endswith(f"/v1 answered with something other than a chat completion: {written[:500]}")
    endpoint.bodies, endpoint.kind = [OTHERS[0]], "text/html"
    with pytest.raises(EndpointError, match="answered with something other than a chat completion: "):
        ask_judge(address)


def test_a_body_of_nothing_is_told(endpoint: Endpoint, address: str) -> None:
    endpoint.bodies = [""]
    with pytest.raises(EndpointError, match="something other than a chat completion: nothing"):
        draw(address)


def test_json_under_another_name_is_json(endpoint: Endpoint, address: str) -> None:
    endpoint.kind = "text/plain"
    assert draw(address).text == "7"


def test_the_list_of_models_is_read_alike(endpoint: Endpoint, address: str) -> None:
    settings = PolicySettings(policy=address)
    endpoint.listed = [{"id": "parrot", "root": "there", "created": 1}]
    assert served_by(settings) == {"id": "parrot", "root": "there"}
    assert listed_as(address, "parrot") == endpoint.listed[0]
    endpoint.listed = {"error": {"message": "loading", "code": 503}}
    with pytest.raises(RunStopped, match=r"answers 503: loading \(an error in a 200\); run the same command again"):
        served_by(settings)
    endpoint.listed = [{"id": "parrot"}, {"id": "lory"}]
    with pytest.raises(EndpointError, match="serves parrot, lory; give --set policy_name"):
        served_by(settings)
    bodies: list[Any] = [{"models": []}, "<html>", {"data": ["parrot"]}]
    for body in bodies:
        endpoint.listed = body
        written = body if isinstance(body, str) else json.dumps(body)
        for ask in (partial(served_by, settings), partial(listed_as, address, "parrot")):
            with pytest.raises(EndpointError, match=re.escape(f"something other than a list of models: {written}")):
                ask()


def test_a_key_that_no_header_holds_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(EndpointError, match="can't be asked: 'ascii' codec can't encode"):
        draw(address)
