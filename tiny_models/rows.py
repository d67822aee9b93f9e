"""Training rows: graded responses to several questions, packed into one tree of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tiny_models.families import Family
from tiny_models.packing import PackedRow, pack_row
from tiny_models.synthetic import Case, Mix, Turn, draw_conversation

EASY = (Mix(wrong=3, bare=0.9),) * 8
"""Single questions and mostly bare answers: the facts, with little around them."""
FULL = tuple(Mix(turns=turns, wrong=3, garbled=0.2) for turns in (1, 2, 3))
"""Everything that the models are asked later."""


@dataclass(frozen=True, slots=True)
class Row:
    """Some cases in one tree. Sequence i of `packed` is the i-th response of all, case by case."""

    cases: tuple[Case, ...]
    packed: PackedRow
    spoken: list[int]
    """The nodes of the right, readable responses: what a good assistant says after the text up to a node's parent."""


def draw_row(rng: Random, family: Family, mixes: Sequence[Mix]) -> Row:
    """Random training cases, each response rendered as the family does."""
    cases = [case for mix in mixes for case in draw_conversation(rng, "train", mix)]
    texts: list[str] = []
    for case in cases:
        texts += [family.render([*case.context, assistant(response.text)]) for response in case.responses]
    sequences = family.encode(texts)
    packed = pack_row(sequences)
    silent = family.encode([family.render([*case.context, assistant("")]) for case in cases])
    return Row(tuple(cases), packed, sorted(set(_spoken(cases, packed, sequences, silent))))


def assistant(text: str) -> Turn:
    """The assistant's turn that says it."""
    return {"role": "assistant", "content": text}


def _spoken(
    cases: Sequence[Case], packed: PackedRow, sequences: Sequence[Sequence[int]], silent: Sequence[Sequence[int]]
) -> Iterator[int]:
    responses = [(prompt, response) for case, prompt in zip(cases, silent, strict=True) for response in case.responses]
    for (prompt, response), sequence, end in zip(responses, sequences, packed.ends, strict=True):
        if not (response.right and response.readable):
            continue
        node = end
        for _ in range(len(sequence) - _shared_length(sequence, prompt)):
            yield node
            node = packed.parents[node]


def _shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    tokens = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in tokens if a != b), min(len(first), len(second)))
