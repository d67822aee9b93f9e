"""What no route takes: bodies that are no JSON, that hold too many values, or that no model can be asked with."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from actors.scorers.online import OnlineScorer
from deploy import api
from deploy.settings import LimitSettings
from deploy.wire.json_route import JsonRoute, count_values
from tests.support.endpoints import ANSWERED, QUESTION, application, post, scorer

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
MOST = 20_000
PATHS = sorted(
    {
        route.path
        for router in api.ROUTERS
        for route in router.routes
        if isinstance(route, JsonRoute) and route.body_field is not None
    }
)
OPEN = {"/verify", "/seed_session"}
"""Routes that take fields of any name: a row's, which come back."""
every_route = pytest.mark.parametrize("path", PATHS)

_RESPONSE = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7"}]}]}
_PAIR = {"model": HEAD, "query": "?", "documents": ["7"]}
_SCORED = {"model": HEAD, "queries": "?", "documents": ["7"]}
_COMPARED = [*QUESTION, {"role": "response_1", "content": "7"}, {"role": "response_2", "content": "8"}]
_MANY = {f"field {index}": index for index in range(1000)}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/rewards": {"model": HEAD, "conversations": [{"messages": QUESTION, "responses": ["7"]}]},
    "/v1/chat/completions": {"model": HEAD, "messages": ANSWERED},
    "/pooling": {"model": HEAD, "input": "a"},
    "/classify": {"model": HEAD, "input": "a"},
    "/v1/embeddings": {"model": HEAD, "input": "a"},
    "/score": _SCORED,
    "/v1/score": _SCORED,
    "/rerank": _PAIR,
    "/v1/rerank": _PAIR,
    "/v2/rerank": _PAIR,
    "/get_reward": {"query": ["<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes"]},
    "/compare": {"model": HEAD, "conversation_history": QUESTION, "response_objs": [_RESPONSE]},
    "/verify": {"model": HEAD, "responses_create_params": {"input": QUESTION}, "response": _RESPONSE},
    "/seed_session": {"question": "What?"},
    "/rm": {"prompt": QUESTION, "response": "7"},
}
"""Of each route, what it answers."""


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    scorers: list[OnlineScorer] = [scorer(HEAD), scorer(JUDGE)]
    yield application(scorers, LimitSettings(max_values=MOST))
    for item in scorers:
        item.close()


def ask(app: Any, path: str, body: Any) -> tuple[int, str]:
    query = f"?model={HEAD}" if path in {"/get_reward", "/rm"} else ""
    answer = post(app, path + query, body)
    return answer.status_code, answer.text


def test_every_route_that_reads_a_body_is_one_of_these() -> None:
    reading = {
        route.path
        for router in api.ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.body_field is not None
    }
    assert reading == set(PATHS) == set(ASKED)


def test_what_is_asked_here_is_answered(app: Any) -> None:
    for path in PATHS:
        assert ask(app, path, ASKED[path])[0] == 200


def test_values_are_counted_before_they_are_read(app: Any) -> None:
    values: list[str] = ["[" + "1," * MOST + "1]", "{" + ",".join(f'"{index}": 1' for index in range(MOST)) + "}"]
    for path in PATHS:
        for value in values:
            status, text = ask(app, path, _with(path, "more", value))
            assert status == 413
            assert str(MOST) in text
            assert "too_many_values" in text


def test_a_count_is_never_below_what_is_there() -> None:
    table: list[Any] = ["a", 1, [], {}, [[]], [1, 2], {"a": [1, {"b": 2}], "c": None}, [{"a,[{": '",[{'}, "\\", '\\"', "é,"]]
    for value in table:

        def values(item: Any) -> int:
            inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            return 1 + sum(map(values, inside))

        def empty(item: Any) -> int:
            inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            return int(item in ([], {})) + sum(map(empty, inside))

        assert count_values(json.dumps(value, ensure_ascii=False).encode()) == values(value) + empty(value)


def test_a_body_of_quotes_is_read_once() -> None:
    assert count_values(b'"' + b'\\"' * 2**20 + b",,") == 1
    assert count_values(b'"' * (2**20 + 1)) == 1


def _with(path: str, name: str, value: str) -> bytes:
    """What a route answers, and a member whose value is no other than this text."""
    return json.dumps(ASKED[path])[:-1].encode() + f', "{name}": '.encode() + value.encode() + b"}"


def test_what_is_no_json_is_the_clients_mistake(app: Any) -> None:
    values: list[str] = [
        "NaN",
        "-Infinity",
        "1e999",
        "1" * 5000,
        "[" * 10_000,
        "[" * 100 + "]" * 100,
        '{"a": 1, "a": 1}',
        '"\x01"',
    ]
    for path in PATHS:
        for value in values:
            status, text = ask(app, path, _with(path, "user", value))
            assert (status, json.loads(text)["error"]["code"]) == (400, "invalid_request")


def test_half_a_character_is_the_clients_mistake_wherever_it_stands(app: Any) -> None:
    """Where a format has a place for the reason, it is there; a mistake of ours it is nowhere."""
    for path in PATHS:
        text = json.dumps(ASKED[path])
        half = [
            text.replace(item, item + "\\ud800")
            for item in ("7", "hi", '"a', "Is it?", "What", "user", "yes", "?")
            if item in text
        ]
        statuses = [ask(app, path, body.encode())[0] for body in half]
        assert half
        assert all(status in {200, 400, 404, 422} for status in statuses), statuses
        assert any(status >= 400 for status in statuses) or path in {"/v1/rewards", "/compare", *OPEN}


_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "n", "seed", "top_logprobs", "priority")
NUMBERS = [
    *(("/v1/chat/completions", name) for name in _SAMPLING),
    ("/rerank", "top_n"),
    ("/pooling", "truncate_prompt_tokens"),
    ("/pooling", "input"),
]


def test_huge_numbers_are_never_a_mistake_of_ours(app: Any) -> None:
    for path, name in NUMBERS:
        bodies = {**ASKED, "/v1/chat/completions": {"model": JUDGE, "messages": _COMPARED}}
        for huge in (10**30, -(10**30), 10**400):
            body = {**bodies[path], name: [huge] if name == "input" else huge}
            assert ask(app, path, body)[0] < 500, huge


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("/pooling", {"input": [-5] * 1000}),
    ("/pooling", {"input": [5] * 999 + ["a"]}),
    ("/pooling", {"input": [[-5] * 1000]}),
    ("/pooling", {"messages": [{"role": 5, "content": 5}] * 1000}),
    ("/classify", {"text": [5] * 1000}),
    ("/classify", {"input_ids": [[]] * 999 + ["a"]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [5] * 1000}]}),
    ("/v1/chat/completions", {"messages": QUESTION, "stop": [5] * 1000}),
    ("/v1/rewards", {"conversations": [{}] * 1000}),
    ("/v1/rewards", {"conversations": [{"messages": QUESTION, "responses": [5] * 1000}]}),
    ("/v1/rewards", {"conversations": [{"messages": QUESTION, "principles": [5] * 1000}]}),
    ("/score", {"queries": [5] * 1000, "documents": [5] * 1000}),
    ("/rerank", {"query": "?", "documents": [5] * 1000}),
    ("/get_reward", {"query": [5] * 1000, "prompts": [5] * 1000}),
    ("/compare", {"conversation_history": QUESTION, "response_objs": [{"output": [5] * 1000}] * 10}),
]


@pytest.mark.parametrize(
    ("path", "body"), [*WRONG, *((path, {**ASKED[path], **_MANY}) for path in PATHS if path not in OPEN)]
)
def test_not_every_mistake_of_a_body_is_held(monkeypatch: pytest.MonkeyPatch, app: Any, path: str, body: Any) -> None:
    """Each would take more than what it is about."""
    held: list[int] = []
    errors = RequestValidationError.errors

    def count_errors(error: RequestValidationError) -> Any:
        held.append(len(errors(error)))
        return errors(error)

    monkeypatch.setattr(RequestValidationError, "errors", count_errors)
    assert ask(app, path, body)[0] == 400
    assert max(held) < 20


@pytest.mark.parametrize("stop", [["a"] * 17, "a" * 257, ["a" * 257], ["a"] * 1000])
def test_what_ends_a_text_is_short(app: Any, stop: Any) -> None:
    answer = post(app, "/v1/chat/completions", {"model": JUDGE, "messages": _COMPARED, "stop": stop})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_as_many_ends_as_there_may_be_are_taken(app: Any) -> None:
    stop = ["a" * 256] * 16
    assert ask(app, "/v1/chat/completions", {"model": JUDGE, "messages": _COMPARED, "stop": stop})[0] == 200


def test_a_name_that_isnt_known_is_told_in_short(app: Any) -> None:
    names: list[str] = ["\\ud800x", "k" * 100_000]
    for path in {*PATHS} - OPEN:
        for name in names:
            status, text = ask(app, path, _with(path, name, "1"))
            assert status == 400
            assert json.loads(text)["error"]["code"] == "invalid_request"
            assert len(text) < 2000
