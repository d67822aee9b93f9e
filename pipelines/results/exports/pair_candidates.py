"""Preference pairs among the candidates of a prompt: pure functions of the candidates, their order and a seed.

A pair says that one candidate is better, so candidates with equal rewards (to `SAME_REWARD`) make no pair. Nor do equal
texts, as a trainer learns from the difference between them. Texts are compared as they were judged: without the reasoning,
if it was stripped, since a judge that wasn't shown it can't have based the reward on it.
"""

import bisect
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from random import Random

from pipelines.folders.scored_corpus.candidates import SAME_REWARD, Candidate, PreferencePair
from pipelines.settings.export_settings import PairingSettings, PairsOf


def pairs(candidates: Sequence[Candidate], settings: PairingSettings) -> list[PreferencePair]:
    """The preference pairs of a prompt's candidates, by descending reward; equal rewards keep the order of the corpus.

    Empty where no two candidates differ in reward by `min_margin` and in text.
    """
    # `sorted` is stable, in reverse too, so pairs depend on nothing but rewards and the order of the corpus.
    ordered = sorted(candidates, key=attrgetter("reward"), reverse=True)
    if len(ordered) < 2:
        return []
    match settings.pairs:
        case PairsOf.ALL:
            return list(_all_pairs(ordered, settings))
        case PairsOf.CONSECUTIVE:
            return list(_consecutive(ordered, settings))
        case _:
            rejected = _rejected_partner(ordered[0], ordered[1:], settings)
            return [] if rejected is None else [PreferencePair(ordered[0], rejected)]


def _all_pairs(ordered: Sequence[Candidate], settings: PairingSettings) -> Iterator[PreferencePair]:
    for position, better in enumerate(ordered):
        # The margin grows down the order: those before `first` are too close. 100,000 equal rewards would be 5e9 couples.
        first = bisect.bisect_left(ordered, True, lo=position + 1, key=partial(_is_clear, better, settings=settings))
        for worse in map(ordered.__getitem__, range(first, len(ordered))):
            if better.judged_text != worse.judged_text:
                yield PreferencePair(better, worse)


def _consecutive(ordered: Sequence[Candidate], settings: PairingSettings) -> Iterator[PreferencePair]:
    """A chain from the best down: each candidate with the next that is worse by `min_margin`, which then is the better one.

    Candidates too close to the better one are skipped, so with n candidates there are n - 1 pairs at most.
    """
    better = ordered[0]
    for candidate in ordered[1:]:
        if _is_pair(better, candidate, settings):
            yield PreferencePair(better, candidate)
            better = candidate


def _rejected_partner(best: Candidate, others: Sequence[Candidate], settings: PairingSettings) -> Candidate | None:
    """The rejected side for the best candidate, out of the `others` (by descending reward); None if there is none."""
    # From the worst up, and as they are asked for: a candidate that isn't needed isn't read from its row.
    worse = (candidate for candidate in reversed(others) if _is_pair(best, candidate, settings))
    if settings.length_balanced:
        # `min` returns the first of equals, so of texts of the same length the one with the lowest reward.
        return min(worse, key=lambda candidate: abs(len(candidate.text) - len(best.text)), default=None)
    if settings.pairs is PairsOf.BEST_RANDOM:
        descending = list(worse)[::-1]  # `choice` draws by position: in another order other pairs would be made
        # Seeded by the prompt, not by its place: the same prompt gets the same pair in any file, and with any workers.
        return Random(f"pairs {settings.pair_seed} {best.prompt_hash}").choice(descending) if descending else None
    return next(worse, None)


def _is_pair(better: Candidate, worse: Candidate, settings: PairingSettings) -> bool:
    return _is_clear(better, worse, settings) and better.judged_text != worse.judged_text


def _is_clear(better: Candidate, worse: Candidate, settings: PairingSettings) -> bool:
    # `min_margin` may be 0; a margin of `SAME_REWARD` or less is no more than rounding differs between batches.
    margin = better.reward - worse.reward
    return margin > SAME_REWARD and margin >= settings.min_margin
