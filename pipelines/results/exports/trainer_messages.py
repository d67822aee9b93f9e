"""Building blocks of the trainers' rows: messages, conversations, and reasons why a format can't represent one."""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from actors.records import Message, Role
from actors.text.tool_calls import as_messages
from pipelines.folders.scored_corpus.candidates import Candidate


class Refusal(StrEnum):
    """Why a format can't represent a conversation. It is left out then, never changed to fit."""

    TOOL_TURN = "tool_turn"
    TOOL_CALL = "tool_call"  # in the response or before it, or tools
    LATER_SYSTEM_TURN = "later_system_turn"  # a second one, or one that doesn't come first
    NOT_ALTERNATING = "not_alternating"
    NOT_ONE_TURN = "not_one_turn"
    NO_USER_TURN = "no_user_turn"
    NO_QUESTION = "no_question"  # the turn before the response is the system's or the assistant's
    CONTROL_TOKEN = "control_token"
    MISSING_SCORE = "missing_score"
    AFTER_UNKEPT_TURN = "after_unkept_turn"  # the conversation would teach that turn, too


class Opened(NamedTuple):
    """A context taken apart: the text of its system turn, if it begins with one, and the turns after that."""

    system: str | None
    turns: tuple[Message, ...]


def with_first_system(context: tuple[Message, ...]) -> Opened:
    """Split a context into its system turn, if it begins with one, and the other turns."""
    if context and context[0].role is Role.SYSTEM:
        return Opened(context[0].content, context[1:])
    return Opened(None, context)


def messages(turns: Sequence[Message]) -> list[dict[str, Any]]:
    """The turns in OpenAI's form, but for the arguments of calls, which are objects, as chat templates take them."""
    return as_messages(turns, json.loads)


def answer(candidate: Candidate) -> dict[str, Any]:
    """The response as a message."""
    (message,) = messages((candidate.turn,))
    return message


def whole_conversation(candidate: Candidate) -> list[dict[str, Any]]:
    """The context and the response, as messages."""
    return [*messages(candidate.context), answer(candidate)]


def tools(candidate: Candidate) -> dict[str, str]:
    """The column `tools`, as JSON text, since schemas have no common type; nothing without tools."""
    return {"tools": f"[{', '.join(candidate.tools)}]"} if candidate.tools else {}


def threads(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Group neighbouring candidates into threads: each one's whole conversation is the beginning of the next one's context.

    So the judged turns of one conversation are in one thread, and alternative responses are in threads of their own,
    whatever their names are.
    """
    thread: list[Candidate] = []
    for candidate in candidates:
        if thread and not _continues(candidate, thread[-1]):
            yield thread
            thread = []
        thread.append(candidate)
    if thread:
        yield thread


def without_unkept_turns(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates whose context holds no judged turn that isn't itself among the candidates.

    A judged turn that isn't has no reward, or a filter or a condition left it out.
    """
    followed: list[Candidate] = []
    for thread in threads(candidates):
        kept = {len(candidate.context) for candidate in thread}  # a judged turn comes right after its context
        followed += [candidate for candidate in thread if kept.issuperset(candidate.judged_before)]
    return followed


def _continues(later: Candidate, earlier: Candidate) -> bool:
    # By the turns themselves: names of responses are the shape's, and say nothing that all shapes agree on.
    conversation = (*earlier.context, earlier.turn)
    return later.context[: len(conversation)] == conversation


def refuse_no_question(candidate: Candidate) -> Refusal | None:
    """Refuse a context that doesn't end with a turn to be answered, of the user or of a tool."""
    context = candidate.context
    return None if context and context[-1].role in (Role.USER, Role.TOOL) else Refusal.NO_QUESTION


def refuse_other_speakers(context: tuple[Message, ...]) -> Refusal | None:
    """Refuse turns of other speakers than user and assistant, after the system turn that may come first."""
    roles = {turn.role for turn in with_first_system(context).turns}
    if Role.TOOL in roles:
        return Refusal.TOOL_TURN
    return Refusal.LATER_SYSTEM_TURN if Role.SYSTEM in roles else None


def refuse_not_alternating(candidate: Candidate) -> Refusal | None:
    """Refuse all but this order: an optional system turn, then user and assistant alternating, from the user to the user."""
    turns = with_first_system(candidate.context).turns
    alternate = all(turn.role is (Role.USER, Role.ASSISTANT)[position % 2] for position, turn in enumerate(turns))
    return refuse_other_speakers(candidate.context) or (None if alternate and len(turns) % 2 else Refusal.NOT_ALTERNATING)
