"""Tests that every family's tiny checkpoint must pass, on real vLLM: the numbers of its authors, and right answers.

A test subclasses `Contract`, and implements the authors' way without code of the product: `ids` renders, `outputs` runs the
model, `numbers` reads it. Everything heavy is imported where it is used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from random import Random
from typing import Any, ClassVar

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.protocol import Engine
from actors.records import Score, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.head_scorer import HeadScorer
from actors.scorers.self_test import self_test
from actors.settings.replica import AS_PUBLISHED, EngineSettings, ModelSettings, ReadSettings, RenderSettings
from tests.support.models import as_dicts, engine_of, from_dicts, request, user
from tiny_models.synthetic import pairs
from tiny_models.tasks import WORDS

TOLERANCE = 1e-4
NOTICED = 1e-2
RAW = "outputs: raw, without an activation"

Numbers = dict[str, float]
"""The named outputs of a model, and the reward."""
Outputs = Sequence[Any]
"""A torch tensor for each prompt about a response: the head's raw outputs at each token, [tokens, labels]."""
Wrong = Callable[["Contract", Sequence[list[int]]], Numbers]
"""A wrong reading of the prompts about a response."""


def conversations() -> list[ScoreRequest]:
    """Short ones that the models were trained for, and long ones of random words and letters, mixed."""
    rng = Random(3)
    requests = [from_dicts(pair.context, rng.choice([pair.chosen, pair.rejected])) for pair in pairs(21, 25, "held-out")]
    for number in range(25):
        length = 50 * (number + 1)
        words = [rng.choice([*WORDS, str(rng.randrange(100)), "q", "Ärger", "数", "\n"]) for _ in range(length)]
        cut = rng.randrange(length)
        requests.append(request(user(" ".join(words[:cut]) + "?"), to=" ".join(words[cut:])))
    rng.shuffle(requests)
    return requests


@cache
def tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BUILT_IN / name)


@cache
def transformers_model(name: str, kind: str) -> Any:
    """A built-in model as transformers loads it, in float32."""
    import torch
    import transformers

    torch.set_num_threads(1)  # for models this small, threads that wait for each other are slower than one
    return getattr(transformers, kind).from_pretrained(BUILT_IN / name, dtype=torch.float32).eval()


_LAYOUTS = {1: "one part", 2: "two tensor-parallel parts"}


class Contract:
    """The tests. One engine is alive at a time, first as a whole, then in two tensor-parallel parts."""

    model: ClassVar[str]
    family: ClassVar[str | None] = None
    read: ClassVar[ReadSettings] = AS_PUBLISHED
    wrong: ClassVar[Mapping[str, Wrong]] = {}
    """Readings that must be noticed, beside those of any model."""
    subtle: ClassVar[frozenset[str]] = frozenset()
    """Wrong readings that the self-test's conversations don't show, but the comparison with the authors' numbers does.

    For any model these also are a second beginning-of-text token, which the self-test counts, and the last token twice.
    """
    layouts: ClassVar[tuple[int, ...]] = (1, 2)
    """Numbers of tensor-parallel parts: 2 as well, where no other test runs the same class of vLLM's in two parts."""
    judged_by: ClassVar[str] = "reward"
    """The name of the number that is higher for right responses than for wrong ones."""

    # How the authors do it.

    def ids(self, score_request: ScoreRequest) -> Sequence[list[int]]:
        """The prompts about the response of a request."""
        return [list(self.tokenizer.apply_chat_template(as_dicts(score_request), tokenize=True, return_dict=False))]

    def outputs(self, ids: Sequence[int]) -> Any:
        """The head's raw outputs at each token of a prompt, by transformers in float32: [tokens, labels]."""
        raise NotImplementedError

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        """The numbers read from the outputs of all prompts about a response."""
        ((value,),) = (each[-1].tolist() for each in outputs)
        return {"score": value, "reward": value}

    def held_out(self) -> Iterator[tuple[ScoreRequest, ScoreRequest]]:
        """Right responses and wrong ones to questions that training never saw."""
        for pair in pairs(seed=31, n=300, split="held-out"):
            yield from_dicts(pair.context, pair.chosen), from_dicts(pair.context, pair.rejected)

    def compared_requests(self) -> list[ScoreRequest]:
        """The requests whose numbers are compared with the authors'."""
        return conversations()

    # What is shared.

    @property
    def name(self) -> str:
        return self.model.removeprefix("tiny-")

    @property
    def tokenizer(self) -> Any:
        return tokenizer(self.name)

    def every_wrong(self) -> Mapping[str, Wrong]:
        return {**ANY_MODEL, **self.wrong}

    def resolved(self) -> RewardModel:
        return _resolved(type(self))  # type: ignore[arg-type]  # a class is hashable

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Each test that meets the engine, directly or by what is found on it, once for each layout."""
        if "engine" in metafunc.fixturenames:
            layouts = [
                pytest.param(parts, id=_LAYOUTS[parts], marks=[pytest.mark.long] if parts > 1 else [])
                for parts in self.layouts
            ]
            metafunc.parametrize("engine", layouts, indirect=True, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, request: pytest.FixtureRequest) -> Iterator[Engine]:
        with pytest.MonkeyPatch.context() as patch:
            if request.param > 1:  # what several workers share the cores by is the engine's own doing
                patch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
            with engine_of(cls().resolved(), EngineSettings(tensor_parallel=request.param)) as engine:
                yield engine

    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls) -> list[Numbers]:
        contract = cls()
        return [contract.authors(contract.ids(score_request)) for score_request in contract.compared_requests()]

    @pytest.fixture(scope="class")
    @classmethod
    def readings(cls, engine: Engine) -> list[Numbers]:
        """In one block."""
        contract = cls()
        return contract.scored(engine, contract.compared_requests())

    def authors(self, prompts: Sequence[list[int]]) -> Numbers:
        import torch

        with torch.inference_mode():
            return self.numbers(prompts, [self.computed(ids) for ids in prompts])

    def computed(self, ids: Sequence[int]) -> Any:
        """The `outputs`, which are kept for the last prompts: all wrong readings begin with the same."""
        return _computed(type(self), tuple(ids))  # type: ignore[arg-type]

    def scored(self, engine: Engine, requests: Sequence[ScoreRequest]) -> list[Numbers]:
        """By the product: renderer, scorer and engine."""
        model = self.resolved()
        rendered = Renderer(model, RenderSettings()).render(requests)
        return [_numbers(score) for (score,) in HeadScorer(model.family, model.weights, engine).score_block(rendered)]

    # The tests.

    def test_a_mixed_batch_gives_the_numbers_of_transformers(self, expected: list[Numbers], readings: list[Numbers]) -> None:
        print(f"{self.model}: largest difference over {len(readings)} conversations: {difference(expected, readings):.1e}")
        assert difference(expected, readings) <= TOLERANCE
        lengths = [max(map(len, self.ids(score_request))) for score_request in self.compared_requests()]
        assert len(lengths) >= 50
        assert max(lengths) > 10 * min(lengths)

    def test_one_by_one_gives_the_same(self, engine: Engine, expected: list[Numbers]) -> None:
        alone = [self.scored(engine, [score_request])[0] for score_request in self.compared_requests()[:10]]
        assert difference(expected[:10], alone) <= TOLERANCE

    def test_conversations_get_different_numbers(self, expected: list[Numbers]) -> None:
        """Else everything would be equal to everything."""
        for name in set.intersection(*map(set, expected)):
            values = [numbers[name] for numbers in expected]
            assert max(values) - min(values) > 10 * NOTICED

    def test_a_wrong_reading_would_be_noticed(self, readings: list[Numbers]) -> None:
        import torch

        read: dict[str, list[Numbers]] = {name: [] for name in self.every_wrong()}
        with torch.inference_mode():
            for score_request in self.compared_requests()[:10]:
                prompts = self.ids(score_request)
                for name, wrong in self.every_wrong().items():
                    read[name].append(wrong(self, prompts))
        for name, numbers in read.items():
            assert difference(numbers, readings[:10]) > NOTICED, name

    def test_a_wrong_reading_is_further_off_than_the_self_test_allows(self) -> None:
        """In the conversations whose reward is known, which the next test shows to pass when they are read rightly."""
        import torch

        card = self.resolved().family.knows(self.model)
        assert card is not None
        off: dict[str, list[float]] = {name: [] for name in self.every_wrong()}
        with torch.inference_mode():
            for golden in card.golden:
                prompts = self.ids(golden.request)
                for name, wrong in self.every_wrong().items():
                    number = wrong(self, prompts)[self.judged_by]
                    off[name].append(abs(number - golden.rewards[0]) - golden.tolerance)
        for name, distances in off.items():
            assert max(distances) > 0 or name in {"a second beginning", "the last token twice", *self.subtle}, name

    def test_it_passes_its_self_test(self, engine: Engine) -> None:
        passed: list[str] = []
        model = self.resolved()
        self_test(model, engine, passed.append)
        assert passed[1:3] == [f"head: {model.labels} finite output{'s' * (model.labels > 1)}", RAW]
        card = model.family.knows(model.model)
        assert card is not None
        positions_check = [
            f"positions: each token has its own outputs (model runner {engine.runner})"
        ] * model.task.every_position
        assert passed[3 : 3 + len(positions_check)] == positions_check
        assert len(passed) == 3 + len(positions_check) + len(card.golden) > 3

    def test_right_answers_to_unseen_questions_get_the_higher_number(self, engine: Engine) -> None:
        held_out = list(self.held_out())
        rewards = [
            numbers[self.judged_by]
            for numbers in self.scored(engine, [score_request for pair in held_out for score_request in pair])
        ]
        right = [chosen > rejected for chosen, rejected in zip(rewards[::2], rewards[1::2], strict=True)]
        print(f"{self.model}: right on {sum(right) / len(right):.1%} of {len(right)} held-out pairs")
        assert len(right) >= 100
        assert sum(right) / len(right) >= 0.95


@lru_cache(maxsize=16)
def _computed(contract: type[Contract], ids: tuple[int, ...]) -> Any:
    return contract().outputs(list(ids))


@cache
def _resolved(contract: type[Contract]) -> RewardModel:
    return resolve_model(ModelSettings(model=contract.model, family=contract.family, read=contract.read), RenderSettings())


def _numbers(score: Score) -> Numbers:
    assert score.reason is None
    assert score.reward is not None
    steps = {f"step[{index}]": step for index, step in enumerate(score.steps)}
    return {**score.scores, **steps, "reward": score.reward}


def difference(expected: Sequence[Numbers], actual: Sequence[Numbers]) -> float:
    """The largest of any number of any conversation."""
    return max(
        abs(expected_numbers[name] - found_numbers[name])
        if expected_numbers.keys() == found_numbers.keys()
        else float("inf")
        for expected_numbers, found_numbers in zip(expected, actual, strict=True)
        for name in expected_numbers
    )


def reading(change: Callable[[Any], Any]) -> Wrong:
    """The right prompts, whose outputs are changed before they are read."""
    return lambda contract, prompts: contract.numbers(prompts, [change(contract.computed(ids)) for ids in prompts])


def asking(change: Callable[[Contract, list[int]], list[int]]) -> Wrong:
    """Other prompts, rightly read."""

    def wrong(contract: Contract, prompts: Sequence[list[int]]) -> Numbers:
        changed = [change(contract, ids) for ids in prompts]
        return contract.numbers(changed, [contract.computed(ids) for ids in changed])

    return wrong


ANY_MODEL: Mapping[str, Wrong] = {
    "a sigmoid": reading(lambda outputs: outputs.sigmoid()),
    "a second beginning": asking(lambda contract, ids: [contract.tokenizer.bos_token_id, *ids]),
    "one token too early": reading(lambda outputs: outputs.roll(1, dims=0)),
    "the last token twice": asking(lambda contract, ids: [*ids, ids[-1]]),
}
