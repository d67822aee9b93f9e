"""`assay serve` as a process: what it refuses before it starts anything, and how it stops."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from deploy import local
from deploy.command import serve
from deploy.settings import AddressSettings, EndpointSettings
from pipelines.settings.options import build
from tests.support.endpoints import QUESTION, rewards, serving, wait

BODY = {"conversations": [{"messages": QUESTION, "responses": ["7", "9"]}]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "./no-such-folder"], "there is no model folder ./no-such-folder"),
        (["--model", "tiny-attributes", "--family", "nope"], "--family nope isn't a family that Assay knows"),
        (
            ["--model", "tiny-attributes", "--set", "render.max_model_len=99999999"],
            "--set max_model_len=99999999 is more than",
        ),
        (["--model", "tiny-attributes", "--set", "engine.engine_args.max_num_seq=3"], "did you mean 'max_num_seqs'"),
        (["--model", "tiny-attributes", "--set", "engine.engine_args.dtype=half"], "engine_args can't hold 'dtype'"),
        (
            ["--model", "tiny-attributes", "--set", "access.cors_origins=labels.example.com"],
            "must be an origin, https://HOST",
        ),
        (
            ["--model", "tiny-attributes", "--set", "scaling.min_replicas=2"],
            "min_replicas=2 is more than --max-replicas 1: give --max-replicas 2 or more",
        ),
        (["--file", "f.yaml", "--name", "reward", "--open"], "sets everything but the address: leave out --name, --open"),
    ],
)
def test_a_mistake_is_told_before_ray_starts(monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    def started(**_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(local, "ray_session", started)
    result = CliRunner().invoke(serve, [*options, "--port", "0"])
    assert result.exit_code
    assert message in str(result.exception)


def test_nothing_of_ray_is_shown_at_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A thread of its own prints that Serve's controller was killed, until Ray has ended."""

    @contextmanager
    def session(**_: object) -> Iterator[None]:
        yield
        print("(raylet) The actor is dead because it was killed by `ray.kill`.")

    monkeypatch.setattr(local, "ray_session", session)
    monkeypatch.setattr("ray.serve.shutdown", lambda: print("(raylet) Shutting down"))
    for name in ("_check_alone", "build", "_start", "_until_stopped", "_finish"):
        monkeypatch.setattr(local, name, lambda *_: None)
    settings = build(EndpointSettings, {"models": ({"model": "tiny-attributes", "engine": {"engine": "fake"}},)})
    local.run(settings, AddressSettings(port=0), print)
    print("end")
    shown = capsys.readouterr().out
    assert "raylet" not in shown
    assert "stopping: requests under way are finished first" in shown
    assert shown.endswith("\nend\n")


@pytest.mark.long
def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    """Serve's own shutdown ends the proxies first, and with them the connection of whoever waits for an answer."""
    log = tmp_path / "log"
    slow = (
        "--model",
        "tiny-attributes",
        "--engine",
        "fake",
        "--set",
        "engine.engine_args.latency_s=3",
        "--set",
        "limits.max_requests=1",
    )
    with serving(*slow, log=log) as (address, process), ThreadPoolExecutor(1) as clients:
        future = clients.submit(answer, address)
        wait(lambda: httpx.get(f"{address}/v1/models", timeout=60).status_code == 429)  # it has the only place
        process.send_signal(signal.SIGINT)
        wait(lambda: "stopping" in log.read_text())
        assert len(rewards(future.result())) == 2
        process.wait(120)
    assert "Traceback" not in log.read_text()


@pytest.mark.long
def test_each_of_several_models_has_a_path_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "endpoint.yaml"
    file.write_text(
        "models: [{model: tiny-attributes, engine: {engine: fake}}, {model: tiny-scalar, engine: {engine: fake}}]"
    )
    with serving("--file", file, log=tmp_path / "log") as (address, _):
        assert httpx.post(f"{address}/v1/rewards", json=BODY, timeout=60).status_code == 400, "of which model?"
        answers = {}
        for name in ("tiny-attributes", "tiny-scalar"):
            routed = httpx.post(f"{address}/v1/rewards", json=BODY | {"model": name}, timeout=60)
            direct = httpx.post(f"{address}/models/{name}/v1/rewards", json=BODY, timeout=60)
            assert rewards(routed) == rewards(direct)
            answers[name] = tuple(rewards(direct))
            assert httpx.get(f"{address}/models/{name}/ready", timeout=60).status_code == 200
            listed = httpx.get(f"{address}/models/{name}/v1/models", timeout=60).json()["data"]
            assert [model["id"] for model in listed] == [name]
        assert len(set(answers.values())) == 2
        assert httpx.get(f"{address}/ready", timeout=60).status_code == 200


def answer(address: str) -> httpx.Response:
    """The answer to a request, which is sent again for as long as others have its place."""
    while (got := httpx.post(f"{address}/v1/rewards", json=BODY, timeout=120)).status_code == 429:
        pass
    return got
