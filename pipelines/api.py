"""Scoring and filtering from Python, by the names that the command line has."""

from collections.abc import Sequence
from typing import Any

from pipelines import filtering, scoring
from pipelines.filtering import KeepSummary
from pipelines.options import build
from pipelines.settings import FilterSettings, ScoreSettings
from pipelines.summary import Summary


def score(inputs: str | Sequence[str], output: str, *, model: str, **options: Any) -> Summary:
    """Score a corpus into a folder, or go on with it: `score("corpus.jsonl", "scored/", model="tiny-attributes")`.

    Options are those of `assay score --help`, with underscores. Raises what `pipelines.scoring.score` raises.
    """
    paths = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    return scoring.score(build(ScoreSettings, {"inputs": paths, "output": output, "model": model, **options}))


def keep(scored: str, output: str | None, keep: str, **options: Any) -> KeepSummary:
    """Keep the scored rows that meet a condition: `keep("scored/", "kept/", "reward >= 1.0")`; None only counts them.

    Options are those of `assay filter --help`, with underscores. Raises what `pipelines.filtering.keep` raises.
    """
    return filtering.keep(build(FilterSettings, {"scored": scored, "output": output, "keep": keep, **options}))
