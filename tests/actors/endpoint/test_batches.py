"""OpenAI's Batch API: nothing is sent twice, whatever is killed, and what fails for the moment is sent again."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from actors.endpoint import batches
from actors.endpoint.account import read_spent
from actors.errors import CostReached, EndpointError, RunStopped
from actors.records import Reason, Score
from pipelines.data import storage
from tests.support.asked_endpoints import asking
from tests.support.chat_endpoints import RUBRIC, BatchApi, grade
from tests.support.endpoints import listening, wait
from tests.support.models import request, user

TEXTS = tuple("abcdefghij")


def ask(address: str, *texts: str, **options: Any) -> list[Score]:
    fast = {"rubric": RUBRIC, "batch": True, "batch_poll_s": 0.05}
    with asking(f"{address}/v1", "judge", **{**fast, **options}) as score:
        return [scores[0] for scores in score([request(user("?"), to=[text]) for text in texts])]


def test_all_prompts_go_out_as_one_file() -> None:
    api = BatchApi()
    with listening(api.app) as address:
        scores = ask(address, *TEXTS, *TEXTS)
    assert [score.reward for score in scores] == [grade(text) for text in TEXTS] * 2
    assert (len(api.batches), set(api.sent.values())) == (1, {1})
    bodies = [json.loads(line)["body"] for line in api.files["file-0"].splitlines()]
    assert all("max_completion_tokens" in body and "max_tokens" not in body for body in bodies), "newer models take no other"
    assert not api.requests, "nothing by the dearer way, not even the preflight"


def test_a_line_that_failed_for_the_moment_is_sent_again_and_a_refused_one_isnt() -> None:
    def fault(text: str, times: int) -> dict[str, Any] | None:
        status = {"a": 429 if times == 0 else None, "b": 400, "c": 500}.get(text)
        return status and {"response": {"status_code": status, "body": {"error": {"message": "no"}}}, "error": None}  # type: ignore[return-value]

    api = BatchApi(fault)
    with listening(api.app) as address:
        scores = ask(address, *TEXTS)
    assert [score.reason for score in scores] == [None, Reason.ENDPOINT_REFUSED, Reason.ENDPOINT_FAILED] + [None] * 7
    assert [api.sent[text] for text in "abcd"] == [2, 1, 3, 1]
    assert scores[1].detail.startswith("answers 400: no")


def test_what_was_refused_is_asked_again_by_the_next_session(tmp_path: Path) -> None:
    """As the cause may be mended by then: a right of the project, a setting of the model."""
    refusal = {"response": {"status_code": 403, "body": {"error": {"message": "no"}}}, "error": None}
    api, notes = BatchApi(lambda text, times: refusal if (text, times) == ("b", 0) else None), storage.folder(str(tmp_path))
    with listening(api.app) as address:
        assert [score.reason for score in ask(address, *TEXTS, notes=notes)].count(Reason.ENDPOINT_REFUSED) == 1
        assert None not in [score.reward for score in ask(address, *TEXTS, notes=notes)]
    assert [api.sent[text] for text in "abc"] == [1, 2, 1]


def test_a_line_ends_at_a_line_feed_alone_and_what_cant_be_read_is_sent_again() -> None:
    garbled = {"response": {"status_code": 200, "body": {"error": {"message": "down", "code": 500}}}, "error": None}
    api = BatchApi(lambda text, times: garbled if (text, times) == ("b", 0) else None)
    answer = api.answer
    api.answer = lambda body: answer(body) | {"note": "\u2028\u2029\x85"}  # type: ignore[method-assign]
    with listening(api.app) as address:
        scores = ask(address, *TEXTS)
    assert [score.reward for score in scores] == [grade(text) for text in TEXTS]
    assert [api.sent[text] for text in "abc"] == [1, 2, 1]
    assert batches._read_lines(b'{"custom_id": "a"}\nnot JSON\n[]\n{}\n') == {"a": {"custom_id": "a"}}


def test_an_expired_batch_is_sent_again_and_two_in_a_row_stop_the_run() -> None:
    api = BatchApi()
    api.ends = ["expired"]
    with listening(api.app) as address:
        assert None not in [score.reward for score in ask(address, *TEXTS)]
        assert len(api.batches) == 2
        api.ends = ["expired"] * 3
        with pytest.raises(RunStopped, match="two batches in a row answered no line"):
            ask(address, "new")


def test_a_batch_that_cant_be_done_is_a_mistake_of_the_users_and_isnt_looked_at_again(tmp_path: Path) -> None:
    api, notes = BatchApi(), storage.folder(str(tmp_path))
    api.ends = ["failed"]
    with listening(api.app) as address:
        with pytest.raises(EndpointError, match="can't do the batch batch_0"):
            ask(address, "a", notes=notes)
        assert [score.reward for score in ask(address, "a", notes=notes)] == [grade("a")]
    assert len(api.batches) == 2


def test_a_batch_that_cant_be_sent_stops_the_run_and_fails_no_line() -> None:
    class Full(BatchApi):
        async def upload(self, request: Request) -> Any:
            return JSONResponse({"error": {"message": "no room for files"}}, 400)

    with listening(Full().app) as address, pytest.raises(RunStopped, match="no room for files; a batch can't be sent"):
        ask(address, *TEXTS)


def test_no_file_is_larger_than_the_endpoint_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_MOST_BYTES", 2000)
    api = BatchApi()
    with listening(api.app) as address:
        scores = ask(address, *TEXTS)
    assert [score.reward for score in scores] == [grade(text) for text in TEXTS]
    assert max(map(len, (api.files[f"file-{number}"] for number in range(len(api.batches))))) <= 2000
    assert set(api.sent.values()) == {1}


@pytest.mark.parametrize("is_id_known", [True, False])
def test_a_session_that_was_killed_finds_its_batches_again(tmp_path: Path, is_id_known: bool) -> None:
    """Also where it was killed between the creation of a batch and the note of its number."""
    api, notes = BatchApi(), storage.folder(str(tmp_path))
    api.is_stuck = True
    prices = {"input_price": 1e6, "output_price": 1e6, "max_tokens": 5}
    with listening(api.app) as address:
        killed = threading.Thread(target=lambda: ask(address, *TEXTS, **prices, notes=notes), daemon=True)
        killed.start()
        wait(lambda: api.looks)
        copies = {name: notes.read(name) for name in notes.names()}
        if not is_id_known:
            copies = {name: content.replace(b'"batch_0"', b"null") for name, content in copies.items()}
        folder = storage.folder(str(tmp_path / "resumed"))
        folder.make()
        for name, content in copies.items():
            folder.replace(name, content)
        api.is_stuck = False
        scores = ask(address, *TEXTS, "new", **prices, notes=folder)
        again = ask(address, *TEXTS, **prices, notes=folder)
        killed.join()
    assert [score.reward for score in scores] == [grade(text) for text in (*TEXTS, "new")]
    assert [score.reward for score in again] == [score.reward for score in scores[:-1]], (
        "answers are read again, for nothing"
    )
    assert set(api.sent.values()) == {1}
    assert len(api.batches) == 2
    assert read_spent(folder).cost == 11 * 10


def test_a_batch_that_the_endpoint_has_lost_is_named_with_its_note(tmp_path: Path) -> None:
    api, notes = BatchApi(), storage.folder(str(tmp_path))
    with listening(api.app) as address:
        ask(address, *TEXTS, notes=notes)
        api.batches.clear()
        with pytest.raises(
            RunStopped, match=r"answers 404: .*; .*if batch_0 is gone, delete endpoint/batch-\w+\.json"
        ) as raised:
            ask(address, *TEXTS, notes=notes, patience_s=0.5)
        (name,) = re.findall(r"batch-\w+\.json", str(raised.value))
        (tmp_path / name).unlink()
        scores = ask(address, *TEXTS, notes=notes)
    assert [score.reward for score in scores] == [grade(text) for text in TEXTS]


def test_no_batch_costs_more_than_the_run_may(tmp_path: Path) -> None:
    api, notes = BatchApi(), storage.folder(str(tmp_path))
    with listening(api.app) as address, pytest.raises(CostReached):
        ask(address, *TEXTS, input_price=1e6, output_price=1e6, max_tokens=5, max_cost=200.0, notes=notes)
    assert 0 < len(api.sent) < len(TEXTS), "a line may cost its bytes, some 150, and costs 10"
    assert 10 * len(api.sent) == read_spent(notes).cost <= 200
