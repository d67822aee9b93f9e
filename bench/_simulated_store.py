"""An S3 server on loopback whose million objects exist by name only: each listing and read takes a set time.

It answers what `s3fs` asks of a bucket that is only read: ListObjectsV2 in pages of 1,000, HEAD, and GET with a range. An
object's name tells its content, so nothing is stored: JSON Lines below `in/`, and below `parquet/` one Parquet file under
all names. Standard library and Arrow, one thread per connection.
"""

import functools
import io
import json
import re
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

BUCKET = "simulated"
_SUFFIXES = {"in": "jsonl", "parquet": "parquet"}
"""The folders, and the ending of the names in each."""
_PAGE = 1000
_ROWS = 10
_WRITTEN = "2026-01-01T00:00:00.000Z"
_COUNTS = "/counts"


class _Settings(NamedTuple):
    objects: int
    latency_s: float


def content_of(folder: str, number: int) -> bytes:
    """The bytes of an object: ten conversations."""
    return _parquet() if folder == "parquet" else b"".join(json.dumps(row).encode() + b"\n" for row in _rows(number))


def _rows(number: int) -> list[dict[str, Any]]:
    return [
        {"messages": [{"role": "user", "content": f"{number} {row}?"}, {"role": "assistant", "content": f"answer {row}"}]}
        for row in range(_ROWS)
    ]


@functools.cache
def _parquet() -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(_rows(0)), content)
    return content.getvalue()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    settings: _Settings
    requests = 0
    lock = threading.Lock()

    def do_HEAD(self) -> None:
        self._object(with_content=False)

    def do_GET(self) -> None:
        if self.path == _COUNTS:
            self._answer(200, str(_Handler.requests).encode())
            return
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._listing(query)
        else:
            self._object(with_content=True)

    def _listing(self, query: dict[str, list[str]]) -> None:
        self._wait()
        folder = query.get("prefix", [""])[0].rstrip("/")
        start = int(query.get("continuation-token", ["0"])[0])
        end = min(start + _PAGE, self.settings.objects) if folder in _SUFFIXES else start
        entries = "".join(
            f"<Contents><Key>{folder}/{number:08d}.{_SUFFIXES[folder]}</Key><LastModified>{_WRITTEN}</LastModified>"
            f"<ETag>&quot;{number:032x}&quot;</ETag><Size>{len(content_of(folder, number))}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for number in range(start, end)
        )
        more = end < self.settings.objects and end > start
        token = f"<NextContinuationToken>{end}</NextContinuationToken>" if more else ""
        body = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{folder}/</Prefix><KeyCount>{end - start}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{entries}</ListBucketResult>"
        )
        self._answer(200, body.encode(), {"Content-Type": "application/xml"})

    def _object(self, *, with_content: bool) -> None:
        self._wait()
        match = re.fullmatch(rf"/{BUCKET}/(\w+)/(\d{{8}})\.(\w+)", urlsplit(self.path).path)
        if match is None or _SUFFIXES.get(match[1]) != match[3] or int(match[2]) >= self.settings.objects:
            self._answer(404, b"" if not with_content else b"<Error><Code>NoSuchKey</Code></Error>")
            return
        content = content_of(match[1], int(match[2]))
        headers = {"ETag": f'"{int(match[2]):032x}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if (range_header := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is not None:
            first, last = int(range_header[1]), min(int(range_header[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(206, content[first : last + 1], headers)
        elif with_content:
            self._answer(200, content, headers)
        else:
            self.send_response(200)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()

    def _wait(self) -> None:
        with self.lock:
            _Handler.requests += 1
        time.sleep(self.settings.latency_s)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: a line for each of a million requests helps nobody."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def simulated_store(objects: int, latency_s: float) -> Iterator[dict[str, str]]:
    """Starts the server in a process of its own; the environment variables by which clients reach it."""
    command = [sys.executable, "-m", "bench._simulated_store", str(objects), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(process.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "anybody",
                "AWS_SECRET_ACCESS_KEY": "anything",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            process.terminate()


def main(arguments: list[str]) -> None:
    """Serve until the process is ended; prints the port."""
    _Handler.settings = _Settings(int(arguments[0]), float(arguments[1]))
    with _Server(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
