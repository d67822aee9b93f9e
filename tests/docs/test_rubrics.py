"""The rubrics to copy: each is valid, and reads an answer that does what its prompt asks for."""

import pytest

from actors.contracts.judge import Judge
from actors.engine.protocol import Generation
from actors.reward_model import families
from actors.settings.replica import JudgeSettings
from tests.conftest import REPOSITORY

RUBRICS = REPOSITORY / "rubrics"
GRADES = '{"reason": "Good.", "correctness": 5, "completeness": 4, "clarity": 3}'


def read(name: str, text: str) -> dict[str, float]:
    """What the judge of a rubric reads in a text, of the response that is shown first."""
    judge = families()["rubric"]
    assert isinstance(judge, Judge)
    judge = judge.with_settings(JudgeSettings.model_validate({"rubric": str(RUBRICS / f"{name}.yaml")}))
    shown = 2 if judge.together else 1
    verdict = judge.verdict(Generation(text, (), "stop", (), 0, 0), shown)
    return dict(verdict.scores[0])


@pytest.mark.parametrize(
    ("name", "text", "scores"),
    [
        ("pointwise", "It is right.\nGrade: [[4]]", {"score": 4.0}),
        ("pairwise", "A is wrong.\nBetter: [[B]]", {"win": 0.0}),
        ("with_reference", "Both say seven.\nSame result: [[1]]", {"score": 1.0}),
        ("json", GRADES, {"correctness": 5.0, "completeness": 4.0, "clarity": 3.0}),
    ],
)
def test_a_rubric_reads_what_its_prompt_asks_for(name: str, text: str, scores: dict[str, float]) -> None:
    assert read(name, text) == scores


def test_every_rubric_is_read() -> None:
    assert {path.stem for path in RUBRICS.iterdir()} == {"pointwise", "pairwise", "with_reference", "json"}
