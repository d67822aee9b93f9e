"""The wire formats: one file each, found by being here, and in each nothing but a translation.

A file defines `router`; it turns a request into the core's, and the core's scores into an answer.
`docs/contributing/http-routes.md` says how to add one.
"""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from actors.extensions import modules_in

ROUTERS: tuple[APIRouter, ...] = tuple(module.router for module in modules_in(__name__, __path__))


def paths(method: str) -> list[str]:
    """The paths that take a method, sorted: of each endpoint the shortest, and none with a parameter in it."""
    routes = [
        route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute) and method in route.methods
    ]
    by_endpoint: dict[object, list[str]] = {}
    for route in routes:
        by_endpoint.setdefault(route.endpoint, []).append(route.path)
    shortest = (min(aliases, key=len) for aliases in by_endpoint.values())
    return sorted(path for path in shortest if "{" not in path)
