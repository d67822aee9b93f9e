"""Requests as bytes, and answers as rewards or as failures."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from assay_client._reward import Reward

# Roles that hold the responses of a conversation without `responses` (NVIDIA's).
_SHOWN = frozenset(("response_1", "response_2"))
_OF_ALL = frozenset((401, 403, 404, 405))  # statuses of a wrong key or address: no smaller request would fare better
_AGAIN = frozenset((408, 425, 429))  # statuses below 500 after which the same request may succeed
# Whatever JSON of another shape raises where it is read, from a proxy's page to digits beyond a float.
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
_SERVER_ERROR = 500
# In Ray Serve's own 404: it listens before the engines of an endpoint that starts are loaded, which may take minutes.
_NO_ROUTE_YET = "/-/routes for available routes"
_STARTING_PAUSE_S = 1.0


@dataclass(frozen=True)
class Item:
    """What is judged: a piece of JSON for each of the route's lists, and the number of its responses."""

    pieces: tuple[bytes, ...]  # JSON already: what is sent again, or in halves, isn't encoded again
    count: int = 1

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True)
class Route:
    """Where items go. The body has a list of each name in `lists`, and `fields`; `read` has the rewards of each item."""

    path: str
    lists: tuple[str, ...]
    read: Callable[[Any], list[list[Reward]]]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def body(self, items: Sequence[Item]) -> bytes:
        columns = zip(self.lists, zip(*(item.pieces for item in items), strict=True), strict=True)
        members = [b"%s: [%s]" % (to_json(name), b", ".join(pieces)) for name, pieces in columns]
        members += [b"%s: %s" % (to_json(name), to_json(value)) for name, value in self.fields.items()]
        return b"{%s}" % b", ".join(members)


@dataclass(frozen=True)
class Failure:
    """Why a request has no rewards, and what may help: to send it again, now or in `after_s` seconds, or in halves."""

    reason: str
    message: str
    again: bool = True
    splits: bool = False
    after_s: float | None = None
    is_unsent: bool = False  # there was no connection

    def rewards(self, count: int) -> list[Reward]:
        return [Reward(None, "failed", self.reason, message=self.message)] * count


def to_json(value: Any) -> bytes:
    """UTF-8, in which a lone surrogate is escaped. Raises `TypeError` or `ValueError` for what JSON can't hold."""
    # Not ASCII: escaped, a Chinese character takes 6 bytes in place of 3.
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "backslashreplace")


def read_conversation(conversation: Mapping[str, Any]) -> Item:
    """One for `/v1/rewards`. Raises `TypeError`, `ValueError` or `KeyError`."""
    turns = [
        {**turn, "content": list(map(_as_json, turn["content"]))} if isinstance(turn.get("content"), list) else turn
        for turn in conversation["messages"]
    ]
    shown = sum(turn.get("role") in _SHOWN for turn in conversation["messages"])
    responses = conversation.get("responses")
    return Item((to_json({**conversation, "messages": turns}),), (shown or 1) if responses is None else len(responses))


def _as_json(part: Any) -> Any:
    # These hold objects, such as pictures, in TRL and transformers. Without them, too, the endpoint says `content_not_text`.
    return {"type": part["type"]} if isinstance(part, dict) and part.get("type") in ("image", "video", "audio") else part


def read_rewards(answer: Any) -> list[list[Reward]]:
    """Those of `/v1/rewards`. Raises `ValueError`, `TypeError` or `KeyError` for any other JSON."""
    # By position, so the order is checked: a reward at another's place would train on the wrong response.
    if [judged["index"] for judged in answer["data"]] != list(range(len(answer["data"]))):
        raise ValueError("the conversations are out of order")
    return [[read_reward(**response) for response in judged["responses"]] for judged in answer["data"]]


def read_reward(
    reward: Any, status: str, reason: str | None = None, scores: Any = None, truncated: bool = False, **_: Any
) -> Reward:
    """One response's. Raises `ValueError` unless there is a finite number exactly where the status says so."""
    # Not true or false, which are ints in Python; and JSON's reader takes NaN.
    is_number = isinstance(reward, (int, float)) and not isinstance(reward, bool) and math.isfinite(reward)
    if is_number != (status == "scored") or not (is_number or reward is None):
        raise ValueError(f"the reward is {reward!r}, and its status {status!r}")
    return Reward(reward, status, reason, dict(scores or {}), truncated)


def read_answer(answer: httpx.Response, route: Route, items: Sequence[Item]) -> list[list[Reward]] | Failure:
    """The rewards of each item, or why there are none."""
    if answer.status_code != httpx.codes.OK:
        return _read_error(answer)
    try:
        rewards = route.read(answer.json())
        if [len(each) for each in rewards] != [item.count for item in items]:
            raise ValueError("there are fewer rewards than responses, or more")
    except _UNREADABLE as error:
        return Failure("bad_answer", f"{type(error).__name__}: {error}"[:300])  # asked again: it may be a proxy's page
    return rewards


def _read_error(answer: httpx.Response) -> Failure:
    status = answer.status_code
    try:
        error = answer.json()["error"]
        code, message = error.get("code"), error.get("message")
    except _UNREADABLE:
        code, message = None, answer.text
    if status == httpx.codes.NOT_FOUND and _NO_ROUTE_YET in answer.text:
        return Failure("starting", f"HTTP {status}: {answer.text}"[:300], after_s=_STARTING_PAUSE_S)
    again = status >= _SERVER_ERROR or status in _AGAIN
    after_s = _seconds(answer.headers.get("Retry-After", "")) if again else None
    # A smaller request may pass: it may hold one bad conversation, or be too long as a whole.
    splits = not again and status not in _OF_ALL
    return Failure(str(code or f"http_{status}"), f"HTTP {status}: {message}"[:300], again, splits, after_s)


def _seconds(retry_after: str) -> float | None:
    """From now, by a number of seconds or a date; None without either."""
    try:
        is_number = retry_after.isdecimal()
        return max(float(retry_after) if is_number else parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None
