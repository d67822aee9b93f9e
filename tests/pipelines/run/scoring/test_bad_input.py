"""A corpus with everything that goes wrong: each bad row has its reason, and the rest comes out whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.run.scoring.score_corpus import score
from tests.support.corpora import chat, rows, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")

GOOD = json.dumps(chat("What is 1 + 1?", "2")).encode()
QUESTION = {"role": "user", "content": "What is 1 + 1?"}


def talk(*turns: object) -> bytes:
    return json.dumps({"messages": list(turns)}).encode()


def reply(content: object, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


LONG = "word " * 20_000
LINES: list[tuple[bytes, str | None]] = [
    (b"\xef\xbb\xbf" + GOOD, None),  # a byte-order mark
    (GOOD + b"\r", None),  # CRLF
    (b"\xff\xfe" + GOOD, "not_utf8"),
    (GOOD[:-20], "broken_json"),
    (b"[1, 2]", "not_an_object"),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, "too_deep"),
    (json.dumps({"padding": "x" * 300_000} | chat("a", "b")).encode(), "record_too_large"),
    (talk(QUESTION, reply("\ud800")), "lone_surrogate"),
    (json.dumps(chat("a", "b") | {"note": "\ud800"}).encode(), None),  # where nobody judges
    (b'{"quality": NaN, ' + GOOD[1:], None),  # nor here
    (b'{"id": 12}', "missing_field"),
    (talk(), "no_messages"),
    (talk(QUESTION, reply("")), "empty_content"),
    (talk(QUESTION, reply(" \n\t")), "empty_content"),
    (talk({"role": "user", "content": ""}, reply("2")), "empty_content"),
    (talk(QUESTION, reply(None)), "empty_content"),
    (talk(QUESTION, reply([{"type": "text", "text": "It is"}, {"type": "text", "text": " 2"}])), None),
    (talk(QUESTION, reply([{"type": "image_url", "image_url": "x"}])), "content_not_text"),
    (talk(QUESTION, reply(2)), "content_not_text"),
    (b'{"messages": [{"role":"user","content":"a"},{"role":"assistant","content":NaN}]}', "content_not_text"),
    (talk(QUESTION, reply("2"), {"role": "tool", "content": "3"}, reply("3")), "role_not_in_template"),
    (talk(QUESTION, reply("", tool_calls=[{"id": "1"}]), reply("3")), "tool_call"),
    (talk(QUESTION, {"role": "critic", "content": "no"}, reply("3")), "unknown_role"),
    (talk(QUESTION), "no_final_assistant"),
    (talk(QUESTION, reply(LONG)), "too_long"),
    (talk(QUESTION, reply("2\n<extra_id_1>User\nThank you, that was perfect")), "control_token"),
    (talk({"role": "user", "content": "</s>"}, reply("2")), "control_token"),
    (GOOD, None),
]


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_every_bad_row_has_its_reason(tmp_path: Path, name: str) -> None:
    corpus = write(tmp_path / name, b"\n".join(line for line, _ in LINES))
    summary = score(settings(corpus, tmp_path / "out", max_record_bytes=250_000, unit_bytes=40_000))
    result = scored(tmp_path / "out")
    assert [row["reason"] for row in result] == [reason for _, reason in LINES]
    assert [row["status"] for row in result] == ["rejected" if reason else "scored" for _, reason in LINES]
    assert all((row["reward"] is None) == (row["reason"] is not None) == (row["scores"] is None) for row in result)
    kept = [line.rstrip(b"\r") if reason != "record_too_large" else None for line, reason in LINES]
    assert [row["record"] for row in result] == kept
    assert summary.responses == summary.rows == len(LINES)


def test_the_oldest_turns_are_dropped_on_request_and_it_is_said(tmp_path: Path) -> None:
    short = talk(QUESTION, reply("2"))
    long = talk({"role": "user", "content": LONG}, reply("Indeed."), QUESTION, reply("2"))
    corpus = write(tmp_path / "c.jsonl", b"\n".join([short, long, talk(QUESTION, reply(LONG))]))
    summary = score(settings(corpus, tmp_path / "out", too_long="trim-turns"))
    whole, trimmed, never = scored(tmp_path / "out")
    assert (whole["truncated"], trimmed["truncated"]) == (False, True)
    assert trimmed["reward"] == whole["reward"], "what is left is the same conversation"
    assert (never["status"], never["reason"]) == ("rejected", "too_long")
    assert summary.truncated == 1


def test_one_bad_response_does_not_take_the_other_with_it(tmp_path: Path) -> None:
    pair: dict[str, Any] = {"prompt": "1 + 1?", "chosen": "2", "rejected": ""}
    corpus = write(tmp_path / "c.jsonl", json.dumps(pair).encode())
    score(settings(corpus, tmp_path / "out"))
    chosen, rejected = scored(tmp_path / "out")
    assert (chosen["status"], rejected["status"], rejected["reason"]) == ("scored", "rejected", "empty_content")


def test_a_key_of_ours_that_turns_up_late_is_no_second_column(tmp_path: Path) -> None:
    late = json.dumps(chat("a", "b", reward=3)).encode()
    corpus = write(
        tmp_path / "c.jsonl",
        b"\n".join(
            [*(json.dumps(row).encode() for row in rows(75)), late, *(json.dumps(row).encode() for row in rows(1524))]
        ),
    )
    score(settings(corpus, tmp_path / "out"))
    assert [row["reason"] for row in scored(tmp_path / "out")][75] == "column_collision"  # 50 of each 80 were looked at
