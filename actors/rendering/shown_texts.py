"""Whether a prompt shows all turns, and what it asks about where the same prompt shows other words in its place."""

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from actors.contracts.family import Family, Question
from actors.errors import Rejected
from actors.records import Message, Reason, Role, ToolCall
from actors.text.reasoning import cut_at_marks
from actors.text.tool_calls import STRING

PROBE = "assay probe text"  # stands for a user's text where a family and its template are tried out
# Stand in the place of a response; no row holds them.
_OTHER_WORDS = f"assay {uuid.uuid4().hex}"
_TURN_ID = uuid.uuid4().hex
# Stands in the place of a turn, or of a text in a call, with its number.
_TURN = re.compile(rf"assay[ _]turn[ _]{_TURN_ID}[ _](\d+)[._]")
_DESCRIPTION = re.compile(rf'("description"\s*:\s*){STRING.pattern}', STRING.flags)
_SPACE = re.compile(r"\s*")
# All of a text but the white space around it.
_WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)


class ShownTemplate:
    """A chat template, whose text must show each message as it is but for the white space around it.

    Two things are a template's right: an assistant's turn without its reasoning, and a tool's turn as JSON. Of a call it
    must show the name, every key and every text in the arguments, of a tool the name and every description: as they are,
    or in JSON.
    """

    def __init__(self, template: Callable[..., str]) -> None:
        self._template = template
        # Conversations of the same roles have the same text but for their words. A corpus has few such shapes.
        self._other_text = lru_cache(maxsize=32)(template)

    def __call__(self, messages: Sequence[Message], *, generation_prompt: bool = False, tools: tuple[str, ...] = ()) -> str:
        """See `ChatTemplate`. Raises `Rejected` also where the text lacks a message, or a part of a call or tool."""
        text = self._template(messages, generation_prompt=generation_prompt, tools=tools)
        words = _OtherWords()
        changed_tools, changed_turns = tuple(map(words.of_tool, tools)), tuple(map(words.of_turn, messages))
        other_text = self._other_text(changed_turns, generation_prompt=generation_prompt, tools=changed_tools)
        places: dict[int, list[int | None]] = {}
        for match in _TURN.finditer(other_text):
            places.setdefault(int(match[1]), []).append(match.start())
        # Some templates put a system turn behind others, and write the name of a tool several times: as they are shown.
        shown = sorted(
            (place or 0, *_shown_form(piece, other_text, place))
            for number, piece in enumerate(words.pieces)
            for place in places.get(number, [None])[: None if piece.turn is None else 1]
        )
        check_shown(text, [turn for _, turn, _ in shown], other_text, [words for *_, words in shown])
        if any(turn.calls for turn in messages):
            # Calls of a tool share its name, and may hold no text. These keys are only looked for: some templates sort them.
            numbers = itertools.count(len(words.pieces))
            numbered_turns = tuple(
                replace(turn, calls=tuple(_with_numbered_keys(call, numbers) for call in turn.calls))
                for turn in changed_turns
            )
            numbered_text = self._other_text(numbered_turns, generation_prompt=generation_prompt, tools=changed_tools)
            if not set(map(int, _TURN.findall(numbered_text))).issuperset(range(len(words.pieces), next(numbers))):
                raise Rejected(Reason.TOOL_CALL, "the template leaves a call or a key of its arguments out, or changes it")
        return text


def _with_numbered_keys(call: ToolCall, numbers: Iterator[int]) -> ToolCall:
    # The call with a number in each key of its arguments, and one argument more, so that a call without any has one.
    def numbered(literal: re.Match[str]) -> str:
        return f'"{_numbered_name(next(numbers))}"{literal[2]}' if literal[2] else literal[0]

    arguments = json.loads(STRING.sub(numbered, call.arguments))
    return replace(call, arguments=json.dumps({**arguments, _numbered_name(next(numbers)): PROBE}))


class _Piece(NamedTuple):
    """A text that a template must show, and the other words in its place.

    `turn` is the turn that it is all of, None in a call or tool; `literal` is how the JSON text of a call has it.
    """

    text: str
    words: str
    turn: Message | None = None
    literal: str | None = None

    def forms(self) -> Iterator[tuple[str, str]]:
        # Each with that of the other words. Templates print content as it is, or by `tojson`, some with `ensure_ascii`.
        yield self.text, self.words
        if self.turn is None or self.turn.role is Role.TOOL:
            yield _in_json(self.text), _in_json(self.words)
        if self.turn is None:
            yield _in_json(self.text, is_ascii=True), _in_json(self.words, is_ascii=True)
            if self.literal is not None:
                yield self.literal, _literal_of(self.words)
                yield _in_json(self.literal), _in_json(_literal_of(self.words))
        elif self.turn.role is Role.ASSISTANT:
            yield cut_at_marks(self.text)[-1], cut_at_marks(self.words)[-1].strip()


class _OtherWords:
    """Other words for what a conversation says, each with its number; all of them are `pieces`."""

    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self._names: dict[str, str] = {}

    def of_turn(self, turn: Message) -> Message:
        content = turn.content
        if content.strip():  # else a template may leave it out for that
            words = self._words
            if turn.role is Role.ASSISTANT:
                words = with_marks_of(content, words).strip()
            content = f'{words}"' if turn.role is Role.TOOL else words  # another text as JSON
            self.pieces.append(_Piece(turn.content, content, turn))
        return Message(turn.role, content, tuple(map(self._of_call, turn.calls)), turn.call_id)

    def _of_call(self, call: ToolCall) -> ToolCall:
        # In the text as the row has it: a template that prints that prints its white space and escapes, too.
        return ToolCall(self._name(call.name), STRING.sub(self._in_arguments, call.arguments), call.id)

    def _in_arguments(self, literal: re.Match[str]) -> str:
        text = json.loads(literal[1])
        if literal[2] or not text.strip():  # a key, or nothing
            return literal[0]
        words = self._text(text, literal[1][1:-1])
        return f'"{_literal_of(words)}"'

    def of_tool(self, tool: str) -> str:
        value = json.loads(_DESCRIPTION.sub(self._in_tool, tool))
        value["function"]["name"] = self._name(value["function"]["name"])
        return json.dumps(value, ensure_ascii=False)

    def _in_tool(self, description: re.Match[str]) -> str:
        return description[1] + json.dumps(self._text(json.loads(description[2])), ensure_ascii=False)

    def _name(self, name: str) -> str:
        if name not in self._names:  # the name of a tool and of its calls stay one: a template may look for it
            self._names[name] = _numbered_name(len(self.pieces))
            self.pieces.append(_Piece(name, self._names[name]))
        return self._names[name]

    def _text(self, text: str, literal: str | None = None) -> str:
        if not text.strip():
            return text
        self.pieces.append(_Piece(text, f'{self._words}é"', literal=literal))  # another text as JSON, and as JSON in ASCII
        return self.pieces[-1].words

    @property
    def _words(self) -> str:
        return f"assay turn {_TURN_ID} {len(self.pieces)}."


def _numbered_name(number: int) -> str:
    return f"assay_turn_{_TURN_ID}_{number}_"


def _shown_form(piece: _Piece, other_text: str, place: int | None) -> tuple[str, str]:
    """The form in which a template shows a text, and the other words in its place. Raises `Rejected` if it doesn't."""
    for text, words in piece.forms():
        match = _TURN.search(words)
        if match is not None and place is not None and other_text.startswith(words, place - match.start()):
            return text.strip(), words
    if piece.turn is None:
        raise Rejected(Reason.TOOL_CALL, "the template leaves a part of a call or of a tool out, or changes it")
    raise Rejected(Reason.TEMPLATE_REFUSED, f"the template leaves the turn of the {piece.turn.role} out, or changes it")


def _literal_of(words: str) -> str:
    # Other words in the JSON text of a call's arguments, which differ there from what any template makes of them.
    return words.replace('"', r"\u0022")


def _in_json(text: str, *, is_ascii: bool = False) -> str:
    return json.dumps(text, ensure_ascii=is_ascii)[1:-1]


def other_question(family: Family, question: Question) -> Question:
    """The question with other words for all that its prompt must show; equal for questions that differ in these alone."""
    other = family.blank(replace(question, response_positions=(), times=1), _OTHER_WORDS)
    if not question.responses:  # a policy is shown the conversation alone
        return other
    # Fields are left as they are where they needn't be shown: what comes before a response is to be the same in both.
    shows_fields = any(_OTHER_WORDS in text for text in family.shown(replace(other, responses=question.responses)))
    return replace(
        other,
        context=question.context,
        responses=tuple(map(with_marks_of, question.responses, other.responses)),
        fields=other.fields if shows_fields else question.fields,
        calls=question.calls,
        tools=question.tools,
    )


def with_marks_of(text: str, blank: str) -> str:
    """A blank text behind the marks of the reasoning that `text` begins with, and the white space around them."""
    *reasoning, answer = cut_at_marks(text)
    if not reasoning:
        return blank
    # With other white space, a template that looks for the marks might write the reasoning anew, or leave it out.
    blanks = (part if position % 2 else _WORDS.sub(PROBE, part) for position, part in enumerate(reasoning))
    return "".join(blanks) + _WORDS.sub(lambda _: blank, answer)


def check_shown(text: str, shown: Sequence[str], other_text: str, other_shown: Sequence[str]) -> None:
    """Raise `Rejected` unless the `shown` texts stand in a prompt where `other_shown` stand in the other one.

    A search in all of the prompt would find a response in the conversation that the template has left out behind it.
    """
    position = begin = 0
    for response, words in zip(shown, other_shown, strict=True):
        place = other_text.find(words, begin)
        # Without the white space at its ends: some templates trim the texts beside it.
        before = other_text[begin:place].strip()
        if text.startswith(before, position := _skip_space(text, position)):
            position = _skip_space(text, position + len(before))
            is_there = text.startswith(response, position)
        else:  # what comes before depends on the response, such as its length: it stands behind the first difference
            pairs = enumerate(zip(before, text[position:], strict=False))
            difference = next((number for number, (expected, actual) in pairs if expected != actual), len(before))
            position = text.find(response, position + difference)
            is_there = position >= 0
        if place < 0 or not is_there:
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template leaves the response out, or changes it")
        position, begin = position + len(response), place + len(words)


def _skip_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


@dataclass(frozen=True, slots=True)
class ShownTurns:
    """The turns that the prompts of a model show."""

    roles: frozenset[Role]
    later_system: bool = True  # a system turn that isn't the first turn is shown
    several_systems: bool = True  # both of two system turns are: with some templates, one replaces the other
    calls: str = ""  # what of a tool call isn't shown; empty if all is
    tools: str = ""  # the same of a tool

    def check_calls(self, question: Question) -> None:
        unshown = (question.call_count and self.calls) or (question.tools and self.tools)
        if unshown:
            raise Rejected(Reason.TOOL_CALL, unshown)

    def check(self, context: Sequence[Message]) -> None:
        are_called = any(turn.calls for turn in context)
        if are_called and self.calls:
            raise Rejected(Reason.TOOL_CALL, self.calls)
        for message in context:
            if message.role not in self.roles and not (are_called and message.role is Role.TOOL):
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        systems = [position for position, message in enumerate(context) if message.role is Role.SYSTEM]
        is_later, are_several = max(systems, default=0) > 0, len(systems) > 1
        if (is_later and not self.later_system) or (are_several and not self.several_systems):
            raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, "a system turn after the first turn")


def shown_by_family(family: Family) -> ShownTurns | None:
    """The turns that a family shows which writes the conversation itself; None if a chat template does."""
    if family.roles is None:
        return None
    unshown = "" if family.writes_calls else f"{family.name} writes a conversation without calls and tools"
    return ShownTurns(family.roles, calls=unshown, tools=unshown)
