"""Settings of `retry` and `verify`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field, field_validator

from actors.records import Reason
from actors.settings.base import OPTION, Settings
from pipelines.settings.run_settings import AcceptVersions

# Reasons for which a response of a scored corpus may have failed. What is rejected would be rejected again.
RETRIED = (
    Reason.NOT_FINITE,
    Reason.ENGINE_REFUSED,
    Reason.ENGINE_TIMEOUT,
    Reason.ENGINE_KILLER,
    Reason.CUT_OFF,
    Reason.NO_VERDICT,
    Reason.TWO_VERDICTS,
    Reason.OUT_OF_RANGE,
    Reason.NO_OPPONENT,
    Reason.ENDPOINT_FAILED,
    Reason.ENDPOINT_REFUSED,
)


class RescoreEngineSettings(Settings):
    """Settings of the engines, in place of those of the run. None of them decides a number."""

    replicas: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """fixed number of engines; default: as the run had it"""
    request_timeout_s: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """seconds without an answer until a prompt fails; default: as the run had it"""


class RetrySettings(Settings):
    """Settings of `retry`."""

    scored: str
    """folder of a scored corpus that is complete: the output folder of `score`"""
    reasons: tuple[str, ...] = Field(default=(), json_schema_extra=OPTION)
    """reasons for which responses have failed, with commas between them; default: all"""
    accept_versions: AcceptVersions = False
    engines: RescoreEngineSettings = RescoreEngineSettings()

    @field_validator("reasons", mode="before")
    @classmethod
    def _split(cls, reasons: object) -> object:
        texts = [reasons] if isinstance(reasons, str) else reasons
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return reasons
        return tuple(reason.strip() for text in texts for reason in text.split(",") if reason.strip())

    @field_validator("reasons")
    @classmethod
    def _check(cls, reasons: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [reason for reason in reasons if reason not in RETRIED]:
            raise ValueError(f"{unknown[0]!a} is no reason for which responses fail; these are {', '.join(RETRIED)}")
        return reasons


class VerifySettings(Settings):
    """Settings of `verify`."""

    scored: str
    """folder of a scored corpus"""
    sample: int = Field(default=200, ge=0, json_schema_extra=OPTION)
    """number of input rows, drawn at random, that are scored again and compared; 0: no engine is started"""
    seed: int = Field(default=0, json_schema_extra=OPTION)
    """random seed of the sample"""
    max_difference: Annotated[float, Field(ge=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """largest difference of a number that passes; with it, a response that was scored or rejected must be so again, and
    something be compared; default: differences are only shown"""
    repair: bool = Field(default=False, json_schema_extra=OPTION)
    """delete the bad parts of this run, so that the next `score` scores their rows again"""
    engines: RescoreEngineSettings = RescoreEngineSettings()
