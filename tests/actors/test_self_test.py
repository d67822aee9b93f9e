"""What is checked of a model on its engine before its first row; each check refuses what it is there for."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from actors.checkpoint import Checkpoint
from actors.engine import Pooled
from actors.errors import ModelError
from actors.fake_engine import FakeEngine
from actors.family import Golden, KnownModel
from actors.models import families
from actors.self_test import self_test
from tests.models import ATTRIBUTES, SCALAR, reward_model

Change = Callable[[tuple[float, ...]], tuple[float, ...]]


class Reading(FakeEngine):
    """An engine whose outputs are changed on their way."""

    change: Change = staticmethod(lambda values: values)
    ignores_activation = False

    async def pool(
        self, ids: Sequence[int], request_id: str, at: Sequence[int] | None = None, *, activated: bool = False
    ) -> Pooled:
        found = await super().pool(ids, request_id, at, activated=activated and not self.ignores_activation)
        return Pooled(tuple(map(self.change, found.rows)), found.cached_tokens, found.computed_tokens)


@pytest.fixture(params=[ATTRIBUTES, SCALAR])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One without golden conversations: its numbers are made up."""
    model = reward_model(request.param)
    made = Reading(model.labels, model.max_model_len)
    made.model = model  # type: ignore[attr-defined]
    yield made
    made.close()


@pytest.fixture(autouse=True)
def without_golden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for family in families().values():
        models = tuple(KnownModel(model.id, model.note) for model in family.models)
        monkeypatch.setattr(type(family), "models", models)


def test_a_sound_engine_passes(engine: Any) -> None:
    passed: list[str] = []
    self_test(engine.model, engine, passed.append)
    assert [check.split(":")[0] for check in passed] == ["tokenizer and template", "head", "outputs"]


@pytest.mark.parametrize(
    "change",
    [lambda values: (*values, 0.0), lambda values: (math.nan,) * len(values), lambda values: (math.inf,) * len(values)],
    ids=["one more", "NaN", "infinite"],
)
def test_a_head_of_another_shape_or_without_numbers_is_refused(engine: Any, change: Change) -> None:
    engine.change = change
    with pytest.raises(ModelError, match=f"the head's outputs should be {engine.model.labels} finite numbers"):
        self_test(engine.model, engine)


def softmax(values: tuple[float, ...]) -> tuple[float, ...]:
    powers = [math.exp(value) for value in values]
    return tuple(power / sum(powers) for power in powers)


def sigmoid(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1 / (1 + math.exp(-value)) for value in values)


@pytest.mark.parametrize("change", [softmax, sigmoid])
def test_an_activation_that_is_always_there_is_refused(engine: Any, change: Change) -> None:
    engine.ignores_activation, engine.change = True, change
    with pytest.raises(ModelError, match="the outputs aren't raw logits"):
        self_test(engine.model, engine)


def test_weights_that_came_after_the_run_was_settled_are_checked(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoint, "tensors", {"model.embed_tokens.weight": (10, 10)})
    with pytest.raises(ModelError, match=r"has no score\.weight"):
        self_test(engine.model, engine)


@pytest.mark.parametrize("tolerance", [0.1, 100.0])
def test_a_conversation_with_a_known_reward_must_have_it(
    engine: Any, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = Golden.answer("What is 1+1?", "1+1=2", 50.0, tolerance)
    known = (KnownModel(engine.model.model, "", golden=(golden,)),)
    monkeypatch.setattr(type(engine.model.family), "models", known)
    passed: list[str] = []
    if tolerance == 100.0:
        self_test(engine.model, engine, passed.append)
        assert passed[-1].endswith("published or measured as 50")
        return
    with pytest.raises(ModelError, match=r"conversation 1 should have the reward 50 \(give or take 0.1\), and has -?\d"):
        self_test(engine.model, engine)
