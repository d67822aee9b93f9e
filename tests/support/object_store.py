"""A real S3 server on loopback: moto's, in a process of its own."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import fsspec
import pytest

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


@pytest.fixture(scope="module")
def s3_ray(_server: dict[str, str]) -> None:
    """As `local_ray`, with workers that reach the server of `s3`."""
    use_ray(_server)


def unreachable() -> dict[str, str]:
    """Environment variables of an S3 server that isn't running."""
    return {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything"}
