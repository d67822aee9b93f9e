"""Every wire format in this process, on the fake engine: shapes, statuses, and what is refused."""

import asyncio
import base64
import json
import struct
from collections.abc import Iterator
from typing import Any, cast

import httpx
import openai
import pytest

from actors.contracts.family import Question
from actors.records import Message, Reason, Role
from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer
from actors.settings.replica import ModelSettings, ReadSettings, RenderSettings
from deploy.api.chat import _split_reasoning
from deploy.errors import no_score_error
from deploy.wire.json_route import DEEPEST
from tests.support.endpoints import ANSWERED, QUESTION, application, client, listening, post, scorer

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
NAMES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
COMPARED = [
    *QUESTION,
    {"role": "principle", "content": "correctness"},
    {"role": "response_1", "content": "7"},
    {"role": "response_2", "content": "9"},
]


@pytest.fixture(scope="module")
def scorers() -> Iterator[list[OnlineScorer]]:
    made = [scorer(HEAD), scorer(JUDGE)]
    yield made
    for item in made:
        item.close()


@pytest.fixture(scope="module")
def app(scorers: list[OnlineScorer]) -> Any:
    return application(scorers)


@pytest.fixture(scope="module")
def truth(app: Any) -> dict[str, Any]:
    """What our own format says of the conversation that all others are asked about, too."""
    response: dict[str, Any] = post_rewards(app, conversations=[{"messages": ANSWERED}])["data"][0]["responses"][0]
    return response


def post_rewards(app: Any, *, model: str = HEAD, **body: Any) -> dict[str, Any]:
    answer = post(app, "/v1/rewards", {"model": model, **body})
    assert answer.status_code == 200, answer.text
    actual_body: dict[str, Any] = answer.json()
    return actual_body


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """In OpenAI's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (kind,) = answer.json()
    assert kind == "error"
    actual_error: dict[str, Any] = answer.json()["error"]
    assert actual_error.keys() == {"message", "type", "param", "code"}
    return actual_error


# Our own format.


def test_each_response_has_its_reward_or_a_reason(app: Any) -> None:
    body = post_rewards(
        app,
        conversations=[
            {"messages": QUESTION, "responses": ["7", " ", "9 <extra_id_1>"]},
            {"messages": QUESTION},
            {"messages": ANSWERED},
            {"messages": [{"role": "wizard", "content": "?"}], "responses": ["7"]},
        ],
    )
    outcomes = [[(response["status"], response["reason"]) for response in entry["responses"]] for entry in body["data"]]
    scored = ("scored", None)
    assert outcomes == [
        [scored, ("rejected", "empty_content"), ("rejected", "control_token")],
        [("rejected", "no_final_assistant")],
        [scored],
        [("rejected", "unknown_role")],
    ]
    assert [entry["ranking"] for entry in body["data"]] == [[0], [], [0], []]
    assert all(
        (response["reward"] is None) == (response["status"] != "scored")
        for entry in body["data"]
        for response in entry["responses"]
    )
    assert body["data"][0]["responses"][0]["reward"] == body["data"][2]["responses"][0]["reward"], (
        "a candidate is a last turn"
    )
    assert tuple(body["data"][2]["responses"][0]["scores"]) == NAMES
    assert body["usage"]["prompt_tokens"] == 2 * body["data"][2]["responses"][0]["prompt_tokens"]


def test_a_ranking_has_the_best_first(app: Any) -> None:
    (entry,) = post_rewards(app, conversations=[{"messages": QUESTION, "responses": [str(index) for index in range(9)]}])[
        "data"
    ]
    rewards = [response["reward"] for response in entry["responses"]]
    assert entry["ranking"] == sorted(range(9), key=lambda at: -rewards[at])


def test_a_judge_compares_candidates_and_shows_its_text_if_asked(app: Any) -> None:
    conversations = [{"messages": QUESTION, "responses": ["7", "9"], "principles": ["correctness"]}]
    (entry,) = post_rewards(app, model=JUDGE, conversations=conversations, trace=True)["data"]
    text = entry["responses"][0]["trace"][0]
    assert text["shown"] == ["response[0]", "response[1]"]
    assert text["principle"] == "correctness"
    assert text["text"]
    (quiet,) = post_rewards(app, model=JUDGE, conversations=conversations)["data"]
    assert quiet["responses"][0]["trace"] is None
    assert quiet["responses"][0]["reward"] == entry["responses"][0]["reward"]
    (alone,) = post_rewards(app, model=JUDGE, conversations=[{"messages": QUESTION, "responses": ["7"]}])["data"]
    assert alone["responses"][0]["reason"] == "no_opponent"


def test_principles_that_nobody_would_go_by_are_refused(app: Any) -> None:
    body = {"model": HEAD, "conversations": [{"messages": ANSWERED, "principles": ["correctness"]}]}
    assert error(post(app, "/v1/rewards", body), 400)["code"] == "no_principles"


def test_fields_that_nobody_would_read_are_refused(app: Any) -> None:
    for more in ({"reference": "7"}, {"fields": {"criteria": ["It is right."]}}):
        body = {"model": HEAD, "conversations": [{"messages": ANSWERED, **more}]}
        assert error(post(app, "/v1/rewards", body), 400)["code"] == "no_such_field"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/pooling", "/classify", "/v1/embeddings"])
def test_no_principle_is_dropped_by_the_others_either(app: Any, path: str) -> None:
    turns = [*QUESTION, {"role": "principle", "content": "correctness"}, {"role": "response_1", "content": "7"}]
    assert error(post(app, path, {"model": HEAD, "messages": turns}), 400)["code"] == "no_principles"


def test_the_answers_to_several_principles_are_combined_or_refused() -> None:
    """Each principle has a prompt and an output of its own: one of them alone would look like the answer."""
    by_two = ReadSettings(principles={"a": "correctness", "b": "brevity"})
    model = scorer("tiny-principle", read=by_two)
    try:
        app = application([model])
        truth = post_rewards(app, model="tiny-principle", conversations=[{"messages": ANSWERED}])["data"][0]["responses"][0]
        assert truth["reward"] == pytest.approx((truth["scores"]["a"] + truth["scores"]["b"]) / 2)
        assert post(app, "/classify", {"messages": ANSWERED}).json()["data"][0]["probs"] == [truth["reward"]]
        assert post(app, "/v1/embeddings", {"messages": ANSWERED}).json()["data"][0]["embedding"] == [truth["reward"]]
        for path, body in (
            ("/pooling", {"messages": ANSWERED}),
            ("/classify", {"messages": ANSWERED, "use_activation": True}),
            ("/v1/embeddings", {"messages": ANSWERED, "use_activation": True}),
            ("/pooling", {"input": "3 + 4"}),
            ("/classify", {"input": "3 + 4"}),
            ("/classify", {"text": "3 + 4"}),
            ("/v1/embeddings", {"input": [1, 2]}),
        ):
            assert "goes by 2 principles" in error(post(app, path, body), 400)["message"], (path, body)
    finally:
        model.close()
    judge = scorer("tiny-genrm-principle", read=by_two)
    try:
        for stream in (False, True):
            refused = post(application([judge]), "/v1/chat/completions", {"messages": ANSWERED, "stream": stream})
            assert "goes by 2 principles" in error(refused, 400)["message"]
    finally:
        judge.close()


@pytest.mark.parametrize("principles", [["correctness", ""], [" "]])
def test_a_blank_principle_is_no_principle_to_judge_by(principles: list[str]) -> None:
    online_scorer = scorer("tiny-principle")
    blank, fine = ({"messages": QUESTION, "responses": ["7", "9"], "principles": by} for by in (principles, ["correctness"]))
    in_messages = {"messages": ANSWERED, "principles": principles}
    try:
        data = post_rewards(application([online_scorer]), model="tiny-principle", conversations=[blank, fine, in_messages])[
            "data"
        ]
    finally:
        online_scorer.close()
    reasons = [[response["reason"] for response in entry["responses"]] for entry in data]
    assert reasons == [["empty_content"] * 2, [None] * 2, ["empty_content"]]
    assert [[response["reward"] is None for response in entry["responses"]] for entry in data] == [
        [True] * 2,
        [False] * 2,
        [True],
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/pooling", "/classify", "/v1/embeddings"])
def test_a_head_has_one_answer_for_one_response(app: Any, path: str) -> None:
    turns = [turn for turn in COMPARED if turn["role"] != "principle"]
    result = error(post(app, path, {"model": HEAD, "messages": turns}), 400)
    assert result["param"] == "messages"
    assert "/v1/rewards" in result["message"]


def test_responses_as_metadata_are_text_and_for_a_head_one(app: Any) -> None:
    body = {"model": HEAD, "messages": QUESTION}
    two = {"response_1": "7", "response_2": "9"}
    assert "/v1/rewards" in error(post(app, "/v1/chat/completions", {**body, "metadata": two}), 400)["message"]
    alone = {"response_1": "7", "response_2": None, "session": 5}
    assert post(app, "/v1/chat/completions", {**body, "metadata": alone}).status_code == 200
    for name in ("principle", "response_1", "response_2"):
        for value in (7, ["7"], {"content": "7"}, False):
            metadata = {"principle": "correctness", **two, name: value}
            result = error(post(app, "/v1/chat/completions", {**body, "model": JUDGE, "metadata": metadata}), 400)
            assert (result["param"], result["message"]) == ("metadata", f"metadata.{name} must be text")


def test_a_judge_that_draws_its_orders_writes_about_one_response_here() -> None:
    """Which of them is the first in its text would be told by nothing."""
    name = "tiny-reward-anything"
    online_scorer = scorer(name)
    app = application([online_scorer])
    try:
        for index in range(8):
            context = [{"role": "user", "content": f"What is {index} + 4?"}]
            for turns, status in ((COMPARED[1:], 400), (COMPARED[1:3], 200)):
                answer = post(app, "/v1/chat/completions", {"model": name, "messages": [*context, *turns]})
                assert answer.status_code == status, answer.text
                assert status == 200 or "/v1/rewards" in error(answer, 400)["message"]
    finally:
        online_scorer.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/pooling", "/classify", "/v1/embeddings"])
def test_an_answer_to_nothing_has_no_number(path: str) -> None:
    """As in batch: no reward model was trained to judge one. Of a family that would render it."""
    alone, online_scorer = ANSWERED[1:], scorer("tiny-scalar")
    try:
        app = application([online_scorer])
        assert error(post(app, path, {"model": "tiny-scalar", "messages": alone}), 400)["code"] == "no_messages"
        (entry,) = post_rewards(app, model="tiny-scalar", conversations=[{"messages": alone}])["data"]
    finally:
        online_scorer.close()
    assert [(response["reward"], response["reason"]) for response in entry["responses"]] == [(None, "no_messages")]


def test_nobody_is_judged_after_another_answer_to_the_prompt(app: Any) -> None:
    """As in batch, with a reason in place of each number."""
    turns = [{"role": "response_1", "content": "8"}, {"role": "response_2", "content": "9"}]
    for item in ({"messages": ANSWERED, "responses": ["8", "9"]}, {"messages": [*ANSWERED, *turns]}):
        (judged,) = post_rewards(app, conversations=[item])["data"]
        assert {(response["reward"], response["reason"]) for response in judged["responses"]} == {(None, "wrong_type")}
    items = [
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}
        for text in "89"
    ]
    compared = {"model": "tiny-attributes", "conversation_history": ANSWERED, "response_objs": items}
    assert post(app, "/compare", compared).json()["reasons"] == ["wrong_type"] * 2


def test_responses_in_the_roles_of_judges_are_judged(app: Any) -> None:
    (entry,) = post_rewards(app, model=JUDGE, conversations=[{"messages": COMPARED}])["data"]
    assert [response["name"] for response in entry["responses"]] == ["response_1", "response_2"]
    assert all(response["status"] == "scored" for response in entry["responses"])


def test_the_model_must_be_one_that_is_there(app: Any, scorers: list[OnlineScorer]) -> None:
    body = {"conversations": [{"messages": ANSWERED}]}
    assert error(post(app, "/v1/rewards", body), 400)["param"] == "model"
    result = error(post(app, "/v1/rewards", {**body, "model": "gpt"}), 404)
    assert result["code"] == "model_not_found"
    assert HEAD in result["message"]
    assert post(application(scorers[:1]), "/v1/rewards", body).status_code == 200, "the only one is meant"


def test_what_isnt_understood_is_refused_with_its_place(app: Any) -> None:
    cases: list[tuple[Any, str | None]] = [
        ({"conversations": [{"messages": ANSWERED}], "activation": True}, "activation"),
        ({"conversations": []}, "conversations"),
        ({"conversations": [{"messages": []}]}, "conversations.0.messages"),
        ({"conversations": [{"messages": [{"role": 7, "content": "x"}]}]}, "conversations.0.messages.0.role"),
        ({"conversations": [{"messages": QUESTION, "responses": []}]}, "conversations.0.responses"),
        ([], None),
    ]
    for body, place in cases:
        result = error(post(app, "/v1/rewards", body), 400)
        assert result["param"] == place
        assert result["code"] == "invalid_request"


def test_unknown_and_missing_fields_are_told_in_plain_words(app: Any) -> None:
    unknown = error(post(app, "/v1/rewards", {"conversations": [{"messages": ANSWERED}], "activation": True}), 400)
    assert unknown["message"] == "activation: isn't a field of this request"
    assert error(post(app, "/v1/rewards", {"conversations": [{}]}), 400)["message"] == "conversations.0.messages: is missing"


def test_broken_json_is_the_clients_mistake(app: Any) -> None:
    contents: list[bytes] = [
        b"[" * 10_000,
        b'{"conversations": ' * 10_000,
        b'{"conversations": [{"messages": [{"role": "user", "content": "\xff"}]}]}',
        b'{"conversations": [{"messages": [{"role": "user", "content": "\xed\xa0\x80"}], "responses": ["a"]}]}',
        b"",
        b"null",
        b"{",
        # Where nobody reads it, it is as wrong.
        b'{"conversations": [{"messages": [{"role": "user", "content": "a", "x": NaN}], "responses": ["a"]}]}',
        b'{"conversations": [{"messages": [{"role": "user", "content": "a", "x": -Infinity}], "responses": ["a"]}]}',
        b'{"conversations": [{"messages": [{"role": "user", "content": "a", "x": 1e999}], "responses": ["a"]}]}',
        b'{"conversations": [{"messages": [{"role": "user", "content": "a", "x": %s1%s}]}]}' % (b"[" * 200, b"]" * 200),
        b'{"conversations": [{"messages": [{"role": "user", "content": "a", "x": %s}]}]}' % (b"1" * 5000),
        '{"conversations": [{"messages": [{"role": "user", "content": "a"}], "responses": ["a"]}]}'.encode("utf-16"),
    ]
    for content in contents:
        assert error(post(app, "/v1/rewards", content), 400)["code"] == "invalid_request"


DEPTHS = [1, DEEPEST - 1, DEEPEST, *range(900, 1000)]


def test_what_python_may_not_be_able_to_write_again_is_refused(app: Any) -> None:
    """Between what its reader and its writer can do lies a depth or two, wherever that is just now."""
    start = b'{"model": "%s", "input": "a", "metadata": ' % HEAD.encode()
    bodies = (b"%s%s1%s}" % (start, b'{"a": ' * depth, b"}" * depth) for depth in DEPTHS)
    statuses = [post(app, "/pooling", body).status_code for body in bodies]
    assert statuses == [200 if depth < DEEPEST else 400 for depth in DEPTHS]


def test_errors_hold_nobodys_text(app: Any) -> None:
    secret = "the patient's name"
    answer = post(app, "/v1/rewards", {"conversations": [{"messages": [{"role": secret, "content": {secret: secret}}]}]})
    error(answer, 400)
    assert secret not in answer.text


def test_a_conversation_that_cant_fit_is_too_large(app: Any) -> None:
    long = [{"role": "user", "content": "word " * 20_000}, {"role": "assistant", "content": "7"}]
    assert error(post(app, "/v1/chat/completions", {"model": HEAD, "messages": long}), 413)["code"] == "too_long"
    assert error(post(app, "/pooling", {"model": HEAD, "messages": long}), 413)["code"] == "too_long"
    (entry,) = post_rewards(app, conversations=[{"messages": long}])["data"]
    assert entry["responses"][0]["reason"] == "too_long"


def test_every_reason_has_a_status() -> None:
    for reason in Reason:
        api_error = no_score_error(reason)
        assert api_error.status in {400, 413, 500, 504}
        assert reason.value in json.dumps(api_error.body)


# Chat completions.


def test_a_head_answers_as_nvidias_hosted_models(app: Any, truth: dict[str, Any]) -> None:
    body = post(app, "/v1/chat/completions", {"model": HEAD, "messages": ANSWERED}).json()
    (choice,) = body["choices"]
    assert {item["token"]: item["logprob"] for item in choice["logprobs"]["content"]} == truth["scores"]
    assert [item["token"] for item in choice["logprobs"]["content"]] == list(NAMES), "the order is part of the format"
    pairs = [pair.split(":") for pair in choice["message"]["content"].split(",")]
    assert {name: float(value) for name, value in pairs} == truth["scores"]
    assert (choice["finish_reason"], body["usage"]["completion_tokens"], body["model"]) == ("length", 1, HEAD)
    assert (body["reward"], body["scores"]) == (truth["reward"], truth["scores"])


def test_openais_client_has_the_reward_itself(app: Any, truth: dict[str, Any]) -> None:
    with listening(app) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        answer: Any = client.chat.completions.create(model=HEAD, messages=cast(Any, ANSWERED))
        assert (answer.reward, answer.scores) == (truth["reward"], truth["scores"])
        (piece,) = client.chat.completions.create(model=HEAD, messages=cast(Any, ANSWERED), stream=True)
        assert (cast(Any, piece).reward, cast(Any, piece).scores) == (truth["reward"], truth["scores"])


def test_a_head_refuses_a_conversation_without_an_answer(app: Any) -> None:
    result = error(post(app, "/v1/chat/completions", {"model": HEAD, "messages": QUESTION}), 400)
    assert result["code"] == "no_final_assistant"


def test_one_output_is_called_reward() -> None:
    online_scorer = scorer("tiny-scalar")
    try:
        body = post(application([online_scorer]), "/v1/chat/completions", {"messages": ANSWERED}).json()
    finally:
        online_scorer.close()
    (message,) = body["choices"][0]["logprobs"]["content"]
    assert message["token"] == "reward"
    assert body["choices"][0]["message"]["content"] == f"reward:{message['logprob']}"


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    *pieces, end, _ = answer.text.split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces]


def test_a_stream_says_what_the_whole_says(app: Any) -> None:
    for model, messages in ((HEAD, ANSWERED), (JUDGE, COMPARED)):
        body = {"model": model, "messages": messages, "temperature": 0, "stream_options": {"include_usage": True}}
        whole = post(app, "/v1/chat/completions", body).json()["choices"][0]
        pieces = events(post(app, "/v1/chat/completions", {**body, "stream": True}))
        choices = [choice for piece in pieces for choice in piece["choices"]]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        assert text == whole["message"]["content"] != ""
        assert choices[-1]["finish_reason"] == whole["finish_reason"]
        assert pieces[-1]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>3 and 4</think>\n7", "3 and 4", "7"),
        (" <think>3 and 4</think>7", "3 and 4", "7"),
        ("<think>3 and", "3 and", ""),
        ("3 and 4</think>\n7", None, "3 and 4</think>\n7"),
        ("7 < 9", None, "7 < 9"),
        ("", None, ""),
    ],
)
def test_the_reasoning_that_a_text_begins_with_is_apart(text: str, reasoning: str | None, content: str) -> None:
    assert _split_reasoning(text) == (reasoning, content)


def test_openais_client_reads_a_stream_as_it_usually_does(app: Any) -> None:
    """Every piece has a choice, unless the usage is asked for: then it comes last, and has none."""
    with listening(app) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        for model, messages in ((HEAD, ANSWERED), (JUDGE, COMPARED)):
            arguments: Any = {"model": model, "messages": messages, "temperature": 0}
            whole = client.chat.completions.create(**arguments).choices[0].message.content
            stream = client.chat.completions.create(**arguments, stream=True)
            assert "".join(piece.choices[0].delta.content or "" for piece in stream) == whole
            silent = client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": False})
            assert all(piece.choices for piece in silent)
            *pieces, last = client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True})
            assert all(piece.choices for piece in pieces)
            assert last.choices == []
            assert last.usage.total_tokens > 0


NOTHING = {
    "/v1/chat/completions": (
        {"messages": ANSWERED},
        {
            "tools": [], "tool_choice": "none", "logit_bias": {}, "min_p": 0, "repetition_penalty": 1.0, "n": None,
            "presence_penalty": 0.0, "frequency_penalty": 0, "response_format": {"type": "text"}, "stream": None,
            "stream_options": None, "best_of": 1, "top_p": None, "ignore_eos": False, "reasoning_effort": None,
        },
    ),
    "/v1/rewards": ({"conversations": [{"messages": ANSWERED}]}, {"trace": None, "activation": None}),
    "/pooling": ({"messages": ANSWERED}, {"add_special_tokens": None, "chat_template": None, "padding": False}),
    "/classify": ({"messages": ANSWERED}, {"text": None, "rid": None, "continue_final_message": False, "image_data": None}),
    "/v1/embeddings": ({"messages": ANSWERED}, {"dimensions": None, "encoding_format": "float", "priority": 0}),
    "/score": ({"data_1": "a", "data_2": "b"}, {"queries": None, "documents": None, "max_tokens_per_doc": 0}),
    "/rerank": (  # langchain-cohere's, whose `rerank` sends what isn't given as null
        {"query": "a", "documents": ["b", "c"]},
        {"max_tokens_per_doc": None, "top_n": None, "return_documents": None, "rank_fields": None, "priority": 0},
    ),
    "/get_reward?model=" + HEAD: ({"query": []}, {"prompts": None, "labels": None, "reward_kwargs": None}),
    "/compare": (
        {"conversation_history": QUESTION, "response_objs": [{"output": []}]},
        {"principle": None, "response_create_params": None},
    ),
}  # fmt: skip


def test_a_field_that_asks_for_nothing_passes(app: Any) -> None:
    for path, bodies in NOTHING.items():
        body, nothing = cast(tuple[dict[str, Any], dict[str, Any]], bodies)
        named = {} if "model=" in path else {"model": HEAD}
        answers = [post(app, path, {**named, **body, **more}) for more in ({}, nothing)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
        without, with_ = (without_its_name(answer.json()) for answer in answers)
        assert with_ == without


def without_its_name(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in {"id", "created"}}


def test_a_field_that_asks_for_what_isnt_done_is_refused(app: Any) -> None:
    cases: list[tuple[str, str, Any]] = [
        ("/v1/chat/completions", "tool_choice", "required"),
        ("/v1/chat/completions", "logit_bias", {"5": 100}),
        ("/v1/chat/completions", "min_p", 0.1),
        ("/v1/chat/completions", "min_p", False),
        ("/v1/chat/completions", "repetition_penalty", 1.1),
        ("/v1/chat/completions", "presence_penalty", 0.5),
        ("/v1/chat/completions", "response_format", {"type": "json_object"}),
        ("/v1/chat/completions", "stream_options", {"include_usage": True, "more": 1}),
        ("/pooling", "chat_template", "{{ messages }}"),
        ("/pooling", "padding", True),
        ("/rerank", "max_tokens_per_doc", 512),
        ("/score", "instruction", "be kind"),
    ]
    for path, name, value in cases:
        body = {"model": HEAD, **cast(dict[str, Any], NOTHING[path][0]), name: value}
        assert error(post(app, path, body), 400)["param"].startswith(name)


@pytest.mark.parametrize(
    "messages",
    [
        [*COMPARED, {"role": "response_1", "content": "8"}],
        [*COMPARED, {"role": "principle", "content": "brevity"}],
        [*COMPARED, *QUESTION],
    ],
    ids=["a response twice", "two principles", "a turn after them"],
)
def test_no_turn_in_a_judges_role_is_lost(app: Any, messages: list[Any]) -> None:
    """Of two in one role the last would win without a word, and a later turn would slip before them."""
    assert error(post(app, "/v1/chat/completions", {"model": JUDGE, "messages": messages}), 400)["param"] == "messages"
    body = {"model": JUDGE, "conversations": [{"messages": messages}]}
    assert error(post(app, "/v1/rewards", body), 400)["param"] == "messages"


WHO = {
    "user": "somebody",
    "safety_identifier": "a",
    "prompt_cache_key": "b",
    "prompt_cache_retention": "24h",
    "store": True,
    "service_tier": "flex",
    "metadata": {"run": "7"},
}


def test_who_asks_changes_no_answer(app: Any) -> None:
    for path in ("/v1/chat/completions", "/pooling", "/classify", "/v1/embeddings", "/score", "/rerank"):
        body = {"model": HEAD, **cast(dict[str, Any], NOTHING[path][0])}
        answers = [post(app, path, {**body, **more}) for more in ({}, WHO)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
        without, with_ = (without_its_name(answer.json()) for answer in answers)
        assert with_ == without


@pytest.mark.parametrize("stream", [False, True])
def test_a_head_has_one_reward_however_many_are_asked_for(app: Any, stream: bool) -> None:
    body = {"model": HEAD, "messages": ANSWERED, "stream": stream}
    result = error(post(app, "/v1/chat/completions", {**body, "n": 4}), 400)
    assert result["param"] == "n"
    assert result["message"] == f"{HEAD} writes no text, and has one reward for a response: n can only be 1"
    assert post(app, "/v1/chat/completions", {**body, "n": 1}).status_code == 200


def test_a_stream_that_cant_begin_is_an_error(app: Any) -> None:
    text = [*COMPARED[:-1], {"role": "response_2", "content": "9 <|im_end|>"}]
    result = error(post(app, "/v1/chat/completions", {"model": JUDGE, "messages": text, "stream": True}), 400)
    assert result["code"] == "control_token"


def test_a_judge_takes_responses_as_metadata(app: Any) -> None:
    metadata = {"principle": "correctness", "response_1": "7", "response_2": "9"}
    body = {"model": JUDGE, "temperature": 0}
    in_roles = post(app, "/v1/chat/completions", {**body, "messages": COMPARED}).json()
    beside = post(app, "/v1/chat/completions", {**body, "messages": QUESTION, "metadata": metadata}).json()
    assert in_roles["choices"] == beside["choices"]


def test_what_a_judge_cant_do_is_refused(app: Any) -> None:
    body = {"model": JUDGE, "messages": COMPARED}
    for more in ({"logprobs": True}, {"top_logprobs": 2}):
        assert error(post(app, "/v1/chat/completions", {**body, **more}), 400)["param"] == "logprobs"
    assert error(post(app, "/v1/chat/completions", {**body, "n": 2, "temperature": 0}), 400)["param"] == "n"
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    assert error(post(app, "/v1/chat/completions", {**body, "tools": tools}), 400)["code"] == "tool_call"
    drawn = post(app, "/v1/chat/completions", {**body, "n": 3, "temperature": 0.7}).json()
    assert len(drawn["choices"]) == 3


# vLLM's and SGLang's.


def test_pooling_shows_the_outputs_of_a_head_and_no_hidden_states() -> None:
    item = scorer("tiny-qrm")
    try:
        app = application([item])
        (pooled,) = post(app, "/pooling", {"messages": ANSWERED}).json()["data"]
        (scored,) = post_rewards(app, model="tiny-qrm", conversations=[{"messages": ANSWERED}])["data"][0]["responses"]
    finally:
        item.close()
    assert pooled["data"] == list(scored["scores"].values())
    assert scored["scores"].keys() == {"score", *NAMES}


def test_pooling_gives_raw_outputs(app: Any, truth: dict[str, Any]) -> None:
    body = {"model": HEAD, "messages": ANSWERED}
    (raw,) = post(app, "/pooling", body).json()["data"]
    assert len(raw["data"]) == 9
    assert raw["data"][4:] == list(truth["scores"].values())
    (activated,) = post(app, "/pooling", {**body, "use_activation": True}).json()["data"]
    assert sum(activated["data"]) == pytest.approx(1.0)
    (packed,) = post(app, "/pooling", {**body, "encoding_format": "base64"}).json()["data"]
    assert struct.unpack("<9f", base64.b64decode(packed["data"])) == pytest.approx(raw["data"])
    assert error(post(app, "/pooling", {**body, "activation": True, "softmax": False}), 400)["param"] == "use_activation"
    assert error(post(app, "/pooling", {**body, "normalize": True}), 400)["param"] == "normalize"
    assert error(post(app, "/pooling", {"model": HEAD}), 400)["param"] == "input"
    assert error(post(app, "/pooling", {"model": JUDGE, "messages": ANSWERED}), 400)


def test_prompts_of_the_clients_own_are_read_as_they_are(app: Any, truth: dict[str, Any]) -> None:
    model = resolve_model(ModelSettings(model=HEAD), RenderSettings())
    context = (Message(Role.USER, "What is 3 + 4?"),)
    question = Question(context, ("7",), (0,))
    text = model.family.text(question, lambda *_, **__: "")
    assert "<extra_id_1>" in text, "control tokens, which are meant here"
    data = post(app, "/pooling", {"model": HEAD, "input": [text, text + "x"]}).json()["data"]
    assert data[0]["data"][4:] == list(truth["scores"].values())
    assert data[1]["data"] != data[0]["data"]


def test_a_beginning_is_there_once() -> None:
    online_scorer = scorer("tiny-scalar")
    app = application([online_scorer])
    try:
        with_begin, without = (post(app, "/pooling", {"input": text}).json() for text in ("<s>hello", "hello"))
        bare = post(app, "/pooling", {"input": "hello", "add_special_tokens": False}).json()
    finally:
        online_scorer.close()
    assert with_begin["data"] == without["data"]
    assert with_begin["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"]
    assert bare["data"] != without["data"] or bare["usage"] == without["usage"]


def test_classify_gives_the_reward_unless_an_activation_is_asked_for(app: Any, truth: dict[str, Any]) -> None:
    body = {"model": HEAD, "messages": ANSWERED}
    (entry,) = post(app, "/classify", body).json()["data"]
    assert entry["probs"] == [truth["reward"]]
    assert entry["scores"] == truth["scores"]
    (activated,) = post(app, "/classify", {**body, "activation": True}).json()["data"]
    assert sum(activated["probs"]) == pytest.approx(1.0)
    assert activated["num_classes"] == 9


def test_embeddings_are_the_reward_for_clients_that_read_the_last_number(app: Any, truth: dict[str, Any]) -> None:
    body = {"model": HEAD, "messages": ANSWERED}
    answer = post(app, "/v1/embeddings", body).json()
    (entry,) = answer["data"]
    assert entry == {"index": 0, "object": "embedding", "embedding": [truth["reward"]], "scores": truth["scores"]}
    assert answer["usage"]["prompt_tokens"] == truth["prompt_tokens"]
    (activated,) = post(app, "/v1/embeddings", {**body, "use_activation": True}).json()["data"]
    assert sum(activated["embedding"]) == pytest.approx(1.0)
    assert error(post(app, "/v1/embeddings", {**body, "dimensions": 1}), 400)["param"] == "dimensions"
    assert error(post(app, "/v1/embeddings", {"model": JUDGE, "input": "a"}), 400)


def test_openais_client_reads_rewards_as_embeddings(app: Any) -> None:
    """It asks for base64 unless it is told otherwise."""
    expected = [item["data"][4:] for item in post(app, "/pooling", {"model": HEAD, "input": ["a", "b"]}).json()["data"]]
    with listening(app) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        for how in ({}, {"encoding_format": "float"}):
            data: Any = client.embeddings.create(model=HEAD, input=["a", "b"], **cast(Any, how)).data
            assert [len(item.embedding) for item in data] == [1, 1]
            weights = resolve_model(ModelSettings(model=HEAD), RenderSettings()).weights
            for entry, outputs in zip(data, expected, strict=True):
                reward = sum(weights.get(name, 0) * value for name, value in zip(NAMES, outputs, strict=True))
                assert entry.embedding[0] == pytest.approx(reward, abs=1e-5)


def test_sglangs_classify_is_told_by_its_body(app: Any) -> None:
    alone = post(app, "/classify", {"model": HEAD, "text": "hello"}).json()
    several = post(app, "/classify", {"model": HEAD, "text": ["hello", "x"]}).json()
    assert alone["embedding"] == several[0]["embedding"] != several[1]["embedding"]
    ids = post(app, "/classify", {"model": HEAD, "input_ids": [[5, 6, 7], [8]]}).json()
    assert [item["meta_info"]["prompt_tokens"] for item in ids] == [3, 1]
    assert error(post(app, "/classify", {"model": HEAD, "text": "a", "input": "b"}), 400)["param"] == "input"


def test_score_and_rerank_are_the_rewards_of_answers(app: Any) -> None:
    answers = ["7", "9", "seven"]
    (entry,) = post_rewards(app, conversations=[{"messages": QUESTION, "responses": answers}])["data"]
    rewards = [response["reward"] for response in entry["responses"]]
    names = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
    for path, (query, document) in zip(("/score", "/v1/score") * 2, names, strict=True):
        body = post(app, path, {"model": HEAD, query: "What is 3 + 4?", document: answers}).json()
        assert [item["score"] for item in body["data"]] == rewards
    question = ["What is 3 + 4?"] * len(answers)
    for queries in (question[0], question):  # a judge of pairs compares the answers to one question with each other
        body = post(app, "/score", {"model": JUDGE, "queries": queries, "documents": answers}).json()
        assert [item["index"] for item in body["data"]] == [0, 1, 2]
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        body = {"model": HEAD, "query": "What is 3 + 4?", "documents": answers, "top_n": 2}
        results = post(app, path, body).json()["results"]
        assert [result["index"] for result in results] == entry["ranking"][:2]
        assert [result["relevance_score"] for result in results] == [rewards[index] for index in entry["ranking"][:2]]
        assert [result["document"]["text"] for result in results] == [answers[index] for index in entry["ranking"][:2]]
    refused = post(app, "/score", {"model": HEAD, "queries": ["a", "b"], "documents": ["c"]})
    assert error(refused, 400)["param"] == "queries"


HALF = "half \ud83d"
"""Of a character of UTF-16: JSON can name it, and it is no text."""


def test_what_cant_be_read_is_the_clients_mistake_and_told_by_its_place(app: Any) -> None:
    cases: list[tuple[str, dict[str, Any], str, str]] = [
        ("/pooling", {"input": HALF}, "input", "lone_surrogate"),
        ("/pooling", {"input": ["a", HALF, "b"]}, "input[1]", "lone_surrogate"),
        ("/pooling", {"input": [5, 2_000_000]}, "input", "unknown_token"),
        ("/pooling", {"input": [[5, 6], [5, 1024]]}, "input[1]", "unknown_token"),
        ("/pooling", {"input": ["a", ""]}, "input[1]", "empty_content"),
        ("/pooling", {"messages": [*QUESTION, {"role": "assistant", "content": HALF}]}, "messages", "lone_surrogate"),
        ("/classify", {"input": ["a", HALF]}, "input[1]", "lone_surrogate"),
        ("/classify", {"text": ["a", "b", HALF]}, "text[2]", "lone_surrogate"),
        ("/classify", {"text": HALF}, "text", "lone_surrogate"),
        ("/classify", {"input_ids": [[5], [2**31 - 1]]}, "input_ids[1]", "unknown_token"),
        ("/score", {"queries": "a", "documents": ["b", HALF]}, "documents[1]", "lone_surrogate"),
        ("/score", {"queries": "a", "documents": ["b", "9 <extra_id_1>"]}, "documents[1]", "control_token"),
        ("/score", {"queries": ["a", " "], "documents": ["b", "c"]}, "queries[1]", "empty_content"),
        ("/score", {"queries": HALF, "documents": ["b", "c"]}, "queries", "lone_surrogate"),
        ("/rerank", {"query": "a", "documents": ["b", "c", " "]}, "documents[2]", "empty_content"),
        ("/rerank", {"query": "a", "documents": ["b", "9 <extra_id_1>"]}, "documents[1]", "control_token"),
        ("/rerank", {"query": HALF, "documents": ["b"]}, "query", "lone_surrogate"),
    ]
    for path, body, place, reason in cases:
        result = error(post(app, path, {"model": HEAD, **body}), 400)
        assert (result["param"], result["code"]) == (place.partition("[")[0], reason)
        assert result["message"].startswith(f"{place}: ") == ("[" in place)


def test_an_item_that_is_too_long_is_told_by_its_place(app: Any) -> None:
    result = error(post(app, "/rerank", {"model": HEAD, "query": "a", "documents": ["b", "word " * 20_000]}), 413)
    assert result["message"].startswith("documents[1]: ")


def test_the_last_token_of_the_vocabulary_is_one(app: Any) -> None:
    assert post(app, "/pooling", {"model": HEAD, "input": [5, 1023]}).status_code == 200


@pytest.mark.parametrize("task", ["token_classify", "embed", "encode"])
def test_a_task_that_isnt_done_is_refused(app: Any, task: str) -> None:
    assert post(app, "/pooling", {"model": HEAD, "messages": ANSWERED, "task": "classify"}).status_code == 200
    assert error(post(app, "/pooling", {"model": HEAD, "messages": ANSWERED, "task": task}), 400)["param"] == "task"


def test_models_and_probes_are_there(app: Any) -> None:
    async def got() -> list[httpx.Response]:
        async with client(app) as entry:
            return [
                await entry.get(path) for path in ("/v1/models", f"/v1/models/{HEAD}", "/health", "/ready", "/docs", "/")
            ]

    listed, item, *others = asyncio.run(got())
    assert [model["id"] for model in listed.json()["data"]] == [HEAD, JUDGE]
    assert item.json()["outputs"] == list(NAMES)
    assert [answer.status_code for answer in others] == [200] * 4
