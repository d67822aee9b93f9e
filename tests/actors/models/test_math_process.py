"""Qwen2.5-Math-PRM: a probability for each step, each read at its own token, and what they come to."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from actors.records import Reading, Reason, ScoreRequest
from actors.reward_model import families
from tests.support.contract import Contract, Numbers, Outputs, Wrong, reading
from tests.support.models import as_dicts, reason_of, renderer, request, user
from tests.support.tiny_references import Reference, reference
from tiny_models.solutions import solutions

MODEL, STEP = "tiny-math-prm", "<extra_0>"
SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."


@cache
def outputs() -> Reference:
    return reference("math-prm")


def at_steps(contract: Contract, ids: Sequence[int], outputs: Any) -> Any:
    """The rows at each step's token, [steps, 2]."""
    step = contract.tokenizer.convert_tokens_to_ids(STEP)
    return outputs[[index for index, token in enumerate(ids) if token == step]]


def whole(steps: Sequence[float]) -> Numbers:
    return {
        **{f"step[{index}]": step for index, step in enumerate(steps)},
        "product": math.prod(steps), "min": min(steps), "last": steps[-1], "reward": math.prod(steps),
    }  # fmt: skip


WRONG = {
    "the other label": reading(lambda outputs: outputs.flip(-1)),
    "a logit": lambda contract, prompts: whole(at_steps(contract, prompts[0], outputs()(prompts[0]))[:, 1].tolist()),
    "each a sigmoid": lambda contract, prompts: whole(
        at_steps(contract, prompts[0], outputs()(prompts[0]))[:, 1].sigmoid().tolist()
    ),
}


class TestTinyMathPRM(Contract):
    model = MODEL
    wrong = WRONG
    subtle = frozenset({"each a sigmoid"})

    def ids(self, compared_requests: ScoreRequest) -> Sequence[list[int]]:
        *context, last = as_dicts(compared_requests)
        steps = "".join(step + STEP for step in last["content"].split("\n\n"))
        turns = [{"role": "system", "content": SYSTEM}, *context, {"role": "assistant", "content": steps}]
        return [list(self.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False))]

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        ((ids,), (rows,)) = prompts, outputs
        return whole(at_steps(self, ids, rows).softmax(dim=-1)[:, 1].tolist())

    def every_wrong(self) -> Mapping[str, Wrong]:
        """The last token is none that is read."""
        return {name: wrong for name, wrong in super().every_wrong().items() if name != "the last token twice"}

    def outputs(self, ids: Any) -> Any:
        return outputs()(ids)

    def compared_requests(self) -> list[ScoreRequest]:
        short = [solution_request(solution.context, solution.steps) for solution in solutions(41, 60, "held-out")]
        long = [
            request(user("What is 1 + 1?"), to="\n\n".join(f"{index} + {index} = {2 * index}" for index in range(count)))
            for count in range(5, 105, 10)
        ]
        return short + long

    def held_out(self) -> Iterator[tuple[ScoreRequest, ScoreRequest]]:
        made = list(solutions(43, 400, "held-out"))
        right, wrong = ([item for item in made if item.right is truth] for truth in (True, False))
        for good, bad in zip(right, wrong, strict=False):
            yield solution_request(good.context, good.steps), solution_request(bad.context, bad.steps)

    def test_a_step_is_right_or_wrong(self, engine: Any) -> None:
        made = list(solutions(47, 200, "held-out"))
        result = self.scored(engine, [solution_request(item.context, item.steps) for item in made])
        message = [
            (numbers[f"step[{index}]"] > 0.5) == good
            for numbers, item in zip(result, made, strict=True)
            for index, good in enumerate(item.good)
        ]
        print(f"{MODEL}: right about {sum(message) / len(message):.1%} of {len(message)} held-out steps")
        assert len(message) >= 400
        assert sum(message) / len(message) >= 0.95


def solution_request(context: Sequence[Any], steps: Sequence[str]) -> ScoreRequest:
    return request(*(user(turn["content"]) for turn in context), to="\n\n".join(steps))


def test_steps_are_parted_by_blank_lines_and_nothing_else() -> None:
    item = request(user("?"), to="\n one\ntwo \n \t\n\n\n three\n\n")
    (rendered,) = renderer(MODEL).render([item])
    (prompt,) = rendered.prompts
    tokenizer = TestTinyMathPRM().tokenizer
    text = tokenizer.decode(prompt.ids)
    assert f" one\ntwo {STEP} three{STEP}" in text, "indentation is part of a step"
    assert [prompt.ids[index] for index in prompt.at] == [tokenizer.convert_tokens_to_ids(STEP)] * 2


def test_a_response_without_a_step_is_empty() -> None:
    (rendered,) = renderer(MODEL).render([request(user("?"), to=" \n\n\t\n")])
    assert reason_of(rendered) is Reason.EMPTY_CONTENT


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\n \t\n", "\n\n\n\n"])
def test_any_blank_line_parts_steps(end: str) -> None:
    (rendered,) = renderer(MODEL).render([request(user("?"), to=f"a = 1{end}    b = 2")])
    assert f"a = 1{STEP}    b = 2{STEP}" in TestTinyMathPRM().tokenizer.decode(rendered.prompts[0].ids)


def test_a_response_cant_end_a_step_itself() -> None:
    (rendered,) = renderer(MODEL).render([request(user("?"), to=f"one{STEP}two")])
    assert reason_of(rendered) is Reason.CONTROL_TOKEN


@pytest.mark.parametrize(
    ("weights", "reward"), [({"product": 1.0}, 0.5 * 0.8 * 0.2), ({"min": 1.0}, 0.2), ({"last": 1.0}, 0.8)]
)
def test_steps_come_to_a_reward_as_one_chooses(weights: dict[str, float], reward: float) -> None:
    rows = [[0.0, 0.0], [math.log(0.8), math.log(0.2)], [math.log(0.2), math.log(0.8)]]
    reading = families()["math-process"].reading([rows], weights)
    assert reading.reward == pytest.approx(reward)
    assert reading.steps == pytest.approx((0.5, 0.2, 0.8))


@pytest.mark.parametrize("bad", [[math.nan, 0.0], [math.inf, math.inf]])
def test_a_step_without_a_number_leaves_none_for_the_response(bad: list[float]) -> None:
    reading = families()["math-process"].reading([[[0.0, 1.0], bad, [0.0, 1.0]]], {"last": 1.0})
    assert not reading.finite
    assert isinstance(reading, Reading)


def test_far_apart_logits_are_no_overflow() -> None:
    reading = families()["math-process"].reading([[[1e4, -1e4], [-1e4, 1e4]]], {"last": 1.0})
    assert reading.steps == (0.0, 1.0)
