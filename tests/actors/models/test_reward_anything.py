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
        asked = json.loads(user["content"])
        texts = list(asked["responses"].values())
        asked["responses"] = {f"model-{place}": texts[at] for place, at in enumerate(shown, 1)}
        return [system, {**user, "content": json.dumps(asked, ensure_ascii=False)}]

    def test_lists_are_shuffled(self, judged: list[Judged]) -> None:
        orders = [one.rendered.prompts[0].judges for one in judged]
        assert sum(list(order) != sorted(order) for order in orders) > len(orders) / 3

    def test_forgetting_to_put_a_list_back_would_be_noticed(self, judged: list[Judged]) -> None:
        forgotten = []
        for one in judged:
            if one.scores[0].trace[0].vote is None:
                continue
            answer = json.loads(one.scores[0].trace[0].text.rpartition("</think>")[2])
            grades = [float(answer["scores"][f"model-{place}"]) for place in range(1, len(one.scores) + 1)]
            forgotten.append(grades == [self.grade(own, one.judgement) for own in one.judgement.case.answers])
        assert len(forgotten) > 100
        assert sum(forgotten) / len(forgotten) < 0.8

    @pytest.mark.long
    def test_several_orders_agree_but_for_equals(self, engine: Engine, judged: list[Judged]) -> None:
        found = self.ask(engine, [one.judgement for one in judged[:60]], votes=3)
        right = [verdict for one in found for verdict in self.right(one)]
        assert sum(right) / len(right) >= RIGHT - 0.02
        shown = {order for one in found for order in [tuple(prompt.judges for prompt in one.rendered.prompts)]}
        assert len(shown) > 10
        assert all(prompt.times == 1 for one in found for prompt in one.rendered.prompts)
        assert Random("the global one is left alone").random() == Random("the global one is left alone").random()
