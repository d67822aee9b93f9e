"""`score --endpoint` of 2,000 rows against a flaky server, killed twice: every row once, as the server said."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chat_endpoints import RUBRIC, Judge, grade
from tests.support.commands import assay, kill, parts_of, running, sets, wait_until
from tests.support.corpora import chat, lines, scored, write
from tests.support.endpoints import listening

ROWS = 2000
FAULTS: list[Any] = [(429, 0.01), 500, 503, "drop", "<html>oh</html>", '{"choices": []}', '{"error": "later"}']


def fault(text: str, times: int) -> Any:
    """A fault for one first request in three, one second in ten; two in a thousand hang until the time-out."""
    chance = random.Random(f"{text} {times}").random()
    if times == 0 and chance < 0.002:
        return "hang"
    return (
        random.Random(f"{text} {times} which").choice(FAULTS)
        if text and chance < (0.33, 0.1)[times > 0] and times < 3
        else None
    )


@pytest.mark.long
def test_every_row_is_there_once_whatever_fails_and_whoever_kills(tmp_path: Path) -> None:
    corpus = write(tmp_path / "in.jsonl", lines([chat("?", f"answer {number}", id=number) for number in range(ROWS)]))
    rubric, output = tmp_path / "rubric.yaml", tmp_path / "out"
    rubric.write_text(yaml.safe_dump(RUBRIC))
    judge = Judge(fault)
    with listening(judge.app) as address:
        command = ["score", corpus, output, "--endpoint", f"{address}/v1", "--model", "judge", "--rubric", rubric]
        command += sets("engine.request_timeout_s=5", "engine.max_in_flight=64")
        for least in (5, 60):
            with running(*command) as driver:
                wait_until(lambda least=least: len(parts_of(output)) >= least, driver)  # type: ignore[misc]
                assert driver.is_running(), "it was killed in the middle"
                kill(driver)
        done = assay(*command)
        assert done.returncode == 0, done.stderr
    rows = scored(output)
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert [row["reward"] for row in rows] == [float(grade(f"answer {number}")) for number in range(ROWS)]
    assert {row["status"] for row in rows} == {"scored"}
    again = sum(times - 1 for text, times in judge.answered.items() if text)
    assert again < 2 * 32 * 16, "a killed session loses what was in flight alone"
    assert b"sk-" not in b"".join(path.read_bytes() for path in output.rglob("*.json"))
