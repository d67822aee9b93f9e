"""One logit at the end of the conversation: the plain reward model."""

from typing import Any

from tests.contract import Contract, transformers_model


class TestTinyScalar(Contract):
    model = "tiny-scalar"

    def outputs(self, ids: Any) -> Any:
        return all_logits(transformers_model("scalar", "AutoModelForSequenceClassification"), ids)


def all_logits(model: Any, ids: Any) -> Any:
    """The head's outputs at each token; transformers' classes keep those of the last alone."""
    import torch

    return model.score(model.model(torch.tensor([ids])).last_hidden_state[0])
