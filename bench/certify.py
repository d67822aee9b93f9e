"""Does a certificate see biases that are planted, and none where there is none? Made-up judges on 20 seeds, and real models.

A made-up judge's reward is the worth of a response, of which each text has its own by a hash, and its bias: what a planted
one adds is 0.3 standard deviations for a text twice as long, for the first place, or for an opening.
"""

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from actors.records import Message, Response, Role, ScoreRequest
from pipelines.results.certificates.certificate import Certificate, Effect, Finding, measure
from pipelines.workflows.certifying.certify_model import ORIGINAL, Question, certify, original_rewards, pair_rewards
from pipelines.workflows.certifying.changes import CHANGES, Left, apply

SEEDS = 20
QUESTIONS = 1000
_WORDS = ("It", "comes", "to", "five", "as", "two", "and", "three", "are", "numbers", "that", "make", "this", "sum.", "You")
Bias = Callable[[int, str], float]
"""What a judge adds to the reward of a response at a position with a text."""
KEYS = frozenset({"key_thought", "key_colon", "key_steps"})
PLANTED: Mapping[str, tuple[Bias, frozenset[str]]] = {
    "length": (lambda place, text: 0.3 * math.log2(len(text)), frozenset({"length"})),
    "position": (lambda place, text: 0.3 * (place == 0), frozenset({"order"})),
    "opening": (lambda place, text: 0.3 * text.startswith(("Thought", ":", "Let's")), KEYS),
}
"""Biases, and the changes in which each must be seen."""


def main(arguments: Sequence[str]) -> None:
    """`certify`, or `certify SEEDS`."""
    seeds = int(arguments[0]) if arguments else SEEDS
    print(f"{seeds} seeds, {QUESTIONS:,} questions each")
    print("| judge | seen in | mean effects |")
    print("|---|---|---|")
    for name, (bias, expected) in PLANTED.items():
        runs = [certify_once(bias, seed) for seed in range(seeds)]
        means = ", ".join(f"{change} {_mean(runs, change):+.2f}" for change in sorted(expected))
        print(f"| planted: {name} | {sum(expected <= seen(effects) for effects in runs)} of {seeds} | {means} |")
    alarms = sum(bool(seen(certify_once(lambda place, text: 0.0, seed))) for seed in range(seeds))
    print(f"| clean | {alarms} of {seeds} | |")
    for line in _run_models():
        print(line)


def certify_once(bias: Bias, seed: int, questions: int = QUESTIONS) -> Mapping[str, Effect]:
    """The effects of a made-up judge on made-up questions, by the job's own changes and pairs."""
    draw = Random(seed)
    questions_by_number = {number: Question(_request(draw), draw.randrange(2)) for number in range(questions)}
    rewards = {}
    for number, question in questions_by_number.items():
        requests = {ORIGINAL: question.request, **{change.name: apply(change, *question) for change in CHANGES}}
        for name, request in requests.items():
            if not isinstance(request, Left):
                texts = [response.content for response in request.responses]
                answers = [(_worth(seed, text) + bias(place, text), None) for place, text in enumerate(texts)]
                rewards[number, name] = answers
    trials = [pair_rewards(change.name, change.about, questions_by_number, rewards, Counter()) for change in CHANGES]
    return {effect.name: effect for effect in measure(trials, original_rewards(rewards), single_verdicts=False)[1]}


def seen(effects: Mapping[str, Effect]) -> set[str]:
    """The changes that are said to move rewards."""
    return {name for name, effect in effects.items() if effect.finding is Finding.SEEN}


def _request(draw: Random) -> ScoreRequest:
    responses = (" ".join(draw.choices(_WORDS, k=draw.randrange(5, 40))) + "." for _ in range(2))
    context = (Message(Role.USER, f"What is {draw.random()} + 1?"),)
    return ScoreRequest(context, tuple(Response(f"{place}", text) for place, text in enumerate(responses)))


def _worth(seed: int, text: str) -> float:
    return Random(f"{seed} {text}").gauss(0, 1)


def _mean(runs: Sequence[Mapping[str, Effect]], change: str) -> float:
    return sum(effects[change].size or 0.0 for effects in runs) / len(runs)


def _run_models() -> Iterator[str]:
    """Tiny models: a head that rewards words around an answer, which is a planted bias, and a judge that compares."""
    from pipelines.settings.certify_settings import CertifySettings  # these start what the rest doesn't need
    from pipelines.settings.options import build
    from tiny_models.synthetic import main as write_rows

    with tempfile.TemporaryDirectory() as folder:
        corpus, pairs = Path(folder, "corpus.jsonl"), Path(folder, "pairs.jsonl")
        write_rows(["--rows", "300", "--out", str(corpus)])
        pairs.write_text("".join(json.dumps(row) + "\n" for row in sums()))
        head = {"inputs": str(corpus), "output": f"{folder}/head", "model": "tiny-attributes", "weights": VERBOSE}
        judge = {"inputs": str(pairs), "output": f"{folder}/judge", "model": "tiny-genrm", "votes": 1}
        for settings in (head, judge):
            yield from _table(certify(build(CertifySettings, settings)))


VERBOSE = {"verbosity": 1.0}
"""Weights of a head that make its reward the words around an answer: a planted bias of a real model."""


def sums() -> Iterator[dict[str, str]]:
    """Sums of two digits with a right answer and a wrong one, as the tiny judge has learned them; either comes first."""
    draw = Random(0)
    for first in range(1, 10):
        for second in range(1, 10):
            answers = [f"{first + second}", f"{first + second + draw.choice((-1, 1, 2))}"]
            draw.shuffle(answers)
            yield {"prompt": f"What is {first} + {second}?", "chosen": answers[0], "rejected": answers[1]}


def _table(certificate: Certificate) -> Iterator[str]:
    yield f"{certificate.model}: {certificate.questions} questions"
    for name, effect in ((effect.name, effect) for effect in certificate.effects if effect.size_interval):
        low, high = effect.size_interval or (math.nan, math.nan)
        flipped = "" if effect.flipped is None else f"{effect.flipped:.0%}"
        yield f"| {name} | {effect.size:+.2f} | {low:+.2f} to {high:+.2f} | {flipped} | {effect.pairs} | {effect.finding} |"
