"""Rows that hold a prompt for a policy to answer: what the shapes of such rows have in common. Each row is one prompt.

If a conversation ends with the assistant, that last turn is dropped and generated anew.
"""

from collections.abc import Callable

from actors.records import Message, Role
from pipelines.data.formats.content import role_of
from pipelines.data.formats.rows import Exchange, RowRequests, gather

CANDIDATE = "candidate"
"""The name of the response that a policy will generate."""

PROMPT_READER = 6
"""Version of the prompt reader, part of a run's identity: increase it whenever a row yields another conversation."""


def prompt_request(read: Callable[[], tuple[Message, ...]]) -> RowRequests:
    """A row whose prompt `read` gives, and whose one response isn't there yet. `read` raises `Rejected`."""
    return gather({CANDIDATE: lambda: Exchange(read(), "")})


def open_end(turns: list[object]) -> list[object]:
    """The turns without a last turn of the assistant, which isn't read and may hold anything."""
    return turns[:-1] if turns and role_of(turns[-1]) is Role.ASSISTANT else turns
