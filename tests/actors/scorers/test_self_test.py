"""What is checked of a model on its engine before its first row; each check refuses what it is there for."""

import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN, Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Generation, Places, Pooled, Sampling
from actors.errors import ModelError
from actors.reward_model import RewardModel, families, resolve_model
from actors.scorers.alignment import logprobs_are_their_tokens
from actors.scorers.self_test import self_test
from actors.settings.replica import JudgeSettings, ModelSettings, RenderSettings
from actors.settings.rubric import RubricSettings
from tests.support.models import ATTRIBUTES, SCALAR, reward_model

Change = Callable[[tuple[float, ...]], tuple[float, ...]]


class Reading(FakeEngine):
    """An engine whose outputs are changed on their way."""

    change: Change = staticmethod(lambda values: values)
    ignores_activation = False

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        result = await super().pool(ids, at, activated=activated and not self.ignores_activation)
        return Pooled(tuple(map(self.change, result.rows)), result.cached_tokens, result.computed_tokens)


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


def softmax(values: tuple[float, ...]) -> tuple[float, ...]:
    powers = [math.exp(value) for value in values]
    return tuple(power / sum(powers) for power in powers)


def sigmoid(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1 / (1 + math.exp(-value)) for value in values)


def test_a_head_of_another_shape_or_without_numbers_is_refused(engine: Any) -> None:
    changes: tuple[Change, ...] = (
        lambda values: (*values, 0.0),
        lambda values: (math.nan,) * len(values),
        lambda values: (math.inf,) * len(values),
    )
    for change in changes:
        engine.change = change
        with pytest.raises(ModelError, match=f"the head's outputs should be {engine.model.labels} finite numbers"):
            self_test(engine.model, engine)


def test_an_activation_that_is_always_there_is_refused(engine: Any) -> None:
    engine.ignores_activation = True
    for change in (softmax, sigmoid):
        engine.change = change
        with pytest.raises(ModelError, match="the outputs aren't raw logits"):
            self_test(engine.model, engine)


class Activating(FakeEngine):
    """An engine that activates outputs by a function of its own."""

    activation: Change

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        raw = await super().pool(ids, at)
        return replace(raw, rows=tuple(map(self.activation, raw.rows))) if activated else raw


def tanh(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(math.tanh, values))


def classify(values: tuple[float, ...]) -> tuple[float, ...]:
    return softmax(values) if len(values) > 1 else sigmoid(values)


TORCH = "torch.nn.modules"
OTHERS: dict[str, tuple[dict[str, Any], Change]] = {
    "regression": ({"problem_type": "regression"}, tuple),
    "one of several": ({"problem_type": "single_label_classification"}, classify),
    "several at a time": ({"problem_type": "multi_label_classification"}, sigmoid),
    "none": ({"sentence_transformers": {"activation_fn": f"{TORCH}.linear.Identity", "version": "5"}}, tuple),
    "softmax": ({"sentence_transformers": {"activation_fn": f"{TORCH}.activation.Softmax"}}, classify),
    "sigmoid": ({"sbert_ce_default_activation_function": f"{TORCH}.activation.Sigmoid"}, classify),
    "none, of old": ({"sbert_ce_default_activation_function": f"{TORCH}.linear.Identity"}, tuple),
    "not named": ({"sentence_transformers": {"version": "5"}, "problem_type": None}, classify),
    "the problem before the name": (
        {"problem_type": "multi_label_classification", "sbert_ce_default_activation_function": f"{TORCH}.linear.Identity"},
        sigmoid,
    ),
    "the new name before the old": (
        {
            "sentence_transformers": {"activation_fn": f"{TORCH}.linear.Identity"},
            "sbert_ce_default_activation_function": f"{TORCH}.activation.Sigmoid",
        },
        tuple,
    ),
    "another": ({"sentence_transformers": {"activation_fn": f"{TORCH}.activation.Tanh"}}, tanh),
}
"""What of a config.json names an activation, and the one that vLLM's `get_act_fn` makes of it."""


def activating(folder: Path, name: str, config: dict[str, Any], function: Change) -> tuple[RewardModel, Activating]:
    """A built-in model with more in its config.json, and an engine with an activation."""
    shutil.copytree(BUILT_IN / name, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    model = reward_model(folder)
    engine = Activating(model.labels, model.max_model_len)
    engine.activation = staticmethod(function)
    return model, engine


def test_the_activation_that_a_config_names_is_expected(tmp_path: Path) -> None:
    for name, activation in itertools.product(("scalar", "attributes"), OTHERS):
        model, engine = activating(tmp_path / f"{name} {activation}", name, *OTHERS[activation])
        passed: list[str] = []
        self_test(model, engine, passed.append)
        engine.close()
        (outputs,) = (check for check in passed if check.startswith("outputs: "))
        assert ("isn't known here" in outputs) == (activation == "another")


def test_the_activations_are_those_of_vllm() -> None:
    import torch
    from vllm.model_executor.layers.pooler.activations import get_act_fn

    for config, function in OTHERS.values():
        for values in ((1.5,), (1.5, -0.25, 3.0)):
            theirs = get_act_fn(SimpleNamespace(num_labels=len(values), **config))(torch.tensor([values]))
            assert theirs[0].tolist() == pytest.approx(function(values))


def test_another_activation_than_the_config_names_is_refused(tmp_path: Path) -> None:
    cases: list[tuple[str, str, Change]] = [
        ("attributes", "several at a time", softmax),
        ("attributes", "one of several", tuple),
        ("scalar", "sigmoid", tuple),
        ("scalar", "none", sigmoid),
        ("scalar", "regression", sigmoid),
    ]
    for name, activation, function in cases:
        model, engine = activating(tmp_path / activation, name, OTHERS[activation][0], function)
        with pytest.raises(ModelError, match="the outputs aren't raw logits"):
            self_test(model, engine)
        engine.close()


def test_weights_that_came_after_the_run_was_settled_are_checked(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoint, "tensors", {"model.embed_tokens.weight": (10, 10)})
    with pytest.raises(ModelError, match=r"has no score\.weight"):
        self_test(engine.model, engine)


@pytest.mark.parametrize("tolerance", [0.1, 100.0])
def test_a_conversation_with_a_known_reward_must_have_it(
    engine: Any, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = Golden.each("What is 1+1?", {"1+1=2": 50.0}, tolerance)
    names = (KnownModel(engine.model.model, "", golden=golden),)
    monkeypatch.setattr(type(engine.model.family), "models", names)
    passed: list[str] = []
    if tolerance == 100.0:
        self_test(engine.model, engine, passed.append)
        assert passed[-1].endswith("published or measured as 50 (give or take 100)")
        return
    with pytest.raises(ModelError, match=r"conversation 1 should have the reward 50 \(give or take 0.1\), and has -?\d"):
        self_test(engine.model, engine)


class Shifted(FakeEngine):
    """An engine whose rows and log-probabilities are those of tokens so many places further on."""

    places = 0

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        last = len(ids) - 1
        moved = [min(max(place + self.places, 0), last) for place in ([last] if at is None else at)]
        return await super().pool(ids, moved, activated=activated)

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        tokens: list[int] = []
        rows: list[dict[int, float]] = []
        for _ in range(sampling.max_tokens):
            seen = sum(ids) + sum(tokens)
            tokens.append(seen % 11)
            rows.append({tokens[-1]: 0.0} | {verdict: -20.0 * ((seen + verdict) % 3) for verdict in sampling.verdict_ids})
        rows = rows[self.places :] + rows[: self.places]
        return (Generation("said", tuple(tokens), "length", tuple(rows), 0, len(ids)),)


def shifted(model: RewardModel, places: int, **engine: Any) -> Shifted:
    made = Shifted(model.labels, model.max_model_len, **engine)
    made.places = places
    return made


def test_rows_of_other_tokens_are_refused() -> None:
    model = reward_model(SCALAR, every_turn=True)
    passed: list[str] = []
    for places in (0, 1, -1):
        with closing(shifted(model, places, every_position=True)) as engine:
            if places:
                with pytest.raises(ModelError, match=r"numbers aren't those of their tokens.*VLLM_USE_V2_MODEL_RUNNER=0"):
                    self_test(model, engine)
            else:
                self_test(model, engine, passed.append)
    assert passed[-1] == "positions: each token has its own outputs (model runner fake)"


def test_log_probabilities_of_other_tokens_are_refused() -> None:
    model = reward_model("tiny-genrm-principle")
    prompts = ([1, 2, 3], [4, 5])
    with closing(shifted(model, 0)) as engine:
        passed = logprobs_are_their_tokens(model, engine, prompts)
    assert passed == "log-probabilities: each token has its own (model runner fake)"
    for places in (1, -1):
        refusal = pytest.raises(ModelError, match="numbers aren't those of their tokens: at token 0 of a text")
        with closing(shifted(model, places)) as engine, refusal:
            logprobs_are_their_tokens(model, engine, prompts)


@pytest.mark.parametrize(
    ("model", "rewards"),
    [
        ("internlm/internlm2-20b-reward", (0.767578125, -2.22265625)),
        ("Skywork/Skywork-Reward-V2-Llama-3.1-8B", (23.0, 3.59375)),
    ],
)
def test_what_a_card_publishes_is_asked_of_that_model_alone(
    model: str, rewards: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the known models are here after all
    assert [golden.rewards for golden in golden_of(model)] == [rewards]
    assert golden_of("internlm/internlm2-7b-reward") == golden_of("Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M") == ()


def golden_of(model: str) -> Sequence[Golden]:
    (names,) = filter(None, (family.knows(model) for family in families().values()))
    return names.golden


def test_a_judge_of_whom_nothing_can_be_read_passes_where_it_neednt_be() -> None:
    rubric = RubricSettings(prompt="{{ response }}", pattern="Rating: ([0-9]+)", low=1, high=10)
    model = resolve_model(ModelSettings(model="tiny-policy", judge=JudgeSettings(rubric=rubric)), RenderSettings())
    doubts: list[str] = []
    with closing(FakeEngine(0, model.context)) as engine:
        self_test(model, engine, warned=doubts.append)
        assert doubts[-1].startswith("asked about 2 + 3, it gave ")
        with pytest.raises(ModelError, match="nothing could be read: asked about 2"):
            self_test(model, engine, must_read=True)


def test_a_judge_that_grades_right_and_wrong_alike_is_doubted_with_its_texts() -> None:
    rubric = RubricSettings(prompt="{{ response }}", pattern="Rating: ([0-9]+)", low=1, high=10)
    model = resolve_model(ModelSettings(model="tiny-policy", judge=JudgeSettings(rubric=rubric)), RenderSettings())
    assert doubts_about(model, [7, 3]) == []
    for right, wrong in ((3, 7), (7, 7)):
        (doubt,) = doubts_about(model, [right, wrong])
        texts = " and ".join(dict.fromkeys(repr(f"Well. Rating: {grade}") for grade in (right, wrong)))
        assert doubt.startswith(f"asked about 2 + 3, it gave {right} to 5 and {wrong} to 6; it wrote {texts}. That is no")


def doubts_about(model: RewardModel, grades: Sequence[int]) -> list[str]:
    """The doubts about a judge that gives these grades."""
    warnings, texts = list[str](), (f"Well. Rating: {grade}" for grade in grades)
    with closing(FakeEngine(0, model.context, reply=lambda ids, sampling, number: next(texts))) as engine:
        self_test(model, engine, must_read=True, warned=warnings.append)
    return warnings


def test_a_model_that_no_question_fits_into_isnt_ok(engine: Any) -> None:
    short = replace(engine.model, max_model_len=2)
    self_test(short, engine)
    with pytest.raises(ModelError, match="nothing could be asked: prompts may have 2 tokens"):
        self_test(short, engine, must_read=True)
