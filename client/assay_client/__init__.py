"""Rewards from an Assay endpoint, for trainers.

`Client` asks; `Reward` is a number or the reason why there is none. The other modules are adapters, one for each trainer.
"""

from assay_client._client import Client, default_client
from assay_client._reward import NoReward, Reward

__all__ = ["Client", "NoReward", "Reward", "default_client"]
