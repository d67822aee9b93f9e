"""Scores every benchmark file with every model, each into a scored corpus below the results, and evaluates all of them."""

import functools
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from actors.contracts.judge import Judge
from actors.errors import SettingsError
from actors.reward_model import RUBRIC, families, family_known
from actors.settings.endpoint import HERE, check_engine
from actors.settings.replica import ModelSettings
from actors.text.model_names import short_names
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import PUBLISHED_SUFFIX
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.evaluate_corpus import ScoredBenchmark, check_complete, evaluate_into
from pipelines.results.evaluation.games import check_stop
from pipelines.results.evaluation.published.presets import Preset, preset_of, presets
from pipelines.results.evaluation.results import Results
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring import score_corpus
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.run_settings import CorpusSettings, ScoreSettings
from pipelines.workflows.benchmarking.benchmark_files import BenchmarkFile, benchmark_files

_OF_MODEL = ("family", "chat_template", "read", "judge", "verifier", "endpoint")


def score_and_evaluate(settings: EvaluateSettings, progress: Progress) -> Results:
    """Score what is missing, and evaluate. A run that was killed is resumed.

    Without an output folder, what is scored is deleted at the end. Raises `SettingsError` without a model, and what scoring
    and evaluating raise.
    """
    if not settings.model:
        needs = "--endpoint needs --model, the name of a model there"
        raise SettingsError(
            needs if settings.endpoint != HERE else "settings of how files are scored need --model, which scores them"
        )
    if settings.endpoint != HERE:
        try:
            check_engine(settings.engine, render=settings.render)
        except ValueError as error:
            raise SettingsError(str(error)) from error
    files = benchmark_files(settings)
    if settings.as_published:
        _check_presets(settings, files)
    if settings.judge.stop:
        _check_stop(settings, files)
    with ExitStack() as stack:
        output = settings.output
        if output is None:
            progress.noted("without --out, what is scored isn't kept, and a run that is killed begins anew")
            output = str(Path(stack.enter_context(tempfile.TemporaryDirectory()), "results"))
        # What is evaluated is `settings`, which say that nothing is kept; what is scored needs a folder all the same.
        scoring = settings.model_copy(update={"output": output})
        return evaluate_into(settings, output, functools.partial(_score, scoring, files, progress), progress.noted)


def _check_presets(settings: EvaluateSettings, files: Sequence[BenchmarkFile]) -> None:
    """Raise `SettingsError` if `as_published` can't be done, or is known of none of these models on these benchmarks."""
    if settings.endpoint != HERE:
        raise SettingsError(
            "--as-published changes how prompts are made, and an endpoint makes its own: leave out --endpoint"
        )
    if not any(preset_of(file.benchmark, model) for file in files for model in settings.model):
        choices = "; ".join(f"{preset.benchmark}: {', '.join(preset.models)}" for preset in presets())
        raise SettingsError(f"--as-published: nothing is known of these models on these benchmarks; known are {choices}")


def _check_stop(settings: EvaluateSettings, files: Sequence[BenchmarkFile]) -> None:
    # A folder whose family only its files tell is refused after its first benchmark is scored.
    named = settings.family or (RUBRIC if settings.judge.rubric is not None else None)
    for model in settings.model:
        family = family_known(model) if named is None else families().get(named)
        if isinstance(family, Judge):
            judge = family.reading_by(settings.read).with_settings(settings.judge)
            for file in files:
                check_stop(benchmarks()[file.benchmark], judge.shows, stop=True)


def _score(settings: EvaluateSettings, files: Sequence[BenchmarkFile], progress: Progress) -> list[ScoredBenchmark]:
    scored = storage.folder(str(settings.output)).sub("scored")
    corpora = []
    for model in settings.model:
        for benchmark, file in files:
            progress.noted(f"{short_names(settings.model)[model]} on {benchmark}: {file}")
            folder = scored.sub(benchmark)
            name = storage.file_name(model)
            run = ScoreSettings(
                corpus=CorpusSettings(inputs=(file,), **settings.fields.model_dump()),
                output=folder.sub(name).path,
                model=ModelSettings(model=model, **{name: getattr(settings, name) for name in _OF_MODEL}),
                render=settings.render,
                engine=settings.engine,
                store=settings.store,
                accept_versions=settings.accept_versions,
                prefix=benchmarks()[benchmark].prefix,
            )
            summary = score_corpus.score(run, progress)
            if settings.endpoint != HERE:
                summary.check_scored()  # one that refuses everything fails row by row, and the run ends well
            corpora.append(ScoredBenchmark(run.output, benchmark))
            if model == settings.model[0]:  # refused after its first run, not after those of all models
                check_complete(corpora[-1], settings)
            if settings.as_published and (preset := preset_of(benchmark, model)) is not None:
                published_run = _as_published(run, preset, folder.sub(f"{name}{PUBLISHED_SUFFIX}").path)
                progress.noted(f"{model} on {benchmark} as published: {preset.settings}")
                score_corpus.score(published_run, progress)
                corpora.append(ScoredBenchmark(published_run.output, benchmark, preset))
            elif settings.as_published:
                progress.noted(f"{model} on {benchmark}: how its authors ran it isn't known, or is what its card says")
    return corpora


def _as_published(run: ScoreSettings, preset: Preset, output: str) -> ScoreSettings:
    # Into a folder of its own: rewards by other settings are another run, and both are shown side by side.
    render = run.render.model_copy(update=dict(preset.settings.render()))
    model = run.model.model_copy(update={"dtype": preset.settings.dtype or run.model.dtype})
    return run.model_copy(update={"render": render, "model": model, "output": output})
