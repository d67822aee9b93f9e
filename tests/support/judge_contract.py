"""Tests that every judge's tiny checkpoint must pass, on real vLLM: its authors' prompts, and right verdicts.

Prompts and right answers come from `tiny_models.dialects`, which uses no code of the product.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import pytest

from actors.contracts.judge import Judge
from actors.engine.protocol import Engine, Generation
from actors.errors import Unreadable
from actors.records import JudgeAnswer, Message, RenderedRequest, Response, Role, Score, ScoreRequest, Status
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, JudgeSettings, ModelSettings, ReadSettings, RenderSettings
from tests.support.contract import tokenizer
from tests.support.models import engine_of
from tiny_models.dialects import Judgement, judgements
from tiny_models.judging import Answer

HELD_OUT = 240
RIGHT = 0.95
NOTICED = 0.8
"""A wrong way of reading must be right less often than this."""


class Judged(NamedTuple):
    """A judgement with the right answers, the rendered request for it, and the judge's scores."""

    judgement: Judgement
    rendered: RenderedRequest
    scores: tuple[Score, ...]


Grade = Callable[[Answer, Judgement], float]


class JudgeContract:
    """The tests. One engine is alive at a time."""

    model: ClassVar[str]
    dialect: ClassVar[str]
    read: ClassVar[ReadSettings] = ReadSettings()
    judge: ClassVar[JudgeSettings] = JudgeSettings(temperature=0, trace=True)
    adapter: ClassVar[str | None] = None
    """How often the better of two responses must have the higher reward."""

    # What its authors do, and what is right.

    def grade(self, answer: Answer, judgement: Judgement) -> float:
        """The reward of a response."""
        return float(answer.grade(judgement.principle))

    def right(self, result: Judged) -> Iterator[bool]:
        """For each response, whether its reward is the right grade."""
        for answer, score in zip(result.judgement.case.answers, result.scores, strict=True):
            yield score.reward == self.grade(answer, result.judgement)

    def messages(self, judgement: Judgement, shown: Sequence[int]) -> list[dict[str, str]]:
        """The turns of its authors' prompt that shows these responses, in this order; here only as they come."""
        assert list(shown) == sorted(shown)
        return judgement.messages

    def held_out(self) -> Iterator[Judgement]:
        """Questions that training never saw."""
        return judgements(self.dialect, 71, HELD_OUT, "held-out")

    # What is shared.

    def resolved(self, **change: Any) -> RewardModel:
        return _resolved(type(self), *sorted(change.items()))  # type: ignore[arg-type]  # a class is hashable

    @property
    def family(self) -> Judge:
        family = self.resolved().family
        assert isinstance(family, Judge)
        return family

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        with engine_of(cls().resolved(), EngineSettings()) as engine:
            yield engine

    @pytest.fixture(scope="class")
    @classmethod
    def judged(cls, engine: Engine) -> list[Judged]:
        contract = cls()
        return contract.ask(engine, list(contract.held_out()))

    def ask(self, engine: Engine, judgements_to_ask: Sequence[Judgement], **change: Any) -> list[Judged]:
        """By the product: renderer, scorer and engine."""
        model = self.resolved(**change)
        rendered = Renderer(model, RenderSettings()).render([request_of(judgement) for judgement in judgements_to_ask])
        scores = scorer_of(model, engine).score_block(rendered)
        return [Judged(*fields) for fields in zip(judgements_to_ask, rendered, scores, strict=True)]

    def reread(self, results: Sequence[Judged], change: Callable[[JudgeAnswer], str]) -> float:
        """How often the first verdict about a request is right, if another text is read than what the judge answered."""
        right = []
        for result in results:
            answer = result.scores[0].trace[0]
            shown = [result.rendered.responses[index].name for index in range(len(result.scores))]
            try:
                verdict = self.family.verdict(Generation(change(answer), (), "stop", (), 0, 1), len(answer.shown))
            except Unreadable:
                right.append(False)
                continue
            votes = {
                name: self.family.vote(scores, self.resolved().weights)
                for name, scores in zip(answer.shown, verdict.scores, strict=True)
            }
            again = tuple(replace(score, reward=votes[name]) for score, name in zip(result.scores, shown, strict=True))
            right.append(all(self.right(result._replace(scores=again))))
        return sum(right) / len(right)

    # The tests.

    def test_the_prompt_is_its_authors(self, judged: list[Judged]) -> None:
        for result in judged:
            prompt = result.rendered.prompts[0]
            messages = self.messages(result.judgement, prompt.response_positions)
            authors_ids = tokenizer(self.name).apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert list(prompt.ids) == list(authors_ids)

    def test_it_is_right_about_what_it_never_saw(self, judged: list[Judged]) -> None:
        right = [verdict for result in judged for verdict in self.right(result)]
        print(f"{self.model}: {sum(right) / len(right):.1%} of {len(right)} held-out verdicts")
        assert len(right) >= HELD_OUT / 3
        assert sum(right) / len(right) >= RIGHT

    def test_right_answers_get_more_than_wrong_ones(self, judged: list[Judged]) -> None:
        ahead = [
            (better_score.reward or -99) > (worse_score.reward or -99)
            for result in judged
            for better, better_score in zip(result.judgement.case.answers, result.scores, strict=True)
            for worse, worse_score in zip(result.judgement.case.answers, result.scores, strict=True)
            if self.grade(better, result.judgement) > self.grade(worse, result.judgement)
        ]
        if self.family.together:
            assert len(ahead) >= 50
            print(f"{self.model}: {sum(ahead) / len(ahead):.1%} of {len(ahead)} better responses ahead")
            assert sum(ahead) / len(ahead) >= RIGHT

    def test_every_text_could_be_read(self, judged: list[Judged]) -> None:
        reasons = [score.reason for result in judged for score in result.scores]
        assert sum(reason is None for reason in reasons) / len(reasons) >= RIGHT
        assert all(
            (score.status is Status.SCORED) == (score.reward is not None) for result in judged for score in result.scores
        )

    def test_reading_what_it_thought_would_be_noticed(self, judged: list[Judged]) -> None:
        """Each of these judges begins with a draft of a verdict, which is always the same."""
        answered = self.reread(judged, lambda answer: answer.text)
        thought = self.reread(judged, lambda answer: answer.text.partition("<think>")[2].rpartition("</think>")[0])
        assert answered >= RIGHT - 0.02
        assert thought < NOTICED
        assert thought < answered

    def test_it_passes_its_self_test(self, engine: Engine) -> None:
        passed: list[str] = []
        model = self.resolved()
        self_test(model, engine, passed.append)
        card = model.family.knows(model.known_as)
        assert card is not None
        logprobs_check = [f"log-probabilities: each token has its own (model runner {engine.runner})"] * bool(
            model.verdict_ids
        )
        assert passed[1 : 1 + len(logprobs_check)] == logprobs_check
        assert len(passed) == 1 + len(logprobs_check) + len(card.golden) > 1

    @property
    def name(self) -> str:
        return self.model.removeprefix("tiny-")


@cache
def _resolved(contract: "type[JudgeContract]", *change: tuple[str, Any]) -> RewardModel:
    judge = contract.judge.model_copy(update=dict(change))
    settings = ModelSettings(model=contract.model, read=contract.read, judge=judge, adapter=contract.adapter)
    return resolve_model(settings, RenderSettings())


def request_of(judgement: Judgement) -> ScoreRequest:
    """The request to the product for a judgement."""
    case = judgement.case
    fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in judgement.fields.items()}
    return ScoreRequest(
        tuple(Message(Role(turn["role"]), turn["content"]) for turn in case.context),
        tuple(Response(f"r[{index}]", answer.text) for index, answer in enumerate(case.answers)),
        (str(judgement.principle),) if judgement.principle else (),
        fields=fields,
    )
