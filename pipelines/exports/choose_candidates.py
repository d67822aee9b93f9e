"""Which candidates of a prompt are kept: rejection sampling's choice, by the candidates, their order and a seed alone.

Best of n is what RAFT does (arXiv 2304.06767); drawing by exp(reward / temperature) is the choice of statistical rejection
sampling (arXiv 2309.06657), here without replacement, by Gumbel's trick.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rapidfuzz.distance import Indel

from actors.errors import SettingsError
from pipelines.scored_corpus.candidates import SAME_REWARD, Candidate
from pipelines.settings.export_settings import ChoiceOfCandidates, Choose


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate among all that were scored for its prompt: `rank` 1 is the best, and equals (to `SAME_REWARD`) share it.

    `z_score` is its reward less their mean, in standard deviations (of all, not of a sample); None where all are equal.
    """

    candidate: Candidate
    rank: int
    z_score: float | None
    of: int

    def as_row(self) -> dict[str, Any]:
        """A row for supervised training: the conversation with the answer, and where that stands."""
        own = self.candidate
        messages = [{"role": turn.role.value, "content": turn.content} for turn in own.context]
        return {
            "messages": [*messages, {"role": "assistant", "content": own.text}],
            "reward": own.reward,
            "scores": dict(own.scores),
            "rank": self.rank,
            "z_score": self.z_score,
            "of": self.of,
            "prompt_hash": own.prompt_hash,
            "row": own.row,
            "response_name": own.name,
        }


def standings(candidates: Sequence[Candidate]) -> list[RankedCandidate]:
    """Each candidate among the others, in the same order."""
    rewards = [candidate.reward for candidate in candidates]
    mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [
        RankedCandidate(
            candidate,
            1 + sum(reward - candidate.reward > SAME_REWARD for reward in rewards),
            (candidate.reward - mean) / spread if max(rewards) - min(rewards) > SAME_REWARD else None,
            len(candidates),
        )
        for candidate in candidates
    ]


def choose(candidates: Sequence[Candidate], settings: ChoiceOfCandidates) -> list[RankedCandidate]:
    """The candidates that are kept of a prompt's, the best first. Among equals the first counts as the better one."""
    if not candidates:
        return []
    ordered = sorted(standings(candidates), key=lambda one: -one.candidate.reward)
    if settings.distinct is not None:
        ordered = list(_distinct(ordered, settings.distinct))
    if settings.floor is not None:
        ordered = [one for one in ordered if one.candidate.reward >= settings.floor]
    match settings.keep:
        case Choose.BEST:
            return ordered[:1]
        case Choose.TOP_K:
            return ordered[: settings.k]
        case Choose.SOFTMAX:
            return _drawn(ordered, settings)
        case Choose.MAJORITY:
            return _elected(ordered, settings.voters)
        case _:
            return ordered


def _distinct(ordered: Sequence[RankedCandidate], alike: float) -> Iterator[RankedCandidate]:
    """Those that are like none before them."""
    texts: list[str] = []
    for one in ordered:
        text = one.candidate.judged_text
        if not any(_are_alike(text, other, alike) for other in texts):
            texts.append(text)
            yield one


def _are_alike(text: str, other: str, share: float) -> bool:
    """By whole characters: a similarity that is just the one that is asked for may come out a bit less."""
    most = math.floor((1 - share) * (len(text) + len(other)) + 1e-9)
    return Indel.distance(text, other, score_cutoff=most) <= most  # past the cutoff rapidfuzz doesn't go on counting


def _drawn(ordered: Sequence[RankedCandidate], settings: ChoiceOfCandidates) -> list[RankedCandidate]:
    if not ordered:
        return []
    rng = Random(f"softmax {settings.choice_seed} {ordered[0].candidate.prompt_hash}")
    keys = [one.candidate.reward / settings.softmax_temperature - math.log(rng.expovariate(1.0)) for one in ordered]
    chosen = sorted(range(len(ordered)), key=lambda at: -keys[at])[: settings.k]
    return [ordered[at] for at in sorted(chosen)]


def _elected(ordered: Sequence[RankedCandidate], voters: Sequence[str]) -> list[RankedCandidate]:
    """The candidate that most voters put first; of several, the one with the higher reward."""
    if not ordered:
        return []
    votes: Counter[int] = Counter()
    for name in voters:
        scores = [(at, score) for at, one in enumerate(ordered) if (score := one.candidate.scores.get(name)) is not None]
        if not scores:
            continue  # whether the corpus has such a score at all is checked before
        best = max(score for _, score in scores)
        votes[next(at for at, score in scores if best - score <= SAME_REWARD)] += 1
    return [ordered[min(range(len(ordered)), key=lambda at: (-votes[at], at))]]


def check(settings: ChoiceOfCandidates) -> None:
    """Raise `SettingsError` unless what is asked for goes together."""
    if settings.keep is None:
        raise SettingsError("there is nothing to choose by: give --keep best, top-k, all, softmax or majority")
    if settings.keep is Choose.ALL and settings.floor is None and settings.distinct is None:
        raise SettingsError("--keep all keeps everything: give --floor or --distinct, too")
    if (settings.keep is Choose.MAJORITY) != bool(settings.voters):
        raise SettingsError("--keep majority and --voters go together: the names, in `scores`, of the judges that vote")
    if settings.k != 1 and settings.keep not in (Choose.TOP_K, Choose.SOFTMAX):
        raise SettingsError(f"-k {settings.k} goes with --keep top-k and softmax, and not with {settings.keep}")
    drawn = settings.model_dump(include={"softmax_temperature", "choice_seed"}, exclude_defaults=True)
    if drawn and settings.keep is not Choose.SOFTMAX:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in sorted(drawn))
        raise SettingsError(f"{flags} goes with --keep softmax, and not with {settings.keep}")
