"""Every wire format deals with reasoning in what is judged, as the endpoint or the request says."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.online import OnlineScorer
from tests.endpoints import QUESTION, application, post, rewards, scorer

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
THOUGHT = "<think>3 and 4, so 7.</think>\n\n7"
QUERY = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
FIELD = {"role": "assistant", "content": "7", "reasoning_content": "3 and 4, so 7."}


@pytest.fixture(scope="module")
def scorers() -> Iterator[list[OnlineScorer]]:
    made = [scorer(HEAD), scorer(HEAD, reasoning="strip")]
    yield made
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def unsaid(scorers: list[OnlineScorer]) -> Any:
    return application(scorers[:1])


@pytest.fixture(scope="module")
def stripping(scorers: list[OnlineScorer]) -> Any:
    return application(scorers[1:])


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
    "/compare": lambda answer: {
        "conversation_history": QUESTION,
        "response_objs": [
            {"output": [{"type": "message", "content": [{"type": "output_text", "text": answer}]}]},
        ],
    },
}


def without_ids(body: Any) -> Any:
    return {name: value for name, value in body.items() if name not in ("id", "created")}


@pytest.mark.parametrize("path", FORMATS)
def test_what_follows_the_reasoning_is_judged_where_it_is_stripped(path: str, stripping: Any) -> None:
    answers = [post(stripping, path, FORMATS[path](text)) for text in (THOUGHT, "7")]
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    assert without_ids(answers[0].json()) == without_ids(answers[1].json())


@pytest.mark.parametrize("path", FORMATS)
def test_nothing_with_reasoning_has_a_reward_where_nobody_says_what_becomes_of_it(path: str, unsaid: Any) -> None:
    for text in (THOUGHT, "<think>3 and 4"):
        answer = post(unsaid, path, FORMATS[path](text))
        assert answer.status_code in (200, 400, 422)
        assert '"reasoning"' in answer.text, answer.text
        assert '"status":"scored"' not in answer.text


def test_reasoning_in_a_field_of_its_own_counts(unsaid: Any, stripping: Any) -> None:
    asked = FORMATS["/v1/rewards"](FIELD)
    assert post(unsaid, "/v1/rewards", asked).json()["data"][0]["responses"][0]["reason"] == "reasoning"
    assert rewards(post(stripping, "/v1/rewards", asked)) == rewards(
        post(stripping, "/v1/rewards", FORMATS["/v1/rewards"]("7"))
    )


def test_a_request_in_our_own_format_may_say_it(unsaid: Any, stripping: Any) -> None:
    def asked(app: Any, answer: str, reasoning: str | None) -> Any:
        return rewards(post(app, "/v1/rewards", {**FORMATS["/v1/rewards"](answer), "reasoning": reasoning}))

    assert asked(unsaid, THOUGHT, "strip") == asked(unsaid, "7", None)
    assert asked(stripping, THOUGHT, "reject") == [None]
    assert asked(stripping, THOUGHT, "keep") not in ([None], asked(unsaid, "7", None))
