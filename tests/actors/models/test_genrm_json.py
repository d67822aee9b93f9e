"""Grades and a ranking as JSON, with a principle and without."""

from tests.support.judge_contract import RIGHT, JudgeContract, Judged
from tiny_models.judging import ranking


class TestTinyGenrmJson(JudgeContract):
    model = "tiny-genrm-json"
    dialect = "genrm-json"

    def test_the_ranking_is_read_with_the_grades(self, judged: list[Judged]) -> None:
        right = []
        for item in judged:
            grades = [answer.grade(item.judgement.principle) for answer in item.judgement.case.answers]
            margin = 3.5 - ranking(*grades)
            right.append([score.scores.get("margin") for score in item.scores] == [margin, -margin])
        assert sum(right) / len(right) >= RIGHT

    def test_it_goes_by_the_principle(self, judged: list[Judged]) -> None:
        """Without reading it, a judge is right about brevity as often as about its opposite."""
        principles = {item.judgement.principle for item in judged}
        assert principles >= {None, "correctness", "brevity", "verbosity"}
        for principle in principles:
            right = [verdict for item in judged if item.judgement.principle == principle for verdict in self.right(item)]
            assert sum(right) / len(right) >= RIGHT - 0.03
