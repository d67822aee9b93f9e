"""Reasoning in what is judged: a model's chain of thought before its final answer, and what becomes of it.

Reasoning is what stands at the beginning of a text, after white space, up to the first end mark; several such blocks in a
row are one. A template that writes the begin mark into the prompt leaves a text that has the end mark alone: then all before
it is reasoning, if no begin mark stands there and the end mark is no mention of itself (in code or quotes, or in the middle
of a sentence). A mark anywhere else is text like any other. Reasoning that never ends has no answer after it, and so has one
after which a lone end mark comes again: nobody can tell where its answer begins.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from actors.records import Message, Reasoning, Response, Role, ScoreRequest


class Mark(NamedTuple):
    """How a kind of model marks its reasoning. `prefilled`: some templates write the begin mark themselves.

    A begin mark without its end is reasoning that never ended, but of those that are `paired`: they are text then.
    """

    begin: str
    end: str
    prefilled: bool = False
    paired: bool = False


_MESSAGE = "<|message|>"
_FINAL = f"<|channel|>final{_MESSAGE}"
THINK, END_THINK = "<think>", "</think>"
MARKS = (
    Mark(THINK, END_THINK, prefilled=True),  # DeepSeek-R1, Qwen3, Nemotron, GLM, MiniMax and most others
    Mark("<mm:think>", "</mm:think>", prefilled=True),  # MiniMax-M3
    Mark("<seed:think>", "</seed:think>", prefilled=True),  # Seed-OSS
    Mark("[THINK]", "[/THINK]", prefilled=True),  # Magistral
    Mark("◁think▷", "◁/think▷", prefilled=True),  # Kimi
    Mark("<thinking>", "</thinking>"),
    Mark("<thought>", "</thought>"),
    Mark("<reasoning>", "</reasoning>"),
    Mark("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, OpenThinker
    Mark("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    Mark("<|channel>thought", "<channel|>"),  # Gemma 4
    Mark("<|start|>assistant<|channel|>analysis", _FINAL),  # gpt-oss
    Mark("<|channel|>analysis", _FINAL),
    Mark("<|channel|>commentary", _FINAL),
    Mark("analysis", "assistantfinal", paired=True),  # the same, decoded without its special tokens
    Mark("Here is my thought process:", "Here is my response:", paired=True),  # Granite
)
FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of messages in which servers give reasoning apart from the content."""

_SPACE = re.compile(r"\s*")
_ENDED = re.compile(r"\A(?:\s*\n| +)")
_CLOSING = re.compile(r"(?:<\|return\|>|<\|end\|>)\s*\Z")
_BY_BEGIN = {mark.begin: mark for mark in MARKS if mark.prefilled}
_BY_END = {mark.end: mark for mark in MARKS if mark.prefilled}
_SCANNED = re.compile("|".join(["```", "`", "\n", *map(re.escape, [*_BY_BEGIN, *_BY_END])]))
_LOOKED_BACK = 80
_SENTENCE_ENDS = ".!?。！？…"
_OPENS = "\"'“‘«([{<\\"


@dataclass(frozen=True, slots=True)
class Parted:
    """A text without its reasoning. `answer` is None if the reasoning never ended, or nobody can tell where."""

    reasoned: bool
    answer: str | None


@dataclass(frozen=True, slots=True)
class Freed:
    """A request as it is judged. `held` are the responses that had reasoning, in themselves or in turns before them.

    Those that are `refused` can't be judged, for their reasoning or that of turns before them; they are still there.
    """

    request: ScoreRequest
    held: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()


def split_reasoning(text: str) -> Parted:
    """A text, and whether it begins with reasoning. Linear in its length."""
    at = 0
    while (mark := _begun(text, at)) is not None:
        if (end := text.find(mark.end, at)) < 0:
            return Parted(True, None)
        at = end + len(mark.end)
    if (lone_end := _lone_end(text, at)) is not None:
        return Parted(True, None if at else _answer(text[lone_end:]))
    return Parted(True, _answer(text[at:])) if at else Parted(False, text)


def without_reasoning(request: ScoreRequest, how: Reasoning) -> Freed:
    """A request with its reasoning dealt with as is asked: in its responses, and in the assistant's turns before them."""
    turns = [
        split_reasoning(turn.content) if turn.role is Role.ASSISTANT else Parted(False, turn.content)
        for turn in request.context
    ]
    answers = [split_reasoning(response.content) for response in request.responses]
    before = any(turn.reasoned for turn in turns)
    held = frozenset(at for at, one in enumerate(answers) if before or one.reasoned)
    if not held or how is Reasoning.KEEP:
        return Freed(request, held)
    if how is Reasoning.REJECT or any(turn.answer is None for turn in turns):
        return Freed(request, held, held)
    context = tuple(Message(turn.role, _kept(turn.content, own)) for turn, own in zip(request.context, turns, strict=True))
    responses = tuple(
        Response(one.name, _kept(one.content, own)) for one, own in zip(request.responses, answers, strict=True)
    )
    refused = frozenset(at for at, one in enumerate(answers) if one.answer is None)
    return Freed(replace(request, context=context, responses=responses), held, refused)


def count_reasoning(requests: Sequence[ScoreRequest]) -> int:
    """How many responses of some requests hold reasoning, in themselves or in turns before them."""
    return sum(len(without_reasoning(request, Reasoning.KEEP).held) for request in requests)


def mark_in(template: str) -> str | None:
    """A mark of reasoning that a chat template holds, if it does: its model may reason before it answers."""
    return next((mark.begin for mark in MARKS if not mark.paired and (mark.begin in template or mark.end in template)), None)


def opened_by(prompt: str) -> str:
    """The begin mark with which a prompt ends, so that what a model writes after it is reasoning; empty if none does."""
    end = prompt.rstrip().removesuffix(_MESSAGE)
    return next((mark.begin for mark in MARKS if not mark.paired and end.endswith(mark.begin)), "")


def is_open(text: str) -> bool:
    """Whether what comes after a text would be reasoning: a begin mark stands in it after its last end mark."""
    return any(text.rfind(mark.begin) > text.rfind(mark.end) for mark in MARKS if not mark.paired)


def is_in_marks(token: str) -> bool:
    """Whether a token is a mark of reasoning, or a part of one."""
    return any(token in mark.begin or token in mark.end for mark in MARKS)


def with_reasoning(content: str, message: Mapping[str, object]) -> str:
    """The content of an assistant's message after the reasoning that it holds in a field of its own, if it does."""
    told = next((own for name in FIELDS if isinstance(own := message.get(name), str) and own.strip()), None)
    if told is None or split_reasoning(content).reasoned:
        return content
    return f"<think>\n{told.strip()}\n</think>\n\n{content}"


def _kept(text: str, own: Parted) -> str:
    return text if own.answer is None else own.answer


def _begun(text: str, at: int) -> Mark | None:
    """The mark with which reasoning begins here, after white space."""
    start = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    mark = next((mark for mark in MARKS if text.startswith(mark.begin, start)), None)
    return None if mark is None or (mark.paired and text.find(mark.end, start) < 0) else mark


def _answer(rest: str) -> str | None:
    """What follows the reasoning, without the lines between them; None if it is nothing."""
    answer = _CLOSING.sub("", _ENDED.sub("", rest))
    return answer if answer.strip() else None


def _lone_end(text: str, start: int) -> int | None:
    """Where a reasoning ends that has no begin mark, because the template has written it; None if there is none."""
    if all(text.find(end, start) < 0 for end in _BY_END):
        return None
    fenced = inline = False
    for match in _SCANNED.finditer(text, start):
        found = match[0]
        if found == "```":
            fenced, inline = not fenced, False
        elif found == "`":
            inline = not inline and not fenced
        elif found == "\n":
            inline = False
        elif fenced or inline:
            continue
        elif found in _BY_BEGIN:
            return None
        elif _ends(text, match.start()):
            return match.end()
    return None


def _ends(text: str, at: int) -> bool:
    """Whether an end mark stands where reasoning ends: on a line of its own, after a sentence, or right after a word."""
    before = text[max(0, at - _LOOKED_BACK) : at]
    line = before.rpartition("\n")[2]
    said = line.rstrip()
    if not said:
        return True
    return said[-1] in _SENTENCE_ENDS if said != line else said[-1] not in _OPENS
