"""What is refused before anybody looks at it, over real sockets: too many, too long, too slow, unknown, and gone."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from actors.checkpoint.checkpoint_files import locate
from actors.errors import SettingsError
from actors.scorers.online import OnlineScorer
from actors.settings.replica import EngineSettings
from deploy.settings import AccessSettings, LimitSettings
from deploy.web import limits
from deploy.web.app import create_app
from deploy.web.auth import Keys, check_reach, read_keys
from tests.support.endpoints import ANSWERED, QUESTION, application, client, head, listening, post, raw, scorer, wait

BODY = {"conversations": [{"messages": ANSWERED}]}
KEY = "a-key-of-more-than-sixteen"
JSON = {"Content-Type": "application/json"}
LIMITS = LimitSettings(max_requests=4, max_body_bytes=100_000, max_items=8, body_timeout_s=1.0, answer_timeout_s=5.0)


@pytest.fixture(scope="module")
def quick() -> Iterator[OnlineScorer]:
    online_scorer = scorer("tiny-attributes")
    yield online_scorer
    online_scorer.close()


@pytest.fixture(scope="module")
def slow() -> Iterator[OnlineScorer]:
    """Takes 30 s for each answer."""
    online_scorer = scorer("tiny-attributes", engine=EngineSettings(engine="fake", engine_args={"latency_s": 30.0}))
    yield online_scorer
    online_scorer.close()


@pytest.fixture(scope="module")
def address(quick: OnlineScorer) -> Iterator[str]:
    with listening(application([quick], LIMITS)) as url:
        yield url


def code(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json()["error"]["code"]


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1000), b""))


def works(address: str) -> bool:
    return httpx.post(f"{address}/v1/rewards", json=BODY, timeout=20).status_code == 200


# Bodies.


def test_a_body_that_says_it_is_too_long_isnt_read(address: str) -> None:
    with raw(address) as item:
        item.sendall(head(100 * 2**20))
        assert item.recv(1000).startswith(b"HTTP/1.1 413")
    assert works(address)


@pytest.mark.parametrize(("length", "status"), [("0" * 5000, 413), ("9" * 5000, 413), ("0" * 10, 400), ("9" * 19, 413)])
def test_a_length_of_many_digits_is_the_clients_mistake(quick: OnlineScorer, length: str, status: int) -> None:
    headers = {"content-type": "application/json", "content-length": length}

    async def sent() -> httpx.Response:
        async with client(application([quick], LIMITS)) as http:
            return await http.post("/v1/rewards", content=b"", headers=headers)

    assert asyncio.run(sent()).status_code == status


def test_a_body_that_becomes_too_long_is_cut(address: str) -> None:
    async def endless() -> Any:
        for _ in range(10_000):
            yield b" " * 10_000

    async def sent() -> httpx.Response | None:
        async with httpx.AsyncClient(timeout=20) as client:
            # The server has answered and closed while we still send: some clients read that, others see a broken pipe.
            with contextlib.suppress(httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
                return await client.post(f"{address}/v1/rewards", content=endless())
        return None

    answer = asyncio.run(sent())
    assert answer is None or answer.status_code == 413
    assert works(address)


@pytest.mark.parametrize("refusal", ["401 invalid_api_key", "413 body_too_long", "429 overloaded", "503 stopping"])
def test_a_refusal_reaches_a_client_that_sends_all_before_it_reads(quick: OnlineScorer, refusal: str) -> None:
    status, reason = refusal.split()
    app = application([quick], LimitSettings(max_body_bytes=100_000), keys=[KEY] if status == "401" else [])
    app.is_stopping = status == "503"
    app._places = asyncio.Semaphore(0 if status == "429" else 1)
    with listening(app) as url:
        answer = httpx.post(f"{url}/v1/rewards", content=b" " * 2**23, headers=JSON, timeout=100)
    assert code(answer) == (int(status), reason)


def test_clients_that_are_refused_and_slow_are_let_go(quick: OnlineScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Soon, or at once where there are as many as may be.
    for most, timeout_s in ((1, 0.5), (0, 600.0)):
        monkeypatch.setattr(limits, "_MOST_DISCARDING", most)
        app = application([quick], LimitSettings(body_timeout_s=timeout_s), keys=[KEY])
        with listening(app) as url, raw(url) as item:
            item.sendall(head(1000))
            text = until_closed(item)
        assert text.startswith(b"HTTP/1.1 401")
        assert app._discarding == 0


def test_a_body_without_a_length_may_be_as_long_as_the_limit_and_no_longer(quick: OnlineScorer) -> None:
    async def padded(length: int) -> httpx.Response:
        async def pieces() -> Any:
            yield json.dumps(BODY).encode()
            yield b" " * (length - len(json.dumps(BODY)))

        async with client(application([quick], LIMITS)) as http:
            return await http.post("/v1/rewards", content=pieces(), headers={"content-type": "application/json"})

    assert asyncio.run(padded(LIMITS.max_body_bytes)).status_code == 200
    assert code(asyncio.run(padded(LIMITS.max_body_bytes + 1))) == (413, "body_too_long")


def test_a_client_that_doesnt_send_its_body_is_told_so(address: str) -> None:
    with raw(address) as item:
        item.sendall(head(50) + b'{"conv')
        answer = item.recv(1000)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_timeout" in answer


def test_half_open_clients_stop_nobody(address: str) -> None:
    with contextlib.ExitStack() as several:
        for _ in range(50):
            several.enter_context(raw(address)).sendall(b"POST /v1/rewards HTTP/1.1\r\nHost")
        assert works(address)


def test_more_items_than_allowed_are_too_large(address: str) -> None:
    body = {"conversations": [{"messages": ANSWERED}] * 9}
    assert httpx.post(f"{address}/v1/rewards", json=body).status_code == 413
    several = {"conversations": [{"messages": ANSWERED[:1], "responses": ["7"] * 9}]}
    assert httpx.post(f"{address}/v1/rewards", json=several).status_code == 413
    assert httpx.post(f"{address}/pooling", json={"input": ["a"] * 9}).status_code == 413


# Encodings and types.


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip"])
def test_a_packed_body_is_refused(address: str, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = httpx.post(f"{address}/v1/rewards", content=b"{}", headers=headers)
    assert code(answer) == (415, "encoded")
    for plain in ("identity", ""):
        answer = httpx.post(f"{address}/v1/rewards", json=BODY, headers={"Content-Encoding": plain})
        assert answer.status_code == 200


def test_a_body_of_another_type_is_told_which_is_read(address: str) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/jsonl", "json", ""):
        for path in ("/v1/rewards", "/v1/chat/completions", "/classify"):
            headers = {"Content-Type": kind} if kind else {}
            answer = httpx.post(f"{address}{path}", content=json.dumps(BODY).encode(), headers=headers)
            assert code(answer) == (415, "not_json")
            message = answer.json()["error"]["message"]
            assert "application/json" in message
            assert kind in message


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.assay+json"])
def test_json_has_several_names(address: str, kind: str) -> None:
    content = json.dumps(BODY).encode()
    assert httpx.post(f"{address}/v1/rewards", content=content, headers={"Content-Type": kind}).status_code == 200


# Load and deadlines.


def test_more_requests_than_allowed_are_told_to_come_again(slow: OnlineScorer) -> None:
    app = application([slow], LIMITS.model_copy(update={"answer_timeout_s": 2.0}))

    async def many() -> list[httpx.Response]:
        async with client(app) as http:
            return await asyncio.gather(*(http.post("/v1/rewards", json=BODY) for _ in range(10)))

    answers = asyncio.run(many())
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 6
    assert {code(answer) for answer in refused} == {(429, "overloaded")}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
    assert {code(answer) for answer in answers if answer.status_code != 429} == {(504, "timeout")}
    assert app.under_way == 0
    assert slow.tokens_under_way == 0, "what nobody waits for any more has left the engine"


def test_as_many_rollouts_as_are_under_way_wait_for_room_in_their_order() -> None:
    """NeMo Gym sends thousands at once, never asks again by a status, and ends its run at the first error."""
    rollout = {
        "responses_create_params": {"input": QUESTION},
        "response": {
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7"}]}]
        },
    }
    some = scorer("tiny-attributes", engine=EngineSettings(engine="fake", engine_args={"latency_s": 0.2}))
    app = application([some], LimitSettings(max_requests=4))

    async def many(path: str, body: Any) -> list[int]:
        async with client(app) as http:
            return [answer.status_code for answer in await asyncio.gather(*(http.post(path, json=body) for _ in range(9)))]

    try:
        assert asyncio.run(many("/verify", rollout)) == [200] * 8 + [429]
        assert asyncio.run(many("/v1/rewards", BODY)) == [200] * 4 + [429] * 5, "whose clients ask again"
        app = application([some], LimitSettings(max_requests=4, answer_timeout_s=0.1))
        app._places = asyncio.Semaphore(0)
        assert asyncio.run(many("/verify", rollout)) == [429] * 9, "and none waits for ever"
    finally:
        some.close()
    assert (app.waiting, app.under_way) == (0, 0)


def test_who_waits_for_room_is_told_that_the_endpoint_stops(quick: OnlineScorer) -> None:
    app = application([quick], LIMITS)
    app._places = asyncio.Semaphore(0)

    async def stopping() -> httpx.Response:
        async with client(app) as http:
            waiting = asyncio.create_task(http.post("/verify", json={}))
            while not app.waiting:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
            await app.drain()
            app._places.release()
            return await waiting

    assert code(asyncio.run(stopping())) == (503, "stopping")


def test_a_client_may_wait_for_less_time_but_not_for_more(slow: OnlineScorer) -> None:
    # Of the client's time and the endpoint's only the shorter one is over before the answer is there.
    for seconds, item in (("0.1", 600.0), ("3600", 0.1)):
        app = application([slow], LIMITS.model_copy(update={"answer_timeout_s": item}))
        assert code(post(app, "/v1/rewards", BODY, **{"X-Timeout-Seconds": seconds})) == (504, "timeout")
    for wrong in ("soon", "-1", "nan", "inf"):
        assert post(app, "/v1/rewards", BODY, **{"X-Timeout-Seconds": wrong}).status_code == 400


def test_a_slow_response_costs_its_number_alone() -> None:
    tokenizer = Tokenizer.from_file(str(Path(locate("tiny-attributes"), "tokenizer.json")))
    (token,) = tokenizer.encode("\x07", add_special_tokens=False).ids
    hanging = scorer("tiny-attributes", engine=EngineSettings(engine="fake", engine_args={"at": {str(token): "hang"}}))
    slow_answer = {"messages": [*QUESTION, {"role": "assistant", "content": "\x07"}]}
    body = {"conversations": [{"messages": ANSWERED}, slow_answer, {"messages": ANSWERED}]}
    try:
        # The engine gives up 1 s before the endpoint.
        answer = post(application([hanging], LIMITS.model_copy(update={"answer_timeout_s": 10.0})), "/v1/rewards", body)
    finally:
        hanging.close()
    responses = [response for item in answer.json()["data"] for response in item["responses"]]
    assert [response["reward"] is None for response in responses] == [False, True, False]
    assert responses[1]["reason"] == "engine_timeout"


def test_probes_answer_when_all_is_full(slow: OnlineScorer) -> None:
    app = application([slow], LIMITS.model_copy(update={"max_requests": 1, "answer_timeout_s": 2.0}))

    async def both() -> tuple[httpx.Response, httpx.Response]:
        async with client(app) as http:
            waiting = asyncio.create_task(http.post("/v1/rewards", json=BODY))
            while not app.under_way:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
            return await http.get("/health"), await waiting

    probe, waited = asyncio.run(both())
    assert probe.status_code == 200
    assert waited.status_code == 504


def test_an_engine_that_is_gone_is_an_error_that_says_to_ask_again() -> None:
    online_scorer = scorer("tiny-attributes")
    online_scorer._engine.kill()  # type: ignore[attr-defined]
    try:
        answer = post(application([online_scorer]), "/v1/rewards", BODY)
    finally:
        online_scorer.close()
    assert code(answer) == (503, "replica_gone")
    assert answer.headers["Retry-After"]


# Keys.


def test_a_key_lets_in_and_nothing_else_does(quick: OnlineScorer) -> None:
    app = application([quick], keys=[KEY, "another-key-that-is-long"])
    for header in (f"Bearer {KEY}", f"bearer {KEY}", "Bearer another-key-that-is-long"):
        assert post(app, "/v1/rewards", BODY, Authorization=header).status_code == 200
    for wrong in ("", KEY, f"Basic {KEY}", f"Bearer {KEY}x", "Bearer"):
        assert code(post(app, "/v1/rewards", BODY, Authorization=wrong)) == (401, "invalid_api_key")
    for path in ("/v1/models", "/metrics", "/nothing"):
        assert asyncio.run(got(app, path)).status_code == 401, path
    for path in ("/", "/app.js", "/style.css", "/docs", "/openapi.json", "/docs-files/swagger-ui.css", "/health", "/ready"):
        assert asyncio.run(got(app, path)).status_code == 200, path


async def got(app: Any, path: str) -> httpx.Response:
    async with client(app) as http:
        return await http.get(path)


def test_the_documentation_needs_no_other_host(quick: OnlineScorer) -> None:
    app = application([quick])
    text = asyncio.run(got(app, "/docs")).text
    assert "://" not in text
    files = re.findall(r'(?:src|href)="(/[^"]+)"', text)
    assert len(files) >= 2
    assert [asyncio.run(got(app, file)).status_code for file in files] == [200] * len(files)


def test_a_wrong_key_is_refused_before_its_body_is_read(quick: OnlineScorer) -> None:
    with listening(application([quick], LIMITS, keys=[KEY])) as url, raw(url) as item:
        item.sendall(head(50))
        assert item.recv(1000).startswith(b"HTTP/1.1 401")


def test_without_keys_only_this_machine_may_ask(quick: OnlineScorer) -> None:
    async def from_elsewhere(app: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post("/v1/rewards", json=BODY)

    assert code(asyncio.run(from_elsewhere(application([quick])))) == (403, "no_keys")
    with_keys = application([quick], keys=[KEY])
    assert code(asyncio.run(from_elsewhere(with_keys))) == (401, "invalid_api_key")


def test_without_keys_only_this_machines_names_lead_here(quick: OnlineScorer) -> None:
    cases: list[tuple[str, int]] = [
        *((item, 200) for item in ("localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000")),
        *((named, 200) for named in ("judge.internal", "Judge.Internal:8000")),
        *(
            (other, 403)
            for other in ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example")
        ),
        *((odd, 403) for odd in ("localhost:8000.evil.example", "[::1]evil.example", "192.0.2.7", "[::1", "localhost@evil")),
    ]
    all_keys = (Keys([], hosts=["judge.internal"]), Keys([KEY]), Keys([], everybody=True))
    service = application([quick])._app.state.service
    app, *guarded = (create_app(service, keys, _none, _none) for keys in all_keys)
    for host, status in cases:
        answer = post(app, "/v1/rewards", BODY, Host=host)
        assert answer.status_code == status
        assert status == 200 or code(answer) == (403, "unknown_host")
        for app_for_all in guarded:
            assert post(app_for_all, "/v1/rewards", BODY, Host=host, Authorization=f"Bearer {KEY}").status_code == 200


async def _none() -> Any:
    return None


def test_keys_come_from_a_file_and_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of the first team\n{KEY}\n\n  second-key-also-long-enough  \n")
    monkeypatch.setenv("ASSAY_API_KEYS", "third-key-also-long-enough, ")
    keys = read_keys(AccessSettings(api_keys_file=str(file)))
    for key in (KEY, "second-key-also-long-enough", "third-key-also-long-enough"):
        keys.check(f"Bearer {key}", "192.0.2.7")
    assert KEY not in repr(vars(keys))
    file.write_text("short\n")
    with pytest.raises(SettingsError, match="fewer than 16 characters"):
        read_keys(AccessSettings(api_keys_file=str(file)))
    file.write_text("clé-de-plus-de-seize-lettres\n")
    with pytest.raises(SettingsError, match="ASCII"):
        read_keys(AccessSettings(api_keys_file=str(file)))
    file.write_text("# none\n")
    monkeypatch.delenv("ASSAY_API_KEYS")
    with pytest.raises(SettingsError, match="holds no key"):
        read_keys(AccessSettings(api_keys_file=str(file)))
    with pytest.raises(SettingsError, match="can't be read"):
        read_keys(AccessSettings(api_keys_file=str(tmp_path / "none")))


def test_an_address_that_others_reach_needs_keys() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.org"):
        with pytest.raises(SettingsError, match="would let everybody in"):
            check_reach(Keys([]), AccessSettings(), [host])
        check_reach(Keys([KEY]), AccessSettings(), [host])
        check_reach(Keys([]), AccessSettings(open=True), [host])
    for host in ("127.0.0.1", "::1", "localhost"):
        check_reach(Keys([]), AccessSettings(), [host])


def test_no_page_of_another_site_may_ask(quick: OnlineScorer) -> None:
    async def handler() -> httpx.Response:
        async with client(application([quick]), Origin="https://example.org") as http:
            return await http.options("/v1/rewards", headers={"Access-Control-Request-Method": "POST"})

    answer = asyncio.run(handler())
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_nobodys_text_is_logged(quick: OnlineScorer, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "a secret of somebody's"
    post(application([quick]), "/v1/rewards", json.loads(json.dumps(BODY).replace("7", secret)))
    post(application([quick]), "/v1/rewards", {secret: secret})
    assert secret not in "".join(capfd.readouterr())


def test_a_client_that_leaves_frees_its_place(slow: OnlineScorer) -> None:
    app = application([slow], LIMITS)
    with listening(app) as url:
        with raw(url) as item:
            content = json.dumps(BODY).encode()
            item.sendall(head(len(content)) + content[:-5])
            wait(lambda: app.under_way == 1)
        wait(lambda: app.under_way == 0)


def test_an_endpoint_that_stops_finishes_what_it_has_and_takes_nothing_more() -> None:
    online_scorer = scorer("tiny-attributes", engine=EngineSettings(engine="fake", engine_args={"latency_s": 0.5}))
    app = application([online_scorer], LIMITS)

    async def stop() -> list[httpx.Response]:
        async with client(app) as http:
            question = asyncio.create_task(http.post("/v1/rewards", json=BODY))
            await asyncio.to_thread(wait, lambda: app.under_way)
            drained = asyncio.create_task(app.drain())
            await asyncio.sleep(0)
            late = await http.post("/v1/rewards", json=BODY)
            assert not drained.done()
            answers = [late, await question, await http.get("/health")]
            await drained
            return answers

    late, request, health = asyncio.run(stop())
    online_scorer.close()
    assert code(late) == (503, "stopping")
    assert (request.status_code, health.status_code) == (200, 200)


def test_an_idle_endpoint_stops_at_once(quick: OnlineScorer) -> None:
    asyncio.run(asyncio.wait_for(application([quick], LIMITS).drain(), 5))


def test_below_a_path_of_a_models_own_the_same_needs_a_key(quick: OnlineScorer) -> None:
    app = application([quick], keys=[KEY])

    async def ask(path: str, **headers: str) -> int:
        transport = httpx.ASGITransport(app, root_path="/models/m")
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            return (await http.get(f"/models/m{path}")).status_code

    assert asyncio.run(ask("/health")) == asyncio.run(ask("/docs")) == asyncio.run(ask("/")) == 200
    assert asyncio.run(ask("/v1/models")) == 401
    assert asyncio.run(ask("/v1/models", Authorization=f"Bearer {KEY}")) == 200
