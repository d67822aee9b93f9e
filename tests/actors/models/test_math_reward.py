"""Qwen2.5-Math-RM: a head of two layers, and the card's system turn where a row has none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from actors.records import Message, Role, ScoreRequest
from tests.support.contract import Contract, Wrong, asking
from tests.support.models import as_dicts, ids_of, renderer, request, system, user
from tests.support.tiny_references import Reference, reference, stored

MODEL = "tiny-math-rm"
SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."


@cache
def outputs() -> Reference:
    return reference("math-rm")


@cache
def without(piece: str) -> Reference:
    """The same model without some of its weights."""
    weights = {name: torch.zeros_like(weight) if piece in name else weight for name, weight in stored("math-rm").items()}
    return reference("math-rm", weights)


def losing(piece: str) -> Wrong:
    return lambda contract, prompts: contract.numbers(prompts, [without(piece)(ids) for ids in prompts])


WRONG = {
    "no biases in the attention": losing("proj.bias"),
    "no bias in the head's first layer": losing("score.0.bias"),
    "no bias in the head's second layer": losing("score.2.bias"),
    "without the system turn": asking(lambda contract, ids: [ids[0], *ids[ids.index(3, 2) :]]),
}


class TestTinyMathRM(Contract):
    model = MODEL
    layouts = (1,)  # the head of tiny-math-prm
    wrong = WRONG
    subtle = frozenset({"without the system turn"})

    def ids(self, score_request: ScoreRequest) -> Sequence[list[int]]:
        turns = as_dicts(score_request)
        if turns[0]["role"] != "system":
            turns.insert(0, {"role": "system", "content": SYSTEM})
        return [list(self.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False))]

    def outputs(self, ids: Any) -> Any:
        return outputs()(ids)

    def held_out(self) -> Iterator[tuple[ScoreRequest, ScoreRequest]]:
        """Without system turns of their own: the model has learnt the cards' alone."""
        for pair in super().held_out():
            right, wrong = (replace(item, context=_without_system(item.context)) for item in pair)
            yield right, wrong


def _without_system(context: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(message for message in context if message.role is not Role.SYSTEM)


def test_a_rows_own_system_turn_takes_the_cards_place() -> None:
    item = request(system("Be brief."), user("What is 3 + 4?"), to="7")
    ids = TestTinyMathRM().tokenizer.apply_chat_template(as_dicts(item), tokenize=True, return_dict=False)
    assert [ids_of(entry) for entry in renderer(MODEL).render([item])] == [list(ids)]
