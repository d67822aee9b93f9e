"""Which candidates of a prompt make preference pairs. Pure functions of the candidates, their order and a seed.

A pair says that one is better, so equal rewards are none (to `SAME_REWARD`); and since a trainer learns from how the texts
differ, equal texts are none, as they were judged: what a judge wasn't shown is no reason for its reward.
"""

import itertools
from collections.abc import Iterator, Sequence
from random import Random

from pipelines.scored_corpus.candidates import SAME_REWARD, Candidate, PreferencePair
from pipelines.settings.export_settings import PairingSettings, PairsOf


def pairs(candidates: Sequence[Candidate], settings: PairingSettings) -> list[PreferencePair]:
    """The pairs of a prompt's candidates, in no more than the order of their rewards. Among equals the first comes first."""
    ordered = sorted(candidates, key=lambda one: -one.reward)
    return list(_made(ordered, settings)) if len(ordered) > 1 else []


def _made(ordered: Sequence[Candidate], settings: PairingSettings) -> Iterator[PreferencePair]:
    match settings.pairs:
        case PairsOf.ALL:
            couples = itertools.combinations(ordered, 2)
            yield from (PreferencePair(*couple) for couple in couples if _is_pair(*couple, settings))
        case PairsOf.CONSECUTIVE:
            yield from _consecutive(ordered, settings)
        case _:
            best = ordered[0]
            worse = [one for one in ordered[1:] if _is_pair(best, one, settings)]
            if worse:
                yield PreferencePair(best, _chosen(best, worse, settings))


def _consecutive(ordered: Sequence[Candidate], settings: PairingSettings) -> Iterator[PreferencePair]:
    """Each with the next that is worse by enough, from which it goes on."""
    better = ordered[0]
    for one in ordered[1:]:
        if _is_pair(better, one, settings):
            yield PreferencePair(better, one)
            better = one


def _chosen(best: Candidate, worse: Sequence[Candidate], settings: PairingSettings) -> Candidate:
    if settings.length_balanced:
        return min(reversed(worse), key=lambda one: abs(len(one.text) - len(best.text)))
    if settings.pairs is PairsOf.BEST_RANDOM:
        return Random(f"pairs {settings.pair_seed} {best.prompt_hash}").choice(worse)
    return worse[-1]


def _is_pair(better: Candidate, worse: Candidate, settings: PairingSettings) -> bool:
    margin = better.reward - worse.reward
    return margin > SAME_REWARD and margin >= settings.min_margin and better.judged_text != worse.judged_text
