"""Rubrics of a user's own on real vLLM: a pattern, a schema that the engine keeps to, and a token's log-probability."""

import json
from collections.abc import Iterator, Sequence

import pytest

from actors.engine.protocol import Engine
from actors.records import Score
from actors.rendering.renderer import Renderer
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.self_test import self_test
from actors.settings.replica import RenderSettings
from tests.support.judge_contract import RIGHT, request_of
from tests.support.judges import judge_model
from tests.support.models import engine_of
from tiny_models.dialects import R3_POINTWISE, Judgement, judgements

COUNT = 60
R3 = R3_POINTWISE.prompt(next(judgements("genrm-principle", 1, 1, "held-out")).case)
"""R3's prompt as its authors have it, about some question; the rubric below has places instead of that."""


def as_rubric(prompt: str) -> str:
    """A prompt with places for the question and the response."""
    head, _, others = prompt.partition("### INPUT\n")
    _, _, tail = others.partition("\n\n### EVALUATION RUBRIC")
    return head + "### INPUT\n{{ conversation }}\n\n### RESPONSE\n{{ response }}\n\n### EVALUATION RUBRIC" + tail


POINTWISE = as_rubric(R3)
PATTERN = {"prompt": POINTWISE, "pattern": '"score": ([0-9]+)', "low": 1, "high": 5}
SCHEMA = {
    "type": "object",
    "properties": {
        "explanation": {"type": "string", "maxLength": 40},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["explanation", "score"],
    "additionalProperties": False,
}
FIELDS = {"prompt": POINTWISE, "json_schema": SCHEMA, "low": 1, "high": 5}
VERDICT = {
    "prompt": "{{ turns[0].content }}<|im_end|>\n<|im_start|>assistant\n{{ response }}<|im_end|>\n"
    "<|im_start|>principle\n{{ principle }}",
    "verdict": {"after": "Final Judgement:"},
}


def single(items: Iterator[Judgement]) -> list[Judgement]:
    """Those about a single question and one response, without a system turn."""
    return [item for item in items if len(item.case.context) == 1 and len(item.case.answers) == 1][:COUNT]


@pytest.fixture(scope="module")
def r3() -> Iterator[Engine]:
    with engine_of(judge_model("tiny-r3", rubric=PATTERN)) as engine:
        yield engine


def scored(engine: Engine, items: Sequence[Judgement], **judge: object) -> list[Score]:
    model = judge_model(**{"temperature": 0, "trace": True, **judge})  # type: ignore[arg-type]
    rendered = Renderer(model, RenderSettings()).render([request_of(item) for item in items])
    return [score for (score,) in scorer_of(model, engine).score_block(rendered)]


def test_a_pattern_reads_what_a_chat_model_answers(r3: Engine) -> None:
    sent_judgements = single(judgements("genrm", 5, 8 * COUNT, "held-out"))
    scores = scored(r3, sent_judgements, folder="tiny-r3", rubric=PATTERN)
    right = [
        score.reward == sent_judgement.case.answers[0].grade()
        for score, sent_judgement in zip(scores, sent_judgements, strict=True)
    ]
    assert len(right) == COUNT
    assert sum(right) / len(right) >= RIGHT


def test_an_engine_keeps_to_the_schema(r3: Engine) -> None:
    """It can't reason first, so that what it says isn't right; but all of it is of the form."""
    sent_judgements = single(judgements("genrm", 6, 8 * COUNT, "held-out"))
    scores = scored(r3, sent_judgements, folder="tiny-r3", rubric=FIELDS, max_tokens=200)
    texts = [score.trace[0].text for score in scores]
    assert all(set(json.loads(text)) == {"explanation", "score"} for text in texts)
    assert [score.reward for score in scores] == [json.loads(text)["score"] for text in texts]


def test_a_check_shows_what_was_written_and_read(r3: Engine) -> None:
    passed: list[str] = []
    self_test(judge_model("tiny-r3", rubric=PATTERN, temperature=0), r3, passed.append)
    assert passed[-1].startswith("asked about 2 + 3, it gave 5 to 5 and 2 to 6; it wrote '<think>")


@pytest.mark.long
def test_verdict_tokens_are_read_as_the_family_that_has_them_reads_them() -> None:
    """The prompt of GenRM-Principle as a rubric's: the same tokens, so the same numbers."""
    sent_judgements = single(judgements("genrm-principle", 7, 4 * COUNT, "held-out"))
    with engine_of(judge_model("tiny-genrm-principle")) as engine:
        scores = scored(engine, sent_judgements, folder="tiny-genrm-principle")
        rubric = scored(engine, sent_judgements, folder="tiny-genrm-principle", family="rubric", rubric=VERDICT)
    assert len(scores) == COUNT
    assert [score.reward for score in rubric] == pytest.approx([score.reward for score in scores], abs=1e-4)
