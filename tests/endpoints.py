"""Endpoints for tests: the web application alone in this process, or `assay serve` as a user starts it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvicorn

from actors.models import resolve
from actors.online import OnlineScorer
from actors.settings import EngineSettings, ModelSettings, RenderSettings
from deploy.auth import Keys
from deploy.service import ServedModel, Service
from deploy.settings import LimitSettings
from deploy.web import create_app
from tests.conftest import REPOSITORY

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]
ANSWERED = [*QUESTION, {"role": "assistant", "content": "7"}]
PATIENCE_S = 300.0


def scorer(name: str, *, engine: EngineSettings | None = None) -> OnlineScorer:
    """A built-in model, on the fake engine unless told otherwise."""
    model = resolve(ModelSettings(model=name), RenderSettings())
    return OnlineScorer(model, RenderSettings(), engine or EngineSettings(engine="fake"))


def application(scorers: Sequence[OnlineScorer], limits: LimitSettings | None = None, keys: Sequence[str] = ()) -> Any:
    """The ASGI application over models in this process."""
    own = limits or LimitSettings()
    models = [ServedModel((one.model.model,), one.model, one, own) for one in scorers]

    async def ready() -> str | None:
        return None

    async def metrics() -> str:
        return ""

    return create_app(Service(models, own), Keys(keys), ready, metrics)


def client(app: Any, **headers: str) -> httpx.AsyncClient:
    """A client of an application in this process, without a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://endpoint", headers=headers)


def post(app: Any, path: str, body: Any, **headers: str) -> httpx.Response:
    """One request to it."""

    async def one() -> httpx.Response:
        async with client(app, **headers) as own:
            return await own.post(path, json=body)

    return asyncio.run(one())


def free_port() -> int:
    """One on loopback that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """An application behind a real socket on loopback; its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(PATIENCE_S)


@contextmanager
def serving(*arguments: object, log: Path, **environment: str) -> Iterator[tuple[str, psutil.Process]]:
    """`assay serve` on a free port, once it is ready; its address, and its process."""
    port = free_port()
    command = [sys.executable, "-m", "pipelines", "serve", *map(str, arguments), "--port", str(port)]
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=inherited | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait(lambda: "ready at" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As a user does it; what is left then is killed."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
    for member in family:
        if member.is_running():
            member.kill()
    psutil.wait_procs(family, 30)


def wait(condition: Any) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
