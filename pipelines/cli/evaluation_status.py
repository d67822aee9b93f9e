"""How far an evaluation is with each model on each benchmark, from its folder alone."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import SourceError
from pipelines.cli.status import RunState
from pipelines.cli.status import status as run_status
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import PUBLISHED_SUFFIX

_RESULTS, _SCORED = "results.json", "scored"
_NAMED = re.compile(r"([\w-]+)=.+", re.DOTALL)


@dataclass(frozen=True)
class EvaluatedRun:
    """A model on a benchmark. `state` is None, and `share` 0, where its scoring hasn't begun."""

    model: str
    benchmark: str
    """Its name, or the file as it was given where only reading it tells the benchmark."""
    state: RunState | None
    share: float = 0.0
    responses: int | None = None

    def line(self) -> str:
        """For people."""
        if self.state is None:
            return f"{self.model} on {self.benchmark}: not begun"
        counted = "" if self.responses is None else f", {self.responses:,} responses"
        done = "" if self.state is RunState.COMPLETE else f", {self.share:.1%} done"
        return f"{self.model} on {self.benchmark}: {self.state}{done}{counted}"


def evaluated_runs(folder: str, document: Mapping[str, Any]) -> list[EvaluatedRun]:
    """The models and benchmarks of an evaluation, from its folder and the document in it. Raises `OSError`."""
    if document.get("summary") is not None:
        return _finished(folder)
    settings = document["settings"]
    models, scored = settings.get("model") or [], settings["scored"]
    if not models:
        return [_run(corpus, None, corpus) for corpus in scored]
    return [run for model in models for run in _of_model(folder, model, scored)]


def _finished(folder: str) -> list[EvaluatedRun]:
    """As the results say; none if they can't be read."""
    try:
        evaluations = json.loads(storage.folder(folder).read(_RESULTS))["evaluations"]
        return [
            EvaluatedRun(
                f"{each['model']}{', as published' if each.get('preset') else ''}", each["benchmark"], RunState.COMPLETE, 1.0
            )
            for each in evaluations
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _of_model(folder: str, model: str, files: Sequence[str]) -> Iterator[EvaluatedRun]:
    """The runs that there are, and then the files that the model hasn't begun."""
    scored = storage.folder(folder).sub(_SCORED)
    begun = []
    for benchmark in sorted(scored.names()):
        place, name = scored.sub(benchmark), storage.file_name(model)
        present = place.names()
        if name in present:
            begun.append(benchmark)
            yield _run(place.sub(name).path, model, benchmark)
        if name + PUBLISHED_SUFFIX in present:
            yield _run(place.sub(name + PUBLISHED_SUFFIX).path, f"{model}, as published", benchmark)
    named = [match[1] for file in files if (match := _NAMED.fullmatch(file))]
    unnamed = [file for file in files if not _NAMED.fullmatch(file)]
    # Files are scored in the order given, so of those without a benchmark's name the first ones have begun.
    unnamed_begun = len(set(begun) - set(named))
    for benchmark in itertools.chain((name for name in named if name not in begun), unnamed[unnamed_begun:]):
        yield EvaluatedRun(model, benchmark, None)


def _run(scored: str, model: str | None, benchmark: str) -> EvaluatedRun:
    try:
        run = run_status(scored)
    except SourceError:  # its manifest isn't written yet
        return EvaluatedRun(model or "a model", benchmark, None)
    return EvaluatedRun(model or run.model, benchmark, run.state, run.share, run.responses)
