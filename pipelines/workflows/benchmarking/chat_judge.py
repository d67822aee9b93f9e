"""A judge that writes, behind any endpoint of chat completions: prompts as messages, texts read as those of an engine.

Nothing is known of such a model but its name and what the endpoint lists of it. So a run's identity has the address and the
name in place of hashes, and says so.
"""

import json
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import pyarrow as pa

from actors.contracts.judge import Judge
from actors.engine.protocol import Engine, Generation, Sampling
from actors.errors import EngineDead, EngineError, PromptRefused, SettingsError
from actors.records import Reasoning, Score, ScoreRequest
from actors.rendering.chat_renderer import CHAT_RENDERER, ChatRenderer, messages_of, probe_messages
from actors.reward_model import RUBRIC, families
from actors.scorers.judge_scorer import JudgeScorer
from actors.text.reasoning import final_answer, restore_reasoning
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.columns import Columns
from pipelines.run.sampling.completion import read_completion
from pipelines.run.sampling.endpoint_faults import CHAT, EndpointFault, display_url
from pipelines.run.sampling.endpoint_http import send
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.workflows.benchmarking.endpoint_connection import EndpointConnection

_ROUTE = CHAT._replace(option="--model")
_LISTED = ("id", "root", "parent", "max_model_len")
"""Fields of a model's card that tell what it is."""


def judge_of(settings: EvaluateSettings) -> Judge:
    """The family that asks a model of an endpoint. Raises `SettingsError` if the named one is no judge that writes."""
    name = settings.family or (RUBRIC if settings.judge.rubric else None)
    family = families().get(str(name))
    if not isinstance(family, Judge):
        judges = ", ".join(name for name, family in families().items() if isinstance(family, Judge))
        raise SettingsError(
            f"--family {name}: a model of chat completions is asked as a judge that writes: give --rubric FILE, or one of "
            f"{judges}"
        )
    return family.reading_by(settings.read).with_settings(settings.judge)


class ChatJudge(EndpointConnection):
    """A model of an endpoint as a judge."""

    @cached_property
    def judge(self) -> Judge:
        """Its family, with the settings."""
        return judge_of(self.settings)

    def check(self) -> None:
        """Raise `SettingsError` if it can't be asked by messages, or read by text, as the settings say."""
        self._renderer  # noqa: B018  made at first use

    @property
    def identity(self) -> dict[str, Any]:
        """What is known of what decides the numbers: no hash of weights, template or tokenizer."""
        judge = self.judge
        return {
            "model": self.name,
            "endpoint": True,
            "served_at": display_url(str(self.settings.endpoint)),
            "listed": {name: self.card[name] for name in _LISTED if self.card.get(name) is not None},
            **dict.fromkeys(("revision", "weights", "template", "tokenizer", "config", "dtype", "max_model_len")),
            "family": judge.name,
            "reward_weights": dict(judge.card_weights()),
            "read": judge.way.model_dump(mode="json", exclude_defaults=True),
            "judge": judge.recorded(self._answer_tokens),
            "chat_renderer": CHAT_RENDERER,
            "reasoning": (judge.reasoning or Reasoning.REJECT).value,
            "engine": "chat completions",
        }

    @property
    def takes_principles(self) -> bool:
        """Whether it judges by the principles of a request."""
        return self.judge.takes_principles

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields that its prompts show."""
        return self.judge.field_names

    def columns(self, carried: pa.Schema, row_shape: RowShape, prefix: str) -> Columns:
        """The columns of what it scores."""
        judge = self.judge
        return Columns(
            carried,
            judge.outputs(),
            prefix,
            False,
            votes=True,
            trace=judge.asks.trace,
            mixed=row_shape.is_mixed,
            text=True,
            row_outputs=judge.row_outputs,
            within_row=judge.is_within_row(judge.card_weights()),
        )

    def judged_text(self, text: str) -> str:
        """A response's text as it is judged: without reasoning, if the judge's authors strip that."""
        return final_answer(text) if self.judge.reasoning is Reasoning.STRIP else text

    async def score(self, request: ScoreRequest) -> list[Score]:
        """A score for each response, in order. What the endpoint refuses, or breaks on while it answers others, has failed.

        Raises `EngineError` if it answers nothing for `endpoint_patience_s`, `EndpointError` if it can't work at all.
        """
        ((*scores,),) = await self._scorer.score([self._renderer.render(request)])
        # The ids of these prompts are bytes, and no tokens: how many tokens the endpoint made of them isn't known.
        return [replace(score, prompt_tokens=None) for score in scores]

    async def generate(self, ids: tuple[int, ...], sampling: Sampling) -> tuple[Generation, ...]:
        """See `Engine.generate`; the ids are those of a `ChatRenderer`. Raises `PromptRefused` and `EngineDead`."""
        try:
            return (await self._endpoint.ask(lambda: self._send(messages_of(ids), sampling)),)
        except EndpointFault as fault:
            raise PromptRefused(fault.text, fault.reason) from fault
        except EngineError as error:
            raise EngineDead(str(error)) from error

    async def _send(self, messages: Any, sampling: Sampling) -> Generation:
        """Send a request, once. Raises `EndpointFault`."""
        body: dict[str, Any] = {
            "model": self.name,
            "messages": messages,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        # What OpenAI's own endpoint doesn't know is sent only where the judge's card needs it.
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.schema is not None:
            schema = {"name": "verdict", "schema": json.loads(sampling.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return await send(self._client, _ROUTE, body, lambda answer: self._read(answer, sampling.max_tokens))

    def _read(self, completion: Any, max_tokens: int) -> Generation:
        """What the judge wrote, with its reasoning where the endpoint gives that apart: then its end is certain."""
        generation = read_completion(completion, max_tokens)
        message = completion["choices"][0]["message"]
        text = restore_reasoning(generation.text, message, opens=self.judge.opens_reasoning)
        return replace(generation, text=text)

    async def _probe(self) -> None:
        sampling = replace(self.judge.card, max_tokens=1, seed=None, top_k=0, schema=None)
        await self._send(probe_messages(), sampling)

    @property
    def _answer_tokens(self) -> int:
        limit = self.card.get("max_model_len")
        return self.judge.answer_tokens(limit if isinstance(limit, int) else None)

    @cached_property
    def _renderer(self) -> ChatRenderer:
        return ChatRenderer(self.judge)

    @cached_property
    def _scorer(self) -> JudgeScorer:
        engine = cast(Engine, self)  # of which a scorer that is awaited uses `generate` alone
        return JudgeScorer(self.judge, self.judge.card_weights(), engine, self._answer_tokens)
