"""Choosing candidates of a prompt to keep (rejection sampling): a function of the candidates, their order and a seed alone.

Best of n is RAFT (arXiv 2304.06767). Sampling with probabilities proportional to exp(reward / temperature) is the choice of
statistical rejection sampling (arXiv 2309.06657); here it is without replacement, by the Gumbel-top-k trick.
"""

import bisect
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rapidfuzz.distance import Indel

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.candidates import SAME_REWARD, Candidate
from pipelines.results.exports.trainer_messages import tools, whole_conversation
from pipelines.settings.export_settings import ChoiceOfCandidates, Choose


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate with its rank among all `of` scored candidates of its prompt, from 1 for the best; equals share a rank.

    Rewards are equal if they differ by `SAME_REWARD` at most. `z_score` is (reward - mean) / population standard deviation;
    None where all rewards are equal.
    """

    candidate: Candidate
    rank: int
    z_score: float | None
    of: int

    def as_row(self) -> dict[str, Any]:
        candidate = self.candidate
        return {
            "messages": whole_conversation(candidate),
            **tools(candidate),
            "reward": candidate.reward,
            "scores": dict(candidate.scores),
            "rank": self.rank,
            "z_score": self.z_score,
            "of": self.of,
            "prompt_hash": candidate.prompt_hash,
            "row": candidate.row,
            "response_name": candidate.name,
        }


def rank_candidates(candidates: Sequence[Candidate]) -> list[RankedCandidate]:
    """Rank each of a prompt's candidates (one or more), in their order.

    Z-scores are of all of them, by the population's standard deviation, so they sum to 0 over a prompt.
    """
    rewards = [candidate.reward for candidate in candidates]
    mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    ascending = sorted(rewards)
    # Differences within `SAME_REWARD` are noise of a batch: divided by their own spread they would look like z-scores of 1.
    differ = ascending[-1] - ascending[0] > SAME_REWARD
    # Once for each reward: of 100,000 candidates with grades from 1 to 5 that is five times.
    ranks = {reward: _rank(reward, ascending) for reward in set(rewards)}
    return [
        RankedCandidate(
            candidate,
            ranks[candidate.reward],
            (candidate.reward - mean) / spread if differ else None,
            len(candidates),
        )
        for candidate in candidates
    ]


def _rank(reward: float, ascending: Sequence[float]) -> int:
    """1 + the number of rewards that are better. A difference grows with the other: the better ones are the last."""
    worse_or_equal = bisect.bisect_left(ascending, True, key=lambda other: other - reward > SAME_REWARD)
    return 1 + len(ascending) - worse_or_equal


def choose(candidates: Sequence[Candidate], settings: ChoiceOfCandidates) -> list[RankedCandidate]:
    """The candidates of a prompt to keep, the best first. Of equal rewards, the first candidate counts as the better one.

    Ranks and z-scores are those among all candidates, before near-duplicates and those below the floor are dropped.
    """
    if not candidates:
        return []
    # Ranked before anything is dropped: "3 of 16" stays that if two near-duplicates of the best go.
    ordered = sorted(rank_candidates(candidates), key=lambda ranked: -ranked.candidate.reward)
    if settings.distinct is not None:
        ordered = list(_distinct(ordered, settings.distinct))
    if settings.floor is not None:
        ordered = [ranked for ranked in ordered if ranked.candidate.reward >= settings.floor]
    match settings.strategy:
        case Choose.BEST:
            return ordered[:1]
        case Choose.TOP_K:
            return ordered[: settings.k]
        case Choose.SOFTMAX:
            return _sample_softmax(ordered, settings)
        case Choose.MAJORITY:
            return _majority(ordered, settings.voters)
        case Choose.ALL:
            return ordered


def _distinct(ordered: Sequence[RankedCandidate], similarity: float) -> Iterator[RankedCandidate]:
    """The candidates whose text is less similar than `similarity` to every better one that was kept."""
    texts: list[str] = []
    # Each text against all that are kept: n² / 2 distances at worst, 120 for 16 candidates.
    for ranked in ordered:
        text = ranked.candidate.judged_text
        if not any(_are_alike(text, kept_text, similarity) for kept_text in texts):
            texts.append(text)
            yield ranked


def _are_alike(text: str, other: str, similarity: float) -> bool:
    """Whether the normalised Indel similarity, 1 - distance / (both lengths), is `similarity` or more.

    Compares whole edits, not the ratio: in floats, a ratio that is exactly `similarity` may come out a bit less. That is
    also why 1e-9 is added before rounding down.
    """
    # Two texts of 10 characters at 0.9: 20 x 0.1 = 2 edits, but 1.9999999999999996 in floats, which would round down to 1.
    most = math.floor((1 - similarity) * (len(text) + len(other)) + 1e-9)
    return Indel.distance(text, other, score_cutoff=most) <= most  # rapidfuzz stops at the cutoff, and returns most + 1


def _sample_softmax(ordered: Sequence[RankedCandidate], settings: ChoiceOfCandidates) -> list[RankedCandidate]:
    """Sample `k` candidates without replacement, with probabilities proportional to exp(reward / temperature).

    Gumbel-top-k: add independent Gumbel noise to each reward / temperature, and take the k greatest. That has the same
    distribution as drawing one after the other from the softmax of those that remain, and no exponential overflows.
    """
    if not ordered:
        return []
    # Seeded by the prompt, not by its place: the same prompt gets the same choice in any file, and with any workers.
    rng = Random(f"softmax {settings.choice_seed} {ordered[0].candidate.prompt_hash}")
    # -log(E) of an exponential variate E is a Gumbel variate. One is drawn for each candidate in order of rank, so adding a
    # worse candidate leaves the noise of the others as it is.
    # Rewards 1 and 0 at temperature 1: the first has the greater key with probability e / (1 + e) = 0.73, as in a softmax.
    keys = [ranked.candidate.reward / settings.softmax_temperature - math.log(rng.expovariate(1.0)) for ranked in ordered]
    positions = sorted(range(len(ordered)), key=lambda position: -keys[position])[: settings.k]
    return [ordered[position] for position in sorted(positions)]  # the best first again, not in the order of the draw


def _majority(ordered: Sequence[RankedCandidate], voters: Sequence[str]) -> list[RankedCandidate]:
    """The candidate with the most votes; each voter, a score, votes for its best candidate. Ties go to the higher reward."""
    # `ordered` goes from the highest reward down, and of equal counts `most_common` gives the first.
    votes = Counter(dict.fromkeys(range(len(ordered)), 0))
    for name in voters:
        scores = {
            position: ranked.candidate.scores[name]
            for position, ranked in enumerate(ordered)
            if name in ranked.candidate.scores
        }
        if scores:  # else no vote; `check_scores` has made sure that the corpus has the score
            best = max(scores.values())
            votes[next(position for position, score in scores.items() if best - score <= SAME_REWARD)] += 1
    return [ordered[position] for position, _ in votes.most_common(1)]


def check(settings: ChoiceOfCandidates) -> None:
    """Raise `SettingsError` if settings contradict each other, or choose nothing."""
    if settings.strategy is Choose.ALL and settings.floor is None and settings.distinct is None:
        raise SettingsError("--strategy all keeps everything: give --set floor=... or --set distinct=..., too")
    if (settings.strategy is Choose.MAJORITY) != bool(settings.voters):
        raise SettingsError("--strategy majority and voters go together: the names, in `scores`, of the judges that vote")
    if settings.k != 1 and settings.strategy not in (Choose.TOP_K, Choose.SOFTMAX):
        raise SettingsError(f"-k {settings.k} goes with --strategy top-k and softmax, and not with {settings.strategy}")
    softmax_settings = settings.model_dump(include={"softmax_temperature", "choice_seed"}, exclude_defaults=True)
    if softmax_settings and settings.strategy is not Choose.SOFTMAX:
        raise SettingsError(
            f"{' and '.join(sorted(softmax_settings))} goes with --strategy softmax, and not with {settings.strategy}"
        )
