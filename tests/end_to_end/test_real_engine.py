"""The main job on real vLLM, on real data, as a user runs it; and what happens when vLLM's process is killed."""

import json
from pathlib import Path

import pytest

from tests.support.commands import engines_of, kill, parts_of, running, sets, summary, wait_until
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here

PAIRS = 220
"""Held-out pairs through the whole pipeline; 95 % of them must be ranked right."""
ROWS = 60
"""Of JudgeBench: ten parts, of which some are committed and some aren't when the engine dies. Its texts are long: a core
scores some eight responses a second."""


def _pairs() -> list[dict[str, object]]:
    from tiny_models.synthetic import pairs

    return [
        {"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected} for pair in pairs(99, PAIRS, "held-out")
    ]


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("model", ["tiny-attributes", pytest.param("tiny-scalar", marks=pytest.mark.long)])
def test_held_out_pairs_are_ranked_right(tmp_path: Path, model: str) -> None:
    pairs = _pairs()
    corpus = write(tmp_path / "pairs.jsonl", lines([*pairs, {**pairs[0], "rejected": pairs[0]["chosen"]}]))
    counts = summary("score", corpus, tmp_path / "out", "--model", model, run=run_here)
    assert counts["scored"] == 2 * PAIRS + 2
    *rewards, first, second = [row["reward"] for row in scored(tmp_path / "out")]
    assert first == second, "equal texts tie exactly"
    noise = counts["work"]["noise"]
    assert noise["responses"] == 2 * -(-(PAIRS + 1) // 32), "one in 32 is asked twice"
    assert noise["largest"] < 1e-4
    right = sum(chosen > rejected for chosen, rejected in zip(rewards[::2], rewards[1::2], strict=True))
    assert right >= 0.95 * PAIRS


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_judgebench_is_scored_through_a_killed_engine_and_filtered(tmp_path: Path, shared_data: Path) -> None:
    corpus = shared_data / "judgebench" / "gpt-4o.jsonl"
    small = (*sets("work.part_rows=6"), "--limit", ROWS)
    arguments = ("score", corpus, tmp_path / "out", "--model", "tiny-attributes", *small)
    with running(*arguments) as driver:
        (engine,) = engines_of(driver)
        wait_until(lambda: len(parts_of(tmp_path / "out")) >= 2, driver)
        kill(engine)
        assert 2 <= len(parts_of(tmp_path / "out")) < ROWS / 6
        wait_until(lambda: False, driver)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["summary"] is not None, "the run didn't end by itself"
    counts = summary(*arguments, run=run_here)
    assert (counts["rows"], counts["responses"]) == (ROWS, 2 * ROWS)
    assert counts["scored"] >= 0.99 * 2 * ROWS
    median = counts["quantiles"]["reward"][3]
    kept = summary("filter", tmp_path / "out", tmp_path / "kept", "--where", f"reward >= {median}", run=run_here)
    assert 0.9 * ROWS < kept["kept"] < 1.1 * ROWS
    originals = corpus.read_bytes().splitlines()
    for line in (tmp_path / "kept" / "kept-00000.jsonl").read_bytes().splitlines():
        assert any(line.startswith(original[:-1]) for original in originals)
