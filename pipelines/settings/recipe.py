"""A recipe: one YAML file with the settings of several commands, which run one after another."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from actors.errors import OutputError, SettingsError
from actors.settings.base import Settings, plain_type
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.settings.assignments import assign, read_assignments
from pipelines.settings.curator import curator_recipe
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import Leaf, from_yaml, leaves, validate
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.report_settings import ReportSettings
from pipelines.settings.run_settings import CascadeSettings, EnsembleSettings, RunSettings, SampleSettings, ScoreSettings


class Recipe(Settings):
    """The steps of a recipe file, in the order in which they run."""

    sample: SampleSettings | None = None
    refine: RefineSettings | None = None
    score: ScoreSettings | None = None
    ensemble: EnsembleSettings | None = None
    cascade: CascadeSettings | None = None
    filter: FilterSettings | None = None
    choose: ChooseSettings | None = None
    pairs: PairSettings | None = None
    export: ExportSettings | None = None
    evaluate: EvaluateSettings | None = None
    report: ReportSettings | None = None
    then: tuple["Recipe", ...] = ()
    """further recipes, which run after these steps, each on what came before it"""

    @property
    def steps(self) -> dict[str, Any]:
        """The settings of the steps that the recipe has, by name, without those of `then`."""
        return {name: step for name in STEPS if (step := getattr(self, name)) is not None}

    @property
    def stages(self) -> "tuple[Recipe, ...]":
        """The recipe and those of `then`, one after another."""
        return (self, *(stage for further in self.then for stage in further.stages))

    @property
    def change_to_resume(self) -> str:
        """How the recipe must differ to resume, as the end of a sentence: a step of its with `overwrite` deletes its parts.

        `overwrite` of a filter or an export may stay: it replaces a finished result, and resumes an unfinished one.
        """
        all_steps = [item for stage in self.stages for item in stage.steps.items()]
        steps = [name for name, step in all_steps if isinstance(step, RunSettings) and step.overwrite]
        return f", without `overwrite` in {' and '.join(steps)}" if steps else ""


STEPS = tuple(name for name in Recipe.model_fields if name != "then")
NAME = "recipe.yaml"


def write_recipe(folder: str, **steps: Settings | Mapping[str, Any]) -> None:
    """Write a command's settings, defaults included, into its output folder: `assay run FOLDER/recipe.yaml` repeats the run.

    Without `overwrite`, which would delete the results beside it, and `accept_versions` of today. Raises `OutputError`.
    """
    dumped = {name: step.model_dump(mode="json") if isinstance(step, Settings) else step for name, step in steps.items()}
    left_out = {"overwrite", "accept_versions"}  # of this start, and not of the run
    document = {
        step: {name: value for name, value in settings.items() if name not in left_out} for step, settings in dumped.items()
    }
    try:
        storage.folder(folder).replace(NAME, yaml.safe_dump(document, sort_keys=False).encode())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def read_recipe(path: str, assignments: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe, or NeMo Curator's judges, from this machine or a store.

    Raises one `SettingsError` with every mistake and its path.

    `assignments` (`score.work.part_rows=4`) set what a step has otherwise; without the step, if only one has such a setting.
    """
    try:
        with storage.open_read(path) as stream:
            text = stream.read().decode()
    except OSError as error:
        raise SettingsError(f"the recipe {path} can't be read: {error_text(error)}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the recipe {path} isn't valid YAML: it isn't UTF-8 text") from error
    document = from_yaml(text, f"the recipe {path}")
    try:
        if isinstance(document, Mapping) and {"models", "execution"} <= document.keys():  # NeMo Curator's, no step of ours
            document, assignments = curator_recipe(document, path, assignments), ()
        for assignment in read_assignments(assignments, _leaves(document)):
            document = assign(Recipe, document, assignment.place, assignment.value)
        recipe = validate(Recipe, document)
    except (SettingsError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if not all(stage.steps for stage in recipe.stages):
        where = "`then` in the recipe" if recipe.steps else "the recipe"
        raise SettingsError(f"{where} {path} has no steps; it needs one or more of {', '.join(STEPS)}")
    return recipe


def _leaves(document: object) -> list[Leaf]:
    # Only of steps that the recipe has: `votes=8` then needs no step's name if one of them alone has votes.
    steps = [step for step in STEPS if isinstance(document, Mapping) and step in document]
    return [leaf for step in steps for leaf in leaves(plain_type(Recipe.model_fields[step].annotation), (step,))]
