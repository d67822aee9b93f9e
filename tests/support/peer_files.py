"""Evaluates made-up rewards, and reads the result files of the benchmarks' own codes back."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.data.formats import RowShape
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.results import Evaluation
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus, scored_corpus
from tests.support.corpora import lines, settings, write

Rows = Sequence[Mapping[str, Any]]
Rewards = Sequence[Sequence[float | None]]


def evaluated(scored: str, output: Path, **options: object) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation of a scored corpus, and the peers' files by name, read. `options` are those of `evaluate`."""
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [scored], "output": str(output), **options}))
    return evaluation, {path.name.removeprefix("00000-"): _read(path) for path in (output / "peers").glob("*")}


def figures_and_files(
    tmp_path: Path, rows: Rows, rewards: Rewards, shape: str, identity: Mapping[str, Any] | None = None, **options: object
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Our figures of rows with these rewards, and the peers' files by name, read."""
    scored = judged_corpus(tmp_path / "s", rows, rewards, RowShape(shape), parquet=True, **(identity or {}))
    evaluation, files = evaluated(scored, tmp_path / "e", **options)
    return {figure.name: figure.value for figure in evaluation.figures}, files


def of_json(tmp_path: Path, rows: Rows, *, text: bool = True, **options: object) -> tuple[Evaluation, dict[str, Any]]:
    """The same of a JSONL file, with made-up rewards; without `text` scored with `text: false`."""
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    return evaluated(scored_corpus(settings(corpus, tmp_path / "s", text=text)), tmp_path / "e", **options)


def _read(path: Path) -> Any:
    text = path.read_text()
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
