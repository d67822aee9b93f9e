"""A lease on an output folder, so that only one run writes it at a time.

The lease is the file `lease.json` in the folder. It names the holder's process and machine; a thread renews it every
`RENEW_S` = 5 s, and it is deleted at the end. While it is valid, another run of the folder is refused. It is stale, and may
be taken over, once the holder's process is gone (if that is visible from here) or it wasn't renewed for `STALE_S` = 60 s. A
holder that was suspended for that long notices the loss at its next `check_held` and ends. Its workers, which keep running
while the driver is suspended, check before each part that they commit (`Ticket`), and it does before it writes a manifest or
finishes a folder (`check_lease`).

Clocks of different machines are never compared: another machine's lease is watched for up to `STALE_S` to see whether its
content changes.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from actors.errors import OutputError, RunStopped
from pipelines.data import storage
from pipelines.data.storage.files import error_text
from pipelines.data.storage.patience import SHORT_S, be_patient, is_outage, patient, patiently, waits_at_most
from pipelines.data.storage.protocol import LEASE, Folder

RENEW_S = 5.0  # one small put: over a year-long run 6 million, 30 US dollars on S3
STALE_S = 60.0  # twelve renewals: a pause of the process or of the store for less costs nobody the folder
_POLL_S = 0.5
_TOLD_AFTER_S = 10.0
_ATTEMPTS = 3  # a folder that is missing, or a stale lease that is deleted, each takes one attempt more


@dataclass(frozen=True)
class Holder:
    """A process that writes a folder. `pid` and `start` are valid on `machine`; `began` and `renewed` are Unix times.

    `start` is the process's start time in clock ticks since the machine booted, which tells a reused pid apart.
    """

    host: str
    pid: int
    machine: str | None
    start: int | None
    began: float
    renewed: float
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def this_process(cls) -> "Holder":
        pid, now = os.getpid(), time.time()
        return cls(socket.gethostname(), pid, _machine(), _start_ticks(pid), now, now)

    @classmethod
    def read(cls, content: bytes) -> "Holder":
        # A holder from the content of its lease. Unreadable content is an unknown holder, whose token is the content.
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls("an unknown host", 0, None, None, 0.0, 0.0, token=content.decode(errors="replace"))

    @property
    def content(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        # Whether its process would be visible from here: same boot of the same kernel, same PID namespace.
        return self.machine is not None and self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        # Whether it is known to have ended: no process has its pid, or one with another start time.
        return self.is_here and _start_ticks(self.pid) != self.start

    @property
    def is_stale_here(self) -> bool:
        """Whether a holder on this machine, whose clock it used, has ended or was suspended for longer than `STALE_S`."""
        return self.is_gone or time.time() - self.renewed > STALE_S

    def __str__(self) -> str:
        began, renewed = (
            datetime.fromtimestamp(moment, UTC).isoformat(" ", "seconds") for moment in (self.began, self.renewed)
        )
        return f"process {self.pid} on {self.host}, since {began}, last sign of life {renewed}"


class Holding(NamedTuple):
    """Who holds a folder, and whether it shows signs of life.

    A holder that shows none may be taken over by the next run.
    """

    holder: Holder
    is_alive: bool


def read_holding(path: str) -> Holding | None:
    """Who holds a folder now; None if nobody does. Raises `OSError` if the folder can't be read.

    A holder on another machine whose time of renewal is old by this machine's clock is watched for two renewals: its clock
    may be another one.
    """
    place = storage.folder(path)
    try:
        content = place.read(LEASE)
        holder = Holder.read(content)
        if holder.is_here:
            return Holding(holder, not holder.is_stale_here)
        is_recent = abs(time.time() - holder.renewed) <= STALE_S
        return Holding(holder, is_recent or _changes(place, content, 2 * RENEW_S))
    except FileNotFoundError:
        return None


@contextmanager
def lease(path: str, notify: Callable[[str], None] = lambda text: None, patience_s: float = SHORT_S) -> Iterator[None]:
    """Hold the lease of a folder during the block; the folder is created if it doesn't exist.

    In the block, operations of this process wait for stores up to `patience_s` (`patience`). `notify` is called with a
    message where another machine's lease must be watched for a minute, and where the folder's store is silent for 10 s.
    Raises `OutputError` if another run holds it, or if it can't be written, and `RunStopped` if it was lost meanwhile.
    """
    place = storage.folder(path)
    try:
        entry = _Lease(place, _acquire(place, notify), patience_s)
    except NotADirectoryError as error:
        raise OutputError(f"{path} is a file, and a folder is needed") from error
    except OSError as error:
        raise OutputError(f"{place.path} can't be written: {error_text(error)}") from error
    _leases.append(entry)
    try:
        with entry.renewing(notify), patient(patience_s, check_held):
            yield
            entry.check()
    finally:
        _leases.remove(entry)
        entry.release()


@dataclass(frozen=True)
class Ticket:
    """Lets the workers of a run check that the run still holds its folder. Small and picklable.

    Where it is unpickled, in a worker, the process waits for stores as long as the run does.
    """

    path: str
    token: str
    patience_s: float = SHORT_S

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        be_patient(self.patience_s, self.check)

    def check(self) -> None:
        """Raise `RunStopped` if the lease in the folder isn't that run's. Reads one small file."""
        try:
            token = Holder.read(storage.folder(self.path).read(LEASE)).token
        except FileNotFoundError:
            token = None
        if token != self.token:
            raise RunStopped(f"{self.path} isn't held by this run any more, and what it had left to write is dropped")


def ticket(path: str) -> Ticket | None:
    """The ticket of a folder whose lease this process holds; None if it doesn't."""
    place = storage.absolute(path)
    return next((entry.ticket for entry in list(_leases) if entry.ticket.path == place), None)


def tickets() -> tuple[Ticket, ...]:
    """The tickets of all folders whose leases this thread holds: in others other runs may be under way, and end sooner."""
    return tuple(entry.ticket for entry in list(_leases) if entry.thread == threading.get_ident())


def check_held() -> None:
    """Raise `RunStopped` if this process has lost the lease of a folder.

    Cheap enough to call for each part: it reads the storage only where a renewal is overdue.
    """
    for entry in list(_leases):
        entry.check()


def check_lease(path: str) -> None:
    """Raise `RunStopped` if this process has lost the lease of a folder; nothing if it never held it.

    For what is written into the folder once: reads one small file, which `check_held` mostly spares. Raises `OSError`.
    """
    if (held := ticket(path)) is not None:
        held.check()


def _acquire(place: Folder, notify: Callable[[str], None]) -> Holder:
    """Create the lease file for this process. Raises `OutputError` if another run holds the folder."""
    # `create` decides between several runs; all else here only finds out whether the file that is there is a dead run's.
    for _ in range(_ATTEMPTS):
        holder = Holder.this_process()
        try:
            if place.create(LEASE, holder.content):
                return holder
        except FileNotFoundError:  # the folder doesn't exist yet
            place.make()
            continue
        with suppress(FileNotFoundError):  # released between the two calls: try again
            other = Holder.read(place.read(LEASE))
            if not _is_stale(place, other, notify):
                raise OutputError(
                    f"{place.path} is being written by another run: {other}. Wait for its end (`assay status {place.path}` "
                    f"tells how far it is), stop it, or give another output folder. If it died, its folder is free after "
                    f"{STALE_S:g} s without a sign of life"
                )
            # Read again: watching took up to a minute, in which a third run may have taken the lease over. Deleting that
            # one would let two runs write. A window of one round trip remains; the loser notices it when it renews.
            if Holder.read(place.read(LEASE)).token == other.token:
                place.delete(LEASE)
    raise OutputError(f"{place.path} is being taken by several runs at once; try again")


def _is_stale(place: Folder, holder: Holder, notify: Callable[[str], None]) -> bool:
    # Whether a holder may be replaced. Another machine's lease is watched for `STALE_S`; a change means it is alive.
    if holder.is_here:
        return holder.is_stale_here
    notify(f"{place.path} is held by {holder}; watching for up to {STALE_S:g} s whether that run is alive")
    return not _changes(place, place.read(LEASE), STALE_S)


def _changes(place: Folder, content: bytes, within_s: float) -> bool:
    # Whether a lease gets another content within some seconds. Raises `FileNotFoundError` if it is released.
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        time.sleep(min(_POLL_S, RENEW_S))
        if place.read(LEASE) != content:
            return True
    return False


class _Lease:
    def __init__(self, place: Folder, holder: Holder, patience_s: float) -> None:
        self._place = place
        self._holder = holder
        self._patience_s = patience_s
        # Written by whoever renews, the thread or `check`. Each is a single assignment, so no lock is needed.
        self._taken_by: str | None = None
        self._renewed = time.time()
        self.thread = threading.get_ident()

    @property
    def ticket(self) -> Ticket:
        return Ticket(storage.absolute(self._place.path), self._holder.token, self._patience_s)

    @contextmanager
    def renewing(self, notify: Callable[[str], None]) -> Iterator[None]:
        """Renew the lease in a thread during the block, and say so if that fails for long: `check` ends the run then."""
        ended = threading.Event()

        def renew_until_ended() -> None:
            is_told = False
            while not ended.wait(RENEW_S) and self._taken_by is None:
                silent_s = time.time() - self._renewed
                try:
                    self.renew()
                    is_told = False
                except OSError as error:
                    if silent_s >= _TOLD_AFTER_S and not is_told and is_outage(error):
                        is_told = True
                        notify(
                            f"{self._place.path} doesn't answer since {silent_s:.0f} s: {error_text(error)}; the run waits "
                            f"for it up to {self._patience_s:g} s (storage_patience_s)"
                        )

        thread = threading.Thread(target=renew_until_ended, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @waits_at_most(0.0)  # a thread that waits would delay the end of the run; `check` waits
    def renew(self) -> None:
        """Write the lease with a new time, unless another run has taken it over, which is noted. Raises `OSError`."""
        renewed = replace(self._holder, renewed=time.time())  # before the put: it never claims to be fresher than it is
        try:
            holder = Holder.read(self._place.read(LEASE))
        except FileNotFoundError:
            self._taken_by = f"one that has ended since, or somebody has deleted {LEASE}"
            return
        if holder.token != self._holder.token:
            self._taken_by = str(holder)
            return
        # Between the read and this put another run may take the lease. It then sees this token at its next renewal, and
        # ends: of two runs at most one goes on.
        self._place.replace(LEASE, renewed.content)
        self._renewed = renewed.renewed

    def check(self) -> None:
        """Raise `RunStopped` if another run has taken it over.

        Reads the storage only if the last renewal is older than `STALE_S` / 2: before that nobody can have taken it. Waits
        for a store that doesn't answer.
        """
        if self._taken_by is None and time.time() - self._renewed > STALE_S / 2:
            try:
                patiently(self.renew)()
            except OSError as error:
                raise RunStopped(f"the lease of {self._place.path} can't be renewed: {error_text(error)}") from error
        if self._taken_by is not None:
            raise RunStopped(
                f"another run has taken {self._place.path} over, since this one was stopped for longer than {STALE_S:g} s: "
                f"{self._taken_by}"
            )

    @waits_at_most(0.0)
    def release(self) -> None:
        with suppress(OSError):  # a store that is out: the lease is stale after a minute, and the run's own error counts
            if Holder.read(self._place.read(LEASE)).token == self._holder.token:
                self._place.delete(LEASE)


_leases: list[_Lease] = []  # of this process: an ensemble holds its folder and that of the member that it scores


def _machine() -> str | None:
    # The scope in which a process id is unique: one boot of a kernel, and one PID namespace (of a container).
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start_ticks(pid: int) -> int | None:
    # The start time of a process of this machine, in clock ticks since boot; None if it has ended (a zombie, too).
    try:
        # The second field is the program's name in parentheses, and may itself hold spaces and parentheses: split after the
        # last one. The start time is field 22 of proc(5), the 19th after the state.
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(numbers[18])
