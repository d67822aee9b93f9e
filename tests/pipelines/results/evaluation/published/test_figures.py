"""Published figures: the file is sound by arithmetic, and only like is put beside like."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from pipelines.data.formats import RowShape
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.published.figures import (
    OurFigures,
    PublishedTable,
    compare_published,
    known_file,
    published,
)
from pipelines.results.evaluation.results import Evaluation
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus

DOMAINS = {"chat": 129, "math": 529, "code": 228, "safety": 441}
DIFFICULTIES = ("easy", "normal", "hard")
TABLES = published().tables
ROWS = [(table, model) for table in TABLES for model in table.models]


def figures_of(table: PublishedTable, model: str) -> dict[str, float]:
    return dict(table.figures(model) or {})


def test_a_table_belongs_to_a_benchmark_and_its_split() -> None:
    for table, model in ROWS:
        benchmark = benchmarks()[table.benchmark]
        assert table.split in ({*benchmark.splits} or {"published"})
        assert table.source
        assert len(table.models[model]) == len(table.columns)


def test_rm_benchs_difficulties_are_averaged_as_the_row_says() -> None:
    cases: list[tuple[PublishedTable, str]] = [
        row for row in ROWS if row[0].benchmark == "rm-bench" and "chat" in row[0].columns
    ]
    for table, model in cases:
        figures = figures_of(table, model)
        assert figures["overall"] == pytest.approx(sum(figures[name] for name in DOMAINS) / 4, abs=0.08)
        pooled = sum(figures[name] * count for name, count in DOMAINS.items()) / 1327
        if "easy" in figures:
            assert sum(figures[name] for name in DIFFICULTIES) / 3 == pytest.approx(figures["overall"], abs=0.08)
        if "easy (pooled)" in figures:
            assert sum(figures[f"{name} (pooled)"] for name in DIFFICULTIES) / 3 == pytest.approx(pooled, abs=0.08)
            assert abs(pooled - figures["overall"]) > 1, "the domains' mean is another number: which it is can be told"


def test_judgebenchs_overall_is_over_pairs() -> None:
    cases: list[tuple[PublishedTable, str]] = [row for row in ROWS if row[0].benchmark == "judgebench"]
    for table, model in cases:
        figures = figures_of(table, model)
        counts = benchmarks()["judgebench"].splits["gpt"]
        right = sum(round(figures[name] * count / 100) for name, count in counts.items())
        assert 100 * right / 350 == pytest.approx(figures["overall"], abs=0.051)


@pytest.mark.parametrize(("table", "model"), [row for row in ROWS if row[0].benchmark == "reward-bench"])
def test_rewardbenchs_score_is_the_mean_of_the_sections(table: PublishedTable, model: str) -> None:
    figures = figures_of(table, model)
    sections = [figures[name] for name in ("chat", "chat hard", "safety", "reasoning")]
    assert figures.get("score", sum(sections) / 4) == pytest.approx(sum(sections) / 4, abs=0.06)


def test_the_published_files_are_known_by_their_bytes(shared_data: Path) -> None:
    for benchmark, name in (("judgebench", "judgebench/gpt-4o.jsonl"), ("rm-bench", "rm-bench/code_filtered.json")):
        digest = hashlib.sha256((shared_data / name).read_bytes()).hexdigest()
        assert Path(name).name in str(known_file(benchmark, digest))
    assert known_file("rm-bench", "0" * 64) is None
    assert known_file("rm-bench", None) is None


IDENTITY = {"model": "/models/Skywork-Reward-Gemma-2-27B", "max_model_len": 4096, "dtype": "bfloat16"}


def test_like_is_put_beside_like_and_what_differs_is_said() -> None:
    card, rewards = compare_published(
        OurFigures("judgebench", "gpt", IDENTITY, 0.99, {"overall": 0.6429, "overall (macro)": 0.65})
    )
    assert [(figure.name, figure.published, figure.here) for figure in card.figures] == [("overall", 64.3, 64.29)]
    assert card.differs == (
        ["max length not stated, here 4096", "dtype not stated, here bfloat16", "1.0% of the items have no grade here"]
    )
    assert rewards.lines()[0].endswith("overall 64.29, here 64.29 (+0.00)")


@pytest.mark.parametrize("split", ["claude", None])
def test_another_split_isnt_compared(split: str | None) -> None:
    card, _ = compare_published(OurFigures("judgebench", split, IDENTITY, 1.0, {"overall": 0.6429}))
    assert card.figures == []
    assert "its split is gpt" in card.differs[0]
    assert card.lines()[0].endswith("not comparable")


def test_another_average_isnt_compared() -> None:
    identity = {"model": "nvidia/Llama-3.3-Nemotron-70B-Reward"}
    values = {"easy": 0.92, "easy (pooled)": 0.921, "overall": 0.8}
    (card,) = compare_published(OurFigures("rm-bench", "published", identity, 1.0, values))
    assert [figure.name for figure in card.figures] == ["easy (pooled)", "overall"]
    assert compare_published(OurFigures("rm-bench", "published", {"model": "another"}, 1.0, {"overall": 0.8})) == []


def judgebench(folder: Path, shared_data: Path, model: str) -> Evaluation:
    """The rewards that JudgeBench's authors published, as a scored corpus of their file."""
    rows = [json.loads(line) for line in (shared_data / "judgebench" / "gpt-4o.jsonl").read_text().splitlines()]
    with (shared_data / "judgebench" / "rm_scores.tsv").open() as file:
        scores = {row["pair_id"]: row for row in csv.DictReader(file, delimiter="\t") if row["model"].endswith(model)}
    rewards = [[float(scores[row["pair_id"]][f"g1_score_{side}"]) for side in "AB"] for row in rows]
    scored = judged_corpus(folder, rows, rewards, RowShape("judgebench"), parquet=True)
    manifest = next(folder.rglob("manifest*.json"))
    manifest.write_text(manifest.read_text().replace('"model": "m"', f'"model": "Skywork/{model}"'))
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [scored]}))
    return evaluation


def test_published_rewards_give_what_was_published(tmp_path: Path, shared_data: Path) -> None:
    evaluation = judgebench(tmp_path / "s", shared_data, "Skywork-Reward-Gemma-2-27B")
    assert evaluation.split == "gpt"
    for comparison in evaluation.published:
        assert len(comparison.figures) == 5
        assert all(figure.here == pytest.approx(figure.published, abs=0.05) for figure in comparison.figures)
