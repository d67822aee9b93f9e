"""What is made of a scored corpus for training: rows in each trainer's exact shape, by pure functions.

made = PAIR_FORMATS["trl"]
if (reason := made.check(pair)) is None:   # or why it can't be said in this format
    rows = made.rows(pair)                 # dicts, ready for JSON
"""

from collections.abc import Mapping

from pipelines.export.trainers import llama_factory, nemo_aligner, nemo_attributes, nemo_rl, open_instruct, openrlhf, trl
from pipelines.export.trainers.conversations import Refusal
from pipelines.export.trainers.row_format import Labels, PairFormat, ResponseFormat, Row
from pipelines.export.trainers.rpo_scale import ScaleAdvice, scale_advice

_PAIRS = (*trl.PAIRS, *openrlhf.PAIRS, *nemo_rl.PAIRS, *nemo_aligner.PAIRS, *open_instruct.PAIRS, *llama_factory.PAIRS)
_RESPONSES = (*nemo_attributes.RESPONSES, *trl.RESPONSES, *nemo_aligner.RESPONSES, *llama_factory.RESPONSES)

PAIR_FORMATS: Mapping[str, PairFormat] = {made.name: made for made in _PAIRS}
RESPONSE_FORMATS: Mapping[str, ResponseFormat] = {made.name: made for made in _RESPONSES}

__all__ = [
    "PAIR_FORMATS",
    "RESPONSE_FORMATS",
    "Labels",
    "PairFormat",
    "Refusal",
    "ResponseFormat",
    "Row",
    "ScaleAdvice",
    "scale_advice",
]
