"""Reasoning in responses and turns, a model's chain of thought before its final answer: finding, removing or keeping it.

Reasoning is the block at the beginning of a text, after white space, up to the first end mark; several such blocks in a row
count as one. Where a template writes the begin mark into the prompt, a text has the end mark alone: then all before it is
reasoning, unless a begin mark comes before it, or the end mark is only mentioned (in code or quotes, or inside a sentence).
Marks anywhere else are ordinary text. There is no answer after reasoning that never ends, nor where a lone end mark follows
a complete block: then nobody can tell where the answer begins.
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
"""Characters before an end mark that tell whether it really ends reasoning; bounded, so that all marks take linear time."""
_SENTENCE_ENDS = ".!?。！？…"
_OPENS = "\"'“‘«([{<\\"


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text, split into reasoning and answer. `answer` is None if the reasoning never ended, or not at a certain place."""

    reasoned: bool
    answer: str | None


@dataclass(frozen=True, slots=True)
class HandledReasoning:
    """A request as it is judged. `reasoned` are the positions of responses with reasoning, in them or in turns before them.

    Those in `refused` can't be judged for that reasoning; the request still has them, so that positions don't change.
    """

    request: ScoreRequest
    reasoned: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()


def split_reasoning(text: str) -> SplitText:
    """Split a text after the reasoning at its beginning. Linear time in its length."""
    at = 0
    while (mark := _opening_mark(text, at)) is not None:
        if (end := text.find(mark.end, at)) < 0:
            return SplitText(True, None)
        at = end + len(mark.end)
    if (lone_end := _find_lone_end(text, at)) is not None:
        return SplitText(True, None if at else _trim_answer(text[lone_end:]))
    return SplitText(True, _trim_answer(text[at:])) if at else SplitText(False, text)


def final_answer(text: str) -> str:
    """The text after its reasoning; all of it, if it holds none or has no answer after it."""
    answer = split_reasoning(text).answer
    return text if answer is None else answer


def cut_at_marks(text: str) -> list[str]:
    """The text in pieces, of which every second is a mark of the reasoning that it begins with.

    A single piece if there is none, or no answer after it. Linear time in its length.
    """
    split = split_reasoning(text)
    if not split.reasoned or split.answer is None:
        return [text]
    pieces: list[str] = []
    at = 0
    while (mark := _opening_mark(text, at)) is not None:
        begin = text.index(mark.begin, at)
        inside = begin + len(mark.begin)
        end = text.index(mark.end, inside)
        pieces += [text[at:begin], mark.begin, text[inside:end], mark.end]
        at = end + len(mark.end)
    if not at and (lone_end := _find_lone_end(text, at)) is not None:
        lone = next(mark for mark in _BY_END if text.endswith(mark, 0, lone_end))
        pieces += [text[: lone_end - len(lone)], lone]
        at = lone_end
    return [*pieces, text[at:]]


def without_reasoning(request: ScoreRequest, how: Reasoning) -> HandledReasoning:
    """A request with the reasoning in its responses, and in the assistant's turns before them, rejected, removed or kept."""
    turns = [
        split_reasoning(turn.content) if turn.role is Role.ASSISTANT else SplitText(False, turn.content)
        for turn in request.context
    ]
    answers = [split_reasoning(response.content) for response in request.responses]
    # Reasoning in an earlier turn concerns every response: each is judged beside it.
    is_in_context = any(turn.reasoned for turn in turns)
    reasoned = frozenset(position for position, answer in enumerate(answers) if is_in_context or answer.reasoned)
    if not reasoned or how is Reasoning.KEEP:
        return HandledReasoning(request, reasoned)
    if how is Reasoning.REJECT or any(turn.answer is None for turn in turns):
        return HandledReasoning(request, reasoned, reasoned)
    context = tuple(
        Message(turn.role, _answer_or_text(turn.content, split)) for turn, split in zip(request.context, turns, strict=True)
    )
    responses = tuple(
        Response(response.name, _answer_or_text(response.content, split))
        for response, split in zip(request.responses, answers, strict=True)
    )
    refused = frozenset(position for position, answer in enumerate(answers) if answer.answer is None)
    return HandledReasoning(replace(request, context=context, responses=responses), reasoned, refused)


def count_reasoning(requests: Sequence[ScoreRequest]) -> int:
    """How many responses of some requests hold reasoning, in themselves or in turns before them."""
    return sum(len(without_reasoning(request, Reasoning.KEEP).reasoned) for request in requests)


def mark_in(template: str) -> str | None:
    """A mark of reasoning that a chat template holds, if it does: its model may reason before it answers."""
    return next((mark.begin for mark in MARKS if not mark.paired and (mark.begin in template or mark.end in template)), None)


def opened_by(prompt: str) -> str:
    """The begin mark with which a prompt ends, so that what a model writes after it is reasoning; empty if none does."""
    end = prompt.rstrip().removesuffix(_MESSAGE)
    return next((mark.begin for mark in MARKS if not mark.paired and end.endswith(mark.begin)), "")


def is_in_marks(token: str) -> bool:
    """Whether a token is a mark of reasoning, or a part of one."""
    return any(token in mark.begin or token in mark.end for mark in MARKS)


def with_reasoning(content: str, message: Mapping[str, object]) -> str:
    """The content of an assistant's message after the reasoning that it holds in a field of its own, if it does."""
    reasoning = next((value for name in FIELDS if isinstance(value := message.get(name), str) and value.strip()), None)
    if reasoning is None or split_reasoning(content).reasoned:
        return content
    return f"<think>\n{reasoning.strip()}\n</think>\n\n{content}"


def _answer_or_text(text: str, split: SplitText) -> str:
    return text if split.answer is None else split.answer


def _opening_mark(text: str, at: int) -> Mark | None:
    """The mark with which reasoning begins at a position, after white space; None if none does."""
    start = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    mark = next((mark for mark in MARKS if text.startswith(mark.begin, start)), None)
    return None if mark is None or (mark.paired and text.find(mark.end, start) < 0) else mark


def _trim_answer(rest: str) -> str | None:
    """The text after the reasoning, without the empty lines between them; None if nothing is left."""
    answer = _CLOSING.sub("", _ENDED.sub("", rest))
    return answer if answer.strip() else None


def _find_lone_end(text: str, start: int) -> int | None:
    """The position after an end mark whose begin mark the template has written; None if the text has none.

    One pass with a small state machine: marks inside code, fenced or inline, are mentions and don't count.
    """
    if all(text.find(end, start) < 0 for end in _BY_END):
        return None
    fenced = inline = False
    for match in _SCANNED.finditer(text, start):
        token = match[0]
        if token == "```":
            fenced, inline = not fenced, False
        elif token == "`":
            inline = not inline and not fenced
        elif token == "\n":
            inline = False  # an unpaired back quote, as an apostrophe or in a text that was cut, ends with its line
        elif fenced or inline:
            continue
        elif token in _BY_BEGIN:
            return None
        elif _is_real_end(text, match.start()):
            return match.end()
    return None


def _is_real_end(text: str, at: int) -> bool:
    """Whether an end mark really ends reasoning: on a line of its own, after a sentence, or directly after a word.

    After a space inside a sentence, or after an opening quote or bracket, it is a mention: "the `</think>` tag".
    """
    before = text[max(0, at - _LOOKED_BACK) : at]
    line = before.rpartition("\n")[2]
    words = line.rstrip()
    if not words:
        return True
    return words[-1] in _SENTENCE_ENDS if words != line else words[-1] not in _OPENS
