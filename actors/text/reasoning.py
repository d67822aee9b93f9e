"""Reasoning in responses and turns, a model's chain of thought before its final answer: finding, removing or keeping it.

Reasoning is the block at the beginning of a text, after white space, up to the first end mark; several such blocks in a row
count as one. Where a template writes the begin mark into the prompt, a text has the end mark alone: then all before it is
reasoning, unless a begin mark comes before it, or the end mark is only mentioned (in code or quotes, or inside a sentence).
Marks anywhere else are ordinary text, and marks are known in any case. There is no answer after reasoning that never ends,
nor where a lone end mark follows a complete block: then nobody can tell where the answer begins.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from actors.records import Message, Reasoning, Response, Role, ScoreRequest


class Mark(NamedTuple):
    """How a kind of model marks its reasoning. `prefilled`: some templates write the begin mark themselves.

    A begin mark without its end is reasoning that never ended, but of those that are `paired`: they are text then.
    `answer`: the marks between which the answer stands, of models that mark it, too.
    """

    begin: str
    end: str
    prefilled: bool = False
    paired: bool = False
    answer: tuple[str, str] | None = None


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
    Mark("<longcat_think>", "</longcat_think>", prefilled=True),  # LongCat
    # Sky-T1, OpenThinker; OpenThoughts-114k and Bespoke-Stratos-17k
    Mark("<|begin_of_thought|>", "<|end_of_thought|>", answer=("<|begin_of_solution|>", "<|end_of_solution|>")),
    Mark("<|START_THINKING|>", "<|END_THINKING|>", answer=("<|START_RESPONSE|>", "<|END_RESPONSE|>")),  # Command A
    Mark("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Mark("<|channel>thought", "<channel|>"),  # Gemma 4
    Mark("<|start|>assistant<|channel|>analysis", _FINAL),  # gpt-oss
    Mark("<|channel|>analysis", _FINAL),
    Mark("<|channel|>commentary", _FINAL),
    Mark("analysis", "assistantfinal", paired=True),  # the same, decoded without its special tokens
    Mark("Here is my thought process:", "Here is my response:", paired=True),  # Granite
)
# Fields of messages in which servers give reasoning apart from the content.
FIELDS = ("reasoning_content", "reasoning", "thinking")

_SPACE = re.compile(r"\s*")
_ENDED = re.compile(r"\A(?:\s*\n| +)")
_CLOSING = re.compile(r"(?:<\|return\|>|<\|end\|>|<\|END_OF_TURN_TOKEN\|>)\s*\Z")
# Characters before an end mark that tell whether it really ends reasoning; bounded, so that all marks take linear time.
_LOOKED_BACK = 80
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


def _folded(text: str) -> str:
    # The text in lower case, in which every character keeps its place.
    return text.replace("İ", "I").lower()  # the only character whose lower case is two


_FOLDED = tuple(mark._replace(begin=_folded(mark.begin), end=_folded(mark.end)) for mark in MARKS)
_WRAPPERS = [(_folded(mark.answer[0]), _folded(mark.answer[1])) for mark in MARKS if mark.answer is not None]
_MARK = re.compile("|".join(re.escape(part) for mark in _FOLDED if not mark.paired for part in (mark.begin, mark.end)))
_BEGINS = [mark.begin for mark in _FOLDED if mark.prefilled]
_ENDS = [mark.end for mark in _FOLDED if mark.prefilled]
_SCANNED = re.compile("|".join(["```", "`", "\n", *map(re.escape, [*_BEGINS, *_ENDS])]))


def split_reasoning(text: str) -> SplitText:
    """Split a text after the reasoning at its beginning. Linear time in its length.

    The answer is without the empty lines before it and the marks around it, and None where the reasoning never ended or
    nothing follows it.
    """
    cuts = _mark_ends(_folded(text))
    if cuts is None:
        return SplitText(True, None)
    return SplitText(True, _trim_answer(text[cuts[-1] :])) if cuts else SplitText(False, text)


def final_answer(text: str) -> str:
    """The text after its reasoning; all of it, if it holds none or has no answer after it."""
    answer = split_reasoning(text).answer
    return text if answer is None else answer


def cut_at_marks(text: str) -> list[str]:
    """The text in pieces, of which every second is a mark of the reasoning that it begins with.

    A single piece if there is none, or no answer after it. Linear time in its length.
    """
    cuts = _mark_ends(_folded(text))
    if not cuts or _trim_answer(text[cuts[-1] :]) is None:
        return [text]
    return [text[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(text)])]


def possible_answers(text: str) -> list[str]:
    """What may be the answer in a judge's text: all of it, and the last part of it if it isn't certain where it begins.

    A judge has one mark of reasoning: that with which its text begins, else `<think>`, which all families' authors use; any
    other is text that it quotes. The answer is what follows the first end of reasoning that has begun, or else the whole
    text. Another end behind that may be quoted, or be the real one. Empty if reasoning never ended.
    """
    folded, position = _folded(text), 0
    mark = _opening_mark(folded, 0) or _FOLDED[0]
    # What begins with words, such as "Analysis", may be an answer from its first word on.
    while not mark.paired and _begins_with(mark, folded, position):
        if (end := folded.find(mark.end, position)) < 0:
            return []
        position = end + len(mark.end)
    ends = (match.span() for match in re.finditer(re.escape(mark.end), folded) if match.start() >= position)
    real = (end for begin, end in ends if mark.paired or _is_real_end(folded, begin) or not folded[end:].strip())
    last = max(real, default=position)
    if not mark.paired and _begins_with(mark, folded, last):
        return []
    return [text[position:]] if last == position else [text[position:], text[last:]]


def without_reasoning(request: ScoreRequest, how: Reasoning) -> HandledReasoning:
    """A request with the reasoning in its responses, and in the assistant's turns before them, rejected, removed or kept."""
    turns = [
        _split_turn(turn) if turn.role is Role.ASSISTANT else SplitText(False, turn.content) for turn in request.context
    ]
    answers = list(map(_split_turn, request.responses))
    # Reasoning in an earlier turn concerns every response: each is judged beside it.
    is_in_context = any(turn.reasoned for turn in turns)
    reasoned = frozenset(position for position, answer in enumerate(answers) if is_in_context or answer.reasoned)
    if not reasoned or how is Reasoning.KEEP:
        return HandledReasoning(request, reasoned)
    if how is Reasoning.REJECT or any(turn.answer is None for turn in turns):
        return HandledReasoning(request, reasoned, reasoned)
    context = tuple(
        replace(turn, content=_answer_or_text(turn.content, split))
        for turn, split in zip(request.context, turns, strict=True)
    )
    responses = tuple(
        replace(response, content=_answer_or_text(response.content, split))
        for response, split in zip(request.responses, answers, strict=True)
    )
    refused = frozenset(position for position, answer in enumerate(answers) if answer.answer is None)
    return HandledReasoning(replace(request, context=context, responses=responses), reasoned, refused)


def _split_turn(turn: Message | Response) -> SplitText:
    # The text of a turn, split. One that calls tools needs no answer after its reasoning.
    split = split_reasoning(turn.content)
    is_complete = turn.calls and split.answer is None and _mark_ends(_folded(turn.content))
    return SplitText(True, "") if is_complete else split


def count_reasoning(requests: Sequence[ScoreRequest]) -> int:
    """How many responses of some requests hold reasoning.

    A turn before the responses that holds some counts for each of them, since each is judged beside it.
    """
    return sum(len(without_reasoning(request, Reasoning.KEEP).reasoned) for request in requests)


def mark_in(template: str) -> str | None:
    """A mark of reasoning that a chat template holds, if it does: its model may reason before it answers."""
    folded = _folded(template)
    marks = (mark for mark in MARKS if not mark.paired)
    return next((mark.begin for mark in marks if any(_folded(part) in folded for part in (mark.begin, mark.end))), None)


def opened_by(prompt: str) -> str:
    """The begin mark with which a prompt ends, so that what a model writes after it is reasoning; empty if none does."""
    folded = _folded(prompt.rstrip()).removesuffix(_MESSAGE)
    begin = next((mark.begin for mark in _FOLDED if not mark.paired and folded.endswith(mark.begin)), "")
    return prompt[len(folded) - len(begin) : len(folded)]


def is_only_marks(text: str) -> bool:
    """Whether a text is nothing but marks of reasoning and white space, as templates write them where an answer begins."""
    return not _MARK.sub("", _folded(text)).strip()


def is_in_marks(token: str) -> bool:
    """Whether a token is a mark of reasoning, or a part of one."""
    return any(_folded(token) in part for mark in _FOLDED for part in (mark.begin, mark.end))


def with_reasoning(content: str, message: Mapping[str, object]) -> str:
    """The content of an assistant's message after the reasoning that it holds in a field of its own, if it does.

    The reasoning is put between `<think>` and `</think>`. A content that begins with reasoning stays as it is.
    """
    reasoning = _reasoning_field(message)
    if reasoning is None or split_reasoning(content).reasoned:
        return content
    return _with_marks(reasoning, content)


def restore_reasoning(content: str, message: Mapping[str, object], *, opens: bool) -> str:
    """What a model wrote, in a message of a server that may have taken its reasoning out, or left the begin mark out.

    `opens`: its template writes the begin mark. Then a text with the end mark alone begins with reasoning; without one it is
    an answer, whose reasoning was left out.
    """
    if _opening_mark(_folded(content), 0) is not None:
        return content
    if (reasoning := _reasoning_field(message)) is not None:
        return _with_marks(reasoning, content)
    return f"{THINK}{content}" if opens and END_THINK in _folded(content) else content


def _reasoning_field(message: Mapping[str, object]) -> str | None:
    return next((value for name in FIELDS if isinstance(value := message.get(name), str) and value.strip()), None)


def _with_marks(reasoning: str, content: str) -> str:
    return f"{THINK}\n{reasoning.strip()}\n{END_THINK}\n\n{content}"


def _answer_or_text(text: str, split: SplitText) -> str:
    return text if split.answer is None else split.answer


def _opening_mark(folded: str, at: int) -> Mark | None:
    mark = next((mark for mark in _FOLDED if _begins_with(mark, folded, at)), None)
    return None if mark is None or (mark.paired and folded.find(mark.end, at) < 0) else mark


def _begins_with(mark: Mark, folded: str, at: int) -> bool:
    return folded.startswith(mark.begin, _SPACE.match(folded, at).end())  # type: ignore[union-attr]  # it matches nothing, too


def _mark_ends(folded: str) -> list[int] | None:
    """Where each mark of the reasoning at the beginning of a text begins and ends; none without reasoning.

    None of reasoning that never ended, or not at a certain place.
    """
    cuts, position = list[int](), 0
    while (mark := _opening_mark(folded, position)) is not None:
        begin = folded.index(mark.begin, position)
        inside = begin + len(mark.begin)
        if (end := folded.find(mark.end, inside)) < 0:
            return None
        position = end + len(mark.end)
        cuts += [begin, inside, end, position]
    if (lone_end := _find_lone_end(folded, position)) is None:
        return cuts
    return None if cuts else [*lone_end]


def _trim_answer(rest: str) -> str | None:
    answer = _unwrap(_CLOSING.sub("", _ENDED.sub("", rest)))
    return answer if answer.strip() else None


def _unwrap(answer: str) -> str:
    # The answer without the marks around it. Empty if text follows them: nobody can tell whether that belongs to it.
    folded = _folded(answer)
    for begin, end in _WRAPPERS:
        if folded.startswith(begin):
            stop = folded.find(end) if end in folded else len(answer)
            return "" if folded[stop + len(end) :].strip() else _ENDED.sub("", answer[len(begin) : stop]).rstrip()
    return answer


def _find_lone_end(folded: str, start: int) -> tuple[int, int] | None:
    """The place of an end mark whose begin mark the template has written; None if the text has none.

    One pass with a small state machine: marks inside code, fenced or inline, are mentions and don't count.
    """
    if all(folded.find(end, start) < 0 for end in _ENDS):
        return None
    fenced = inline = False
    for match in _SCANNED.finditer(folded, start):
        token = match[0]
        if token == "```":
            fenced, inline = not fenced, False
        elif token == "`":
            inline = not inline and not fenced
        elif token == "\n":
            inline = False  # an unpaired back quote, as an apostrophe or in a text that was cut, ends with its line
        elif fenced or inline:
            continue
        elif token in _BEGINS:
            return None
        elif _is_real_end(folded, match.start()):
            return match.span()
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
