"""The endpoint on Ray Serve under load and faults, on the fake engine: replicas come, go and die, and no number is wrong."""

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from ray import serve

from tests.support.endpoints import QUESTION, application, deploy, post, ray_serve, replica_pids, rewards, scorer, wait

MODEL = "tiny-attributes"
CLIENTS = 32


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ray_serve() as cluster:
        yield cluster


def body(number: int) -> dict[str, Any]:
    return {"conversations": [{"messages": QUESTION, "responses": [str(number), str(number + 1)]}]}


@pytest.fixture(scope="module")
def expected() -> Callable[[int], list[float]]:
    """The rewards that belong to a body, from the core in this process."""
    online_scorer = scorer(MODEL)
    app = application([online_scorer])
    values: dict[int, list[float]] = {}

    def those(number: int) -> list[float]:
        if number not in values:
            values[number] = rewards(post(app, "/v1/rewards", body(number)))
        return values[number]

    return those


class Load:
    """Clients that ask all the time, and what they got. After a failure each waits for `Retry-After`, or 1 s."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.answers: list[tuple[int, httpx.Response]] = []
        self.broken: list[Exception] = []

    def _ask(self, first: int) -> None:
        number = first
        with httpx.Client(base_url=self._address, timeout=120) as client:
            while not self._stop.is_set():
                retry_after_s = "1"
                try:
                    answer = client.post("/v1/rewards", json=body(number % 40))
                    self.answers.append((number % 40, answer))
                    retry_after_s = answer.headers.get("Retry-After", "0")
                except httpx.HTTPError as error:
                    self.broken.append(error)
                self._stop.wait(float(retry_after_s))
                number += CLIENTS

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(CLIENTS) as threads:
            clients = [threads.submit(self._ask, first) for first in range(CLIENTS)]
            try:
                yield
            finally:
                self._stop.set()
        for client in clients:
            client.result()

    def wait_for(self, more: int) -> None:
        """Wait for so many more answers."""
        goal = len(self.answers) + more
        wait(lambda: len(self.answers) >= goal)

    def check_numbers(self, expected: Callable[[int], list[float]]) -> Counter[int]:
        """Every answer is right, or an error; how many there are of each status."""
        for number, answer in self.answers:
            if answer.status_code == 200:
                assert rewards(answer) == expected(number)
            else:
                assert answer.json()["error"]["type"] in {"server_error", "rate_limit_error"}
        return Counter(answer.status_code for _, answer in self.answers)


def error_code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def replicas(name: str = "model-0") -> int:
    """Running ones."""
    states: Any = serve.status().applications["assay"].deployments[name].replica_states
    return int(states.get("RUNNING", 0))


def tokens_under_way() -> float:
    result = serve.get_deployment_handle("model-0", "assay").record_autoscaling_stats.remote().result(timeout_s=60)
    return float(result["tokens"])


@pytest.mark.long
def test_a_replacement_under_load_fails_nobody(address: str, expected: Callable[[int], list[float]]) -> None:
    two = {"min_replicas": 2, "max_replicas": 2}
    deploy(MODEL, scaling=two)
    load = Load(address)
    with load.running():
        load.wait_for(200)
        # Another length limit is another deployment: both replicas are replaced.
        deploy(MODEL, scaling=two, render={"max_model_len": 1000})
        load.wait_for(200)
    assert load.check_numbers(expected).keys() == {200}
    assert not load.broken


@pytest.mark.long
def test_an_engine_that_dies_under_load_comes_back_by_itself(address: str, expected: Callable[[int], list[float]]) -> None:
    deploy(MODEL, engine={"engine_args": {"die_after": 200}})
    load = Load(address)
    with load.running():
        load.wait_for(400)
    statuses = load.check_numbers(expected)
    assert statuses[200] > 100
    assert set(statuses) <= {200, 503}
    # On a kept connection HAProxy answers with its end what the replica had: such a client may send its request again.
    # Those that no replica was there for were in none: how many there are says only how long its start took.
    lost = [answer for _, answer in load.answers if answer.status_code == 503 and error_code(answer) != "no_replica"]
    assert 0 < len(lost) + len(load.broken) <= 8 * CLIENTS, "those in flight at a death, and no others"
    wait(lambda: httpx.post(f"{address}/v1/rewards", json=body(1), timeout=60).status_code == 200)


@pytest.mark.long
def test_a_replica_that_is_killed_in_a_burst_loses_and_repeats_nothing(
    address: str, expected: Callable[[int], list[float]]
) -> None:
    """A client that asks again, after 503 or a connection that was closed, has one right answer for each of its requests."""
    deploy(MODEL, scaling={"min_replicas": 3, "max_replicas": 3}, engine={"engine_args": {"latency_s": 0.5}})
    answers: dict[int, httpx.Response] = {}
    refused = Counter[int]()

    def ask(numbers: range) -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            for number in numbers:
                while number not in answers:
                    with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                        answer = client.post("/v1/rewards", json=body(number % 40))
                        if answer.status_code == 200:
                            answers[number] = answer
                            continue
                        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
                    refused[number] += 1

    with ThreadPoolExecutor(96) as threads:
        clients = [threads.submit(ask, range(first, 480, 96)) for first in range(96)]
        wait(lambda: len(answers) > 60)
        os.kill(replica_pids()[0], signal.SIGKILL)
        for each in clients:
            each.result()
    assert answers.keys() == set(range(480))
    assert all(rewards(answer) == expected(number % 40) for number, answer in answers.items())
    assert 0 < sum(refused.values()) <= 96, "those in the killed replica, and no others"
    wait(lambda: replicas() == 3)


@pytest.mark.long
def test_a_client_that_hangs_up_and_a_deadline_free_the_engine(address: str) -> None:
    deploy(MODEL, engine={"engine_args": {"latency_s": 120.0}})
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{address}/v1/rewards", json=body(1), timeout=3)
    wait(lambda: tokens_under_way() == 0)
    answer = httpx.post(f"{address}/v1/rewards", json=body(1), timeout=60, headers={"X-Timeout-Seconds": "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    wait(lambda: tokens_under_way() == 0)


@pytest.mark.long
def test_more_than_can_wait_are_told_to_come_again(address: str) -> None:
    limits = {"max_requests": 8, "answer_timeout_s": 20.0}
    deploy(MODEL, engine={"engine_args": {"latency_s": 0.2}}, limits=limits)
    with ThreadPoolExecutor(64) as threads:
        bodies = map(body, range(64))
        answers = list(threads.map(lambda content: httpx.post(f"{address}/v1/rewards", json=content, timeout=60), bodies))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= 8
    assert all(answer.headers["Retry-After"] for answer in answers if answer.status_code == 429)


@pytest.mark.long
def test_there_are_more_replicas_under_load_and_fewer_after_it(address: str, expected: Callable[[int], list[float]]) -> None:
    scaling = {"max_replicas": 3, "target_requests": 4, "upscale_delay_s": 0.0, "downscale_delay_s": 1.0}
    deploy(MODEL, scaling=scaling, engine={"engine_args": {"latency_s": 0.5}})
    assert replicas() == 1
    load = Load(address)
    with load.running():
        wait(lambda: replicas() == 3)
        load.wait_for(50)
    assert load.check_numbers(expected).keys() == {200}
    wait(lambda: replicas() == 1)
    assert httpx.post(f"{address}/v1/rewards", json=body(1), timeout=60).status_code == 200


@pytest.mark.long
def test_a_model_that_nobody_asks_is_scaled_to_zero_and_back(address: str) -> None:
    deploy(MODEL, scaling={"min_replicas": 0, "max_replicas": 1, "upscale_delay_s": 0.0, "downscale_delay_s": 1.0})
    wait(lambda: replicas() == 0)
    assert httpx.get(f"{address}/ready", timeout=60).status_code == 200, "the next request starts one"
    assert httpx.post(f"{address}/v1/rewards", json=body(1), timeout=120).status_code == 200
