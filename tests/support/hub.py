"""The Hub's routes that an upload uses, on loopback, for the real client: datasets with their files, commits, and tokens."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_" + "t" * 34


@dataclass
class HubDataset:
    """A dataset: whether it is private, and the files after its last commit."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: int = 0


@dataclass
class LocalHub:
    """A Hub. The next commits are answered with the statuses in `refusals`, one after the other."""

    url: str
    datasets: dict[str, HubDataset] = field(default_factory=dict)
    refusals: list[int] = field(default_factory=list)
    writable: bool = True
    requests: list[str] = field(default_factory=list)


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """A Hub on loopback, while the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = LocalHub(f"http://127.0.0.1:{server.server_port}")
    _Handler.hub = hub
    thread = threading.Thread(target=server.serve_forever, name="hub")
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _handle(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid credentials"})
        elif path == "/api/whoami-v2":
            self._answer(200, {"name": "me", "type": "user"})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        else:
            owner, name, *other_pieces = path.removeprefix("/api/datasets/").split("/")
            self._of_dataset(f"{owner}/{name}", other_pieces, body)

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        names = name in self.hub.datasets
        if not names:
            self.hub.datasets[name] = HubDataset(wanted.get("visibility") == "private" or wanted.get("private", False))
        self._answer(409 if names else 200, {"url": f"{self.hub.url}/datasets/{name}", "error": "exists"})

    def _of_dataset(self, name: str, rest: list[str], body: bytes) -> None:
        dataset = self.hub.datasets.get(name)
        if dataset is None:
            self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return
        match rest:
            case [] | ["revision", _]:
                self._answer(200, {"id": name, "private": dataset.private, "sha": f"{dataset.commits:040x}"})
            case ["auth-check", "write"]:
                self._answer(200 if self.hub.writable else 403, {})
            case ["tree", *_]:
                files = [{"type": "file", "path": path, "size": 1, "oid": "0"} for path in dataset.files]
                self._answer(200, files)
            case ["preupload", _]:
                wanted = [file["path"] for file in json.loads(body)["files"]]
                files = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in wanted]
                self._answer(200, {"files": files})
            case ["commit", _]:
                self._commit(name, dataset, body)

    def _commit(self, name: str, dataset: HubDataset, body: bytes) -> None:
        if self.hub.refusals:
            self._answer(self.hub.refusals.pop(0), {"error": "not now"})
            return
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                dataset.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del dataset.files[line["value"]["path"]]
        dataset.commits += 1
        oid = f"{dataset.commits:040x}"
        self._answer(200, {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/datasets/{name}/commit/{oid}"})

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for header, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(header, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
