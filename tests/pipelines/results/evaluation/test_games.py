"""Games of a judge of pairs: each order counts by itself, where the mean of grades would hide that one was lost."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from actors.contracts.showings import Shows
from actors.errors import SettingsError
from actors.records import Reading
from pipelines.data.formats import RowShape
from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks import benchmarks, judgebench, llmbar
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.games import check_stop, games
from pipelines.results.evaluation.gate import compare
from pipelines.results.evaluation.saved_results import read_evaluations
from pipelines.results.evaluation.statistics.votes import VoteRules
from pipelines.run.runtime.progress import Progress
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate
from tests.support.candidates import judged_corpus
from tests.support.evaluation import grades_of, item, measures_of

PAIRS = VoteRules(Shows.TWO, 2, False)


def test_a_game_is_the_mean_of_the_votes_in_its_order() -> None:
    cases: list[tuple[VoteRules, Sequence[float], Sequence[float], tuple[float, ...]]] = [
        (PAIRS, [5.0, 2.0], [2.0, 3.0], (3.0, -1.0)),
        (PAIRS, [4.0, 3.0], [2.0, 3.0], (2.0, 0.0)),
        (VoteRules(Shows.TWO, 1, False), [4.0], [2.0], (2.0,)),
        (VoteRules(Shows.TWO, 3, False), [5.0, 1.0, 2.0], [2.0, 2.0, 4.0], (1.0, -2.0)),
        (VoteRules(Shows.TWO, 3, True), [5.0, 1.0, 2.0], [2.0, 2.0, 4.0], (0.0, -1.0)),
        (PAIRS, [5.0, 4.0, 1.0, 2.0], [1.0, 1.0, 2.0, 2.0], (3.5, -0.5)),  # of two principles
        (VoteRules(Shows.TWO, 4, False), [5.0, 4.0, 5.0], [1.0, 1.0, 1.0], (3.5, 4.0)),  # one can't be read: no matter
        (VoteRules(Shows.TWO, 4, False), [2.0, 1.0, 3.0], [1.0, 4.0, 1.0], ()),  # which it was decides here
        (PAIRS, [1.0, 2.0], [1.0], ()),
        # Two votes of each order may be lost, or one of either and three of none, or any between: 2 and 4, 3 and 3, 4 and 2.
        (VoteRules(Shows.TWO, 8, False), [1.0, 1.0, 5.0, 2.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0, 1.0, 1.0], ()),
        (VoteRules(Shows.TWO, 8, False), [5.0, 5.0, 5.0, 1.0, 1.0, 1.0], [2.0] * 6, ()),
        # Wherever it ends, the first order is won and the second lost.
        (VoteRules(Shows.TWO, 8, False), [5.0, 5.0, 2.0, 2.0, 1.0, 1.0], [2.0] * 6, (1.5, -1.0)),
        (VoteRules(Shows.TWO, 4, False, 2), [5.0, 5.0, 1.0, 1.0], [2.0] * 4, (3.0, -1.0)),  # half of each question
        # A list of two is shown in one order and in the reverse, as often; of an odd number of votes, one more in either.
        (VoteRules(Shows.ALL, 1, False), [4.0], [2.0], (2.0,)),
        (VoteRules(Shows.ALL, 2, False), [5.0, 2.0], [2.0, 3.0], (3.0, -1.0)),
        (VoteRules(Shows.ALL, 4, False), [5.0, 3.0, 2.0, 1.0], [1.0, 3.0, 3.0, 1.0], (2.0, -0.5)),
        (VoteRules(Shows.ALL, 3, False), [2.0, 1.0, 3.0], [1.0, 4.0, 1.0], ()),
        (VoteRules(Shows.ALL, 2, False), [5.0, 4.0, 1.0, 2.0], [1.0, 1.0, 2.0, 2.0], (3.5, -0.5)),  # of two principles
        (VoteRules(Shows.ALL, 2, False), [4.0], [2.0], ()),  # one order could be read
        (VoteRules(Shows.ALL, 4, False), [4.0, 4.0], [2.0, 2.0], ()),  # or both votes may be of one
        (VoteRules(Shows.ALL, 8, False), [1.0, 1.0, 5.0, 2.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0, 1.0, 1.0], ()),
    ]
    for rules, first, second, expected in cases:
        votes = item({"A": 0.0, "B": 0.0})
        assert games(rules, replace(votes, votes={"A": first, "B": second})) == expected


def played(*leads: float, label: object = "A>B", source: str = "livebench-math") -> Item:
    """A pair of which the first response leads by these in the games, and by their mean in the rewards."""
    mean = sum(leads) / max(len(leads), 1)
    names = ("A", "B") if isinstance(label, str) else ("output_1", "output_2")
    rewards = {names[0]: mean, names[1]: 0.0}
    return replace(item(rewards, label=label, source=source), games=leads, votes=dict.fromkeys(names, (1.0,)))


def test_judgebench_counts_games() -> None:
    cases: list[tuple[Sequence[float], str, float, float]] = [
        ((3.0, -1.0), "A>B", 0, 1),  # one won and one lost, as in the authors' counter
        ((3.0, -1.0), "B>A", 0, 0),
        ((3.0, 0.0), "A>B", 1, 1),  # one won and a tie
        ((0.0, -1.0), "B>A", 1, 0),  # a judge's tie is "A=B", not "B>A"
        ((0.0, 0.0), "B>A", 0, 0),
        ((-1.0, -1.0), "B>A", 1, 1),
    ]
    for leads, label, two_games, single_game in cases:
        figures = measures_of(judgebench.BENCHMARK, [played(*leads, label=label)], judged=True)
        assert (figures["overall"], figures["overall (single game)"]) == (two_games, single_game)


def test_a_judge_that_was_asked_in_one_order_has_a_single_game() -> None:
    pairs = [played(1.0), played(-1.0), played(0.0, label="B>A")]
    figures = measures_of(judgebench.BENCHMARK, pairs, judged=True)
    assert figures == pytest.approx({"overall (single game)": 1 / 3, "math (single game)": 1 / 3})
    outputs = [played(1.0, label=1), played(-1.0, label=1)]
    assert measures_of(llmbar.BENCHMARK, outputs, judged=True) == {"one order": 0.5}


def test_llmbar_averages_the_orders_and_wants_both() -> None:
    figures = measures_of(llmbar.BENCHMARK, [played(3.0, -1.0, label=1), played(-1.0, -2.0, label=2)], judged=True)
    assert figures == {"average": 0.75, "both": 0.5}


def test_a_game_for_each_response_is_a_tie_of_their_rewards() -> None:
    outputs = [played(1.0, -1.0, label=1), played(1.0, 0.0, label=1), played(3.0, -1.0, label=2)]
    assert grades_of(llmbar.BENCHMARK, outputs).tied == {"all": 2}


def test_games_that_nobody_can_tell_have_no_grade() -> None:
    undecided = replace(played(1.0, 1.0), games=())
    reason = "some votes can't be read, and the others don't tell who won each game"
    assert grades_of(judgebench.BENCHMARK, [undecided]).reasons == {"math": {reason: 1}}


def test_the_margin_is_of_the_rewards_whoever_won_the_games() -> None:
    (graded,) = judgebench.BENCHMARK.grade([played(3.0, -1.0)])
    assert list(graded.margins) == [1.0]
    (graded,) = llmbar.BENCHMARK.grade([played(3.0, -1.0, label=2)])
    assert list(graded.margins) == [-1.0]


def pairs_corpus(
    folder: Path, family: str, votes: Sequence[Sequence[tuple[float, ...]]], count: int, *, stop: bool = False
) -> str:
    """JudgeBench's pairs as a judge of `count` votes has scored them, whose votes on both responses are these."""
    row = {"response_model": "gpt-4o", "question": "?", "response_A": "a", "response_B": "b", "label": "A>B"}
    rows = [{**row, "pair_id": f"{index}", "source": "livebench-math"} for index in range(len(votes))]
    readings = [[Reading(sum(each) / len(each), {"reward": 0.0}, votes=each) for each in pair] for pair in votes]
    judge = {"family": family, "read": {}, "judge": {"votes": count, "aggregate": "mean", "rubric": None, "stop": stop}}
    return judged_corpus(folder, rows, readings, RowShape("judgebench"), parquet=True, votes=True, **judge)


@pytest.mark.parametrize("family", ["genrm-boxed", "reward-anything"])
def test_games_of_a_scored_corpus_are_counted_and_written_as_judgebench_writes_them(family: str, tmp_path: Path) -> None:
    folder = pairs_corpus(tmp_path / "s", family, [((5.0, 2.0), (2.0, 3.0)), ((5.0, 3.0), (2.0, 3.0))], 2)
    out = str(tmp_path / "e")
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [folder], "partial": True, "output": out}))
    figures = {figure.name: figure.value for figure in evaluation.figures}
    assert figures["overall"] == 0.5, "of (+3, -1) and (+3, 0) the second one is right"
    accuracy = evaluation.votes.curve[-1].value if evaluation.votes else None
    by_rows = family == "reward-anything"  # whose votes are by principles of the rows
    assert accuracy == (None if by_rows else 1.0), "where two votes are a mean of grades"
    (file,) = (tmp_path / "e" / "peers").iterdir()
    decisions = [[game["decision"] for game in json.loads(line)["judgments"]] for line in file.read_text().splitlines()]
    assert decisions == [["A>B", "A>B"], ["A>B", "A=B"]], "the second game shows B first"


def test_votes_that_stopped_have_no_games_and_are_refused(tmp_path: Path) -> None:
    check_stop(judgebench.BENCHMARK, Shows.ONE, stop=True)
    check_stop(benchmarks()["pairs"], Shows.TWO, stop=True)
    folder = pairs_corpus(tmp_path / "s", "genrm-boxed", [((5.0, 2.0), (2.0, 3.0))], 8, stop=True)
    with pytest.raises(SettingsError, match=r"judgebench counts who won each order .* score it without --stop"):
        evaluate(build(EvaluateSettings, {"scored": [folder], "partial": True}))
    scored = {"scored": ["llmbar=there-is-none.jsonl"], "model": ["tiny-rm-r1"], "votes": 8, "stop": True}
    with pytest.raises(SettingsError, match=r"llmbar counts .* score it without --stop"):
        score_and_evaluate(build(EvaluateSettings, scored), Progress())


def test_a_corpus_of_a_judge_with_one_vote_has_figures_of_a_single_game(tmp_path: Path) -> None:
    leads = ((1.0, 2.0, -1.0), (1.0, -2.0, -1.0))
    folders = [
        pairs_corpus(tmp_path / f"s{number}", "genrm-boxed", [((lead,), (0.0,)) for lead in of_model], 1)
        for number, of_model in enumerate(leads)
    ]
    results = evaluate(build(EvaluateSettings, {"scored": folders, "partial": True, "output": str(tmp_path / "e")}))
    figures = {figure.name: (figure.value, figure.convention) for figure in results[0].figures}
    assert figures == dict.fromkeys(
        ("overall (single game)", "math (single game)"), (2 / 3, "single game, the first order: a tie is wrong")
    )
    assert [difference.name for difference in results.paired[0].differences] == list(figures)
    assert results.paired[0].splits[0].first_ahead == 1
    first, second = read_evaluations(str(tmp_path / "e"))
    (comparison,) = compare([second], [first])
    assert comparison.failures(10.0, 1.0) == [
        "m on judgebench: overall (single game) fell from 66.67% to 33.33%, by more than 10 points"
    ]
    assert len(comparison.flips) == 1
