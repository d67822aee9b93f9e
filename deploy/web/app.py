"""The web application of an endpoint: routes, pages and error handlers. Knows no Ray; `ingress.py` runs it on Serve."""

import difflib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.routing import Match

from deploy.api import ROUTERS
from deploy.errors import ApiError, BadRequest
from deploy.models.service import Service
from deploy.web.auth import Keys
from deploy.web.limits import DOCS_FILES, Gate
from deploy.web.shared import Shared
from pipelines.folders.run_folder.manifest import installed

PAGE = Path(__file__).with_name("page")
_FILES = {"/": "index.html", "/app.js": "app.js", "/style.css": "style.css", "/icon.svg": "icon.svg"}
_SAFE = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FRESH_S = 1.0  # a result of `ready` or `metrics` is reused: probes need no key, and each is work for Serve's controller
_SHOWN = 80  # characters of a path or a field's name in an error: a client may have chosen it
_DESCRIPTION = "Rewards of conversations, read as each model's authors read them: raw numbers, or a typed reason why not."

Ready = Callable[[], Awaitable[str | None]]  # why the endpoint isn't ready, or None
Metrics = Callable[[], Awaitable[str]]  # all metrics in Prometheus' text format


def create_app(service: Service, keys: Keys, ready: Ready, metrics: Metrics, origins: Sequence[str] = ()) -> Gate:
    """The ASGI application. Pages of the `origins` may ask it from a browser.

    `ready` and `metrics` are asked at most once a second, however many probes come.
    """
    app = FastAPIOffline(
        title="Assay",
        description=_DESCRIPTION,
        version=installed("assay") or "unknown",
        redoc_url=None,
        favicon_url="icon.svg",
        static_url=DOCS_FILES,
        dependencies=[Security(HTTPBearer(auto_error=False))],  # for the OpenAPI document; `Gate` checks keys
    )
    app.state.service = service
    app.state.ready, app.state.metrics = Shared(ready, _FRESH_S), Shared(metrics, _FRESH_S)
    for router in ROUTERS:
        app.include_router(router)
    for path, name in _FILES.items():
        app.add_api_route(path, _file(name), include_in_schema=False)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    routes = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    return Gate(app, service.limits, keys, routes, origins)


def _file(name: str) -> Callable[[], Awaitable[FileResponse]]:
    async def page() -> FileResponse:
        return FileResponse(PAGE / name, headers=_SAFE)

    return page


async def _api_error(_: Request, error: Any) -> JSONResponse:
    return JSONResponse(error.body, error.status, error.headers)


async def _invalid(request: Request, error: Any) -> JSONResponse:
    """The first five problems and their places, without the values: they may be a user's text, or not fit into JSON."""
    problems = [
        # Without the first step, which is always `body`.
        (".".join(str(step)[:_SHOWN] for step in problem["loc"][1:]), _MESSAGES.get(problem["type"], str(problem["msg"])))
        for problem in error.errors()
    ]
    text = "; ".join(f"{place}: {message}" if place else message for place, message in problems[:5])
    return await _api_error(request, BadRequest(text, problems[0][0] or None, "invalid_request"))


# Plainer than pydantic's own words.
_MESSAGES = {"extra_forbidden": "isn't a field of this request", "missing": "is missing"}


async def _http_error(request: Request, error: Any) -> JSONResponse:
    path = str(request.scope["path"])[:_SHOWN]
    if error.status_code == 404:
        paths = [route.path for route in request.app.routes if getattr(route, "methods", None) and "{" not in route.path]
        close = difflib.get_close_matches(path, paths, n=1)
        nearest = f"; did you mean {close[0]}?" if close else "."
        message = f"there is no route {path}{nearest} /docs lists all"
        return await _api_error(request, ApiError(404, message, code="no_route"))
    if error.status_code == 405:
        # Starlette's own `Allow` has the methods of the first route with this path alone: of /classify PUT, and not POST.
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))  # as `Gate` answers it
        refusal = ApiError(405, f"{path} takes {allowed}, and no other method", code="wrong_method")
        return JSONResponse(refusal.body, refusal.status, {"Allow": allowed})
    # 400 and 413 are `JsonRoute`'s: a body that isn't JSON, or holds too many values.
    code = {400: "invalid_request", 413: "too_many_values"}.get(error.status_code)
    return await _api_error(request, ApiError(error.status_code, str(error.detail), code=code))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """A defect in this program. The answer names the exception's type alone: its message may hold a user's text."""
    return await _api_error(request, ApiError(500, f"internal error: {type(error).__name__}", code="internal_error"))
