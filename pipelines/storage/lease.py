"""Who is writing a folder: one run at a time.

A run holds a lease, `lease.json` in the folder that it writes: which process of which machine it is, renewed every few
seconds by a thread and deleted at the end. Another run of the folder is refused while it is held, and takes it over when it
is stale: when its process is gone, as far as that can be seen from here, or when it wasn't renewed for a minute. A holder
that was stopped for so long sees at its next step that it has lost the lease, and ends. Its workers, which go on while it is
stopped, look before each part that they commit (`Ticket`).

No two clocks are compared: whether another machine's lease is renewed is seen by looking at it for a while.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from actors.errors import OutputError, RunStopped
from pipelines import storage
from pipelines.storage.files import LEASE, Folder, error_text

RENEW_S = 5.0
STALE_S = 60.0
_LOOK_S = 0.5
_ATTEMPTS = 3


@dataclass(frozen=True)
class Holder:
    """A process that writes a folder. `machine` tells whose process ids they are, `began` and `renewed` are Unix times."""

    host: str
    pid: int
    machine: str | None
    start: int | None
    began: float
    renewed: float
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def this_process(cls) -> "Holder":
        """A new holder."""
        pid, now = os.getpid(), time.time()
        return cls(socket.gethostname(), pid, _machine(), _start(pid), now, now)

    @classmethod
    def read(cls, content: bytes) -> "Holder":
        """A holder from its lease. What can't be read is a holder of which nothing is known."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls("an unknown host", 0, None, None, 0.0, 0.0, token=content.decode(errors="replace"))

    @property
    def content(self) -> bytes:
        """The lease."""
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        """Whether its process would be among those that can be seen from here."""
        return self.machine is not None and self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended. A process id may be another process' by now."""
        return self.is_here and _start(self.pid) != self.start

    @property
    def is_stale_here(self) -> bool:
        """Whether a holder of this machine is gone, or was stopped for long."""
        return self.is_gone or time.time() - self.renewed > STALE_S

    def __str__(self) -> str:
        began = datetime.fromtimestamp(self.began, UTC).isoformat(" ", "seconds")
        return f"process {self.pid} on {self.host}, since {began}"


@contextmanager
def lease(path: str) -> Iterator[None]:
    """Hold a folder for the length of the block; it is made if it isn't there.

    Raises `OutputError` if another run holds it, or if it can't be written.
    """
    place = storage.folder(path)
    try:
        held = _Held(place, _taken(place))
    except NotADirectoryError as error:
        raise OutputError(f"{path} is a file, and a folder is needed") from error
    except OSError as error:
        raise OutputError(f"{place.path} can't be written: {error_text(error)}") from error
    _held.append(held)
    try:
        with held.renewing():
            yield
            held.check()
    finally:
        _held.remove(held)
        held.release()


@dataclass(frozen=True)
class Ticket:
    """For the workers of the run that holds a folder: they may write as long as it does. Small and picklable."""

    path: str
    token: str

    def check(self) -> None:
        """Raise `RunStopped` if the folder isn't held by that run any more."""
        try:
            token = Holder.read(storage.folder(self.path).read(LEASE)).token
        except FileNotFoundError:
            token = None
        if token != self.token:
            raise RunStopped(f"{self.path} isn't held by this run any more, and what it had left to write is dropped")


def ticket(path: str) -> Ticket | None:
    """The ticket of a folder that this process holds; None if it doesn't."""
    place = storage.absolute(path)
    return next((held.ticket for held in _held if held.ticket.path == place), None)


def check_held() -> None:
    """Raise `RunStopped` if this process has lost a folder that it writes. Cheap enough to ask for each part."""
    for held in list(_held):
        held.check()


def _taken(place: Folder) -> Holder:
    """A lease of this process' own. Raises `OutputError` if another holds it."""
    for _ in range(_ATTEMPTS):
        holder = Holder.this_process()
        try:
            if place.create(LEASE, holder.content):
                return holder
        except FileNotFoundError:  # there is no folder yet
            place.make()
            continue
        with suppress(FileNotFoundError):  # given back just now
            other = Holder.read(place.read(LEASE))
            if not _is_stale(place, other):
                raise OutputError(
                    f"{place.path} is being written by another run: {other}. Wait for its end, or stop it; what a run held "
                    f"that is gone without a word is free after {STALE_S:g} s"
                )
            if Holder.read(place.read(LEASE)).token == other.token:
                place.delete(LEASE)
    raise OutputError(f"{place.path} is being taken by several runs at once; try again")


def _is_stale(place: Folder, holder: Holder) -> bool:
    """Whether a holder is gone. One of another machine is watched until it renews its lease, or should have."""
    if holder.is_here:
        return holder.is_stale_here
    end = time.monotonic() + STALE_S
    content = place.read(LEASE)
    while time.monotonic() < end:
        time.sleep(min(_LOOK_S, RENEW_S))
        if place.read(LEASE) != content:
            return False
    return True


class _Held:
    """A lease that this process has, or had."""

    def __init__(self, place: Folder, holder: Holder) -> None:
        self._place = place
        self._holder = holder
        self._taken_by: str | None = None
        self._renewed = time.time()

    @property
    def ticket(self) -> Ticket:
        """For this run's workers."""
        return Ticket(storage.absolute(self._place.path), self._holder.token)

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew it for the length of the block."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(RENEW_S) and self._taken_by is None:
                with suppress(OSError):  # tried again; and `check` looks whether it was for too long
                    self.renew()

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def renew(self) -> None:
        """Say that its holder is there, unless it is another's by now. Raises `OSError`."""
        renewed = replace(self._holder, renewed=time.time())
        try:
            holder = Holder.read(self._place.read(LEASE))
        except FileNotFoundError:
            if renewed.renewed - self._renewed > STALE_S:
                self._taken_by = "one that has ended since"
                return
            if not self._place.create(LEASE, renewed.content):
                return
        else:
            if holder.token != self._holder.token:
                self._taken_by = str(holder)
                return
            self._place.replace(LEASE, renewed.content)
        self._renewed = renewed.renewed

    def check(self) -> None:
        """Raise `RunStopped` if it is another's. Asks the storage only if it wasn't renewed for so long that it may be."""
        if self._taken_by is None and time.time() - self._renewed > STALE_S / 2:
            try:
                self.renew()
            except OSError as error:
                raise RunStopped(f"the lease of {self._place.path} can't be renewed: {error_text(error)}") from error
        if self._taken_by is not None:
            raise RunStopped(
                f"another run has taken {self._place.path} over, since this one was stopped for longer than {STALE_S:g} s: "
                f"{self._taken_by}"
            )

    def release(self) -> None:
        """Give it back, unless it is another's."""
        with suppress(OSError):
            if Holder.read(self._place.read(LEASE)).token == self._holder.token:
                self._place.delete(LEASE)


_held: list[_Held] = []


def _machine() -> str | None:
    """What process ids are unique in: a start of a machine's kernel, and a container's name space of process ids."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start(pid: int) -> int | None:
    """When a process of this machine began, in ticks since the machine did; None if it is gone, or has ended."""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(numbers[18])
