"""INF-ORM: two linear layers with biases at the last token."""

from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import PooledHead


class InfOrm(PooledHead):
    """`INFORMForSequenceClassification`."""

    name = "inf-orm"
    summary = "two layers at the last token (INFORMForSequenceClassification)"
    source = "infly/INF-ORM-Llama3.1-70B model card; reward-bench, rewardbench/models/inform.py"
    read_at = "score.0, ReLU and score.2 on the last token's hidden state, in float32"
    range = "unbounded; compare responses to one prompt"
    architecture = "INFORMForSequenceClassification"
    head_prefixes = ("score.",)
    layers = "score"
    models = (
        KnownModel.built_in(
            "tiny-inf-orm", Golden.each("What is 3 + 4?", {"7": -0.551, "9": -0.922}, 0.03), "random, for tests"
        ),
        KnownModel("infly/INF-ORM-Llama3.1-70B", "70 billion"),
    )


FAMILY = InfOrm()
