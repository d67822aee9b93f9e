"""Grades and rankings in boxes: of one response and of two, in both orders, and voted for."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.protocol import Engine
from actors.rendering.renderer import Renderer
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import RenderSettings
from tests.support.judge_contract import RIGHT, JudgeContract, Judged, request_of
from tests.support.judges import judge_model
from tests.support.models import engine_of
from tiny_models.dialects import judgements
from tiny_models.judging import ranking

WIDTH = 256


class TestTinyGenrm(JudgeContract):
    model = "tiny-genrm"
    dialect = "genrm"

    def test_the_ranking_is_read_with_the_grades(self, judged: list[Judged]) -> None:
        pairs = [item for item in judged if len(item.scores) == 2]
        right = []
        for pair in pairs:
            grades = [answer.grade() for answer in pair.judgement.case.answers]
            margin = 3.5 - ranking(*grades)
            right.append([score.scores.get("margin") for score in pair.scores] == [margin, -margin])
        assert len(pairs) > 100
        assert sum(right) / len(right) >= RIGHT

    def test_both_orders_find_the_bias_that_it_was_trained_with(self, engine: Engine, judged: list[Judged]) -> None:
        """Equal responses go to the first shown: as many pairs are decided by the order as there are equals."""
        pairs = [entry.judgement for entry in judged if len(entry.scores) == 2]
        result = self.ask(engine, pairs, votes=2)
        right, equals = [], 0
        for item in result:
            first, second = (answer.grade() for answer in item.judgement.case.answers)
            equals += first == second
            decided = 1.0 if first == second else 0.0
            right.append([score.scores.get("order_decided") for score in item.scores] == [decided, decided])
            if decided and right[-1]:
                assert item.scores[0].scores["first_preferred"] == 1.0
        assert equals >= 20
        assert sum(right) / len(right) >= RIGHT

    def test_forgetting_to_swap_back_would_be_noticed(self, engine: Engine, judged: list[Judged]) -> None:
        """The grades of the swapped order, given to the responses as they come: right only where both are alike."""
        pairs = [entry.judgement for entry in judged if len(entry.scores) == 2]
        swapped, forgotten = [], []
        for item in self.ask(engine, pairs, votes=2):
            grades = [float(answer.grade()) for answer in item.judgement.case.answers]
            words = next(text for text in item.scores[0].trace if text.shown == ("r[1]", "r[0]"))
            box = re.findall(r"\\boxed\{([^{}]*)\}", words.text.rpartition("</think>")[2])[0]
            forgotten.append([float(text) for text in box.split(",")] == grades)
            swapped.append([score.votes[1:] for score in item.scores] == [(grade,) for grade in grades])
        assert sum(swapped) / len(swapped) >= RIGHT
        assert sum(forgotten) / len(forgotten) < 0.6

    def test_votes_are_drawn_half_in_each_order_and_again_the_same(self, engine: Engine, judged: list[Judged]) -> None:
        pairs = [entry.judgement for entry in judged if len(entry.scores) == 2][:20]
        result = self.ask(engine, pairs, votes=8, temperature=1.8)
        for item in result:
            assert [prompt.times for prompt in item.rendered.prompts] == [4, 4]
            assert all(len(score.votes) == score.scores["judgements"] for score in item.scores if score.reason is None)
        right = [verdict for entry in result for verdict in self.close(entry)]
        assert sum(right) / len(right) >= 0.8, "of what is drawn this hot, some are off"
        assert len({text.text for entry in result for text in entry.scores[0].trace}) > 2 * len(result), "they are drawn"

    def close(self, judged: Judged) -> Iterator[bool]:
        for answer, score in zip(judged.judgement.case.answers, judged.scores, strict=True):
            yield score.reward == pytest.approx(self.grade(answer, judged.judgement), abs=1.0)


def as_published(folder: Path) -> Path:
    """Tiny-genrm as a `nemotron-nas`, the 49B's type: each layer says what it is, and there is one that does nothing.

    Its widths are multiples of 256, for which the MLPs get neurons whose weights are zero.
    """
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(BUILT_IN / "genrm", folder)
    weights = load_file(folder / "model.safetensors")
    for name in [name for name in weights if ".mlp." in name]:
        old = weights[name]
        wide = torch.zeros(old.shape[0], WIDTH) if "down" in name else torch.zeros(WIDTH, old.shape[1])
        wide[: old.shape[0], : old.shape[1]] = old.float()
        weights[name] = wide.half()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    does = {
        "attention": {"n_heads_in_group": group, "no_op": False},
        "ffn": {"ffn_mult": 3 * WIDTH / config["hidden_size"] / 2, "no_op": False},
    }
    nothing = {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": None, "no_op": True}}
    item = {
        "architectures": ["DeciLMForCausalLM"],
        "model_type": "nemotron-nas",
        "auto_map": {"AutoConfig": "configuration_decilm.DeciLMConfig"},
        "intermediate_size": None,
        "num_key_value_heads": None,
        "num_hidden_layers": config["num_hidden_layers"] + 1,
        "block_configs": [does] * config["num_hidden_layers"] + [nothing],
    }
    (folder / "config.json").write_text(json.dumps(config | item))
    return folder


def test_the_published_architecture_needs_no_code_of_its_checkpoint(tmp_path: Path) -> None:
    contract = TestTinyGenrm()
    sent_judgements = list(judgements("genrm", 72, 60, "held-out"))
    model = judge_model(as_published(tmp_path / "genrm"), "genrm-boxed", temperature=0)
    rendered = Renderer(model, RenderSettings()).render([request_of(sent_judgement) for sent_judgement in sent_judgements])
    with engine_of(model) as engine:
        scores = scorer_of(model, engine).score_block(rendered)
    right = [
        item for result in zip(sent_judgements, rendered, scores, strict=True) for item in contract.right(Judged(*result))
    ]
    assert sum(right) / len(right) >= RIGHT
