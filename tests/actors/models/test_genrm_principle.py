"""Yes less No where a judge gave its judgement: which token, where, and how several principles become one reward."""

from collections.abc import Iterator, Sequence

import pytest
import torch

from actors.engine.protocol import Engine
from actors.records import RenderedRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import ModelSettings, ReadSettings, RenderSettings
from tests.support.contract import tokenizer, transformers_model
from tests.support.judge_contract import RIGHT, JudgeContract, Judged, request_of
from tiny_models.dialects import Judgement
from tiny_models.judging import Principle

TOLERANCE = 1e-3
SEVERAL = ReadSettings(principles={"right": "correctness", "short": "brevity"})


class TestTinyGenrmPrinciple(JudgeContract):
    model = "tiny-genrm-principle"
    dialect = "genrm-principle"

    def right(self, judged: Judged) -> Iterator[bool]:
        (answer,), (score,) = judged.judgement.case.answers, judged.scores
        assert judged.judgement.principle is not None
        yield score.reward is not None and (score.reward > 0) == answer.fulfils(judged.judgement.principle)

    @pytest.fixture(scope="class")
    @classmethod
    def logprobs(cls, judged: list[Judged]) -> list[torch.Tensor]:
        return by_transformers(judged[:80])

    def differences(self, logprobs: list[torch.Tensor], at: int, yes: str, no: str) -> list[float]:
        ids = tokenizer("genrm-principle").convert_tokens_to_ids
        return [float(logprob[at, ids(yes)] - logprob[at, ids(no)]) for logprob in logprobs]

    def test_the_reward_is_transformers_difference_of_log_probabilities(
        self, judged: list[Judged], logprobs: list[torch.Tensor]
    ) -> None:
        expected = self.differences(logprobs, -1, "ĠYes", "ĠNo")
        result = [item.scores[0].reward or 0.0 for item in judged[: len(expected)]]
        largest = max(abs(item - other) for item, other in zip(expected, result, strict=True))
        print(f"{self.model}: largest difference over {len(result)} judgements: {largest:.1e}")
        assert largest <= TOLERANCE
        assert max(result) - min(result) > 5

    @pytest.mark.parametrize(("at", "yes", "no"), [(-1, "ĠNo", "ĠYes"), (-2, "ĠYes", "ĠNo"), (0, "ĠYes", "ĠNo")])
    def test_other_tokens_and_other_places_would_be_noticed(
        self, judged: list[Judged], logprobs: list[torch.Tensor], at: int, yes: str, no: str
    ) -> None:
        """No less Yes, a position early, and the text's first token."""
        wrong = self.differences(logprobs, at, yes, no)
        right = [
            (reward > 0) == item.judgement.case.answers[0].fulfils(item.judgement.principle)
            for reward, item in zip(wrong, judged, strict=False)
            if item.judgement.principle is not None
        ]
        off = [abs(reward - (item.scores[0].reward or 0.0)) for reward, item in zip(wrong, judged, strict=False)]
        assert min(max(off), 1.0) > 100 * TOLERANCE
        assert sum(right) / len(right) < 0.8

    def test_reading_what_it_thought_would_be_noticed(self, judged: list[Judged]) -> None:
        """The first of its judgements is a draft, always the same, in its thinking."""
        entry = tokenizer("genrm-principle")
        yes, no = entry.convert_tokens_to_ids(["ĠYes", "ĠNo"])
        drafts = []
        for item, tensor in zip(judged, by_transformers(judged[:80]), strict=False):
            input_ids = entry(item.scores[0].trace[0].text, add_special_tokens=False)["input_ids"]
            first = next(index for index, token in enumerate(input_ids) if token in (yes, no))
            assert first < len(input_ids) - 1, "there are two"
            drafts.append(float(tensor[first, yes] - tensor[first, no]))
        right = [
            (draft > 0) == member.judgement.case.answers[0].fulfils(member.judgement.principle)
            for draft, member in zip(drafts, judged, strict=False)
            if member.judgement.principle is not None
        ]
        assert sum(right) / len(right) < 0.8

    def test_several_principles_are_asked_about_each_response(self, engine: Engine, judged: list[Judged]) -> None:
        judgements = [item.judgement for item in judged[:100]]
        result = _by_two(self, engine, judgements)
        right = [
            (item.scores[0].scores[name] > 0) == answer.fulfils(Principle(principle))
            for item in result
            for answer in item.judgement.case.answers
            for name, principle in (("right", "correctness"), ("short", "brevity"))
            if item.scores[0].reason is None
        ]
        assert len(right) >= 180
        assert sum(right) / len(right) >= RIGHT

    def test_the_principles_share_a_prefix(self, engine: Engine) -> None:
        """The principle is last, so that the conversation is paid once: blocks on CPU have 128 tokens."""
        long = next(entry for entry in self.held_out())
        rendered = _by_two_rendered(self, [long])
        item, other = rendered[0].prompts
        shared = next(index for index, (a, b) in enumerate(zip(item.ids, other.ids, strict=False)) if a != b)
        words = len(tokenizer("genrm-principle")("correctness brevity", add_special_tokens=False)["input_ids"])
        assert shared >= min(len(item.ids), len(other.ids)) - words - 6


def _by_two_model(contract: JudgeContract) -> RewardModel:
    return resolve_model(ModelSettings(model=contract.model, read=SEVERAL, judge=contract.judge), RenderSettings())


def _by_two_rendered(contract: JudgeContract, judgements: Sequence[Judgement]) -> list[RenderedRequest]:
    return Renderer(_by_two_model(contract), RenderSettings()).render([request_of(item) for item in judgements])


def _by_two(contract: JudgeContract, engine: Engine, judgements: Sequence[Judgement]) -> list[Judged]:
    rendered = _by_two_rendered(contract, judgements)
    scores = scorer_of(_by_two_model(contract), engine).score_block(rendered)
    return [Judged(*result) for result in zip(judgements, rendered, scores, strict=True)]


def by_transformers(judged: Sequence[Judged]) -> list[torch.Tensor]:
    """In float32: log-probabilities of all tokens at each place of the texts that vLLM wrote, [tokens, vocabulary]."""
    entry, model = tokenizer("genrm-principle"), transformers_model("genrm-principle", "AutoModelForCausalLM")
    result = []
    with torch.inference_mode():
        for item in judged:
            ids = list(item.rendered.prompts[0].ids)
            input_ids = entry(item.scores[0].trace[0].text, add_special_tokens=False)["input_ids"]
            logits = model(torch.tensor([[*ids, *input_ids]])).logits[0, len(ids) - 1 : -1]
            result.append(logits.log_softmax(dim=-1))
    return result
