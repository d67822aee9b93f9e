"""Settings of `diff`. Imports nothing heavy."""

from typing import Annotated

from pydantic import Field

from actors.settings.base import OPTION, Settings
from pipelines.settings.filter_settings import ChoiceSettings


class GateSettings(Settings):
    """What a difference may be. With any of them, a response or a number that is in one folder only fails the gate, too."""

    max_move: Annotated[float, Field(ge=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """gate: largest move of a response that passes, in the unit of moves"""
    min_rank_correlation: Annotated[float, Field(ge=-1, le=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """gate: least rank correlation (Spearman's) that passes"""
    max_status_changes: Annotated[int, Field(ge=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """gate: number of responses that may have another status or reason"""
    max_kept_changes: Annotated[int, Field(ge=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """gate: number of responses that the filter may keep in one folder and not in the other"""
    max_unmatched: Annotated[int, Field(ge=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """gate: number of responses that may be, or have a number, in one folder only; default: 0 if there is another gate"""

    @property
    def is_set(self) -> bool:
        return any(value is not None for value in self.model_dump().values())


class DiffSettings(Settings):
    """All settings of `diff`: two scored corpora of the same rows, and which differences pass."""

    first: str
    """folder of a scored corpus, or of a filter's result"""
    second: str
    """folder of another scored corpus of the same rows"""
    output: str | None = Field(default=None, json_schema_extra=OPTION)
    """folder for diff.json, and moves.parquet with every move; default: only shown"""
    numbers: tuple[str, ...] = Field(default=(), json_schema_extra=OPTION)
    """number that is compared: reward, or scores.NAME; moves and gates are of the first; default: the reward, and every
    named score that both have"""
    show: int = Field(default=10, ge=0, le=1000, json_schema_extra=OPTION)
    """number of examples of each kind"""
    partial: bool = Field(default=False, json_schema_extra=OPTION)
    """accept runs that aren't complete, and compare the parts that exist"""
    choice: ChoiceSettings = ChoiceSettings()
    gates: GateSettings = GateSettings()
