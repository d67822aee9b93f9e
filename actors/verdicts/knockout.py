"""Which pairs a knock-out asks next: who loses a comparison is out, and when the winner is settled nothing more is asked.

N responses need N - 1 comparisons instead of N(N - 1)/2, in about log2 N rounds; a tie puts nobody out, and costs another.
"""

from collections.abc import Collection, Mapping

Pair = tuple[int, int]
"""Two positions, the smaller first."""


def next_pairs(players: Collection[int], shares: Mapping[Pair, float]) -> list[Pair]:
    """The pairs of the next round, from the share of each comparison so far that its first player won; empty at the end."""
    lost = {one if share < 0.5 else other for (one, other), share in shares.items() if share != 0.5}
    left = [player for player in sorted(players) if player not in lost]
    pairs: list[Pair] = []
    while left:
        one, *left = left
        opponent = next((other for other in left if (one, other) not in shares), None)
        if opponent is not None:
            left.remove(opponent)
            pairs.append((one, opponent))
    return pairs
