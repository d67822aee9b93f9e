"""The wire formats: one file each, found by being here, and in each nothing but a translation.

A file defines `router`; it turns a request into the core's, and the core's scores into an answer.
`docs/contributing/http-routes.md` says how to add one.
"""

import importlib
import pkgutil

from fastapi import APIRouter
from fastapi.routing import APIRoute

ROUTERS: tuple[APIRouter, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").router for module in pkgutil.iter_modules(__path__)
)


def paths(method: str) -> list[str]:
    """The paths that take a method, sorted: of each endpoint the shortest, and none with a parameter in it."""
    routes = [
        route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute) and method in route.methods
    ]
    named: dict[object, list[str]] = {}
    for route in routes:
        named.setdefault(route.endpoint, []).append(route.path)
    return sorted(path for same_endpoint in named.values() if "{" not in (path := min(same_endpoint, key=len)))
