"""Rows in each trainer's exact shape, by pure functions: one trainer a file, found by being here.

A file defines `PAIRS`, formats made of preference pairs, or `RESPONSES`, formats made of single responses, or both
(`docs/contributing/trainer-exports.md`):

made = PAIR_FORMATS["trl"]
if (reason := made.check(pair)) is None:   # or why it can't be said in this format
    rows = made.rows(pair)                 # dicts, ready for JSON
"""

from collections.abc import Mapping

from actors.modules import modules_in
from pipelines.exports.trainer_format import PairFormat, ResponseFormat

_MODULES = modules_in(__name__, __path__)

PAIR_FORMATS: Mapping[str, PairFormat] = {made.name: made for module in _MODULES for made in getattr(module, "PAIRS", ())}
RESPONSE_FORMATS: Mapping[str, ResponseFormat] = {
    made.name: made for module in _MODULES for made in getattr(module, "RESPONSES", ())
}
