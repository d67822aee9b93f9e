"""Effects of what should not matter, by pairs of rewards before and after a change, with intervals that hold together.

Each question gives one pair, so that pairs are independent; its move is

    a response was changed   the change of its reward
    order                    half of what the last response gains more than the first when their order is reversed, so that
                             a judge that prefers the first place has a positive one
    seed                     the change of a reward without its sign, as no direction is to be expected

The effect is the mean move in standard deviations of the original rewards, with Student's interval, widened by what moves
that few pairs or none happened to make may add (`_bound_unseen`); the share of verdicts that flip has the exact binomial
one. All hold at once with the confidence (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import sem, t

from actors.text.readable import Readable
from pipelines.folders.scored_corpus.candidates import SAME_REWARD
from pipelines.results.filtering.cuts import interval

ORDER, SEED = "order", "seed"
CONFIDENCE = 0.99  # that all intervals hold: of 100 models without a bias one is said to have some
# Of fewer pairs Student's interval says little, as a rare large move may not be among them.
LEAST_PAIRS = 30


class Finding(StrEnum):
    """What the pairs say of an effect.

    By the interval alone: what is `seen` may be small, and what is `not seen` isn't shown to be small.
    """

    SEEN = "seen"  # its interval is on one side of 0; of a seed, rewards have moved
    NOT_SEEN = "not seen"
    NOT_SHOWN = "not shown"  # the model gets the same prompt, or samples nothing: it can't have this effect
    TOO_FEW = "too few pairs"
    NO_SPREAD = "no spread"  # all original rewards are equal, so that there is no unit


class Pair(NamedTuple):
    """The rewards of a question's responses before and after a change, in the same order; `at` is the changed one.

    A reward is None where the response was rejected, or the judge gave no verdict.
    """

    before: Sequence[float | None]
    after: Sequence[float | None]
    at: int


class Trial(NamedTuple):
    """A change, its pairs, and how many questions gave none, by reason. `impossible`: none can have shown the change."""

    name: str
    about: str
    pairs: Sequence[Pair]
    left: Mapping[str, int]
    impossible: bool = False


@dataclass(frozen=True)
class Effect:
    """What a change does: its mean `size` in standard deviations and as a `change` of the reward. None of too few pairs.

    Of `verdicts`, the pairs in which it is known which response is best before and after, or what a judge says of a single
    one, the share `flipped` is another one afterwards.
    """

    name: str
    about: str
    finding: Finding
    pairs: int
    left: Mapping[str, int]
    """Questions that gave no pair, by reason."""
    size: float | None = None
    size_interval: tuple[float, float] | None = None
    change: float | None = None
    verdicts: int = 0
    flipped: float | None = None
    flipped_interval: tuple[float, float] | None = None

    def failure(self, most: float) -> str | None:
        """Why it isn't shown to be at most so many standard deviations; None if it is, or can't be there at all."""
        if self.size is None or self.size_interval is None:
            shown = f"{self.name}: {self.finding}, {self.pairs:,} pairs of at least {LEAST_PAIRS}"
            return None if self.finding is Finding.NOT_SHOWN else shown
        low, high = self.size_interval
        shown = f"{self.name}: {self.size:+.2f} ({low:+.2f} to {high:+.2f}) isn't shown to be within {most:g}"
        return None if -most <= low and high <= most else shown


@dataclass(frozen=True)
class Certificate(Readable):
    """How far what should not matter moves a model's rewards on some rows, and all that says which model it is."""

    model: str
    rows: Sequence[str]
    """Where the rows are from: as it was given, or the files of a scored corpus."""
    questions: int
    """Prompts with their responses, one a row, that were scored as they are."""
    left: Mapping[str, int]
    """Rows that gave no question, by reason."""
    deviation: float
    """The standard deviation of the original rewards: the unit of all sizes."""
    confidence: float
    """The probability with which all intervals hold together."""
    effects: Sequence[Effect]
    made_up: bool
    """Whether the rewards are the fake engine's."""
    identity: Mapping[str, Any]
    """What decides the numbers, as in the manifest of a scored corpus."""
    made_with: Mapping[str, Any]
    rows_drawn: int
    """Rows that were read, from 20 places that lie all over the files; of more files one place of 20 of them."""
    files: int
    beginnings: Mapping[str, int]
    """Compressed files and arrays, of which only so many first rows were looked at: nothing is known of the others."""


def measure(trials: Sequence[Trial], rewards: Sequence[float], single_verdicts: bool) -> tuple[float, list[Effect]]:
    """The standard deviation of the original `rewards`, and the effect of each trial.

    `single_verdicts`: the reward of a single response is a verdict, and no number that hardly ever stays the same.
    """
    deviation = float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0
    # Bonferroni: 1 % is shared by all intervals, two of each tested change.
    tested = sum(len(trial.pairs) >= LEAST_PAIRS for trial in trials)
    level = 1 - (1 - CONFIDENCE) / max(1, 2 * tested)  # of each a size and a share
    moved = [reward for trial in trials for pair in trial.pairs for reward in pair.after if reward is not None]
    all_rewards = [*rewards, *moved]
    reach = float(np.ptp(all_rewards)) if all_rewards else 0.0
    return deviation, [_effect(trial, deviation, reach, level, single_verdicts) for trial in trials]


def _effect(trial: Trial, deviation: float, reach: float, level: float, single_verdicts: bool) -> Effect:
    name, pairs = trial.name, trial.pairs
    if len(pairs) < LEAST_PAIRS or deviation <= SAME_REWARD:
        lacking = Finding.TOO_FEW if len(pairs) < LEAST_PAIRS else Finding.NO_SPREAD
        return Effect(name, trial.about, Finding.NOT_SHOWN if trial.impossible else lacking, len(pairs), trial.left)
    # In standard deviations of the unchanged rewards, so that models on different scales can be compared.
    moves = np.array([_move(name, pair) for pair in pairs]) / deviation
    size = low = high = float(moves.mean())
    if np.ptp(moves) > 0:  # equal moves have no spread, and Student's interval is a point
        low, high = map(float, t.interval(level, len(moves) - 1, size, sem(moves)))
    unseen = _bound_unseen(moves, reach / deviation, level)
    low, high = min(low, size - unseen), max(high, size + unseen)
    # Moves by a seed have no sign, so that their mean can't be below 0.
    low = max(low, 0.0) if name == SEED else low
    # Without signs a mean above 0 is no chance: rewards have moved. A mean of the last bits, as of another batch, is none.
    is_seen = (low > 0 or high < 0 or name == SEED) and abs(size) * deviation > SAME_REWARD
    flips = [flip for pair in pairs if (flip := _flips(pair, single_verdicts)) is not None]
    shares = (sum(flips) / len(flips), interval(sum(flips), len(flips), level)) if flips else ()
    finding = Finding.SEEN if is_seen else Finding.NOT_SEEN
    return Effect(
        name, trial.about, finding, len(pairs), trial.left, size, (low, high), size * deviation, len(flips), *shares
    )


def _bound_unseen(moves: np.ndarray[Any, np.dtype[np.float64]], reach: float, level: float) -> float:
    """How much more than here the mean may be moved by what few pairs do: most grades stay as they are.

    By the exact bound (Clopper and Pearson) of the share of pairs that move, times the largest move of those that did; and
    by that of 0 of n, times the largest that the rewards allow. 0 where half of the pairs move or more, each by its own.
    """
    # Of 30 pairs none may move where 12 % do, by 4 grades each: Student's interval was a point in 2 % of such samples.
    usual = float(np.median(moves))
    changed = np.abs(moves - usual)[np.abs(moves - usual) > SAME_REWARD]
    if 2 * len(changed) >= len(moves):
        return 0.0
    most = interval(len(changed), len(moves), level)[1] - len(changed) / len(moves)
    none = interval(0, len(moves), level)[1]
    return max(none * reach, most * float(changed.max(initial=0.0)))


def _move(name: str, pair: Pair) -> float:
    rewards = zip(pair.before, pair.after, strict=True)
    gains = [np.nan if before is None or after is None else after - before for before, after in rewards]
    if name == ORDER:
        # Reversing moves the last response to the front: both ends gain or lose the same preference, hence half.
        return float(gains[-1] - gains[0]) / 2
    return float(abs(gains[pair.at]) if name == SEED else gains[pair.at])


def _flips(pair: Pair, single_verdicts: bool) -> bool | None:
    # A head's single reward always moves in its last digits, and is no verdict.
    if None in (*pair.before, *pair.after) or (len(pair.before) == 1 and not single_verdicts):
        return None
    if len(pair.before) == 1:
        return abs(_move("", pair)) > SAME_REWARD
    return _best(pair.before) != _best(pair.after)


def _best(rewards: Sequence[Any]) -> set[int]:
    # All that are as good as the best: a tie that opens or closes is another verdict.
    return {position for position, reward in enumerate(rewards) if reward >= max(rewards) - SAME_REWARD}
