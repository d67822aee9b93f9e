"""What the page says, without a browser: figures against counts by hand, and what is refused."""

import itertools
import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import OutputError, SettingsError, SourceError
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.results.evaluation.results import ComparedFigure, Evaluation, Figure, PublishedComparison, Results
from pipelines.results.evaluation.statistics.margins import MarginBin, MarginReport
from pipelines.results.evaluation.statistics.paired import CreditSplit, Difference, PairedComparison
from pipelines.results.evaluation.statistics.votes import VoteReport, VoteShare
from pipelines.results.html_report import build as html_report
from pipelines.results.html_report.features import features
from pipelines.results.html_report.responses import Responses, opened
from pipelines.results.html_report.sections.comparison import comparison
from pipelines.results.html_report.sections.correlations import correlations, spearman
from pipelines.results.html_report.sections.explorer import EXAMPLES, explorer, neighbour_places
from pipelines.results.html_report.sections.groups import groups
from pipelines.results.html_report.sections.judging import labels
from pipelines.results.html_report.sections.outputs import outputs
from pipelines.results.html_report.sections.overview import overview
from pipelines.results.html_report.sections.sampling import best_of_n, sampling
from pipelines.settings.options import build
from pipelines.settings.report_settings import ReportSettings
from tests.support.candidates import drawn_corpus, judged_corpus, prompts
from tests.support.corpora import chat
from tests.support.evaluation import evaluation_of, figures_of
from tests.support.failures import rewrite

MESSAGES = RowShape("messages")
KINDS: list[dict[str, Any]] = [
    {},
    {"parquet": True},
    {"prefix": "judge_"},
    {"ensemble": True, "outputs": ("reward", "spread", "order")},
]


def settings(output: Path, *folders: str, **more: Any) -> ReportSettings:
    return build(ReportSettings, {"scored": folders, "output": str(output), **more})


def open_all(folder: str, *by: str, sample: int = 20_000) -> Any:
    return opened(folder, partial=False, by=by, sample=sample, seed=0)


def read_all(responses: Responses) -> Responses:
    responses.read_texts(responses.sampled)
    return responses


def corpus(folder: Path, rewards: list[float | None], texts: list[str] | None = None, **how: Any) -> str:
    words = texts or [f"answer {index}" for index in range(len(rewards))]
    rows = [chat(f"q{index}", text, topic="ab"[index % 2], id=index) for index, text in enumerate(words)]
    return judged_corpus(folder, rows, [[reward] for reward in rewards], MESSAGES, part_rows=50, **how)


# --- Figures --------------------------------------------------------------------------------------------------------


def outputs_of_explorer(folder: str, sample: int = 20_000) -> list[dict[str, Any]]:
    with open_all(folder, sample=sample) as responses:
        return list(explorer(read_all(responses))["outputs"])


def test_what_each_cut_keeps_is_exact_whatever_is_sampled(tmp_path: Path) -> None:
    rng = random.Random(1)
    rewards = [None if index % 7 == 0 else rng.gauss(0, 3) for index in range(400)]
    (output,) = outputs_of_explorer(corpus(tmp_path / "s", rewards), sample=100)
    scored = [reward for reward in rewards if reward is not None]
    assert len(output["cuts"]) > 200
    for cut, kept, tokens in zip(output["cuts"], output["kept"], output["tokens"], strict=True):
        assert kept == sum(reward >= float(cut) for reward in scored)
        assert tokens == 7 * kept  # each response has read 7
    assert output["kept"][0] == len(scored)
    assert output["kept"][-1] >= 1
    (output,) = outputs_of_explorer(corpus(tmp_path / "t", [0.1 * (index % 5) for index in range(100)]))
    kept = dict(zip(output["cuts"], output["kept"], strict=True))
    assert [kept[cut] for cut in ("0.0", "0.1", "0.2", "0.3", "0.4")] == [100, 80, 60, 40, 20], "what is right on it"


def test_the_mean_length_is_within_its_stated_error_of_the_truth(tmp_path: Path) -> None:
    rng = random.Random(2)
    texts = ["x" * rng.randint(1, 500) for _ in range(600)]
    rewards: list[float | None] = [rng.random() for _ in texts]
    folder = corpus(tmp_path / "s", rewards, texts)
    (sampled,), (whole,) = outputs_of_explorer(folder, sample=200), outputs_of_explorer(folder)
    lowest = sampled["length_error"][0]
    assert whole["length"][0] == pytest.approx(sum(map(len, texts)) / len(texts), abs=0.05)
    assert whole["length_error"][0] == 0
    assert 5 < lowest < 12  # 144 / sqrt(200) * sqrt(1 - 200 / 600)
    assert abs(sampled["length"][0] - whole["length"][0]) < 4 * lowest


def shown_beside_cuts(folder: str) -> list[dict[str, Any]]:
    with open_all(folder) as responses:
        responses.read_texts(neighbour_places(responses))
        return list(explorer(responses)["examples"])


def test_beside_a_cut_stand_scored_responses_however_few_there_are(tmp_path: Path) -> None:
    rewards = [None if index % 10 else index / 7 for index in range(2000)]
    shown = shown_beside_cuts(corpus(tmp_path / "s", rewards))
    assert sorted(example["values"][0] for example in shown) == [reward for reward in rewards if reward is not None]
    assert shown[0].keys() >= {"row", "response", "prompt", "text"}
    assert len({(example["row"], example["response"]) for example in shown}) == 200


def test_near_both_ends_stand_more_responses_beside_a_cut(tmp_path: Path) -> None:
    shown = shown_beside_cuts(corpus(tmp_path / "s", [float(index) for index in range(6000)]))
    values = sorted(example["values"][0] for example in shown)
    assert len(values) == EXAMPLES
    assert (values[0], values[-1]) == (0.0, 5999.0)
    assert min(sum(value < 15 for value in values), sum(value > 5984 for value in values)) > 3, "beyond a 400th"
    assert max(after - before for before, after in itertools.pairwise(values)) < 6000 / EXAMPLES * 2


def test_the_sample_is_the_same_in_every_run_and_another_with_another_seed(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [float(index) for index in range(300)])

    def sampled(seed: int) -> list[tuple[int, int]]:
        with opened(folder, partial=False, by=(), sample=100, seed=seed) as responses:
            return responses.sampled

    assert sampled(0) == sampled(0)
    assert len(set(sampled(0))) == 100
    assert sampled(0) != sampled(1)


def test_a_histogram_counts_every_response_once(tmp_path: Path) -> None:
    rewards: list[float | None] = [-1000.0, *(index / 100 for index in range(397)), None, 1000.0]
    with open_all(corpus(tmp_path / "s", rewards)) as responses:
        (output,) = outputs(responses)
    assert output["count"] == sum(output["counts"]) == 399
    assert output["quantiles"][0] == -1000
    assert output["centres"][-1] < 100  # an outlier doesn't hide the rest
    assert max(output["counts"]) < 30
    with open_all(corpus(tmp_path / "t", [4.0] * 60)) as responses:
        (output,) = outputs(responses)
    assert 3.4 < output["centres"][0] < output["centres"][-1] < 4.6
    bars = [pair for pair in zip(output["centres"], output["counts"], strict=True) if pair[1]]
    assert bars == [(pytest.approx(4.0, abs=0.02), 60)], "one value lies in the middle"


def test_spearman_of_ties_and_of_what_is_all_alike() -> None:
    first, second = np.array([1.0, 2.0, 2.0, 3.0, 10.0]), np.array([1, 3, 2, 2, 9])
    ranks = np.array([1, 2.5, 2.5, 4, 5]), np.array([1, 4, 2.5, 2.5, 5])
    assert spearman(first, second) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert spearman(first, first**3) == pytest.approx(1)
    assert spearman(first, np.ones(5)) is None
    assert spearman(first, np.full(5, np.inf)) is None


def test_a_planted_length_bias_is_warned_of_in_words_and_a_fair_reward_is_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = ["x" * rng.randint(1, 500) for _ in range(300)]
    biased = corpus(tmp_path / "biased", [len(text) / 100 + rng.gauss(0, 1) for text in texts], texts)
    fair = corpus(tmp_path / "fair", [rng.gauss(0, 1) for _ in texts], texts)
    against = corpus(tmp_path / "against", [-len(text) / 100 for text in texts], texts)
    (warning,) = html_report.build(settings(tmp_path / "b.html", biased)).warnings
    assert warning.startswith("Longer responses have higher rewards: Spearman's correlation is +0.")
    assert warning in (tmp_path / "b.html").read_text().replace("&#39;", "'")
    assert html_report.build(settings(tmp_path / "f.html", fair)).warnings == []
    assert "No correlation reaches the limit of 0.3" in (tmp_path / "f.html").read_text()
    (warning,) = html_report.build(settings(tmp_path / "a.html", against)).warnings
    assert warning.startswith("Shorter responses have higher rewards: Spearman's correlation is -1.00 over 300 responses.")


def test_a_judge_that_rewards_all_alike_is_warned_of(tmp_path: Path) -> None:
    alike = corpus(tmp_path / "alike", [4.0] * 200)
    (warning,) = html_report.build(settings(tmp_path / "r.html", alike)).warnings
    assert warning == "All 200 rewards that were looked at are 4: they tell no response from another"
    assert warning in (tmp_path / "r.html").read_text()
    assert html_report.build(settings(tmp_path / "few.html", corpus(tmp_path / "few", [4.0] * 3))).warnings == []


RARE = {
    "Refusals": "I'm sorry, but I can't help with that, x",
    "Responses with code": "Use `x`",
    "Responses with list items": "- x\n- y, x",
    "Responses with Markdown": "**Yes**, x",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [pytest.param(*rare, marks=[pytest.mark.long] if number else []) for number, rare in enumerate(RARE.items())],
)
def test_what_few_responses_have_is_warned_of_where_it_is_rewarded(tmp_path: Path, name: str, text: str) -> None:
    """Of 2,000 responses 50 have it: Spearman's correlation is at most 0.27 then, however much they are rewarded."""
    rng = random.Random(5)
    lucky = [rng.gauss(0, 1) for _ in range(2000)]
    texts = [text if index < 50 else "x" * rng.randint(8, 40) for index in range(2000)]
    for shift, expected in ((4.0, [name]), (0.0, []), (-4.0, [])):
        folder = corpus(tmp_path / f"s{shift}", [value + shift * (index < 50) for index, value in enumerate(lucky)], texts)
        warnings = html_report.build(settings(tmp_path / "r.html", folder)).warnings
        assert [warning.partition(" have higher rewards than others: in ")[0] for warning in warnings] == expected
        assert all("% of pairs, over 50 of them and 1,950 others. Training" in warning for warning in warnings)
    fewer = ["xxxxxxxxx" if 29 <= index < 50 else text for index, text in enumerate(texts)]
    few = corpus(tmp_path / "few", [value + 4 * (index < 29) for index, value in enumerate(lucky)], fewer)
    assert html_report.build(settings(tmp_path / "r.html", few)).warnings == []


def test_too_few_responses_warn_of_nothing(tmp_path: Path) -> None:
    texts = ["x" * index for index in range(1, 100)]
    with open_all(corpus(tmp_path / "s", [float(len(text)) for text in texts], texts)) as responses:
        actual_correlations = correlations(read_all(responses))
    assert actual_correlations["rows"][0]["rho"] == pytest.approx(1)
    assert actual_correlations["warnings"] == []


def test_features() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("# A\n\n**b** and\n> c", {"markdown": 3}),
        ("- a\n2. b\n* c\n-d", {"list_items": 3, "markdown": 0}),
        ("```python\nx = 1\n```\nand `y`", {"code": 3}),
        ("I'm sorry, but I can't help with that.", {"refusal": 1}),
        ("As an AI, I would.", {"refusal": 1}),
        ("I can do that. I was sorry to hear it.", {"refusal": 0}),
    ]
    for text, counted in cases:
        measured = features((), text)._asdict()
        assert counted.items() <= measured.items()
        assert measured["characters"] == len(text)


def test_groups_are_over_all_responses(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [float(index) if index else None for index in range(301)], parquet=True)
    with open_all(folder, "topic", "id", sample=100) as responses:
        topic, number = groups(responses, ["topic", "id"])
    assert [(row["group"], row["responses"], row["scored"], row["mean"]) for row in topic["rows"]] == [
        ("a", 151, 150, 151.0),
        ("b", 150, 150, 150.0),
    ]
    assert topic["others"] == 0
    assert len(number["rows"]) == 30
    assert number["others"] == 271


def nested_corpus(folder: Path, **how: Any) -> str:
    metas: list[Any] = [
        {"topic": "a", "source": {"name": "it's"}, "weights": [1]},
        {"topic": "b", "source": {"name": "it's"}, "weights": [1]},
        {"topic": "a", "source": None, "weights": []},
        {"topic": None, "source": {"name": "y"}, "weights": None},
        None,
    ]
    rows = [chat(f"q{index}", f"text {index}", **{"meta": meta, "my.kind": "k"}) for index, meta in enumerate(metas)]
    return judged_corpus(folder, rows, [[float(index)] for index in range(5)], MESSAGES, **how)


@pytest.mark.parametrize("parquet", [True, False])
def test_groups_of_nested_fields(tmp_path: Path, parquet: bool) -> None:
    by = ["meta.topic", "meta.source.name", "my.kind"] if parquet else ["meta.topic", "meta.source.name"]
    with open_all(nested_corpus(tmp_path / "s", parquet=parquet), *by) as responses:
        topic, source, *_ = [
            [(row["group"], row["responses"], row["mean"]) for row in group["rows"]] for group in groups(responses, by)
        ]
        read_all(responses)
    assert sorted(topic, key=str) == [("a", 2, 1.0), ("b", 1, 1.0), (None, 2, 3.5)]
    assert sorted(source, key=str) == [("it's", 2, 0.5), ("y", 1, 3.0), (None, 2, 3.0)]
    html_report.build(settings(tmp_path / "r.html", str(tmp_path / "s"), by=by))
    assert "By <bdi>meta.source.name</bdi>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("parquet", [True, False])
def test_a_nested_field_without_plain_values_is_refused(tmp_path: Path, parquet: bool) -> None:
    folder = nested_corpus(tmp_path / "s", parquet=parquet)
    there = "my.kind, meta.topic, meta.source.name" if parquet else "none; a field inside another is named with a dot"
    for name in ("meta", "meta.kind", "meta.weights", "meta.", "meta.topic.x", "meta.source"):
        with pytest.raises(SettingsError, match=f"--by {name}: there is no column of this name .* the input has {there}"):
            html_report.build(settings(tmp_path / "r.html", folder, by=(name,)))


@pytest.mark.parametrize("name", ["part_at", "row_at"])
def test_a_column_by_a_name_of_the_reports_is_refused(tmp_path: Path, name: str) -> None:
    rows = [chat("q", f"a{index}", **{name: index}) for index in range(3)]
    folder = judged_corpus(tmp_path / "s", rows, [[1.0]] * 3, MESSAGES, parquet=True)
    with pytest.raises(SettingsError, match=f"--by {name}: the report uses this name itself"):
        html_report.build(settings(tmp_path / "r.html", folder, by=(name,)))


def test_outputs_and_candidates_make_groups_too(tmp_path: Path) -> None:
    with open_all(corpus(tmp_path / "s", [1.0, 2.0, 2.0]), "scores.reward", "status") as responses:
        scores, status = groups(responses, ["scores.reward", "status"])
        (output,) = outputs(responses)
    assert [(row["group"], row["responses"]) for row in scores["rows"]] == [("2.0", 2), ("1.0", 1)]
    assert [(row["group"], row["responses"]) for row in status["rows"]] == [("scored", 3)]
    assert output["count"] == 3, "it stays an output"
    with open_all(draw_candidates(tmp_path / "d", ["x", "y", "x"], [1.0, 2.0, 3.0]), "candidate") as responses:
        (group,) = groups(responses, ["candidate"])
        assert sampling(responses)["distinct"] == 2  # type: ignore[index]
    assert [(row["group"], row["responses"]) for row in group["rows"]] == [("x", 2), ("y", 1)]


def test_records_that_are_not_json_are_in_no_group(tmp_path: Path) -> None:
    folder = nested_corpus(tmp_path / "s")
    part = sorted((tmp_path / "s" / "parts").glob("*.parquet"))[0]
    table = pq.read_table(part)
    records = pa.array([b"\xff{", b'\xef\xbb\xbf{"meta": {"topic": 7}}'], pa.large_binary())
    rewrite(part, table.set_column(table.schema.names.index("record"), "record", records))
    with open_all(folder, "meta.topic") as responses:
        (topic,) = groups(responses, ["meta.topic"])
    assert sorted((str(row["group"]), row["responses"]) for row in topic["rows"]) == [("7", 1), ("None", 3), ("a", 1)]


def test_the_best_of_n_is_the_mean_over_all_ways_to_draw_n(tmp_path: Path) -> None:
    rng = random.Random(4)
    rewards = [[rng.gauss(0, 1) for _ in range(count)] for count in (4, 4, 6, 2)]
    candidates = [[(f"text {index % 3}", reward) for index, reward in enumerate(row)] for row in rewards]
    folder = drawn_corpus(tmp_path / "s", [{"prompt": f"q{index}"} for index in range(4)], candidates, prompts())
    with open_all(folder) as responses:
        draw_candidates = sampling(responses)
    assert draw_candidates is not None
    assert draw_candidates["best"]["n"] == [1, 2, 3, 4]
    assert (draw_candidates["best"]["prompts"], draw_candidates["best"]["left_out"]) == (3, 1)
    for n, mean in zip(draw_candidates["best"]["n"], draw_candidates["best"]["means"], strict=True):
        of_prompts = [np.mean([max(ways) for ways in itertools.combinations(row, n)]) for row in rewards[:3]]
        assert mean == pytest.approx(np.mean(of_prompts))
    assert (draw_candidates["drawn"], draw_candidates["distinct"]) == (16, 3 + 3 + 3 + 2)
    assert draw_candidates["finishes"] == [("stop", 16)]
    html_report.build(settings(tmp_path / "r.html", folder))
    assert "are distinct answers to their prompts" in (tmp_path / "r.html").read_text()


def test_the_best_of_n_of_more_candidates_than_a_float_can_count_the_ways_of(tmp_path: Path) -> None:
    """Rows with equal prompts are one prompt: 1,200 candidates have 10^360 ways to draw half of them."""
    rng = random.Random(5)
    rewards = [[rng.gauss(0, 3) for _ in range(400)] for _ in range(3)]
    candidates = [[(f"text {index}", reward) for index, reward in enumerate(row)] for row in rewards]
    folder = drawn_corpus(tmp_path / "s", [{"prompt": "q"}] * 3, candidates, prompts())
    with open_all(folder) as responses:
        best = best_of_n(responses)
    assert best is not None
    assert best["n"] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1200]
    ordered = sorted(map(Fraction, itertools.chain.from_iterable(rewards)))
    for n, mean in zip(best["n"], best["means"], strict=True):
        ways = [math.comb(index, n - 1) for index in range(1200)]
        exact = sum(reward * times for reward, times in zip(ordered, ways, strict=True)) / math.comb(1200, n)
        assert mean == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def test_labels_and_the_rewards_that_agree_with_them(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{index}", "chosen": f"good {index}", "rejected": f"bad {index}"} for index in range(4)]
    folder = judged_corpus(tmp_path / "s", rows, [[2, 1], [1, 2], [3, 1], [1, None]], RowShape("preference"))
    with open_all(folder) as responses:
        actual_labels = labels(responses)
    assert actual_labels is not None
    counts = [actual_labels[name] for name in ("pairs", "agree", "disagree", "left_out")]
    assert counts == [3, 2, 1, 1]
    html_report.build(settings(tmp_path / "r.html", folder))
    assert "of 3 pairs of chosen and rejected, 2 (66.7%)" in (tmp_path / "r.html").read_text()


def test_an_example_without_a_reward_shows_what_was_wrong(tmp_path: Path) -> None:
    rows = [chat("q", "a"), {"messages": [{"role": "user", "content": 5}, {"role": "assistant", "content": "a"}]}]
    html_report.build(settings(tmp_path / "r.html", judged_corpus(tmp_path / "s", rows, [[1.0], [None]], MESSAGES)))
    shown = (tmp_path / "r.html").read_text().partition("Without a reward: content_not_text")[2]
    assert "messages: a number, 5, where text is expected" in shown


def test_time_and_cost_are_those_of_the_run_or_unknown(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [1.0])
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    cases: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"seconds": 7200, "gpu_hours": 4.5, "engines": 2}, {"time": "2:00:00", "GPU-hours": "4.50", "cost": "9.00"}),
        ({"seconds": 60, "gpu_hours": 0.0}, {"time": "0:01:00", "cost": "0.00"}),
        ({"seconds": None, "why": "a session was killed"}, {"time": "unknown: a session was killed"}),
        ({}, {"cost": "unknown: the GPU-hours of the run aren't known"}),
    ]
    for work, facts in cases:
        (tmp_path / "s" / "manifest.json").write_text(json.dumps({**manifest, "summary": {"work": work}}))
        with open_all(folder) as responses:
            assert facts.items() <= overview(responses, 2.0)["facts"].items()


def compared(tmp_path: Path, first: str, second: str) -> tuple[dict[str, Any], str]:
    """The comparison of two folders, and their page."""
    with open_all(first) as ours, open_all(second) as theirs:
        result = comparison(ours, theirs)
    html_report.build(settings(tmp_path / "r.html", first, second))
    return result, (tmp_path / "r.html").read_text()


def test_two_folders_are_compared_over_the_responses_that_both_scored(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [float(index) for index in range(120)])
    second = corpus(tmp_path / "b", [None, *(-index / 2 for index in range(1, 120))])
    result, page = compared(tmp_path, first, second)
    assert (result["common"], result["rho"], result["matched_by"]) == (119, -1, "input file, place and response name")
    assert [side["count"] for side in result["sides"]] == [120, 119]
    assert result["sides"][0]["centres"] == result["sides"][1]["centres"]
    assert '<b id="rho">-1.000</b>' in page


def test_folders_without_a_common_file_or_texts_have_no_rank_correlation(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", [1.0, 2.0]), corpus(tmp_path / "b", [1.0, 2.0])
    manifest = read_manifest(second)
    assert manifest is not None
    replace(manifest, files=(replace(manifest.files[0], fingerprint="blake2b:1"),)).write(second)
    result, page = compared(tmp_path, first, second)
    assert result["rho"] is None
    assert "There is no rank correlation: " in page
    assert "can only be matched by content" in page


@pytest.mark.parametrize(("rewards", "why"), [([1.0], "it takes two"), ([1.0] * 2, "one of the folders has a single value")])
def test_too_few_or_equal_rewards_have_no_rank_correlation(tmp_path: Path, rewards: list[float | None], why: str) -> None:
    result, page = compared(tmp_path, corpus(tmp_path / "a", rewards), corpus(tmp_path / "b", rewards))
    assert result["rho"] is None
    assert f"have a reward in both, and {why}." in page


def draw_candidates(folder: Path, texts: list[str], rewards: list[float]) -> str:
    """Candidates of one prompt by a policy."""
    candidates = [list(zip(texts, rewards, strict=True))]
    return drawn_corpus(folder, [{"prompt": "q"}], candidates, prompts())


def test_what_a_policy_drew_is_the_same_only_if_its_text_is(tmp_path: Path) -> None:
    first = draw_candidates(tmp_path / "a", ["one", "two", "three", "four"], [1.0, 2.0, 3.0, 4.0])
    second = draw_candidates(tmp_path / "b", ["one", "another", "three", "four"], [3.0, -5.0, 2.0, 1.0])
    result, page = compared(tmp_path, first, second)
    assert sorted(zip(*result["points"], strict=True)) == [(1.0, 3.0), (3.0, 2.0), (4.0, 1.0)]
    assert (result["common"], result["rho"]) == (3, pytest.approx(-1))
    assert "matched by prompt and text" in page


def test_rewards_that_compare_the_responses_of_a_row_have_no_rank_among_all(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", [1.0, 2.0, 3.0]), corpus(tmp_path / "b", [1.0, 2.0, 3.0])
    manifest = read_manifest(second)
    assert manifest is not None
    replace(manifest, columns=replace(manifest.columns, within_row=True)).write(second)
    result, page = compared(tmp_path, first, second)
    assert result["rho"] is None
    assert "There is no rank correlation: the rewards here are of a judge that compares" in page


# --- Folders of every kind ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", KINDS)
def test_every_kind_of_folder_has_a_page(tmp_path: Path, how: dict[str, Any]) -> None:
    texts = [f"answer {index}" for index in range(6)]
    rows = [chat("q", text, topic="a") for text in texts]
    rewards = [[{"reward": float(index), "spread": index / 2, "order": index}] for index in range(5)]
    folder = judged_corpus(tmp_path / "s", rows, [*rewards, [None]], MESSAGES, **how)
    written = html_report.build(settings(tmp_path / "r.html", folder, by=("topic",) if "parquet" in how else ()))
    page = (tmp_path / "r.html").read_text()
    assert written.size == len(page.encode())
    assert all(text in page for text in texts)
    assert "rejected: too_long" in page
    assert ("Most disputed" in page) == ("ensemble" in how)


@pytest.mark.parametrize("rewards", [[], [None, None]])
def test_nothing_to_show_is_no_error(tmp_path: Path, rewards: list[float | None]) -> None:
    folder = corpus(tmp_path / "s", rewards)
    html_report.build(settings(tmp_path / "r.html", folder))
    assert f"over all {len(rewards)} responses" in (tmp_path / "r.html").read_text()


def charts_of(page: str) -> list[Any]:
    """What is drawn, in the order of the page."""
    return [json.loads(unescape(chart)) for chart in re.findall(r"data-chart='(.*?)'", page)]


def page_of(folder: Path, *evaluations: Evaluation, paired: Sequence[PairedComparison] = ()) -> str:
    """The page of these results."""
    (folder / "results.json").write_text(json.dumps(Results(evaluations, paired).document({})))
    html_report.build(settings(folder / "r.html", str(folder)))
    return (folder / "r.html").read_text()


def test_figures_of_an_evaluation(tmp_path: Path) -> None:
    figure = Figure("accuracy", 0.75, 0.7, 0.8, 40, "ties are <b>half</b>", near_chance=True)
    without = replace(figure, value=None, low=None, high=None, near_chance=False)
    page = page_of(tmp_path, evaluation_of("one", figures=[figure]), evaluation_of("two", figures=[without]))
    assert (
        "<td>75.0% <small>70.0% to 80.0%</small> <small>near chance</small> <small>n = 40</small></td><td>–</td>"
        '<td class="text">ties are &lt;b&gt;half&lt;/b&gt;</td>'
    ) in page
    with pytest.raises(SettingsError, match="has its subsets already"):
        html_report.build(settings(tmp_path / "r.html", str(tmp_path), by=("topic",)))


def share(name: str, value: float, votes: int | None = None) -> VoteShare:
    return VoteShare(name, value, value - 0.1, value + 0.1, 40, votes)


def test_the_tables_beside_the_figures_name_their_models(tmp_path: Path) -> None:
    margins = MarginReport(7, 7, (MarginBin(0.5, 0.75, 7, 0.6, 0.4, 0.9, 0.5),), 0.125, 0.05)
    votes = VoteReport(2, 40, 3, (share("accuracy of 1 vote", 0.6, 1),), (share("two votes rank alike", 0.66),))
    splits = (CreditSplit("all items", 400, 31, 12, 0.00537), CreditSplit("chat", 100, 8, 2, 0.109375))
    pair = PairedComparison("pairs", "m0", "<b>m1", 400, "", (Difference("accuracy", -0.0125, -0.05, 0.025),), splits, "")
    page = page_of(tmp_path, evaluation_of("m0", margins=margins), evaluation_of("<b>m1", votes=votes), paired=[pair])
    assert "<b>m1" not in page
    for text in (
        "<h3><bdi>m0</bdi>: Accuracy by margin</h3>",
        "<th>0.5 to 0.75</th><td>60.0%</td><td>40.0% to 90.0%</td><td>50.0%</td><td>7</td>",
        "<h3><bdi>&lt;b&gt;m1</bdi>: Votes of the judge, 2 an item</h3>",
        "<th>two votes rank alike</th><td>66.0%</td><td>56.0% to 76.0%</td><td>40</td>",
        "3 items with fewer readable votes are left out.",
        "<h3>m0 less &lt;b&gt;m1 on pairs</h3>",
        "<th>accuracy</th><td>-1.25</td><td>-5.00 to +2.50</td>",
        "<th>chat</th><td>100</td><td>8</td><td>2</td><td>0.109</td>",
    ):
        assert text in page


def test_published_figures_stand_below(tmp_path: Path) -> None:
    about = ("card of <b>", "2025-05-15", "published", "mean", None)
    like = PublishedComparison(*about, [ComparedFigure("overall", 82.5, 81.25)], ["dtype not stated, here <i>"])
    other = replace(like, figures=[], differs=["its split is gpt-4o"])
    page = page_of(tmp_path, evaluation_of(figures=figures_of(overall=0.8125, easy=0.5), published=[like, other]))
    source = "Published (card of &lt;b&gt;, 2025-05-15, split published, mean)"
    assert f"{source}: overall 82.5, here 81.25 (-1.25)" in page
    assert f"{source}: not comparable" in page
    assert "differs: dtype not stated, here &lt;i&gt;" in page


# --- What is refused ------------------------------------------------------------------------------------------------


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [1.0, 2.0], parquet=True)
    with pytest.raises(SettingsError, match=r"--by kind: there is no column of this name .* the input has topic, id"):
        html_report.build(settings(tmp_path / "r.html", folder, by=("kind",)))
    with pytest.raises(SettingsError, match="--by messages"):
        html_report.build(settings(tmp_path / "r.html", folder, by=("messages",)))
    assert not (tmp_path / "r.html").exists()


def test_a_page_of_a_part_of_a_run_says_that_it_is(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [float(index) for index in range(120)])
    whole = settings(tmp_path / "whole.html", folder, partial=True)
    html_report.build(whole)
    assert "complete" not in (tmp_path / "whole.html").read_text()
    next((tmp_path / "s" / "parts").glob("*.parquet")).unlink()
    html_report.build(settings(tmp_path / "r.html", folder, partial=True))
    assert "The run wasn&#39;t complete when this page was made" in (tmp_path / "r.html").read_text()


def test_warnings_of_two_folders_name_them(tmp_path: Path) -> None:
    texts = ["word " * index for index in range(1, 121)]
    biased = corpus(tmp_path / "biased", [float(index) for index in range(120)], texts)
    fair = corpus(tmp_path / "fair", [float(index * 7 % 120) for index in range(120)], texts)
    (warning,) = html_report.build(settings(tmp_path / "r.html", fair, biased)).warnings
    assert warning.startswith(f"{biased}: Longer responses have higher rewards")


def test_a_page_is_written_over_and_nothing_else_is(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [1.0, 2.0])
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(OutputError, match="isn't a page of `assay report`"):
        html_report.build(settings(tmp_path / "mine.html", folder))
    assert (tmp_path / "mine.html").read_text() == "mine"
    first = html_report.build(settings(tmp_path / "r.html", folder))
    assert html_report.build(settings(tmp_path / "r.html", folder)).size == first.size


def test_a_link_that_lies_beside_the_page_is_not_followed(tmp_path: Path) -> None:
    folder, victim = corpus(tmp_path / "s", [1.0, 2.0]), tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".r.html.unfinished").symlink_to(victim)
    html_report.build(settings(tmp_path / "r.html", folder))
    assert victim.read_text() == "mine"
    assert not (tmp_path / "r.html").is_symlink()


def test_a_part_that_is_damaged_is_named(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "s", [float(index) for index in range(50)])
    (part,) = (tmp_path / "s" / "parts").glob("*.parquet")
    content = bytearray(part.read_bytes())
    content[100:140] = bytes(40)
    part.write_bytes(content)
    with pytest.raises(SourceError, match=part.name):
        html_report.build(settings(tmp_path / "r.html", folder))
    assert not (tmp_path / "r.html").exists()


def test_a_folder_that_is_nothing_of_assay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"isn't there.* `report` reads .* `filter`, or .*`evaluate --out`"):
        html_report.build(settings(tmp_path / "r.html", str(tmp_path / "nothing")))
    (tmp_path / "other").mkdir()
    with pytest.raises(SourceError, match=r"other .*`evaluate --out`"):
        html_report.build(settings(tmp_path / "r.html", str(tmp_path / "other"), str(tmp_path / "nothing")))
