"""Chat completions: NIM's reward shape for reward heads, a judge's own text for judges.

A reward head's scores are always in the answer, as NVIDIA's hosted models had them: as `name:value` pairs in the content,
and in `logprobs.content`, whose `logprob` is the score. They aren't log-probabilities, and may be above 0. The clients of
NeMo Curator and CAMEL read nothing else. Beside OpenAI's fields stand `reward`, which of several outputs is none of them but
what their weights make of them, and `scores`, both as in `/v1/rewards`. A judge takes the roles of its template, and answers
as it does in vLLM.
"""

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from actors.contracts.judge import Judge
from actors.contracts.showings import Shows
from actors.engine.protocol import Sampling
from actors.records import Reason, Score, ScoreRequest
from actors.scorers.online import JudgeText
from actors.text.reasoning import THINK
from deploy.errors import ApiError, BadRequest, no_score_error, reward_of
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import (
    ChatMessage,
    ClientBody,
    Listed,
    RequestBody,
    Serving,
    Tools,
    Turns,
    check_alone,
    read_score_request_or_refuse,
)
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

_END = "</think>"
_MOST_STOPS = 16
"""OpenAI allows 4. The engine searches for each of them after each token."""

StopText = Annotated[str, Field(max_length=256)]


_NEUTRAL: Mapping[str, Sequence[Any]] = {
    # OpenAI's
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    # vLLM's and SGLang's
    "min_p": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_tokens": (0,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "bad_words": ([], ""),
    "include_stop_str_in_output": (False,),
    "spaces_between_special_tokens": (True,),
    "echo": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "add_special_tokens": (False,),
    "documents": ([],),
    "chat_template_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "return_token_ids": (False,),
    "priority": (0,),
}
"""Defaults that clients send. `tools` are those of the conversation that is judged: no answer calls one."""


class StreamOptions(RequestBody):
    """OpenAI's."""

    neutral: ClassVar = {"continuous_usage_stats": (False,), "include_obfuscation": (False,)}

    include_usage: bool = Field(default=False, description="a last piece with the usage, and with no choices")


class ChatRequest(ClientBody):
    """OpenAI's request. What decides a text is for judges alone; what decides nothing here may be there."""

    neutral: ClassVar = _NEUTRAL

    messages: Turns
    tools: Tools = Field(default=[], description="those that the assistant in `messages` could call; the answer calls none")
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1, le=128)
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    stop: StopText | Annotated[Listed[StopText], Field(max_length=_MOST_STOPS)] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="of a judge: at most as many of the log-probabilities that there are at a token, which are that of the "
        "token and those of the verdict's tokens; all of them if not given",
    )
    metadata: dict[str, Any] | None = Field(
        default=None, description="`response_1`, `response_2` and `principle` may be here, as NeMo-Gym sends them"
    )
    parallel_tool_calls: bool | None = None


@router.post("/v1/chat/completions", response_model=None)
async def chat_completions(body: ChatRequest, service: Serving) -> JSONResponse | StreamingResponse:
    """A conversation's rewards, or what a judge writes about it."""
    served = service.find(body.model)
    turns = [*body.messages, *_from_metadata(body.metadata)]
    request = await off_loop(lambda: read_score_request_or_refuse(turns, tools=body.tools))
    head = _Head(served.name)
    if not served.model.task.writes:
        if body.n > 1:
            raise BadRequest(f"{served.name} writes no text, and has one reward for a response: n can only be 1", "n")
        ((score,),) = [result.scores for result in await served.score([check_alone(request)])]
        reward_of(score)  # raises if there is none: a stream couldn't say so any more, its status is sent first
        if body.stream:
            return _events(_with_usage_if_requested(_rewards_streamed(head, score), body))
        message: Any = {"role": "assistant", "content": _content(score)}
        choice = {
            "index": 0,
            "message": [message] if service.message_as_list else message,
            "logprobs": {"content": _as_logprobs(score)},
            "finish_reason": "length",
        }
        return JSONResponse(head.whole([choice], score.prompt_tokens or 0, 1) | _rewards(score))
    _check_only_text(served, request)
    sampling = _sampling(body, served)
    if body.stream:
        return _events(_with_usage_if_requested(await _after_first(_streamed(head, served, request, sampling)), body))
    written = await served.write(request, sampling)
    if isinstance(written, Reason):
        raise no_score_error(written)
    choices = [_choice(position, text, body) for position, text in enumerate(written)]
    tokens = sum(len(text.generation.token_ids) for text in written)
    return JSONResponse(head.whole(choices, written[0].prompt_tokens, tokens))


# Answers of reward heads.


def named(score: Score) -> Mapping[str, float]:
    """The outputs by NVIDIA's names: several by their own, one alone as `reward`. Those of single steps are left out."""
    outputs = {name: value for name, value in score.scores.items() if "[" not in name}
    return outputs if len(outputs) > 1 else {"reward": reward_of(score)}


def _rewards(score: Score) -> dict[str, Any]:
    """Two fields beside OpenAI's, for clients that look for the reward itself: of several outputs it is none of them."""
    return {"reward": reward_of(score), "scores": dict(score.scores)}


def _content(score: Score) -> str:
    return ",".join(f"{name}:{value}" for name, value in named(score).items())


def _as_logprobs(score: Score) -> list[dict[str, Any]]:
    return [{"token": name, "logprob": value, "bytes": None, "top_logprobs": []} for name, value in named(score).items()]


async def _rewards_streamed(head: "_Head", score: Score) -> AsyncIterator[dict[str, Any]]:
    content = {"role": "assistant", "content": _content(score)}
    yield head.piece(content, "length", logprobs={"content": _as_logprobs(score)}) | _rewards(score)
    yield head.usage(score.prompt_tokens or 0, 1)


# Answers of judges.


def _from_metadata(metadata: Mapping[str, Any] | None) -> Turns:
    """The turns in `metadata`, as NeMo-Gym sends them. Raises `ApiError` for one that isn't text."""
    contents = {name: (metadata or {}).get(name) for name in ("principle", "response_1", "response_2")}
    for name, content in contents.items():
        if content is not None and not isinstance(content, str):
            raise BadRequest(f"metadata.{name} must be text", "metadata")
    return [ChatMessage(role=role, content=content) for role, content in contents.items() if content is not None]


def _check_only_text(served: ServedModel, request: ScoreRequest) -> None:
    """Raise `ApiError` for a judge that writes several texts on a request, of which this answer would hold an arbitrary one.

    One that shows all responses in random orders: its text wouldn't tell which is the first. Or one with several principles.
    """
    judge = served.model.family
    assert isinstance(judge, Judge)
    elsewhere = "ask /v1/rewards, with `trace` for its texts"
    if judge.shows is Shows.ALL and len(request.responses) > 1:
        raise BadRequest(f"{served.name} is shown several responses in orders that are drawn: {elsewhere}", "messages")
    if (count := len(judge.principles_of(request))) > 1:
        raise BadRequest(
            f"{served.name} goes by {count} principles, with a text for each, and this answer holds one text: {elsewhere}, "
            "or serve the model with one principle"
        )


def _sampling(body: ChatRequest, served: ServedModel) -> Sampling:
    """Sampling as in the request; what the request leaves out, as in the judge's model card. Raises `ApiError`."""
    judge = served.model.family
    assert isinstance(judge, Judge)
    longest = served.model.answer_tokens
    max_tokens = body.max_completion_tokens or body.max_tokens or longest
    if body.logprobs and not judge.verdict_ids:
        raise BadRequest(f"{served.name} isn't read by log-probabilities, and gives none", "logprobs")
    if body.logprobs and body.stream:
        raise BadRequest(
            "a judge's stream has no log-probabilities: ask without `stream`, or without `logprobs`", "logprobs"
        )
    if body.top_logprobs and not body.logprobs:
        raise BadRequest("`top_logprobs` needs `logprobs`", "top_logprobs")
    temperature = judge.card.temperature if body.temperature is None else body.temperature
    if body.n > 1 and not temperature:
        raise BadRequest("several texts at temperature 0 would all be the same", "n")
    if body.n > 1 and body.stream:
        raise BadRequest("a stream is one text", "n")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return replace(
        judge.card,
        max_tokens=min(max_tokens, longest),
        n=body.n,
        temperature=temperature,
        # At temperature 0, greedy decoding uses none of these: neutral values say so.
        top_p=(judge.card.top_p if body.top_p is None else body.top_p) if temperature else 1.0,
        top_k=max(0, judge.card.top_k if body.top_k is None else body.top_k) if temperature else 0,
        seed=body.seed if temperature else None,
        stop=tuple(text for text in stop if text),
        verdict_ids=judge.verdict_ids if body.logprobs else (),
        keep_special=True,
    )


def _choice(at: int, written: JudgeText, body: ChatRequest) -> dict[str, Any]:
    reasoning, content = split_reasoning(written.generation.text, is_complete=True)
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    return {
        "index": at,
        "message": message,
        "logprobs": _logprobs(written, body.top_logprobs) if body.logprobs else None,
        "finish_reason": written.generation.finish_reason,
    }


def _logprobs(written: JudgeText, most: int | None) -> dict[str, Any]:
    """The log-probability of each written token, and there of it and the verdict's tokens, the `most` likeliest first."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = written.token_texts[token]
        # The text of a part of a character stands for other bytes than its own.
        return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}

    def likeliest(logprobs: Mapping[int, float]) -> list[dict[str, Any]]:
        ranked = sorted(logprobs.items(), key=lambda named: -named[1])
        return [entry(token, logprob) for token, logprob in ranked[:most]]

    generation = written.generation
    return {
        "content": [
            entry(token, logprobs[token]) | {"top_logprobs": likeliest(logprobs)}
            for token, logprobs in zip(generation.token_ids, generation.logprobs, strict=True)
        ]
    }


def split_reasoning(text: str, *, is_complete: bool) -> tuple[str | None, str]:
    """The reasoning that a text begins with (None without any), and the content after it.

    While a text grows (not `is_complete`), what may become a mark is held back: both parts only ever grow, and what a
    stream has sent needs no correction.
    """
    stripped = text.lstrip()
    if stripped.startswith(THINK):
        reasoning, end, content = stripped.removeprefix(THINK).partition(_END)
        return reasoning if end or is_complete else _without_partial_end(reasoning), content.lstrip("\n")
    return None, "" if not is_complete and THINK.startswith(stripped) else text  # `<thi` may become `<think>`


def _without_partial_end(text: str) -> str:
    """The text without its longest suffix that `</think>` begins with."""
    partial = next((size for size in range(min(len(_END), len(text)), 0, -1) if _END.startswith(text[-size:])), 0)
    return text[: len(text) - partial]


async def _streamed(
    head: "_Head", served: ServedModel, request: ScoreRequest, sampling: Sampling
) -> AsyncIterator[dict[str, Any]]:
    yield head.piece({"role": "assistant", "content": ""}, None)
    previous = ("", "")
    async with aclosing(served.stream(request, sampling)) as states:
        async for state in states:
            if isinstance(state, Reason):
                raise no_score_error(state)
            is_complete = state.generation.finish_reason is not None
            reasoning, content = split_reasoning(state.generation.text, is_complete=is_complete)
            delta = {"reasoning_content": (reasoning or "")[len(previous[0]) :], "content": content[len(previous[1]) :]}
            previous = (reasoning or "", content)
            if any(delta.values()) or is_complete:
                yield head.piece({name: new for name, new in delta.items() if new}, state.generation.finish_reason)
            if is_complete:
                yield head.usage(state.prompt_tokens, len(state.generation.token_ids))


async def _after_first(pieces: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """The same pieces, once the first two exist.

    The first piece is constant and the second needs the model: a request that the model refuses raises here, while the HTTP
    status isn't sent yet.
    """
    first = [await anext(pieces), await anext(pieces)]

    async def all_pieces() -> AsyncIterator[dict[str, Any]]:
        for piece in first:
            yield piece
        async for piece in pieces:
            yield piece

    return all_pieces()


async def _with_usage_if_requested(
    pieces: AsyncIterator[dict[str, Any]], body: ChatRequest
) -> AsyncIterator[dict[str, Any]]:
    """The pieces without the usage, unless the request includes it: many clients fail on a piece without choices."""
    async for piece in pieces:
        if piece["choices"] or body.stream_options.include_usage:
            yield piece


class _Head:
    """The fields that all pieces of an answer share."""

    def __init__(self, model: str) -> None:
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Any], prompt: int, completion: int) -> dict[str, Any]:
        return self._common | {"object": "chat.completion", "choices": choices, "usage": _usage(prompt, completion)}

    def piece(self, delta: Mapping[str, Any], finish_reason: str | None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, **more}
        return self._common | {"object": "chat.completion.chunk", "choices": [choice]}

    def usage(self, prompt: int, completion: int) -> dict[str, Any]:
        return self._common | {"object": "chat.completion.chunk", "choices": [], "usage": _usage(prompt, completion)}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _events(pieces: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    """The pieces as server-sent events. An error in the middle is an event too, since the status has been sent."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield b"data: " + json.dumps(piece).encode() + b"\n\n"
        except ApiError as error:
            yield b"data: " + json.dumps(error.body).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
