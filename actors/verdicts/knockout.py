"""Which pairs a knock-out compares next: the loser of a comparison is out, and it ends when one player can't lose any more.

N responses need N - 1 comparisons instead of N(N - 1)/2, in about log2 N rounds; a tie puts nobody out, and costs another.
"""

from collections.abc import Collection, Mapping

Pair = tuple[int, int]


def next_pairs(players: Collection[int], shares: Mapping[Pair, float]) -> list[Pair]:
    """The pairs of the next round, no player twice; empty when nothing is left to compare.

    `shares` has, for each pair compared so far, the share of the comparison that the pair's first player won, 0 to 1.
    """
    # Eight players are 4, 2 and 1 comparisons in three rounds. If all of six tie they meet all others, 15 in seven rounds.
    losers = {first if share < 0.5 else second for (first, second), share in shares.items() if share != 0.5}
    waiting = [player for player in sorted(players) if player not in losers]
    pairs: list[Pair] = []
    while waiting:
        player, *waiting = waiting
        # `waiting` is in ascending order, so (player, other) is the key of their comparison. Of an odd number one sits out.
        # A pair that tied stays in `shares`, so neither is out, and each meets another opponent in this or a later round.
        opponent = next((other for other in waiting if (player, other) not in shares), None)
        if opponent is not None:
            waiting.remove(opponent)
            pairs.append((player, opponent))
    return pairs
