"""Rows in each trainer's exact shape, by pure functions: one trainer a file, found by being here.

A file defines `PAIRS`, formats made of preference pairs, or `RESPONSES`, formats made of single responses, or both
(`docs/contributing/trainer-exports.md`):

form = PAIR_FORMATS["trl"]
if (reason := form.check(pair)) is None:   # or why this format can't express the pair
    rows = form.rows(pair)                 # dicts, ready for JSON
"""

from collections.abc import Mapping

from actors.modules import modules_in
from pipelines.results.exports.trainer_format import PairFormat, ResponseFormat

_MODULES = modules_in(__name__, __path__)

PAIR_FORMATS: Mapping[str, PairFormat] = {form.name: form for module in _MODULES for form in getattr(module, "PAIRS", ())}
RESPONSE_FORMATS: Mapping[str, ResponseFormat] = {
    form.name: form for module in _MODULES for form in getattr(module, "RESPONSES", ())
}
