"""Rows that hold a prompt for a policy to answer: what the shapes of such rows have in common. Each row is one prompt.

A conversation that ends with the assistant is asked again from the turn before: what it said there is left out. A prompt
that has its trainer's template written out is taken apart, as in the shapes of scored rows.
"""

from collections.abc import Callable

from actors.records import Message, Role
from pipelines.formats.rows import Exchange, RowRequests, gather

CANDIDATE = "candidate"
"""The name of the response that a policy will generate."""

PROMPT_READER = 4
"""How prompts are read, for a run's identity: raise it whenever a row becomes another conversation than before."""


def prompt_request(read: Callable[[], tuple[Message, ...]]) -> RowRequests:
    """A row whose prompt `read` gives, and whose one response isn't there yet. `read` raises `Rejected`."""
    return gather({CANDIDATE: lambda: Exchange(read(), "")})


def open_end(turns: list[object]) -> list[object]:
    """Without the assistant's last turn, which may be empty, or anything: it isn't read."""
    last = turns[-1] if turns else None
    return turns[:-1] if isinstance(last, dict) and last.get("role") == Role.ASSISTANT.value else turns
