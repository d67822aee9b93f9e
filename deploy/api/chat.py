"""Chat completions: NIM's reward shape for reward heads, a judge's own text for judges.

A reward head's scores are always in the answer, as NVIDIA's hosted models had them: as `name:value` pairs in the content,
and in `logprobs.content`, whose `logprob` is the score. They aren't log-probabilities, and may be above 0. The clients of
NeMo Curator and CAMEL read nothing else. Beside OpenAI's fields stand `reward`, which of several outputs is none of them but
what their weights make of them, and `scores`, both as in `/v1/rewards`. A judge takes the roles of its template, and answers
as it does in vLLM, but without log-probabilities. A stream is the whole answer in one piece.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from fastapi import Response as Answer
from fastapi.responses import JSONResponse
from pydantic import Field

from actors.contracts.judge import Judge
from actors.contracts.showings import Shows
from actors.engine.protocol import Sampling
from actors.records import Reason, Score, ScoreRequest
from actors.scorers.online import JudgeText
from actors.text.reasoning import THINK
from deploy.errors import BadRequest, no_score_error, reward_of
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
_MOST_STOPS = 16  # OpenAI allows 4; the engine searches for each of them after each token

StopText = Annotated[str, Field(max_length=256)]

# Defaults that clients send. `tools` are those of the conversation that is judged: no answer calls one.
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


class StreamOptions(RequestBody):
    """OpenAI's, of a stream.

    Without `include_usage` no piece has the usage: clients that don't ask for it fail on a piece without choices.
    """

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
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    metadata: dict[str, Any] | None = Field(
        default=None, description="`response_1`, `response_2` and `principle` may be here, as NeMo-Gym sends them"
    )
    parallel_tool_calls: bool | None = None


@router.post("/v1/chat/completions", response_model=None)
async def chat_completions(body: ChatRequest, service: Serving) -> Answer:
    """A conversation's rewards, or what a judge writes about it.

    A stream, too, begins only when its whole text is there: what fails has an HTTP status, and no error amid the events.
    """
    served = service.find(body.model)
    turns = [*body.messages, *_from_metadata(body.metadata)]
    request = await off_loop(lambda: read_score_request_or_refuse(turns, tools=body.tools))
    answer = await (_written if served.model.task.writes else _rewarded)(served, request, body)
    return _as_events(answer, body.stream_options.include_usage) if body.stream else JSONResponse(answer)


async def _rewarded(served: ServedModel, request: ScoreRequest, body: ChatRequest) -> dict[str, Any]:
    if body.n > 1:
        raise BadRequest(f"{served.name} writes no text, and has one reward for a response: n can only be 1", "n")
    ((score,),) = [result.scores for result in await served.score([check_alone(request)])]
    outputs = _named(score)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": ",".join(f"{name}:{value}" for name, value in outputs.items())},
        "logprobs": {
            "content": [
                {"token": name, "logprob": value, "bytes": None, "top_logprobs": []} for name, value in outputs.items()
            ]
        },
        "finish_reason": "length",  # as NVIDIA's hosted models had it, with one completion token
    }
    # Beside OpenAI's fields, for clients that look for the reward itself: of several outputs it is none of them.
    more = {"reward": reward_of(score), "scores": dict(score.scores)}
    return _completion(served, [choice], score.prompt_tokens or 0, 1) | more


async def _written(served: ServedModel, request: ScoreRequest, body: ChatRequest) -> dict[str, Any]:
    judge = served.model.family
    assert isinstance(judge, Judge)
    _check_only_text(served, judge, request)
    written = await served.write(request, _sampling(body, served, judge))
    if isinstance(written, Reason):
        raise no_score_error(written)
    choices = [_choice(position, text) for position, text in enumerate(written)]
    # The prompt is read once for all texts, so its tokens count once.
    tokens = sum(len(text.generation.token_ids) for text in written)
    return _completion(served, choices, written[0].prompt_tokens, tokens)


def _named(score: Score) -> Mapping[str, float]:
    """The outputs by NVIDIA's names: several by their own, one alone as `reward`. Those of single steps are left out."""
    reward = reward_of(score)
    outputs = {name: value for name, value in score.scores.items() if "[" not in name}
    return outputs if len(outputs) > 1 else {"reward": reward}


def _from_metadata(metadata: Mapping[str, Any] | None) -> Turns:
    """The turns in `metadata`, as NeMo-Gym sends them. Raises `ApiError` for one that isn't text."""
    contents = {name: (metadata or {}).get(name) for name in ("principle", "response_1", "response_2")}
    for name, content in contents.items():
        if content is not None and not isinstance(content, str):
            raise BadRequest(f"metadata.{name} must be text", "metadata")
    return [ChatMessage(role=role, content=content) for role, content in contents.items() if content is not None]


def _check_only_text(served: ServedModel, judge: Judge, request: ScoreRequest) -> None:
    """Raise `ApiError` for a judge that writes several texts on a request, of which this answer would hold an arbitrary one.

    One that shows all responses in random orders: its text wouldn't tell which is the first. Or one with several principles.
    """
    elsewhere = "ask /v1/rewards, with `trace` for its texts"
    if judge.shows is Shows.ALL and len(request.responses) > 1:
        raise BadRequest(f"{served.name} is shown several responses in orders that are drawn: {elsewhere}", "messages")
    if (count := len(judge.principles_of(request))) > 1:
        raise BadRequest(
            f"{served.name} goes by {count} principles, with a text for each, and this answer holds one text: {elsewhere}, "
            "or serve the model with one principle"
        )


def _sampling(body: ChatRequest, served: ServedModel, judge: Judge) -> Sampling:
    """Sampling as in the request; what the request leaves out, as in the judge's model card. Raises `ApiError`."""
    longest = served.model.answer_tokens
    max_tokens = body.max_completion_tokens or body.max_tokens or longest
    if body.logprobs or body.top_logprobs:
        raise BadRequest(
            "a judge's text comes without log-probabilities: ask /v1/rewards for the reward that is read by them", "logprobs"
        )
    temperature = judge.card.temperature if body.temperature is None else body.temperature
    if body.n > 1 and not temperature:
        raise BadRequest("several texts at temperature 0 would all be the same", "n")
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
        verdict_ids=(),  # log-probabilities that nobody is shown
        keep_special=True,  # a client parses marks such as `</think>` itself, which some tokenizers call special
    )


def _choice(position: int, written: JudgeText) -> dict[str, Any]:
    reasoning, content = _split_reasoning(written.generation.text)
    return {
        "index": position,
        "message": {"role": "assistant", "content": content, "reasoning_content": reasoning},
        "logprobs": None,
        "finish_reason": written.generation.finish_reason,
    }


def _split_reasoning(text: str) -> tuple[str | None, str]:
    """The reasoning that a text begins with, None without any, and the content after it.

    Reasoning that never ended is all there is: the content is empty then.
    """
    stripped = text.lstrip()
    if not stripped.startswith(THINK):
        return None, text
    reasoning, _, content = stripped.removeprefix(THINK).partition(_END)
    return reasoning, content.lstrip("\n")


def _completion(served: ServedModel, choices: Sequence[Any], prompt: int, completion: int) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": served.name,
        "choices": choices,
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def _as_events(answer: Mapping[str, Any], include_usage: bool) -> Answer:
    """An answer as server-sent events: a piece with all of it, if `include_usage` one with the usage, and the end."""
    choices = [
        {"delta" if name == "message" else name: value for name, value in choice.items()} for choice in answer["choices"]
    ]
    common = {name: value for name, value in answer.items() if name != "usage"} | {"object": "chat.completion.chunk"}
    pieces = [common | {"choices": choices}]
    if include_usage:
        pieces.append(common | {"choices": [], "usage": answer["usage"]})
    lines = [f"data: {json.dumps(piece)}\n\n" for piece in pieces]
    return Answer("".join([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")
