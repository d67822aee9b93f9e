"""Endpoints of chat completions for tests: a judge that gives each response a number, and OpenAI's Batch API before it."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from tests.support.endpoints import completion

RUBRIC = {"prompt": "{{ conversation }}\nRate <{{ response }}>", "pattern": r"Score: (?P<score>\d)", "low": 0, "high": 9}
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["score"],
    "additionalProperties": False,
}
_RATED = re.compile(r"Rate <(.*)>", re.DOTALL)

Fault = Callable[[str, int], Any]
"""What comes instead of an answer, by the text that is rated and how often it was before: a status with or without seconds
of Retry-After, `drop`, `hang`, or a body; None for an answer."""


def grade(text: str) -> int:
    """The number that the judge gives a response."""
    return sum(map(ord, text)) % 10


class Judge:
    """A judge that grades, of whom some requests are answered by a fault."""

    def __init__(self, fault: Fault = lambda text, times: None) -> None:
        self._fault, self._lock = fault, threading.Lock()
        self.requests = Counter[str]()
        self.answered = Counter[str]()
        self.bodies: list[dict[str, Any]] = []
        self.fingerprint = "fp_1"
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.complete)

    async def models(self) -> Any:
        return {"object": "list", "data": [{"id": "judge", "object": "model"}]}

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """What it writes, with its fingerprint."""
        rated = _RATED.search(body["messages"][-1]["content"])
        text = f"Score: {grade(rated[1])}" if rated else "Hello"
        if rated and "response_format" in body:
            text = json.dumps({"score": grade(rated[1])})
        return {**completion({"content": text}), "system_fingerprint": self.fingerprint}

    async def complete(self, request: Request) -> Any:
        body = await request.json()
        rated = _RATED.search(body["messages"][-1]["content"])
        text = rated[1] if rated else ""
        with self._lock:
            times = self.requests[text]
            self.requests[text] += 1
            self.bodies.append(body)
        fault = self._fault(text, times)
        if fault is None:
            with self._lock:
                self.answered[text] += 1
            return self.answer(body)
        return await _faulty(fault)


async def _faulty(fault: Any) -> Response:
    if fault == "hang":
        await asyncio.sleep(3600)
    if fault == "drop":

        async def broken() -> Any:
            yield b'{"choices": ['
            raise ConnectionError

        return StreamingResponse(broken(), headers={"Content-Length": "1000"}, media_type="application/json")
    status, wait = fault if isinstance(fault, tuple) else (fault, None)
    if isinstance(status, int):
        headers = {} if wait is None else {"Retry-After": str(wait)}
        return JSONResponse({"error": {"message": f"no, {status}"}}, status, headers)
    return PlainTextResponse(status, media_type="application/json")


class BatchApi(Judge):
    """OpenAI's files and batches before the judge. A batch ends when it is looked at the second time.

    `line_fault` may give the line of a request in the error file, by the text that is rated and how often it was sent;
    `ends` gives the status of the next batches, `expired` without any line.
    """

    def __init__(self, line_fault: Callable[[str, int], dict[str, Any] | None] = lambda text, times: None) -> None:
        super().__init__()
        self._line_fault = line_fault
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looks = Counter[str]()
        self.sent = Counter[str]()
        self.ends: list[str] = []
        self.is_stuck = False
        self.app.post("/v1/files")(self.upload)
        self.app.get("/v1/files/{file}/content")(self.content)
        self.app.post("/v1/batches")(self.create)
        self.app.get("/v1/batches")(self.list)
        self.app.get("/v1/batches/{number}")(self.look)

    async def upload(self, request: Request) -> Any:
        async with request.form() as form:
            uploaded: Any = form["file"]
            name = f"file-{len(self.files)}"
            self.files[name] = (await uploaded.read()).decode()
        return {
            "id": name,
            "object": "file",
            "bytes": 1,
            "created_at": 0,
            "filename": "x",
            "purpose": "batch",
            "status": "ok",
        }

    async def content(self, file: str) -> Response:
        return PlainTextResponse(self.files[file])

    async def create(self, request: Request) -> Any:
        body = await request.json()
        number = f"batch_{len(self.batches)}"
        self.batches[number] = {
            **body, "id": number, "object": "batch", "created_at": 0, "status": "validating", "output_file_id": None,
            "error_file_id": None, "errors": None,
        }  # fmt: skip
        for line in map(json.loads, self.files[body["input_file_id"]].splitlines()):
            self.sent[_text_of(line)] += 1
        return self.batches[number]

    async def list(self) -> Any:
        return {"object": "list", "data": list(self.batches.values()), "has_more": False}

    async def look(self, number: str) -> Any:
        if number not in self.batches:
            return JSONResponse({"error": {"message": f"there is no {number}"}}, 404)
        batch = self.batches[number]
        self.looks[number] += 1
        if self.looks[number] > 1 and not self.is_stuck and batch["status"] == "validating":
            self._end(batch, self.ends.pop(0) if self.ends else "completed")
        return batch

    def _end(self, batch: dict[str, Any], status: str) -> None:
        outputs, errors = list[Any](), list[Any]()
        for line in map(json.loads, self.files[batch["input_file_id"]].splitlines()):
            fault = self._line_fault(_text_of(line), self.sent[_text_of(line)] - 1)
            if status == "expired":
                fault = {"error": {"code": "batch_expired", "message": "expired"}, "response": None}
            answer = {"response": {"status_code": 200, "body": self.answer(line["body"])}, "error": None}
            (errors if fault else outputs).append({"custom_id": line["custom_id"], **(fault or answer)})
        for kind, lines in (("output", outputs), ("error", errors)):
            if lines:
                self.files[f"{batch['id']}-{kind}"] = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
                batch[f"{kind}_file_id"] = f"{batch['id']}-{kind}"
        batch["status"] = status


def _text_of(line: dict[str, Any]) -> str:
    rated = _RATED.search(line["body"]["messages"][-1]["content"])
    return rated[1] if rated else ""
