"""What the judges that write are shown, and what is true of it: sums and differences, with answers to them. Needs no torch.

An answer is right or wrong, and bare or in words. Some answers are no answer: odd words, hardly anything, other languages.
They count as wrong, in words. Everything is a function of the seed; no question is both for training and held out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tiny_models.synthetic import SYSTEM_TURNS, Turn
from tiny_models.tasks import WORDS, Kind, Split, Task, draw_task

_OPENINGS = ("", "", "Sure! ", "Happy to help with that. ")
_SENTENCES = ("The answer is {}.", "It is {}.", "That gives {}.")
_CLOSINGS = ("", "", " I hope this helps!", " Let me know if you have any other question.")
_ODD = (
    "", ".", "...", "?", "-", "I don't know.", "No idea, sorry!", "Ask somebody else.", "Yes", "No", "Hello there",
    "Ich weiß es nicht.", "Je ne sais pas, désolé.", "No lo sé.", "我不知道。", "わかりません", "Не знаю.", "Δεν ξέρω", "🤷",
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ     .,;:!?'-()äöüéñßжшя数字"

_MORE_PHRASINGS = {
    Kind.ADD: ("{a} + {b} = ?", "{a} plus {b}, please.", "Compute {a}+{b}.", "And {a} + {b}?", "Now add {b} to {a}."),
    Kind.SUBTRACT: (
        "{a} - {b} = ?",
        "{a} minus {b}, please.",
        "Compute {a}-{b}.",
        "And {a} - {b}?",
        "Subtract {b} from {a}.",
    ),
}
"""For training alone. What is known only as the sums that were trained in a phrasing is not known in another."""

REPHRASED_SHARE = 0.5
WORDY_SHARE = 0.45
ODD_SHARE = 0.05
LONG_SHARE = 0.05


class Principle(StrEnum):
    """What a judge may be asked to judge by."""

    CORRECTNESS = "correctness"
    BREVITY = "brevity"
    VERBOSITY = "verbosity"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response and what is true of it."""

    text: str
    says: str
    """The number in it, or "nothing"."""
    right: bool
    bare: bool

    def fulfils(self, principle: Principle) -> bool:
        """Whether it does what the principle asks for."""
        return {Principle.CORRECTNESS: self.right, Principle.BREVITY: self.bare, Principle.VERBOSITY: not self.bare}[
            principle
        ]

    def grade(self, principle: Principle | None = None) -> int:
        """1 to 5: by a principle alone, or for being right first and then for being bare."""
        if principle is None:
            return (5 if self.bare else 4) if self.right else (2 if self.bare else 1)
        if self.fulfils(principle):
            return 5
        return 1 if principle is Principle.CORRECTNESS else 2


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation that ends with a question, and answers to that."""

    context: list[Turn]
    task: Task
    answers: tuple[Answer, ...]

    @property
    def solution(self) -> str:
        """The sum that is asked for, as in 3 + 4 = 7."""
        _, _, first, second = self.task.key.split("|")
        sign = "+" if self.task.kind is Kind.ADD else "-"
        return f"{first} {sign} {second} = {self.task.answer}"


def ranking(first: int, second: int) -> int:
    """1, the first is much better, to 6, the second is, of two grades. Equals go to the first: 3."""
    difference = first - second
    return min(3, max(1, 4 - difference)) if difference >= 0 else min(6, 3 - difference)


def draw_case(rng: Random, split: Split, answers: int, *, system: bool) -> Case:
    """A random case; about one in four has two earlier turns and, where the dialect takes one, one in five a system turn."""
    context: list[Turn] = []
    if system and rng.random() < 0.2:
        context.append({"role": "system", "content": rng.choice(SYSTEM_TURNS)})
    if rng.random() < 0.25:
        earlier = _task(rng, split)
        context.append({"role": "user", "content": earlier.question})
        context.append({"role": "assistant", "content": earlier.answer})
    task = _task(rng, split)
    context.append({"role": "user", "content": task.question})
    drawn_answers = tuple(
        _odd(rng) if rng.random() < ODD_SHARE else _answer(rng, task, rng.random() < 0.5) for _ in range(answers)
    )
    return Case(context, task, drawn_answers)


def _task(rng: Random, split: Split) -> Task:
    while True:
        task = draw_task(rng, split)
        if task.kind in _MORE_PHRASINGS:
            return _rephrased(rng, task) if split == "train" and rng.random() < REPHRASED_SHARE else task


def sums(rng: Random, n: int) -> str:
    """`n` random sums and differences as judges write them, with the beginning of a finding each; none is a question."""
    lines: list[str] = []
    for _ in range(n):
        first, sign, second, answer = _operands(rng, rng.choice((Kind.ADD, Kind.SUBTRACT)))
        claim = answer if rng.random() < 0.5 else rng.choice(_near(answer, first, second))
        verdict = "right" if claim == answer else "wrong"
        lines.append(f"{first} {sign} {second} = {answer}.\n1 says {claim} for {answer}: {verdict}.\n")
    return "".join(lines)


def _near(answer: int, *others: int) -> list[int]:
    """Tempting answers that are wrong."""
    near = (answer - 10, answer - 2, answer - 1, answer + 1, answer + 2, answer + 10, *others)
    return list(dict.fromkeys(number for number in near if number != answer and number >= 0))


def _operands(rng: Random, kind: Kind) -> tuple[int, str, int, int]:
    first, second = rng.randint(0, 9), rng.randint(0, 9)
    return (first, "+", second, first + second) if kind is Kind.ADD else (first + second, "-", second, first)


def _rephrased(rng: Random, task: Task) -> Task:
    """Another question with the same kind of numbers, from all that there are: its phrasing is none of those held out."""
    first, _, second, answer = _operands(rng, task.kind)
    number = rng.randrange(len(_MORE_PHRASINGS[task.kind]))
    question = _MORE_PHRASINGS[task.kind][number].format(a=first, b=second)
    wrong = map(str, _near(answer, second, first))
    return Task(task.kind, f"{task.kind}|more {number}|{first}|{second}", question, str(answer), tuple(wrong))


def _answer(rng: Random, task: Task, right: bool) -> Answer:
    number = task.answer if right else rng.choice(task.wrong)
    draw = rng.random()
    if draw < LONG_SHARE:
        return Answer(f"{_words(rng, 40)}. {rng.choice(_SENTENCES).format(number)}", number, right, bare=False)
    if draw < LONG_SHARE + WORDY_SHARE:
        sentence = rng.choice(_SENTENCES).format(number)
        return Answer(f"{rng.choice(_OPENINGS)}{sentence}{rng.choice(_CLOSINGS)}", number, right, bare=False)
    return Answer(number, number, right, bare=True)


def _odd(rng: Random) -> Answer:
    """Something that has no number in it."""
    texts = (
        lambda: rng.choice(_ODD),
        lambda: _words(rng, 5),
        lambda: _words(rng, 60),
        lambda: "".join(rng.choices(_LETTERS, k=rng.randint(1, 30))),
    )
    return Answer(rng.choice(texts)(), "nothing", right=False, bare=False)


def _words(rng: Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def findings(case: Case, names: Sequence[str], principle: Principle | None, *, graded: bool = True) -> str:
    """What a judge finds, a line each: the principle, the sum, and what each answer says and is."""
    lines = [f"Principle: {principle or 'none'}.", f"{case.solution}."]
    for name, answer in zip(names, case.answers, strict=True):
        grade = f", {answer.grade(principle)}" if graded else ""
        lines.append(f"{name} says {answer.says} for {case.task.answer}: {describe(answer)}{grade}.")
    return "\n".join(lines)


def describe(answer: Answer) -> str:
    """In words."""
    return f"{'right' if answer.right else 'wrong'}, {'bare' if answer.bare else 'wordy'}"
