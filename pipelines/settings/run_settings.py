"""What a run is told: the same settings for the command line, a recipe and Python. Imports nothing heavy."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from actors.settings.base import Settings
from actors.settings.replica import (
    Dtype,
    EngineSettings,
    ModelSettings,
    PolicyEngineSettings,
    PolicySettings,
    RenderSettings,
)
from pipelines.settings.export_settings import ChoiceOfCandidates


class Turns(StrEnum):
    """Which assistant turns of a conversation are judged."""

    FINAL = "final"
    ALL = "all"


class RowSettings(Settings):
    """How rows are understood."""

    format: str | None = Field(default=None, description="shape of the rows, instead of finding it by looking")
    prompt_column: str | None = Field(
        default=None, description="field with the prompt, text or messages, in rows of no known shape: NAME or a[0].b"
    )
    response_column: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="field with the response to it, or a list of responses; of several, each names its response",
    )
    system_column: str | None = Field(
        default=None, description="field with the system prompt, if it isn't `system` or `system_prompt`; '' if none is"
    )
    principle_column: str | None = Field(
        default=None,
        description="field with what the row's responses are judged by: a principle or rubric, or a list of them",
    )
    turns: Turns = Field(default=Turns.FINAL, description="judge the final assistant turn, or every one")

    @field_validator("response_column", mode="before")
    @classmethod
    def _columns(cls, given: Any) -> Any:
        """A single field may be given as text. Raises `ValueError` for one that is given twice."""
        columns = (given,) if isinstance(given, str) else given
        if isinstance(columns, list | tuple) and (
            twice := [name for at, name in enumerate(columns) if name in columns[:at]]
        ):
            raise ValueError(f"{twice[0]} is given twice")
        return columns


class InputSettings(Settings):
    """What is read. A class of its own, as `FolderSettings` is: so it comes first wherever settings are listed."""

    inputs: tuple[str, ...] = Field(min_length=1, description="files, globs and folders")


class CorpusSettings(RowSettings, InputSettings):
    """What is read, and how its rows are understood."""

    limit: Annotated[int, Field(ge=1)] | None = Field(default=None, description="read only the first N input rows")
    max_record_bytes: int = Field(default=64 * 2**20, ge=1, description="longer JSON records are rejected unread")


class PoolSettings(Settings):
    """How many engines there are, and how often they may die."""

    replicas: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="engines side by side; as many as the cluster's GPUs carry, or one without GPUs"
    )
    max_replicas: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="instead: engines at most, started as work waits and GPUs come, and ended as they idle"
    )
    min_replicas: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="engines at least, if their number changes; 1 if not given"
    )
    max_engine_deaths: int = Field(default=6, ge=1, description="engine deaths in a row that end the run")

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.replicas is not None and (self.min_replicas or self.max_replicas):
            raise ValueError(
                "replicas is a number that stays, and min_replicas and max_replicas one that changes: give either"
            )
        if self.min_replicas is not None and (self.max_replicas is None or self.min_replicas > self.max_replicas):
            raise ValueError(f"min_replicas is {self.min_replicas}, and max_replicas {self.max_replicas or 'not given'}")
        return self


class WorkSettings(PoolSettings):
    """How the work is cut up. None of this changes a number, and all of it may change when a run is resumed."""

    part_rows: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="most input rows in a part, which is what a crash costs; by the corpus's size if not given"
    )
    unit_bytes: int = Field(default=16 * 2**20, ge=1, description="most bytes of plain JSONL for one read task")
    max_failed_fraction: float = Field(default=0.5, gt=0, le=1, description="share of failed responses that ends the run")


Prefix = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$|^$", description="put before the names of our columns")]


class CheckSettings(Settings):
    """Everything that `check` is told."""

    model: ModelSettings
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()


class RunSettings(Settings):
    """How a run into a folder goes, by one model or several."""

    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    work: WorkSettings = WorkSettings()
    prefix: Prefix = ""
    overwrite: bool = Field(default=False, description="delete an earlier run in the output folder first")
    append: bool = Field(default=False, description="take new input files into an earlier run")


class OneModelSettings(Settings):
    """What is scored by one model, and where to."""

    corpus: CorpusSettings
    output: str = Field(description="folder for the scored parts and the manifest")
    model: ModelSettings


class JudgingSettings(RunSettings, OneModelSettings):
    """A run into a folder by one model."""


class ScoreSettings(JudgingSettings):
    """Everything that `score` is told."""

    plan: str | None = Field(default=None, description="file of a plan of this run (`assay plan --out`), to compare it with")


class DrawSettings(Settings):
    """How many candidates there are for a prompt. With `enough` or `min_gain` only as many as it takes, at most `n`."""

    n: int = Field(default=8, ge=1, le=1024, description="candidates for each prompt, or the most of them")
    enough: float | None = Field(default=None, description="no more for a prompt once a candidate has this reward")
    min_gain: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="no more once another candidate is expected to better the best reward by less than this, as the spread "
        "of the rewards so far tells (at least 4)",
    )

    @property
    def adaptive(self) -> bool:
        """Whether rewards decide how many there are."""
        return self.enough is not None or self.min_gain is not None


class SampleSettings(JudgingSettings):
    """Everything that `sample` is told: a policy that answers, and a judge."""

    policy: PolicySettings = PolicySettings()
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    draw: DrawSettings = DrawSettings()
    choice: ChoiceOfCandidates = ChoiceOfCandidates()
    in_turns: bool = Field(
        default=False, description="first draw all candidates, then judge them: one engine at a time, for a single GPU"
    )


class Combine(StrEnum):
    """What becomes of the members' rewards of a response: the reward of an ensemble."""

    MEAN = "mean"
    MIN = "min"
    Z_MEAN = "z-mean"
    Z_MIN = "z-min"

    @property
    def needs_baseline(self) -> bool:
        """Whether it is made of z-scores, which only a prompt with several different responses has."""
        return self in (Combine.Z_MEAN, Combine.Z_MIN)


class CombineSettings(Settings):
    """How the members' rewards become one. All of it may change later: no model runs again for it."""

    combine: Combine = Field(
        default=Combine.Z_MEAN,
        description="the ensemble's reward: z-mean or z-min of the members' z-scores among the responses to the same "
        "prompt; mean or min of their raw rewards, which is for members on one scale",
    )
    suspect_reward: float = Field(default=0.0, description="suspect: the mean of the z-scores is above this")
    suspect_disagreement: float = Field(
        default=1.96, ge=0, description="suspect: and the z-score of the members' disagreement above this"
    )


class MemberSettings(ModelSettings):
    """A model of an ensemble."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="what it is called in `scores` and in models/; the last part of its id if not given"
    )
    engine: EngineSettings | None = Field(default=None, description="how its engines are started, if not as the others' are")


class SeveralModelsSettings(Settings):
    """What is scored by several models, and where to."""

    corpus: CorpusSettings
    output: str = Field(description="folder for the combined corpus, and in models/ what each model scored")
    models: tuple[MemberSettings, ...] = Field(min_length=2, description="the models, each an id or its settings")
    combination: CombineSettings = CombineSettings()
    dtype: Dtype = Field(default=Dtype.AUTO, description="precision of the models whose own settings don't say it")

    @field_validator("models", mode="before")
    @classmethod
    def _ids_are_settings(cls, models: Any) -> Any:
        """A model that is given by its id alone has the defaults."""
        if not isinstance(models, list | tuple):
            return models
        return [{"model": model} if isinstance(model, str) else model for model in models]


class EnsembleSettings(RunSettings, SeveralModelsSettings):
    """Everything that `ensemble` is told."""


class DatasetSettings(Settings):
    """Everything that `score` is told of a Ray Dataset: where it comes from and goes to is the caller's."""

    rows: RowSettings = RowSettings()
    model: ModelSettings
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    pool: PoolSettings = PoolSettings()
    prefix: Prefix = ""
    batch_rows: int = Field(default=1024, ge=1, description="most input rows that an engine is given together")


class DatasetSampleSettings(DatasetSettings):
    """Everything that `sample` is told of a Ray Dataset."""

    policy: PolicySettings = PolicySettings()
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    draw: DrawSettings = DrawSettings()
    batch_rows: int = Field(default=32, ge=1, description="most prompts that are worked on together")


class ChoiceSettings(Settings):
    """Which responses are kept."""

    keep: str | None = Field(default=None, min_length=1, description="SQL condition over the columns of the scored corpus")
    by: str | None = Field(default=None, min_length=1, description="number to choose by, SQL; the reward if not given")
    top_fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="keep the best fraction of the scored responses that meet the condition"
    )
    quantile: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="keep those at or above this quantile of them"
    )
    top_k: Annotated[int, Field(ge=1)] | None = Field(default=None, description="keep the best K of each prompt or row")
    per: Literal["prompt", "row"] | None = Field(default=None, description="what --top-k is of; prompt if not given")
    min_gap: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="with --top-k: only where the best is ahead of the next by this much"
    )


class FolderSettings(Settings):
    """Where a filter reads and writes."""

    scored: str = Field(description="folder of a scored corpus")
    output: str | None = Field(default=None, description="folder for the kept rows; none only counts them")


class FilterSettings(ChoiceSettings, FolderSettings):
    """Everything that `keep` is told."""

    format: Literal["jsonl", "parquet"] | None = Field(
        default=None, description="jsonl for a corpus that was JSON, parquet for one that was Parquet"
    )
    fields: bool = Field(default=True, description="add our columns to JSONL rows; without, the original bytes")
    rest: str | None = Field(default=None, description="folder for everything else, with the reason why")
    partial: bool = Field(default=False, description="filter a run that isn't complete")
    overwrite: bool = Field(default=False, description="delete an earlier result in the output folders first")


class RefiningSettings(Settings):
    """Who criticises drafts and who edits them, and how many there are."""

    feedback: str | None = Field(default=None, description="the model that criticises drafts; the policy if not given")
    edit: str | None = Field(default=None, description="the model that edits them by that; the policy if not given")
    drafts: int = Field(default=4, ge=1, le=256, description="drafts of each prompt")
    feedbacks: int = Field(
        default=2, ge=1, le=64, description="texts of feedback on each draft, each of which gives an edit"
    )
    feedback_prompt: str | None = Field(
        default=None,
        description="file with the prompt for feedback, in Jinja: with {{ conversation }} (or turns) and {{ response }}",
    )
    edit_prompt: str | None = Field(default=None, description="file with the prompt for an edit, with {{ feedback }}, too")


class RefineSettings(JudgingSettings):
    """Everything that `refine` is told: three models that write, and a judge. The writers share the policy's options."""

    policy: PolicySettings = PolicySettings()
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    refining: RefiningSettings = RefiningSettings()
    choice: ChoiceOfCandidates = ChoiceOfCandidates()
