"""Games of a judge that sees two responses together: who was ahead in each order in which it saw them.

A benchmark whose authors ask in both orders counts each order by itself. The mean of a judge's grades doesn't: 5 to 2 in one
order and 2 to 3 in the other are ahead by a mean of 1, and a game won and a game lost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.contracts.judge import Shows
from pipelines.evaluation.benchmark import Item
from pipelines.evaluation.statistics.votes import VoteRules, judge_rules

_CLOSE = 1e-9


def with_games(items: Iterable[Item], identity: Mapping[str, Any]) -> Iterator[Item]:
    """The items, with `games` where the judge of a run, by its identity, saw their two responses together."""
    rules = judge_rules(identity)
    if rules is None or rules.shows is Shows.ONE:
        yield from items
        return
    for item in items:
        # Parts of an older version have no votes: their rewards are all that is known.
        has_games = len(item.rewards) == 2 and not item.missing and all(item.votes.get(name) for name in item.rewards)
        yield replace(item, games=games(rules, item)) if has_games else item


def games(rules: VoteRules, item: Item) -> tuple[float, ...]:
    """By how much the first response leads in each game: on average of its votes, each 1, 0 or -1 if it counts by who wins.

    Of pairs the game in the row's order comes first; a judge with one vote has no other one. Empty if some votes couldn't be
    read and the others don't tell who won, as nothing says which order they are of.
    """
    first, second = (item.votes[name] for name in item.rewards)
    if len(first) != len(second):
        return ()
    leads = [vote - other for vote, other in zip(first, second, strict=True)]
    if rules.counts_wins:
        leads = [float((lead > 0) - (lead < 0)) for lead in leads]
    if rules.votes == 1:
        return (_mean(leads),)
    places = _places(rules, len(leads))
    by_outcome = {(_sign(ahead), _sign(behind)): (ahead, behind) for ahead, behind in (_split(leads, at) for at in places)}
    return next(iter(by_outcome.values())) if len(by_outcome) == 1 else ()


def _places(rules: VoteRules, count: int) -> Iterable[int]:
    """How many of `count` votes may be of the first order; those come first.

    With all votes read, or as many of each question, it is known: of 5 votes on 2 principles each, 6 of 10. A list of two is
    shown in one order and then in the reverse; of an odd number of votes, one more is in either.
    """
    if rules.shows is Shows.TWO:
        whole, part = divmod(count * rules.in_order, rules.votes)
        return [whole] if part == 0 else range(1, count)
    principles, part = divmod(count, rules.votes)
    fewer = rules.votes - rules.in_order
    return sorted({fewer * principles, rules.in_order * principles}) if part == 0 else range(1, count)


def _split(leads: Sequence[float], at: int) -> tuple[float, float]:
    return _mean(leads[:at]), _mean(leads[at:])


def _mean(leads: Sequence[float]) -> float:
    """Their mean; 0 for what is 0 but for rounding."""
    mean = sum(leads) / len(leads)
    return mean if abs(mean) > _CLOSE else 0.0


def _sign(lead: float) -> int:
    return (lead > 0) - (lead < 0)
