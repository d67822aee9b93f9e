"""Three kinds of rubric, merged weights, and the same as an adapter."""

from collections.abc import Iterator
from typing import Any

from actors.engine import Engine
from actors.settings import ReadSettings
from tests.judge_contract import RIGHT, JudgeContract, Judged, request_of
from tiny_models.dialects import R3_BINARY, R3_PAIRWISE, R3_POINTWISE, Judgement, R3Form, judgements

FORMS = {"pairwise": R3_PAIRWISE, "pointwise": R3_POINTWISE, "binary": R3_BINARY}
PER_FORM = 120


def of_form(form: R3Form) -> Iterator[Judgement]:
    """Held-out judgements of one kind."""
    return (one for one in judgements("r3", 71, 4 * PER_FORM, "held-out") if f"\n{form.explanation}" in _explained(one))


def _explained(judgement: Judgement) -> str:
    return judgement.messages[0]["content"].replace('"explanation": "', "\n")


class R3Contract(JudgeContract):
    model = "tiny-r3"
    dialect = "r3"

    def held_out(self) -> Iterator[Judgement]:
        for _, one in zip(range(PER_FORM), of_form(FORMS[self.read.rating]), strict=False):
            yield one

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

    def test_it_says_what_the_merged_model_says(self, judged: list[Judged]) -> None:
        from tests.models import engine_of

        merged = TestPairwise()
        with engine_of(merged.resolved()) as engine:
            other = merged.ask(engine, [one.judgement for one in judged])
        same = [
            [score.reward for score in one.scores] == [score.reward for score in its.scores]
            for one, its in zip(judged, other, strict=True)
        ]
        assert sum(same) / len(same) >= RIGHT

    def test_without_the_adapter_it_isnt_r3(self, engine: Engine, judged: list[Judged]) -> None:
        from dataclasses import replace

        from actors.rendering import Renderer
        from actors.scorers import scorer_of
        from actors.settings import RenderSettings

        model = replace(self.resolved(), adapter=None)
        rendered: Any = Renderer(model, RenderSettings()).render([request_of(one.judgement) for one in judged[:30]])
        scores = scorer_of(model, engine).score_block(rendered)
        right = [all(self.right(Judged(one.judgement, own, found)))
                 for one, own, found in zip(judged, rendered, scores, strict=False)]  # fmt: skip
        assert sum(right) / len(right) < 0.7
