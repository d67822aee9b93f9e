"""HEAD, wrong methods and wrong paths, of the application and over a real socket."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from deploy.models.service import Service
from deploy.settings import LimitSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys
from tests.support.endpoints import client, listening, raw

KEY = "a-key-of-more-than-sixteen"
ORIGIN = "https://labels.example.com"


def empty(*keys: str, origins: tuple[str, ...] = ()) -> Any:
    """The application without a model."""

    async def ready() -> str | None:
        return None

    async def metrics() -> str:
        return "ray_assay_x 1\n"

    return create_app(Service([], LimitSettings()), Keys(keys), ready, metrics, origins)


def send(app: Any, method: str, path: str, **headers: str) -> httpx.Response:
    async def sent() -> httpx.Response:
        async with client(app, **headers) as http:
            return await http.request(method, path)

    return asyncio.run(sent())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(empty()) as url:
        yield url


GOT = ["/", "/app.js", "/health", "/ready", "/metrics", "/v1/models", "/docs", "/openapi.json"]


def test_head_is_get_without_its_body(address: str) -> None:
    for path in GOT:
        got, headed = httpx.get(address + path), httpx.head(address + path)
        assert (headed.status_code, headed.content) == (200, b"")
        kept = {"content-type", "content-length", "content-security-policy"}
        assert [(name, headed.headers.get(name)) for name in kept] == [(name, got.headers.get(name)) for name in kept]
        assert got.content


def test_a_connection_goes_on_after_a_head(address: str) -> None:
    with raw(address) as item:
        item.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b""
        while b'{"status":"ok"}' not in text:
            piece = item.recv(4096)
            assert piece
            text += piece
    assert text.count(b"HTTP/1.1 200") == 2
    assert text.count(b'{"status":"ok"}') == 1


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/rewards", "POST"),
        ("HEAD", "/v1/rewards", "POST"),
        ("DELETE", "/classify", "POST, PUT"),
        ("OPTIONS", "/classify", "POST, PUT"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/models/any", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    answer = send(empty(), method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    if method != "HEAD":
        assert answer.json()["error"]["message"] == f"{path} takes {allowed}, and no other method"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/reward", "there is no route /v1/reward; did you mean /v1/rewards? /docs lists all"),
        ("/chat/completions", "there is no route /chat/completions; did you mean /v1/chat/completions? /docs lists all"),
        ("/qqqqqqqqqq", "there is no route /qqqqqqqqqq. /docs lists all"),
        ("/" + "q" * 200, f"there is no route /{'q' * 79}. /docs lists all"),
    ],
)
def test_a_wrong_path_is_told_the_nearest(path: str, message: str) -> None:
    for method in ("GET", "POST"):
        answer = send(empty(), method, path)
        assert answer.status_code == 404
        assert answer.json()["error"] == {
            "message": message, "type": "invalid_request_error", "param": None, "code": "no_route",
        }  # fmt: skip


# Pages of others.

ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def test_a_page_of_an_allowed_origin_may_ask_and_needs_a_key_only_then() -> None:
    app = empty(KEY, origins=(ORIGIN,))
    before = send(app, "OPTIONS", "/v1/rewards", Origin=ORIGIN, **ASKED)
    assert before.status_code == 200
    assert before.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "POST" in before.headers["Access-Control-Allow-Methods"]
    assert "authorization" in before.headers["Access-Control-Allow-Headers"].lower()
    refused = send(app, "GET", "/v1/models", Origin=ORIGIN)
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, ORIGIN), "a page can read why"
    listed = send(app, "GET", "/v1/models", Origin=ORIGIN, Authorization=f"Bearer {KEY}")
    assert (listed.status_code, listed.headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)


def test_no_other_page_may() -> None:
    for app, origin in ((empty(KEY, origins=(ORIGIN,)), "https://elsewhere.example.com"), (empty(KEY), ORIGIN)):
        assert send(app, "OPTIONS", "/v1/rewards", Origin=origin, **ASKED).status_code in {400, 401}
        answer = send(app, "GET", "/v1/models", Origin=origin, Authorization=f"Bearer {KEY}")
        assert "Access-Control-Allow-Origin" not in answer.headers
    answer = send(empty(origins=("*",)), "GET", "/v1/models", Origin=ORIGIN)
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
