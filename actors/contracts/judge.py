"""A judge: a reward model that generates text and gives its verdict there, on one response, two or all of a request.

A judge is a `Family`: it turns a request into questions, and a question into a prompt. It adds how the text is sampled
(`sampling`), how a text is parsed (`verdict`), and how several verdicts become the reward of a response (`readings`).
"""

import copy
import hashlib
from abc import abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Any, ClassVar, Self

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, Question, check_token_ids, weighted_reward
from actors.contracts.known_model import KnownModel
from actors.contracts.showings import Showings, Shows, choose_pairs
from actors.engine.protocol import Generation, Sampling, Task
from actors.errors import ModelError, SettingsError, Unreadable
from actors.records import Prompt, Reading, Reason, ScoreRequest
from actors.settings.replica import AS_ITS_CARD, Aggregate, JudgeSettings, Pairs
from actors.text.reasoning import opened_by, possible_answers
from actors.verdicts import standing
from actors.verdicts.grades import deviation_of, round_reward
from actors.verdicts.standing import PairwiseRecord, bradley_terry

PARSER = 9
"""Version of the parsers, in a run's identity: it goes up when a text is read differently than before."""
OUR_OUTPUTS = ("reward_std", "judgements")
"""Outputs that Assay makes of votes: the standard deviation of the reward by each, and how many were read."""
STOP_OUTPUTS = ("votes_taken", "votes_settled")
"""Outputs of a judge whose votes may stop: how many were asked, read or not, and the share of its questions that were
settled before all were."""
# How votes are sampled where the card samples greedily or says nothing of several votes.
OUR_TEMPERATURE, OUR_TOP_P = 0.6, 0.95


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one text says of the responses in its prompt, in the order in which they were shown.

    `scores` are the named outputs of each. `merits`, if it compares them: the better response has the higher merit.
    """

    scores: tuple[Mapping[str, float], ...]
    merits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """A prompt, and the verdicts in the texts that were generated for it.

    Votes that couldn't be read are left out.
    """

    prompt: Prompt
    verdicts: tuple[Verdict, ...]

    def scores_of(self, position: int) -> list[Mapping[str, float]]:
        place = self.prompt.response_positions.index(position)
        return [verdict.scores[place] for verdict in self.verdicts]


class Judge(Family):
    """One kind of judge. The default shows a response alone, under the checkpoint's own template and a generation prompt.

    A subclass says what its prompts show (`shows`), how the text is sampled (`card`) and how it is parsed (`read_answer`).
    """

    task = Task.GENERATE
    architecture = "ForCausalLM"
    recognised = False  # its config.json is that of any language model
    head_labels = 0
    # The outputs that its text gives, if these are always the same.
    gives: ClassVar[tuple[str, ...]] = ()
    probes_delimiters = True
    card: Sampling
    # Whose choice `card` is, for a run's record.
    card_of: ClassVar[str] = "its card"
    aggregate: ClassVar[Aggregate] = Aggregate.MEAN
    # The outputs that compare a response with those beside it, and mean nothing beside those of another row.
    relative: ClassVar[frozenset[str]] = frozenset({"win"})
    # Whether its models' template writes `<think>`, which a server of chat completions then leaves out of their texts.
    opens_reasoning: ClassVar[bool] = False
    asks: JudgeSettings = AS_ITS_CARD
    verdict_ids: tuple[int, ...] = ()

    # What each family defines.

    @property
    @abstractmethod
    def shows(self) -> Shows: ...

    @property
    def alone(self) -> bool:
        """Whether it can judge a response without another to compare it with."""
        return self.shows is not Shows.TWO

    @property
    def card_votes(self) -> int:
        # How many verdicts on each question the card takes, or Assay where the card says nothing.
        return 1

    @property
    def marks(self) -> tuple[str, ...]:
        """The two answers, each one token, of a judge that is read by log-probabilities: the counted, the subtracted one."""
        return ()

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """The least and the greatest value of outputs that its text gives; an output that has none isn't in it.

        Votes that stop need them: without an end of the scale, one more vote could change any mean.
        """
        return {"win": (0.0, 1.0)}

    def text_outputs(self) -> tuple[str, ...]:
        return self.gives

    @abstractmethod
    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        """The verdict about `shown` responses in an answer without reasoning. Raises `Unreadable`, also if two differ."""

    def verdict(self, generation: Generation, shown: int) -> Verdict:
        """The verdict in a text about `shown` responses. Raises `Unreadable`. Only for a text that ended by itself.

        A text that was cut off has none, whatever it says so far: the judge may have gone on to another one.
        """
        # The same wherever the answer may begin: a verdict before a mark may be a draft, and one behind it a quotation.
        answers = possible_answers(generation.text)
        verdicts = [self.read_answer(replace(generation, text=answer), shown) for answer in answers]
        if not verdicts or verdicts[0] != verdicts[-1]:
            raise Unreadable(Reason.TWO_VERDICTS if verdicts else Reason.NO_VERDICT)
        return verdicts[0]

    def for_prompt(self, prompt: Prompt) -> Self:
        """The judge as it is asked by a prompt, where its answers have another form for each."""
        return self

    def made_up(self, rng: Random, shown: int) -> Verdict:
        merits = tuple(rng.random() for _ in range(shown))
        return Verdict(
            tuple(dict.fromkeys(self.text_outputs(), merit) for merit in merits),
            merits if self.together and shown > 1 else (),
        )

    # How it is prompted and sampled.

    def with_settings(self, settings: JudgeSettings, verdict_ids: tuple[int, ...] = ()) -> Self:
        """A copy of the judge with these settings. Raises `SettingsError` if they don't fit it.

        Checked here and not in the settings: which of them fit depends on the family.
        """
        judge = copy.copy(self)
        judge.asks, judge.verdict_ids = settings, verdict_ids
        _check_settings(judge)
        return judge

    @property
    def votes(self) -> int:
        return self.asks.votes or self.card_votes

    @property
    def _draws_votes(self) -> bool:
        """Whether a run's votes are sampled even if the card is greedy: then all of them are, so that they count alike.

        Not needed for one vote, nor for two where responses are shown together: those are one in each order.
        """
        return self.asks.temperature != 0 and self.votes > (2 if self.together else 1)

    @property
    def pairs(self) -> Pairs:
        return self.asks.pairs or choose_pairs(self.shows, self.combined_by, self.card_weights())

    @property
    def together(self) -> bool:
        return self.shows is not Shows.ONE

    @property
    def counts(self) -> tuple[int, ...]:
        if self.shows is Shows.ONE:
            return (1,)
        return (1, 2) if self._showings.grades_one else (2,)

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        return [
            Question.about(request, shown, principle, times)
            for shown, times in self._showings.of(request, among)
            for principle in self.principles_of(request) or (None,)
        ]

    def question_count(self, request: ScoreRequest) -> int:
        return self._showings.count(len(request.responses)) * (len(self.principles_of(request)) or 1)

    def principles_of(self, request: ScoreRequest) -> tuple[str, ...]:
        return tuple((self.way.principles or {}).values()) or request.principles

    @property
    def _showings(self) -> Showings:
        grades_one = self.alone and self.combined_by is Aggregate.MEAN
        return Showings(self.shows, self.votes, self.pairs, self.asks.seed, self.asks.temperature == 0, grades_one)

    def sampling(self, prompt: Prompt, vote: int, attempt: int, max_tokens: int) -> Sampling:
        """How the text for vote number `vote` is sampled, at try number `attempt` (0 is the first).

        The seed is made of the prompt's token ids, so that a row has the same votes in every run and on every worker.
        """
        is_sampled = self._draws_votes or attempt > 0  # a retry at temperature 0 would give the same unreadable text
        card_is_greedy = is_sampled and not self.card.temperature
        temperature = self.card.temperature if self.asks.temperature is None else self.asks.temperature
        top_p = self.card.top_p if self.asks.top_p is None else self.asks.top_p
        if is_sampled and not temperature:
            temperature = OUR_TEMPERATURE
        if card_is_greedy and self.asks.top_p is None:
            top_p = OUR_TOP_P
        # All three in the key: equal seeds for two votes, or for a text and its retry, would be the same text twice. The
        # shift leaves 31 bits, which are positive in any engine.
        key = f"{self.asks.seed} {vote} {attempt} ".encode() + array("q", prompt.ids).tobytes()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:4], "little") >> 1
        # Greedy means top_p 1 and top_k 0, to which vLLM sets them itself: the run's record then says what was done.
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
        """All settings that its numbers depend on, and who chose the sampling, for a run's identity."""
        sampling = self.sampling(Prompt((), ()), 0, 0, answer_tokens)
        by_card = (self.card.temperature, self.card.top_p) == (sampling.temperature, sampling.top_p)
        by_user = self.asks.temperature is not None or self.asks.top_p is not None
        return {
            "parser": PARSER,
            "votes": self.votes,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "sampling_of": "the user" if by_user else self.card_of if by_card else "Assay",
            "reask_temperature": sampling.temperature or OUR_TEMPERATURE,
            "max_tokens": answer_tokens,
            **self.asks.model_dump(mode="json", include={"seed", "reask", "trace", "rubric"}) | {"pairs": self.pairs.value},
            **(self.asks.model_dump(mode="json", include={"stop", "stop_error", "stop_at"}) if self.asks.stop else {}),
            **({"criteria_calls": self.asks.criteria_calls} if self.row_outputs else {}),
            "aggregate": self.combined_by.value,
        }

    def opening(self, text: str) -> str:
        # The mark of reasoning with which the template ends a prompt, if it does.
        return opened_by(text)

    def answer_tokens(self, context: int | None) -> int:
        """The longest answer in tokens: the user's, else the card's, but at most half of the model's context.

        The prompt needs the other half. `context` is None where config.json doesn't say how much the model takes.
        """
        longest = self.asks.max_tokens or self.card.max_tokens
        return longest if context is None or self.asks.max_tokens else min(longest, context // 2)

    def find_verdict_ids(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """The ids of `marks`. Raises `ModelError` if one of them isn't one token."""
        verdict_ids = []
        for mark in self.marks:
            ids = checkpoint.ids_of(mark)
            if len(ids) != 1:
                raise ModelError(
                    f"{checkpoint.folder}/tokenizer.json: {mark!r}, by whose log-probability it is read, must be one token, "
                    f"and is {len(ids)}"
                )
            verdict_ids += ids
        return tuple(verdict_ids)

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        # Tied embeddings have no `lm_head` in the files. Without the key, the default of the class decides. A quantised one
        # is several tensors, `lm_head.qweight` and others.
        is_stored = any(name.startswith("lm_head.") for name in checkpoint.tensors)
        if checkpoint.config.get("tie_word_embeddings") is False and checkpoint.tensors and not is_stored:
            raise ModelError(
                f"{checkpoint.folder} has no lm_head: it is a {checkpoint.architecture} without its output embedding, which "
                "would be filled with random numbers. Give a complete checkpoint"
            )
        ids = dict(zip(self.marks, self.find_verdict_ids(checkpoint), strict=True))
        check_token_ids(checkpoint, published, ids)

    # How its verdicts become rewards.

    def is_within_row(self, weights: Mapping[str, float]) -> bool:
        # In a knock-out winners meet winners: which grades are in a response's mean depends on whom it won against.
        relative = self.combined_by is not Aggregate.MEAN or self.pairs is Pairs.ACTIVE
        return self.together and (relative or any(weight for name, weight in weights.items() if name in self.relative))

    def outputs(self) -> tuple[str, ...]:
        of_stop = STOP_OUTPUTS if self.asks.stop else ()
        return (*self.text_outputs(), *OUR_OUTPUTS, *of_stop, *(standing.OUTPUTS if self.together else ()))

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        if custom is not None and (unknown := sorted(custom.keys() - set(self.text_outputs()))):
            names = ", ".join(self.text_outputs())
            raise SettingsError(f"weights name {', '.join(unknown)}, which {self.name} doesn't give; it gives {names}")
        return super().weights(custom)

    def readings(
        self, judgements: Sequence[Judgement], positions: Sequence[int], weights: Mapping[str, float]
    ) -> Mapping[int, Reading]:
        """The reward and the outputs of these responses of a request, from all its judgements.

        A response is missing if it was compared with no other and its reward needs that. A prompt counts as the mean of its
        readable votes, and all prompts alike: else the order of which more votes could be read would decide.
        """
        records = _records(judgements)
        strengths = bradley_terry(records) if self.combined_by is Aggregate.BRADLEY_TERRY else {}
        readings = {}
        for position in positions:
            judgements_about = [judgement for judgement in judgements if position in judgement.prompt.response_positions]
            first, *_ = judgements_about[0].scores_of(position)
            record = records.get(position)
            # Shown alone it has no record: a mean of grades is its reward all the same, a share of wins or a margin isn't.
            if record is None and (self.combined_by is not Aggregate.MEAN or not self.is_complete(first, weights)):
                continue
            # A list per prompt. Five votes are three in one order and two in the other. If those three say 1, and of these
            # two one says 0 and one can't be read, the mean is 0.5; a mean over the four texts would be 0.75.
            ballots = self.ballots(judgements_about, position, weights)
            votes = tuple(ballot.reward for of_prompt in ballots for ballot in of_prompt)
            scores = {
                name: fmean(fmean(ballot.scores[name] for ballot in of_prompt) for of_prompt in ballots)
                for name in ballots[0][0].scores
            }
            reward = round_reward(fmean(fmean(ballot.reward for ballot in of_prompt) for of_prompt in ballots))
            spread = deviation_of(votes)
            if record is not None:
                scores |= record.as_scores()
                # The spread over opponents, and not over texts: a win rate has one share for each of them.
                if self.combined_by is Aggregate.WIN_RATE:
                    reward, spread = record.win_rate, deviation_of(record.outcomes)
            if position in strengths:
                reward, spread = strengths[position]
            scores |= {"judgements": float(len(votes))} | ({} if spread is None else {"reward_std": spread})
            readings[position] = Reading(reward, scores, votes=votes)
        return readings

    def share(self, judgements: Sequence[Judgement], first: int, second: int) -> float:
        """The share of their comparisons that one response won against another, 0 to 1; 0.5 if none could be read."""
        records = _records(judgements)
        return records[first].meetings[second].share if first in records else 0.5

    @property
    def combined_by(self) -> Aggregate:
        return self.asks.aggregate or self.aggregate

    def vote(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
        return round_reward(weighted_reward(scores, weights).reward)

    def is_complete(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> bool:
        # Whether a text gave all outputs that the reward is made of: there is no margin of a response shown alone.
        return weights.keys() <= scores.keys()

    def ballots(self, judgements: Sequence[Judgement], at: int, weights: Mapping[str, float]) -> list[list[Reading]]:
        return [[Reading(self.vote(scores, weights), scores) for scores in each.scores_of(at)] for each in judgements]


def _records(judgements: Sequence[Judgement]) -> Mapping[int, PairwiseRecord]:
    return PairwiseRecord.of(
        [(judgement.prompt.response_positions, verdict.merits) for judgement in judgements for verdict in judgement.verdicts]
    )


def _check_settings(judge: Judge) -> None:
    settings = judge.asks
    # At temperature 0 a prompt has one text, so there are as many different votes as prompts: one, both orders of a
    # pair, or as many orders of a list as there are votes.
    distinct = {Shows.ONE: 1, Shows.TWO: 2, Shows.ALL: judge.votes}[judge.shows]
    if settings.temperature == 0 and judge.votes > distinct:
        raise SettingsError(f"--votes {judge.votes} at judge.temperature=0 would all be the same; give one above 0")
    if settings.rubric is not None and judge.name != "rubric":
        raise SettingsError(f"--rubric is a prompt for any chat model, and --family {judge.name} has a prompt of its own")
    if settings.criteria_calls != "all" and not judge.row_outputs:
        raise SettingsError(f"--criteria-calls {settings.criteria_calls}: {judge.name} has no criteria of a row's own")
    if judge.shows is Shows.ONE and settings.aggregate not in (None, Aggregate.MEAN):
        raise SettingsError(f"judge.aggregate={settings.aggregate}: {judge.name} doesn't compare responses")
    if judge.shows is not Shows.TWO and settings.pairs not in (None, Pairs.CIRCULAR):
        raise SettingsError(f"--pairs {settings.pairs}: {judge.name} doesn't compare two responses at a time")
    names = [name.lower() for name in judge.outputs()]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"two outputs would be called {duplicates[0]!r}, which SQL can't tell apart; give other names")
