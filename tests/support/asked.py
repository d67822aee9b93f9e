"""Rows to read, what came of them, and the real data to read them from."""

import os
from pathlib import Path

import pytest

from actors.records import Reason
from pipelines.formats import RowRequests


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def said(content: object, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def chat(*turns: object) -> dict[str, object]:
    return {"messages": list(turns)}


def contexts(asked: RowRequests) -> list[list[tuple[str, str]]]:
    return [[(str(turn.role), turn.content) for turn in request.context] for request in asked.requests]


def judged(asked: RowRequests) -> dict[str, str]:
    return {response.name: response.content for request in asked.requests for response in request.responses}


def refused(asked: RowRequests) -> dict[str, Reason]:
    return {response.name: response.reason for response in asked.rejected}


def account(asked: RowRequests) -> None:
    """Assert that each response of the row has one outcome, and that what is to be judged can be."""
    assert asked.names
    assert sorted([*judged(asked), *refused(asked)]) == sorted(asked.names)
    assert (
        len(set(asked.names)) == len(asked.names) == sum(len(one.responses) for one in asked.requests) + len(asked.rejected)
    )
    assert all(request.context and request.responses for request in asked.requests)
    assert all(text.strip() and text.encode() for text in judged(asked).values())


def shared_data() -> Path:
    """The folder of public data; without it a test is skipped, but fails where it must be there."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{folder} is missing")
        pytest.skip(f"needs the sample data at {folder}")
    return folder
