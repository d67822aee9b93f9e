"""The definition of a shape of input rows."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.data.formats.rows import Row, RowRequests


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which a row holds a context and its responses.

    `looks_like` decides from keys and types whether a row was meant to have this shape, and never raises. `read` returns
    all responses of the row, or raises `Rejected` if it can't even name them. `read_turns` returns one response per
    assistant turn; only shapes of a single conversation have it. `needs` completes the sentence "rows have ...". `reads` are
    the fields that hold prompt and responses, beside the system prompt's; all others are the row's own, such as its id.
    With `tools` among them the shape reads those, too. `layout` shows a row as it stands in a file, for the reference.
    """

    name: str
    about: str
    needs: str
    looks_like: Callable[[Row], bool]
    read: Callable[[Row], RowRequests]
    read_turns: Callable[[Row], RowRequests] | None = None
    reads: tuple[str, ...] = ()
    layout: str = ""
