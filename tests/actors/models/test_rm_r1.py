"""The better of two in the last <answer>: both orders, of which a contradiction is a tie."""

from collections.abc import Iterator

from actors.settings.replica import JudgeSettings
from tests.support.judge_contract import RIGHT, JudgeContract, Judged
from tiny_models.judging import Answer


class TestTinyRmR1(JudgeContract):
    model = "tiny-rm-r1"
    dialect = "rm-r1"
    judge = JudgeSettings(trace=True)

    def right(self, judged: Judged) -> Iterator[bool]:
        """Equal responses go to the first shown, so in both orders they are a tie."""
        first, second = (answer.grade() for answer in judged.judgement.case.answers)
        win = 0.5 if first == second else float(first > second)
        yield [score.reward for score in judged.scores] == [win, 1 - win] or self._once(judged, first >= second)

    def _once(self, judged: Judged, first: bool) -> bool:
        """A verdict read again, of the first order alone."""
        return {score.reward for score in judged.scores} == {0.0, 1.0} and judged.scores[0].reward == float(first)

    def test_a_tie_is_what_the_orders_contradict(self, judged: list[Judged]) -> None:
        equals = [item for item in judged if len({answer.grade() for answer in item.judgement.case.answers}) == 1]
        assert len(equals) >= 20
        ties = [[score.reward for score in item.scores] == [0.5, 0.5] for item in equals]
        assert sum(ties) / len(ties) >= RIGHT - 0.03
        assert all(score.scores["order_decided"] == 1.0 for item in equals for score in item.scores if score.reward == 0.5)

    def grade(self, answer: Answer, judgement: object) -> float:
        return float(answer.grade())
