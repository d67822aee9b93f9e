"""Settings of `filter` and `label-sample`: which scored responses are kept, and which are drawn for labels."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import OPTION, Settings
from pipelines.settings.hub_settings import HubSettings
from pipelines.settings.run_settings import Share


class ChoiceSettings(Settings):
    """Which responses are kept."""

    where: str | None = Field(default=None, min_length=1, json_schema_extra=OPTION)
    """keep responses for which this SQL condition over the columns of the scored corpus is true"""
    by: str | None = Field(default=None, min_length=1, json_schema_extra=OPTION)
    """SQL expression that responses are ranked by, highest first; default: the reward"""
    top_fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """keep this fraction of the scored responses that meet the condition, those ranked highest"""
    quantile: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """keep the responses at or above this quantile of those that meet the condition"""
    top_k: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """keep the K best responses of each prompt or row"""
    per: Literal["prompt", "row"] | None = Field(default=None, json_schema_extra=OPTION)
    """--top-k: the group that K applies to; default: prompt"""
    min_gap: Annotated[float, Field(ge=0)] | None = None
    """--top-k: keep responses only where the best leads the second best by at least this"""

    @property
    def selections(self) -> list[str]:
        # At most one goes: top-k of a fraction would depend on which of them is done first.
        return [name for name in ("top_fraction", "quantile", "top_k") if getattr(self, name) is not None]


class LabelledChoiceSettings(ChoiceSettings):
    """Which responses are kept, by labels too."""

    labels: str | None = Field(default=None, json_schema_extra=OPTION)
    """JSONL with {row, response_name, label} of responses drawn at random, such as `label-sample` draws: keep those from the
    cut on that the labels show to have --precision, --recall or both"""
    precision: Share | None = Field(default=None, json_schema_extra=OPTION)
    """--labels: share of the kept responses that must be labelled true; the cut is the lowest that has it"""
    recall: Share | None = Field(default=None, json_schema_extra=OPTION)
    """--labels: share of the responses labelled true that must be kept; without --precision the cut is the highest that has
    it"""
    confidence: Share = Field(default=0.95, json_schema_extra=OPTION)
    """--labels: probability with which the cut has what was asked for"""

    @property
    def selections(self) -> list[str]:
        return [*super().selections, *(["labels"] if self.labels is not None else [])]


# A base class of its own, so that both folders come first in a recipe (`run_settings.OneModelSettings`).
class FolderSettings(Settings):
    """Input and output folders of a filter."""

    scored: str
    """folder of a scored corpus, or of another filter's result"""
    output: str | None = None
    """folder for the kept rows; default: they are only counted"""


class FilterSettings(HubSettings, LabelledChoiceSettings, FolderSettings):
    """All settings of `filter`."""

    format: Literal["jsonl", "parquet"] | None = Field(default=None, json_schema_extra=OPTION)
    """format of the kept rows: jsonl (input was JSON) or parquet; default: that of the input"""
    rows: Literal["rows", "responses"] = Field(default="rows", json_schema_extra=OPTION)
    """rows: write the whole input row of each kept response; responses: write each kept response alone, with its prompt, its
    reward and the row's other flat fields"""
    fields: bool = True
    """add Assay's columns to JSONL rows; without, rows keep their original bytes"""
    rest: str | None = Field(default=None, json_schema_extra=OPTION)
    """folder for the responses that aren't kept, in whole rows, each with the reason"""
    partial: bool = Field(default=False, json_schema_extra=OPTION)
    """accept a run that isn't complete, and filter the parts that exist"""
    overwrite: bool = Field(default=False, json_schema_extra=OPTION)
    """delete an earlier result in the output folders first"""


class LabelSampleSettings(Settings):
    """All settings of `label-sample`."""

    scored: str
    """folder of a scored corpus, or of a filter's result"""
    output: str
    """JSONL file for the responses to be labelled"""
    n: int = Field(default=400, ge=1, json_schema_extra=OPTION)
    """number of responses to draw, one from each of as many equally large strata of the reward"""
    seed: int = Field(default=0, json_schema_extra=OPTION)
    """random seed of the sample"""
