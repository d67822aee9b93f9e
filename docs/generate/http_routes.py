"""The page of the HTTP routes, out of the endpoint's own OpenAPI document."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import httpx

from deploy.models.service import Service
from deploy.settings import LimitSettings
from deploy.web.app import create_app
from deploy.web.auth import VARIABLE, Keys
from deploy.web.limits import OPEN_PATHS
from docs.generate.markdown import Page, anchored, code, document, heading, table, text
from pipelines.settings.options import leaves

STATUSES: Mapping[int, str] = {
    400: "what can't be judged, with the [reason](outcomes.md) as `code`; of a list the message names the item at fault. "
    "Also a head that isn't HTTP, is beyond 64 KiB or has more than 100 fields",
    401: "no key, or none that is known",
    403: "no keys are set up here, and the client or its `Host` isn't this machine",
    404: "no model, or no route, of this name",
    405: "a method that the path doesn't take; `Allow` has those that it takes. HEAD is answered where GET is",
    408: "a body, or a head, that doesn't come in time",
    413: "a body or a conversation that can't fit, or a request that comes to more than one may",
    415: "a body that isn't `application/json`, or has a `Content-Encoding`",
    422: "no text of a request to `/get_reward` has a reward",
    429: "too much under way at once: `Retry-After` says when to come again",
    500: "the model was asked and gave no reward, or a mistake of Assay's own",
    503: "a replica is being replaced, nothing is ready yet, or the endpoint stops; with `Retry-After`",
    504: "past the deadline, which a client may shorten with `X-Timeout-Seconds`, or the engine didn't answer in time",
}
_NOT_SHOWN = frozenset({"HTTPValidationError", "ValidationError"})
"""FastAPI's own, which no client ever gets: errors here have OpenAI's shape."""
_BOUNDS = {"minimum": ">= {}", "exclusiveMinimum": "> {}", "maximum": "<= {}", "exclusiveMaximum": "< {}"}
_LENGTHS = {
    "minLength": ">= {} characters",
    "maxLength": "<= {} characters",
    "minItems": ">= {} items",
    "maxItems": "<= {} items",
}


@cache
def openapi() -> Mapping[str, Any]:
    """The document that an endpoint gives its clients, of an endpoint without a model."""

    async def ready() -> str | None:
        return None

    async def metrics() -> str:
        return ""

    async def ask() -> Mapping[str, Any]:
        app = create_app(Service([], LimitSettings()), Keys([]), ready, metrics)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            document: Mapping[str, Any] = (await client.get("/openapi.json")).raise_for_status().json()
            return document

    return asyncio.run(ask())


def routes() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Every method and path of the document, with what it says of them."""
    for path, operations in openapi()["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def pages() -> Iterator[Page]:
    """The page."""
    rows = [
        (f"[{code(f'{method} {path}')}](#{_anchor(method, path)})", text(operation.get("description", "")))
        for method, path, operation in routes()
    ]
    limits = [(code(leaf.name), code(leaf.field.default), text(leaf.about)) for leaf in leaves(LimitSettings)]
    schemas = {name: schema for name, schema in openapi()["components"]["schemas"].items() if name not in _NOT_SHOWN}
    yield Page(
        "http.md",
        document(
            "# HTTP",
            "A running endpoint has this as `/docs`, and as a document for programs at `/openapi.json`. A field that isn't "
            "known is refused by name, unless it asks for nothing.",
            table(("route", "what it does"), rows),
            heading(2, "Keys", "keys"),
            f"`Authorization: Bearer KEY`, with one of the keys in `{VARIABLE}` or `--api-keys-file`. Without a key anybody "
            f"may `GET` {', '.join(code(path) for path in sorted(OPEN_PATHS))} and the files of `/docs`.",
            heading(2, "Errors", "errors"),
            '`{"error": {"message", "type", "param", "code"}}`, as OpenAI\'s clients know it; never with a user\'s text.',
            table(("status", "what it says"), ((str(status), words) for status, words in STATUSES.items())),
            heading(2, "Limits", "limits"),
            "Settings of [`assay serve`](command-line/serve.md), as `--set limits.name=value`:",
            table(("setting", "default", "what it limits"), limits),
            *(_route(*route) for route in routes()),
            heading(2, "Objects", "objects"),
            *(_schema(name, schema) for name, schema in schemas.items()),
        ),
    )


def _anchor(method: str, path: str) -> str:
    return anchored(f"{method} {path}")


def _object_anchor(name: str) -> str:
    return f"object-{anchored(name)}"


def _route(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = [
        (
            code(parameter["name"]),
            parameter["in"],
            _kind(parameter["schema"]),
            "yes" if parameter["required"] else "",
            text(parameter.get("description", "")),
        )
        for parameter in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    answer = operation["responses"]["200"].get("content", {})
    return document(
        heading(2, code(f"{method} {path}"), _anchor(method, path)),
        text(operation.get("description", "")),
        table(("parameter", "in", "type", "required", "what it is"), parameters),
        f"Body: {_kind(body['content']['application/json']['schema'])}" if body else "",
        "".join(f"Answer: {_kind(media['schema'])}" for media in answer.values() if media.get("schema")),
    ).rstrip()


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (code(field), _kind(value), "yes" if field in required else "", _default(value), text(value.get("description", "")))
        for field, value in schema.get("properties", {}).items()
    ]
    return document(
        heading(3, code(name), _object_anchor(name)),
        text(schema.get("description", "")),
        _kind(schema) if "enum" in schema else "",
        table(("field", "type", "required", "default", "what it is"), rows),
    ).rstrip()


def _default(schema: Mapping[str, Any]) -> str:
    return code(schema["default"]) if schema.get("default") is not None else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a value, in words, with a link where it is an object of a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_object_anchor(name)})"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, several)))
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    bounds = [words.format(f"{schema[bound]:g}") for bound, words in {**_BOUNDS, **_LENGTHS}.items() if bound in schema]
    name = f"list of {_kind(schema['items']) or 'anything'}" if schema.get("items") is not None else schema.get("type", "")
    return f"{name} ({text(', '.join(bounds))})" if bounds else name or "anything"
