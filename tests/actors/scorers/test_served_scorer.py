"""Answers of an endpoint of `assay serve`, by what its card says of them."""

from typing import Any, cast

import pytest

from actors.contracts.served import Served
from actors.endpoint.endpoint_engine import EndpointEngine
from actors.errors import EndpointError
from actors.scorers.served_scorer import ServedScorer

CARD = {"identity": {}, "kind": "head", "outputs": ["reward"]}
RESPONSE = {
    "status": "scored", "reason": None, "reward": 1.5, "scores": {"reward": 1.5}, "prompt_tokens": 7, "truncated": False,
    "completion_tokens": None,
}  # fmt: skip
ANSWER: dict[str, Any] = {"data": [{"responses": [RESPONSE]}]}


def rewards(card: dict[str, Any], answer: dict[str, Any]) -> list[float | None]:
    scorer = ServedScorer(Served(card), cast("EndpointEngine", None))
    return [score.reward for score in scorer._read(answer, 1)]


def test_answers_of_an_endpoint_that_has_no_fingerprint_yet_are_read() -> None:
    assert rewards(CARD, ANSWER) == [1.5]


def test_an_answer_of_another_model_ends_the_run_and_one_that_is_none_is_asked_for_again() -> None:
    card = {**CARD, "system_fingerprint": "a"}
    assert rewards(card, {**ANSWER, "system_fingerprint": "a"}) == [1.5]
    with pytest.raises(EndpointError, match=r"another model .* \(fingerprint b, at the start a\)"):
        rewards(card, {**ANSWER, "system_fingerprint": "b"})
    with pytest.raises(KeyError):
        rewards(card, ANSWER)
