"""Settings of `evaluate`. Imports nothing heavy."""

from pydantic import Field

from actors.settings.base import OPTION, Settings
from actors.settings.endpoint import HERE, ModelEndpointSettings
from actors.settings.replica import (
    AS_ITS_CARD,
    AS_PUBLISHED,
    ChatTemplateText,
    EngineSettings,
    JudgeSettings,
    ReadSettings,
    RenderSettings,
)
from actors.settings.verifier import AS_GIVEN, VerifierSettings
from pipelines.settings.run_settings import AcceptVersions, FieldSettings, Store


class EvaluateSettings(Settings):
    """Settings of `evaluate`: scored corpora in, benchmark figures out.

    `endpoint`, `read`, `judge`, `verifier`, `render`, `engine` and `fields` are those of `model`.
    """

    scored: tuple[str, ...] = Field(min_length=1)
    """folders of scored corpora; or with --model files, as BENCHMARK=FILE or alone if their rows tell"""
    model: tuple[str, ...] = Field(default=(), json_schema_extra=OPTION)
    """reward model that scores the benchmark files first: a folder, a hub id, or a built-in tiny-* model"""
    as_published: bool = Field(default=False, json_schema_extra=OPTION)
    """--model: score the files a second time as authors ran these models on the benchmarks, where that is known and isn't
    what the model's card says, and show the difference"""
    endpoint: ModelEndpointSettings = HERE
    output: str | None = Field(default=None, json_schema_extra=OPTION)
    """folder for results.json, table.md and the items; default: they are only shown, and what --model scores isn't kept"""
    benchmark: str | None = Field(default=None, json_schema_extra=OPTION)
    """benchmark whose rules grade the items; default: found by the rows' shape and fields"""
    partial: bool = Field(default=False, json_schema_extra=OPTION)
    """evaluate a run that isn't complete, or a file in which subsets are missing"""
    resampling_seed: int = 0
    """random seed of the intervals' resampling"""
    against: str | None = Field(default=None, json_schema_extra=OPTION)
    """folder of earlier results that these are compared with"""
    max_drop: float = Field(default=0.0, ge=0, le=100, json_schema_extra=OPTION)
    """--against: percentage points by which a benchmark's headline may fall"""
    min_coverage: float = Field(default=0.99, ge=0, le=1, json_schema_extra=OPTION)
    """--against: least share of the items, of either result, that must have a grade now"""
    overwrite: bool = Field(default=False, json_schema_extra=OPTION)
    """delete an earlier result in the output folder first"""
    store: Store = None
    accept_versions: AcceptVersions = False
    family: str | None = Field(default=None, json_schema_extra=OPTION)
    """how the models are prompted and read, if their ids don't tell, or on an endpoint"""
    chat_template: ChatTemplateText | None = Field(default=None, json_schema_extra=OPTION)
    """--model: Jinja file with the chat template that the models were trained with, in place of their checkpoints'"""
    read: ReadSettings = AS_PUBLISHED
    judge: JudgeSettings = AS_ITS_CARD
    verifier: VerifierSettings = AS_GIVEN
    fields: FieldSettings = FieldSettings()
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()

    @property
    def scores_files(self) -> bool:
        """Whether files are scored first: models are named, or something is set that is about their scoring."""
        of_model = (self.family, self.chat_template, self.read, self.judge, self.verifier, self.fields)
        is_about_model = of_model != (None, None, AS_PUBLISHED, AS_ITS_CARD, AS_GIVEN, FieldSettings())
        return bool(self.model) or self.endpoint != HERE or self.as_published or is_about_model
