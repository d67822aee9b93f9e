"""Settings of `certify`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field

from actors.settings.base import OPTION
from pipelines.settings.run_settings import JudgingSettings


class CertifySettings(JudgingSettings):
    """All settings of `certify`: those of `score`, of whose corpus a sample is taken, and a gate."""

    output: str = Field(default="certificate", json_schema_extra=OPTION)
    """folder for certificate.json, the changed rows and their scores"""
    max_effect: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """exit with code 5 unless each effect is shown to be at most so many standard deviations of the reward"""
