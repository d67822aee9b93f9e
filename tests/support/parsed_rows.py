"""Rows to parse, the parts of their result, and the folder of real data."""

import os
from pathlib import Path

import pytest

from actors.records import Reason
from pipelines.data.formats import RowRequests


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def reply(content: object, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def chat(*turns: object) -> dict[str, object]:
    return {"messages": list(turns)}


def contexts(parsed: RowRequests) -> list[list[tuple[str, str]]]:
    return [[(str(turn.role), turn.content) for turn in request.context] for request in parsed.requests]


def judged(parsed: RowRequests) -> dict[str, str]:
    return {response.name: response.content for request in parsed.requests for response in request.responses}


def refused(parsed: RowRequests) -> dict[str, Reason]:
    return {response.name: response.reason for response in parsed.rejected}


def account(parsed: RowRequests) -> None:
    """Assert that each response of the row is either judged or rejected, and that the judged ones have text."""
    assert parsed.names
    assert sorted([*judged(parsed), *refused(parsed)]) == sorted(parsed.names)
    assert (
        len(set(parsed.names))
        == len(parsed.names)
        == sum(len(request.responses) for request in parsed.requests) + len(parsed.rejected)
    )
    assert all(request.context and request.responses for request in parsed.requests)
    responses = [response for request in parsed.requests for response in request.responses]
    assert all((response.content.strip() and response.content.encode()) or response.calls for response in responses)


def shared_data() -> Path:
    """The folder of public data. Without it a test is skipped, or fails in CI, where it must exist."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{folder} is missing")
        pytest.skip(f"needs the sample data at {folder}")
    return folder
