"""The port of an endpoint is its alone, whoever listens there or is about to."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray

from actors.errors import SettingsError
from deploy.local import run
from deploy.ray_serve.port import reserved, reserved_inside
from deploy.settings import AddressSettings, EndpointSettings
from tests.conftest import REPOSITORY
from tests.support.endpoints import free_port

HOST = "127.0.0.1"
MODEL = "tiny-attributes"


@contextmanager
def listener(*, shared: bool) -> Iterator[int]:
    """Somebody who listens, as Serve's proxies do or alone; the port."""
    with socket.socket() as item:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        item.bind((HOST, 0))
        item.listen()
        yield item.getsockname()[1]


@pytest.mark.parametrize("shared", [True, False], ids=["another endpoint", "another program"])
def test_a_port_that_is_in_use_is_refused_before_anything_starts(shared: bool) -> None:
    settings = EndpointSettings.model_validate({"models": [{"model": MODEL, "engine": {"engine": "fake"}}]})
    with listener(shared=shared) as port, pytest.raises(SettingsError, match=rf"{HOST}:{port} is in use") as refused:
        run(settings, AddressSettings(host=HOST, port=port), print)
    assert not ray.is_initialized()
    assert "\n" not in str(refused.value)


def test_the_command_says_so_in_one_line() -> None:
    with listener(shared=True) as port:
        command = [sys.executable, "-m", "assay", "serve", "--model", MODEL, "--port", str(port)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"assay: {HOST}:{port} is in use")
    assert done.stderr.count("\n") == 1


def test_of_two_that_start_at_the_same_moment_one_has_the_port() -> None:
    """Neither listens yet: each only holds what it has reserved."""
    with reserved(HOST, 0) as port:
        for host in (HOST, "0.0.0.0"):
            with pytest.raises(SettingsError, match="in use"), reserved(host, port):
                pass
        with reserved(HOST, 0) as another:
            assert another != port
    with reserved(HOST, port) as again:
        assert again == port


def test_serve_can_listen_on_what_is_reserved_for_it() -> None:
    with reserved(HOST, free_port()) as port, socket.socket() as proxy:
        proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        proxy.bind((HOST, port))
        proxy.listen()


def test_an_address_of_nobodys_is_told() -> None:
    with pytest.raises(SettingsError, match="can't be listened on"), reserved("192.0.2.1", 8000):
        pass


def test_a_port_for_later_is_none_that_an_outgoing_connection_may_have_by_then() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with reserved_inside() as first, reserved_inside() as second:
        assert first != second
        assert max(first, second) < min(lowest, 30_000), "nor one that Serve gives to replicas"
    with pytest.raises(SettingsError, match="of the block"), reserved_inside():
        raise SettingsError("of the block")
