"""Judges by name on real vLLM, by language models that write one text whatever they are asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.engine.protocol import Engine
from actors.records import Score
from actors.rendering.renderer import Renderer
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import RenderSettings
from tests.support.judges import judge_model, request
from tests.support.models import engine_of, user
from tests.support.one_text import write_one_text

FIRST, GRADE = "The first adds up: [[A]]", "It adds up. [RESULT] 4"


@pytest.fixture(scope="module")
def says_first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_one_text(tmp_path_factory.mktemp("first") / "judge", FIRST)


@pytest.fixture(scope="module")
def first(says_first: Path) -> Iterator[Engine]:
    with engine_of(judge_model(says_first, rubric="preset:reward-bench")) as engine:
        yield engine


def scored(folder: Path, engine: Engine, preset: str, *responses: str, votes: int | None = None) -> list[Score]:
    model = judge_model(folder, rubric=f"preset:{preset}", votes=votes, temperature=0, trace=True)
    rendered = Renderer(model, RenderSettings()).render([request(user("What is 3 + 4?"), to=responses)])
    (scores,) = scorer_of(model, engine).score_block(rendered)
    return list(scores)


def test_a_judge_that_always_prefers_the_first_prefers_none_in_both_orders(says_first: Path, first: Engine) -> None:
    assert [score.reward for score in scored(says_first, first, "reward-bench", "7", "9")] == [1, 0]
    in_both_orders = scored(says_first, first, "reward-bench", "7", "9", votes=2)
    assert [score.reward for score in in_both_orders] == [0.5, 0.5]
    assert [text.text for text in in_both_orders[0].trace] == [FIRST, FIRST]


def test_a_text_in_the_form_of_another_judge_has_no_verdict(says_first: Path, first: Engine) -> None:
    scores = scored(says_first, first, "arena-hard", "7", "9")
    assert [(score.reward, score.reason) for score in scores] == [(None, "no_verdict")] * 2


def test_a_grade_is_read_at_the_end_of_what_was_written(tmp_path: Path) -> None:
    folder = write_one_text(tmp_path / "judge", GRADE)
    with engine_of(judge_model(folder, rubric="preset:prometheus2")) as engine:
        (score,) = scored(folder, engine, "prometheus2", "7")
    assert (score.reward, score.trace[0].text) == (4, GRADE)
