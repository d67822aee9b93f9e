"""Rows in each trainer's exact shape, by pure functions: one trainer a file.

A file is found by being here, or by a plug-in's entry point in `assay.trainers`.

A file defines `PAIRS`, formats made of preference pairs, or `RESPONSES`, formats made of single responses, or both
(`docs/contributing/trainer-exports.md`):

form = PAIR_FORMATS["trl"]
if (reason := form.check(pair)) is None:   # or why this format can't express the pair
    rows = form.rows(pair)                 # dicts, ready for JSON
"""

from actors.extensions import Extensions
from pipelines.results.exports.trainer_format import PairFormat, ResponseFormat

PAIR_FORMATS = Extensions("assay.trainers", __name__, "PAIRS", PairFormat)
RESPONSE_FORMATS = Extensions("assay.trainers", __name__, "RESPONSES", ResponseFormat)
