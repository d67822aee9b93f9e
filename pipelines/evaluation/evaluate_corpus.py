"""Evaluates scored corpora: reads each folder's items, grades them as a benchmark's authors do, and writes the results.

e/
  scored/BENCHMARK/MODEL/    what `evaluate BENCHMARK=FILE --model MODEL` scored: scored corpora like any other
  results.json               every figure with its interval, counts, conventions and identities
  table.md, table.tex        the same for people
  peers/00000-*              of the first evaluation, the result files of the benchmark's own code, where it has a form
  items-00000.parquet        of the first evaluation, a line for each item: its grade, or why it has none
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from actors.errors import OutputError, SettingsError, SourceError
from pipelines import storage
from pipelines.corpus.assay_folders import EVALUATED
from pipelines.corpus.corpus_files import InputFile
from pipelines.evaluation import intervals
from pipelines.evaluation.benchmark import ALL, Benchmark, MeanCells, Measure
from pipelines.evaluation.benchmarks import benchmarks
from pipelines.evaluation.grades import Grades, grade_items
from pipelines.evaluation.latex import latex
from pipelines.evaluation.peer_files import EvaluatedModel, peer_files
from pipelines.evaluation.published.figures import OurFigures, PublishedComparison, compare_published, known_file
from pipelines.evaluation.read_items import read_items
from pipelines.evaluation.results import Evaluation, Figure, SubsetCounts, document, markdown
from pipelines.run_folder import output_folder
from pipelines.run_folder.manifest import Manifest
from pipelines.scored_corpus.scored_folder import open_scored
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.storage import error_text
from pipelines.storage.lease import lease

RESULTS, TABLE, TEX, PEERS = "results.json", "table.md", "table.tex", "peers"
_BLOCK = 1 << 20


class ScoredBenchmark(NamedTuple):
    """The folder of a scored corpus, and the benchmark that it is; None if its rows tell."""

    folder: str
    benchmark: str | None


def evaluate(settings: EvaluateSettings) -> list[Evaluation]:
    """Evaluate every scored folder, and write the results to the output folder if there is one.

    Raises a `UserError` if a folder isn't a complete scored corpus, or its benchmark can't be told or lacks subsets.
    """
    corpora = [ScoredBenchmark(folder, settings.benchmark) for folder in settings.scored]
    if settings.output is None:
        with tempfile.TemporaryDirectory() as place:
            return [_evaluate(corpus, settings, Path(place, "items.parquet")) for corpus in corpora]
    output_folder.check_apart([*settings.scored, settings.output])
    return evaluate_into(settings, settings.output, lambda: corpora)


def evaluate_into(
    settings: EvaluateSettings, output: str, corpora: Callable[[], Sequence[ScoredBenchmark]]
) -> list[Evaluation]:
    """Evaluate into a folder. `corpora` may score there first, and resume that; an evaluation takes seconds."""
    output_folder.check_free(output, settings.overwrite, EVALUATED)
    with lease(output):
        return _write(settings, output, corpora)


def _write(settings: EvaluateSettings, output: str, corpora: Callable[[], Sequence[ScoredBenchmark]]) -> list[Evaluation]:
    request = {"settings": settings.model_dump(mode="json"), "asked": f"evaluate {' '.join(settings.scored)}"}
    output_folder.start(output, request, EVALUATED)
    peers = storage.folder(output).sub(PEERS)
    peers.delete_all()
    evaluations = list[Evaluation]()
    with tempfile.TemporaryDirectory() as local:
        for number, corpus in enumerate(corpora()):
            items = Path(local, "items.parquet")
            evaluations.append(_evaluate(corpus, settings, items))
            _put(output, f"items-{output_folder.result_name(number)}.parquet", items.read_bytes())
            for name, content in _peer_files(corpus, evaluations[-1], settings).items():
                _put(peers.path, f"{output_folder.result_name(number)}-{name}", content)
    results = document(evaluations, request["settings"])  # type: ignore[arg-type]
    _put(output, RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    _put(output, TABLE, markdown(evaluations).encode())
    _put(output, TEX, latex(evaluations).encode())
    output_folder.finish(output, request, {"evaluations": len(evaluations)}, EVALUATED)
    return evaluations


def _peer_files(scored: ScoredBenchmark, evaluation: Evaluation, settings: EvaluateSettings) -> Mapping[str, bytes]:
    corpus = open_scored(scored.folder, "evaluate", partial=settings.partial)
    return peer_files(
        benchmarks()[evaluation.benchmark], corpus, EvaluatedModel(evaluation.model, _is_judge(corpus.manifest))
    )


def _put(folder: str, name: str, content: bytes) -> None:
    try:
        storage.folder(folder).replace(name, content)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def _evaluate(scored: ScoredBenchmark, settings: EvaluateSettings, items: Path) -> Evaluation:
    folder = scored.folder
    corpus = open_scored(folder, "evaluate", partial=settings.partial)
    manifest, listing = corpus.manifest, [part for part, _ in corpus.entries]
    benchmark = choose_benchmark(folder, manifest, scored.benchmark)
    grades = grade_items(benchmark, read_items(corpus.responses, listing, manifest.columns, benchmark.fields), items)
    if not settings.partial:
        _check_subsets(folder, benchmark, grades)
    evaluation = Evaluation(
        benchmark.name,
        benchmark.title,
        benchmark.source,
        str(manifest.identity["model"]),
        manifest.identity,
        manifest.made_with,
        [_data_file(benchmark, file) for file in manifest.files],
        _figures(benchmark, grades, manifest, settings.seed),
        _subset_counts(benchmark, grades),
        (manifest.summary or {}).get("work", {}),
        benchmark.split_of(grades.items),
    )
    return evaluation if evaluation.is_made_up else replace(evaluation, published=_beside_published(evaluation))


def _beside_published(evaluation: Evaluation) -> list[PublishedComparison]:
    values = {figure.name: figure.value for figure in evaluation.figures}
    return compare_published(
        OurFigures(evaluation.benchmark, evaluation.split, evaluation.identity, evaluation.coverage, values)
    )


def choose_benchmark(folder: str, manifest: Manifest, name: str | None) -> Benchmark:
    """The benchmark of a name, or else the one whose items have the corpus' shape and fields.

    Raises `SettingsError` for an unknown name, or if several benchmarks or none fit.
    """
    by_name = benchmarks()
    if name is not None:
        if name not in by_name:
            raise SettingsError(f"--as {name}: there is no such benchmark; there are {', '.join(by_name)}")
        return by_name[name]
    shape, carried = str(manifest.identity.get("shape")), set(manifest.columns.carried.names)
    fitting = [
        benchmark for benchmark in by_name.values() if shape in benchmark.shapes and carried.issuperset(benchmark.needs)
    ]
    fitting.sort(key=lambda benchmark: len(benchmark.needs))
    if not fitting or (len(fitting) > 1 and len(fitting[-1].needs) == len(fitting[-2].needs)):
        raise SettingsError(
            f"{folder} doesn't say which benchmark it is (rows of the shape {shape}): give --as, one of {', '.join(by_name)}"
        )
    return fitting[-1]


def _check_subsets(folder: str, benchmark: Benchmark, grades: Grades) -> None:
    """Raise `SourceError` for subsets that are missing: their figures would be of something else, or zero."""
    if set(grades.items) == {ALL}:  # rows that don't name their subset, such as RM-Bench's file of one domain
        return
    missing = [subset for subset in benchmark.required if not grades.items[subset]]
    if missing:
        raise SourceError(
            f"{folder} has no items of {', '.join(missing)}, which {benchmark.name} has; --partial evaluates what is there"
        )


def _is_judge(manifest: Manifest) -> bool:
    return manifest.identity.get("judge") is not None


def _figures(benchmark: Benchmark, grades: Grades, manifest: Manifest, seed: int) -> list[Figure]:
    cells, judged = grades.cells, _is_judge(manifest)
    if not cells:
        return []

    def measures_of(means: MeanCells) -> list[Measure]:
        return benchmark.measures(replace(means, compared=manifest.columns.within_row))

    bounds = intervals.intervals(cells, judged, measures_of, seed)
    return [_figure(measure, bounds[measure.name]) for measure in measures_of(intervals.mean_cells(cells, judged))]


def _figure(measure: Measure, bounds: tuple[float, float]) -> Figure:
    value, low, high = (None if math.isnan(number) else number for number in (float(measure.value), *bounds))
    near = measure.chance is not None and low is not None and high is not None and low <= measure.chance <= high
    return Figure(measure.name, value, low, high, measure.n, measure.convention, near, measure.chance, measure.is_share)


def _subset_counts(benchmark: Benchmark, grades: Grades) -> Mapping[str, SubsetCounts]:
    return {
        subset: SubsetCounts(
            count,
            benchmark.expected.get(subset),
            grades.graded([subset]),
            grades.tied[subset],
            dict(grades.reasons.get(subset, {})),
        )
        for subset, count in sorted(grades.items.items())
    }


def _data_file(benchmark: Benchmark, file: InputFile) -> dict[str, Any]:
    """The identity of a data file: null as SHA-256 where the file isn't there any more or isn't the one that was scored."""
    sha256 = _sha256(file)
    return {"name": file.name, "size": file.size, "sha256": sha256, "published": known_file(benchmark.name, sha256)}


def _sha256(file: InputFile) -> str | None:
    digest, size = hashlib.sha256(), 0
    try:
        with storage.open_read(file.path) as stream:
            for block in _blocks(stream):
                digest.update(block)
                size += len(block)
    except OSError:
        return None
    return digest.hexdigest() if size == file.size else None


def _blocks(stream: Any) -> Iterable[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def headline(evaluations: Sequence[Evaluation]) -> str:
    """The first figure of each evaluation, for a terminal."""
    return "\n".join(
        f"{evaluation.model} on {evaluation.benchmark}: "
        + (
            f"{evaluation.figures[0].value:.2%}"
            if evaluation.figures and evaluation.figures[0].value is not None
            else "none"
        )
        for evaluation in evaluations
    )
