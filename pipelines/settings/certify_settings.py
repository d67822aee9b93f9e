"""Settings of `certify`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field, model_validator

from actors.settings.base import OPTION, Settings
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings, fit_engine
from pipelines.settings.run_settings import AcceptVersions, RowSettings, Store, WorkSettings


class CertifySettings(Settings):
    """All settings of `certify`: those of `score` for the model, and a sample of rows."""

    model: ModelSettings
    inputs: tuple[str, ...] = Field(min_length=1)
    """rows to certify on: files, glob patterns and folders as for `score`, or the folder of a scored corpus"""
    output: str = Field(default="certificate", json_schema_extra=OPTION)
    """folder for certificate.json, the changed rows and their scores"""
    sample: int = Field(default=1000, ge=1, le=1000, json_schema_extra=OPTION)
    """maximum number of rows, drawn at random"""
    max_effect: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """exit with code 5 unless each effect is shown to be at most so many standard deviations of the reward"""
    rows: RowSettings = RowSettings()
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    work: WorkSettings = WorkSettings()
    store: Store = None
    overwrite: bool = Field(default=False, json_schema_extra=OPTION)
    """delete an earlier certificate in the output folder first"""
    accept_versions: AcceptVersions = False

    _fit_engine = model_validator(mode="after")(fit_engine)
