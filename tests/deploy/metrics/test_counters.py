"""What is counted, before Ray is told."""

from actors.records import Reading, Score
from deploy.metrics import counters


def test_the_reward_has_its_name_to_itself() -> None:
    """A model may call an output `reward` that counts in the reward by another weight than 1."""
    before = counters._counts.copy()
    counters.count_scores("a-model", [Score.scored(Reading(-2.5, {"reward": 2.5, "other": 7.0}), 9)])
    tags = [dict(tags) for name, _, tags in counters._counts - before if name == "assay_scores_total"]
    assert sorted((tag["output"], tag["bucket"]) for tag in tags) == [("other", "5"), ("reward", "-3")]
