"""Families that give a distribution of rewards: its mean and its spread.

"Diverging Preferences" (arXiv 2410.14632): trained on each annotator's own judgement, the spread tells where annotators
disagree.
"""

from actors.contracts.family import OneLogit

MEAN, STD = "mean", "reward_std"


class Distribution(OneLogit):
    """A family whose outputs are a mean, which is the reward, and a standard deviation.

    Both are on the model's own scale. A response of which one isn't finite has no reward.
    """

    recognised = False  # a head with this many labels may mean anything
    skips_padding = True

    def outputs(self) -> tuple[str, ...]:
        return (MEAN, STD)
