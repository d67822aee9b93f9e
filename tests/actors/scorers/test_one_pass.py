"""One forward pass for several prompts: what every engine that reads anywhere gives, and that the numbers stay the same."""

import functools
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
from actors.engine.fake_engine import FakeEngine, FakeFault
from actors.engine.protocol import Engine, Pooled
from actors.errors import EngineError
from actors.records import Prompt, Reason, RenderedRequest, Score, ScoreRequest
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import HeadScorer, group_by_prefix
from tests.support.engines import ask, ask_all, request_count, until
from tests.support.models import SCALAR, assistant, built_in_engine, renderer, request, reward_model, user, write_model

TOLERANCE = 1e-4
VOCABULARY = 1024
STEP = 256  # tokens that vLLM takes at a time here: longer prompts go through in pieces


# Which prompts share a forward pass.

TOKENS = st.lists(st.integers(0, 1), max_size=4)


def is_prefix(first: Prompt, second: Prompt) -> bool:
    """By the definition; an empty prompt has no token to be read at."""
    return any(list(first.ids) == list(second.ids)[:length] for length in range(1, len(second.ids) + 1))


@given(st.lists(TOKENS, max_size=10))
def test_runs_are_the_longest_in_which_each_begins_the_next(ids: list[list[int]]) -> None:
    prompts = [Prompt(tokens, (at,)) for at, tokens in enumerate(ids)]
    runs = group_by_prefix(prompts)
    assert [prompt for run in runs for prompt in run] == prompts
    for run in runs:
        assert all(is_prefix(first, second) for first, second in itertools.pairwise(run))
    for run, following in itertools.pairwise(runs):
        assert not is_prefix(run[-1], following[0])


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
        pooled = ask(engine, engine.pool(ids, at))
        alone = [ask(engine, engine.pool(ids[: position + 1])).values[0] for position in at]
        assert numbers(pooled) == pytest.approx(alone, abs=TOLERANCE)


def test_a_batch_of_all_lengths_gives_each_its_own_rows(engine: Engine) -> None:
    sent = prompts() + prompts()[::-1]
    batch = ask_all(engine, (engine.pool(ids, places(ids)) for ids in sent))
    for ids, pooled in zip(sent, batch, strict=True):
        alone = ask(engine, engine.pool(ids, places(ids)))
        assert numbers(pooled) == pytest.approx(numbers(alone), abs=TOLERANCE)


def test_rows_are_in_the_order_asked_for(engine: Engine) -> None:
    ids = prompts()[2]
    first, *_, last = numbers(ask(engine, engine.pool(ids, range(len(ids)))))
    down = ask(engine, engine.pool(ids, [39, 0, 0]))
    assert numbers(down) == pytest.approx([last, first, first], abs=TOLERANCE)
    assert numbers(ask(engine, engine.pool(ids))) == pytest.approx([last], abs=TOLERANCE)
    assert abs(first - last) > 0.01


def test_every_token_goes_through_the_model(engine: Engine) -> None:
    """A position out of the prefix cache would have no row."""
    for _ in range(2):
        pooled = ask(engine, engine.pool([7] * 600, [0, 599]))
        assert (pooled.cached_tokens, pooled.computed_tokens) == (0, 600)


def test_what_is_no_position_is_refused(engine: Engine) -> None:
    for at in ([], [-1], [0, 3], [1000]):
        with pytest.raises(EngineError, match="position"):
            ask(engine, engine.pool([1, 2, 3], at))
        until(lambda: request_count(engine) == 0)
    assert len(ask(engine, engine.pool([1, 2, 3], [0, 2])).rows) == 2


def test_outputs_of_fewer_tokens_are_no_reading(vllm: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.engine import vllm_engine

    last_output = vllm_engine._last_output

    async def lose_a_row(outputs: Any) -> Any:
        output = await last_output(outputs)
        output.outputs.data = output.outputs.data[1:]
        return output

    monkeypatch.setattr(vllm_engine, "_last_output", lose_a_row)
    with pytest.raises(EngineError, match="a prompt of 3 tokens should have as many outputs, and vLLM returned 2"):
        ask(vllm, vllm.pool([1, 2, 3]))


def test_the_numbers_are_those_of_transformers_for_each_prefix(vllm: Engine) -> None:
    for ids in prompts():
        expected = [reference(ids[: position + 1]) for position in places(ids)]
        rewards = numbers(ask(vllm, vllm.pool(ids, places(ids))))
        assert rewards == pytest.approx(expected, abs=TOLERANCE)
        assert rewards != pytest.approx([1 / (1 + math.exp(-value)) for value in expected], abs=0.01)  # not a sigmoid


@functools.cache
def reference_model() -> Any:
    torch.set_num_threads(1)
    return AutoModelForSequenceClassification.from_pretrained(BUILT_IN / "scalar", dtype=torch.float32).eval()


def reference(ids: Sequence[int]) -> float:
    """What transformers gives for a prompt in float32."""
    with torch.inference_mode():
        return float(reference_model()(torch.tensor([list(ids)])).logits[0, 0])


# Conversations.


def turns(thought: str = "") -> list[ScoreRequest]:
    """A request for each of the four assistant turns of a conversation."""
    texts = [(f"What is {number} + {number}?", thought + f"It is {2 * number}." * (1 + number)) for number in range(4)]
    turns = [(user(question), assistant(answer)) for question, answer in texts]
    return [
        request(*itertools.chain.from_iterable(turns[:at]), turns[at][0], to=answer) for at, (_, answer) in enumerate(texts)
    ]


def spied(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Pooled]:
    """The answers that the engine gives from now on."""
    answers: list[Pooled] = []
    pool = engine.pool

    async def spy(*arguments: Any, **options: Any) -> Pooled:
        answers.append(await pool(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(engine, "pool", spy)
    return answers


def score(engine: Engine, rendered: Sequence[RenderedRequest]) -> list[Score]:
    """The scores of requests with one response each."""
    scorer = HeadScorer(model().family, model().weights, engine, one_pass=True)
    return [score for (score,) in scorer.score_block(rendered)]


def score_alone(engine: Engine, rendered: Sequence[RenderedRequest]) -> list[Score]:
    return [score(engine, [turn])[0] for turn in rendered]


def rewards(scores: Sequence[Score]) -> list[float | None]:
    return [score.reward for score in scores]


def test_a_conversation_is_one_forward_pass_with_the_numbers_of_each_turn_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = renderer(SCALAR).render(turns())
    alone = score_alone(engine, rendered)
    answers = spied(engine, monkeypatch)
    scores = score(engine, rendered)
    assert rewards(scores) == pytest.approx(rewards(alone), abs=TOLERANCE)
    assert len({*rewards(scores)}) == 4
    lengths = [len(turn.prompts[0].ids) for turn in rendered]
    assert [pooled.cached_tokens + pooled.computed_tokens for pooled in answers] == [lengths[-1]]
    assert [turn.prompt_tokens for turn in scores] == [turn.prompt_tokens for turn in alone] == lengths


def test_a_conversation_has_the_numbers_of_transformers(vllm: Engine) -> None:
    rendered = renderer(SCALAR).render(turns())
    expected = [reference(turn.prompts[0].ids) for turn in rendered]
    assert rewards(score(vllm, rendered)) == pytest.approx(expected, abs=TOLERANCE)


def test_conversations_beside_each_other_have_a_forward_pass_each(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = renderer(SCALAR).render([*turns(), *turns("Well. "), *turns()[:1], request(user("Hi"))])
    alone = score_alone(engine, rendered)
    answers = spied(engine, monkeypatch)
    scores = score(engine, rendered)
    assert len(answers) == 3, "the first turn is there twice, and asked once"
    assert scores[0] == scores[8]
    assert rewards(scores) == pytest.approx(rewards(alone), abs=TOLERANCE)


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
    alone = score_alone(engine, rendered)
    answers = spied(engine, monkeypatch)
    assert rewards(score(engine, rendered)) == pytest.approx(rewards(alone), abs=TOLERANCE)
    assert len(answers) == 4
    answers.clear()
    score(engine, renderer(path).render(turns()))
    assert len(answers) == 1, "there are no thoughts"


def test_a_turn_with_nothing_finite_leaves_those_before_it() -> None:
    rendered = renderer(SCALAR).render(turns())
    before, after = (rendered[at].prompts[0].ids for at in (1, 2))
    (broken, *_) = sorted(set(after) - set(before))
    engine = FakeEngine(1, 8192, at={broken: FakeFault.NAN}, every_position=True)
    scores = score(engine, rendered)
    engine.close()
    assert [turn.reason for turn in scores] == [None, None, Reason.NOT_FINITE, Reason.NOT_FINITE]
