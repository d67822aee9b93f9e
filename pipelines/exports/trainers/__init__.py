"""Rows in each trainer's exact shape, by pure functions: one trainer a file, found by being here.

A file defines `PAIRS`, formats made of preference pairs, or `RESPONSES`, formats made of single responses, or both
(`docs/contributing/trainer-exports.md`):

made = PAIR_FORMATS["trl"]
if (reason := made.check(pair)) is None:   # or why it can't be said in this format
    rows = made.rows(pair)                 # dicts, ready for JSON
"""

import importlib
import pkgutil
from collections.abc import Mapping

from pipelines.exports.trainer_format import PairFormat, ResponseFormat

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]

PAIR_FORMATS: Mapping[str, PairFormat] = {made.name: made for module in _MODULES for made in getattr(module, "PAIRS", ())}
RESPONSE_FORMATS: Mapping[str, ResponseFormat] = {
    made.name: made for module in _MODULES for made in getattr(module, "RESPONSES", ())
}
