"""Classifiers with the labels (good, bad), asked by the checkpoint's chat template: the reward is good minus bad."""

from collections.abc import Mapping, Sequence

from assay.plugins import Golden, KnownModel, OneLogit


class GoodMinusBad(OneLogit):
    """Two logits at the end of the conversation, whose difference is the reward."""

    name = "good-minus-bad"
    summary = "two logits at the end of the conversation, good and bad"
    source = "the model card of my-team's classifiers"
    read_at = "the raw logits at the last token"
    range = "the model's own; compare responses to one prompt"
    fitting_labels = 2
    recognised = False  # two labels may mean anything: only these models, or --family, are read so
    models = (
        KnownModel(
            "my-team/good-or-bad-*", "two labels", golden=Golden.each("What is 3 + 4?", {"7": 6.99, "9": -0.99}, 0.4)
        ),
    )

    def outputs(self) -> tuple[str, ...]:
        return ("good", "bad")

    def card_weights(self) -> Mapping[str, float]:
        return {"good": 1.0, "bad": -1.0}

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        good, bad = values
        return {"good": good, "bad": bad}


FAMILY = GoodMinusBad()
