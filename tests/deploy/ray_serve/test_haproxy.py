"""Clients that are broken or mean harm, against HAProxy as Ray Serve configures it and we guard it, without Ray."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

from actors.errors import SettingsError
from deploy.ray_serve import haproxy, haproxy_launcher
from deploy.settings import LimitSettings
from deploy.web.auth import Keys
from deploy.web.limits import Gate
from tests.conftest import REPOSITORY
from tests.support.endpoints import free_port, listening, raw, wait

WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n"
CHUNKED = WHOLE.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"
ENOUGH = 60_000
"""Bytes of a field of a head, with room left for the others."""

_seen: dict[str, bytes] = {}
_left = threading.Event()
_waiting = threading.Event()
_written = threading.Event()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers when a request has been read, with the names in its head, or at /client with whose it is."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/wait":
        _waiting.set()
        await receive()
        _left.set()
        return
    if scope["path"] == "/late":
        await asyncio.sleep(3)
    if scope["path"] == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"a" * 2**16, "more_body": True})
        _written.set()
        return
    names = b",".join(name for name, _ in scope["headers"])
    text = scope["client"][0].encode() if scope["path"] == "/client" else names
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


def configured(folder: str, port: int, replicas: list[int], **settings: Any) -> Path:
    """Serve's own configuration for replicas on these ports of this machine."""
    names = {
        "socket_path": "SOCKET_PATH",
        "bufsize": "TUNE_BUFSIZE",
        "timeout_client_s": "TIMEOUT_CLIENT_S",
        "hard_stop_after_s": "HARD_STOP_AFTER_S",
        "server_state_base": "SERVER_STATE_BASE",
        "server_state_file": "SERVER_STATE_FILE",
    }
    variables = haproxy.environment(folder)
    values = {name: variables[f"RAY_SERVE_HAPROXY_{variable}"] for name, variable in names.items()}
    integers = {field.name for field in fields(HAProxyConfig) if "int" in str(field.type)}
    configure: Any = HAProxyConfig
    config = configure(
        http_options=HTTPOptions(host="127.0.0.1", port=port, keep_alive_timeout_s=65),
        metrics_enabled=False,
        **{name: int(value) if name in integers else value for name, value in values.items()} | settings,
    )
    servers = [ServerConfig(f"replica-{number}", "127.0.0.1", replica) for number, replica in enumerate(replicas)]
    file = Path(folder, "haproxy.cfg")
    backend = BackendConfig("http-assay", "/", servers=servers, app_name="assay", http_health_check_path="/-/healthz")
    api = HAProxyApi(config, {"http-assay": backend}, config_file_path=str(file))
    config.has_received_routes = config.has_received_servers = True
    api._generate_config_file_internal()
    return file


@contextlib.contextmanager
def running(replicas: list[int], **settings: Any) -> Iterator[str]:
    """HAProxy in front of these ports, as Ray Serve starts it; its address."""
    folder, port = tempfile.mkdtemp(prefix="assay-test-", dir="/tmp"), free_port()
    haproxy.install(folder)
    file = configured(folder, port, replicas, **settings)
    command = [haproxy.environment(folder)["RAY_SERVE_HAPROXY_BINARY_PATH"], "-db", "-f", str(file), "-dR"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: answered(port) or process.poll() is not None)
        assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def answered(port: int) -> bool:
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(scope="module")
def replica() -> Iterator[int]:
    with listening(app, log_config=None, timeout_keep_alive=600) as address:
        yield int(address.rpartition(":")[2])


@pytest.fixture(scope="module")
def address(replica: int) -> Iterator[str]:
    with running([replica]) as texts:
        yield texts


@pytest.fixture(scope="module")
def impatient(replica: int) -> Iterator[str]:
    """With a second for a head, and two for a client that is silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(haproxy_launcher, "__file__", launcher_with_a_second())
        with running([replica], timeout_client_s=2) as texts:
            yield texts


def launcher_with_a_second() -> str:
    file = Path(tempfile.mkdtemp(), "launcher.py")
    content = Path(haproxy_launcher.__file__).read_text()
    assert "HEAD_TIMEOUT_S = 30 " in content
    file.write_text(content.replace("HEAD_TIMEOUT_S = 30 ", "HEAD_TIMEOUT_S = 1 "))
    return str(file)


def remaining(connection: socket.socket) -> bytes:
    """All until the other side ends it."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(2**16), b""))
    return b""


def answer(address: str, *pieces: bytes) -> bytes:
    with raw(address) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a client that is refused while it still sends
            for piece in pieces:
                connection.sendall(piece)
        return remaining(connection)


CLOSED = WHOLE + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize("text", [b"G", WHOLE, b"\r\n", WHOLE + b"X: " + b"a" * 1000])
def test_half_a_head_is_given_up(impatient: str, text: bytes) -> None:
    assert b" 408 " in answer(impatient, text)[:14]


def test_half_a_head_that_comes_byte_by_byte_is_given_up(impatient: str) -> None:
    start = time.monotonic()
    with raw(impatient) as connection:
        with contextlib.suppress(ConnectionError):
            for byte in WHOLE * 100:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert b"408" in remaining(connection)[:14] or time.monotonic() - start < 60
    assert time.monotonic() - start < 60


def test_a_client_that_says_nothing_is_let_go(impatient: str) -> None:
    assert b"200" not in answer(impatient)


def test_half_a_head_after_an_answer_is_given_up(impatient: str) -> None:
    with raw(impatient) as connection:
        connection.sendall(WHOLE + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /hea")
        assert b"200" not in remaining(connection)


def test_a_body_may_take_longer_than_a_head_and_an_answer_longer_than_a_silence(impatient: str) -> None:
    """`Gate` has a limit of its own for bodies, and for answers."""
    with raw(impatient) as connection:
        connection.sendall(WHOLE.replace(b"GET /health", b"POST /late") + b"Content-Length: 3\r\nConnection: close\r\n\r\na")
        for byte in (b"b", b"c"):
            time.sleep(0.8)
            connection.sendall(byte)
        assert b" 200 " in remaining(connection)[:14]


def test_a_client_that_reads_no_answer_is_let_go(impatient: str) -> None:
    _written.clear()
    with raw(impatient) as connection:
        connection.sendall(WHOLE.replace(b"/health", b"/long") + b"\r\n")
        assert _written.wait(60), "nobody waits for the client any more"


@pytest.mark.parametrize(
    "lines",
    [
        b"X: " + b"a" * 2 * ENOUGH + b"\r\n\r\n",
        b"X: " + b"a" * 100 * ENOUGH,
        b"X: aaaaaaaaaaaa\r\n" * (ENOUGH // 10),
        b"a:\r\n" * 10_000 + b"\r\n",
    ],
    ids=["a long field", "without end", "many", "many short fields"],
)
def test_a_long_head_is_refused(address: str, lines: bytes) -> None:
    assert b" 200 " not in answer(address, WHOLE + lines)[:14]


def test_a_long_address_is_refused(address: str) -> None:
    assert b" 200 " not in answer(address, b"GET /" + b"a" * 2 * ENOUGH + b" HTTP/1.1\r\nHost: x\r\n\r\n")[:14]


def test_heads_that_are_long_enough_for_anybody_pass(address: str) -> None:
    with raw(address) as connection:
        for _ in range(3):  # on one connection, each with a body
            head = WHOLE.replace(b"GET", b"POST") + b"X: " + b"a" * 32_000 + b"\r\nContent-Length: 100000\r\n\r\n"
            connection.sendall(head + b"b" * 100_000)
            received = b""
            while not received.endswith(b"x-forwarded-for"):  # the end of the body, which may come after the head
                received += (piece := connection.recv(4096))
                assert piece
            assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "lines",
    [
        b"1\r\na\r\n0\r\nX: " + b"a" * 200 * ENOUGH,
        b"1\r\na\r\n0\r\n" + b"a:\r\n" * 100_000,
        b"1;" + b"a" * 200 * ENOUGH,
    ],
    ids=["a trailer without end", "many trailers", "a chunk's extension"],
)
def test_endless_trailers_are_refused(impatient: str, lines: bytes) -> None:
    """Of a chunk's extension HAProxy reads what its buffer holds, and then nothing until the client is silent too long."""
    assert b" 200 " not in answer(impatient, CHUNKED, lines)[:14]


def test_a_body_in_many_small_chunks_passes(address: str) -> None:
    with raw(address) as connection:
        connection.sendall(CHUNKED + b"1\r\na\r\n" * 100_000 + b"0\r\nX-Late: 1\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "name",
    [
        b"serve_multiplexed_model_id",
        b"Serve-Multiplexed-Model-Id",
        b"X-Session-Id",
        b"X-Request-Id",
        b"X-Request-Timeout-Seconds",
        b"X-Request-Disconnect-Disabled",
        b"X-Serve-Router-Anything",
        b"Upgrade",
    ],
)
def test_no_client_instructs_serve(address: str, name: bytes) -> None:
    names = answer(address, WHOLE + name + b": ?1\r\nX-Timeout-Seconds: 1\r\nConnection: close\r\n\r\n").rpartition(b"\n")[2]
    assert {b"host", b"x-timeout-seconds"} <= set(names.split(b",")) <= {
        b"host", b"x-timeout-seconds", b"x-forwarded-for", b"connection"
    }  # fmt: skip


def test_no_client_gives_itself_another_address(address: str) -> None:
    head = CLOSED.replace(b"/health", b"/client").replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: 203.0.113.7")
    assert answer(address, head).endswith(b"\r\n\r\n127.0.0.1")


def test_websockets_and_http_2_are_not_spoken(address: str) -> None:
    lines = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    with raw(address) as connection:
        connection.sendall(WHOLE + lines + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert b" 400 " in answer(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")[:14]


@pytest.mark.parametrize("path", [b"/-/routes", b"/-/%72outes", b"//-/routes", b"/%2d/routes"])
def test_serves_list_of_routes_is_hidden(address: str, path: bytes) -> None:
    text = answer(address, CLOSED.replace(b"/health", path))
    assert text.startswith(b"HTTP/1.1 404 ")
    assert b'"code": "no_route"' in text


def test_several_requests_may_wait_for_the_answer_before_them(address: str) -> None:
    assert answer(address, (WHOLE + b"\r\n") * 16 + CLOSED).count(b"HTTP/1.1 200 ") == 17


def test_a_replica_hears_that_a_client_has_left(address: str) -> None:
    _left.clear()
    _waiting.clear()
    with raw(address) as connection:
        connection.sendall(WHOLE.replace(b"/health", b"/wait") + b"\r\n")
        assert _waiting.wait(60)
    assert _left.wait(60)


def test_a_replica_hears_that_a_client_has_left_after_its_body(address: str) -> None:
    """Serve's own configuration splices, with which HAProxy takes a whole CPU then, and tells nobody."""
    for _ in range(3):
        _left.clear()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/wait", json={"conversations": "x" * 300}, timeout=1)
        assert _left.wait(60)


def test_a_refusal_reaches_a_client_that_still_sends() -> None:
    gate = Gate(app, LimitSettings(), Keys(["a-key-of-more-than-sixteen"]), frozenset())

    async def with_health(scope: Any, receive: Any, send: Any) -> None:  # as Serve, which answers HAProxy by itself
        await (app if scope["path"] == "/-/healthz" else gate)(scope, receive, send)

    with listening(with_health, log_config=None) as replica, running([int(replica.rpartition(":")[2])]) as address:
        assert httpx.post(f"{address}/v1/rewards", content=b" " * 2**23, timeout=100).status_code == 401


def test_without_a_replica_a_client_is_to_ask_again(address: str) -> None:
    """Of a replica that dies with a request, HAProxy says 502, and of one that isn't there 503."""
    with socket.create_server(("127.0.0.1", 0)) as dying:

        def die() -> None:
            for _ in range(50):
                connection, _ = dying.accept()
                text = connection.recv(4096)
                if b"healthz" in text:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.close()

        threading.Thread(target=die, daemon=True).start()
        with running([dying.getsockname()[1]]) as broken:
            died = answer(broken, CLOSED)
    with running([free_port()]) as empty:
        missing = answer(empty, CLOSED)
    for text, code in ((died, b"replica_gone"), (missing, b"no_replica")):
        assert text.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in text
        assert b'"code": "' + code in text


def test_a_request_is_sent_to_one_replica_alone() -> None:
    """Whatever a replica does with it: only what no replica has got is sent to another."""
    calls = list[int]()

    def serving(number: int) -> Any:
        async def dying(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] != "/-/healthz":
                calls.append(number)
                raise RuntimeError
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        return dying

    with (
        listening(serving(0), log_config=None) as first,
        listening(serving(1), log_config=None) as second,
        running([int(each.rpartition(":")[2]) for each in (first, second)]) as both,
    ):
        for count in range(1, 5):
            answer(both, CLOSED)
            assert len(calls) == count


def test_nothing_but_the_endpoint_listens_and_others_reach_no_socket(replica: int) -> None:
    with running([replica]) as texts:
        port = int(texts.rpartition(":")[2])
        (process,) = (
            each.pid
            for each in psutil.process_iter()
            if any(item.laddr.port == port and item.status == "LISTEN" for item in listeners(each))
        )
        assert [item.laddr.port for item in listeners(psutil.Process(process)) if item.status == "LISTEN"] == [port]
        folder = Path(psutil.Process(process).cmdline()[3]).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "admin.sock").stat().st_mode) == 0o600


def listeners(process: psutil.Process) -> list[Any]:
    with contextlib.suppress(psutil.Error):
        return list(process.net_connections())
    return []


def test_another_configuration_of_serves_is_noticed(replica: int) -> None:
    """What isn't as expected is told, where silence would leave a guard out."""
    folder = tempfile.mkdtemp(prefix="assay-test-", dir="/tmp")
    file = configured(folder, free_port(), [replica])
    content = file.read_text()
    shutil.rmtree(folder)
    guarded = haproxy_launcher.guarded(content, folder)
    assert "mode 600" in guarded
    for line in ("mode 666", "listen stats", "frontend prometheus", "errorfile 503", "    log 127"):
        with pytest.raises(ValueError, match="there should be one"):
            haproxy_launcher.guarded(content.replace(line, "else"), folder)


def test_ray_without_haproxy_is_refused() -> None:
    haproxy.check_in_front(haproxy.environment("/x"))
    for variables in (
        {},
        {"RAY_SERVE_ENABLE_HA_PROXY": "1"},
        {**haproxy.environment("/x"), "RAY_SERVE_ENABLE_HA_PROXY": "0"},
    ):
        with pytest.raises(SettingsError, match="on every node"):
            haproxy.check_in_front(variables)


def test_a_private_ray_has_files_and_ports_of_its_own() -> None:
    before = dict(os.environ)
    with haproxy.in_front("127.0.0.1"):
        first = dict(os.environ)
        with haproxy.in_front("127.0.0.1"):
            second = dict(os.environ)
        folders = [Path(each["RAY_SERVE_HAPROXY_SOCKET_PATH"]).parent for each in (first, second)]
        assert folders[0] != folders[1]
        assert first["RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"] != second["RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"]
        assert len(f"{folders[0]}/{'0' * 56}/admin.sock.1234567.tmp") < 108
        assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700
    assert dict(os.environ) == before
    assert not any(folder.exists() for folder in folders)


def test_the_command_makes_a_folder_for_its_user_and_prints_variables(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"), "h")
    command = [sys.executable, "-m", "deploy.ray_serve.haproxy"]
    done = subprocess.run([*command, folder], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"export {name}={value}" for name, value in haproxy.environment(str(folder)).items()]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.access(folder / "assay-haproxy", os.X_OK)
    shutil.rmtree(folder.parent)
    with pytest.raises(SettingsError, match="more than 27 bytes"):
        haproxy.install(f"/tmp/{'a' * 30}")


def test_the_image_has_what_the_command_prints() -> None:
    """Of the one folder that is made for it, while the image is built."""
    content = (REPOSITORY / "deploy" / "Dockerfile").read_text()
    assert re.search(r"deploy\.ray_serve\.haproxy /home/assay/haproxy", content)
    for name, value in haproxy.environment("/home/assay/haproxy").items():
        assert f"{name}={value}" in content
