"""JudgeBench: published rewards of three models give the published table to the last digit."""

import csv
from pathlib import Path

import pytest

from pipelines.results.evaluation.benchmarks.judgebench import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of

PUBLISHED = {
    "Skywork_Skywork-Reward-Gemma-2-27B": (59.74, 66.33, 83.93, 50.00, 64.29),
    "Skywork_Skywork-Reward-Llama-3.1-8B": (59.09, 64.29, 76.79, 50.00, 62.29),
    "internlm_internlm2-7b-reward": (56.49, 61.22, 71.43, 50.00, 59.43),
}
TIES = (3, 1, 0)


@pytest.mark.parametrize("place", range(3))
def test_published_rewards_give_the_published_table(place: int, shared_data: Path) -> None:
    model = list(PUBLISHED)[place]
    with (shared_data / "judgebench" / "rm_scores.tsv").open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["model"] == model]
    assert len(rows) == 350, {row["model"] for row in rows}
    items = [
        item({"A": float(row["g1_score_A"]), "B": float(row["g1_score_B"])}, source=row["source"], label=row["label"])
        for row in rows
    ]
    figures = measures_of(BENCHMARK, items)
    names = ("knowledge", "reasoning", "math", "coding", "overall")
    assert tuple(round(100 * figures[name], 2) for name in names) == PUBLISHED[model]
    assert sum(grades_of(BENCHMARK, items).tied.values()) == TIES[place]


def test_a_tie_is_wrong_in_two_games_and_b_in_one() -> None:
    tied = [item({"A": 1.0, "B": 1.0}, source="livebench-math", label=label) for label in ("A>B", "B>A")]
    figures = measures_of(BENCHMARK, tied)
    assert figures["overall"] == 0
    assert figures["overall (single game)"] == 0.5


def test_overall_is_over_pairs_and_macro_is_named() -> None:
    right, wrong = {"A": 2.0, "B": 1.0}, {"A": 1.0, "B": 2.0}
    sources = ("livebench-reasoning", "livebench-math", "livecodebench")
    items = [item(right, source="mmlu-pro-law", label="A>B")] * 3 + [
        item(wrong, source=name, label="A>B") for name in sources
    ]
    figures = measures_of(BENCHMARK, items)
    assert (figures["overall"], figures["overall (macro)"]) == (0.5, 0.25)
    other = measures_of(BENCHMARK, [*items, item(right, source="other", label="A>B")])
    assert (other["overall"], other["overall (macro)"]) == (4 / 7, 0.25), "a source that JudgeBench doesn't have"
    assert "overall (macro)" not in measures_of(BENCHMARK, items[:-1]), "a mean of fewer categories is another number"


def test_a_label_that_doesnt_exist_is_no_grade() -> None:
    grades = grades_of(BENCHMARK, [item({"A": 1.0, "B": 2.0}, source="mmlu-pro-law", label="A<B")])
    assert grades.reasons == {"knowledge": {"the label 'A<B' is neither A>B nor B>A": 1}}
