"""Synthetic conversations with a known right answer, and labels for them: `python -m tiny_models.synthetic --help`.

Everything is a function of the seed. Questions are either for training or held out, never both (see `tasks`); the earlier
turns of a conversation come from the same split as its last. Needs no torch.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from tiny_models.tasks import Kind, Split, Task, draw_task

Turn = dict[str, str]
"""One message: `role` and `content`."""

SYSTEM_TURNS = (
    "You are a helpful assistant.",
    "You are a careful teacher of small children.",
    "Answer the question. Be brief.",
    "You are a polite robot that likes numbers and words.",
)

_OPENINGS = (
    "Sure!",
    "Happy to help with that.",
)
_SENTENCES = (
    ("The answer is", "."),
    ("It is", "."),
    ("That gives", "."),
)
_CLOSINGS = (
    "I hope this helps!",
    "Let me know if you have any other question.",
)

_COMPLEXITY = {
    Kind.FIRST: 0.3,
    Kind.LAST: 0.6,
    Kind.REPEAT: 0.9,
    Kind.LARGER: 1.3,
    Kind.SMALLER: 1.5,
    Kind.COUNT: 2.0,
    Kind.ADD: 2.4,
    Kind.SUBTRACT: 2.8,
    Kind.REVERSE: 3.2,
    Kind.MULTIPLY: 3.6,
}

_TOPICS = {
    Kind.ADD: "arithmetic",
    Kind.SUBTRACT: "arithmetic",
    Kind.MULTIPLY: "arithmetic",
    Kind.LARGER: "comparison",
    Kind.SMALLER: "comparison",
    Kind.COUNT: "counting",
    Kind.FIRST: "lists",
    Kind.LAST: "lists",
    Kind.REPEAT: "instructions",
    Kind.REVERSE: "instructions",
}


class Attributes(NamedTuple):
    """What a grader would say of a response, each 0 to 4, in the order in which the attribute model gives them."""

    helpfulness: float
    """A mix: mostly correctness, some coherence, less for padding."""
    correctness: float
    """4 if the answer is right, else 0."""
    coherence: float
    """4 if the sentences read, 0.5 if their words are shuffled (the answer itself is left whole)."""
    complexity: float
    """By kind of question, the same for each response to it."""
    verbosity: float
    """By the number of words around the answer."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response and what is true of it."""

    text: str
    right: bool
    readable: bool
    labels: Attributes


@dataclass(frozen=True, slots=True)
class Pair:
    """A context that ends with a user turn, a right response to it and a wrong one."""

    context: list[Turn]
    chosen: str
    rejected: str
    kind: str
    chosen_labels: Attributes
    rejected_labels: Attributes


@dataclass(frozen=True, slots=True)
class Case:
    """A context with any number of graded responses."""

    context: list[Turn]
    task: Task
    responses: tuple[Response, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """What to draw: how many turns, responses of either kind to each, and the share that are bare answers or shuffled."""

    turns: int = 1
    right: int = 1
    wrong: int = 1
    bare: float = 0.5
    garbled: float = 0.0
    """Of those that are not bare."""


def pairs(seed: int, n: int, split: Split) -> Iterator[Pair]:
    """`n` pairs. Right or wrong has nothing to do with style: a right response may be wordy beside a short wrong one."""
    rng = Random(f"pairs {split} {seed}")
    for _ in range(n):
        case = draw_case(rng, split, right=1, wrong=1)
        chosen, rejected = case.responses
        yield Pair(case.context, chosen.text, rejected.text, case.task.kind, chosen.labels, rejected.labels)


def draw_case(rng: Random, split: Split, *, right: int, wrong: int) -> Case:
    """A random context with so many right responses, then so many wrong ones."""
    turns = rng.choice((1, 1, 1, 2))
    return draw_conversation(rng, split, Mix(turns, right, wrong))[-1]


def draw_conversation(rng: Random, split: Split, mix: Mix) -> list[Case]:
    """One case per turn: the context of each is that of the one before, with a right and readable response to it."""
    context: list[Turn] = []
    if rng.random() < 0.2:
        context.append({"role": "system", "content": rng.choice(SYSTEM_TURNS)})
    cases: list[Case] = []
    verdicts = [True] * mix.right + [False] * mix.wrong
    for _ in range(mix.turns):
        task = draw_task(rng, split)
        context = [*context, {"role": "user", "content": task.question}]
        responses = [respond(rng, task, verdict, mix) for verdict in verdicts]
        cases.append(Case(context, task, tuple(responses)))
        earlier = next((r for r in responses if r.right and r.readable), None)
        earlier = earlier or respond(rng, task, right=True, mix=Mix())
        context = [*context, {"role": "assistant", "content": earlier.text}]
    return cases


def respond(rng: Random, task: Task, right: bool, mix: Mix) -> Response:
    """A random response that is right or not, in one of the styles of the mix."""
    answer = task.answer if right else rng.choice(task.wrong)
    bare = rng.random() < mix.bare
    garbled = not bare and rng.random() < mix.garbled
    before, after = ([], []) if bare else _padding(rng)
    units = [*before, answer + after[0], *after[1:]] if after else [*before, answer]
    if garbled:
        units = _shuffled(rng, units)
    labels = _labels(task.kind, right=right, garbled=garbled, padding=len(units) - 1)
    return Response(" ".join(units), right, not garbled, labels)


def _padding(rng: Random) -> tuple[list[str], list[str]]:
    """Words before the answer and after it; the first of those after is glued to it, and is "." or "" ."""
    opening, closing = rng.choice(_OPENINGS).split(), rng.choice(_CLOSINGS).split()
    start, end = rng.choice(_SENTENCES)
    level = rng.choice((1, 1, 2, 3))
    before = (opening if level > 1 else []) + start.split()
    after = (["."] if end == "." else ["", *end.split()]) + (closing if level > 2 else [])
    return before, after


def _shuffled(rng: Random, units: Sequence[str]) -> list[str]:
    shuffled = list(units)
    while shuffled == list(units):
        rng.shuffle(shuffled)
    return shuffled


def _labels(kind: Kind, *, right: bool, garbled: bool, padding: int) -> Attributes:
    correctness = 4.0 if right else 0.0
    coherence = 0.5 if garbled else 4.0
    verbosity = round(min(4.0, 0.2 * padding), 2)
    helpfulness = round(0.6 * correctness + 0.2 * coherence + 0.2 * (4.0 - verbosity), 2)
    return Attributes(helpfulness, correctness, coherence, _COMPLEXITY[kind], verbosity)


def demo_rows(n: int, seed: int) -> Iterator[dict[str, object]]:
    """`n` different held-out conversations in OpenAI's messages format, each right or wrong with equal chance."""
    rng = Random(f"demo {seed}")
    seen: set[str] = set()
    while len(seen) < n:
        verdict = rng.random() < 0.5
        case = draw_case(rng, "held-out", right=int(verdict), wrong=int(not verdict))
        messages = [*case.context, {"role": "assistant", "content": case.responses[0].text}]
        identity = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:12]
        if identity not in seen:
            seen.add(identity)
            yield {"id": identity, "topic": _TOPICS[case.task.kind], "messages": messages}


def pair_rows(n: int, seed: int) -> Iterator[dict[str, object]]:
    """Rows of `n` held-out pairs, as preference data sets have them."""
    for pair in pairs(seed, n, "held-out"):
        yield {"prompt": [dict(turn) for turn in pair.context], "chosen": pair.chosen, "rejected": pair.rejected}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes a demo corpus, or preference pairs that no built-in model was trained on."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.synthetic", description=main.__doc__)
    parser.add_argument("--rows", type=int, default=300, help="number of conversations (default 300)")
    parser.add_argument("--pairs", type=int, default=0, help="number of preference pairs, instead of conversations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    options = parser.parse_args(arguments)
    rows = pair_rows(options.pairs, options.seed) if options.pairs else demo_rows(options.rows, options.seed)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    options.out.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
