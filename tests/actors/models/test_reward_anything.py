"""Lists in an order of their own, graded by a principle and put back where they belong."""

import json
from collections.abc import Sequence
from random import Random

import pytest

from actors.engine.protocol import Engine
from tests.support.judge_contract import RIGHT, JudgeContract, Judged
from tiny_models.dialects import Judgement


class TestTinyRewardAnything(JudgeContract):
    model = "tiny-reward-anything"
    dialect = "reward-anything"

    def messages(self, judgement: Judgement, shown: Sequence[int]) -> list[dict[str, str]]:
        """Its authors' JSON with the responses in the order in which they were shown."""
        system, user = judgement.messages
        document = json.loads(user["content"])
        texts = list(document["responses"].values())
        document["responses"] = {f"model-{place}": texts[index] for place, index in enumerate(shown, 1)}
        return [system, {**user, "content": json.dumps(document, ensure_ascii=False)}]

    def test_lists_are_shuffled(self, judged: list[Judged]) -> None:
        orders = [item.rendered.prompts[0].response_positions for item in judged]
        assert sum(list(order) != sorted(order) for order in orders) > len(orders) / 3

    def test_forgetting_to_put_a_list_back_would_be_noticed(self, judged: list[Judged]) -> None:
        forgotten = []
        for item in judged:
            if item.scores[0].trace[0].vote is None:
                continue
            answer = json.loads(item.scores[0].trace[0].text.rpartition("</think>")[2])
            grades = [float(answer["scores"][f"model-{place}"]) for place in range(1, len(item.scores) + 1)]
            forgotten.append(grades == [self.grade(answer, item.judgement) for answer in item.judgement.case.answers])
        assert len(forgotten) > 100
        assert sum(forgotten) / len(forgotten) < 0.8

    @pytest.mark.long
    def test_several_orders_agree_but_for_equals(self, engine: Engine, judged: list[Judged]) -> None:
        result = self.ask(engine, [item.judgement for item in judged[:60]], votes=3)
        right = [verdict for item in result for verdict in self.right(item)]
        assert sum(right) / len(right) >= RIGHT - 0.02
        shown = {
            order for item in result for order in [tuple(prompt.response_positions for prompt in item.rendered.prompts)]
        }
        assert len(shown) > 10
        assert all(prompt.times == 1 for item in result for prompt in item.rendered.prompts)
        assert Random("the global one is left alone").random() == Random("the global one is left alone").random()
