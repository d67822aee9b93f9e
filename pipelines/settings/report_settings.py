"""Settings of `report`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field

from actors.settings.base import OPTION, Settings


class ReportSettings(Settings):
    """All settings of `report`: what is shown, and how many responses are sampled for it."""

    scored: tuple[str, ...] = Field(min_length=1, max_length=2)
    """folder of a scored corpus, of a filter's result, of an evaluation or of a certificate; two scored corpora are compared
    """
    output: str = Field(default="report.html", json_schema_extra=OPTION)
    """file for the page"""
    by: tuple[str, ...] = Field(default=(), json_schema_extra=OPTION)
    """column or nested field (meta.topic) of the input whose groups are shown side by side"""
    sample: int = Field(default=20_000, ge=100, le=200_000, json_schema_extra=OPTION)
    """number of responses sampled for lengths, correlations and examples; counts and quantiles are of all"""
    seed: int = 0
    """random seed of the sample"""
    gpu_price: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """price of one GPU for one hour, in any currency"""
    partial: bool = Field(default=False, json_schema_extra=OPTION)
    """accept a run that isn't complete, and show the parts that exist"""
