"""Rollouts of a prompt meet before the replicas of their judge, on Ray Serve."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.deploy.api.test_compare import answered
from tests.deploy.api.test_verify import row
from tests.support.endpoints import QUESTION, deploy, ray_serve

TEXTS = ["7", "9", "11", "13"]


@pytest.mark.long
def test_a_cohort_meets_before_several_replicas() -> None:
    async def ask(address: str) -> tuple[list[list[Any]], list[float]]:
        async with httpx.AsyncClient(base_url=address, timeout=120) as http:
            calls = [
                http.post("/verify", json=row(text, _ng_task_index=task, _ng_rollout_index=at))
                for task in range(12)
                for at, text in enumerate(TEXTS)
            ]
            answers = [answer.json() for answer in await asyncio.gather(*calls)]
            body = {"conversation_history": QUESTION, "response_objs": list(map(answered, TEXTS))}
            compared = (await http.post("/compare", json=body)).json()
        rewards = [None if answer["mask_sample"] else answer["reward"] for answer in answers]
        return [rewards[first : first + len(TEXTS)] for first in range(0, len(rewards), len(TEXTS))], compared["rewards"]

    with ray_serve() as address:
        limits = {"num_rollouts_per_prompt": len(TEXTS), "cohort_timeout_s": 60}
        deploy(
            "tiny-genrm-json", limits=limits, render={"reasoning": "strip"}, scaling={"min_replicas": 2, "max_replicas": 2}
        )
        cohorts, truth = asyncio.run(ask(address))
    assert cohorts == [truth] * 12
