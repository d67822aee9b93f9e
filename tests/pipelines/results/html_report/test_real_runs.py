"""The report of runs as the commands write them: judges with votes, process models, ensembles, and 100,000 rows."""

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from actors.records import Message, Role, ScoreRequest
from bench._scored_corpora import write_scored
from pipelines.folders.run_folder.columns import SUSPECT
from pipelines.results.filtering.filter_corpus import keep
from pipelines.results.html_report import build as html_report
from pipelines.results.html_report.responses import opened
from pipelines.results.html_report.sections.examples import example_places
from pipelines.results.html_report.sections.judging import position_bias, steps, votes
from pipelines.results.html_report.sections.overview import overview
from pipelines.run.runtime.progress import duration
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.report_settings import ReportSettings
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.score_ensemble import ensemble
from tests.support.corpora import lines, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")
PAIRS = [{"prompt": f"q{index}", "chosen": f"a{index}\n\nb", "rejected": f"c{index}"} for index in range(12)]


def test_votes_position_bias_and_the_most_disputed(tmp_path: Path) -> None:
    score(settings(write(tmp_path / "c.jsonl", lines(PAIRS)), tmp_path / "s", model="tiny-genrm-json", votes=3))
    rows = scored(tmp_path / "s")
    with opened(str(tmp_path / "s"), partial=False, by=(), sample=100, seed=0) as responses:
        actual_votes, bias, places = votes(responses), position_bias(responses), example_places(responses)
        disputed = responses.rows(places["Most disputed"][:1])
    assert actual_votes is not None
    assert (actual_votes["count"], actual_votes["mean_votes"]) == (24, 3)
    assert actual_votes["unanimous"] == sum(len(set(row["votes"])) == 1 for row in rows)
    assert bias is not None
    assert bias["pairs"] == sum(row["scores"]["both_orders"] for row in rows) / 2
    ((_, most),) = disputed.items()
    assert _spread(most["votes"]) == max(_spread(row["votes"]) for row in rows)
    page = _page(tmp_path)
    assert f"{bias['decided']:,} ({bias['decided'] / bias['pairs']:.1%})" in page
    assert "are unanimous" in page
    read = page.partition("With what the judge wrote")[2].partition("<h3>")[0]
    named = [f"<bdi>{row['row']}</bdi> <bdi>{row['response_name']}</bdi>" for row in rows[:4]]
    assert [name in read for name in named] == [True, True, True, False]
    assert read.count("<h4>what the judge wrote</h4>") == 3


def _spread(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return round(sum((value - mean) ** 2 for value in values), 9)


def test_steps_by_their_place(tmp_path: Path) -> None:
    score(settings(write(tmp_path / "c.jsonl", lines(PAIRS)), tmp_path / "s", model="tiny-math-prm"))
    rows = scored(tmp_path / "s")
    with opened(str(tmp_path / "s"), partial=False, by=(), sample=100, seed=0) as responses:
        actual_steps = steps(responses)
    assert actual_steps is not None
    assert (actual_steps["places"], actual_steps["counts"]) == ([1, 2], [24, 12])
    seconds = [row["steps"][1] for row in rows if len(row["steps"]) > 1]
    assert actual_steps["means"][1] == pytest.approx(sum(seconds) / 12)
    assert "mean reward by step" in _page(tmp_path)


def test_an_ensembles_suspects_can_be_read_and_its_time_is_that_of_its_models(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{index}", "responses": [f"text {index} {number}" for number in range(8)]} for index in range(3)]
    inputs, models = (str(write(tmp_path / "c.jsonl", lines(rows))),), ("tiny-scalar", "tiny-attributes")
    value = {
        "inputs": inputs,
        "output": str(tmp_path / "s"),
        "models": models,
        "engine": "fake",
        "suspect_disagreement": 0.5,
    }
    suspects = ensemble(build(EnsembleSettings, value)).combined.flags[SUSPECT]
    assert suspects
    manifests = [tmp_path / "s/models" / name / "manifest.json" for name in ("tiny_scalar", "tiny_attributes")]
    seconds = [json.loads(manifest.read_text())["summary"]["work"]["seconds"] for manifest in manifests]
    with opened(str(tmp_path / "s"), partial=False, by=(), sample=100, seed=0) as responses:
        shown, places = overview(responses, 2.0), example_places(responses)
        examples = responses.rows(places["Suspects of the ensemble"]).values()
    assert len(examples) == min(5, suspects)
    assert all(row[SUSPECT] for row in examples)
    assert places["Most disputed"]
    expected = {"engine": "fake", "suspect responses": f"{suspects}", "time": duration(sum(seconds))}
    assert {**expected, "GPU-hours": "0.00", "cost": "0.00"}.items() <= shown["facts"].items()
    assert "made up" in shown["notes"][0]
    assert "tiny_scalar" in _page(tmp_path)
    shutil.rmtree(tmp_path / "s/models/tiny_scalar")
    with opened(str(tmp_path / "s"), partial=False, by=(), sample=100, seed=0) as responses:
        facts = overview(responses, 2.0)["facts"]
    assert "time" not in facts
    assert facts["cost"].startswith("unknown")


def test_what_a_filter_kept_is_shown_alone_with_its_texts(tmp_path: Path) -> None:
    score(settings(write(tmp_path / "c.jsonl", lines(PAIRS)), tmp_path / "scored"))
    median = sorted(row["reward"] for row in scored(tmp_path / "scored"))[12]
    choice = {"scored": str(tmp_path / "scored"), "output": str(tmp_path / "s"), "where": f"reward >= {median!r}"}
    kept = keep(build(FilterSettings, choice)).kept
    with opened(str(tmp_path / "s"), partial=False, by=(), sample=100, seed=0) as responses:
        responses.read_texts(responses.sampled)
        shown = {(row["row"], row["response_name"]) for row in responses.rows(responses.sampled).values()}
        texts = {read.text for read in responses.texts.values()}
    expected = [row for row in scored(tmp_path / "scored") if row["reward"] >= median]
    assert len(shown) == kept == len(expected)
    assert shown == {(row["row"], row["response_name"]) for row in expected}
    assert texts == {row["response_text"] for row in expected}
    assert f"These are the responses that a filter kept: where: reward &gt;= {median!r}" in _page(tmp_path)


@pytest.mark.long
def test_the_page_of_a_hundred_thousand_rows_is_small(tmp_path: Path) -> None:
    rng, luck = random.Random(5), np.random.default_rng(5)
    words = ["river", "seven", "答案", "proof", "**bold**", "- item", "`code`"]
    schema = pa.schema([("prompt", pa.string()), ("response", pa.string()), ("topic", pa.string())])

    def values(numbers: range) -> dict[str, list[str]]:
        answers = [" ".join(rng.choices(words, k=rng.randint(1, 80))) for _ in numbers]
        prompts = [f"question {number}" for number in numbers]
        return {
            "prompt": prompts,
            "response": answers,
            "topic": rng.choices("abcde", k=len(numbers)),
            "response_text": answers,
            "prompt_hash": [ScoreRequest((Message(Role.USER, prompt),), ()).prompt_hash for prompt in prompts],
        }

    write_scored(tmp_path / "s", luck.normal(size=100_000), schema, values, part_rows=1000, text=True)
    started = time.monotonic()
    written = html_report.build(_settings(tmp_path, by=("topic",)))
    print(f"built in {time.monotonic() - started:.0f} s")
    assert written.size < 8_000_000
    assert written.warnings == []


def _settings(place: Path, **more: Any) -> ReportSettings:
    return build(ReportSettings, {"scored": (str(place / "s"),), "output": str(place / "r.html"), **more})


def _page(place: Path) -> str:
    html_report.build(_settings(place))
    return (place / "r.html").read_text()
