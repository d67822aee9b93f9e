"""The files that `evaluate --model` scores: each is named with its benchmark, or found to be of one by its first rows."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from actors.errors import SettingsError
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.folders.run_folder.carried_columns import carried_columns
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.evaluate_corpus import choose_benchmark
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.row_sample import read_sample
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.run_settings import CorpusSettings

# `BENCHMARK=FILE`; a path with an equals sign behind a slash, as of a table with partitions, is none.
_NAMED = re.compile(r"(?P<name>[\w-]+)=(?P<file>.+)", re.DOTALL)


class BenchmarkFile(NamedTuple):
    """A file, and the name of the benchmark that it is of."""

    benchmark: str
    file: str


def benchmark_files(settings: EvaluateSettings) -> list[BenchmarkFile]:
    """The files of the settings. Raises a `UserError` for a benchmark that there isn't, or if rows don't tell theirs.

    Raises `SettingsError` where two runs would be scored into one folder, too, which is `scored/BENCHMARK/MODEL`.
    """
    files = [_benchmark_file(text, settings.benchmark) for text in settings.scored]
    of_benchmark: dict[str, list[str]] = {}
    for benchmark, file in files:
        of_benchmark.setdefault(benchmark, []).append(file)
    for benchmark, paths in of_benchmark.items():
        if len(paths) > 1:
            raise SettingsError(
                f"{benchmark} is given as {len(paths)} files ({', '.join(paths)}), and an evaluation has one corpus of each "
                "benchmark: give a folder with both or a pattern for files that belong together, or run it once for each"
            )
    if twice := [model for model in settings.model if settings.model.count(model) > 1]:
        raise SettingsError(f"--model {twice[0]} is given twice: leave one out")
    return files


def _benchmark_file(text: str, name: str | None) -> BenchmarkFile:
    if (match := _NAMED.fullmatch(text)) is None:
        return BenchmarkFile(_benchmark_of(text, name), text)
    if match["name"] not in benchmarks():
        raise SettingsError(f"{text}: there is no such benchmark; there are {', '.join(benchmarks())}")
    return BenchmarkFile(match["name"], match["file"])


def _benchmark_of(file: str, name: str | None) -> str:
    # Read as `score` reads them: a benchmark is told by the shape and the columns of a scored corpus.
    corpus = CorpusSettings(inputs=(file,))
    files, _, schemas = find_corpus(corpus.inputs)
    sample: Sequence[Any] = read_sample(files, corpus.max_record_bytes).rows
    shape = preview_of(corpus, sample).row_shape
    carried = carried_columns(files, [row for row in sample if isinstance(row, dict)], schemas)
    return choose_benchmark(file, shape.name, carried.names, name, how="BENCHMARK=FILE or --as, of").name
