"""An engine behind an address: what it is asked, what is bounded, and what is kept of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from actors.endpoint.account import Pace, read_spent
from actors.errors import CostReached, EndpointError, RunStopped
from actors.records import Reason, Score
from pipelines.data import storage
from tests.actors.endpoint.test_client import virtually
from tests.support.asked_endpoints import asking
from tests.support.chat_endpoints import RUBRIC, SCHEMA, Judge, grade
from tests.support.endpoints import listening
from tests.support.models import request, user

PRICES = {"input_price": 1e6, "output_price": 1e6}
"""A token costs 1; an answer of the judge's has 7 and 3 tokens."""


def ask(address: str, *texts: str, **options: Any) -> list[Score]:
    with asking(f"{address}/v1", "judge", **{"rubric": RUBRIC, **options}) as score:
        return [scores[0] for scores in score([request(user("?"), to=[text]) for text in texts])]


def test_what_is_refused_has_failed_with_the_endpoints_words() -> None:
    judge = Judge(lambda text, times: 403 if text == "bad" else None)
    with listening(judge.app) as address:
        good, bad = ask(address, "good", "bad")
    assert (good.reward, good.prompt_tokens, good.completion_tokens) == (grade("good"), 7, 3)
    assert bad.reason is Reason.ENDPOINT_REFUSED
    assert bad.detail.startswith("answers 403: ")
    assert "no, 403" in bad.detail


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_mistake_in_key_or_name_is_told_before_the_first_row(status: int) -> None:
    judge = Judge(lambda text, times: status)
    with listening(judge.app) as address, pytest.raises(EndpointError, match=f"answers {status}"):
        ask(address, "a", "b")
    assert judge.requests == {"": 1}


def test_settings_that_an_endpoint_calls_otherwise_or_lacks_are_learned_by_the_preflight() -> None:
    class Newer(Judge):
        async def complete(self, request: Request) -> Any:
            body = await request.json()
            if "max_tokens" in body:
                return self.refusal("Unsupported parameter: use 'max_completion_tokens'")
            if "response_format" in body:
                return self.refusal("response_format is unknown")
            return await super().complete(request)

        def refusal(self, text: str) -> Any:
            return JSONResponse({"error": {"message": text}}, 400)

    judge, warnings = Newer(), list[str]()
    rubric = {**RUBRIC, "json_schema": SCHEMA, "pattern": None}
    with listening(judge.app) as address:
        (score,) = ask(address, "good", rubric=rubric, reask=0, warn=warnings.append)
        (forced,) = ask(address, "good", rubric=rubric, reask=0, warn=warnings.append)
    assert "max_completion_tokens" in judge.bodies[-1]
    assert "response_format" not in judge.bodies[-1]
    assert score.reason is Reason.NO_VERDICT, "this judge doesn't write JSON unless it is forced to"
    assert len(warnings) == 2
    assert "asked without a JSON schema" in warnings[0]
    plain = Judge()
    with listening(plain.app) as address:
        (forced,) = ask(address, "good", rubric=rubric, warn=warnings.append)
    assert forced.reward == grade("good")
    assert plain.bodies[-1]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert len(warnings) == 2


def test_a_gateway_that_refuses_probes_for_a_moment_changes_no_setting() -> None:
    """It fails on everything after the preflight until the breaker opens, and then refuses two probes."""
    refused = iter((400, 400))

    def fault(text: str, times: int) -> Any:
        return (503 if times == 0 else None) if text else (None if not times else next(refused, None))

    judge = Judge(fault)
    rubric = {**RUBRIC, "json_schema": SCHEMA, "pattern": None}
    with listening(judge.app) as address:
        scores = ask(address, *map(str, range(40)), rubric=rubric)
    assert [score.reward for score in scores] == [grade(str(number)) for number in range(40)]
    assert next(refused, None) is None, "both were refused"
    assert all("response_format" in body for body in judge.bodies)


def test_a_probe_doesnt_wait_behind_requests_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a second to come to it, longer than patience lasts."""
    monkeypatch.setattr("actors.endpoint.client._LEAST_PROBE_S", 0.5)
    judge = Judge(lambda text, times: 503 if text and times == 0 else None)
    with listening(judge.app) as address:
        scores = ask(address, *map(str, range(10)), requests_per_minute=600.0, patience_s=0.5)
    assert None not in [score.reward for score in scores]


@pytest.mark.parametrize("body", ['{"usage": "unknown"}', '{"usage": ["a"], "choices": 1}', "[1]"])
def test_an_answer_of_any_form_fails_its_row_alone(body: str) -> None:
    judge = Judge(lambda text, times: body if text == "bad" else None)
    with listening(judge.app) as address:
        good, bad = ask(address, "good", "bad", patience_s=0.02)
    assert (good.reward, bad.reason) == (grade("good"), Reason.ENDPOINT_FAILED)


def test_no_session_spends_more_than_all_may(tmp_path: Path) -> None:
    """A request of this judge may cost its bytes, and answers of 5 tokens; it costs 10."""
    judge, notes = Judge(), storage.folder(str(tmp_path))
    bound = {**PRICES, "max_cost": 1000.0, "max_tokens": 5, "notes": notes}
    with listening(judge.app) as address:
        texts = [f"{number}" for number in range(100)]
        with pytest.raises(CostReached, match=r"--max-cost 1000 is nearly reached"):
            ask(address, *texts, **bound)
        first = sum(judge.answered.values())
        assert first > 80, "what is under way is waited for, as it costs less than its most"
        spent = read_spent(notes)
        assert spent.cost == 10 * first <= 1000
        assert (spent.requests, spent.prompt_tokens, spent.written_tokens) == (first, 7 * first, 3 * first)
        with pytest.raises(CostReached):
            ask(address, *texts, **bound)
        assert 10 * sum(judge.answered.values()) <= 1000
        raised = {**bound, "max_cost": 10_000.0}
        assert None not in [score.reward for score in ask(address, *texts, **raised)]
    assert read_spent(notes).cost == 10 * sum(judge.answered.values())


def test_a_killed_session_counts_for_what_it_may_have_spent(tmp_path: Path) -> None:
    notes = storage.folder(str(tmp_path))

    def see(text: str, times: int) -> Any:
        seen.append(read_spent(notes))
        return None

    judge, seen = Judge(see), list[Any]()
    with listening(judge.app) as address:
        ask(address, *"abcdefgh", **PRICES, max_cost=100_000.0, max_tokens=5, notes=notes)
    costs = [10 * number for number in range(len(seen))]
    assert all(spent.cost + spent.ahead >= cost for spent, cost in zip(seen, costs, strict=True)), "had it been killed here"
    assert read_spent(notes).ahead == 0


@pytest.mark.parametrize("fault", ["drop", 504, 524, 408])
def test_an_answer_that_never_came_may_have_cost_its_most(tmp_path: Path, fault: Any) -> None:
    """Nor by a gateway that gave up waiting for it."""
    judge, notes = Judge(lambda text, times: fault if text and times == 0 else None), storage.folder(str(tmp_path))
    with listening(judge.app) as address:
        ask(address, "a", **PRICES, max_tokens=1000, notes=notes)
    spent = read_spent(notes)
    assert spent.cost > 1000 + 2 * 10, "the probe, the answer, and the one that was dropped"
    assert spent.requests == 3


def test_the_fingerprints_of_its_engine_are_kept(tmp_path: Path) -> None:
    judge, notes = Judge(), storage.folder(str(tmp_path))
    with listening(judge.app) as address:
        for name in ("fp_1", "fp_2", "fp_1"):
            judge.fingerprint = name
            ask(address, "a", notes=notes)
    assert read_spent(notes).fingerprints == ("fp_1", "fp_2")


def test_amounts_pass_at_their_rate() -> None:
    """Tokens that were more than was thought are waited for by the next."""

    async def pass_all() -> None:
        pace = Pace(60.0)
        await asyncio.gather(*(pace.wait(2.0) for _ in range(10)))
        pace.correct(30.0)
        await pace.wait(1.0)

    assert virtually(pass_all())[1] == pytest.approx(20.0 + 30.0)


def test_an_endpoint_that_is_gone_stops_the_run() -> None:
    judge = Judge(lambda text, times: 503 if text or times else None)
    with listening(judge.app) as address, pytest.raises(RunStopped, match=r"answers 503.*\(--patience-s\)"):
        ask(address, "a", patience_s=0.2)


def test_nothing_of_the_key_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    notes = storage.folder(str(tmp_path))
    with listening(Judge().app) as address:
        ask(address, "a", notes=notes)
    assert json.loads(notes.read("spent.json"))["requests"] == 2
    assert not [path for path in tmp_path.iterdir() if "sk-secret" in path.read_text()]


def test_no_message_shows_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that can't be sent, as its file ended with a new line, nor one that the endpoint quotes."""

    class Quoting(Judge):
        async def complete(self, request: Request) -> Any:
            return JSONResponse({"error": {"message": f"wrong: {request.headers['authorization']}"}}, 401)

    with listening(Quoting().app) as address:
        for key in ("sk-secret-key\n", "sk-secret-key"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            with pytest.raises(EndpointError, match=r"Bearer \[the key\]") as raised:
                ask(address, "a")
            assert "sk-secret" not in str(raised.value)
