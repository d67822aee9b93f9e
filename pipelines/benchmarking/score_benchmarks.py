"""Scores every benchmark file with every model, each into a scored corpus below the results, and evaluates all of them."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from actors.errors import SettingsError
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from pipelines import storage
from pipelines.benchmarking.endpoint_run import ServedCorpus, score_on_endpoint
from pipelines.evaluation.benchmarks import benchmarks
from pipelines.evaluation.evaluate_corpus import ScoredBenchmark, evaluate_into
from pipelines.evaluation.results import Results
from pipelines.runtime.progress import Progress
from pipelines.scoring import score_corpus
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.run_settings import CorpusSettings, ScoreSettings


class BenchmarkFile(NamedTuple):
    """A file, and the name of the benchmark that it is of."""

    benchmark: str
    file: str


def score_and_evaluate(settings: EvaluateSettings, progress: Progress) -> Results:
    """Score what is missing, and evaluate. A run that was killed is resumed.

    Raises `SettingsError` without an output folder or a model, and what scoring and evaluating raise.
    """
    if not settings.model:
        raise SettingsError("--endpoint needs --model, the name of a model there")
    if settings.output is None:
        raise SettingsError("--model scores files, and needs a folder for that: give --out")
    unused = (settings.render, settings.engine, settings.store) != (RenderSettings(), EngineSettings(), None)
    if settings.endpoint is not None and unused:
        raise SettingsError("--endpoint scores as the endpoint was started: leave out settings of engine, prompts and store")
    files = [_benchmark_file(text) for text in settings.scored]
    return evaluate_into(settings, settings.output, functools.partial(_score, settings, files, progress))


def _benchmark_file(text: str) -> BenchmarkFile:
    """The benchmark and the file of `BENCHMARK=FILE`."""
    name, joint, file = text.partition("=")
    if not joint or name not in benchmarks():
        raise SettingsError(f"{text}: with --model, give BENCHMARK=FILE; benchmarks are {', '.join(benchmarks())}")
    return BenchmarkFile(name, file)


def _score(settings: EvaluateSettings, files: Sequence[BenchmarkFile], progress: Progress) -> list[ScoredBenchmark]:
    scored = storage.folder(str(settings.output)).sub("scored")
    corpora = []
    for model in settings.model:
        for benchmark, file in files:
            output = scored.sub(benchmark).sub(model.strip("/").replace("/", "--")).path
            run = ScoreSettings(
                corpus=CorpusSettings(inputs=(file,)),
                output=output,
                model=ModelSettings(model=model),
                render=settings.render,
                engine=settings.engine,
                store=settings.store,
                prefix=benchmarks()[benchmark].prefix,
            )
            if settings.endpoint is None:
                score_corpus.score(run, progress)
            else:
                score_on_endpoint(settings, run.corpus, ServedCorpus(model, output, run.prefix), progress)
            corpora.append(ScoredBenchmark(output, benchmark))
    return corpora
