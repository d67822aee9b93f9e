"""What the trainers' rows are made of: messages, conversations, and reasons why a format can't hold one."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from actors.records import Message, Role
from pipelines.scored_corpus.candidates import Candidate


class Refusal(StrEnum):
    """Why a format can't hold a conversation. It is refused then, and never changed until it fits."""

    TOOL_TURN = "tool_turn"
    LATER_SYSTEM_TURN = "later_system_turn"  # a second one, or one that doesn't come first
    NOT_ALTERNATING = "not_alternating"
    NOT_ONE_TURN = "not_one_turn"
    NO_USER_TURN = "no_user_turn"
    NO_QUESTION = "no_question"  # the turn before the response is the system's or the assistant's
    CONTROL_TOKEN = "control_token"
    MISSING_SCORE = "missing_score"


class Opened(NamedTuple):
    """A context taken apart: the text of its system turn, if it begins with one, and the turns after that."""

    system: str | None
    turns: tuple[Message, ...]


def with_first_system(context: tuple[Message, ...]) -> Opened:
    """The context, with its system turn apart from the others."""
    if context and context[0].role is Role.SYSTEM:
        return Opened(context[0].content, context[1:])
    return Opened(None, context)


def messages(turns: Sequence[Message]) -> list[dict[str, str]]:
    """The turns in OpenAI's form."""
    return [{"role": turn.role.value, "content": turn.content} for turn in turns]


def answer(candidate: Candidate) -> dict[str, str]:
    """The response as a message."""
    return {"role": Role.ASSISTANT.value, "content": candidate.text}


def whole(candidate: Candidate) -> list[dict[str, str]]:
    """The context and the response, as messages."""
    return [*messages(candidate.context), answer(candidate)]


def threads(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """The candidates by conversation: each one's whole conversation is how the next one's context begins.

    So the judged turns of one conversation are together, and responses that are alternatives are apart, whatever their
    names are.
    """
    thread: list[Candidate] = []
    for candidate in candidates:
        if thread and not _goes_on(candidate, thread[-1]):
            yield thread
            thread = []
        thread.append(candidate)
    if thread:
        yield thread


def _goes_on(later: Candidate, earlier: Candidate) -> bool:
    said = (*earlier.context, Message(Role.ASSISTANT, earlier.text))
    return later.context[: len(said)] == said


def unasked(context: tuple[Message, ...]) -> Refusal | None:
    """Against a context that doesn't end with what is to be answered, by the user or by a tool."""
    return None if context and context[-1].role in (Role.USER, Role.TOOL) else Refusal.NO_QUESTION


def more_speakers(context: tuple[Message, ...]) -> Refusal | None:
    """Against turns of anybody but the user and the assistant, after the system turn that may come first."""
    roles = {turn.role for turn in with_first_system(context).turns}
    if Role.TOOL in roles:
        return Refusal.TOOL_TURN
    return Refusal.LATER_SYSTEM_TURN if Role.SYSTEM in roles else None


def out_of_turn(context: tuple[Message, ...]) -> Refusal | None:
    """Against all but this: a system turn or none, then user and assistant in turn, from the user to the user."""
    turns = with_first_system(context).turns
    alternate = all(turn.role is (Role.USER, Role.ASSISTANT)[at % 2] for at, turn in enumerate(turns))
    return more_speakers(context) or (None if alternate and len(turns) % 2 else Refusal.NOT_ALTERNATING)
