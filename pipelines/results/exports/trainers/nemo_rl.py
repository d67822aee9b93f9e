"""Rows for NeMo-RL's PreferenceDataset, which its DPO and its reward model train on.

Exactly two completions; the better one has the lower rank. There is no `task_name`: the loader adds that column itself, and
fails where there is one already. Rewards aren't read.

Source: NVIDIA-NeMo/RL@7ea279ab, preference_datasets/preference_dataset.py and data/processors.py, preference_preprocessor.
"""

from collections.abc import Iterator

from pipelines.folders.scored_corpus.candidates import PreferencePair
from pipelines.results.exports.trainer_format import PairFormat, Row
from pipelines.results.exports.trainer_messages import answer, messages


def _ranked_completions(pair: PreferencePair) -> Iterator[Row]:
    ranked = enumerate((pair.chosen, pair.rejected))
    completions = [{"rank": rank, "completion": [answer(candidate)]} for rank, candidate in ranked]
    yield {"context": messages(pair.chosen.context), "completions": completions}


FORMATS = (
    PairFormat(
        name="nemo-rl",
        about="NeMo-RL's PreferenceDataset: ranked completions, for DPO and reward models",
        source="NVIDIA-NeMo/RL@7ea279ab, nemo_rl/data/datasets/preference_datasets/preference_dataset.py",
        rows=_ranked_completions,
        reserved=("context", "completions", "task_name"),
    ),
)
