"""Rows for open-instruct, as its rejection sampling writes them and its DPO and reward modelling read them.

Two whole conversations that differ in their last message. Its own files have a score for each model, by name: here it is
the one reward, by that name. There is no reference completion, so its two columns, which no trainer reads, are left out.

Its transformations drop columns that they don't name.

Source: allenai/open-instruct@e6c3044a, rejection_sampling/rejection_sampling.py and dataset_transformation.py.
"""

from collections.abc import Iterator

from pipelines.folders.scored_corpus.candidates import PreferencePair
from pipelines.results.exports.trainer_format import PairFormat, Row
from pipelines.results.exports.trainer_messages import whole_conversation

_RESERVED = (
    *("chosen", "rejected", "chosen_score", "rejected_score", "prompt", "messages", "dataset", "ground_truth", "tools"),
    *("input_ids", "input_ids_prompt", "attention_mask", "labels", "index"),
)


def _conversations(pair: PreferencePair) -> Iterator[Row]:
    yield {
        "chosen": whole_conversation(pair.chosen),
        "rejected": whole_conversation(pair.rejected),
        "chosen_score": {"reward": pair.chosen.reward},
        "rejected_score": {"reward": pair.rejected.reward},
    }


FORMATS = (
    PairFormat(
        name="open-instruct",
        about="open-instruct's DPO and reward modelling: whole conversations",
        source="allenai/open-instruct@e6c3044a, open_instruct/rejection_sampling/rejection_sampling.py",
        rows=_conversations,
        reserved=_RESERVED,
    ),
)
