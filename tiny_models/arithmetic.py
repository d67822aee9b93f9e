"""Arithmetic questions and what answers them: `python -m tiny_models.arithmetic --n 200 --out prompts.jsonl`.

They are sums and differences of one-digit numbers, as the judges that write are shown; some conversations have a system
turn, and some two earlier turns. Everything is a function of the seed; no question is both for training and held out. Needs
no torch.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tiny_models.judging import draw_case
from tiny_models.synthetic import Turn
from tiny_models.tasks import Split, Task

MOST = 10_000
"""Of different conversations that can be had of a split; 69,030 of those held out are possible, many of them unlikely."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation that ends with a user turn, and what is asked there."""

    context: list[Turn]
    task: Task

    @property
    def answer(self) -> str:
        """The number that is asked for."""
        return self.task.answer

    @property
    def identity(self) -> str:
        """The same for the same conversation, in each process and Python version."""
        return hashlib.sha256(json.dumps(self.context).encode()).hexdigest()[:12]


def questions(seed: int, n: int, split: Split) -> Iterator[Question]:
    """`n` different conversations, at most `MOST`. Held-out ones end with the same 117 questions, so most are longer."""
    if n > MOST:
        raise ValueError(f"{n} questions, but there are at most {MOST}")
    rng = Random(f"arithmetic {split} {seed}")
    seen: set[str] = set()
    while len(seen) < n:
        question = draw_question(rng, split)
        if question.identity not in seen:
            seen.add(question.identity)
            yield question


def draw_question(rng: Random, split: Split) -> Question:
    """A random one."""
    case = draw_case(rng, split, 0, system=True)
    return Question(case.context, case.task)


def numbers(text: str) -> list[str]:
    """Those in a text, as they are written there."""
    return _NUMBER.findall(text)


def is_right(answer: str, text: str) -> bool:
    """Whether a response gives this answer: there is no other number in it, and this one once."""
    return numbers(text) == [answer]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes held-out questions in OpenAI's messages format, no two the same, each with its right answer."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.arithmetic", description=main.__doc__)
    parser.add_argument("--n", type=int, default=200, help=f"number of questions, at most {MOST:,} (default 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    options = parser.parse_args(arguments)
    if not 0 <= options.n <= MOST:
        parser.error(f"--n: {options.n} is none of 0 to {MOST}")
    rows = (
        {"id": question.identity, "messages": question.context, "answer": question.answer}
        for question in questions(options.seed, options.n, "held-out")
    )
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    options.out.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
