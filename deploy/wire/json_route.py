"""Reads bodies as strict JSON: UTF-8, finite numbers, each name once, with bounds on depth and on the number of values.

Python's `json` accepts more, and its objects take up to 25 times the bytes of the body: so values are counted beforehand.
"""

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from deploy.errors import ApiError
from deploy.models.work import off_loop

# Lists and objects within each other. Python's own limit depends on the depth of calls: what was read at one depth can fail
# to be written at another.
DEEPEST = 100


_SHOWN = 80  # characters of a header in an error: a client may have chosen any
# A JSON string. The closing quote is optional: else each of many unclosed quotes would be scanned to the body's end.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class JsonRoute(APIRoute):
    """A route that answers 400 or 413 to other bodies, with the reason.

    413 for more values than `limits.max_values`, 415 for a body that isn't said to be JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            read = _JsonRequest(request.scope, request.receive)
            if await read.body():  # a GET has none, and no type either
                _check_content_type(request.headers.get("content-type", ""))
            return await handle(read)

        return handled


def _check_content_type(header: str) -> None:
    """Raise `ApiError` for a body that isn't said to be JSON: FastAPI would tell that its object is missing.

    A browser sends text/plain for any page without asking first, so that is no JSON here.
    """
    kind, _, subtype = header.partition(";")[0].strip().lower().partition("/")
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        problem = f"is {header[:_SHOWN]}" if header else "is missing"
        raise ApiError(
            415,
            f"the body's Content-Type {problem}, and only application/json is read: with curl, -H 'Content-Type: "
            "application/json'",
            code="not_json",
        )


class _JsonRequest(Request):
    async def json(self) -> Any:
        """The body. Raises `HTTPException`: for any other exception, FastAPI answers with a message of its own."""
        most: int = self.app.state.service.limits.max_values
        try:
            body = await self.body()
            return await off_loop(lambda: _read(body, most))
        except json.JSONDecodeError as error:
            problem = f"the body isn't JSON: {error.msg} at character {error.pos}"
        except UnicodeDecodeError as error:
            problem = f"the body isn't UTF-8 at byte {error.start}"
        except RecursionError:  # Python's reader itself, before the check below sees how deep it is
            problem = _TOO_DEEP
        except ValueError:  # int() of more than 4,300 digits; its subclasses are handled above
            problem = "a number in the body has too many digits"
        raise HTTPException(400, problem)


_TOO_DEEP = f"lists and objects in the body are more than {DEEPEST} deep"


def count_values(body: bytes) -> int:
    """An upper bound on the values in a JSON body, by its commas and brackets; an empty list or object may count twice.

    By regular expression and `bytes.count`, in C: 16 MiB take some hundredths of a second, and no object is made.
    """
    return 1 + sum(map(_STRING.sub(b"", body).count, (b",", b"[", b"{")))


def _read(body: bytes, max_values: int) -> Any:
    if (count := count_values(body)) > max_values:
        raise HTTPException(413, f"the body holds {count} JSON values; at most {max_values}: send several requests")
    value = json.loads(body.decode("utf-8-sig"), parse_float=_finite, parse_constant=_constant, object_pairs_hook=_each_once)
    # Level by level, without recursion: a deep body would exhaust the stack in the check that is to refuse it.
    level = [value]
    for _ in range(DEEPEST):
        members = (
            container.values() if isinstance(container, dict) else container
            for container in level
            if isinstance(container, dict | list)
        )
        level = [item for container_members in members for item in container_members if isinstance(item, dict | list)]
        if not level:
            return value
    raise HTTPException(400, _TOO_DEEP)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises if two values have one name: `json` would silently keep the last."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise HTTPException(400, "an object in the body has two values under one name")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise HTTPException(400, "a number in the body is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise HTTPException(400, f"{name} is no JSON; write null where there is no number")
