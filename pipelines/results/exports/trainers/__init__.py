"""Rows in each trainer's exact shape, by pure functions: one trainer a file.

A file is found by being here, or by a plug-in's entry point in `assay.trainers`.

A file defines `FORMATS`, of preference pairs or of single responses (`docs/contributing/trainer-exports.md`):

form = PAIR_FORMATS["trl"]
if (reason := form.refuse(pair)) is None:   # or why this format can't express the pair
    rows = form.rows(pair)                  # dicts, ready for JSON
"""

from actors.extensions import Extensions
from pipelines.results.exports.trainer_format import PairFormat, ResponseFormat, TrainerFormat

FORMATS = Extensions("assay.trainers", __name__, "FORMATS", TrainerFormat)
PAIR_FORMATS = FORMATS.only(PairFormat)
RESPONSE_FORMATS = FORMATS.only(ResponseFormat)
