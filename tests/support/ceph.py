"""A real S3 store on loopback: Ceph's gateway, with a monitor, a manager and a store of objects in memory.

From Debian's packages ceph-mon, ceph-osd, ceph-mgr, radosgw and ceph-common; everything else is in a folder of the test's.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "ceph-mgr", "monmaptool", "radosgw", "radosgw-admin")
_FSID = "5f4dcc3b-5aa7-4d61-9d83-27deb882cf99"
_START_S = 120.0

_SETTINGS = """\
[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{port}]
public addr = 127.0.0.1
ms bind msgr2 = false
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mgr initial modules =
admin socket =
run dir = {folder}
log file = {folder}/$name.log
pid file = {folder}/$name.pid
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
keyring = {folder}/keyring
"""


class Ceph:
    """A cluster whose gateway can be stopped, and started again where it was."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self._folder = folder
        self._processes = processes
        self._port = _free_port()
        self._settings = {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}
        self._gateway: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which clients reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start all of it, which takes a quarter of a minute."""
        port = _free_port()
        (self._folder / "ceph.conf").write_text(_SETTINGS.format(fsid=_FSID, port=port, folder=self._folder))
        for name in ("mon", "mgr", "osd"):
            (self._folder / name).mkdir()
        (self._folder / "keyring").touch()
        monitors = str(self._folder / "monmap")
        self._run("monmaptool", "--create", "--fsid", _FSID, "--addv", "a", f"[v1:127.0.0.1:{port}]", monitors)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
        self._serve("ceph-mon", "-i", "a")
        self._run("ceph", "osd", "create")
        self._run("ceph-osd", "-i", "0", "--mkfs")
        # One start in eight ends at once: it asks the monitor for something before it knows the cluster's identity.
        while not self._is_up(self._serve("ceph-osd", "-i", "0")):
            pass
        self._serve("ceph-mgr", "-i", "x")
        keys = ("--access-key", "anybody", "--secret-key", "anything")
        self._run("radosgw-admin", "user", "create", "--uid", "u", "--display-name", "u", *keys)
        self.start_gateway()

    def start_gateway(self) -> None:
        """Start the gateway, and wait until it answers."""
        frontends = f"beast endpoint=127.0.0.1:{self._port}"
        self._gateway = self._serve("radosgw", "-n", "client.rgw", "--rgw-frontends", frontends)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            assert time.monotonic() < deadline, "the gateway doesn't answer"
            time.sleep(0.1)

    def stop_gateway(self) -> None:
        """Kill the gateway, as a machine that fails does: what it was doing isn't finished."""
        assert self._gateway is not None
        self._gateway.kill()
        self._gateway.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _is_up(self, osd: "subprocess.Popen[bytes]") -> bool:
        """Whether the store of objects serves; False if its process has ended."""
        deadline = time.monotonic() + _START_S
        while osd.poll() is None:
            assert time.monotonic() < deadline, "the store of objects doesn't come up"
            if json.loads(self._run("ceph", "osd", "stat", "--format", "json"))["num_up_osds"]:
                return True
        return False

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, env=self._settings, capture_output=True, text=True, timeout=_START_S, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, *command: str) -> "subprocess.Popen[bytes]":
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen([*command, "-f"], env=self._settings, stdout=nowhere, stderr=nowhere)
        self._processes.enter_context(process)
        self._processes.callback(process.kill)  # it holds nothing that should be kept
        return process


@contextmanager
def running_ceph(folder: Path) -> Iterator[Ceph]:
    """A cluster that has been started. Without the packages the test is skipped, or fails in CI, where they must be."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        message = (
            f"{', '.join(missing)} of Debian's packages ceph-mon, ceph-osd, ceph-mgr, radosgw and ceph-common isn't there"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with ExitStack() as processes:
        ceph = Ceph(folder, processes)
        ceph.start()
        yield ceph


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
