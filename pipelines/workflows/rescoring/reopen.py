"""Opens a scored folder to score some of its rows again: with the model and the settings that its numbers are of."""

from dataclasses import dataclass
from typing import Any, TypeVar

from actors.errors import OutputError, SettingsError
from actors.reward_model import families, resolve_model
from actors.settings.same_plugin import find
from pipelines.data import storage
from pipelines.data.formats import RowShape
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import ticket
from pipelines.folders.run_folder.manifest import Manifest, differences
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import ResolvedRun, block_bytes
from pipelines.run.prepare.score_requests import Preparation
from pipelines.run.scoring.score_corpus import Run
from pipelines.settings.options import from_yaml, validate
from pipelines.settings.recipe import NAME, Recipe
from pipelines.settings.rescore_settings import RescoreEngineSettings
from pipelines.settings.run_settings import ScoreSettings, Turns

R = TypeVar("R", bound=Run)
# Of a block that a worker holds. Rows to score again are few, so that their size needn't be measured.
_PART_ROWS = _ROW_BYTES = 4096


@dataclass(frozen=True)
class ReopenedRun:
    """A scored folder with the settings and the model that scored it.

    `manifest` is that of the folder, and `preparation` renders its rows as they were rendered then.
    """

    settings: ScoreSettings
    manifest: Manifest
    preparation: Preparation

    def run(self, kind: type[R], **more: Any) -> R:
        """The run, as the main job has it; its parts are written under the lease that this process holds, if it does."""
        folder = storage.absolute(self.settings.output)
        parts = Parts(folder, self.manifest.run, ticket(folder))
        state = parts.state(self.manifest.files)
        bytes_of_block = block_bytes(_PART_ROWS, _ROW_BYTES)
        return kind(self.settings, self.manifest, self.preparation, parts, state, _PART_ROWS, bytes_of_block, **more)


def reopen(folder: str, manifest: Manifest, engines: RescoreEngineSettings) -> ReopenedRun:
    """Resolve the model by the recipe beside the parts, and check that it is the one of the manifest.

    Reads no input file: parts hold the input's rows. Raises `SettingsError` if the folder isn't of `score`, `OutputError`,
    naming the differences, if the model or the settings aren't those of the run, and `ModelError`.
    """
    if plugin := manifest.identity.get("family_plugin"):  # before the settings, whose model is unknown without it
        find(families(), manifest.identity["family"], plugin)
    settings = _with_engines(_settings(folder), engines)
    model = resolve_model(
        settings.model, settings.render, settings.corpus.turns is Turns.ALL, settings.engine.tensor_parallel
    )
    # From the manifest and not from a sample of rows, by which a run decides: the input may be gone.
    row_shape = RowShape.read(manifest.identity, unanswered=False)
    preparation = Preparation(model, settings.render, row_shape, manifest.columns)
    now = manifest_of(ResolvedRun(manifest.files, preparation, _PART_ROWS, 0), settings)
    if differ := differences(manifest.identity, now.identity):
        raise OutputError(
            f"the rows of {folder} can't be scored again as they were:\n  " + "\n  ".join(differ) + "\nPut back what was "
            "there, or score the corpus into another folder"
        )
    return ReopenedRun(settings, manifest, preparation)


def _settings(folder: str) -> ScoreSettings:
    path = storage.folder(folder).file(NAME)
    try:
        document = from_yaml(storage.folder(folder).read(NAME).decode(), path)
    except (OSError, UnicodeDecodeError) as error:
        text = error_text(error) if isinstance(error, OSError) else "it isn't UTF-8 text"
        raise SettingsError(
            f"{path}, which has the settings of the run, can't be read: {text}; the same `score` command writes it again"
        ) from error
    step = validate(Recipe, document).score
    if step is None:
        raise SettingsError(
            f"{folder} wasn't written by `score`, and only such rows can be scored again; of an ensemble give the folder of "
            "a model in its models/, and then run the same `ensemble` again"
        )
    # The folder may have been moved since; and what is done once, such as --overwrite, isn't done again.
    return step.model_copy(update={"output": folder, "overwrite": False, "append": False})


def _with_engines(settings: ScoreSettings, engines: RescoreEngineSettings) -> ScoreSettings:
    work, engine = settings.work, settings.engine
    if engines.replicas is not None:  # fixed, also where the run's pool grew
        work = work.model_copy(update={"replicas": engines.replicas, "min_replicas": None, "max_replicas": None})
    if engines.request_timeout_s is not None:
        engine = engine.model_copy(update={"request_timeout_s": engines.request_timeout_s})
    return settings.model_copy(update={"work": work, "engine": engine})
