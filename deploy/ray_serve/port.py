"""The port that `assay serve` listens on: its alone, for as long as the command lives.

Serve's proxies listen with SO_REUSEPORT, so that the kernel would share a port's requests out between two endpoints without
a word. Whoever listens already is seen by binding without that option. Two commands that start at the same moment would both
see nobody: so each first takes a name in the kernel's abstract namespace of Unix sockets, which is as wide as that of ports,
gives a name to one alone, and takes it back with the process.
"""

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator

from actors.errors import SettingsError


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Keep other endpoints of this machine off a port; the port, or a free one for 0.

    Raises `SettingsError` if somebody listens there or is about to, or if it can't be listened on at all.
    """
    with socket.socket(socket.AF_UNIX) as name:
        with _family(host) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended don't count
            try:
                probe.bind((host, port))
                taken: int = probe.getsockname()[1]
                if sys.platform == "linux":
                    name.bind(f"\0assay-serve-{taken}")
                probe.listen()
            except (OSError, UnicodeError) as error:
                raise SettingsError(_problem(host, port, error)) from error
        yield taken


def _family(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _problem(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use by another program or endpoint: end it, or give another --port, or 0 for a free one"
    return f"{host}:{port} can't be listened on: {error}"
