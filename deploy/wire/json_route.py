"""Bodies as JSON and nothing else: UTF-8, finite numbers, each name once, no deeper and no more than anybody means.

Python's own reader takes more, and makes objects of it that take 25 times the bytes: so values are counted before it reads.
"""

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from deploy.models.work import off_loop

DEEPEST = 100
"""Lists and objects within each other. What could be read at some depth of calls can't always be written at another."""


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""With or without its end, so that a body of quotes is read once."""


class JsonRoute(APIRoute):
    """A route that refuses other bodies, and says why."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI asks for this once."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handled


class _JsonRequest(Request):
    async def json(self) -> Any:
        """The body. Raises `HTTPException`, the only one that FastAPI doesn't put words of its own in the place of."""
        most: int = self.app.state.service.limits.max_values
        try:
            body = await self.body()
            return await off_loop(lambda: _read(body, most))
        except _TooMany as refused:
            raise HTTPException(413, str(refused)) from None
        except json.JSONDecodeError as error:
            problem = f"the body isn't JSON: {error.msg} at character {error.pos}"
        except UnicodeDecodeError as error:
            problem = f"the body isn't UTF-8 at byte {error.start}"
        except _NotTaken as refused:
            problem = str(refused)
        except RecursionError:
            problem = _TOO_DEEP
        except ValueError:  # Python reads no number of more than 4,300 digits
            problem = "a number in the body has too many digits"
        raise HTTPException(400, problem)


class _NotTaken(ValueError):
    """What Python's reader takes, and we don't."""


class _TooMany(ValueError):
    """More values than a body may hold."""


_TOO_DEEP = f"lists and objects in the body are more than {DEEPEST} deep"


def count_values(body: bytes) -> int:
    """How many values a JSON body holds at the most, told by its punctuation: an empty list or object may count twice."""
    return 1 + sum(map(_STRING.sub(b"", body).count, (b",", b"[", b"{")))


def _read(body: bytes, most: int) -> Any:
    if (count := count_values(body)) > most:
        raise _TooMany(f"the body holds {count} JSON values; at most {most}: send several requests")
    value = json.loads(body.decode("utf-8-sig"), parse_float=_finite, parse_constant=_constant, object_pairs_hook=_each_once)
    level = [value]
    for _ in range(DEEPEST):
        insides = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [one for inside in insides for one in inside if isinstance(one, dict | list)]
        if not level:
            return value
    raise _NotTaken(_TOO_DEEP)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Which of two values under one name is meant, nobody can tell."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _NotTaken("an object in the body has two values under one name")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotTaken("a number in the body is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise _NotTaken(f"{name} is no JSON; write null where there is no number")
