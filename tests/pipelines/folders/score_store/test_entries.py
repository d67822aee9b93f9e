"""What is an entry of its own, what is in its key, and that its scores come back to the last bit."""

from dataclasses import fields, replace
from typing import Any

import pytest

from actors.records import Prompt, Reason, RenderedRequest, RenderedResponse, Score
from actors.reward_model import families
from pipelines.folders.score_store.entries import StoredUnit, decode, encode, is_lasting, key_of, units_of
from tests.support.stores import CountingScorer, pair, request


def key(some: RenderedRequest, identity: str = "a") -> bytes:
    (unit,) = units_of(some, compares=False)
    return key_of(identity, unit)


def test_responses_with_prompts_of_their_own_are_stored_by_themselves() -> None:
    first, second = units_of(request([1, 2], [3]), compares=False)
    assert (first.positions, second.positions) == ((0,), (1,))
    assert [prompt.ids for prompt in second.request.prompts] == [(3,)]
    assert second.request.prompts[0].response_positions == (0,)
    assert key_of("a", second) == key(request([3], names=["chosen"])), "whatever the row, and the name in it"


def test_responses_that_are_compared_are_stored_together() -> None:
    assert [unit.positions for unit in units_of(pair([1], [2]), compares=False)] == [(0, 1)]
    assert [unit.positions for unit in units_of(request([1], [2]), compares=True)] == [(0, 1)]
    assert [families()[name].compares for name in ("mean-variance", "five-class", "scalar")] == [True, True, False]


def test_what_was_rejected_before_a_prompt_is_in_no_unit() -> None:
    refused = RenderedRequest(
        "hash",
        (RenderedResponse("A", Reason.TOO_LONG), RenderedResponse("B")),
        (Prompt((1, 2), (1,)),),
    )
    assert [unit.positions for unit in units_of(refused, compares=False)] == [(1,)]
    assert units_of(replace(refused, responses=refused.responses[:1], prompts=()), compares=False) == []


PROMPT = Prompt((1, 2, 3), (0,))


CHANGES: list[dict[str, Any]] = [
    *({"ids": ids} for ids in ((1, 2), (1, 2, 4))),
    {"response_positions": (0, 0)},
    {"at": (1,)},
    {"times": 2},
    {"opening": "<think>"},
    {"principle": "x"},
    {"redraw": 1},
    {"criteria": "[]"},
    {"texts": ("x",)},
]


def test_every_field_of_a_prompt_is_changed_below() -> None:
    """A new field that decides a score and isn't in the key would replay the scores of another request."""
    assert {name for change in CHANGES for name in change} == {field.name for field in fields(Prompt)}


def test_all_that_a_scorer_is_given_is_in_the_key() -> None:
    for change in CHANGES:
        whole = RenderedRequest("hash", (RenderedResponse("A"),), (PROMPT,))
        assert key(replace(whole, prompts=(replace(PROMPT, **change),))) != key(whole)


def test_the_identity_and_what_rendering_noted_are_in_the_key_and_places_are_not() -> None:
    whole = RenderedRequest("hash", (RenderedResponse("A"),), (PROMPT,))
    assert key(whole, "b") != key(whole)
    for noted in (RenderedResponse("A", truncated=True), RenderedResponse("A", reasoned=True)):
        assert key(replace(whole, responses=(noted,))) != key(whole)
    assert key(replace(whole, prompt_hash="other", responses=(RenderedResponse("turn[3]"),))) == key(whole)
    two = replace(whole, prompts=(replace(PROMPT, ids=(1,)), replace(PROMPT, ids=(2, 3))))
    other = replace(whole, prompts=(replace(PROMPT, ids=(1, 2)), replace(PROMPT, ids=(3,))))
    assert key(two) != key(other), "where one prompt ends is in the key"


def test_scores_come_back_to_the_last_bit_under_the_names_of_the_row_that_asks() -> None:
    rendered_request = pair([1, 2], [3])
    (scores,) = CountingScorer()([rendered_request])
    (unit,) = units_of(rendered_request, compares=False)
    (other,) = units_of(pair([1, 2], [3], names=("chosen", "rejected")), compares=False)
    again = decode(unit, encode(unit, scores))
    assert again == scores
    assert [repr(score.reward) for score in again] == [repr(score.reward) for score in scores]
    assert repr(again[0].scores["zero"]) == "-0.0"
    assert all(score.from_store and score.cached_tokens is None for score in again)
    assert [answer.shown for answer in decode(other, encode(unit, scores))[0].trace] == [("chosen", "rejected")]


def test_only_what_would_come_again_lasts() -> None:
    assert is_lasting((Score.rejected(Reason.NO_OPPONENT),))
    assert not is_lasting((Score.rejected(Reason.NO_OPPONENT), Score.failed(Reason.ENGINE_TIMEOUT)))


def test_another_form_is_no_score() -> None:
    for value in (b"", b"[]", b"[{}]", b"{", b"[1]", b'[{"status": "great"}]'):
        unit = StoredUnit(request([1]), (0,))
        with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
            decode(unit, value)
