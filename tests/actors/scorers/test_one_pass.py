"""One forward pass for several prompts: what every engine that reads anywhere gives, and that the numbers stay the same."""

import asyncio
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.fake_engine import FakeEngine, FakeFault, Faults
from actors.engine.protocol import Engine, Pooled
from actors.errors import EngineError
from actors.records import Prompt, Reason, Score, ScoreRequest
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import HeadScorer
from actors.scorers.one_pass import group_by_prefix
from tests.support.engines import ask, until
from tests.support.models import SCALAR, assistant, built_in_engine, renderer, request, reward_model, user, write_model

TOLERANCE = 1e-4
VOCABULARY = 1024
STEP = 256  # tokens that vLLM takes at a time here: longer prompts go through in pieces


# Which prompts share a forward pass.

TOKENS = st.lists(st.integers(0, 1), max_size=4)


@given(st.lists(TOKENS, max_size=10))
def test_runs_are_the_longest_in_which_each_begins_the_next(ids: list[list[int]]) -> None:
    prompts = [Prompt(one, (at,)) for at, one in enumerate(ids)]
    runs = group_by_prefix(prompts)
    assert [prompt for run in runs for prompt in run] == prompts
    for run in runs:
        assert all(begins(one, other) for one, other in itertools.pairwise(run))
    for run, following in itertools.pairwise(runs):
        assert not begins(run[-1], following[0])


def begins(one: Prompt, other: Prompt) -> bool:
    """By the definition; an empty prompt has no token to be read at."""
    return any(list(one.ids) == list(other.ids)[:length] for length in range(1, len(other.ids) + 1))


@given(st.lists(st.lists(TOKENS, min_size=1, max_size=4), max_size=5))
def test_a_growing_conversation_is_one_run(turns: list[list[list[int]]]) -> None:
    conversations = [list(itertools.accumulate(own, initial=[2 + at])) for at, own in enumerate(turns)]
    prompts = [Prompt(ids, (0,)) for grown in conversations for ids in grown]
    assert [len(run) for run in group_by_prefix(prompts)] == [len(grown) for grown in conversations]


# What every engine that reads anywhere does.


@pytest.fixture(scope="module")
def vllm() -> Iterator[Engine]:
    """tiny-scalar on vLLM, read at every position."""
    with built_in_engine(SCALAR, every_turn=True, max_num_batched_tokens=STEP, max_num_seqs=64) as engine:
        yield engine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine(1, model().max_model_len, vocabulary=VOCABULARY, every_position=True)
    yield engine
    engine.close()


@pytest.fixture(params=["fake", "vllm"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return cast(Engine, request.getfixturevalue(request.param))


def model() -> RewardModel:
    return reward_model(SCALAR, every_turn=True)


def prompts() -> list[list[int]]:
    """Shorter and longer than a step."""
    draw = random.Random(5)
    return [[draw.randrange(250) for _ in range(length)] for length in (1, 2, 40, STEP - 1, STEP, STEP + 1, 3 * STEP + 7)]


def numbers(pooled: Pooled) -> list[float]:
    """The one output at each position."""
    assert pooled.values == pooled.rows[-1]
    return [value for (value,) in pooled.rows]


def places(ids: Sequence[int]) -> list[int]:
    """The first, the last, and some between."""
    return sorted({0, len(ids) // 3, len(ids) // 2, max(0, len(ids) - 2), len(ids) - 1})


def test_a_row_is_what_the_prompt_up_to_there_gives(engine: Engine) -> None:
    for ids in prompts():
        at = places(ids)
        pooled = ask(engine, engine.pool(ids, "long", at))
        alone = [ask(engine, engine.pool(ids[: position + 1], "short")).values[0] for position in at]
        assert numbers(pooled) == pytest.approx(alone, abs=TOLERANCE)


def test_a_batch_of_all_lengths_gives_each_its_own_rows(engine: Engine) -> None:
    asked = prompts() + prompts()[::-1]

    async def together() -> list[Pooled]:
        return await asyncio.gather(*(engine.pool(ids, f"batch-{n}", places(ids)) for n, ids in enumerate(asked)))

    for ids, pooled in zip(asked, ask(engine, together()), strict=True):
        alone = ask(engine, engine.pool(ids, "alone", places(ids)))
        assert numbers(pooled) == pytest.approx(numbers(alone), abs=TOLERANCE)


def test_rows_are_in_the_order_asked_for(engine: Engine) -> None:
    ids = prompts()[2]
    first, *_, last = numbers(ask(engine, engine.pool(ids, "up", range(len(ids)))))
    down = ask(engine, engine.pool(ids, "down", [39, 0, 0]))
    assert numbers(down) == pytest.approx([last, first, first], abs=TOLERANCE)
    assert numbers(ask(engine, engine.pool(ids, "last"))) == pytest.approx([last], abs=TOLERANCE)
    assert abs(first - last) > 0.01


def test_every_token_goes_through_the_model(engine: Engine) -> None:
    """A position out of the prefix cache would have no row."""
    for _ in range(2):
        pooled = ask(engine, engine.pool([7] * 600, "again", [0, 599]))
        assert (pooled.cached_tokens, pooled.computed_tokens) == (0, 600)


@pytest.mark.parametrize("at", [[], [-1], [0, 3], [1000]])
def test_what_is_no_position_is_refused(engine: Engine, at: list[int]) -> None:
    with pytest.raises(EngineError, match="position"):
        ask(engine, engine.pool([1, 2, 3], "bad", at))
    until(lambda: cast(Any, engine).request_count == 0)
    assert len(ask(engine, engine.pool([1, 2, 3], "good", [0, 2])).rows) == 2


def test_an_output_of_another_shape_is_no_reading(vllm: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_labels", 2)
    with pytest.raises(EngineError, match=r"should have the shape \(3, 2\), and vLLM returned \(3, 1\)"):
        ask(vllm, vllm.pool([1, 2, 3], "shape"))


def test_the_numbers_are_those_of_transformers_for_each_prefix(vllm: Engine) -> None:
    for ids in prompts():
        expected = [reference(ids[: position + 1]) for position in places(ids)]
        found = numbers(ask(vllm, vllm.pool(ids, "compared", places(ids))))
        assert found == pytest.approx(expected, abs=TOLERANCE)
        assert found != pytest.approx([1 / (1 + math.exp(-one)) for one in expected], abs=0.01)  # a sigmoid is noticed


_REFERENCE: list[Any] = []


def reference(ids: Sequence[int]) -> float:
    """What transformers gives for a prompt in float32."""
    if not _REFERENCE:
        torch.set_num_threads(1)
        _REFERENCE.append(
            AutoModelForSequenceClassification.from_pretrained(BUILT_IN / "scalar", dtype=torch.float32).eval()
        )
    with torch.inference_mode():
        return float(_REFERENCE[0](torch.tensor([list(ids)])).logits[0, 0])


# Conversations.


def turns(thought: str = "") -> list[ScoreRequest]:
    """A request for each of the four assistant turns of a conversation."""
    said = [(f"What is {number} + {number}?", thought + f"It is {2 * number}." * (1 + number)) for number in range(4)]
    return [
        request(
            *itertools.chain.from_iterable((user(q), assistant(a)) for q, a in said[:at]), user(said[at][0]), to=said[at][1]
        )
        for at in range(4)
    ]


def spied(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Pooled]:
    """The answers that the engine gives from now on."""
    given: list[Pooled] = []
    pool = engine.pool

    async def spy(*arguments: Any, **options: Any) -> Pooled:
        given.append(await pool(*arguments, **options))
        return given[-1]

    monkeypatch.setattr(engine, "pool", spy)
    return given


def scorer(engine: Engine) -> HeadScorer:
    return HeadScorer(model().family, model().weights, engine, one_pass=True)


def assert_close(scores: Sequence[tuple[Score, ...]], expected: Sequence[tuple[Score, ...]]) -> None:
    for (one,), (other,) in zip(scores, expected, strict=True):
        assert one.reward == pytest.approx(other.reward, abs=TOLERANCE)
        assert (one.status, one.prompt_tokens) == (other.status, other.prompt_tokens)
    assert len({one.reward for (one,) in scores}) == len(scores)


def test_a_conversation_is_one_forward_pass_with_the_numbers_of_each_turn_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = renderer(SCALAR).render(turns())
    alone = [scorer(engine).score_block([one])[0] for one in rendered]
    given = spied(engine, monkeypatch)
    assert_close(scorer(engine).score_block(rendered), alone)
    longest = len(rendered[-1].prompts[0].ids)
    assert [pooled.cached_tokens + pooled.computed_tokens for pooled in given] == [longest]
    assert [score.prompt_tokens for (score,) in alone] == [len(one.prompts[0].ids) for one in rendered]


def test_a_conversation_has_the_numbers_of_transformers(vllm: Engine) -> None:
    rendered = renderer(SCALAR).render(turns())
    scores = scorer(vllm).score_block(rendered)
    expected = [reference(one.prompts[0].ids) for one in rendered]
    assert [score.reward for (score,) in scores] == pytest.approx(expected, abs=TOLERANCE)


def test_conversations_beside_each_other_have_a_forward_pass_each(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = renderer(SCALAR).render([*turns(), *turns("Well. "), *turns()[:1], request(user("Hi"))])
    alone = [scorer(engine).score_block([one])[0] for one in rendered]
    given = spied(engine, monkeypatch)
    scores = scorer(engine).score_block(rendered)
    assert len(given) == 3, "the first turn is there twice, and asked once"
    assert scores[0] == scores[8]
    assert [one.reward for (one,) in scores] == pytest.approx([one.reward for (one,) in alone], abs=TOLERANCE)


FORGETFUL = """{{- bos_token }}
{%- for message in messages %}
    {%- set content = message.content if loop.last else message.content.split('</think>')[-1] %}
    {{- '<|start|>' ~ message.role ~ '\n\n' ~ content ~ '<|end|>' }}
{%- endfor %}"""
"""Leaves the thoughts of earlier turns out, as the template of Qwen3 does."""


def test_a_template_that_changes_earlier_turns_shares_nothing(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "forgetful", template=FORGETFUL)
    rendered = renderer(path, reasoning="keep").render(turns("<think>Add.</think>"))
    alone = [scorer(engine).score_block([one])[0] for one in rendered]
    given = spied(engine, monkeypatch)
    assert_close(scorer(engine).score_block(rendered), alone)
    assert len(given) == 4
    without_thoughts = renderer(path).render(turns())
    given.clear()
    scorer(engine).score_block(without_thoughts)
    assert len(given) == 1


def test_a_turn_with_nothing_finite_leaves_those_before_it() -> None:
    rendered = renderer(SCALAR).render(turns())
    before, after = (rendered[at].prompts[0].ids for at in (1, 2))
    (broken, *_) = sorted(set(after) - set(before))
    engine = FakeEngine(1, 8192, faults=Faults(at={broken: FakeFault.NAN}), every_position=True)
    scores = scorer(engine).score_block(rendered)
    engine.close()
    assert [score.reason for (score,) in scores] == [None, None, Reason.NOT_FINITE, Reason.NOT_FINITE]
