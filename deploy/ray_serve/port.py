"""Reserves the port of `assay serve` for as long as the command lives.

HAProxy finds a port in use only when Ray has started, and Serve's fallback behind it listens with SO_REUSEPORT, with which
the kernel silently shares a port's requests between two endpoints. A listener that exists is found by binding without that
option. Two commands that start at the same moment would both find none: so each also binds a name in the kernel's abstract
namespace of Unix sockets, which has the same scope as ports (a network namespace), gives a name to one process alone, and
frees it when that process ends.
"""

import contextlib
import errno
import random
import socket
import sys
from collections.abc import Iterator

from actors.errors import SettingsError

_INSIDE = range(20_000, 30_000)  # see `reserved_inside` for both ends


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Reserve a port against other endpoints of this machine for the length of the block; yields it, or a free one for 0.

    Raises `SettingsError` if another program listens there or is about to, or if the port can't be bound at all.
    """
    with socket.socket(socket.AF_UNIX) as name:
        with _family(host) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or connections in TIME_WAIT block it for a minute
            try:
                probe.bind((host, port))
                bound: int = probe.getsockname()[1]
                if sys.platform == "linux":
                    name.bind(f"\0assay-serve-{bound}")
                probe.listen()  # two sockets with SO_REUSEADDR may both bind one port, but only one may listen
            except (OSError, UnicodeError) as error:
                raise SettingsError(_problem(host, port, error)) from error
        # The probe is closed by now, since nothing could bind beside it; the name stays bound for the block.
        yield bound


@contextlib.contextmanager
def reserved_inside() -> Iterator[int]:
    """Reserve a port of loopback for what Serve starts seconds later.

    It lies below those that the kernel gives to outgoing connections, from 32,768 on, since any of them could have it by
    then, and below those of Serve's replicas, from 30,000 on.
    """
    with contextlib.ExitStack() as held:
        for port in random.sample(_INSIDE, 100):
            with contextlib.suppress(SettingsError):
                held.enter_context(reserved("127.0.0.1", port))
                break
        else:
            raise SettingsError(f"none of a hundred ports from {_INSIDE.start} to {_INSIDE.stop} of 127.0.0.1 is free")
        yield port


def _family(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _problem(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use by another program or endpoint: end it, or give another --port, or 0 for a free one"
    return f"{host}:{port} can't be listened on: {error}"
