"""A route is one file in `deploy/api/`, found by being there, and told of when an endpoint is ready."""

import pkgutil

from deploy import api


def test_every_file_has_routes_and_the_endpoint_tells_of_them() -> None:
    modules = [module.name for module in pkgutil.iter_modules(api.__path__)]
    assert len(api.ROUTERS) == len(modules) >= 10
    assert all(router.routes for router in api.ROUTERS)
    assert api.paths("GET") == ["/health", "/metrics", "/ready", "/reverify_mode", "/v1/models"]
    posts = api.paths("POST")
    assert posts == sorted(posts)
    assert {"/rerank", "/score", "/v1/chat/completions", "/v1/rewards"} <= set(posts), "of several names the shortest"
