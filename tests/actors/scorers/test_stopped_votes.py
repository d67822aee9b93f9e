"""Votes that end when those that are left can't change the verdict, by a fake engine that draws each by its seed."""

import re
from collections.abc import Sequence
from contextlib import closing
from random import Random
from typing import Any

import pytest

from actors.contracts.judge import STOP_OUTPUTS, Judge
from actors.contracts.stopping import Stopping
from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Sampling
from actors.errors import SettingsError
from actors.records import Prompt, Reason, RenderedRequest, RenderedResponse, Response, Score, ScoreRequest
from actors.reward_model import families
from actors.scorers.judge_scorer import JudgeScorer
from actors.settings.replica import Aggregate, JudgeSettings, Pairs, ReadSettings
from tests.support.models import user


def judge(family: str, rating: str = "pairwise", **settings: Any) -> Judge:
    chosen = families()[family].reading_by(ReadSettings(rating=rating))
    assert isinstance(chosen, Judge)
    with_settings = chosen.with_settings(JudgeSettings(**settings))
    if with_settings.asks.stop:
        Stopping(with_settings, with_settings.card_weights()).check()
    return with_settings


def score(
    judge: Judge, merits: Sequence[float], row: int = 0, unread: float = 0.0, token_of: Sequence[int] = range(9)
) -> tuple[tuple[Score, ...], int]:
    """The scores of a row, and how many texts they took. The larger the merit, the likelier a response is preferred.

    Responses whose `token_of` is the same are equal.
    """
    calls = []

    def reply(ids: Sequence[int], sampling: Sampling, _: int) -> str:
        calls.append(ids)
        draw = Random(f"{sampling.seed}")
        if draw.random() < unread:
            return "</think>I can't say."
        shown = [merits[token] for token in ids[1:]]
        if judge.name == "r3" and len(shown) == 1:
            return f'</think>{{"score": {str(draw.random() < shown[0]).lower()}}}'
        first = draw.random() < shown[0] / sum(shown)
        if judge.name == "rm-r1":
            return f"</think><answer>[[{'A' if first else 'B'}]]</answer>"
        better, worse = draw.choice((3, 4, 5)), draw.choice((1, 2))
        box = ", ".join(map(str, (better, worse) if first else (worse, better)))
        return (
            rf"</think>[The Begin of Individual Scores] \boxed{{{box}}} [The End of Individual Scores]"
            rf" [The Begin of Ranking Score] \boxed{{{2 if first else 5}}} [The End of Ranking Score]"
        )

    request = ScoreRequest((user(f"?{row}"),), tuple(Response(f"r[{at}]", str(at)) for at in range(len(merits))))
    prompts = tuple(
        Prompt(
            (1000 + row, *map(token_of.__getitem__, question.response_positions)),
            question.response_positions,
            times=question.times,
        )
        for question in judge.questions(request, range(len(merits)))
    )
    rendered = RenderedRequest(
        request.prompt_hash, tuple(RenderedResponse(response.name) for response in request.responses), prompts
    )
    with closing(FakeEngine(0, 1000, reply=reply)) as engine:
        ((*scores,),) = JudgeScorer(judge, judge.card_weights(), engine, 50).score_block([rendered])
    return tuple(scores), len(calls)


def winner(scores: Sequence[Score]) -> int:
    first, second = (score.reward or 0 for score in scores)
    return (first > second) - (first < second)


@pytest.mark.parametrize("family", ["rm-r1", "genrm-boxed"])
def test_the_verdict_is_that_of_all_votes_for_fewer_of_them(family: str) -> None:
    plain, stopping = (judge(family, votes=32, stop=stop) for stop in (False, True))
    taken = changed = 0
    for row in range(60):
        merits = Random(row).choice([(19.0, 1.0), (1.0, 30.0), (1.0, 0.0), (3.0, 2.0)])
        (of_all, _), (of_few, count) = score(plain, merits, row), score(stopping, merits, row)
        changed += winner(of_all) != winner(of_few)
        taken += count
        assert {sample.scores["votes_taken"] for sample in of_few} == {float(count)}
        assert {sample.scores["votes_settled"] for sample in of_few} == {float(count < 32)}
        assert all(name not in sample.scores for name in STOP_OUTPUTS for sample in of_all)
    assert changed <= 1
    assert taken < (0.5 if family == "rm-r1" else 0.7) * 60 * 32


def test_the_votes_that_are_taken_are_those_of_the_full_run() -> None:
    plain, stopping = (judge("rm-r1", votes=16, stop=stop, trace=True) for stop in (False, True))
    (all_votes, _), (few, count) = score(plain, (9.0, 1.0)), score(stopping, (9.0, 1.0))
    assert 0 < count < 16
    assert {answer.text for answer in few[0].trace} <= {answer.text for answer in all_votes[0].trace}
    assert score(stopping, (9.0, 1.0))[0] == few  # the same draw each time


def test_a_knock_out_and_a_circle_settle_each_pair() -> None:
    for pairs in (Pairs.ACTIVE, Pairs.CIRCULAR):
        scores, count = score(judge("rm-r1", votes=16, stop=True, pairs=pairs), (1.0, 100.0, 10_000.0))
        assert max(range(3), key=lambda at: scores[at].reward or 0) == 2
        assert count < 16 * (2 if pairs is Pairs.ACTIVE else 3)


def test_a_single_response_is_settled_by_its_side_of_the_cut() -> None:
    scores, count = score(judge("r3", "binary", votes=32, stop=True), (0.98,))
    assert (count, scores[0].reward) == (8, 1.0)
    with pytest.raises(SettingsError, match=r"judge\.stop_at"):
        judge("r3", "pointwise", votes=32, stop=True)
    judge("r3", "pointwise", votes=32, stop=True, stop_at=3.5)


@pytest.mark.parametrize(("family", "pairs"), [("r3", {}), ("rm-r1", {"pairs": Pairs.ALL})])
def test_equal_responses_have_equal_rewards(family: str, pairs: dict[str, Any]) -> None:
    """Alone, or each beside a third one: 0 and 2 are equal, and the judge is in doubt."""
    stopping = judge(family, "pairwise" if pairs else "binary", votes=32, stop=True, **pairs)
    for row in range(20):
        scores, _ = score(stopping, (0.8, 0.5, 0.8), row, token_of=(0, 1, 0))
        assert scores[0].reward == scores[2].reward


def test_texts_without_a_verdict_settle_nothing() -> None:
    scores, count = score(judge("rm-r1", votes=16, stop=True, reask=0), (1.0, 0.0), unread=0.9)
    assert count == 16
    assert {sample.reason for sample in scores} == {Reason.NO_VERDICT}


@pytest.mark.parametrize(
    ("family", "settings", "word"),
    [
        ("reward-anything", {"votes": 32}, "a list of responses"),
        ("rm-r1", {"votes": 32, "aggregate": Aggregate.BRADLEY_TERRY}, "Bradley-Terry"),
        ("genrm-principle", {"votes": 32}, "has none"),
        ("rm-r1", {"votes": 2}, "--votes 4"),
        ("rm-r1", {"votes": 32, "stop_at": 0.5}, "of one response"),
    ],
)
def test_what_has_no_verdict_to_settle_is_refused(family: str, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(word)):
        judge(family, stop=True, **settings)
