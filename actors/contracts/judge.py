"""What a judge is: a reward model that writes before it scores. It is asked about one response, two or all, perhaps often.

A judge is a `Family`: it turns a request into questions, and a question into text. What it adds is how it is to be asked
(`sampling`), how its text is read (`verdict`), and how several judgements become the reward of a response (`readings`).
"""

import copy
import hashlib
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any, ClassVar, Self

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, KnownModel, Question, weighted_reward
from actors.engine.protocol import Generation, Sampling, Task
from actors.errors import ModelError, SettingsError
from actors.records import Prompt, Reading, ScoreRequest
from actors.settings.replica import AS_ITS_CARD, Aggregate, JudgeSettings, Pairs
from actors.text.reasoning import opened_by
from actors.verdicts import standing
from actors.verdicts.standing import PairwiseRecord, bradley_terry

PARSER = 2
"""Goes up when a text is read otherwise than before."""
OUR_TEMPERATURE, OUR_TOP_P = 0.6, 0.95
"""Where a card says nothing of several votes, they are drawn so."""


class Shows(StrEnum):
    """How many responses a question is about."""

    ONE = "one"
    TWO = "two"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one text says of the responses that it was shown, in that order.

    `scores` are the named outputs of each. `merits`, where it compares them: one that is better has the higher merit.
    """

    scores: tuple[Mapping[str, float], ...]
    merits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """A prompt, and the verdicts in what was written in answer to it."""

    prompt: Prompt
    verdicts: tuple[Verdict, ...]


class Judge(Family):
    """One kind of judge. The default shows a response alone, under the checkpoint's own template and a generation prompt."""

    task = Task.GENERATE
    probes_delimiters = True
    head = "lm_head.weight"
    card: ClassVar[Sampling]
    """How its authors ask it once."""
    card_of: ClassVar[str] = "its card"
    """Whose choice that is."""
    aggregate: ClassVar[Aggregate] = Aggregate.MEAN
    relative: ClassVar[frozenset[str]] = frozenset({"win"})
    """Those of its outputs that say how a response stands beside those that it was shown with."""
    asks: JudgeSettings = AS_ITS_CARD
    verdict_ids: tuple[int, ...] = ()
    """The tokens of `marks`."""

    # What a kind of judge says.

    @property
    @abstractmethod
    def shows(self) -> Shows:
        """How many responses a question is about."""

    @property
    def alone(self) -> bool:
        """Whether it can judge a response that there is no other to compare with."""
        return True

    @property
    def card_votes(self) -> int:
        """How often its authors, or we in their place, put a question."""
        return 1

    @property
    def marks(self) -> tuple[str, ...]:
        """Two answers, each one token, if it is read by their log-probabilities: the one that counts, the one subtracted."""
        return ()

    @abstractmethod
    def own_outputs(self) -> tuple[str, ...]:
        """The names of the outputs that its text gives."""

    @abstractmethod
    def verdict(self, said: Generation, shown: int) -> Verdict:
        """What a text says of so many responses. Raises `Unreadable`. The text ended by itself."""

    def made_up(self, rng: Random, shown: int) -> Verdict:
        """A verdict to rehearse with."""
        merits = tuple(rng.random() for _ in range(shown))
        return Verdict(
            tuple(dict.fromkeys(self.own_outputs(), merit) for merit in merits),
            merits if self.together and shown > 1 else (),
        )

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith("ForCausalLM")

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return False  # every language model looks like it

    # How it is asked.

    def asked_by(self, settings: JudgeSettings, verdict_ids: tuple[int, ...] = ()) -> Self:
        """The judge that is asked in this way. Raises `SettingsError` if it can't be."""
        found = copy.copy(self)
        found.asks, found.verdict_ids = settings, verdict_ids
        most = {Shows.ONE: 1, Shows.TWO: 2, Shows.ALL: found.votes}[found.shows]
        if settings.temperature == 0 and found.votes > most:
            raise SettingsError(f"--votes {found.votes} at --temperature 0 would all be the same; give one above 0")
        if settings.rubric is not None and self.name != "rubric":
            raise SettingsError(f"--rubric is a prompt for any chat model, and --family {self.name} has a prompt of its own")
        if found.shows is Shows.ONE and settings.aggregate not in (None, Aggregate.MEAN):
            raise SettingsError(f"--aggregate {settings.aggregate}: {self.name} doesn't compare responses")
        if found.shows is not Shows.TWO and settings.pairs is not Pairs.CIRCULAR:
            raise SettingsError(f"--pairs {settings.pairs}: {self.name} doesn't compare two responses at a time")
        names = [name.lower() for name in found.outputs()]
        if taken := [name for name in names if names.count(name) > 1]:
            raise SettingsError(f"two outputs would be called {taken[0]!r}, which SQL can't tell apart; give other names")
        return found

    @property
    def votes(self) -> int:
        """How often each question is put, in both orders together."""
        return self.asks.votes or self.card_votes

    @property
    def _draws_votes(self) -> bool:
        """Whether a run's votes are sampled, even if the card asks greedily: all of them, so that they count alike.

        One vote isn't, and neither are two of responses that are shown together, one in each order.
        """
        return self.asks.temperature != 0 and self.votes > (2 if self.together else 1)

    @property
    def together(self) -> bool:
        return self.shows is not Shows.ONE

    @property
    def counts(self) -> tuple[int, ...]:
        return (1,) if self.shows is Shows.ONE else (1, 2) if self.alone else (2,)

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        """Each showing of the responses, by each principle."""
        return [
            Question(request.context, tuple(request.responses[at].content for at in shown), shown, principle, times)
            for shown, times in self._showings(request, among)
            for principle in self.principles_of(request) or (None,)
        ]

    def question_count(self, responses: int, principles: int) -> int:
        orders = min(self.votes, 2)
        pairs = responses if self.asks.pairs is Pairs.CIRCULAR else responses * (responses - 1) // 2
        showings = {Shows.ONE: responses, Shows.TWO: max(pairs, 1) * orders, Shows.ALL: self.votes}[self.shows]
        return showings * (len(self.way.principles or ()) or principles or 1)

    def principles_of(self, request: ScoreRequest) -> tuple[str, ...]:
        """What the responses of a request are judged by: the run's principles, or else the row's."""
        return tuple((self.way.principles or {}).values()) or request.principles

    def _showings(self, request: ScoreRequest, among: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
        """Which responses are shown in which order, and how often."""
        if self.shows is Shows.ONE:
            yield from (((at,), self.votes) for at in among)
        elif len(among) == 1:
            # Two votes are one in each order, of which there is only one here.
            times = self.votes if self.votes > 2 and self.asks.temperature != 0 else 1
            yield from (((at,), times) for at in among if self.alone and self._aggregate is Aggregate.MEAN)
        elif self.shows is Shows.TWO:
            for one, other in self._pairs(among):
                yield (one, other), self.votes - self.votes // 2
                if self.votes > 1:
                    yield (other, one), self.votes // 2
        elif among:
            orders: list[tuple[int, ...]] = []
            for vote in range(self.votes):  # each second one is the one before it, turned round: no place is liked twice
                rng = Random(f"{request.prompt_hash} {self.asks.seed} {vote}")
                orders.append(orders[-1][::-1] if vote % 2 else tuple(rng.sample(among, len(among))))
            for shown, times in Counter(orders).items():
                yield shown, 1 if self.asks.temperature == 0 else times

    def _pairs(self, among: Sequence[int]) -> list[tuple[int, int]]:
        """Each with the next and the last with the first, or each with all: a knock-out chooses among these later."""
        if self.asks.pairs is Pairs.CIRCULAR and len(among) > 2:
            return [(one, among[(at + 1) % len(among)]) for at, one in enumerate(among)]
        return [(one, other) for at, one in enumerate(among) for other in among[at + 1 :]]

    def sampling(self, prompt: Prompt, vote: int, attempt: int, max_tokens: int) -> Sampling:
        """How a prompt is put for the n-th vote and the n-th time. The seed is the prompt's own, wherever it is asked."""
        drawn = self._draws_votes or attempt > 0
        ours = drawn and not self.card.temperature
        temperature = self.card.temperature if self.asks.temperature is None else self.asks.temperature
        top_p = self.card.top_p if self.asks.top_p is None else self.asks.top_p
        if drawn and not temperature:
            temperature = OUR_TEMPERATURE
        if ours and self.asks.top_p is None:
            top_p = OUR_TOP_P
        key = f"{self.asks.seed} {vote} {attempt} ".encode() + array("q", prompt.ids).tobytes()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:4], "little") >> 1
        return replace(
            self.card,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p if temperature else 1.0,
            top_k=self.card.top_k if temperature else 0,
            seed=seed if temperature else None,
            verdict_ids=self.verdict_ids,
            keep_special=True,
        )

    def recorded(self, answer_tokens: int) -> dict[str, Any]:
        """All that decides what its numbers are, and whose choice the sampling was, for a run's identity."""
        sampling = self.sampling(Prompt((), ()), 0, 0, answer_tokens)
        theirs = (self.card.temperature, self.card.top_p) == (sampling.temperature, sampling.top_p)
        given = self.asks.temperature is not None or self.asks.top_p is not None
        return {
            "parser": PARSER,
            "votes": self.votes,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "sampling_of": "the user" if given else self.card_of if theirs else "Assay",
            "reask_temperature": sampling.temperature or OUR_TEMPERATURE,
            "max_tokens": answer_tokens,
            **self.asks.model_dump(mode="json", include={"seed", "pairs", "reask", "trace", "rubric"}),
            "aggregate": self._aggregate.value,
        }

    def opening(self, text: str) -> str:
        """Some templates begin the reasoning themselves."""
        return opened_by(text)

    def answer_tokens(self, context: int | None) -> int:
        """The longest answer: as the user or the card says, and never more than half of what the model takes."""
        longest = self.asks.max_tokens or self.card.max_tokens
        return longest if context is None or self.asks.max_tokens else min(longest, context // 2)

    def find_verdict_ids(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """The ids of `marks`. Raises `ModelError` if one of them isn't one token."""
        return tuple(_only_id(checkpoint, mark) for mark in self.marks)

    def check(self, checkpoint: Checkpoint, known: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        if checkpoint.config.get("tie_word_embeddings") is False:  # without the key, it is as its class has it
            super().check(checkpoint, known, tensor_parallel)
        found = dict(zip(self.marks, self.find_verdict_ids(checkpoint), strict=True))
        if known is not None and known.token_ids and found != known.token_ids:
            raise ModelError(
                f"{known.id} is read by {dict(known.token_ids)}, and the tokenizer in {checkpoint.folder} has {found}: it "
                "isn't the one that the model was published with"
            )

    def labels(self, checkpoint: Checkpoint) -> int:
        return 0

    # What its judgements become.

    def is_within_row(self, weights: Mapping[str, float]) -> bool:
        """Whether its rewards compare the responses of one row, and say nothing beside those of another."""
        relative = self._aggregate is not Aggregate.MEAN or self.asks.pairs is Pairs.ACTIVE
        return self.together and (relative or any(weight for name, weight in weights.items() if name in self.relative))

    def outputs(self) -> tuple[str, ...]:
        return (*self.own_outputs(), "reward_std", "judgements", *(standing.OUTPUTS if self.together else ()))

    def weights(self, own: Mapping[str, float] | None) -> Mapping[str, float]:
        if own is not None and (unknown := sorted(own.keys() - set(self.own_outputs()))):
            there = ", ".join(self.own_outputs())
            raise SettingsError(f"weights name {', '.join(unknown)}, which {self.name} doesn't give; it gives {there}")
        return super().weights(own)

    def readings(
        self, judgements: Sequence[Judgement], positions: Sequence[int], weights: Mapping[str, float]
    ) -> Mapping[int, Reading]:
        """What all judgements about these responses of a request come to.

        A response is missing that has no reward of the kind that is asked for, since it was compared with no other. Each
        prompt counts alike, however many of its votes could be read: else the order that has more of them would decide.
        """
        standings = PairwiseRecord.of(
            [(one.prompt.judges, verdict.merits) for one in judgements for verdict in one.verdicts]
        )
        strengths = bradley_terry(standings) if self._aggregate is Aggregate.BRADLEY_TERRY else {}
        found = {}
        for at in positions:
            about = [one for one in judgements if at in one.prompt.judges]
            first = about[0].verdicts[0].scores[about[0].prompt.judges.index(at)]
            own = standings.get(at)
            if own is None and (self._aggregate is not Aggregate.MEAN or not self.complete(first, weights)):
                continue
            ballots = self.ballots(about, at, weights)
            votes = tuple(ballot.reward for prompt in ballots for ballot in prompt)
            names = ballots[0][0].scores
            scores = {
                name: _mean([_mean([ballot.scores[name] for ballot in prompt]) for prompt in ballots]) for name in names
            }
            reward, spread = _mean([_mean([ballot.reward for ballot in prompt]) for prompt in ballots]), _spread(votes)
            if own is not None:
                scores |= own.as_scores()
                if self._aggregate is Aggregate.WIN_RATE:
                    reward, spread = own.win_rate, _spread(own.outcomes)
            if at in strengths:
                reward, spread = strengths[at]
            scores |= {"judgements": float(len(votes))} | ({} if spread is None else {"reward_std": spread})
            found[at] = Reading(reward, scores, votes=votes)
        return found

    def share(self, judgements: Sequence[Judgement], one: int, other: int) -> float:
        """How much of their comparison one response won against another: half, where nothing could be read."""
        compared = PairwiseRecord.of([(own.prompt.judges, verdict.merits) for own in judgements for verdict in own.verdicts])
        return compared[one].meetings[other].share if one in compared else 0.5

    @property
    def _aggregate(self) -> Aggregate:
        return self.asks.aggregate or self.aggregate

    def vote(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
        """What one text comes to for a response, from the outputs that it gives of it."""
        return weighted_reward(scores, weights).reward

    def complete(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> bool:
        """Whether a text gave all outputs that the reward is made of: of a response alone there is no margin."""
        return weights.keys() <= scores.keys()

    def ballots(self, about: Sequence[Judgement], at: int, weights: Mapping[str, float]) -> list[list[Reading]]:
        """What the judgements about a response say of it, prompt by prompt."""
        return [
            [weighted_reward(verdict.scores[one.prompt.judges.index(at)], weights) for verdict in one.verdicts]
            for one in about
        ]


def _only_id(checkpoint: Checkpoint, text: str) -> int:
    """The token that a text is. Raises `ModelError` if it is several."""
    from tokenizers import Tokenizer  # half a second less than transformers, in the driver too

    file = checkpoint.folder / "tokenizer.json"
    try:
        ids = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids
    except Exception as error:  # the library raises plain Exceptions
        raise ModelError(f"{file} can't be read: {error}") from error
    if len(ids) != 1:
        raise ModelError(f"{file}: {text!r}, by whose log-probability it is read, must be one token, and is {len(ids)}")
    return int(ids[0])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; one value has none."""
    if len(values) < 2:
        return None
    mean = _mean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)
