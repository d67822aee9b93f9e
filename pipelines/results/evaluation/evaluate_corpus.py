"""Evaluates scored corpora: reads each folder's items, grades them as a benchmark's authors do, and writes the results.

e/
  scored/BENCHMARK/MODEL/    what `evaluate BENCHMARK=FILE --model MODEL` scored: scored corpora like any other
  results.json               every figure with its interval, counts, conventions and identities
  table.md, table.tex        the same for people
  peers/00000-*              of the first evaluation, the result files of the benchmark's own code, where it has a form
  items-00000.parquet        of the first evaluation, a line for each item: its grade, or why it has none
  disagreements.parquet      of several models on one benchmark, the items for which one has more credit than another
"""

import hashlib
import io
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, SettingsError, SourceError
from actors.text.model_names import short_names
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import EVALUATED
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import check_held, lease
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.results.evaluation.benchmark import ALL, Benchmark, MeanCells, Measure
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.games import check_stop, with_games
from pipelines.results.evaluation.grades import Grades, grade_items
from pipelines.results.evaluation.item_matching import EvaluatedModel
from pipelines.results.evaluation.latex import latex_tables
from pipelines.results.evaluation.noise import noise_of
from pipelines.results.evaluation.peer_files import peer_files
from pipelines.results.evaluation.published.figures import compare_published, known_file
from pipelines.results.evaluation.published.presets import Preset
from pipelines.results.evaluation.read_items import read_items
from pipelines.results.evaluation.results import Evaluation, Figure, Results, SubsetCounts
from pipelines.results.evaluation.saved_results import RESULTS, read_results
from pipelines.results.evaluation.statistics import intervals
from pipelines.results.evaluation.statistics.intervals import Interval
from pipelines.results.evaluation.statistics.paired import (
    PairedComparison,
    compare_models,
    item_credits,
)
from pipelines.results.evaluation.statistics.votes import Votes, judge_rules, vote_rules
from pipelines.settings.evaluate_settings import EvaluateSettings

TABLE, TEX, PEERS = "table.md", "table.tex", "peers"
DISAGREEMENTS = "disagreements.parquet"


class ScoredBenchmark(NamedTuple):
    """The folder of a scored corpus, and the benchmark that it is; None if its rows tell.

    `preset`: how it was scored, if that was as authors did and not as the model's card says.
    """

    folder: str
    benchmark: str | None
    preset: Preset | None = None


def evaluate(settings: EvaluateSettings, notify: Callable[[str], None] = lambda text: None) -> Results:
    """Evaluate every scored folder, and write the results to the output folder if there is one.

    Raises a `UserError` if a folder isn't a complete scored corpus, or its benchmark can't be told or lacks subsets.
    """
    corpora = [ScoredBenchmark(folder, settings.benchmark) for folder in settings.scored]
    if settings.output is None:
        with tempfile.TemporaryDirectory() as place:
            return _evaluate_all(settings, corpora, Path(place))
    output_folder.check_apart([*settings.scored, settings.output])
    return evaluate_into(settings, settings.output, lambda: corpora, notify)


def evaluate_into(
    settings: EvaluateSettings, output: str, corpora: Callable[[], Sequence[ScoredBenchmark]], notify: Callable[[str], None]
) -> Results:
    """Evaluate into a folder, unless the results of these settings and these scored corpora are there already.

    `corpora` may score there first, and resume that; an evaluation takes seconds.
    """
    dumped = settings.model_dump(mode="json")
    request = {"settings": dumped, "description": f"evaluate {' '.join(settings.scored)}"}
    # `overwrite` says what to do with a result and not what it is, so that a command without it finds the same results.
    earlier = EVALUATED.read(output) or {}
    if earlier.get("summary") is not None and {**earlier["settings"], "overwrite": False} == dumped:
        with lease(output):
            made_of = _made_of(corpora())
        if output_folder.read_finished(output, dumped, None, made_of, EVALUATED) is not None:
            notify(f"evaluate: nothing to do: {output} has these results already")
            return read_results(output)
    output_folder.check_free(output, settings.overwrite, EVALUATED)
    with lease(output), tempfile.TemporaryDirectory() as place:
        output_folder.start(output, request, EVALUATED)
        # Files of an earlier evaluation may have other names, and would pass for files of this one.
        storage.folder(output).sub(PEERS).delete_all()
        storage.folder(output).delete(RESULTS)  # what makes it results: a kill while models score must leave none
        scored = corpora()
        results, made_of = _evaluate_all(settings, scored, Path(place)), _made_of(scored)
        # Minutes may have passed. Whoever has taken the lease over writes there, and nothing of ours may land among it.
        check_held()
        document = json.dumps(results.document(dumped), indent=2)
        Path(place, RESULTS).write_text(f"{document}\n")
        Path(place, TABLE).write_text(results.markdown())
        Path(place, TEX).write_text(latex_tables(results.evaluations))
        # Made in a local folder first: a store gets whole files, and none of an evaluation that fails.
        for folder, path in ((output, place), (storage.folder(output).sub(PEERS).path, Path(place, PEERS))):
            for file in sorted(file for file in Path(path).glob("*") if file.is_file()):
                write_file(folder, file.name, file.read_bytes())
        output_folder.finish(output, request, {"evaluations": len(results)}, EVALUATED, made_of=made_of)
    return results


def _made_of(corpora: Sequence[ScoredBenchmark]) -> str:
    opened = [open_scored(scored.folder, "evaluate", partial=True) for scored in corpora]
    return " ".join(f"{corpus.manifest.fingerprint}:{corpus.made_of}" for corpus in opened)


def _evaluate_all(settings: EvaluateSettings, corpora: Sequence[ScoredBenchmark], local: Path) -> Results:
    # Files, of which `_paired` reads a few columns: of a million items, rewards by name are most of the bytes.
    paths = [local / f"items-{output_folder.result_name(number)}.parquet" for number in range(len(corpora))]
    evaluations = [_evaluate(corpus, settings, path) for corpus, path in zip(corpora, paths, strict=True)]
    names = short_names(evaluation.model for evaluation in evaluations)
    evaluations = [replace(evaluation, called=names[evaluation.model]) for evaluation in evaluations]
    return Results(evaluations, _paired(evaluations, paths, settings.resampling_seed, local / DISAGREEMENTS))


def _paired(
    evaluations: Sequence[Evaluation], items: Sequence[Path], seed: int, disagreements: Path
) -> list[PairedComparison]:
    by_benchmark: dict[str, list[EvaluatedModel]] = {}
    readings: list[tuple[str, list[EvaluatedModel]]] = []
    uses = Counter((evaluation.benchmark, evaluation.label) for evaluation in evaluations)
    for number, (evaluation, path) in enumerate(zip(evaluations, items, strict=True), start=1):
        several = uses[evaluation.benchmark, evaluation.label] > 1  # two runs of a model, in two precisions for example
        name = f"{evaluation.label} (no. {number})" if several else evaluation.label
        cells = benchmarks()[evaluation.benchmark].cells
        table = pq.read_table(path, columns=["row", "subset", "reason", "content", "prompt", *cells])
        model = evaluation.with_items(table, name)
        if evaluation.preset is None:
            by_benchmark.setdefault(evaluation.benchmark, []).append(model)
        else:  # it was scored after the reading by the card
            readings.append((evaluation.benchmark, [model, by_benchmark[evaluation.benchmark][-1]]))
    compared = [(name, models) for name, models in by_benchmark.items() if len(models) > 1] + readings
    if not compared:
        return []
    results = [compare_models(benchmarks()[name], models, seed) for name, models in compared]
    pq.write_table(pa.concat_tables(table for _, table in results), disagreements, compression="zstd")
    return [comparison for comparisons, _ in results for comparison in comparisons]


def write_file(folder: str, name: str, content: bytes) -> None:
    """Write or replace a file. Raises `OutputError` if it can't be written."""
    try:
        storage.folder(folder).replace(name, content)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def _evaluate(scored: ScoredBenchmark, settings: EvaluateSettings, items_file: Path) -> Evaluation:
    """Grade the items of a corpus, write them to a file, and make figures of the grades.

    Raises `SourceError` if it lacks subsets of its benchmark, unless `settings.partial`.
    """
    corpus = open_scored(scored.folder, "evaluate", partial=settings.partial)
    manifest, work = corpus.manifest, _work(corpus.manifest)
    shape, carried = str(manifest.identity.get("shape")), manifest.columns.carried.names
    benchmark = choose_benchmark(scored.folder, shape, carried, scored.benchmark)
    if (voted := judge_rules(manifest.identity)) is not None:
        check_stop(benchmark, voted.shows, manifest.identity["judge"].get("stop", False))
    listing = [part for part, _ in corpus.entries]
    # Generators from here on: a row is read, judged by games and votes, graded and written before the next one is read.
    items = read_items(corpus.responses, listing, manifest.columns, benchmark.fields)
    rows = with_games(items, manifest.identity)
    votes = Votes(rules, benchmark) if (rules := vote_rules(manifest.identity)) is not None else None
    noise = noise_of(work)
    grades = grade_items(benchmark, rows if votes is None else votes.watch(rows), items_file, noise)
    if not settings.partial:
        _check_subsets(scored.folder, benchmark, grades)
    figures = _figures(benchmark, grades, manifest, settings.resampling_seed)
    evaluation = Evaluation(
        benchmark=benchmark.name,
        title=benchmark.title,
        source=benchmark.source,
        model=str(manifest.identity["model"]),
        identity=manifest.identity,
        versions=manifest.made_with,
        files=[_data_file(benchmark, file) for file in manifest.files],
        figures=figures,
        subsets=_subset_counts(benchmark, grades, figures, judged=_is_judge(manifest)),
        coverage=grades.graded(grades.items) / grades.items.total() if grades.items else 0.0,
        tie_rate=grades.tied.total() / max(1, grades.graded(grades.items)),
        work=work,
        split=benchmark.split_of(grades.items),
        margins=grades.margins.report(),
        votes=None if votes is None else votes.report(),
        compared=manifest.columns.within_row,
        preset=scored.preset,
        repeated=grades.repeated,
        noise=noise,
        notes=tuple(note for note in (benchmark.count_note(grades.items), grades.repeats_note) if note),
        kept=corpus.kept.about if corpus.kept else None,
    )
    # Made-up rewards beside published figures would look like a failed reproduction.
    if not evaluation.is_made_up:
        evaluation = replace(evaluation, published=compare_published(evaluation))
    if settings.output is None:
        return evaluation
    files = peer_files(benchmark, corpus, evaluation)
    folder = items_file.with_name(PEERS)
    folder.mkdir(exist_ok=True)
    for name, content in files.contents.items():
        folder.joinpath(f"{items_file.stem.removeprefix('items-')}-{name}").write_bytes(content)
    return evaluation if files.missing is None else replace(evaluation, notes=(*evaluation.notes, files.missing))


def check_complete(scored: ScoredBenchmark, settings: EvaluateSettings) -> None:
    """Raise `SourceError` if a scored corpus lacks subsets of its benchmark, unless `settings.partial`.

    For whoever scores several corpora before they are evaluated: which subsets a file has doesn't depend on the model.
    """
    if settings.partial:
        return
    with tempfile.TemporaryDirectory() as place:
        # All is thrown away: only grading tells the subsets of the items that a benchmark joins, and it takes seconds.
        # With an output, files of the benchmark's own code would be made, too.
        _evaluate(scored, settings.model_copy(update={"output": None}), Path(place, "items-00000.parquet"))


def choose_benchmark(
    corpus: str, shape: str, fields: Iterable[str], name: str | None, *, how: str = "--as, one of"
) -> Benchmark:
    """The benchmark of a name, or else the one whose items have the shape and the fields of a corpus' rows.

    Raises `SettingsError` for an unknown name, or if several benchmarks or none fit; `how` says how one is named.
    """
    by_name = benchmarks()
    if name is not None:
        if name not in by_name:
            raise SettingsError(f"--as {name}: there is no such benchmark; there are {', '.join(by_name)}")
        return by_name[name]
    row_fields = set(fields)
    fitting = [
        benchmark for benchmark in by_name.values() if shape in benchmark.shapes and row_fields.issuperset(benchmark.needs)
    ]
    # RewardBench's rows are labelled pairs as well: whoever needs more fields is meant, and two that need as many are a
    # question.
    fitting.sort(key=lambda benchmark: len(benchmark.needs))
    if not fitting or (len(fitting) > 1 and len(fitting[-1].needs) == len(fitting[-2].needs)):
        raise SettingsError(
            f"{corpus} doesn't say which benchmark it is (rows of the shape {shape}): give {how} {', '.join(by_name)}"
        )
    return fitting[-1]


def _check_subsets(folder: str, benchmark: Benchmark, grades: Grades) -> None:
    if set(grades.items) == {ALL}:  # rows that don't name their subset, such as RM-Bench's file of one domain
        return
    # Their figures would be of something else under the same name, or zero.
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

    # The same function of means gives the value and, of resampled means, the bounds: one definition of a measure.
    bounds = intervals.intervals(cells, judged, measures_of, seed, grades.prompts)
    return [_figure(measure, bounds[measure.name]) for measure in measures_of(intervals.mean_cells(cells, judged))]


def _figure(measure: Measure, bounds: Interval) -> Figure:
    # JSON has no NaN: what isn't defined is null.
    numbers = (float(measure.value), bounds.low, bounds.high)
    value, low, high = (None if math.isnan(number) else number for number in numbers)
    chance = measure.chance
    return Figure(
        measure.name,
        value,
        low,
        high,
        measure.n,
        measure.convention,
        near_chance=chance is not None and low is not None and high is not None and low <= chance <= high,
        chance=chance,
        is_share=measure.is_share,
        method=bounds.method,
    )


def _work(manifest: Manifest) -> dict[str, Any]:
    summary = manifest.summary or {}
    tokens = {name: summary[name] for name in ("prompt_tokens", "completion_tokens") if name in summary}
    return {**summary.get("work", {}), **tokens}


def _subset_counts(
    benchmark: Benchmark, grades: Grades, figures: Sequence[Figure], *, judged: bool
) -> Mapping[str, SubsetCounts]:
    # Not the sum of the first cell: JudgeBench's headline counts games, and a judge's tie may be half a credit.
    item_credit = item_credits(benchmark, grades.cells, judged=judged) if grades.cells else {}
    correct = {subset: float(np.nansum(of_items)) for subset, of_items in item_credit.items() if np.isfinite(of_items).any()}
    by_name = {figure.name: figure for figure in figures}
    # Rows of a single subset have their figure under the headline's name.
    if len(grades.items) == 1:
        by_name = dict.fromkeys(grades.items, figures[0]) if figures else {}
    counts = {}
    for subset, count in sorted(grades.items.items()):
        figure, reasons, graded = by_name.get(subset), grades.reasons.get(subset, Counter()), grades.graded([subset])
        counts[subset] = SubsetCounts(
            items=count,
            expected=benchmark.expected.get(subset),
            graded=graded,
            tied=grades.tied[subset],
            reasons=dict(reasons),
            rejected=sum(n for reason, n in reasons.items() if reason.startswith("rejected")),
            failed=sum(n for reason, n in reasons.items() if reason.startswith("failed")),
            coverage=graded / count,
            correct=correct.get(subset),
            **{name: getattr(figure, name, None) for name in ("value", "low", "high", "convention")},
        )
    return counts


def _data_file(benchmark: Benchmark, file: InputFile) -> dict[str, Any]:
    sha256 = _sha256(file)
    # Null where the file isn't there any more or isn't the one that was scored.
    published = known_file(benchmark.name, sha256)
    return {"name": file.name, "size": file.size, "fingerprint": file.fingerprint, "sha256": sha256, "published": published}


def _sha256(file: InputFile) -> str | None:
    try:
        with storage.open_read(file.path) as stream:
            # Read whole: the manifest's fingerprint of a large file covers parts of it only, and published hashes are
            # SHA-256.
            digest = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
            # Another file lies there now, or it has grown.
            return digest if stream.seek(0, io.SEEK_END) == file.size else None
    except OSError:
        return None
