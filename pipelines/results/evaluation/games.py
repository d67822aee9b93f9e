"""Games of a judge that sees two responses together: who was ahead in each order in which it saw them.

A benchmark whose authors ask in both orders counts each order by itself. The mean of a judge's grades doesn't: 5 to 2 in one
order and 2 to 3 in the other are ahead by a mean of 1, and a game won and a game lost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from actors.contracts.showings import Shows
from actors.errors import SettingsError
from pipelines.results.evaluation.benchmark import Benchmark, Item
from pipelines.results.evaluation.statistics.votes import VoteRules, judge_rules

_CLOSE = 1e-9  # a mean of 0.1 + 0.2 - 0.3 is 2e-17, and no win


def with_games(items: Iterable[Item], identity: Mapping[str, Any]) -> Iterator[Item]:
    """The items, with `games` where the judge of a run, by its identity, saw their two responses together.

    Items with a missing reward, without votes or with another number of responses stay as they are.
    """
    rules = judge_rules(identity)
    if rules is None or rules.shows is Shows.ONE:
        yield from items
        return
    for item in items:
        has_games = len(item.rewards) == 2 and not item.missing and all(item.votes.get(name) for name in item.rewards)
        yield replace(item, games=games(rules, item)) if has_games else item


def check_stop(benchmark: Benchmark, shows: Shows, stop: bool) -> None:
    """Raise `SettingsError` if the votes of a judge of two may have stopped, and the benchmark counts each order by itself.

    Only the votes that were taken are recorded, and not how many of them are of each order. Those that a judge agrees on
    stop first: of 300 pairs, 121 had no game to grade, and the accuracy of the others was 6 points lower.
    """
    if stop and benchmark.counts_games and shows is not Shows.ONE:
        raise SettingsError(
            f"{benchmark.name} counts who won each order of a pair, and with --stop nobody can tell which order the votes "
            "are of that were taken: score it without --stop (judge.stop)"
        )


def games(rules: VoteRules, item: Item) -> tuple[float, ...]:
    """By how much the first response leads in each game: on average of its votes, each 1, 0 or -1 if it counts by who wins.

    Of pairs the game in the row's order comes first; a judge with one vote has no other one. Empty if some votes couldn't be
    read and the others don't tell who won, as nothing says which order they are of.
    """
    first, second = (item.votes[name] for name in item.rewards)
    # A vote on one response alone, which belongs to no game.
    if len(first) != len(second):
        return ()
    leads = [vote - other for vote, other in zip(first, second, strict=True)]
    if rules.counts_wins:
        leads = [float((lead > 0) - (lead < 0)) for lead in leads]
    if rules.votes == 1:
        return (_mean(leads),)
    places = _places(rules, len(leads))
    if {0, len(leads)} & places:  # no vote of one game may have been read
        return ()
    # Each place where the first order may end gives two games: they count if all places agree who won both.
    games_at = {index: (_mean(leads[:index]), _mean(leads[index:])) for index in places}
    outcomes = {tuple(np.sign(game).tolist()) for game in games_at.values()}
    return games_at[max(places)] if len(outcomes) == 1 else ()


def _places(rules: VoteRules, count: int) -> set[int]:
    """How many of `count` readable votes may be of the first order; those come first.

    With all votes read it is known: of 5 votes on 2 principles each, 6 of 10. A response has a reward if half of the votes
    on each question could be read (`JudgeScorer`), so 6 of 8 votes on a pair may be 2 and 4, 3 and 3, or 4 and 2. A list of
    two is shown in one order and then in the reverse, both of which are one question; of an odd number of votes, one more is
    in either. Where it isn't known by how many principles a row was judged, it is by as few as there can be.
    """
    principles = rules.principles or -(-count // rules.votes)
    # As many votes as possible may be lost of one order, and none of the other; between these any split is possible.
    fewer, is_pair = rules.votes - rules.in_order, rules.shows is Shows.TWO
    orders = {(rules.in_order, fewer)} if is_pair else {(rules.in_order, fewer), (fewer, rules.in_order)}
    places: set[int] = set()
    for first, second in orders:
        least, other_least = (first - first // 2, second - second // 2) if is_pair else (0, 0)
        low = max(principles * least, count - principles * second)
        high = min(principles * first, count - principles * other_least)
        places.update(range(low, high + 1))
    return places


def _mean(leads: Sequence[float]) -> float:
    mean = sum(leads) / len(leads)
    return mean if abs(mean) > _CLOSE else 0.0
