"""Checks that an engine returns each token's own numbers, on the machine and the model runner where a replica runs.

vLLM has two model runners: a GPU takes the second, a CPU the first. Requests of several lengths are in the engine at once,
as in a run, so that a row that belongs to another request of the batch is noticed as well.
"""

from collections.abc import Sequence

from actors.engine.protocol import Engine, Sampling
from actors.errors import ModelError
from actors.reward_model import RewardModel

_POSITIONS = 4  # positions of a prompt that are compared with prompts ending there, spread evenly
_TOKENS = 4  # generated tokens whose log-probabilities are compared
# The largest difference of two ways to the same number, relative to the largest: in float32, and in half precision.
_EXACT, _ROUNDED = 1e-3, 0.1
# Outputs at a changed token that differ by less, relative to the largest, weren't computed from that token.
_UNCHANGED = 1e-6


def rows_are_their_tokens(model: RewardModel, engine: Engine, ids: Sequence[int]) -> str:
    """Check that the row at a position is that of the prompt ending there, and that another token changes its own row first.

    For a head that is read at any position, of a causal model. Raises `ModelError`.
    """
    ids = list(ids)
    last = len(ids) - 1
    places = sorted({last * part // _POSITIONS for part in range(1, _POSITIONS + 1)})
    # For a prompt of 100 tokens: compared at 24, 49, 74 and 99, and exchanged at 74, so that tokens stand on both sides.
    swap_at = places[len(places) // 2]
    other_token = next((token for token in ids if token != ids[swap_at]), None)
    if other_token is None or swap_at == 0:
        return "positions: not told apart in so short a prompt"
    # Exchange one token for another of the prompt: in a causal model the rows before it must stay, and its own
    # row must change. Rows shifted by one would show at one of the two.
    changed_ids = [*ids[:swap_at], other_token, *ids[swap_at + 1 :]]
    compared = [swap_at - 1, swap_at]
    questions = [
        (ids, [*places, *compared]),
        (changed_ids, compared),
        *((ids[: place + 1], [place]) for place in places),
    ]
    # All at the same time, so that they share batches; `result()` only afterwards.
    futures = [engine.submit(engine.pool(prompt, index)) for prompt, index in questions]
    rows, changed_rows, *prefixes = (future.result().rows for future in futures)
    largest = max(1.0, *(abs(value) for row in rows for value in row))
    tolerance = largest * (_EXACT if model.dtype == "float32" else _ROUNDED)
    # Not strict: `rows` ends with the two of `compared`, which the second comparison takes.
    for place, row, (prefix_row,) in zip(places, rows, prefixes, strict=False):
        if not _largest_difference(row, prefix_row) <= tolerance:  # not `>`: a NaN must fail, too
            raise _misaligned_error(
                model, engine, f"at position {place} of {last} the outputs are {row}, and {prefix_row} at its end"
            )
    row_before, row_at = rows[-2:]
    # The row before stays, give or take rounding; its own row changes, however little: that of an earlier token wouldn't.
    if (
        not _largest_difference(row_before, changed_rows[0]) <= tolerance
        or _largest_difference(row_at, changed_rows[1]) <= _UNCHANGED * largest
    ):
        raise _misaligned_error(
            model, engine, f"another token at position {swap_at} changes the outputs of others, or not its own"
        )
    return f"positions: each token has its own outputs (model runner {engine.runner})"


def logprobs_are_their_tokens(model: RewardModel, engine: Engine, prompts: Sequence[Sequence[int]]) -> str:
    """Check that a generated token's log-probabilities are those that the text before it gives. Raises `ModelError`.

    Each text is generated token by token again, with one token more in the prompt each time: at most 4 tokens a prompt.
    """
    sampling = Sampling(max_tokens=min(_TOKENS, model.answer_tokens), verdict_ids=model.verdict_ids)
    futures = [engine.submit(engine.generate(ids, sampling)) for ids in prompts]
    for ids, future in zip(prompts, futures, strict=True):
        (generation,) = future.result()
        if len(generation.logprobs) != len(generation.token_ids):
            raise _misaligned_error(
                model, engine, f"{len(generation.token_ids)} tokens have {len(generation.logprobs)} rows"
            )
        # An engine that is off by one gives the neighbour's log-probabilities: finite and plausible, and a verdict read by
        # them is another one. So each token's are held against those of a text that ends before it.
        for position, (token, row) in enumerate(zip(generation.token_ids, generation.logprobs, strict=True)):
            next_token = Sampling(max_tokens=1, verdict_ids=sampling.verdict_ids)
            (alone,) = engine.submit(engine.generate([*ids, *generation.token_ids[:position]], next_token)).result()
            expected = alone.logprobs[0]
            wrong = [
                verdict
                for verdict in model.verdict_ids
                if not abs(row[verdict] - expected[verdict]) <= _tolerance(model, expected[verdict])
            ]
            if wrong or token not in row:
                raise _misaligned_error(
                    model,
                    engine,
                    f"at token {position} of a text the log-probabilities are {row}, and {expected} after the same text",
                )
    return f"log-probabilities: each token has its own (model runner {engine.runner})"


def _tolerance(model: RewardModel, expected: float) -> float:
    # Relative from 5 nats on (a probability of 0.7 %), else absolute: 0.005 in float32, 0.5 in half precision. The
    # log-probability of a token that is nearly certain is about 0, and so would be a share of it.
    return (_EXACT if model.dtype == "float32" else _ROUNDED) * max(5.0, abs(expected))


def _largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    return max(abs(expected - actual) for expected, actual in zip(first, second, strict=True))


def _misaligned_error(model: RewardModel, engine: Engine, difference: str) -> ModelError:
    return ModelError(
        f"self-test of {model.model}: numbers aren't those of their tokens: {difference}. That is the engine's fault, with "
        f"its model runner {engine.runner}; VLLM_USE_V2_MODEL_RUNNER=0 (or 1) in the environment of every node takes the "
        "other"
    )
