"""The commands as functions, by the names that the command line has: folders into folders, or Ray Datasets.

With paths, each does what its command does, writes a folder and returns a summary. With a `ray.data.Dataset` first, and no
output, all but `cascade`, `diff`, `ensemble`, `evaluate`, `refine` and `upload` return a Dataset (`workflows.datasets`).
Options are those of `assay score --help-all` and so on, with underscores. In a notebook and on a terminal, a run into a
folder shows its progress. A run into a folder that ends without a single reward raises `NothingScored`; its folder says
why.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from ray.data import Dataset

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.results.comparison import diff_folders
from pipelines.results.comparison.results import Differences
from pipelines.results.evaluation import evaluate_corpus
from pipelines.results.evaluation.results import Results
from pipelines.results.exports import export_commands
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import FilterSummary
from pipelines.results.hub.upload import Upload, check_hub, upload_made, upload_result
from pipelines.run.runtime.progress import watched
from pipelines.run.runtime.session import quiet_implicit_ray
from pipelines.run.sampling import refine_prompts, sample_prompts
from pipelines.run.sampling.refine_prompts import RefineSummary
from pipelines.run.sampling.sample_prompts import SampleSummary
from pipelines.run.scoring import score_corpus
from pipelines.settings.diff_settings import DiffSettings
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.hub_settings import UploadSettings
from pipelines.settings.options import build
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.settings.run_settings import CascadeSettings, EnsembleSettings, SampleSettings, ScoreSettings
from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate
from pipelines.workflows.cascades import score_cascade
from pipelines.workflows.cascades.score_cascade import CascadeSummary
from pipelines.workflows.datasets import sample_datasets, score_datasets
from pipelines.workflows.ensembles import score_ensemble
from pipelines.workflows.ensembles.score_ensemble import EnsembleSummary
from pipelines.workflows.rescoring import retry_rows, verify_folder
from pipelines.workflows.rescoring.retry_rows import RetrySummary
from pipelines.workflows.rescoring.verify_folder import VerifySummary
from pipelines.workflows.run_logging.logged_progress import observers_of

read_scored = score_datasets.read_scored  # for datasets alone, so there is nothing to choose between
quiet_implicit_ray()


@overload
def score(inputs: Dataset, *, model: str, **options: Any) -> Dataset: ...
@overload
def score(inputs: str | Sequence[str], output: str, *, model: str, **options: Any) -> Summary: ...
def score(inputs: Any, *output: str, **options: Any) -> Dataset | Summary:
    """Score a corpus into a folder, or go on with it: `score("corpus.jsonl", "scored/", model="tiny-attributes")`.

    Of a dataset: `score(dataset, model="tiny-attributes")`. Raises what `pipelines.run.scoring.score_corpus.score` and
    `pipelines.workflows.datasets.score_datasets.score` raise.
    """
    if isinstance(inputs, Dataset):
        return score_datasets.score(inputs, *output, **options)
    return _score_folder(inputs, *output, **options)


def ensemble(
    inputs: str | Sequence[str], output: str, *, models: Sequence[str | Mapping[str, Any]], **options: Any
) -> EnsembleSummary:
    """Score a corpus with several models and combine them: `ensemble("corpus.jsonl", "out/", models=["a", "org/b"])`.

    A model is its id, or its settings: `{"model": "a", "weights": {...}, "name": "x", "engine": {"tensor_parallel": 4}}`.
    Raises what `pipelines.workflows.ensembles.score_ensemble.ensemble` raises.
    """
    flat = {"inputs": inputs, "output": output, "models": models, **options}
    summary = score_ensemble.ensemble(build(EnsembleSettings, flat), watched())
    summary.combined.check_scored()  # after the result is written: its rows say why there is no reward
    return summary


def cascade(
    inputs: str | Sequence[str], output: str, *, models: Sequence[str | Mapping[str, Any]], where: str, **options: Any
) -> CascadeSummary:
    """Decide what the last model's filter keeps: `cascade("c.jsonl", "out/", models=["a", "org/b"], where="reward >= 4")`.

    Raises what `pipelines.workflows.cascades.score_cascade.cascade` raises.
    """
    flat = {"inputs": inputs, "output": output, "models": models, "where": where, **options}
    summary = score_cascade.cascade(build(CascadeSettings, flat), watched())
    summary.combined.check_scored()
    return summary


def evaluate(scored: str | Sequence[str], output: str | None = None, **options: Any) -> Results:
    """Evaluate scored corpora: `evaluate("scored/")[0].figures`, `evaluate(["a/", "b/"], "results/").paired`.

    With `model`, files are scored first: `evaluate("rm-bench=FILE", "out/", model="tiny-scalar")`; with `endpoint`, by an
    endpoint that serves it. Raises what `pipelines.results.evaluation.evaluate_corpus.evaluate` and `score` raise.
    """
    settings = build(EvaluateSettings, {"scored": scored, "output": output, **options})
    if settings.against is not None:  # a gate speaks by its exit code, which a function doesn't have
        raise SettingsError("--against is a gate for shells and CI: use the command `assay evaluate`")
    if settings.scores_files:
        return score_and_evaluate(settings, watched())
    return evaluate_corpus.evaluate(settings)


@overload
def filter(scored: Dataset, where: str | None = None, **options: Any) -> Dataset: ...
@overload
def filter(scored: str, output: str | None = None, where: str | None = None, **options: Any) -> FilterSummary: ...
def filter(scored: Any, *arguments: Any, **options: Any) -> Dataset | FilterSummary:
    """Keep the scored rows that meet a condition: `filter("scored/", "kept/", "reward >= 1.0")`. Without output, count them.

    Or the best of them: `filter("scored/", "kept/", top_k=1, per="prompt")`, `filter("scored/", "kept/", top_fraction=0.1)`.
    Of a dataset: `filter(dataset, "reward >= 1.0")`, `filter(dataset, top_k=1)`. Raises what `keep` of
    `pipelines.results.filtering.filter_corpus` and `filter_dataset` of `pipelines.workflows.datasets.score_datasets` raise.
    """
    if isinstance(scored, Dataset):
        return score_datasets.filter_dataset(scored, *arguments, **options)
    return _filter_folder(scored, *arguments, **options)


@overload
def sample(inputs: Dataset, *, policy: str, judge: str, **options: Any) -> Dataset: ...
@overload
def sample(inputs: str | Sequence[str], output: str, *, policy: str, judge: str, **options: Any) -> SampleSummary: ...
def sample(inputs: Any, *output: str, **options: Any) -> Dataset | SampleSummary:
    """Answer prompts and judge the answers: `sample("prompts.jsonl", "out/", policy="a", judge="b", n=16)`.

    Of a dataset: `sample(dataset, policy="a", judge="b", n=16)`. Raises what `sample` of
    `pipelines.run.sampling.sample_prompts` and of `pipelines.workflows.datasets.sample_datasets` raise.
    """
    if isinstance(inputs, Dataset):
        return sample_datasets.sample(inputs, *output, **options)
    return _sample_folder(inputs, *output, **options)


def refine(inputs: str | Sequence[str], output: str, *, policy: str, select: str, **options: Any) -> RefineSummary:
    """Draft, criticise, edit and judge: `refine("prompts.jsonl", "out/", policy="a", feedback="b", edit="c", select="d")`.

    Raises what `pipelines.run.sampling.refine_prompts.refine` raises.
    """
    flat = {"inputs": inputs, "output": output, "policy": policy, "model": select, **options}
    settings = build(RefineSettings, flat)
    summary = refine_prompts.refine(settings, watched(), observers_of(settings))
    summary.scored.check_scored()
    return summary


@overload
def choose(scored: Dataset, strategy: str, **options: Any) -> Dataset: ...
@overload
def choose(scored: str, output: str, strategy: str, **options: Any) -> ExportSummary: ...
def choose(scored: Any, *arguments: str, **options: Any) -> Dataset | ExportSummary:
    """Keep candidates of each prompt: `choose("out/", "best/", "best")`. Of a dataset: `choose(dataset, "best")`.

    Raises what `choose` of `pipelines.results.exports.export_commands` and of `pipelines.workflows.datasets.sample_datasets`
    raise.
    """
    if isinstance(scored, Dataset):
        return sample_datasets.choose(scored, *arguments, **options)
    return _choose_folder(scored, *arguments, **options)


@overload
def pairs(scored: Dataset, trainer: str = "trl", **options: Any) -> Dataset: ...
@overload
def pairs(scored: str, output: str, trainer: str = "trl", **options: Any) -> ExportSummary: ...
def pairs(scored: Any, *arguments: str, **options: Any) -> Dataset | ExportSummary:
    """Make preference pairs: `pairs("out/", "pairs/", "trl", min_margin=0.5)`. Of a dataset: `pairs(dataset, "trl")`.

    Raises what `pipelines.results.exports.export_commands` and `pipelines.workflows.datasets.sample_datasets.pairs` raise.
    """
    if isinstance(scored, Dataset):
        return sample_datasets.pairs(scored, *arguments, **options)
    return _pairs_folder(scored, *arguments, **options)


@overload
def export(scored: Dataset, trainer: str, **options: Any) -> Dataset: ...
@overload
def export(scored: str, output: str, trainer: str, **options: Any) -> ExportSummary: ...
def export(scored: Any, *arguments: str, **options: Any) -> Dataset | ExportSummary:
    """Write responses for a trainer: `export("out/", "kto/", "kto", threshold=2.0)`. Of a dataset: `export(dataset, "sft")`.

    Raises what `pipelines.results.exports.export_commands` and `pipelines.workflows.datasets.sample_datasets.export` raise.
    """
    if isinstance(scored, Dataset):
        return sample_datasets.export(scored, *arguments, **options)
    return _export_folder(scored, *arguments, **options)


def diff(first: str, second: str, output: str | None = None, **options: Any) -> Differences:
    """Compare two scored corpora of the same rows: `diff("a/", "b/", where="reward > 1").moves`.

    What gates (`max_move=0.1`) don't let pass is in `failures`, and raises nothing. Raises what
    `pipelines.results.comparison.diff_folders.diff` raises.
    """
    return diff_folders.diff(build(DiffSettings, {"first": first, "second": second, "output": output, **options}))


def upload(folder: str, hub: str, *, public: bool = False) -> Upload:
    """Upload a finished result to the Hugging Face Hub: `upload("pairs/", "my-team/pairs").url`. A new dataset is private.

    Raises what `pipelines.results.hub.upload.upload_result` raises.
    """
    settings = build(UploadSettings, {"folder": folder, "hub": hub, "public": public})
    return upload_result(settings.folder, settings.hub, settings.public)


def retry(scored: str, **options: Any) -> RetrySummary:
    """Score failed responses again, in place: `retry("scored/", reasons="engine_timeout,no_verdict")`.

    Raises what `pipelines.workflows.rescoring.retry_rows.retry` raises.
    """
    return retry_rows.retry(build(RetrySettings, {"scored": scored, **options}), watched())


def verify(scored: str, **options: Any) -> VerifySummary:
    """Check every part, and score a sample of rows again: `verify("scored/", sample=200)`; 0 starts no engine.

    What is found is in the summary, and raises nothing. Raises what `verify` of
    `pipelines.workflows.rescoring.verify_folder` raises.
    """
    return verify_folder.verify(build(VerifySettings, {"scored": scored, **options}), watched())


Function = TypeVar("Function", bound=Callable[..., Any])
Job = TypeVar("Job", FilterSettings, ChooseSettings, PairSettings, ExportSettings)
Result = TypeVar("Result")


def _report_errors_as(name: str) -> Callable[[Function], Function]:
    """A decorator: errors about arguments name the function that a user called."""

    def rename(function: Function) -> Function:
        function.__qualname__ = name  # by which Python's TypeError names a function whose arguments are wrong
        return function

    return rename


def _run_and_upload(settings: Job, run: Callable[[Job], Result]) -> Result:
    """The summary of a job, whose output is then uploaded if the settings say where to."""
    check_hub(settings, settings.output)  # before the work: a token that is missing costs a second then, and hours later
    summary = run(settings)
    upload_made(settings, settings.output)
    return summary


@_report_errors_as("sample")
def _sample_folder(inputs: str | Sequence[str], output: str, *, policy: str, judge: str, **options: Any) -> SampleSummary:
    flat = {"inputs": inputs, "output": output, "policy": policy, "model": judge, **options}
    settings = build(SampleSettings, flat)
    summary = sample_prompts.sample(settings, watched(), observers_of(settings))
    summary.scored.check_scored()
    return summary


@_report_errors_as("choose")
def _choose_folder(scored: str, output: str, strategy: str, **options: Any) -> ExportSummary:
    settings = build(ChooseSettings, {"scored": scored, "output": output, "strategy": strategy, **options})
    return _run_and_upload(settings, export_commands.choose)


@_report_errors_as("pairs")
def _pairs_folder(scored: str, output: str, trainer: str = "trl", **options: Any) -> ExportSummary:
    settings = build(PairSettings, {"scored": scored, "output": output, "trainer": trainer, **options})
    return _run_and_upload(settings, export_commands.make_pairs)


@_report_errors_as("export")
def _export_folder(scored: str, output: str, trainer: str, **options: Any) -> ExportSummary:
    settings = build(ExportSettings, {"scored": scored, "output": output, "trainer": trainer, **options})
    return _run_and_upload(settings, export_commands.export)


@_report_errors_as("score")
def _score_folder(inputs: str | Sequence[str], output: str, *, model: str, **options: Any) -> Summary:
    settings = build(ScoreSettings, {"inputs": inputs, "output": output, "model": model, **options})
    summary = score_corpus.score(settings, watched(), observers=observers_of(settings))
    summary.check_scored()
    return summary


@_report_errors_as("filter")
def _filter_folder(scored: str, output: str | None = None, where: str | None = None, **options: Any) -> FilterSummary:
    settings = build(FilterSettings, {"scored": scored, "output": output, "where": where, **options})
    return _run_and_upload(settings, filter_corpus.keep)
