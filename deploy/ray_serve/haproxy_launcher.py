"""Runs HAProxy for Ray Serve with the limits and guards that Serve's configuration lacks.

    haproxy_launcher.py BINARY FOLDER HOST ARGUMENT ...

Serve starts what RAY_SERVE_HAPROXY_BINARY_PATH names, with a configuration that it has just written; this changes that file
and becomes HAProxy. `haproxy.py` makes the executable that calls it. Imports nothing but the standard library, so that a
start of HAProxy, of which there is one for each change of the replicas, takes milliseconds.
"""

import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

HEAD_TIMEOUT_S = 30  # until a head is complete, from its first byte or the connection's start
# At a time, of all clients together; more wait in the kernel. Each takes two files of this process.
_MOST_CONNECTIONS = 4096
_OTHER_FILES = 256  # beside the connections: sockets of servers and health checks, its own listeners
_GUARDS = r"""
    # The client's address, for whom no key is needed: what a client says of it itself doesn't count.
    http-request set-header X-Forwarded-For %[src]
    # Instructions to Serve: a client could give its request no time at all, or keep it running after it has left.
    http-request del-header ^(x[-_]serve[-_].*|x[-_]session[-_]id|serve[-_]multiplexed[-_]model[-_]id)$ -m reg
    http-request del-header ^x[-_]request[-_](id|timeout[-_]seconds|disconnect[-_]disabled)$ -m reg
    # No route speaks WebSocket.
    http-request del-header upgrade
    # Serve's list of routes knows no keys. Its replicas compare a path after they have decoded it.
    http-request return status 404 errorfile FOLDER/404.http if { path,url_dec -m reg -i ^/+-/+routes }"""


def main(binary: str, folder: str, host: str, *arguments: str) -> None:
    """Guard the configuration after `-f`, and become HAProxy. It listens on `host`, or where Serve says if that is empty.

    The process stays the same: Serve sends its signals to the one that it started.
    """
    file = Path(arguments[arguments.index("-f") + 1])
    file.write_text(guarded(file.read_text(), folder, host))
    os.execv(binary, (binary, *arguments))


def guarded(configuration: str, folder: str, host: str = "") -> str:
    """Serve's configuration with our guards, and pages of errors in `folder`. Raises `ValueError` if it isn't as expected.

    Only its owner reaches the admin socket, nothing listens but the endpoint itself, and no request is logged.
    """
    # Of a replica that died with a request, or isn't there: Serve's page says 500, and the client is to ask again.
    files_of_pages = {502: "ended", 503: "none", 504: "ended"}
    pages = "".join(f"    errorfile {status} {folder}/{name}.http\n" for status, name in files_of_pages.items())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = _MOST_CONNECTIONS
    if files != resource.RLIM_INFINITY:
        most = min(most, (files - _OTHER_FILES) // 2)  # a connection to the client, and one to the replica
    changes: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
        (r"^    log \S+ local0 info\n", ""),
        (r" mode 666 level admin", " mode 600 level admin"),
        (r"^    maxconn \d+$", f"    maxconn {most}"),
        (r"^    option httplog$", f"    timeout http-request {HEAD_TIMEOUT_S}s"),
        # With these, HAProxy 2.8.25 doesn't notice a client that leaves in the midst of its request, and takes a whole CPU.
        (r"^    option splice-request\n    option splice-response\n", ""),
        (r"^    errorfile 502 \S+\n    errorfile 503 \S+\n    errorfile 504 \S+\n", pages),
        (r"^frontend prometheus\n(?:    .*\n)+", ""),
        (r"^listen stats\n(?:  .*\n?)+", ""),
        (
            r"^(frontend http_frontend\n    bind )(\S+)(:\d+)$",
            lambda bind: f"{bind[1]}{host or bind[2]}{bind[3]} proto h1{_GUARDS.replace('FOLDER', folder)}",
        ),
    )
    # Each exactly once: where another version of Ray writes it otherwise, an endpoint must not start without its guards.
    for pattern, change in changes:
        configuration, count = re.subn(pattern, change, configuration, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(
                f"Serve's configuration of HAProxy has {count} places like {pattern!r}, where there should be one"
            )
    return configuration


if __name__ == "__main__":
    main(*sys.argv[1:])
