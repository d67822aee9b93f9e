"""Every wire format deals with reasoning in what is judged, as the endpoint or the request says."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.scorers.online import OnlineScorer
from tests.support.endpoints import QUESTION, application, post, rewards, scorer

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
THOUGHT = "<think>3 and 4, so 7.</think>\n\n7"
QUERY = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
FIELD = {"role": "assistant", "content": "7", "reasoning_content": "3 and 4, so 7."}


@pytest.fixture(scope="module")
def scorers() -> Iterator[list[OnlineScorer]]:
    made = [scorer(HEAD), scorer(HEAD, reasoning="strip"), scorer(HEAD, reasoning="keep")]
    yield made
    for item in made:
        item.close()


@pytest.fixture(scope="module")
def unsaid(scorers: list[OnlineScorer]) -> Any:
    return application(scorers[:1])


@pytest.fixture(scope="module")
def stripping(scorers: list[OnlineScorer]) -> Any:
    return application(scorers[1:2])


@pytest.fixture(scope="module")
def keeping(scorers: list[OnlineScorer]) -> Any:
    return application(scorers[2:])


def turns(answer: Any) -> list[Any]:
    return [*QUESTION, answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}]


FORMATS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "/v1/rewards": lambda answer: {"conversations": [{"messages": turns(answer)}]},
    "/v1/chat/completions": lambda answer: {"messages": turns(answer)},
    "/pooling": lambda answer: {"messages": turns(answer)},
    "/classify": lambda answer: {"messages": turns(answer)},
    "/score": lambda answer: {"queries": "What is 3 + 4?", "documents": [answer]},
    "/rerank": lambda answer: {"query": "What is 3 + 4?", "documents": [answer], "return_documents": False},
    "/get_reward": lambda answer: {"query": [QUERY.format(answer)]},
    "/compare": lambda answer: {"conversation_history": QUESTION, "response_objs": [{"output": items(answer)}]},
}


def items(answer: Any) -> list[dict[str, Any]]:
    """Of OpenAI's Responses API, in which the reasoning of an answer is an item of its own."""
    if not isinstance(answer, dict):
        return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}]
    return [_reasoning_item(answer["reasoning_content"]), *items(answer["content"])]


def _reasoning_item(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def without_ids(body: Any) -> Any:
    return {name: value for name, value in body.items() if name not in ("id", "created")}


def test_what_follows_the_reasoning_is_judged_where_it_is_stripped(stripping: Any) -> None:
    for path, body_of in FORMATS.items():
        answers = [post(stripping, path, body_of(text)) for text in (THOUGHT, "7")]
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        assert without_ids(answers[0].json()) == without_ids(answers[1].json())


def test_nothing_with_reasoning_has_a_reward_where_nobody_says_what_becomes_of_it(unsaid: Any) -> None:
    for path, body_of in FORMATS.items():
        for text in (THOUGHT, "<think>3 and 4"):
            answer = post(unsaid, path, body_of(text))
            assert answer.status_code in (200, 400, 422)
            assert '"reasoning"' in answer.text, answer.text
            assert '"status":"scored"' not in answer.text


def test_reasoning_in_a_field_of_its_own_counts(unsaid: Any, stripping: Any) -> None:
    request = FORMATS["/v1/rewards"](FIELD)
    assert post(unsaid, "/v1/rewards", request).json()["data"][0]["responses"][0]["reason"] == "reasoning"
    assert rewards(post(stripping, "/v1/rewards", request)) == rewards(
        post(stripping, "/v1/rewards", FORMATS["/v1/rewards"]("7"))
    )


def compared(app: Any, output: list[dict[str, Any]]) -> tuple[float | None, str | None]:
    body = {"conversation_history": QUESTION, "response_objs": [{"output": output}]}
    answer = post(app, "/compare", body).json()
    return answer["rewards"][0], answer["reasons"][0]


def test_reasoning_in_an_item_of_its_own_counts(unsaid: Any, stripping: Any, keeping: Any) -> None:
    summary = {"type": "reasoning", "content": None, "summary": [{"type": "summary_text", "text": "3 and 4, so 7."}]}
    for output in (items(FIELD), [summary, *items("7")]):
        assert compared(unsaid, output) == (None, "reasoning")
        assert compared(stripping, output) == compared(stripping, items("7"))
        of_ours = rewards(post(keeping, "/v1/rewards", FORMATS["/v1/rewards"](FIELD)))
        assert compared(keeping, output) == (*of_ours, None)
        assert compared(keeping, items("7"))[0] not in of_ours
    several = [_reasoning_item("3 and 4,"), _reasoning_item("so 7."), *items("7")]
    assert compared(keeping, several) == compared(keeping, items("<think>\n3 and 4,\n\nso 7.\n</think>\n\n7"))


@pytest.mark.parametrize("kind", ["reasoning", "function_call"])
def test_an_item_without_a_reasoning_that_can_be_read(kind: str, unsaid: Any) -> None:
    """Some models show none of it."""
    output = [{"type": kind, "summary": [], "encrypted_content": "x"}, *items("7")]
    expected = (None, "tool_call") if kind == "function_call" else compared(unsaid, items("7"))
    assert compared(unsaid, output) == expected


def test_a_request_in_our_own_format_may_say_it(unsaid: Any, stripping: Any) -> None:
    def handler(app: Any, answer: str, reasoning: str | None) -> Any:
        return rewards(post(app, "/v1/rewards", {**FORMATS["/v1/rewards"](answer), "reasoning": reasoning}))

    assert handler(unsaid, THOUGHT, "strip") == handler(unsaid, "7", None)
    assert handler(stripping, THOUGHT, "reject") == [None]
    assert handler(stripping, THOUGHT, "keep") not in ([None], handler(unsaid, "7", None))


def test_it_can_be_kept_for_a_model_that_knows_its_marks() -> None:
    """They are control tokens of the judge's template, which begins its answer with one."""
    model = scorer("tiny-rm-r1", reasoning="keep")
    try:
        conversation = {"messages": QUESTION, "responses": ["<think>\nhm\n</think>\n\n7", "9", "9 <think>"]}
        answer = post(application([model]), "/v1/rewards", {"conversations": [conversation]}).json()
        assert [response["reason"] for response in answer["data"][0]["responses"]] == [None, None, "control_token"]
    finally:
        model.close()
