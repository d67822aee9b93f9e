"""Settings of runs, the same for the command line, a recipe and Python. Imports nothing heavy."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from actors.settings.base import OPTION, Settings
from actors.settings.replica import (
    Dtype,
    EngineSettings,
    ModelSettings,
    PolicyEngineSettings,
    PolicySettings,
    RenderSettings,
    fit_engine,
)


class Turns(StrEnum):
    """Which assistant turns of a conversation are judged.

    `all` needs rows that hold a conversation; each turn is judged in the context of all before it.
    """

    FINAL = "final"
    ALL = "all"
    FINAL_ANSWER = "final-answer"


class ColumnSettings(Settings):
    """Where a row holds its prompt and its responses. A separate base class, so that they come first in a recipe."""

    format: str | None = Field(default=None, json_schema_extra=OPTION)
    """shape of the rows; mixed: each row has its own; default: detected from a sample"""
    prompt_column: str | None = Field(default=None, json_schema_extra=OPTION)
    """field with the prompt (text or messages), in rows of no known shape; a name, or a path such as a[0].b or a[-1]"""
    response_column: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """field with the response, or a list of responses (a[].b: that of each element); with several fields, each response has
    the name of its field"""
    conversation_column: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, json_schema_extra=OPTION
    )
    """field with a whole conversation, whose last turn is the response; with several fields, each response has the name of
    its field"""
    system_column: str | None = None
    """field with the system prompt; default: `system` or `system_prompt`, unless it is named for something else; '': no
    system prompt is read"""

    @field_validator("response_column", "conversation_column")
    @classmethod
    def _differ(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        # Two responses of one name couldn't be told apart in the output.
        if twice := [name for i, name in enumerate(columns or ()) if name in (columns or ())[:i]]:
            raise ValueError(f"{twice[0]} is given twice")
        return columns


class FieldSettings(Settings):
    """Where a row holds what a model reads beside the conversation."""

    reference_column: str | None = Field(default=None, json_schema_extra=OPTION)
    """field with the right answer, for models that compare with one; default: `reference`"""
    criteria_column: str | None = Field(default=None, json_schema_extra=OPTION)
    """field with the row's own criteria, a list of {name, text, weight, choices, gate}, for --family criteria; default:
    `criteria`"""
    field: dict[str, str] = Field(default_factory=dict, json_schema_extra=OPTION)
    """NAME=COLUMN: a text beside the conversation that the model reads under this name, such as a rubric's {{ NAME }};
    principle=COLUMN holds a principle or a list of them"""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if twice := sorted(self.field.keys() & self._usual_columns.keys()):
            raise ValueError(f"--{twice[0]}-column and --field {twice[0]}=... name the same field: give one of them")
        return self

    @property
    def columns(self) -> dict[str, str]:
        return {**self.field, **self._usual_columns}

    @property
    def _usual_columns(self) -> dict[str, str]:
        named = {"reference": self.reference_column, "criteria": self.criteria_column}
        return {name: column for name, column in named.items() if column is not None}


class RowSettings(FieldSettings, ColumnSettings):
    """How rows are read."""

    turns: Turns = Turns.FINAL
    """judge the final assistant turn, or every assistant turn; final-answer: the final one if it calls no tool"""


class InputSettings(Settings):
    """Input files. A separate base class, like `FolderSettings`, so that they come first in a recipe."""

    inputs: tuple[str, ...] = Field(min_length=1)
    """input files, glob patterns and folders"""

    @field_validator("inputs", mode="before")
    @classmethod
    def _refuse_rows(cls, inputs: Any) -> Any:
        # A tuple is made of whatever can be iterated, and of a pandas DataFrame those are the names of its columns.
        if hasattr(inputs, "columns") or (isinstance(inputs, list) and any(isinstance(row, dict) for row in inputs)):
            raise ValueError("no files; give rows as ray.data.from_pandas(frame) or ray.data.from_items(rows), no output")
        return inputs


class CorpusSettings(RowSettings, InputSettings):
    """Input files, and how their rows are read."""

    bare_field: ClassVar = "inputs"  # `corpus: rows.jsonl` in a recipe

    limit: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """read only the first N input rows"""
    max_record_bytes: int = Field(default=64 * 2**20, ge=1)
    """maximum bytes of a JSON record; longer records are rejected as record_too_large without being parsed, so that a quote
    that is missing can't fill the memory"""


class ReplicaSettings(Settings):
    """Number of engines."""

    replicas: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """fixed number of engines; default: as many as fit on the cluster's GPUs, or one without GPUs"""
    max_replicas: Annotated[int, Field(ge=1)] | None = None
    """maximum number of engines, instead of --replicas; the pool grows while work waits and GPUs are free, and shrinks when
    engines are idle"""
    min_replicas: Annotated[int, Field(ge=1)] | None = None
    """minimum number of engines, with `max_replicas`; default: 1"""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.replicas is not None and (self.min_replicas or self.max_replicas):
            raise ValueError(
                "replicas is a number that stays, and min_replicas and max_replicas one that changes: give either"
            )
        if self.min_replicas is not None and self.max_replicas is None:
            raise ValueError("min_replicas goes with max_replicas, which isn't given")
        if self.min_replicas is not None and self.max_replicas is not None and self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}")
        return self


class PoolSettings(ReplicaSettings):
    """Number of engines, and the limit on their crashes."""

    max_engine_deaths: int = Field(default=6, ge=1)
    """number of crashes of an engine, with no work done in between, that ends the run"""


class WorkSettings(PoolSettings):
    """How the work is divided. None of this affects scores, and all of it may change when a run is resumed."""

    part_rows: Annotated[int, Field(ge=1)] | None = None
    """maximum number of input rows in a part, the unit of work that a crash loses; default: by corpus size"""
    unit_bytes: int = Field(default=16 * 2**20, ge=1)
    """maximum bytes of uncompressed JSONL per read task, and of Parquet but for a larger row group; a compressed file or a
    JSON array is read by one task"""
    max_failed_fraction: float = Field(default=0.5, gt=0, le=1)
    """fraction of failed responses above which the run ends, because the model or a setting must be wrong; rejected ones
    don't count"""
    storage_patience_s: float = Field(default=300.0, ge=0)
    """seconds for which a store (s3:// ...) may not answer before the run ends; until then, engines stay"""


Prefix = Annotated[
    str, Field(pattern=r"^[A-Za-z_]\w*$|^$", description="prefix for the names of the columns that Assay adds")
]


Text = Annotated[bool, Field(description="add a column `response_text`, the text of each response as it was judged")]


Store = Annotated[
    str | None,
    Field(
        description="folder or address of a score store, which many runs may share: what it holds isn't scored again, and "
        "what is scored is added",
        json_schema_extra=OPTION,
    ),
]


AcceptVersions = Annotated[
    bool, Field(description="go on with a run that other versions of vLLM, torch or transformers began")
]


class CheckSettings(Settings):
    """All settings of `check`."""

    model: ModelSettings
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()

    _fit_engine = model_validator(mode="after")(fit_engine)


class RunSettings(Settings):
    """Settings of any run that writes a folder, with one model or several."""

    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    work: WorkSettings = WorkSettings()
    prefix: Prefix = ""
    text: Text = True
    store: Store = None
    overwrite: bool = Field(default=False, json_schema_extra=OPTION)
    """delete an earlier run in the output folder first"""
    append: bool = Field(default=False, json_schema_extra=OPTION)
    """add new input files to an earlier run in the output folder"""
    accept_versions: AcceptVersions = False
    log: tuple[str, ...] = ()
    """show the run's throughput, and its summary at the end, in wandb, mlflow or tensorboard, too"""


# A base class of its own, and the last one of a run's settings: pydantic puts the fields of the last base class first, and a
# recipe that a run writes should begin with what goes in, what comes out and the model.
class OneModelSettings(Settings):
    """Input, output folder and model of a run with one model."""

    corpus: CorpusSettings
    output: str
    """folder for the scored parts and the manifest"""
    model: ModelSettings


class JudgingSettings(RunSettings, OneModelSettings):
    """All settings of a run with one model."""

    _fit_engine = model_validator(mode="after")(fit_engine)  # or an engine would fail after minutes


class ScoreSettings(JudgingSettings):
    """All settings of `score`."""


class DrawSettings(Settings):
    """Number of candidates per prompt: `n`, or, with `enough` or `min_gain`, at most `n` until a stopping rule holds."""

    bare_field: ClassVar = "n"

    n: int = Field(default=8, ge=1, le=1024, json_schema_extra=OPTION)
    """number of candidates per prompt; with `enough` or `min_gain` the maximum"""
    enough: float | None = None
    """stop generating for a prompt once a candidate reaches this reward"""
    min_gain: Annotated[float, Field(gt=0)] | None = None
    """stop generating for a prompt once the expected improvement of its best reward by another candidate is below this,
    estimated from the spread of its rewards (after at least 4 candidates)"""

    @property
    def adaptive(self) -> bool:
        return self.enough is not None or self.min_gain is not None


class SampleSettings(JudgingSettings):
    """All settings of `sample`: a policy that generates candidates, and a judge that scores them."""

    policy: PolicySettings
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    draw: DrawSettings = DrawSettings()
    in_turns: bool = False
    """generate all candidates first and judge them afterwards, so that only one model is loaded at a time (for a single GPU)
    """


class Combine(StrEnum):
    """How the members' rewards of a response are combined into the reward of the ensemble."""

    MEAN = "mean"
    MIN = "min"
    Z_MEAN = "z-mean"
    Z_MIN = "z-min"


class CombineSettings(Settings):
    """How the members' rewards are combined. May be changed in a later run without scoring anything again."""

    bare_field: ClassVar = "combine"

    combine: Combine = Field(default=Combine.Z_MEAN, json_schema_extra=OPTION)
    """reward of the ensemble: z-mean or z-min, over the members' z-scores among the responses to the same prompt; mean or
    min, over their raw rewards, for members that share a scale"""
    suspect_reward: float = 0.0
    """suspect: mark a response whose mean z-score is above this"""
    suspect_disagreement: float = Field(default=1.96, ge=0)
    """suspect: and whose members' disagreement has a z-score above this"""


class MemberSettings(ModelSettings):
    """A member of an ensemble."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """name of the member in `scores` and in models/; default: the last part of its id"""
    engine: EngineSettings | None = None
    """engine settings of this member; default: those of the run"""


class SeveralModelsSettings(Settings):
    """Input, output folder and members of a run with several models."""

    corpus: CorpusSettings
    output: str
    """folder for the combined corpus; models/ in it holds what each model scored"""
    models: tuple[MemberSettings, ...] = Field(min_length=2)
    """models of the ensemble, two or more; in a recipe each an id or a mapping of settings"""
    dtype: Dtype = Dtype.AUTO
    """precision of the models whose own settings have none"""


class MembersSettings(RunSettings, SeveralModelsSettings):
    """All settings that every run with several models has."""


class EnsembleSettings(MembersSettings):
    """All settings of `ensemble`."""

    combination: CombineSettings = CombineSettings()


Share = Annotated[float, Field(gt=0, lt=1)]


class BoundSettings(Settings):
    """The filter of a cascade, and how wrong it may be."""

    where: str = Field(min_length=1)
    """SQL condition over the columns of the last model's scores: what it keeps of all rows is the truth here"""
    error: Share = Field(default=0.05, json_schema_extra=OPTION)
    """largest share of the kept responses that the last model wouldn't keep"""
    miss: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.05, json_schema_extra=OPTION)
    """largest share, of the responses that the last model would keep, that are lost; 0: none, so no model before the last
    drops anything"""
    confidence: Share = Field(default=0.95, json_schema_extra=OPTION)
    """probability with which both shares are at most that"""
    sample: Annotated[int, Field(ge=1)] | None = None
    """number of responses in a random slice that a model is calibrated by, at most a quarter of what reaches it; default: by
    the bounds"""
    sample_seed: int = 0
    """random seed of the slices"""
    plan_only: bool = False
    """end (3) once the first model and its slice are scored, and say how many rows go on; the same command without it
    resumes"""


class CascadeSettings(MembersSettings):
    """All settings of `cascade`."""

    models: tuple[MemberSettings, ...] = Field(min_length=2)
    """models of the cascade in their order, two or more, the cheapest first; in a recipe each an id or a mapping of settings
    """
    bound: BoundSettings

    @model_validator(mode="after")
    def _check_fixed(self) -> Self:
        if self.append:
            raise ValueError("a cascade is calibrated on its whole corpus: more rows are another cascade, in another folder")
        return self


class DatasetSettings(Settings):
    """All settings of `score` on a Ray Dataset. The caller reads the input and writes the output."""

    rows: RowSettings = RowSettings()
    model: ModelSettings
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    pool: PoolSettings = PoolSettings()
    prefix: Prefix = ""
    text: Text = True
    store: Store = None
    batch_rows: int = Field(default=1024, ge=1)
    """maximum number of input rows in a batch for an engine"""

    _fit_engine = model_validator(mode="after")(fit_engine)


class DatasetSampleSettings(DatasetSettings):
    """All settings of `sample` on a Ray Dataset."""

    policy: PolicySettings
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    draw: DrawSettings = DrawSettings()
    batch_rows: int = Field(default=32, ge=1)
    """maximum number of prompts in a batch"""
