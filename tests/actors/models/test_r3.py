"""Three kinds of rubric, merged weights, and the same as an adapter."""

from collections.abc import Iterator

import pytest

from actors.engine.protocol import Engine
from actors.settings.replica import ReadSettings
from tests.support.judge_contract import RIGHT, JudgeContract, Judged
from tests.support.models import engine_of
from tiny_models.dialects import R3_BINARY, R3_PAIRWISE, R3_POINTWISE, Judgement, R3Form, judgements

FORMS = {"pairwise": R3_PAIRWISE, "pointwise": R3_POINTWISE, "binary": R3_BINARY}
PER_FORM = 120


def of_form(form: R3Form) -> Iterator[Judgement]:
    """Held-out judgements of one kind."""
    return (
        judgement
        for judgement in judgements("r3", 71, 5 * PER_FORM, "held-out")
        if form.explanation in judgement.messages[0]["content"]
    )


@pytest.fixture(scope="module")
def merged() -> Iterator[Engine]:
    """The merged weights, for all three kinds."""
    with engine_of(TestPairwise().resolved()) as engine:
        yield engine


class R3Contract(JudgeContract):
    model = "tiny-r3"
    dialect = "r3"

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, merged: Engine) -> Engine:
        return merged

    def held_out(self) -> Iterator[Judgement]:
        for _, judgement in zip(range(PER_FORM), of_form(FORMS[self.read.rating]), strict=False):
            yield judgement

    def right(self, judged: Judged) -> Iterator[bool]:
        grades = [answer.grade() for answer in judged.judgement.case.answers]
        rewards = [score.reward for score in judged.scores]
        if self.read.rating == "pairwise":
            first = float(grades[0] >= grades[1])
            tie = grades[0] == grades[1] and rewards == [0.5, 0.5]
            yield rewards == [first, 1 - first] or tie
        elif self.read.rating == "binary":
            yield rewards == [float(judged.judgement.case.answers[0].right)]
        else:
            yield rewards == [float(grades[0])]


class TestPairwise(R3Contract):
    pass


class TestPointwise(R3Contract):
    """Its rubric comes with the run."""

    read = ReadSettings(
        rating="pointwise",
        principles={
            "grade": R3_POINTWISE.task + "\n" + "\n".join(f"{label}: {text}" for label, text in R3_POINTWISE.rubric.items())
        },
    )


class TestBinary(R3Contract):
    read = ReadSettings(rating="binary")


class TestAdapter(R3Contract):
    """Base model and LoRA adapter, which vLLM applies, say what the merged weights say."""

    model = "tiny-genrm-principle"
    adapter = "tiny-r3-lora"

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        with engine_of(cls().resolved()) as engine:
            yield engine

    def test_it_says_what_the_merged_model_says(self, judged: list[Judged], merged: Engine) -> None:
        other = TestPairwise().ask(merged, [item.judgement for item in judged])
        same = [
            [score.reward for score in item.scores] == [score.reward for score in value.scores]
            for item, value in zip(judged, other, strict=True)
        ]
        assert sum(same) / len(same) >= RIGHT
