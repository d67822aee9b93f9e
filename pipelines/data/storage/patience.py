"""How long operations wait for a store that doesn't answer.

What a store refuses (403, a bucket that isn't there) fails at once. No connection, an answer of 5xx, a time-out and the like
are tried again, here and nowhere else: clients ask once. Any command waits for ten seconds, and a run, in its driver and in
its workers, as long as its settings say: an engine takes minutes to start, and must outlive a store's restart. Meanwhile
another run may have taken the folder over, so before a write is tried again, the run proves that it holds it.
"""

import functools
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, ParamSpec, TypeVar

from actors.errors import AssayError, RunStopped

P = ParamSpec("P")
T = TypeVar("T")

SHORT_S = 10.0  # of commands without a run: a person waits at the terminal
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0

_BUSY_STATUSES, _NOT_IMPLEMENTED = (408, 429), 501
# S3's codes, which may stand in an answer of 200. The first: a conditional put that met another put, or a deletion.
_BUSY = re.compile("ConditionalRequestConflict|InternalError|OperationAborted|RequestTimeout|ServiceUnavailable|SlowDown")
# In names of classes of errors of Python, botocore, aiohttp, requests and httpx, which needn't be installed.
_UNANSWERED = re.compile("Connection|Timeout|Incomplete|Payload|Chunked|Transport|HTTPClientError|ResponseParserError")


class _Patience(NamedTuple):
    """`check` raises `RunStopped` if the run doesn't hold its folder any more; None without a run."""

    seconds: float = SHORT_S
    check: Callable[[], None] | None = None


_process = SimpleNamespace(patience=_Patience())  # of all threads, as a run reads and writes in many
_thread = threading.local()  # of a thread that must not wait, such as the one that renews the lease


def be_patient(seconds: float, check: Callable[[], None] | None) -> None:
    """From now on, let operations of this process wait for stores as a run does: up to `seconds` for each.

    `check` is called before a write is tried again, and raises `RunStopped` if the run has lost its folder.
    """
    _process.patience = _Patience(seconds, check)


@contextmanager
def patient(seconds: float, check: Callable[[], None]) -> Iterator[None]:
    """As `be_patient`, in the block; afterwards as before it."""
    before: _Patience = _process.patience
    be_patient(seconds, check)
    try:
        yield
    finally:
        be_patient(*before)


@contextmanager
def waits_at_most(seconds: float) -> Iterator[None]:
    """In the block, or the function that this decorates, let operations of this thread wait for up to `seconds`.

    It holds whatever the process' own patience is. With 0 an operation is tried once.
    """
    before, _thread.patience = getattr(_thread, "patience", None), _Patience(seconds)
    try:
        yield
    finally:
        _thread.patience = before


def patiently(function: Callable[P, T], *, writes: bool = False) -> Callable[P, T]:
    """Wrap an operation on a store: it waits for the store, and its client's own exceptions become `OSError`.

    Raises `RunStopped` if a run has waited long enough or, where the operation `writes`, has lost its folder meanwhile.
    """

    @functools.wraps(function)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        began, wait_s = time.monotonic(), _FIRST_WAIT_S
        patience: _Patience = getattr(_thread, "patience", None) or _process.patience
        while True:
            try:
                return function(*arguments, **named)
            except AssayError:
                raise
            except Exception as error:
                waited_s = time.monotonic() - began
                if is_outage(error) and waited_s >= patience.seconds and patience.check is not None:
                    raise RunStopped(f"a store hasn't answered for {waited_s:.0f} s: {error}") from error
                if not is_outage(error) or waited_s >= patience.seconds:
                    if isinstance(error, OSError) and is_of_storage(error):  # gcsfs' 403 would look like a decoder's
                        raise
                    raise OSError(str(error) or type(error).__name__) from error
            # With jitter, or hundreds of requests that failed together would all come back in the same moment.
            time.sleep(min(patience.seconds - waited_s, wait_s * (1 - random.random() / 2)))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            if writes and patience.check is not None:
                patience.check()

    return wrapper


def is_of_storage(error: OSError) -> bool:
    """Whether an error is of a disk or a store, by its number, cause or class: those of Arrow's decoders have none."""
    return error.errno is not None or error.__cause__ is not None or type(error) is not OSError


def is_outage(error: BaseException) -> bool:
    """Whether an error, or its cause, says that the store doesn't answer now, or has no time.

    False for what it refuses: to ask again would only delay the message.
    """
    # requests and httpx have `response.status_code`, aiohttp `status`, urllib and gcsfs `code`.
    answer: Any = getattr(error, "response", None)
    code, status = "", getattr(answer, "status_code", None) or getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(answer, dict):  # botocore's
        code, status = answer.get("Error", {}).get("Code", ""), answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if isinstance(status, int):
        # 501 says that the store will never do it, such as a conditional put.
        return bool(_BUSY.search(code)) or status in _BUSY_STATUSES or (status >= 500 and status != _NOT_IMPLEMENTED)
    if any(_UNANSWERED.search(base.__name__) for base in type(error).__mro__):
        return True
    return error.__cause__ is not None and is_outage(error.__cause__)
