"""What HTTP asks of every path: HEAD where GET is, OPTIONS, `Allow`; and the nearest path to one that isn't there."""

import difflib
from typing import Any

from starlette.responses import Response
from starlette.routing import Match

from deploy.errors import ApiError

_SHOWN = 80
"""Characters of a path in an error: a client may have chosen any."""


class Methods:
    """Answers HEAD with what GET has but its body, and OPTIONS with the methods of a path. Pure ASGI."""

    def __init__(self, app: Any) -> None:
        """`app` is what the application runs behind this."""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        elif scope["type"] == "http" and scope["method"] == "OPTIONS" and (methods := methods_of(scope)):
            await Response(status_code=204, headers=_allow(methods))(scope, receive, send)
            return
        await self._app(scope, receive, send)


def methods_of(scope: Any) -> set[str]:
    """The methods that the path of a request takes, of all routes with it; none for a path that isn't there."""
    methods = {
        method
        for route in scope["app"].routes
        if route.matches(scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return methods | ({"HEAD"} if "GET" in methods else set()) | ({"OPTIONS"} if methods else set())


def wrong_method(scope: Any) -> tuple[ApiError, dict[str, str]]:
    """The error for a method that a path doesn't take, and its header `Allow`."""
    headers = _allow(methods_of(scope))
    return ApiError(405, f"{_shown(scope)} takes {headers['Allow']}, and no other method", code="wrong_method"), headers


def wrong_path(scope: Any) -> ApiError:
    """The error for a path that isn't there, with the nearest one that is."""
    paths = [route.path for route in scope["app"].routes if getattr(route, "methods", None) and "{" not in route.path]
    close = difflib.get_close_matches(scope["path"][:_SHOWN], paths, n=1)
    suggestion = f"; did you mean {close[0]}?" if close else "."
    return ApiError(404, f"there is no route {_shown(scope)}{suggestion} /docs lists all", code="no_route")


def _shown(scope: Any) -> str:
    return str(scope["path"])[:_SHOWN]


def _allow(methods: set[str]) -> dict[str, str]:
    return {"Allow": ", ".join(sorted(methods))}


def _without_body(send: Any) -> Any:
    async def send_head(message: Any) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head
