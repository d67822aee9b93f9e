"""Rejection sampling and refining on real vLLM, as a user runs them.

More candidates are right more often; the same command draws the same; kills cost nothing that is committed.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench._answers import read_answers
from bench.sampling import best, expectation
from tests.support.commands import engines_of, kill, parts_of, running, sets, summary, wait_until
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here
from tiny_models.arithmetic import questions

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]

PROMPTS = 48
OPTIONS = ("--policy", "tiny-policy", "--judge", "tiny-attributes", "-n", 16, *sets("policy.policy_max_tokens=48"))
SAMPLE = (*OPTIONS, *sets("work.part_rows=8"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"messages": question.context, "answer": question.answer} for question in questions(5, PROMPTS, "held-out")]
    return write(tmp_path_factory.mktemp("questions") / "prompts.jsonl", lines(rows))


@pytest.fixture(scope="module")
def calm(corpus: Path, local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to its end."""
    output = tmp_path_factory.mktemp("calm") / "out"
    counts = summary("sample", corpus, output, *SAMPLE, run=run_here)
    assert counts["sampling"]["prompts"] == PROMPTS
    assert counts["sampling"]["drawn"] == 16 * PROMPTS
    return output


def texts(output: Path) -> list[tuple[str, str, str]]:
    return [(row["row"], row["response_name"], row["candidate"]) for row in scored(output)]


def share(rights: Sequence[float]) -> float:
    return sum(rights) / len(rights)


def test_the_best_of_more_candidates_is_right_more_often(calm: Path) -> None:
    rows = read_answers(calm)
    alone, four, sixteen = (share([best(rights[:n]) for rights in rows]) for n in (1, 4, 16))
    assert 0.3 < alone < 0.7
    assert alone + 0.15 < four < sixteen + 0.05
    assert sixteen >= alone + 0.25
    expected = share([expectation(rights, 4) for rights in rows])
    assert four == pytest.approx(expected, abs=4 * (expected * (1 - expected) / PROMPTS) ** 0.5), "four deviations"


def test_the_best_are_kept_as_conversations(calm: Path, tmp_path: Path) -> None:
    assert summary("choose", calm, tmp_path / "best", "--strategy", "best", "--per", "row")["rows"] == PROMPTS
    kept = [json.loads(line) for file in (tmp_path / "best").glob("*.jsonl") for line in file.read_text().splitlines()]
    chosen = {row["row"]: (row["response_name"], row["messages"][-1]["content"], row["reward"]) for row in kept}
    for row in scored(calm):
        assert row["reward"] is None or row["reward"] <= chosen[row["row"]][2]
        if row["response_name"] == chosen[row["row"]][0]:
            assert chosen[row["row"]][1:] == (row["candidate"], row["reward"])


@pytest.mark.chaos
def test_killed_engines_and_a_killed_driver_cost_no_committed_candidate(corpus: Path, calm: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    # Sixteen parts are worked on at a time, and end together: there must be more, or all are there at once.
    small = (*OPTIONS, *sets("work.part_rows=1"))
    with running("sample", corpus, output, *small, *sets("policy_engine.policy_max_in_flight=32")) as driver:
        engine, _ = engines_of(driver, 2)
        wait_until(lambda: len(parts_of(output)) >= 1, driver)
        kill(engine)
        committed = {path.name: path.read_bytes() for path in parts_of(output)}
        assert 1 <= len(committed) < PROMPTS
        wait_until(lambda: len(parts_of(output)) > len(committed), driver)
        kill(driver)
    counts = summary("sample", corpus, output, *small, run=run_here)
    now = {path.name: path.read_bytes() for path in parts_of(output)}
    assert {name: now[name] for name in committed} == committed
    rows = scored(output)
    assert len({(row["row"], row["response_name"]) for row in rows}) == len(rows) == 16 * PROMPTS
    assert counts["responses"] == len(rows)
    # Another company in the batch moves the last bits of a probability, and so, once in a while, a token.
    same = share([text == other for text, other in zip(texts(output), texts(calm), strict=True)])
    print(f"{same:.1%} of the texts are those of the calm run")
    assert same >= 0.9


def test_few_candidates_do_where_one_is_good_enough(corpus: Path, calm: Path, tmp_path: Path) -> None:
    counts = summary("sample", corpus, tmp_path / "out", *SAMPLE, *sets("draw.enough=6.5"), run=run_here)["sampling"]
    assert counts["drawn"] <= 0.6 * counts["possible"]
    fewer, all_of = (share(list(map(best, read_answers(output)))) for output in (tmp_path / "out", calm))
    assert fewer >= all_of - 0.05


def test_a_refined_tree_is_whole_and_its_rewards_are_those_of_scoring(corpus: Path, tmp_path: Path) -> None:
    """One model drafts, criticises and edits; what it says about drafts is noise, which is judged all the same."""
    few = ("--drafts", 3, "--limit", 12, *sets("policy.policy_max_tokens=48", "refining.feedbacks=2"))
    out = tmp_path / "out"
    models = ("--policy", "tiny-policy", "--select", "tiny-attributes")
    counts = summary("refine", corpus, out, *models, *few, run=run_here)
    rows = scored(out)
    assert counts["refining"]["prompts"] == 12
    assert counts["responses"] == len(rows)
    by_name = {(row["row"], row["response_name"]): row for row in rows}
    assert len(by_name) == len(rows)
    drafts = [row for row in rows if row["parent"] is None]
    assert [row["response_name"] for row in drafts] == [f"draft[{number}]" for number in range(3)] * 12
    edits = [row for row in rows if row["parent"] is not None]
    good = [row for row in drafts if row["finish_reason"] == "stop"]
    assert len(edits) == 2 * len(good) > 24
    for row in edits:
        name = row["response_name"].partition(".")[0]
        assert row["parent"] == name
        assert (row["row"], name) in by_name
        assert row["feedback"] or row["reward"] is None
    judged = [row for row in rows if row["reward"] is not None]
    assert any(row["parent"] for row in judged)
    assert len({row["candidate"] for row in judged}) > 24

    conversations = [
        {"messages": [*json.loads(row["record"])["messages"], {"role": "assistant", "content": row["candidate"]}]}
        for row in judged
    ]
    again = write(tmp_path / "told.jsonl", lines(conversations))
    summary("score", again, tmp_path / "again", "--model", "tiny-attributes", run=run_here)
    rewards = [row["reward"] for row in scored(tmp_path / "again")]
    assert rewards == pytest.approx([row["reward"] for row in judged], abs=1e-4)
