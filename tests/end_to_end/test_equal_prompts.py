"""Candidates of a prompt that are far from each other in the file meet in the engine, and nothing else changes."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.commands import kill, parts_of, running, sets, stamps, summary, wait_until
from tests.support.corpora import chat, lines, scored, write
from tests.support.local_ray import run_here
from tiny_models.tasks import WORDS

PROMPTS, ANSWERS = 40, 8
PROMPT_TOKENS = 256
"""Two blocks of the cache on a CPU, into which those of eleven prompts fit."""
SMALL = sets(
    "engine.engine_args.num_gpu_blocks_override=24", "engine.engine_args.max_num_seqs=20", "work.part_rows=10",
    "render.max_model_len=1024",
)  # fmt: skip


def shuffled() -> list[dict[str, Any]]:
    draw = Random(0)
    questions = [f"{number} " + " ".join(draw.choices(WORDS, k=PROMPT_TOKENS)) for number in range(PROMPTS)]
    rows = [chat(question, " ".join(draw.choices(WORDS, k=9))) for question in questions for _ in range(ANSWERS)]
    draw.shuffle(rows)
    return [{**row, "id": number} for number, row in enumerate(rows)]


def rewards(output: Path) -> list[float]:
    """Of all rows, which are in the order of the input."""
    rows = scored(output)
    assert [row["id"] for row in rows] == list(range(PROMPTS * ANSWERS))
    return [row["reward"] for row in rows]


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("model", ["tiny-scalar", "tiny-grm"])
def test_shuffled_candidates_meet_and_have_the_rewards_and_the_order_of_the_plain_way(model: str, tmp_path: Path) -> None:
    corpus = write(tmp_path / "rows.jsonl", lines(shuffled()))
    command = ("--model", model, *SMALL)
    met = summary("score", corpus, tmp_path / "met", *command, run=run_here)
    plain = sets("engine.engine_args.enable_prefix_caching=false")
    alone = summary("score", corpus, tmp_path / "plain", *command, *plain, run=run_here)
    assert met["work"]["cached_tokens"] + met["work"]["computed_tokens"] == met["prompt_tokens"] == alone["prompt_tokens"]
    # All but the first of a prompt find it, except those that were in the engine before the others had come: 0.6 to 0.9 of
    # them, as rows come faster or slower than they are scored; 0.22 if none meets.
    assert met["work"]["cached_tokens"] >= 0.4 * PROMPTS * (ANSWERS - 1) * PROMPT_TOKENS
    assert alone["work"]["cached_tokens"] == 0
    assert rewards(tmp_path / "met") == pytest.approx(rewards(tmp_path / "plain"), abs=1e-5)


@pytest.mark.long
def test_a_run_whose_candidates_meet_is_resumed_exactly(tmp_path: Path) -> None:
    corpus = write(tmp_path / "rows.jsonl", lines(shuffled()))
    command = ("score", corpus, tmp_path / "killed", "--model", "tiny-scalar", *SMALL)
    with running(*command) as driver:
        wait_until(lambda: len(parts_of(tmp_path / "killed")) >= 2, driver)
        kill(driver)
    before = stamps(tmp_path / "killed")
    assert 2 <= len(before) < PROMPTS * ANSWERS / 10
    summary(*command)
    after = stamps(tmp_path / "killed")
    assert {name: after[name] for name in before} == before, "a committed part was written again"
    summary("score", corpus, tmp_path / "calm", "--model", "tiny-scalar", *SMALL)
    assert rewards(tmp_path / "killed") == pytest.approx(rewards(tmp_path / "calm"), abs=1e-5)
