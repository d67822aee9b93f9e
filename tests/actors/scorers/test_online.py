"""A model behind an endpoint: equal texts of a request have one number, however they are asked about."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from actors.engine.protocol import Pooled
from actors.scorers.online import OnlineScorer, Rendered
from tests.support.endpoints import scorer
from tests.support.models import SCALAR, request, user


@pytest.fixture
def online() -> Iterator[OnlineScorer]:
    """A scorer whose engine never gives the same number twice, as beside other prompts it may."""
    made = scorer(SCALAR)
    engine, numbers = made._engine, itertools.count()
    pool = engine.pool

    async def answer(ids: Sequence[int], *arguments: Any, **options: Any) -> Pooled:
        pooled = await pool(ids, *arguments, **options)
        return replace(pooled, rows=tuple((float(next(numbers)),) for _ in pooled.rows))

    engine.pool = answer  # type: ignore[method-assign]
    yield made
    made.close()


def test_equal_responses_of_a_request_tie_exactly(online: OnlineScorer) -> None:
    (result,) = asyncio.run(online.score([request(user("What is 2 + 3?"), to=("5", "6", "5"))]))
    rewards = [score.reward for score in result.scores]
    assert rewards[0] == rewards[2] != rewards[1]


def test_equal_prompts_have_the_same_raw_outputs(online: OnlineScorer) -> None:
    prompts = [Rendered("What is 2 + 3?"), Rendered("Name a colour."), Rendered("What is 2 + 3?")]
    outputs = asyncio.run(online.read(prompts))
    assert outputs[0].rows == outputs[2].rows != outputs[1].rows
    assert outputs[0].score == outputs[2].score
