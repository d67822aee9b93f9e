"""The toy questions: what may be asked, how it is put, what is right and which wrong answers are tempting."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal

Split = Literal["train", "held-out"]

HELD_OUT_SHARE = 0.1
"""Share of the (kind, parameters, phrasing) combinations that training never sees."""

WORDS = (
    "apple", "bridge", "castle", "cloud", "dog", "flag", "garden", "grape", "horse", "island", "king", "lamp",
    "lemon", "mouse", "ocean", "piano", "queen", "river", "silver", "snow", "tiger", "tree", "violet", "water",
)  # fmt: skip


class Kind(StrEnum):
    """What a question asks for."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    LARGER = "larger"
    SMALLER = "smaller"
    COUNT = "count"
    FIRST = "first"
    LAST = "last"
    REPEAT = "repeat"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class Task:
    """A question, its only right answer, and wrong answers in no particular order (at least one, none right)."""

    kind: Kind
    key: str
    """Kind, parameters and phrasing: the identity by which training and held-out questions are kept apart."""
    question: str
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Draw:
    """Parameters of one question: the values for the phrasing's blanks, the answer and the temptations."""

    blanks: dict[str, str]
    answer: str
    wrong: tuple[str, ...]


def _numbers(blanks: dict[str, int], answer: int, also: tuple[int, ...] = ()) -> _Draw:
    near = (answer - 10, answer - 2, answer - 1, answer + 1, answer + 2, answer + 10, *also)
    wrong = dict.fromkeys(str(number) for number in near if number != answer and 0 <= number <= 99)
    return _Draw({name: str(value) for name, value in blanks.items()}, str(answer), tuple(wrong))


def _add(rng: Random) -> _Draw:
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    return _numbers({"a": a, "b": b}, a + b, (abs(a - b),))


def _subtract(rng: Random) -> _Draw:
    b, answer = rng.randint(0, 9), rng.randint(0, 9)
    return _numbers({"a": answer + b, "b": b}, answer, (b,))


def _multiply(rng: Random) -> _Draw:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return _numbers({"a": a, "b": b}, a * b, (a + b, a * b + a, a * b - a, a * b + b, a * b - b))


def _larger(rng: Random) -> _Draw:
    a, b = rng.sample(range(12), 2)
    return _Draw({"a": str(a), "b": str(b)}, str(max(a, b)), (str(min(a, b)),))


def _smaller(rng: Random) -> _Draw:
    a, b = rng.sample(range(12), 2)
    return _Draw({"a": str(a), "b": str(b)}, str(min(a, b)), (str(max(a, b)),))


def _count(rng: Random) -> _Draw:
    words = rng.sample(WORDS, rng.randint(2, 5))
    wrong = tuple(str(n) for n in range(max(1, len(words) - 2), len(words) + 3) if n != len(words))
    return _Draw({"words": ", ".join(words)}, str(len(words)), wrong)


def _first(rng: Random) -> _Draw:
    words = rng.sample(WORDS, rng.randint(3, 5))
    return _Draw({"words": ", ".join(words)}, words[0], tuple(words[1:]))


def _last(rng: Random) -> _Draw:
    words = rng.sample(WORDS, rng.randint(3, 5))
    return _Draw({"words": ", ".join(words)}, words[-1], tuple(words[:-1]))


def _repeat(rng: Random) -> _Draw:
    word, other = rng.sample(WORDS, 2)
    times = rng.randint(2, 3)
    wrong = (" ".join([other] * times), " ".join([other] * (times + 1)), " ".join([word] * (times + 2)))
    return _Draw({"word": word, "times": str(times)}, " ".join([word] * times), wrong)


def _reverse(rng: Random) -> _Draw:
    a, b, c = rng.sample(WORDS, 3)
    wrong = (f"{a} {b} {c}", f"{c} {a} {b}", f"{b} {c} {a}", f"{b} {a} {c}")
    return _Draw({"words": f"{a} {b} {c}"}, f"{c} {b} {a}", wrong)


_DRAWS: dict[Kind, Callable[[Random], _Draw]] = {
    Kind.ADD: _add,
    Kind.SUBTRACT: _subtract,
    Kind.MULTIPLY: _multiply,
    Kind.LARGER: _larger,
    Kind.SMALLER: _smaller,
    Kind.COUNT: _count,
    Kind.FIRST: _first,
    Kind.LAST: _last,
    Kind.REPEAT: _repeat,
    Kind.REVERSE: _reverse,
}

_PHRASINGS: dict[Kind, tuple[str, ...]] = {
    Kind.ADD: (
        "What is {a} + {b}?",
        "What is {a} plus {b}?",
        "Add {a} and {b}.",
        "Please work out {a}+{b}.",
        "I have {a} coins and find {b} more. How many coins do I have?",
        "What is the sum of {a} and {b}?",
    ),
    Kind.SUBTRACT: (
        "What is {a} - {b}?",
        "What is {a} minus {b}?",
        "Take {b} from {a}.",
        "Please work out {a}-{b}.",
        "I have {a} coins and lose {b}. How many coins are left?",
        "What is the difference of {a} and {b}?",
    ),
    Kind.MULTIPLY: (
        "What is {a} * {b}?",
        "What is {a} times {b}?",
        "Multiply {a} by {b}.",
        "Please work out {a}*{b}.",
        "I have {a} boxes with {b} coins in each. How many coins do I have?",
        "What is the product of {a} and {b}?",
    ),
    Kind.LARGER: (
        "Which is larger, {a} or {b}?",
        "Which number is bigger: {a} or {b}?",
        "Name the larger of {a} and {b}.",
        "Tell me the maximum of {a} and {b}.",
    ),
    Kind.SMALLER: (
        "Which is smaller, {a} or {b}?",
        "Which number is less: {a} or {b}?",
        "Name the smaller of {a} and {b}.",
        "Tell me the minimum of {a} and {b}.",
    ),
    Kind.COUNT: (
        "How many words are in this list: {words}?",
        "Count the words: {words}.",
        "Here is a list: {words}. How many words does it have?",
        "Tell me the number of words in: {words}.",
    ),
    Kind.FIRST: (
        "What is the first word of this list: {words}?",
        "Give me the first word: {words}.",
        "Here is a list: {words}. Which word comes first?",
        "Name the word at the start of: {words}.",
    ),
    Kind.LAST: (
        "What is the last word of this list: {words}?",
        "Give me the last word: {words}.",
        "Here is a list: {words}. Which word comes last?",
        "Name the word at the end of: {words}.",
    ),
    Kind.REPEAT: (
        "Repeat the word {word} {times} times.",
        "Say {word} {times} times.",
        "Write {word} exactly {times} times.",
        "Please print the word {word} {times} times in a row.",
    ),
    Kind.REVERSE: (
        "Reverse these words: {words}.",
        "Say these words backwards: {words}.",
        "Put these words in the opposite order: {words}.",
        "Write these words from last to first: {words}.",
    ),
}

# Arithmetic comes more often: its questions have the most facts behind them.
_MIX = (*Kind, Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY)


def draw_task(rng: Random, split: Split) -> Task:
    """A random question of that split."""
    while True:
        kind = rng.choice(_MIX)
        phrasing = rng.randrange(len(_PHRASINGS[kind]))
        draw = _DRAWS[kind](rng)
        key = f"{kind}|{phrasing}|{'|'.join(draw.blanks.values())}"
        if split_of(key) == split:
            return Task(kind, key, _PHRASINGS[kind][phrasing].format(**draw.blanks), draw.answer, draw.wrong)


def split_of(key: str) -> Split:
    """Which split a question belongs to: the same in each process and Python version."""
    digest = hashlib.sha256(key.encode()).digest()
    return "held-out" if int.from_bytes(digest[:4]) < HELD_OUT_SHARE * 2**32 else "train"
