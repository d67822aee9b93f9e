"""`assay serve` as a process: what it refuses before it starts anything, and how it stops."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from deploy import local
from deploy.command import serve
from tests.support.endpoints import QUESTION, rewards, serving, wait

BODY = {"conversations": [{"messages": QUESTION, "responses": ["7", "9"]}]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "./no-such-folder"], "there is no model folder ./no-such-folder"),
        (["--model", "tiny-attributes", "--family", "nope"], "--family nope isn't a family that Assay knows"),
        (["--model", "tiny-attributes", "--max-model-len", "99999999"], "--max-model-len 99999999 is more than"),
        (["--model", "tiny-attributes", "--engine-args", "max_num_seq=3"], "did you mean 'max_num_seqs'"),
        (["--model", "tiny-attributes", "--engine-args", "dtype=half"], "engine_args can't hold 'dtype'"),
        (["--model", "tiny-attributes", "--cors-origins", "labels.example.com"], "must be an origin, https://HOST"),
    ],
)
def test_a_mistake_is_told_before_ray_starts(monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    def started(**_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(local, "ray_session", started)
    result = CliRunner().invoke(serve, [*options, "--port", "0"])
    assert result.exit_code
    assert message in str(result.exception)


@pytest.mark.long
def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    """Serve's own shutdown ends the proxies first, and with them the connection of whoever waits for an answer."""
    log = tmp_path / "log"
    slow = ("--model", "tiny-attributes", "--engine", "fake", "--engine-args", "latency_s=3", "--max-requests", 1)
    with serving(*slow, log=log) as (address, process), ThreadPoolExecutor(1) as clients:
        asked = clients.submit(answer, address)
        wait(lambda: httpx.get(f"{address}/v1/models", timeout=60).status_code == 429)  # it has the only place
        process.send_signal(signal.SIGINT)
        wait(lambda: "stopping" in log.read_text())
        assert len(rewards(asked.result())) == 2
        process.wait(120)
    assert "Traceback" not in log.read_text()


def answer(address: str) -> httpx.Response:
    """The answer to a request, which is sent again for as long as others have its place."""
    while (got := httpx.post(f"{address}/v1/rewards", json=BODY, timeout=120)).status_code == 429:
        pass
    return got
