"""What a shape of input rows is."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.formats.rows import Row, RowRequests


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which a row holds a context and its responses.

    `looks_like` tells from keys and types whether a row was meant to have this shape, and never fails. `read` gives
    all responses of the row, or raises `Rejected` where it can't even name them. `read_turns` gives one response per
    assistant turn; only shapes that hold a single conversation have it. `needs` goes on from "rows have".
    """

    name: str
    about: str
    needs: str
    looks_like: Callable[[Row], bool]
    read: Callable[[Row], RowRequests]
    read_turns: Callable[[Row], RowRequests] | None = None
