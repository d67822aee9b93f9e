"""OpenAI's Batch API: prompts go out as files, and their answers come within a day, for less.

Prompts are collected until none has come for a while or a file is full, and sent as one batch. Every batch has a note in the
run's folder before it is created, with a name that the endpoint keeps beside it, and a hash of each request: a session that
was killed finds its batches again, reads what they answered, and asks for nothing twice.

A line that failed for the moment (429, 5xx, expired, unreadable) is sent again in another batch, three times in all; one
that is refused has failed. If two batches in a row answer no line at all, the run stops.
"""

import asyncio
import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from actors.endpoint.account import Account, Notes
from actors.endpoint.client import EndpointClient, now
from actors.endpoint.faults import JUDGING, EndpointFault, FaultKind, Route, fault_of_status, in_a_line
from actors.endpoint.http import answered, read_answer
from actors.errors import CostReached, EndpointError, RunStopped
from actors.settings.endpoint import ModelEndpointSettings

T = TypeVar("T")

_Outcomes = Mapping[str, Mapping[str, Any]]  # lines of the files of answers, by the hash of their request

_ROUTE = Route("/batches", "a batch", "--model")
_URL = "/v1/chat/completions"
# Of a file; OpenAI takes 200 MB.
_MOST_LINES, _MOST_BYTES = 50_000, 190 * 2**20
_TRIES = 3
_ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
_PREFIX = "batch-"
_LOST = {"error": {"code": "batch_expired", "message": "the batch ended without this line"}}


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
    key: str  # the hash of its request
    content: bytes  # its line in the file
    most: float  # that it may cost


class Batches:
    """The batches of a run. Used on one event loop."""

    def __init__(self, http: Any, client: EndpointClient, settings: ModelEndpointSettings, notes: Notes | None) -> None:
        self._http = http
        self._ask = client.ask
        self._poll_s, self._cost = settings.batch_poll_s, settings.cost
        self._notes = notes
        batches = [] if notes is None else [_read(notes, name) for name in notes.names() if name.startswith(_PREFIX)]
        self._noted = {key: batch for batch in batches for key in batch.lines}
        held = [most for batch in batches if not batch.is_settled for most in batch.lines.values()]
        self.account = Account(settings, notes, held)
        self._tasks: dict[str, asyncio.Task[_Outcomes]] = {}  # of each line, the work among whose outcomes is the line's
        self._file: list[_Line] = []  # lines that are being collected, and the work at them
        self._file_bytes = 0
        self._file_task: asyncio.Task[_Outcomes]
        self._newest_at = 0.0  # when the last line was added
        self._without_answer = 0  # batches in a row

    async def probe(self) -> None:
        await answered(self._http.batches.list(limit=1), _ROUTE)  # costs nothing

    async def answer(self, body: Mapping[str, Any], max_tokens: int, read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer to a request, which may take a day.

        Raises `EndpointFault` if it is refused, or has failed or couldn't be read three times; `RunStopped` and
        `CostReached` as a batch does.
        """
        content = json.dumps(body, sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()[:32]
        request = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
        line = _Line(key, json.dumps(request).encode() + b"\n", self._cost(len(content), max_tokens))
        for tries in range(1, _TRIES + 1):
            outcome: Mapping[str, Any] | None = None
            while outcome is None:  # in a later file, if it couldn't be paid beside the others of this one
                task = self._tasks.get(key) or self._begin(line)
                outcome = (await asyncio.shield(task)).get(key)  # others may wait for the same batch
            try:
                return _read_outcome(outcome, read)
            except EndpointFault as error:
                fault = error
            if fault.kind is FaultKind.REFUSED or tries == _TRIES:
                raise fault
            if self._tasks.get(key) is task:  # the first of those that wait for it sends it again
                del self._tasks[key]
                self._noted.pop(key, None)
        raise AssertionError("unreachable")

    def _begin(self, line: _Line) -> "asyncio.Task[_Outcomes]":
        """The work that has the outcome of a line: at a batch of an earlier session, or at the file that is collected."""
        if (batch := self._noted.get(line.key)) is not None:
            self._tasks |= dict.fromkeys(batch.lines, self._start(self._follow(batch), batch))
        else:
            self._add(line)
        return self._tasks[line.key]

    def _add(self, line: _Line) -> None:
        if len(self._file) == _MOST_LINES or self._file_bytes + len(line.content) > _MOST_BYTES:
            self._file, self._file_bytes = [], 0
        if not self._file:
            self._file_task = self._start(self._send(self._file))
        self._file.append(line)
        self._file_bytes += len(line.content)
        self._newest_at = now()
        self._tasks[line.key] = self._file_task

    def _start(self, work: Coroutine[Any, Any, _Outcomes], batch: _Batch | None = None) -> "asyncio.Task[_Outcomes]":
        async def stop_at_fault() -> _Outcomes:
            try:
                return await work
            except EndpointFault as fault:  # of the whole batch, which is no line's outcome
                then = "the same command goes on"
                if batch is not None and fault.text.startswith("answers 404"):
                    # Not sent again by itself: it may be there for another key, and is paid for.
                    then = (
                        f"if {batch.id} is gone, delete endpoint/{_PREFIX}{batch.name}.json in the run's folder, and "
                        "the same command asks again for what was in it"
                    )
                raise RunStopped(f"the endpoint {fault.text}; a batch can't be sent or read, and {then}") from fault

        task = asyncio.create_task(stop_at_fault())
        # The error is raised by whoever waits for a line. If nobody does any more, asyncio would log it at the end.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _send(self, lines: list[_Line]) -> _Outcomes:
        """Wait until a file is full, or no line has come for a while; create its batch, and wait for the answers."""
        while self._file is lines:
            quiet_s = self._newest_at + self._poll_s - now()
            if quiet_s <= 0:
                self._file, self._file_bytes = [], 0
                break
            await asyncio.sleep(quiet_s)
        await self.account.reserve(lines[0].most)
        count = 1
        for line in lines[1:]:
            try:
                await self.account.reserve(line.most, waits=False)
            except CostReached:  # until others have cost less than their most
                break
            count += 1
        batch = _Batch(secrets.token_hex(8), {line.key: line.most for line in lines[:count]})
        for line in lines[count:]:
            self._add(line)
        await self._note(batch)  # first: whatever happens now, the next session looks for a batch of this name
        content = b"".join(line.content for line in lines[:count])

        async def upload() -> Any:
            return await answered(self._http.files.create(file=("assay.jsonl", content), purpose="batch"), _ROUTE)

        file = await self._ask(upload)

        async def create() -> Any:
            # Where an answer was lost on its way, the batch is there already.
            return await self._find(batch.name) or await answered(
                self._http.batches.create(
                    input_file_id=file.id, endpoint=_URL, completion_window="24h", metadata={"assay": batch.name}
                ),
                _ROUTE,
            )

        batch.id = (await self._ask(create)).id
        await self._note(batch)
        return await self._follow(batch)

    async def _find(self, name: str) -> Any:
        """The batch of this name at the endpoint; None if it has none. Raises `EndpointFault`."""

        async def look() -> Any:
            async for batch in self._http.batches.list(limit=100):
                if (batch.metadata or {}).get("assay") == name:
                    return batch
            return None

        return await answered(look(), _ROUTE)

    async def _follow(self, batch: _Batch) -> _Outcomes:
        """Wait until a batch has ended: the outcomes of its lines. Raises `EndpointError` if it can't be done at all."""
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
                lines |= _read_lines(content.content)
        outcomes = {key: lines.get(key, _LOST) for key in batch.lines}
        faults = await self._settle(batch, outcomes)
        is_empty = batch.id is not None and all(fault and fault.kind is not FaultKind.REFUSED for fault in faults)
        self._without_answer = self._without_answer + 1 if is_empty else 0
        if self._without_answer >= 2 and faults[0] is not None:
            raise RunStopped(f"two batches in a row answered no line, the last one {batch.id}: it {faults[0].text}")
        return outcomes

    async def _wait_for_end(self, number: str) -> Any:
        while True:
            batch = await self._ask(lambda: answered(self._http.batches.retrieve(number), _ROUTE))
            if batch.status in _ENDED:
                return batch
            await asyncio.sleep(self._poll_s)

    async def _settle(self, batch: _Batch, outcomes: _Outcomes) -> list[EndpointFault | None]:
        """Book what a batch has cost, once, and keep in its note what needn't be sent again; the fault of each outcome."""
        faults = {key: _fault_in(outcome) for key, outcome in outcomes.items()}
        if not batch.is_settled:
            for key, outcome in outcomes.items():
                body = (outcome.get("response") or {}).get("body")
                await self.account.settle(batch.lines[key], body, is_free=faults[key] is not None)
            # What was refused costs nothing, and the next session asks again: the cause may be mended by then.
            batch.lines = {key: most for key, most in batch.lines.items() if faults[key] is None}
            batch.is_settled = True
            await self._note(batch)
        return list(faults.values())

    async def _note(self, batch: _Batch) -> None:
        if self._notes is not None:
            content = {"lines": batch.lines, "id": batch.id, "is_settled": batch.is_settled}
            await asyncio.to_thread(self._notes.replace, f"{_PREFIX}{batch.name}.json", json.dumps(content).encode())


def _read(notes: Notes, name: str) -> _Batch:
    return _Batch(name.removeprefix(_PREFIX).removesuffix(".json"), **json.loads(notes.read(name)))


def _read_lines(content: bytes) -> dict[str, Mapping[str, Any]]:
    """The lines of a file of answers by the hash of their request, without those that can't be read: these count as lost."""
    lines: dict[str, Mapping[str, Any]] = {}
    # At line feeds alone: `splitlines` also cuts at U+2028 and U+0085, which JSON may hold as they are.
    for content_line in content.split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            line = json.loads(content_line)
            lines[line["custom_id"]] = line
    return lines


def _read_outcome(line: Mapping[str, Any], read: Callable[[Any], T]) -> T:
    fault = _fault_in(line)
    if fault is not None:
        raise fault
    return read_answer(line["response"]["body"], JUDGING, read)


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
