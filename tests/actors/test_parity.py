"""The built-in models on vLLM give the numbers of transformers and know the answers; a wrong reading would be noticed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from actors.checkpoint import BUILT_IN
from actors.engine import Engine
from actors.models import RewardModel
from actors.records import Score, ScoreRequest
from actors.scorer import Scorer
from actors.self_test import self_test
from tests.models import (
    ATTRIBUTES,
    FIRST_LOGIT,
    SCALAR,
    as_dicts,
    built_in_engine,
    from_dicts,
    renderer,
    request,
    reward_model,
    user,
)
from tiny_models.synthetic import pairs
from tiny_models.tasks import WORDS
from tiny_models.tokenizer import nemo_text

TOLERANCE = 1e-4
RAW = "outputs: raw, without an activation"
NOTICED = 1e-2
OUTPUTS = (
    "quality",
    "toxicity",
    "humor",
    "creativity",
    "helpfulness",
    "correctness",
    "coherence",
    "complexity",
    "verbosity",
)
CARD = {"helpfulness": 0.3, "correctness": 0.74, "coherence": 0.46, "complexity": 0.47, "verbosity": -0.33}

Numbers = dict[str, float]
"""The named outputs of a model, and the reward."""


@dataclass(frozen=True)
class Reference:
    """A model as its authors read it: transformers in float32, and the head's stored bias."""

    name: str
    _logits: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)

    @cached_property
    def _tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(BUILT_IN / self.name)

    @cached_property
    def _model(self) -> Any:
        kind = AutoModelForCausalLM if self.name == "first-logit" else AutoModelForSequenceClassification
        return kind.from_pretrained(BUILT_IN / self.name, dtype=torch.float32).eval()

    @cached_property
    def bias(self) -> torch.Tensor:
        """The stored bias, which the class of transformers leaves out; zero if there is none."""
        with safe_open(BUILT_IN / self.name / "model.safetensors", "pt") as weights:
            if "score.bias" in weights.keys():  # noqa: SIM118  not a mapping
                return weights.get_tensor("score.bias").float()
        return torch.zeros(())

    def ids(self, asked: ScoreRequest) -> list[int]:
        messages = as_dicts(asked)
        if self.name != "attributes":
            return list(self._tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
        return list(self._tokenizer(nemo_text(messages), add_special_tokens=False)["input_ids"])

    def with_another_beginning(self, ids: Sequence[int]) -> list[int]:
        return [self._tokenizer.bos_token_id, *ids]

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """The head's outputs at the last token; remembered, since many wrong readings begin with them."""
        return self.all_logits(ids)[:1] if self.name == "first-logit" else self.all_logits(ids)

    def all_logits(self, ids: Sequence[int]) -> torch.Tensor:
        """The head's outputs at the last token, or those of all tokens that a language model could say next."""
        key = tuple(ids)
        if key not in self._logits:
            with torch.inference_mode():
                logits = self._model(torch.tensor([key])).logits[0].float()
            self._logits[key] = logits[-1] if self.name == "first-logit" else logits + self.bias
        return self._logits[key]

    def numbers(self, logits: torch.Tensor) -> Numbers:
        """The outputs by name, and the reward of the model card."""
        values = logits.tolist()
        if self.name != "attributes":
            return {"score": values[0], "reward": values[0]}
        named = dict(zip(OUTPUTS, values, strict=True))
        read = {name: named[name] for name in CARD}
        return read | {"reward": sum(weight * named[name] for name, weight in CARD.items())}


@dataclass(frozen=True)
class Subject:
    """A model under test, its reference, and what both say of many conversations."""

    model: RewardModel
    reference: Reference
    scorer: Scorer
    asked: list[ScoreRequest]
    expected: list[Numbers]
    found: list[Numbers]

    def score(self, requests: Sequence[ScoreRequest]) -> list[Numbers]:
        """Through the renderer and the engine, in one block."""
        rendered = renderer(self.model.model).render(requests)
        return [_numbers(score) for (score,) in self.scorer.score_block(rendered)]


def _numbers(score: Score) -> Numbers:
    assert score.reason is None
    assert score.reward is not None
    return {**score.scores, "reward": score.reward}


def conversations() -> list[ScoreRequest]:
    """Short ones that the models were trained for, and long ones of random words and letters, mixed."""
    rng = Random(3)
    made = [from_dicts(pair.context, rng.choice([pair.chosen, pair.rejected])) for pair in pairs(21, 70, "held-out")]
    for number in range(50):
        length = 25 * (number + 1)
        words = [rng.choice([*WORDS, str(rng.randrange(100)), "q", "Ärger", "数", "\n"]) for _ in range(length)]
        cut = rng.randrange(length)
        made.append(request(user(" ".join(words[:cut]) + "?"), to=" ".join(words[cut:])))
    rng.shuffle(made)
    return made


@pytest.fixture(scope="module", params=[ATTRIBUTES, SCALAR, FIRST_LOGIT])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Each of them; of the engines, only one is alive at a time."""
    with built_in_engine(request.param) as engine:
        yield look_at(request.param, engine)


def look_at(name: str, engine: Engine) -> Subject:
    torch.set_num_threads(1)  # for models this small, threads that wait for each other are slower than one
    model = reward_model(name)
    reference = Reference(name.removeprefix("tiny-"))
    asked = conversations()
    expected = [reference.numbers(reference.logits(reference.ids(one))) for one in asked]
    made = Subject(model, reference, Scorer(model.family, model.weights, engine), asked, expected, [])
    made.found.extend(made.score(asked))
    return made


def difference(expected: Sequence[Numbers], found: Sequence[Numbers]) -> float:
    """The largest of any number of any conversation."""
    return max(
        abs(one[name] - other[name]) if one.keys() == other.keys() else float("inf")
        for one, other in zip(expected, found, strict=True)
        for name in one
    )


def test_a_mixed_batch_gives_the_numbers_of_transformers(subject: Subject) -> None:
    found = difference(subject.expected, subject.found)
    print(f"largest difference over {len(subject.asked)} conversations: {found:.1e}")  # pytest -rP shows it
    assert found <= TOLERANCE
    lengths = [len(subject.reference.ids(one)) for one in subject.asked]
    assert len(lengths) >= 100
    assert min(lengths) < 100
    assert max(lengths) > 1400


def test_one_by_one_gives_the_same(subject: Subject) -> None:
    alone = [subject.score([one])[0] for one in subject.asked[:30]]
    assert difference(subject.expected[:30], alone) <= TOLERANCE


def test_conversations_get_different_numbers(subject: Subject) -> None:
    """Else everything would be equal to everything."""
    for name in subject.expected[0]:
        values = [numbers[name] for numbers in subject.expected]
        assert max(values) - min(values) > 10 * NOTICED


Sabotage = Callable[[Reference, list[int]], torch.Tensor]
"""A wrong reading of a prompt."""


def swapped(at: int) -> Sabotage:
    def swap(reference: Reference, ids: list[int]) -> torch.Tensor:
        logits = reference.logits(ids)
        order = list(range(len(logits)))
        order[at], order[at + 1] = order[at + 1], order[at]
        return logits[order]

    return swap


ANY_MODEL: dict[str, Sabotage] = {
    "a sigmoid": lambda reference, ids: reference.logits(ids).sigmoid(),
    "a second beginning": lambda reference, ids: reference.logits(reference.with_another_beginning(ids)),
    "one token too early": lambda reference, ids: reference.logits(ids[:-1]),
    "the last token twice": lambda reference, ids: reference.logits([*ids, ids[-1]]),
}
NINE_OUTPUTS: dict[str, Sabotage] = {
    "a softmax": lambda reference, ids: reference.logits(ids).softmax(dim=0),
    "no bias": lambda reference, ids: reference.logits(ids) - reference.bias,
    **{f"{OUTPUTS[at]} and {OUTPUTS[at + 1]} swapped": swapped(at) for at in range(3, 8)},
}


FIRST_OF_MANY: dict[str, Sabotage] = {
    "another id": lambda reference, ids: reference.all_logits(ids)[1:2],
    "a log-probability": lambda reference, ids: reference.all_logits(ids).log_softmax(dim=0)[:1],
    "a probability": lambda reference, ids: reference.all_logits(ids).softmax(dim=0)[:1],
}


@pytest.mark.parametrize("wrong", ANY_MODEL.values(), ids=ANY_MODEL.keys())
def test_a_wrong_reading_would_be_noticed(subject: Subject, wrong: Sabotage) -> None:
    assert sabotaged(subject, wrong) > NOTICED


@pytest.mark.parametrize("subject", [ATTRIBUTES], indirect=True)
@pytest.mark.parametrize("wrong", NINE_OUTPUTS.values(), ids=NINE_OUTPUTS.keys())
def test_a_wrong_reading_of_nine_outputs_would_be_noticed(subject: Subject, wrong: Sabotage) -> None:
    assert sabotaged(subject, wrong) > NOTICED


@pytest.mark.parametrize("subject", [FIRST_LOGIT], indirect=True)
@pytest.mark.parametrize("wrong", FIRST_OF_MANY.values(), ids=FIRST_OF_MANY.keys())
def test_a_wrong_reading_of_a_language_model_would_be_noticed(subject: Subject, wrong: Sabotage) -> None:
    assert sabotaged(subject, wrong) > NOTICED


@pytest.mark.parametrize("subject", [FIRST_LOGIT], indirect=True)
@pytest.mark.parametrize("wrong", ["another id", "a turn too early"])
def test_another_place_knows_nothing(subject: Subject, wrong: str) -> None:
    """Another logit, or the right one where the answer isn't read yet, is right as often as a coin."""
    reference, held_out = subject.reference, list(pairs(seed=32, n=200, split="held-out"))

    def reward(context: Sequence[Mapping[str, str]], response: str) -> float:
        ids = reference.ids(from_dicts(context, response))
        if wrong == "another id":
            return float(reference.all_logits(ids)[1])
        return float(reference.logits(ids[: -len(response.split()) - 1])[0])

    right = [reward(pair.context, pair.chosen) > reward(pair.context, pair.rejected) for pair in held_out]
    assert 0.3 < sum(right) / len(right) < 0.7


def test_a_model_passes_its_self_test(subject: Subject) -> None:
    passed: list[str] = []
    self_test(subject.model, subject.scorer._engine, passed.append)
    assert passed[1:3] == [f"head: {subject.model.labels} finite output{'s' * (subject.model.labels > 1)}", RAW]
    known = subject.model.family.knows(subject.model.model)
    assert known is not None
    assert len(passed) == 3 + len(known.golden) > 3


def sabotaged(subject: Subject, wrong: Sabotage) -> float:
    """How far what was found is from a reference that is read wrongly."""
    asked, found = subject.asked[:10], subject.found[:10]
    reference = subject.reference
    return difference([reference.numbers(wrong(reference, reference.ids(one))) for one in asked], found)


def test_the_right_answer_to_unseen_questions_gets_the_higher_reward(subject: Subject) -> None:
    held_out = list(pairs(seed=31, n=300, split="held-out"))
    rewards = subject.score(
        [from_dicts(pair.context, response) for pair in held_out for response in (pair.chosen, pair.rejected)]
    )
    right = [chosen["reward"] > rejected["reward"] for chosen, rejected in zip(rewards[::2], rewards[1::2], strict=True)]
    accuracy = sum(right) / len(right)
    print(f"right on {accuracy:.1%} of {len(right)} held-out pairs")
    assert accuracy >= 0.95
