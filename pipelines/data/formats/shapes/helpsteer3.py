"""HelpSteer3: a conversation in OpenAI's form under `context`, and one to three responses, as in its five parts.

In `preference`, `overall_preference` is below 0 where response1 is better. In `principle`, the response is to be judged
by the row's `principle`.
"""

from dataclasses import replace
from functools import partial

from pipelines.data.formats.content import exchange, field, is_conversation, text
from pipelines.data.formats.rows import ONLY_RESPONSE, Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

SETS: tuple[tuple[str, ...], ...] = (
    ("response1", "response2"),  # preference, feedback
    ("original_response", "edited_response"),  # edit
    ("original_response", "good_edited_response", "bad_edited_response"),  # edit_quality
)


def looks_like(row: Row) -> bool:
    """A context, and one of the sets of responses."""
    return is_conversation(row.get("context")) and any(map(partial(_has_all, row), (*SETS, ("response", "principle"))))


def _has_all(row: Row, keys: tuple[str, ...]) -> bool:
    return all(key in row for key in keys)


def read(row: Row) -> RowRequests:
    """The responses by their keys; the one of a principle is `final`."""
    if not any(key in row for keys in SETS for key in keys):
        return _by_principle(row)
    # Without a complete set, the one with the most keys counts: its missing responses are rejected instead of lost.
    sets = [keys for keys in SETS if _has_all(row, keys)] or [max(SETS, key=lambda keys: sum(key in row for key in keys))]
    names = dict.fromkeys(key for keys in SETS for key in keys if key in row or keys in sets)
    return gather({key: partial(_exchange, row, key) for key in names})


def _by_principle(row: Row) -> RowRequests:
    requests = gather({ONLY_RESPONSE: lambda: _exchange(row, "response")})
    principles = (text(field(row, "principle")),)
    return replace(requests, requests=tuple(replace(request, principles=principles) for request in requests.requests))


def _exchange(row: Row, key: str) -> Exchange:
    return exchange(row, "context", field(row, key))


SHAPE = Shape(
    "helpsteer3",
    "a conversation and the responses to it: compared, edited, or judged by a principle (HelpSteer3)",
    "`context`, a list of messages, with `response1` and `response2`, `original_response` and its edits, or "
    "`response` and `principle`",
    looks_like,
    read,
    reads=("context", "response", *dict.fromkeys(key for keys in SETS for key in keys)),
)
