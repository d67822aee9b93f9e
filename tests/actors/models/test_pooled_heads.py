"""Heads on hidden states: the authors' formulas in plain torch on transformers' states, and what would be silently wrong."""

import json
import pickle
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoConfig, Gemma2Model, LlamaModel

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.contracts.pooled_head import PooledHead, find_last
from actors.engine.engine_arguments import engine_arguments
from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Places, Pooled, Task
from actors.errors import ModelError, SettingsError
from actors.launch.start_engine import engine_identity
from actors.records import Reason
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, families, resolve_model
from actors.scorers.head_scorer import HeadScorer
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings, TooLong
from tests.support.contract import Contract, Numbers, Outputs, Wrong, reading
from tests.support.engines import BLOCK, ask_all
from tests.support.models import assistant, engine_of, ids_of, reason_of, renderer, request, reward_model, user

EOT, START, ASSISTANT, END, BREAK = "<|eot_id|>", "<|start_header_id|>", "assistant", "<|end_header_id|>", "\n\n"
HEADS = ("armorm", "qrm", "grm", "inf-orm", "ldl")


@cache
def stored(name: str) -> dict[str, torch.Tensor]:
    """All tensors of a built-in model in float32, those of torch's files after the file's name."""
    tensors = load_file(BUILT_IN / name / "model.safetensors")
    for file in BUILT_IN.joinpath(name).glob("*.pt"):
        tensors |= {f"{file.stem}.{key}": value for key, value in torch.load(file, weights_only=True).items()}
    return {key: value.float() for key, value in tensors.items()}


@cache
def body(name: str) -> Any:
    """The body as transformers runs it."""
    config = AutoConfig.from_pretrained(BUILT_IN / name)
    model = {"llama": LlamaModel, "gemma2": Gemma2Model}[config.model_type](config)
    names = model.state_dict().keys()
    model.load_state_dict({key: stored(name).get(f"model.{key}", stored(name).get(key)) for key in names})
    model.set_attn_implementation("eager")
    return model.eval()


class HeadContract(Contract):
    """The tensors are `outputs`' hidden states at every token; `formula` is the authors'."""

    layouts: ClassVar[tuple[int, ...]] = (1,)
    golden_at: ClassVar[str] = "What is 3 + 4?"
    test_right_answers_to_unseen_questions_get_the_higher_number = None  # type: ignore[assignment]  # nothing was trained

    def outputs(self, ids: Sequence[int]) -> Any:
        return body(self.name)(torch.tensor([ids])).last_hidden_state[0]

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        (states,), (ids,) = outputs, prompts
        return self.formula(states, ids)

    def formula(self, *states_and_ids: Any, **change: Any) -> Numbers:
        """The numbers by the states, [tokens, hidden], of a prompt; `change` is what a wrong reading does otherwise."""
        raise NotImplementedError

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        return stored(self.name)

    def linear(self, name: str, state: torch.Tensor, *, bias: bool = True) -> torch.Tensor:
        return functional.linear(state, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias") if bias else None)


def wrongly(**change: Any) -> Wrong:
    """The authors' formula with a change."""

    def wrong(contract: Contract, prompts: Sequence[list[int]]) -> Numbers:
        assert isinstance(contract, HeadContract)
        return contract.formula(contract.computed(prompts[0]), prompts[0], **change)

    return wrong


NORMALISED = {"states of length one": reading(lambda states: functional.normalize(states, dim=-1))}


class TestTinyGrm(HeadContract):
    model = "tiny-grm"
    wrong: ClassVar = {**NORMALISED, "no bias": wrongly(bias=False), "no ReLU": wrongly(activation=lambda values: values)}

    def formula(self, states: torch.Tensor, ids: list[int], bias: bool = True, activation: Any = torch.relu) -> Numbers:
        inner = activation(self.linear("v_head.summary.0", states[-1], bias=bias))
        (score,) = self.linear("v_head.summary.2", inner).tolist()
        return {"score": score, "reward": score}


class TestTinyInfOrm(HeadContract):
    model = "tiny-inf-orm"
    wrong: ClassVar = {**NORMALISED, "no bias": wrongly(bias=False)}

    def formula(self, states: torch.Tensor, ids: list[int], bias: bool = True) -> Numbers:
        (score,) = self.linear("score.2", self.linear("score.0", states[-1]).relu(), bias=bias).tolist()
        return {"score": score, "reward": score}


class TestTinyLdl(HeadContract):
    model = "tiny-ldl"
    wrong: ClassVar = {
        **NORMALISED,
        "a softmax on the gate": wrongly(softmax=True),
        "ReLU": wrongly(activation=torch.relu),
        "ratings from 1 to 10": wrongly(ratings=torch.arange(1.0, 11.0)),
    }

    def formula(
        self,
        states: torch.Tensor,
        ids: list[int],
        softmax: bool = False,
        activation: Any = functional.leaky_relu,
        ratings: Any = None,
    ) -> Numbers:
        results = {}
        for network, (first, second, third) in {"regression_layer": (0, 2, 4), "gating_layer": (0, 3, 6)}.items():
            state = activation(self.linear(f"{network}.network.{first}", states[-1]))
            state = activation(self.linear(f"{network}.network.{second}", state))
            results[network] = self.linear(f"{network}.network.{third}", state)
        gate = results["gating_layer"].softmax(0) if softmax else results["gating_layer"]
        total = torch.einsum("o,or->r", gate, results["regression_layer"].view(22, 10).softmax(-1))
        score = float((total * (torch.linspace(0, 1, 10) if ratings is None else ratings)).sum())
        return {"score": score, "reward": score}


GATES = {
    "the gate at the end": wrongly(at=lambda starts, last: last),
    "the gate after its tokens": wrongly(at=lambda starts, last: starts[-1] + 4),
    "the gate at the first turn": wrongly(at=lambda starts, last: starts[0]),
}
ONE_TURN = frozenset({"the gate at the first turn"})


class GatedContract(HeadContract):
    def gate_state(self, states: torch.Tensor, ids: list[int], at: Any) -> torch.Tensor:
        """The state where the last header of an assistant's turn begins, or `at` another place."""
        pattern = self.tokenizer.encode(EOT + START + ASSISTANT + END + BREAK, add_special_tokens=False)
        width = len(pattern)
        starts = [start for start in range(len(ids)) if ids[start : start + width] == pattern]
        return states[(at or (lambda starts, last: starts[-1]))(starts, len(ids) - 1)]


class TestTinyArmoRM(GatedContract):
    model = "tiny-armorm"
    wrong: ClassVar = {
        **NORMALISED,
        **GATES,
        "no transform": wrongly(transform=False),
        "no temperature": wrongly(temperature=1),
    }
    subtle = ONE_TURN

    def formula(
        self, states: torch.Tensor, ids: list[int], at: Any = None, transform: bool = True, temperature: float = 10
    ) -> Numbers:
        gate = self.gate_state(states, ids, at)
        for number in range(3):
            gate = self.linear(f"gating.layers.{number}", gate).relu()
        coefficients = (self.linear("gating.layers.3", gate) / temperature).softmax(0) * self.weights["gating.logit_scale"][
            0
        ]
        rewards = self.linear("regression_layer", states[-1])
        adjusted = rewards @ self.weights["reward_transform_matrix"] if transform else rewards
        score = float((coefficients * adjusted).sum())
        return {**dict(zip(OBJECTIVES, rewards.tolist(), strict=True)), "score": score, "reward": score}


class TestTinyQrm(GatedContract):
    model = "tiny-qrm"
    layouts = (1, 2)
    wrong: ClassVar = {
        **NORMALISED,
        **GATES,
        "no batch norm": wrongly(batch_norm=False),
        "the median": wrongly(middle=lambda quantiles: quantiles.median(-1).values),
        "quantiles first": wrongly(shape=(19, 5)),
        "ArmoRM's temperature": wrongly(temperature=10),
    }
    subtle = ONE_TURN

    def formula(
        self,
        states: torch.Tensor,
        ids: list[int],
        at: Any = None,
        batch_norm: bool = True,
        middle: Any = lambda quantiles: quantiles.mean(-1),
        shape: tuple[int, int] = (5, 19),
        temperature: float = 5,
    ) -> Numbers:
        gate, weights = self.gate_state(states, ids, at), self.weights
        for number in (0, 3, 6):
            gate = self.linear(f"gating.layers.{number}", gate).relu()
            if batch_norm:
                mean, variance, scale, shift = (
                    weights[f"gating.layers.{number + 2}.{part}"]
                    for part in ("running_mean", "running_var", "weight", "bias")
                )
                gate = (gate - mean) / (variance + 1e-5).sqrt() * scale + shift
        coefficients = (self.linear("gating.layers.9", gate) / temperature).softmax(0) * weights["gating.logit_scale"][0]
        quantiles = self.linear("regression_layer", states[-1]).view(*shape)
        means = middle(quantiles if shape == (5, 19) else quantiles.T)
        adjusted = means @ weights["reward_transform_matrix"]
        score = float((coefficients * adjusted).sum())
        names = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
        return {**dict(zip(names, adjusted.tolist(), strict=True)), "score": score, "reward": score}


OBJECTIVES = (
    "helpsteer-helpfulness", "helpsteer-correctness", "helpsteer-coherence", "helpsteer-complexity", "helpsteer-verbosity",
    "ultrafeedback-overall_score", "ultrafeedback-instruction_following", "ultrafeedback-truthfulness",
    "ultrafeedback-honesty", "ultrafeedback-helpfulness", "beavertails-is_safe", "prometheus-score",
    "argilla-overall_quality", "argilla-judge_lm", "code-complexity", "code-style", "code-explanation",
    "code-instruction-following", "code-readability",
)  # fmt: skip
CARD = (2.78125, 2.859375, 3.484375, 1.3847656, 1.296875)
"""Five times the rating less a half, as ArmoRM's card prints it."""


# Goldens that ArmoRM's authors published, by formula.


class CardEngine(FakeEngine):
    """Answers as ArmoRM does about the card's conversation, times a factor."""

    factor = 1.0

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        ratings = [self.factor * (shown + 0.5) / 5 for shown in CARD]
        return Pooled(((0.1 + activated, *ratings, *[0.5] * 14),), 0, len(ids))


def card_model(folder: Path) -> RewardModel:
    """A checkpoint that is known as ArmoRM's."""
    copy = folder / "ArmoRM-Llama3-8B-v0.1"
    shutil.copytree(BUILT_IN / "armorm", copy)
    return reward_model(copy)


def test_the_cards_five_ratings_are_checked_by_the_self_test(tmp_path: Path) -> None:
    passed: list[str] = []
    self_test(card_model(tmp_path), CardEngine(20, 8192), passed.append)
    assert len([text for text in passed if "helpsteer-" in text]) == 5
    assert passed[3] == "conversation 1: helpsteer-helpfulness 0.6562, published or measured as 0.65625 (give or take 0.03)"


def test_a_rating_off_the_card_fails_the_self_test(tmp_path: Path) -> None:
    engine = CardEngine(20, 8192)
    engine.factor = 1.1
    with pytest.raises(ModelError, match=r"should have the helpsteer-helpfulness 0\.65625 .*, and has 0\.7218"):
        self_test(card_model(tmp_path), engine)


# What would be silently wrong.


class NormalisingEngine(FakeEngine):
    """Normalises whether it is asked to or not."""

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        return await super().pool(ids, at)


def test_an_engine_that_normalises_states_fails_the_self_test() -> None:
    with pytest.raises(ModelError, match="normalises its hidden states to length one"):
        self_test(reward_model("tiny-grm"), NormalisingEngine(1, 8192))


def test_the_gate_is_read_at_the_last_turn_even_if_an_earlier_one_looks_alike() -> None:
    assert find_last([1, 2, 3, 1, 2, 4, 1], [1, 2]) == 3
    assert find_last([1, 2], [2, 1]) is None
    model = reward_model("tiny-armorm")
    assert isinstance(model.family, PooledHead)
    head = model.family.load(model.checkpoint)
    ids = ids_of(renderer("tiny-armorm").render([request(user("A"), assistant("B"), user("C"), to="D")])[0])
    gate, end = head.ends(ids)
    assert end == len(ids)
    tokens = Renderer(model, RenderSettings()).tokenizer.pretrained.convert_ids_to_tokens(ids[gate - 2 : gate + 3])
    assert tokens == ["C", EOT, START, "assistant", END]


def test_a_gates_prompt_is_followed_by_the_whole_one_and_no_token_of_them_counts_as_cached() -> None:
    render = renderer("tiny-armorm").render
    prompts = [ids_of(render([request(user(f"{letter} word" * 90), to="D")])[0]) for letter in "AB"]
    with engine_of(reward_model("tiny-armorm"), EngineSettings(max_in_flight=1)) as engine:
        encode, lengths = engine._engine.encode, list[int]()  # type: ignore[attr-defined]

        def noted(prompt: Any, *arguments: Any) -> Any:
            lengths.append(len(prompt["prompt_token_ids"]))
            return encode(prompt, *arguments)

        engine._engine.encode = noted  # type: ignore[attr-defined]
        first, _ = ask_all(engine, [engine.pool(ids) for ids in prompts])
    assert lengths[1::2] == [len(ids) for ids in prompts]
    assert len(prompts[0]) > BLOCK
    assert (first.cached_tokens, first.computed_tokens) == (0, len(prompts[0]))


def test_a_prompt_without_the_gates_tokens_is_rejected_and_a_template_without_them_refused(tmp_path: Path) -> None:
    item = renderer("tiny-qrm")
    ids = ids_of(item.render([request(user("Hi"), to="Ho")])[0])
    assert reason_of(item.from_rendered(ids)) is None
    assert reason_of(item.from_rendered(ids[:3])) is Reason.TEMPLATE_REFUSED
    template = (BUILT_IN / "qrm" / "chat_template.jinja").read_text().replace("\\n\\n", "\\n")
    with pytest.raises(ModelError, match=r"lacks tokens that every prompt.*read at .*'<\|start_header_id\|>'"):
        Renderer(resolve_model(ModelSettings(model="tiny-qrm", chat_template=template), RenderSettings()), RenderSettings())


def test_a_gated_conversation_cant_lose_its_beginning() -> None:
    with pytest.raises(SettingsError, match="cut-left: the gate of tiny-armorm's head"):
        reward_model("tiny-armorm", too_long=TooLong.CUT_LEFT)
    assert reward_model("tiny-grm", too_long=TooLong.CUT_LEFT).task is Task.EMBED


class Payload:
    def __reduce__(self) -> Any:
        return print, ("code of a checkpoint was run",)


def changed(folder: Path, name: str) -> tuple[Path, dict[str, torch.Tensor]]:
    """A copy of a built-in model, and its tensors."""
    copy = folder / f"tiny-{name}"
    shutil.copytree(BUILT_IN / name, copy)
    return copy, load_file(copy / "model.safetensors")


def load(folder: Path) -> None:
    model = reward_model(folder)
    assert isinstance(model.family, PooledHead)
    model.family.load(model.checkpoint)


def test_files_of_torch_are_read_as_weights_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = changed(tmp_path, "ldl")
    before = reward_model(folder).hashes
    (folder / "gating_layer.pt").write_bytes(pickle.dumps(Payload(), protocol=2))
    assert reward_model(folder).hashes != before
    with pytest.raises(ModelError, match=r"gating_layer\.pt can't be read as weights alone"):
        load(folder)
    assert capsys.readouterr().out == ""
    (folder / "gating_layer.pt").unlink()
    with pytest.raises(ModelError, match="ldl"):
        load(folder)


def test_a_head_that_is_quantised_or_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder, tensors = changed(tmp_path, "inf-orm")
    for head, message in (
        ({"score.0.weight": tensors["score.0.weight"].to(torch.int8)}, r"score\.0\.weight is torch\.int8"),
        ({"score.0.weight": tensors["score.0.weight"].to(torch.float8_e4m3fn)}, r"score\.0\.weight is torch\.float8_e4m3fn"),
        ({"score.2.weight": tensors["score.2.weight"][:, :5].contiguous()}, "its tensors aren't the head of inf-orm"),
        ({f"score.2.{part}": tensors[f"score.0.{part}"].clone() for part in ("weight", "bias")}, "its head has 64 outputs"),
    ):
        save_file({**tensors, **head}, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelError, match=message):
            load(folder)
    save_file({name: tensors[name] for name in tensors if "score." not in name}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"has no score\., of the head of inf-orm"):
        load(folder)


def test_a_head_whose_bias_is_in_a_file_that_wasnt_fetched_is_refused(tmp_path: Path) -> None:
    folder, tensors = changed(tmp_path, "grm")
    bias = "v_head.summary.2.bias"
    places = {name: "second.safetensors" if name == bias else "model.safetensors" for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    load(folder)
    save_file({name: tensors[name] for name in tensors if name != bias}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"has no file with {bias}, of the head of grm"):
        load(folder)


def test_arguments_that_load_the_body_are_not_the_users() -> None:
    settings = EngineSettings(engine_args={"load_format": "dummy"})
    with pytest.raises(SettingsError, match="'load_format': the head of this model is loaded apart from it; leave it out"):
        engine_arguments(Task.EMBED, settings, on_cpu=True, left_out=("v_head.",))


def test_two_heads_on_one_body_share_no_engine() -> None:
    names = {engine_identity(reward_model(f"tiny-{name}"), EngineSettings()) for name in HEADS}
    assert len(names) == len(HEADS)
    assert {model.labels for model in map(reward_model, ("tiny-armorm", "tiny-qrm", "tiny-grm"))} == {20, 6, 1}


def test_a_rehearsal_gives_the_named_outputs() -> None:
    model = reward_model("tiny-qrm")
    engine = FakeEngine(model.labels, model.max_model_len)
    rendered = renderer("tiny-qrm").render([request(user("Hi"), to=["Ho", "He"])])
    ((first, second),) = HeadScorer(model.family, model.weights, engine).score_block(rendered)
    assert first.reward == first.scores["score"] != second.reward
    assert tuple(first.scores) == families()["qrm"].outputs()
