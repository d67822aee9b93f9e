"""OpenAI's Batch API: prompts go out as files, and their answers come within a day, for less.

Prompts are collected until none has come for a while or a file is full, and sent as one batch. Every batch has a note in the
run's folder before it is created, with a name that the endpoint keeps beside it, and a hash of each request: a session that
was killed finds its batches again, reads what they answered, and asks for nothing twice.

A line that failed for the moment (429, 5xx, expired) is sent again in another batch, three times in all; one that is refused
has failed. If two batches in a row answer no line at all, the run stops.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from actors.endpoint.account import Account, Notes
from actors.endpoint.faults import JUDGING, EndpointFault, FaultKind, Route, fault_of_status, in_a_line
from actors.endpoint.http import answered
from actors.errors import AssayError, CostReached, EndpointError, RunStopped
from actors.settings.endpoint import ModelEndpointSettings

T = TypeVar("T")

_ROUTE = Route("/batches", "a batch", "--model")
_URL = "/v1/chat/completions"
_MOST_LINES, _MOST_BYTES = 50_000, 190 * 2**20
"""Of a file; OpenAI takes 200 MB."""
_TRIES = 3
_ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
_PREFIX = "batch-"
_LOST = {"error": {"code": "batch_expired", "message": "the batch ended without this line"}}


class Ask(Protocol):
    """Sends what raises `EndpointFault`, again and again (`EndpointClient.ask`)."""

    async def __call__(self, send: Callable[[], Awaitable[T]]) -> T:
        """Its answer."""


@dataclass
class _Batch:
    """A batch, as its note has it: `lines` are the most that each may cost, by the hash of its request.

    `id` is None until the endpoint has given one. Once `is_settled`, only the lines are kept that needn't be sent again.
    """

    name: str
    lines: dict[str, float]
    id: str | None = None
    is_settled: bool = False


class _Line(NamedTuple):
    """A request that waits for its batch: its hash, its line in the file, and the most that it may cost."""

    key: str
    content: bytes
    most: float


class Batches:
    """The batches of a run. Used on one event loop."""

    def __init__(self, http: Any, ask: Ask, settings: ModelEndpointSettings, notes: Notes | None) -> None:
        self._http = http
        self._ask = ask
        self._poll_s = settings.batch_poll_s
        self._notes = notes
        batches = [] if notes is None else [_read(notes, name) for name in notes.names() if name.startswith(_PREFIX)]
        self._of_key = {key: batch for batch in batches for key in batch.lines}
        held = [most for batch in batches if not batch.is_settled for most in batch.lines.values()]
        self.account = Account(settings, notes, held)
        self._outcomes: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: list[_Line] = []
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._without_answer = 0

    async def probe(self) -> None:
        """Ask something that costs nothing. Raises `EndpointFault`."""
        await answered(self._http.batches.list(limit=1), _ROUTE)

    async def answer(self, body: Mapping[str, Any], max_tokens: int) -> Any:
        """The body of the answer to a request. Raises `EndpointFault` if it is refused, or has failed three times."""
        content = json.dumps(body, sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()[:32]
        line = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
        most = self.account.most(len(content), max_tokens)
        for tries in range(1, _TRIES + 1):
            if key not in self._outcomes:
                self._outcomes[key] = asyncio.get_running_loop().create_future()
                if key in self._of_key:
                    self._start(self._of_key[key].name, self._follow(self._of_key[key]), [key])
                else:
                    self._add(_Line(key, json.dumps(line).encode() + b"\n", most))
            future = self._outcomes[key]
            outcome = await asyncio.shield(future)
            fault = _fault_in(outcome)
            if fault is None:
                return outcome["response"]["body"]
            if fault.kind is FaultKind.REFUSED or tries == _TRIES:
                raise fault
            if self._outcomes.get(key) is future:  # the first of those that wait for it sends it again
                del self._outcomes[key]
                self._of_key.pop(key, None)
        raise AssertionError("unreachable")

    def _add(self, line: _Line) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting and (len(self._waiting) == _MOST_LINES or self._waiting_bytes + len(line.content) > _MOST_BYTES):
            self._flush()
        self._waiting.append(line)
        self._waiting_bytes += len(line.content)
        self._timer = asyncio.get_running_loop().call_later(self._poll_s, self._flush)

    def _flush(self) -> None:
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        name = secrets.token_hex(8)
        self._start(name, self._submit(name, lines), [line.key for line in lines])

    def _start(self, name: str, work: Any, keys: Sequence[str]) -> None:
        """Run the work at a batch, unless it is running or done; its error is that of those who wait for the batch."""
        if name in self._tasks:
            work.close()
            return

        def fail(task: asyncio.Task[None]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, EndpointFault):  # of the whole batch, which is no line's outcome
                error = RunStopped(f"the endpoint {error.text}; a batch can't be sent or read, and the same command goes on")
            waiting = {*keys, *(key for key, batch in self._of_key.items() if batch.name == name)}
            for key in waiting if error is not None else ():
                if (future := self._outcomes.get(key)) is not None and not future.done():
                    _fail(future, error)

        self._tasks[name] = asyncio.get_running_loop().create_task(work)
        self._tasks[name].add_done_callback(fail)

    async def _submit(self, name: str, waiting: Sequence[_Line]) -> None:
        """Create the batch of some lines, as many as may be paid, wait for its answers, and go on with the others."""
        await self.account.reserve(waiting[0].most)
        lines = [waiting[0]]
        for line in waiting[1:]:
            try:
                await self.account.reserve(line.most, waits=False)
            except CostReached:  # until others have cost less than their most
                break
            lines.append(line)
        batch = _Batch(name, {line.key: line.most for line in lines})
        self._of_key |= dict.fromkeys(batch.lines, batch)
        await self._note(batch)  # first: whatever happens now, the next session looks for a batch of this name
        content = b"".join(line.content for line in lines)

        async def upload() -> Any:
            return await answered(self._http.files.create(file=("assay.jsonl", content), purpose="batch"), _ROUTE)

        file = await self._ask(upload)

        async def create() -> Any:
            # Where an answer was lost on its way, the batch is there already.
            return await self._find(name) or await answered(
                self._http.batches.create(
                    input_file_id=file.id, endpoint=_URL, completion_window="24h", metadata={"assay": name}
                ),
                _ROUTE,
            )

        batch.id = (await self._ask(create)).id
        await self._note(batch)
        await self._follow(batch)
        if remaining := waiting[len(lines) :]:
            await self._submit(secrets.token_hex(8), remaining)

    async def _find(self, name: str) -> Any:
        """The batch of this name at the endpoint; None if it has none. Raises `EndpointFault`."""

        async def look() -> Any:
            async for batch in self._http.batches.list(limit=100):
                if (batch.metadata or {}).get("assay") == name:
                    return batch
            return None

        return await answered(look(), _ROUTE)

    async def _follow(self, batch: _Batch) -> None:
        """Wait until a batch has ended, and hand out its lines. Raises `EndpointError` if it can't be done at all."""
        if batch.id is None:  # the session that noted it was killed: was it created?
            created = await self._ask(lambda: self._find(batch.name))
            batch.id = created and created.id
        lines: dict[str, Mapping[str, Any]] = {}
        if batch.id is not None:
            ended = await self._wait_for_end(batch.id)
            if ended.status == "failed":
                # It wasn't begun: the next session sends its lines in another.
                await self._settle(batch, dict.fromkeys(batch.lines, _LOST))
                causes = "; ".join(error.message or "" for error in (ended.errors and ended.errors.data) or ())
                raise EndpointError(
                    f"the endpoint can't do the batch {batch.id}: {in_a_line(causes) or 'it says no reason'}"
                )
            for file in filter(None, (ended.output_file_id, ended.error_file_id)):
                content = await self._ask(lambda file=file: answered(self._http.files.content(file), _ROUTE))  # type: ignore[misc]
                lines |= {line["custom_id"]: line for line in map(json.loads, content.text.splitlines()) if line}
        outcomes = {key: lines.get(key, _LOST) for key in batch.lines}
        await self._settle(batch, outcomes)
        self._check_answered(batch, outcomes.values())
        for key, outcome in outcomes.items():
            future = self._outcomes.setdefault(key, asyncio.get_running_loop().create_future())
            if not future.done():
                future.set_result(outcome)

    async def _wait_for_end(self, number: str) -> Any:
        while True:
            batch = await self._ask(lambda: answered(self._http.batches.retrieve(number), _ROUTE))
            if batch.status in _ENDED:
                return batch
            await asyncio.sleep(self._poll_s)

    async def _settle(self, batch: _Batch, outcomes: Mapping[str, Mapping[str, Any]]) -> None:
        """Book what a batch has cost, once, and keep in its note what needn't be sent again."""
        if batch.is_settled:
            return
        for key, outcome in outcomes.items():
            body = (outcome.get("response") or {}).get("body")
            await self.account.settle(batch.lines[key], body, is_free=_fault_in(outcome) is not None)
        is_final = {
            key: (fault := _fault_in(line)) is None or fault.kind is FaultKind.REFUSED for key, line in outcomes.items()
        }
        batch.lines = {key: most for key, most in batch.lines.items() if is_final[key]}
        batch.is_settled = True
        await self._note(batch)

    def _check_answered(self, batch: _Batch, outcomes: Any) -> None:
        """Raise `RunStopped` if this batch and the one before it have answered nothing."""
        faults = [_fault_in(outcome) for outcome in outcomes]
        is_empty = batch.id is not None and all(fault and fault.kind is not FaultKind.REFUSED for fault in faults)
        self._without_answer = self._without_answer + 1 if is_empty else 0
        if self._without_answer >= 2 and faults[0] is not None:
            raise RunStopped(f"two batches in a row answered no line, the last one {batch.id}: it {faults[0].text}")

    async def _note(self, batch: _Batch) -> None:
        if self._notes is not None:
            content = {"lines": batch.lines, "id": batch.id, "is_settled": batch.is_settled}
            await asyncio.to_thread(self._notes.replace, f"{_PREFIX}{batch.name}.json", json.dumps(content).encode())


def _read(notes: Notes, name: str) -> _Batch:
    return _Batch(name.removeprefix(_PREFIX).removesuffix(".json"), **json.loads(notes.read(name)))


def _fail(future: "asyncio.Future[Any]", error: BaseException | None) -> None:
    future.set_exception(error or AssayError("a batch has no outcome"))
    future.exception()  # it is raised by whoever waits, and nobody may


def _fault_in(line: Mapping[str, Any]) -> EndpointFault | None:
    """Why a line of a batch has no answer; None if it has one."""
    response, error = line.get("response") or {}, line.get("error")
    status = response.get("status_code")
    if status == 200 and not error:
        return None
    details = error or (response.get("body") or {}).get("error") or {}
    message = (
        str(details.get("message") or details.get("code") or "no reason") if isinstance(details, dict) else str(details)
    )
    if isinstance(status, int) and status >= 400:
        return fault_of_status(status, message, {}, JUDGING)
    return EndpointFault(FaultKind.FAILED, f"didn't do the line of a batch: {in_a_line(message)}", is_free=True)
