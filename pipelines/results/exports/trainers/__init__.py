"""Rows in each trainer's exact shape, by pure functions: one trainer a file, found by being here.

A file defines `FORMATS`, of preference pairs or of single responses (`docs/contributing/trainer-exports.md`):

form = PAIR_FORMATS["trl"]
if (reason := form.refuse(pair)) is None:   # or why this format can't express the pair
    rows = form.rows(pair)                  # dicts, ready for JSON
"""

from collections.abc import Mapping

from actors.modules import modules_in
from pipelines.results.exports.trainer_format import PairFormat, ResponseFormat, TrainerFormat

FORMATS: Mapping[str, TrainerFormat] = {
    form.name: form for module in modules_in(__name__, __path__) for form in module.FORMATS
}
PAIR_FORMATS = {name: form for name, form in FORMATS.items() if isinstance(form, PairFormat)}
RESPONSE_FORMATS = {name: form for name, form in FORMATS.items() if isinstance(form, ResponseFormat)}
