"""Published figures: the file is sound by arithmetic, and only like is put beside like."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.data.formats import RowShape
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.published.figures import compare_published, known_file, published
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus
from tests.support.evaluation import evaluation_of, figures_of

DOMAINS = {"chat": 129, "math": 529, "code": 228, "safety": 441}
DIFFICULTIES = ("easy", "normal", "hard")
ROWS = [(table, model) for table in published().tables for model in table.models]


def test_a_table_belongs_to_a_benchmark_and_its_split() -> None:
    for table, model in ROWS:
        assert table.split in ({*benchmarks()[table.benchmark].splits} or {"published"})
        assert table.source
        assert len(table.models[model]) == len(table.columns)


def test_figures_are_averaged_as_their_names_say() -> None:
    for table, model in ROWS:
        figures = dict(table.figures(model) or {})
        if table.benchmark == "rm-bench" and "chat" in figures:
            assert figures["overall"] == pytest.approx(sum(figures[name] for name in DOMAINS) / 4, abs=0.08)
            pooled = sum(figures[name] * count for name, count in DOMAINS.items()) / 1327
            if "easy" in figures:
                assert sum(figures[name] for name in DIFFICULTIES) / 3 == pytest.approx(figures["overall"], abs=0.08)
            if "easy (pooled)" in figures:
                assert sum(figures[f"{name} (pooled)"] for name in DIFFICULTIES) / 3 == pytest.approx(pooled, abs=0.08)
                assert abs(pooled - figures["overall"]) > 1, "the domains' mean is another number: which it is can be told"
        elif table.benchmark == "judgebench":
            counts = benchmarks()["judgebench"].splits["gpt"]
            right = sum(round(figures[name] * count / 100) for name, count in counts.items())
            assert 100 * right / 350 == pytest.approx(figures["overall"], abs=0.051), "over pairs"
        elif "score" in figures:
            sections = [figures[name] for name in ("chat", "chat hard", "safety", "reasoning")]
            assert figures["score"] == pytest.approx(sum(sections) / 4, abs=0.06)


def test_the_published_files_are_known_by_their_bytes(shared_data: Path) -> None:
    for benchmark, name in (("judgebench", "judgebench/gpt-4o.jsonl"), ("rm-bench", "rm-bench/code_filtered.json")):
        digest = hashlib.sha256((shared_data / name).read_bytes()).hexdigest()
        assert Path(name).name in str(known_file(benchmark, digest))
    assert known_file("rm-bench", "0" * 64) is None
    assert known_file("rm-bench", None) is None


def compared(benchmark: str, split: str | None, model: str, coverage: float = 1.0, **values: float) -> Any:
    identity = {"max_model_len": 4096, "dtype": "bfloat16"}
    fields = {"identity": identity, "split": split, "coverage": coverage, "figures": figures_of(**values)}
    return compare_published(evaluation_of(model, benchmark, **fields))


def test_like_is_put_beside_like_and_what_differs_is_said() -> None:
    values = {"overall": 0.6429, "overall (macro)": 0.65}
    card, rewards = compared("judgebench", "gpt", "/models/Skywork-Reward-Gemma-2-27B", 0.99, **values)
    assert [(figure.name, figure.published, figure.here) for figure in card.figures] == [("overall", 64.3, 64.29)]
    assert card.differs == [
        "max length not stated, here 4096",
        "dtype not stated, here bfloat16",
        "1.0% of the items have no grade here",
    ]
    assert rewards.lines()[0].endswith("overall 64.29, here 64.29 (+0.00)")


def test_another_split_or_average_or_model_isnt_compared() -> None:
    for split in ("claude", None):
        card, _ = compared("judgebench", split, "Skywork/Skywork-Reward-Gemma-2-27B", overall=0.6429)
        assert card.figures == []
        assert "its split is gpt" in card.differs[0]
        assert card.lines()[0].endswith("not comparable")
    values = {"easy": 0.92, "easy (pooled)": 0.921, "overall": 0.8}
    (card,) = compared("rm-bench", "published", "nvidia/Llama-3.3-Nemotron-70B-Reward", **values)
    assert [figure.name for figure in card.figures] == ["easy (pooled)", "overall"]
    assert compared("rm-bench", "published", "another", overall=0.8) == []


def test_published_rewards_give_what_was_published(tmp_path: Path, shared_data: Path) -> None:
    model = "Skywork-Reward-Gemma-2-27B"
    rows = [json.loads(line) for line in (shared_data / "judgebench" / "gpt-4o.jsonl").read_text().splitlines()]
    with (shared_data / "judgebench" / "rm_scores.tsv").open() as file:
        scores = {row["pair_id"]: row for row in csv.DictReader(file, delimiter="\t") if row["model"].endswith(model)}
    rewards = [[float(scores[row["pair_id"]][f"g1_score_{side}"]) for side in "AB"] for row in rows]
    identity = {"model": f"Skywork/{model}"}
    scored = judged_corpus(tmp_path / "s", rows, rewards, RowShape("judgebench"), parquet=True, **identity)
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [scored]}))
    assert evaluation.split == "gpt"
    for comparison in evaluation.published:
        assert len(comparison.figures) == 5
        assert all(figure.here == pytest.approx(figure.published, abs=0.05) for figure in comparison.figures)
