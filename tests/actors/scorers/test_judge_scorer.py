"""What a judge writes becomes scores: votes, orders, re-asks, failures. By a fake engine that says what a test wants."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from actors.contracts.judge import Judge
from actors.engine.fake_engine import FakeEngine, FakeFault
from actors.engine.protocol import Generation, Sampling
from actors.errors import EngineDead, EngineError, EngineTimeout, PromptRefused, SettingsError
from actors.records import (
    Prompt,
    Reason,
    RenderedRequest,
    RenderedResponse,
    Response,
    Score,
    ScoreRequest,
    Status,
)
from actors.reward_model import families
from actors.scorers.judge_scorer import JudgeScorer
from actors.settings.replica import AS_PUBLISHED, Aggregate, JudgeSettings, Pairs, ReadSettings
from pipelines.folders.score_store.entries import is_lasting
from pipelines.settings.rescore_settings import RETRIED
from tests.support.models import user

Reply = Callable[[Sequence[int], Sampling], str]
ANSWER_TOKENS = 50


def judge(family: str = "rm-r1", read: ReadSettings = AS_PUBLISHED, **settings: Any) -> Judge:
    actual_family = families()[family].reading_by(read)
    assert isinstance(actual_family, Judge)
    return actual_family.with_settings(JudgeSettings(**settings))


POINTWISE = ReadSettings(rating="pointwise")
"""R3 on a response alone."""


def prompts(judge: Judge, count: int) -> tuple[Prompt, ...]:
    """As the renderer makes them; the ids of a prompt are the responses that it shows."""
    score_request = ScoreRequest((user("?"),), tuple(Response(f"r[{index}]", str(index)) for index in range(count)))
    return tuple(
        Prompt(question.response_positions, question.response_positions, times=question.times)
        for question in judge.questions(score_request, range(count))
    )


def request(judge: Judge, count: int) -> RenderedRequest:
    return RenderedRequest("hash", tuple(RenderedResponse(f"r[{index}]") for index in range(count)), prompts(judge, count))


def score(
    judge: Judge,
    reply: Reply,
    rendered: RenderedRequest | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    rehearsal: bool = False,
    **engine: Any,
) -> tuple[Score, ...]:
    """The scores of a request, of two responses by default, from an engine that writes as `reply` says."""
    with closing(FakeEngine(0, 1000, reply=lambda ids, sampling, number: reply(ids, sampling), **engine)) as fake:
        scorer = JudgeScorer(judge, weights or judge.card_weights(), fake, ANSWER_TOKENS, rehearsal=rehearsal)
        return scorer.score_block([rendered or request(judge, 2)])[0]


class Judged:
    """Scores of one request, and all that was asked for them."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], Sampling]] = []

    @property
    def shown(self) -> list[tuple[int, ...]]:
        """The responses that each prompt showed."""
        return [ids for ids, _ in self.calls]

    def scores(self, judge: Judge, reply: Reply, count: int = 2, **engine: Any) -> tuple[Score, ...]:
        def record(ids: Sequence[int], sampling: Sampling) -> str:
            self.calls.append((tuple(ids), sampling))
            return reply(ids, sampling)

        return score(judge, record, request(judge, count), **engine)


@pytest.fixture
def judged() -> Judged:
    return Judged()


def prefers(better: Callable[[int, int], bool]) -> Reply:
    """RM-R1's text of one who prefers the first shown if `better(first, second)`."""
    return lambda ids, sampling: f"</think>so <answer>[[{'A' if better(*ids) else 'B'}]]</answer>"


def grades(values: Mapping[int, int] | None = None) -> Reply:
    """The text of a judge that grades by position: as `values` say, or one more than the position."""
    return lambda ids, sampling: boxed(ids, values or {index: index + 1 for index in ids})


LARGER = prefers(lambda first, second: first > second)
FIRST = prefers(lambda first, second: True)


def boxed(ids: Sequence[int], grades: Mapping[int, int]) -> str:
    """The 49B's text for grades by position."""
    box = ", ".join(str(grades[index]) for index in ids)
    text = rf"[The Begin of Individual Scores] \boxed{{{box}}} [The End of Individual Scores]"
    if len(ids) == 1:
        return text
    ranking = 1 if grades[ids[0]] > grades[ids[1]] else 6
    return rf"{text} [The Begin of Ranking Score] \boxed{{{ranking}}} [The End of Ranking Score]"


# Orders and votes.


def test_what_decided_is_kept_cut_to_its_ends() -> None:
    unread, read = f"I think {'so-' * 500}the end", f"</think>{'so-' * 500}<answer>[[A]]</answer>"
    for text, ending in ((unread, "the end"), (read, "<answer>[[A]]</answer>")):
        reply: Reply = functools.partial(lambda text, *_: text, text)
        (detail,) = {each.detail for each in score(judge(), reply)}
        assert detail.startswith(text[:100])
        assert detail.endswith(ending)
        assert len(detail) < 420


def test_both_orders_are_asked_and_the_swapped_one_is_read_back(judged: Judged) -> None:
    scores = judged.scores(judge(), LARGER)
    assert judged.shown == [(0, 1), (1, 0)]
    assert [score.reward for score in scores] == [0.0, 1.0]
    assert [score.votes for score in scores] == [(0.0, 0.0), (1.0, 1.0)]
    assert scores[1].scores["win_rate"] == 1.0


def test_a_judge_that_always_says_the_first_has_said_nothing_and_is_biased(judged: Judged) -> None:
    scores = judged.scores(judge(), FIRST)
    assert [score.reward for score in scores] == [0.5, 0.5]
    assert [score.scores["order_decided"] for score in scores] == [1.0, 1.0]
    assert [score.scores["first_preferred"] for score in scores] == [1.0, 1.0]


def test_votes_are_half_in_each_order_and_their_spread_is_told(judged: Judged) -> None:
    """By ten votes, of which the draw decides: each has a seed of its own, the same every time."""
    boxing = judge("genrm-boxed", votes=10)

    def reply(ids: Sequence[int], sampling: Sampling) -> str:
        return boxed(ids, {0: 1 + (sampling.seed or 0) % 5, 1: 5})

    scores = judged.scores(boxing, reply)
    assert judged.shown == [(0, 1)] * 5 + [(1, 0)] * 5
    assert len({sampling.seed for _, sampling in judged.calls}) == 10
    assert {(sampling.temperature, sampling.top_p) for _, sampling in judged.calls} == {(0.6, 0.95)}
    votes = scores[0].votes
    assert len(votes) == 10
    assert scores[0].reward == pytest.approx(sum(votes) / 10)
    assert scores[0].scores["judgements"] == 10.0
    assert scores[0].scores["reward_std"] == pytest.approx((sum((vote - sum(votes) / 10) ** 2 for vote in votes) / 9) ** 0.5)
    assert scores[1].votes == (5.0,) * 10
    assert Judged().scores(boxing, reply) == scores


def test_another_seed_draws_others_and_shows_lists_in_another_order(judged: Judged) -> None:
    for seed in (0, 1):
        judged.scores(judge("genrm-boxed", votes=8, seed=seed), lambda ids, _: boxed(ids, dict.fromkeys(ids, 3)))
    assert len({sampling.seed for _, sampling in judged.calls}) == 16
    lists = [prompts(judge("reward-anything", seed=seed), 6) for seed in range(4)]
    assert len({tuple(prompt.response_positions for prompt in shown) for shown in lists}) == 4


def test_a_single_judgement_is_asked_as_the_card_or_the_user_says(judged: Judged) -> None:
    judged.scores(judge("genrm-boxed"), grades({0: 1, 1: 5}))
    judged.scores(judge("genrm-boxed", temperature=0.3, top_p=0.8), grades({0: 1, 1: 5}))
    (ids, by_card), (_, by_user) = judged.calls
    assert ids == (0, 1)
    assert (by_card.temperature, by_card.top_p, by_card.seed, by_card.max_tokens) == (0.0, 1.0, None, ANSWER_TOKENS)
    assert (by_user.temperature, by_user.top_p) == (0.3, 0.8)


def test_a_response_alone_is_graded_without_a_ranking(judged: Judged) -> None:
    (score,) = judged.scores(judge("genrm-boxed"), grades({0: 4}), count=1)
    assert (score.reward, score.scores) == (4.0, {"score": 4.0, "judgements": 1.0})


def test_settings_that_dont_fit_a_judge_are_refused() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("genrm-boxed", {"votes": 3, "temperature": 0}, "--votes 3 at judge.temperature=0 would all be the same"),
        ("genrm-principle", {"votes": 2, "temperature": 0}, "--votes 2 at judge.temperature=0"),
        ("reward-anything", {"pairs": "active"}, "--pairs active: reward-anything doesn't compare two responses at a time"),
        (
            "genrm-principle",
            {"aggregate": "win-rate"},
            "judge.aggregate=win-rate: genrm-principle doesn't compare responses",
        ),
    ]
    for family, settings, message in cases:
        with pytest.raises(SettingsError, match=message):
            judge(family, **settings)
    assert judge("genrm-boxed", votes=2, temperature=0).votes == 2
    assert judge("reward-anything", votes=5, temperature=0).votes == 5, "they have orders of their own"


# Several responses.


@pytest.mark.parametrize(
    ("pairs", "count", "expected"),
    [
        ("circular", 2, [(0, 1)]),
        ("circular", 4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
        ("all", 4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ("active", 4, [(0, 1), (2, 3), (1, 3)]),
    ],
)
def test_which_pairs_are_compared(judged: Judged, pairs: str, count: int, expected: list[tuple[int, int]]) -> None:
    scores = judged.scores(judge("genrm-boxed", pairs=pairs), grades(), count)
    assert judged.shown == expected
    assert [score.reward for score in scores] == [float(index + 1) for index in range(count)]


def test_a_judge_that_names_winners_compares_all_with_all_unless_another_choice_is_made(judged: Judged) -> None:
    order = [3, 0, 4, 1, 2]
    scores = judged.scores(judge(), prefers(lambda first, second: order[first] > order[second]), 5)
    rewards = [score.reward or 0.0 for score in scores]
    assert sorted(range(5), key=rewards.__getitem__) == sorted(range(5), key=order.__getitem__)
    choices = {
        (family, pairs): judge(family, pairs=pairs).recorded(9)["pairs"]
        for family in ("rm-r1", "rm-r1-instruct", "r3", "genrm-boxed", "genrm-json")
        for pairs in (None, Pairs.CIRCULAR)
    }
    wins = {"rm-r1", "rm-r1-instruct", "r3"}
    assert choices == {
        (family, pairs): "all" if family in wins and pairs is None else "circular" for family, pairs in choices
    }
    assert judge("genrm-boxed", aggregate=Aggregate.WIN_RATE).pairs is Pairs.ALL, "its reward counts wins, too"


def test_the_best_has_the_highest_reward() -> None:
    order = [3, 0, 4, 1, 2]
    aggregates: list[Aggregate | None] = [None, *Aggregate]
    for aggregate in aggregates:
        for pairs in Pairs:
            judged = Judged()
            model = judge(pairs=pairs, aggregate=aggregate)
            scores = judged.scores(model, prefers(lambda first, second: order[first] > order[second]), 5)
            rewards = [score.reward or 0.0 for score in scores]
            if pairs is Pairs.ALL:
                assert sorted(range(5), key=rewards.__getitem__) == sorted(range(5), key=order.__getitem__)
            elif pairs is Pairs.ACTIVE or aggregate is not Aggregate.BRADLEY_TERRY:
                assert rewards[2] == max(rewards)
            else:
                assert rewards[2] > max(rewards[1], rewards[3]), "those that it was compared with"
            assert len(judged.calls) == {Pairs.CIRCULAR: 10, Pairs.ALL: 20, Pairs.ACTIVE: 8}[pairs]
            if aggregate is Aggregate.BRADLEY_TERRY:
                assert all(score.scores["reward_std"] > 0 for score in scores)


def test_the_share_of_comparisons_won_is_the_reward_where_that_is_asked_for(judged: Judged) -> None:
    boxing = judge("genrm-boxed", pairs="all", aggregate="win-rate")
    scores = judged.scores(boxing, grades({0: 1, 1: 2, 2: 5}), 3)
    assert [score.reward for score in scores] == [0.0, 0.5, 1.0]


def test_lists_are_shuffled_the_same_way_every_time_and_read_back(judged: Judged) -> None:
    listing = judge("reward-anything", votes=6)
    grades = {0: 5, 1: 1, 2: 3}

    def reply(ids: Sequence[int], sampling: Sampling) -> str:
        scores = ", ".join(f'"model-{place}": {grades[index]}' for place, index in enumerate(ids, 1))
        order = sorted(range(len(ids)), key=lambda place: -grades[ids[place]])
        return f'{{"scores": {{{scores}}}, "best-to-worst": [{", ".join(f""" "model-{place + 1}" """ for place in order)}]}}'

    scores = judged.scores(listing, reply, 3)
    assert [score.reward for score in scores] == [5.0, 1.0, 3.0]
    assert [score.scores["rank"] for score in scores] == [1.0, 3.0, 2.0]
    assert [score.scores["win_rate"] for score in scores] == [1.0, 0.0, 0.5]
    orders = judged.shown
    assert len(set(orders)) > 1
    again = Judged()
    again.scores(listing, reply, 3)
    assert again.shown == orders


def test_equal_orders_of_a_list_are_one_question(judged: Judged) -> None:
    """Of two responses there are two orders: what is asked again in one of them is drawn, or isn't asked."""
    sent_prompts = prompts(judge("reward-anything", votes=8), 2)
    assert sorted(sent_prompt.response_positions for sent_prompt in sent_prompts) == [(0, 1), (1, 0)]
    assert sum(sent_prompt.times for sent_prompt in sent_prompts) == 8
    assert [prompt.times for prompt in prompts(judge("reward-anything", votes=8, temperature=0), 2)] == [1, 1]
    assert [prompt.times for prompt in prompts(judge("reward-anything", votes=8), 1)] == [8]


def test_all_votes_of_a_run_are_drawn_alike_as_it_is_recorded() -> None:
    for votes, family in itertools.product((1, 2, 3, 8), ("genrm-boxed", "genrm-principle", "reward-anything", "rm-r1")):
        voting = judge(family, votes=votes)
        recorded = voting.recorded(ANSWER_TOKENS)
        for prompt in itertools.chain.from_iterable(prompts(voting, count) for count in (1, 2, 3)):
            sampling = voting.sampling(prompt, 0, 0, ANSWER_TOKENS)
            assert (sampling.temperature, sampling.top_p) == (recorded["temperature"], recorded["top_p"])


def test_a_list_is_shown_as_often_in_one_order_as_turned_round() -> None:
    responses = tuple(Response(f"r[{index}]", str(index)) for index in range(3))
    for question, votes, among in itertools.product("abcde", (2, 4, 8), ((0, 1), (0, 1, 2))):
        shown = Counter[tuple[int, ...]]()
        for showing in judge("reward-anything", votes=votes).questions(ScoreRequest((user(question),), responses), among):
            shown[showing.response_positions] += showing.times
        assert shown.total() == votes
        assert all(shown[order] == shown[order[::-1]] for order in shown)


def test_a_comparison_that_is_asked_for_is_no_grade() -> None:
    """A response alone has no share of wins, and no margin: its grade would be on another scale."""
    assert prompts(judge("genrm-boxed", aggregate="win-rate"), 1) == ()
    boxing = judge("genrm-boxed")
    weights = {"score": 1.0, "margin": 0.1}
    (alone,) = score(boxing, grades({0: 4}), request(boxing, 1), weights=weights)
    assert (alone.status, alone.reason) == (Status.FAILED, Reason.NO_OPPONENT)


def test_an_order_with_more_votes_counts_no_more() -> None:
    for votes in (2, 3, 7):
        judged = Judged()
        scores = judged.scores(judge(votes=votes), FIRST)
        assert [score.reward for score in scores] == [0.5, 0.5]
        assert len(judged.calls) == votes


def test_a_judge_of_two_with_nobody_to_compare_is_not_asked() -> None:
    assert prompts(judge("rm-r1"), 1) == ()
    assert [prompt.response_positions for prompt in prompts(judge("genrm-boxed"), 1)] == [(0,)]


# Equal responses.


def test_equal_responses_are_judged_by_the_same_texts() -> None:
    shown, scores = changing(judge("r3", POINTWISE, votes=3), [7, 8, 7], lambda number: f'{{"score": {number % 5 + 1}}}')
    assert shown == [(7,)] * 3 + [(8,)] * 3
    assert scores[0] == scores[2]
    assert scores[0].votes == (2.0, 3.0, 4.0)


def test_equal_responses_that_meet_the_same_others_tie_exactly() -> None:
    for aggregate, pairs in itertools.product(Aggregate, Pairs):
        boxing = judge("genrm-boxed", votes=6, pairs=pairs, aggregate=aggregate)
        texts = [7, 7] if pairs is not Pairs.ALL else [7, 8, 9, 7, 5]
        shown, scores = changing(
            boxing, texts, lambda number: boxed([1, 2], {1: 1 + number * 7 % 5, 2: 1 + number * 11 % 5})
        )
        assert scores[0].reward == scores[texts.index(7, 1)].reward is not None
        assert shown.count((7, 7)) == 3, "both orders show the same"


def test_equal_prompts_that_fail_are_asked_for_again_once() -> None:
    shown, scores = changing(
        judge("r3", POINTWISE, reask=2), [7, 7], lambda number: "well" if number < 3 else '{"score": 4}'
    )
    assert shown == [(7,)] * 3
    assert [score.reward for score in scores] == [4.0, 4.0]
    assert scores[0].completion_tokens == scores[1].completion_tokens


def test_equal_prompts_share_the_death_of_an_engine() -> None:
    with pytest.raises(EngineDead):
        changing(judge("r3", POINTWISE), [7, 7], lambda number: "", at={7: FakeFault.DIE})


def changing(
    judge: Judge, texts: Sequence[int], text: Callable[[int], str], **engine: Any
) -> tuple[list[tuple[int, ...]], tuple[Score, ...]]:
    """What a judge was shown, and its scores, if it never says the same twice, as beside other prompts it may.

    The token ids of a prompt are the texts that it shows; `text` makes an answer from its number.
    """
    shown: list[tuple[int, ...]] = []

    def reply(ids: Sequence[int], sampling: Sampling) -> str:
        shown.append(tuple(ids))
        return text(len(shown))

    rendered = request(judge, len(texts))
    by_text = tuple(
        replace(prompt, ids=tuple(texts[position] for position in prompt.response_positions)) for prompt in rendered.prompts
    )
    return shown, score(judge, reply, replace(rendered, prompts=by_text), **engine)


# What can't be read.


def test_a_text_without_a_verdict_is_asked_for_again_and_sampled(judged: Judged) -> None:
    tries: list[int] = []

    def reply(ids: Sequence[int], sampling: Sampling) -> str:
        tries.append(len(tries))
        return "I can't say." if len(tries) <= 2 else boxed(ids, {0: 1, 1: 5})

    scores = judged.scores(judge("genrm-boxed", trace=True), reply)
    assert [sampling.temperature for _, sampling in judged.calls] == [0.0, 0.6, 0.6]
    assert len({sampling.seed for _, sampling in judged.calls}) == 3
    assert [score.reward for score in scores] == [1.0, 5.0]
    assert [(text.vote, text.reason) for text in scores[1].trace] == [
        (None, Reason.NO_VERDICT), (None, Reason.NO_VERDICT), (5.0, None)
    ]  # fmt: skip
    assert {text.shown for text in scores[1].trace} == {("r[0]", "r[1]")}


def test_what_never_has_a_verdict_fails_and_keeps_the_text(judged: Judged) -> None:
    scores = judged.scores(judge("genrm-boxed", reask=1, trace=True), lambda ids, _: r"perhaps \boxed{3, 3}")
    assert len(judged.calls) == 2
    for score in scores:
        assert (score.status, score.reason, score.reward, score.scores) == (Status.FAILED, Reason.NO_VERDICT, None, {})
        assert [text.text for text in score.trace] == [r"perhaps \boxed{3, 3}"] * 2


def test_reasoning_that_the_template_opened_ends_at_its_own_mark() -> None:
    family = judge("r3", POINTWISE, reask=0)
    (prompt,) = prompts(family, 1)
    text = 'It says: 7. </thinking> {"score": 1}. [/THINK]{"score": 4}'
    rewards = []
    for opening in ("[THINK]", "<thinking>", ""):
        rendered = replace(request(family, 1), prompts=(replace(prompt, opening=opening),))
        (alone,) = score(family, lambda ids, sampling: text, rendered)
        rewards.append(alone.reward or alone.reason)
    assert rewards == [4.0, Reason.TWO_VERDICTS, Reason.TWO_VERDICTS]


def test_what_was_cut_off_isnt_read_even_if_there_is_a_verdict(judged: Judged) -> None:
    more = " and so on" * ANSWER_TOKENS
    scores = judged.scores(judge("genrm-boxed", reask=0), lambda ids, _: boxed(ids, {0: 1, 1: 5}) + more)
    assert [score.reason for score in scores] == [Reason.CUT_OFF] * 2


def test_half_of_the_votes_must_be_readable(judged: Judged) -> None:
    def first_votes(readable: int) -> Reply:
        """A judge whose first votes in each order can be read."""
        votes = Counter[tuple[int, ...]]()

        def reply(ids: Sequence[int], sampling: Sampling) -> str:
            votes[tuple(ids)] += 1
            return boxed(ids, {0: 1, 1: 5}) if votes[tuple(ids)] <= readable else "?"

        return reply

    boxing = judge("genrm-boxed", votes=8, reask=0)
    enough = judged.scores(boxing, first_votes(2))
    assert [(score.reward, score.scores["judgements"]) for score in enough] == [(1.0, 4.0), (5.0, 4.0)]
    assert [score.reason for score in judged.scores(boxing, first_votes(1))] == [Reason.NO_VERDICT] * 2


def test_one_order_alone_is_no_judgement_of_a_pair(judged: Judged) -> None:
    scores = judged.scores(judge(reask=0), lambda ids, _: LARGER(ids, _) if tuple(ids) == (0, 1) else "?")
    assert [score.reason for score in scores] == [Reason.NO_VERDICT] * 2


def first_pair_unreadable(ids: Sequence[int], sampling: Sampling) -> str:
    return "?" if set(ids) == {0, 1} else boxed(ids, {index: index + 1 for index in ids})


def test_an_unreadable_pair_fails_only_those_in_it_and_a_knock_out_goes_on(judged: Judged) -> None:
    scores = judged.scores(judge("genrm-boxed", pairs="all", reask=0), first_pair_unreadable, 4)
    assert [score.reason for score in scores] == [Reason.NO_VERDICT, Reason.NO_VERDICT, None, None]
    assert [score.reward for score in scores[2:]] == [3.0, 4.0]
    scores = judged.scores(judge("genrm-boxed", pairs="active", reask=0), first_pair_unreadable, 3)
    assert [score.reason for score in scores] == [Reason.NO_VERDICT, Reason.NO_VERDICT, None]


def without_pair(rendered: RenderedRequest, pair: tuple[int, int]) -> RenderedRequest:
    return replace(rendered, prompts=tuple(prompt for prompt in rendered.prompts if prompt.response_positions != pair))


def test_a_knock_out_goes_on_past_a_pair_that_cant_be_shown() -> None:
    boxing = judge("genrm-boxed", pairs="active")
    scores = score(boxing, grades(), without_pair(request(boxing, 3), (0, 1)))
    assert [score.reward for score in scores] == [1.0, 2.0, 3.0]
    assert [score.scores["losses"] for score in scores] == [1.0, 1.0, 0.0]


def test_a_response_whose_only_opponent_is_knocked_out_before_has_none() -> None:
    boxing = judge("genrm-boxed", pairs="active")
    responses = tuple(RenderedResponse(f"r[{index}]", reasoned=True) for index in range(3))
    rendered = without_pair(replace(request(boxing, 3), responses=responses), (0, 2))
    scores = score(boxing, lambda ids, _: boxed(ids, {index: 3 - index for index in ids}), rendered)
    assert [(score.status, score.reason, score.reward) for score in scores] == [
        (Status.SCORED, None, 3.0), (Status.SCORED, None, 2.0), (Status.REJECTED, Reason.NO_OPPONENT, None)
    ]  # fmt: skip
    assert all(score.reasoned for score in scores)


def test_half_of_a_lists_votes_must_be_readable_in_all_orders_together(judged: Judged) -> None:
    def reply(ids: Sequence[int], sampling: Sampling) -> str:
        scores = ", ".join(f'"model-{place}": {index + 1}' for place, index in enumerate(ids, 1))
        return "?" if tuple(ids) == judged.calls[0][0] else f'{{"scores": {{{scores}}}}}'

    scores = judged.scores(judge("reward-anything", votes=6, reask=0), reply, 3)
    assert [score.reward for score in scores] == [1.0, 2.0, 3.0]
    assert scores[0].scores["judgements"] < 6


@pytest.mark.parametrize(
    ("fault", "reason"), [(FakeFault.REFUSE, Reason.ENGINE_REFUSED), (FakeFault.HANG, Reason.ENGINE_TIMEOUT)]
)
def test_a_prompt_that_the_engine_doesnt_answer_isnt_asked_again(judged: Judged, fault: FakeFault, reason: Reason) -> None:
    scores = judged.scores(judge(), LARGER, at={0: fault}, request_timeout_s=0.05)
    assert [score.reason for score in scores] == [reason] * 2
    assert len(judged.calls) <= 2


class _DeafEngine(FakeEngine):
    """Doesn't answer the calls of these numbers, the first of which is 0."""

    def __init__(self, lost: Sequence[int], error: EngineError, reply: Callable[[int], str]) -> None:
        super().__init__(0, 1000, reply=lambda ids, sampling, number: reply(self.calls - 1))
        self.lost = lost
        self.error = error
        self.calls = 0

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        self.calls += 1
        if self.calls - 1 in self.lost:
            raise self.error
        return await super().generate(ids, sampling)


class _CachingEngine(FakeEngine):
    """Has a token of each prompt cached, and notes the contexts."""

    def __init__(self) -> None:
        super().__init__(0, 1000, reply=lambda ids, sampling, number: LARGER(ids, sampling))
        self.contexts: list[str] = []

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        self.contexts.append(context)
        (generation,) = await super().generate(ids, sampling)
        return (replace(generation, cached_tokens=1, computed_tokens=len(ids) - 1),)


def test_prompts_of_a_request_have_its_context_and_their_cached_tokens_add_up() -> None:
    family = judge(votes=2)
    with closing(_CachingEngine()) as engine:
        scorer = JudgeScorer(family, family.card_weights(), engine, ANSWER_TOKENS)
        (scores,) = scorer.score_block([request(family, 3)])
    assert engine.contexts == ["hash"] * len(engine.contexts)
    assert sum(score.cached_tokens or 0 for score in scores) == len(engine.contexts) > 2
    assert sum(score.prompt_tokens or 0 for score in scores) == 2 * len(engine.contexts)


TIMEOUT = EngineTimeout("it took too long")


def scores_without(
    family: Judge, lost: Sequence[int], text: Callable[[int], str], error: EngineError = TIMEOUT, count: int = 1
) -> tuple[Score, ...]:
    """The scores of a request if the engine doesn't answer the calls `lost`; `text` is what it writes at a call."""
    with closing(_DeafEngine(lost, error, text)) as engine:
        scorer = JudgeScorer(family, family.card_weights(), engine, ANSWER_TOKENS)
        return scorer.score_block([request(family, count)])[0]


def test_a_response_with_a_vote_that_nobody_heard_has_failed_as_the_engine_did() -> None:
    """Asked again by `retry`, and never stored: the mean of the other votes would be another number."""
    errors: list[EngineError] = [TIMEOUT, EngineError("it won't"), PromptRefused("it won't", Reason.ENDPOINT_FAILED)]
    lost_calls: list[tuple[int, ...]] = [(0,), (3,), (1, 2), (0, 1, 2, 3)]
    for error, lost in itertools.product(errors, lost_calls):
        (score,) = scores_without(judge("r3", POINTWISE, votes=4), lost, lambda _: '{"score": 4}', error)
        assert (score.status, score.reason, score.reward, score.votes) == (Status.FAILED, error.reason, None, ())
        assert not is_lasting((score,))


def test_what_retry_looks_at_by_itself_is_what_an_engine_fails_by() -> None:
    assert {EngineError.reason, EngineTimeout.reason} <= {*RETRIED}


def test_a_vote_that_nobody_heard_says_more_than_those_with_nothing_readable() -> None:
    voted = judge("r3", POINTWISE, votes=4, reask=0)
    (score,) = scores_without(voted, [3], lambda call: '{"score": 4}' if call == 0 else "?")
    assert score.reason is Reason.ENGINE_TIMEOUT
    (score,) = scores_without(voted, [], lambda call: '{"score": 4}' if call == 0 else "?")
    assert score.reason is Reason.NO_VERDICT
    asking_again = judge("r3", POINTWISE, votes=4, reask=1)
    (score,) = scores_without(asking_again, [4], lambda call: "?" if call == 0 else '{"score": 4}')
    assert score.reason is Reason.ENGINE_TIMEOUT


def test_only_those_fail_of_whom_a_vote_wasnt_heard() -> None:
    scores = scores_without(judge("rm-r1", pairs="all"), [0], lambda _: "<answer>[[A]]</answer>", count=4)
    assert [score.reason for score in scores] == [Reason.ENGINE_TIMEOUT] * 2 + [None] * 2


def test_a_dead_engine_is_no_failed_judgement(judged: Judged) -> None:
    with pytest.raises(EngineDead):
        judged.scores(judge(), LARGER, at={0: FakeFault.DIE})


def test_tokens_are_shared_among_those_that_are_shown_together(judged: Judged) -> None:
    scores = judged.scores(judge("genrm-boxed", pairs="all"), grades(), 3)
    words = len(re.findall(r"\S+", boxed([0, 1], {0: 1, 1: 2})))
    assert sum(score.prompt_tokens or 0 for score in scores) == 3 * 2
    assert sum(score.completion_tokens or 0 for score in scores) == 3 * words


def test_a_rehearsal_has_verdicts_whatever_the_engine_says() -> None:
    for family in families().values():
        if not isinstance(family, Judge) or family.name == "rubric":
            continue
        rehearsing = family.with_settings(JudgeSettings(), (1, 2))
        scores = score(rehearsing, lambda ids, sampling: "?", rehearsal=True)
        assert [score.status for score in scores] == [Status.SCORED] * 2, family.name
        assert all(set(score.scores) <= set(rehearsing.outputs()) for score in scores)


def test_a_rejected_response_stays_rejected_beside_the_judged() -> None:
    rejected, whole, truncated = (
        RenderedResponse("r[0]", Reason.CONTROL_TOKEN), RenderedResponse("r[1]"), RenderedResponse("r[2]", truncated=True)
    )  # fmt: skip
    rendered = RenderedRequest("hash", (rejected, whole, truncated), (Prompt((1, 2), (1, 2)),))
    scores = score(judge("genrm-boxed"), grades({1: 2, 2: 4}), rendered)
    assert [(score.reason, score.reward, score.truncated) for score in scores] == [
        (Reason.CONTROL_TOKEN, None, False), (None, 2.0, False), (None, 4.0, True)
    ]  # fmt: skip


def test_weights_make_the_ranking_break_ties() -> None:
    boxing = judge("genrm-boxed")
    assert boxing.weights({"score": 1.0, "margin": 0.1}) == {"score": 1.0, "margin": 0.1}
    with pytest.raises(SettingsError, match="weights name win_rate, which genrm-boxed doesn't give; it gives score, margin"):
        boxing.weights({"win_rate": 1.0})
