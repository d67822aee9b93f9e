"""Bodies as JSON and nothing else: UTF-8, finite numbers, no deeper than anybody means. Python's own reader takes more."""

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from deploy.work import off_loop

DEEPEST = 100
"""Lists and objects within each other. What could be read at some depth of calls can't always be written at another."""


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
        try:
            body = await self.body()
            return await off_loop(lambda: _read(body))
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


_TOO_DEEP = f"lists and objects in the body are more than {DEEPEST} deep"


def _read(body: bytes) -> Any:
    value = json.loads(body.decode("utf-8-sig"), parse_float=_finite, parse_constant=_constant)
    level = [value]
    for _ in range(DEEPEST):
        insides = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [one for inside in insides for one in inside if isinstance(one, dict | list)]
        if not level:
            return value
    raise _NotTaken(_TOO_DEEP)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotTaken("a number in the body is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise _NotTaken(f"{name} is no JSON; write null where there is no number")
