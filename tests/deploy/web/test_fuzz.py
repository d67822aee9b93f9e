"""Whatever a client sends: no route answers with a mistake of ours. From the endpoint's own OpenAPI document."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode

from deploy import api
from tests.support.endpoints import application, listening, scorer
from tests.support.examples import examples

EXAMPLES = 15
ROUTES = [
    (route.path.replace(":path", ""), method)
    for router in api.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods)
]


@pytest.fixture(scope="module", params=["tiny-attributes", "tiny-genrm-json"])
def document(request: pytest.FixtureRequest) -> Iterator[Any]:
    online_scorer = scorer(request.param)
    with listening(application([online_scorer])) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")
    online_scorer.close()


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    # Of what takes nothing, nothing can be wrong.
    [(*route, mode) for route in ROUTES for mode in GenerationMode if route[1] != "GET" or mode is GenerationMode.POSITIVE],
)
def test_no_route_answers_with_a_mistake_of_ours(document: Any, path: str, method: str, mode: GenerationMode) -> None:
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @examples(EXAMPLES, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.call_and_validate(checks=[not_a_server_error])

    ask()
