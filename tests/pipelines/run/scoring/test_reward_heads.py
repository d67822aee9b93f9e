"""Models that give more than a number, through the whole job: principles of a row or a run, steps, pairs that diverge."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError
from pipelines.results.filtering import filter_corpus
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.corpora import lines, outcome_of, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")


def make_row(response: str, **more: Any) -> dict[str, Any]:
    return {"context": [{"role": "user", "content": "Hi"}], "response": response, **more}


def test_a_rows_own_principle_is_what_it_is_judged_by(tmp_path: Path) -> None:
    rows = [make_row("a", principle="brevity"), make_row("a", principle="clarity"), make_row("a", principle=" ")]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    score(settings(corpus, tmp_path / "out", model="tiny-principle"))
    short, clear, _ = scored(tmp_path / "out")
    assert outcome_of(tmp_path / "out") == [("scored", None), ("scored", None), ("rejected", "empty_content")]
    assert short["reward"] != clear["reward"]
    assert short["scores"] == {"mean": short["reward"], "min": short["reward"]}


def test_the_runs_principles_each_have_a_score(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([make_row("a", principle="clarity"), make_row("b", principle="brevity")]))
    message = {"right": "correctness", "short": "brevity"}
    score(settings(corpus, tmp_path / "out", model="tiny-principle", principles=message, principle_reward="min"))
    for row in scored(tmp_path / "out"):
        assert set(row["scores"]) == {"right", "short"}
        assert row["reward"] == min(row["scores"].values())


def test_a_corpus_without_a_principle_is_refused_before_it_starts(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{"prompt": "a", "response": "b"}] * 3))
    with pytest.raises(SettingsError, match=r"none of the 3 rows looked at has one; give --set principles.NAME=TEXT"):
        score(settings(corpus, tmp_path / "out", model="tiny-principle"))
    assert not (tmp_path / "out").exists()


def test_each_step_has_a_reward_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "response": "one\n\ntwo\n\nthree"},
        {"prompt": "a", "response": "one"},
        {"prompt": "a", "response": ""},
    ]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    score(settings(corpus, tmp_path / "out", model="tiny-math-prm"))
    three, item, none = scored(tmp_path / "out")
    assert [len(row["steps"] or ()) for row in (three, item, none)] == [3, 1, 0]
    assert none["steps"] is None
    assert all(0 < step < 1 for step in (*three["steps"], *item["steps"]))
    assert three["scores"] == {"product": three["reward"], "min": min(three["steps"]), "last": three["steps"][-1]}
    filter_corpus.keep(
        build(FilterSettings, {"scored": str(tmp_path / "out"), "output": str(tmp_path / "kept"), "where": "len(steps) > 1"})
    )
    (kept,) = [json.loads(line) for path in (tmp_path / "kept").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert kept["steps"] == three["steps"]


def test_only_a_pair_diverges(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "chosen": "yes", "rejected": "no"}, {"prompt": "a", "chosen": "yes", "rejected": ""}]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    score(settings(corpus, tmp_path / "out", model="tiny-mean-variance", diverging_lambda=0.0))
    chosen, rejected, alone, _ = scored(tmp_path / "out")
    apart = abs(chosen["reward"] - rejected["reward"])
    assert chosen["scores"]["diverging"] == rejected["scores"]["diverging"] == apart
    assert alone["scores"]["diverging"] is None
    assert alone["scores"]["mean"] == alone["reward"]
