"""Settings of `report`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field

from actors.settings.base import OPTION, Settings


class ReportSettings(Settings):
    """All settings of `report`: what is shown, and how many responses are sampled for it."""

    scored: tuple[str, ...] = Field(
        min_length=1,
        max_length=2,
        description="folder of a scored corpus, of a filter's result or of an evaluation; two scored corpora are compared",
    )
    output: str = Field(default="report.html", description="file for the page")
    by: tuple[str, ...] = Field(
        default=(),
        description="column or nested field (meta.topic) of the input whose groups are shown side by side",
        json_schema_extra=OPTION,
    )
    sample: int = Field(
        default=20_000,
        ge=100,
        le=200_000,
        description="number of responses sampled for lengths, correlations and examples; counts and quantiles are of all",
        json_schema_extra=OPTION,
    )
    seed: int = Field(default=0, description="random seed of the sample")
    gpu_price: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="price of one GPU for one hour, in any currency", json_schema_extra=OPTION
    )
    partial: bool = Field(
        default=False,
        description="accept a run that isn't complete, and show the parts that exist",
        json_schema_extra=OPTION,
    )
