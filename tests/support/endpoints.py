"""Endpoints for tests: the web application alone in this process, or `assay serve` as a user starts it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import ray
import uvicorn
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client

from actors.engine.fork_server import SWITCH, share
from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer
from actors.settings.replica import (
    AS_ITS_CARD,
    AS_PUBLISHED,
    EngineSettings,
    JudgeSettings,
    ModelSettings,
    ReadSettings,
    RenderSettings,
)
from deploy.app import build, resolve_models
from deploy.models.service import ServedModel, Service
from deploy.ray_serve import haproxy
from deploy.settings import EndpointSettings, LimitSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys
from pipelines.run.prepare.identity import open_score_store
from tests.conftest import REPOSITORY
from tests.support.local_ray import end_ray
from tests.support.processes import family

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]
ANSWERED = [*QUESTION, {"role": "assistant", "content": "7"}]
PATIENCE_S = 300.0

T = TypeVar("T")


class InProcess:
    """A scorer of this process behind the interface of replicas elsewhere."""

    def __init__(self, scorer: OnlineScorer) -> None:
        self._scorer = scorer

    async def answer(self, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        """The scorer's answer."""
        return await call(self._scorer)


def scorer(
    name: str,
    *,
    engine: EngineSettings | None = None,
    judge: JudgeSettings = AS_ITS_CARD,
    read: ReadSettings = AS_PUBLISHED,
    store: Path | None = None,
    **render: Any,
) -> OnlineScorer:
    """A built-in model, on the fake engine unless told otherwise, with a score store if one is given."""
    how, engine = RenderSettings(**render), engine or EngineSettings(engine="fake")
    model = resolve_model(ModelSettings(model=name, judge=judge, read=read), how)
    opened = open_score_store(None if store is None else str(store), model, engine)
    return OnlineScorer(model, how, engine, None if opened is None else opened.online)


def application(
    scorers: Sequence[OnlineScorer],
    limits: LimitSettings | None = None,
    keys: Sequence[str] = (),
    render: RenderSettings | None = None,
) -> Any:
    """The ASGI application over models in this process; `render` is how they were made."""
    limit_settings, how = limits or LimitSettings(), render or RenderSettings()
    models = [
        ServedModel(
            (scorer.model.model,),
            scorer.model,
            InProcess(scorer),
            limit_settings,
            render=how,
            engine=EngineSettings(engine="fake"),
        )
        for scorer in scorers
    ]

    async def ready() -> str | None:
        return None

    async def metrics() -> str:
        return ""

    return create_app(Service(models, limit_settings), Keys(keys), ready, metrics)


def client(app: Any, **headers: str) -> httpx.AsyncClient:
    """A client of an application in this process, without a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


def post(app: Any, path: str, body: Any, **headers: str) -> httpx.Response:
    """One request to it. Bytes go as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def send() -> httpx.Response:
        async with client(app, **{"Content-Type": "application/json", **headers}) as http:
            return await http.post(path, content=content)

    return asyncio.run(send())


def rewards(answer: httpx.Response) -> list[float]:
    """The rewards in an answer of /v1/rewards to one conversation."""
    return [response["reward"] for response in answer.json()["data"][0]["responses"]]


def raw(address: str) -> socket.socket:
    """A connection on which nothing has been sent yet."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def head(length: int | None, **headers: str) -> bytes:
    """The head of a request for rewards, whose body has `length` bytes, or is chunked for None."""
    length_header = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    lines = {"Host": "localhost", "Content-Type": "application/json", **length_header, **headers}
    return "\r\n".join(["POST /v1/rewards HTTP/1.1", *(f"{name}: {text}" for name, text in lines.items()), "", ""]).encode()


def free_port() -> int:
    """A port on loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def listening(app: Any, port: int = 0, **options: Any) -> Iterator[str]:
    """An application behind a real socket on loopback, with uvicorn's options; its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(PATIENCE_S)


@contextmanager
def serving(
    *arguments: object, log: Path, folder: Path | str = REPOSITORY, **environment: str
) -> Iterator[tuple[str, psutil.Process]]:
    """`assay serve` on a free port, once it is ready; its address, and its process."""
    port = free_port()
    command = [sys.executable, "-m", "assay", "serve", *map(str, arguments), "--port", str(port)]
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {SWITCH: share()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
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


@contextmanager
def ray_serve() -> Iterator[str]:
    """A private Ray with Serve on it, to `deploy` to; its address. HAProxy is in front as for `assay serve`."""
    end_ray()
    with haproxy.in_front("127.0.0.1"):
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
        port = free_port()
        serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port, keep_alive_timeout_s=65))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            stop: Any = serve.shutdown
            stop()
            ray.shutdown()


def deploy(name: str, *, limits: dict[str, Any] | None = None, keys: Sequence[str] = (), **model: Any) -> None:
    """Deploy a built-in model on the fake engine with these settings, or change what is deployed to them."""
    model_settings = {"model": name, **model, "engine": {"engine": "fake", **model.get("engine", {})}}
    settings = EndpointSettings.model_validate({"models": [model_settings], "limits": limits or {}})
    serve.run(build(settings, Keys(keys), resolve_models(settings)), name="assay", route_prefix="/")


def replica_pids() -> list[int]:
    """The processes of the replicas of the model that was deployed."""
    controller: Any = _get_global_client()
    states = controller.get_serve_details()["applications"]["assay"]["deployments"]["model-0"]["replicas"]
    return [replica["pid"] for replica in states if replica["state"] == "RUNNING"]


@contextmanager
def ray_head(**environment: str) -> Iterator[str]:
    """A Ray with a dashboard, in a process of its own; where the dashboard is, once it answers.

    `ray start --head` would do, but it ends after half a minute if one of its processes is slow to start.
    """
    with haproxy.in_front(""):
        port = free_port()
        inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        process = subprocess.Popen(
            [sys.executable, "-c", _HEAD, str(port)],
            cwd=REPOSITORY,
            env=inherited | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait(lambda: answers(f"http://127.0.0.1:{port}") or process.poll() is not None)
            assert process.poll() is None
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


_HEAD = """
import signal, sys
from pipelines.run.runtime.private_ray.ray_start import start_ray
start_ray(
    address="local", num_cpus=4, object_store_memory=200 * 2**20,
    include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=int(sys.argv[1]),
)
signal.pause()
"""


def answers(url: str) -> bool:
    """Whether a server there answers, with any status."""
    try:
        httpx.get(url, timeout=60)
    except httpx.TransportError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM as a user does, and kill what is left after 60 s."""
    members = family(psutil.Process(process.pid)) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
    for member in members:
        if member.is_running():
            member.kill()
    psutil.wait_procs(members, 30)


def wait(condition: Any) -> None:
    """Wait until the condition holds; fails after 300 s."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def completion(message: dict[str, Any], finish: str = "stop", tokens: int = 3) -> dict[str, Any]:
    """The body of a chat completion with this message of the assistant's."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "served", "choices": [choice], "usage": usage}
