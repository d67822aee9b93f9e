"""An engine behind an address: prompts are messages, or whole conversations for an endpoint of `assay serve`.

What it fails by is sorted by `EndpointClient`: a request that is refused, or fails while others are answered, raises
`PromptRefused`, as a prompt that an engine refuses. An endpoint that answers nothing, or may cost no more, ends the run by
`RunStopped`; one that can't be asked as it is given, by `EndpointError`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from actors.endpoint.account import BYTES_PER_TOKEN, Account, Notes, Pace, usage_of
from actors.endpoint.batches import Batches
from actors.endpoint.client import CircuitBreaker, EndpointClient
from actors.endpoint.completion import read_completion
from actors.endpoint.faults import JUDGING, REWARDS, EndpointFault, FaultKind, Route
from actors.endpoint.http import http_client, post, read_answer
from actors.endpoint.remote_model import RemoteModel
from actors.engine.protocol import Engine, Generation, Sampling
from actors.errors import PromptRefused
from actors.text.reasoning import restore_reasoning

T = TypeVar("T")

IN_FLIGHT = 32
# As in OpenAI's package: a request without an answer must end some time.
_TIMEOUT_S = 600.0
_HELLO = [{"role": "user", "content": "Hello"}]


class EndpointEngine(Engine):
    """A model of an endpoint. `probe` is how a short text of a judge is sampled, or what `judge` can be given."""

    max_model_len = 0
    reads_ids = False
    runner = "none"

    def __init__(
        self,
        model: RemoteModel,
        probe: Sampling | str,
        *,
        opens_reasoning: bool = False,
        max_in_flight: int | None = None,
        request_timeout_s: float | None = None,
        notes: Notes | None = None,
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`opens_reasoning`: the judge's template writes the begin mark of reasoning, which its texts then lack."""
        super().__init__()
        settings = model.settings
        self._model = model
        self._probe_with = probe
        self._opens_reasoning = opens_reasoning
        self._warn = warn
        self._takes_schema = True
        # No short request tells what a batch takes: this name is OpenAI's of today, which newer models need.
        self._longest = "max_completion_tokens" if settings.batch else "max_tokens"
        self._has_learned = False
        self._load = [0, 0]
        self._http = http_client(settings.endpoint, request_timeout_s or _TIMEOUT_S)
        self._requests, self._tokens = Pace(settings.requests_per_minute), Pace(settings.tokens_per_minute)
        breaker = CircuitBreaker(model.url, self._probe, settings.patience_s, "--patience-s")
        self._client = EndpointClient(breaker, max_in_flight or IN_FLIGHT, warn)
        self._preflight = breaker.wait_until_closed
        self._batches: Batches | None = None
        if settings.batch:
            self._batches = Batches(self._http, self._client, settings, notes)
            self._account = self._batches.account
        else:
            self._account = Account(settings, notes)

    @property
    def load(self) -> tuple[int, int]:
        return self._load[0], self._load[1]

    def preflight(self) -> None:
        """Ask for something short. Raises `EndpointError` if address, key, name or settings are wrong; `RunStopped`."""
        self.submit(self._preflight()).result()

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        """See `Engine.generate`; the ids are the bytes of messages as JSON. Raises `PromptRefused`."""
        body = self._completion(json.loads(bytes(ids)), sampling)
        return (await self._ask(JUDGING, body, sampling.max_tokens, lambda answer: self._read(answer, sampling.max_tokens)),)

    async def judge(self, body: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of an answer of `/v1/rewards` to a body, as JSON without the model. Raises `PromptRefused`."""
        return await self._ask(REWARDS, {"model": self._model.name, **json.loads(body)}, 0, read)

    async def _ask(self, route: Route, body: Mapping[str, Any], max_tokens: int, read: Callable[[Any], T]) -> T:
        self._load[1] += 1
        try:
            if self._batches is None:
                answer = await self._client.ask(lambda: self._send(route, body, max_tokens, read))
            else:
                answer = await self._batches.answer(body, max_tokens, read)
        except EndpointFault as fault:
            raise PromptRefused(fault.text, fault.reason) from fault
        finally:
            self._load[1] -= 1
        self._load[0] += 1
        return answer

    async def _send(
        self, route: Route, body: Mapping[str, Any], max_tokens: int, read: Callable[[Any], T], *, is_probe: bool = False
    ) -> T:
        """Send a request, once, at its turn and within the bound of the price. A probe goes before all that wait for theirs.

        Raises `EndpointFault` and `CostReached`.
        """
        size = len(json.dumps(body, ensure_ascii=False).encode())
        most, tokens = self._model.settings.cost(size, max_tokens), size / BYTES_PER_TOKEN
        answer, is_free = None, True
        await self._account.reserve(most)
        try:
            if is_probe:  # it counts, but it has a time-out, and nothing is sent until it is answered
                self._requests.correct(1)
                self._tokens.correct(tokens)
            else:
                await self._requests.wait(1)
                await self._tokens.wait(tokens)
            is_free = False
            answer = await post(self._http, route, body)
            return read_answer(answer, route, read)
        except EndpointFault as fault:
            is_free = fault.is_free
            raise
        finally:
            total = usage_of(answer).get("total_tokens")
            if isinstance(total, int):
                self._tokens.correct(total - tokens)
            await self._account.settle(most, answer, is_free=is_free)

    def _completion(self, messages: Any, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model.name,
            "messages": messages,
            self._longest: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        # What OpenAI's own endpoint doesn't know is sent only where the judge's card needs it.
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.schema is not None and self._takes_schema:
            schema = {"name": "verdict", "schema": json.loads(sampling.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _read(self, completion: Any, max_tokens: int) -> Generation:
        # What the judge wrote, with its reasoning where the endpoint gives that apart: then its end is certain.
        generation = read_completion(completion, max_tokens)
        message = completion["choices"][0]["message"]
        return replace(generation, text=restore_reasoning(generation.text, message, opens=self._opens_reasoning))

    async def _probe(self) -> None:
        # Send a short request with the settings of all, and learn which of them the endpoint calls otherwise or lacks.
        if self._batches is not None:
            await self._batches.probe()
            return
        if isinstance(probe := self._probe_with, str):
            body = {"model": self._model.name, **json.loads(probe)}
            await self._send(REWARDS, body, 0, lambda answer: answer["data"], is_probe=True)
            return
        while True:
            try:
                body = self._completion(_HELLO, probe)
                await self._send(JUDGING, body, 1, lambda answer: self._read(answer, 1), is_probe=True)
                self._has_learned = True
                return
            except EndpointFault as fault:
                # Once: what a run's first requests were asked with, all are, whatever a gateway refuses for a moment.
                if fault.kind is not FaultKind.REFUSED or self._has_learned:
                    raise
                if "max_completion_tokens" in fault.text and self._longest == "max_tokens":
                    self._longest = "max_completion_tokens"
                elif probe.schema is not None and self._takes_schema:
                    self._takes_schema = False
                    self._warn(
                        f"the endpoint {self._model.url} {fault.text}; it is asked without a JSON schema, and a text that "
                        "doesn't meet it has no verdict"
                    )
                else:
                    raise

    async def health(self) -> None:
        """See `Engine`. What an endpoint is like shows by its answers."""

    async def _end(self) -> None:
        try:
            await self._account.close()
        finally:
            await self._http.close()
