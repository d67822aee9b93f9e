"""A real S3 server on loopback: moto's, in a process of its own."""

import http.client
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.parse import urlsplit

import fsspec
import pytest
from s3fs import S3FileSystem

from tests.support.local_ray import use_ray

BUCKET = "s3://corpora"


@contextmanager
def serving_s3(log: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[dict[str, str]]:
    """Starts the server; the environment variables by which clients reach it. A line of `log` is a request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while not _answers(port):
                assert process.poll() is None, "the server ended"
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "anybody",
                "AWS_SECRET_ACCESS_KEY": "anything",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def _server() -> Iterator[dict[str, str]]:
    with serving_s3() as environment:
        yield environment


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def s3(_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket, `BUCKET`; its file system. The environment of this test says how to reach it."""
    for name, value in _server.items():
        monkeypatch.setenv(name, value)
    system = fsspec.filesystem("s3", use_listings_cache=False)
    system.mkdir(BUCKET)
    yield system
    system.rm(BUCKET, recursive=True)


class TerseStore(ThreadingHTTPServer):
    """Stands before the server of `s3` and answers as MinIO does: what condition failed, it doesn't say.

    It loses the answers of the next `lost` conditional puts, which are done, and answers the next `conflicts` with AWS' 409.
    Reads of objects whose keys end with `refused` it answers with `refusal`.
    While it `is_out`, it closes every connection without an answer, and sets `missed`.
    """

    daemon_threads = True
    lost = conflicts = 0
    refused: str | None = None
    refusal = 503
    code = ""
    is_out = False

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _TerseHandler)
        self.missed = threading.Event()
        self.behind = urlsplit(behind).netloc


class _TerseHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TerseStore

    def _forward(self) -> None:
        if self.server.is_out:
            self.server.missed.set()
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_conditional = self.command == "PUT" and "If-None-Match" in self.headers
        if is_conditional and self.server.conflicts:
            self.server.conflicts -= 1
            self._answer(409, {}, b"<Error><Code>ConditionalRequestConflict</Code><Message>Again</Message></Error>")
            return
        if self.command == "GET" and self.server.refused and urlsplit(self.path).path.endswith(self.server.refused):
            code = self.server.code or {404: "NoSuchKey", 503: "ServiceUnavailable"}[self.server.refusal]
            self._answer(self.server.refusal, {}, b"<Error><Code>%s</Code><Message>No</Message></Error>" % code.encode())
            return
        connection = http.client.HTTPConnection(self.server.behind)
        connection.request(self.command, self.path, body, {**dict(self.headers.items()), "Connection": "close"})
        answer = connection.getresponse()
        content = re.sub(rb"<Condition>.*</Condition>", b"", answer.read()) if answer.status >= 300 else answer.read()
        connection.close()
        if is_conditional and self.server.lost:
            self.server.lost -= 1
            self.close_connection = True
            return
        self._answer(answer.status, dict(answer.headers), content)

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _forward  # noqa: N815 - the names are the library's

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": length, "Connection": "keep-alive"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def terse_s3(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[TerseStore]:
    """As `s3`, through a `TerseStore`."""
    with TerseStore(s3.s3.meta.endpoint_url) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        S3FileSystem.clear_instance_cache()
        yield server
        S3FileSystem.clear_instance_cache()
        server.shutdown()


@pytest.fixture(scope="module")
def s3_ray(_server: dict[str, str]) -> None:
    """As `local_ray`, with workers that reach the server of `s3`."""
    use_ray(_server)


def unreachable() -> dict[str, str]:
    """Environment variables of an S3 server that isn't running."""
    return {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything"}
