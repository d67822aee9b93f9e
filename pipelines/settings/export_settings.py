"""Settings of the commands that read a scored corpus and write training data: `choose`, `pairs` and `export`."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import OPTION, Settings
from pipelines.settings.hub_settings import HubSettings

Fields = Annotated[
    bool, Field(description="carry the input's own flat fields, such as ids and answers, into the rows that are written")
]


# A base class of its own, so that both folders come first in a recipe (`run_settings.OneModelSettings`).
class FoldersSettings(Settings):
    """Input and output folders."""

    scored: str
    """folder of a scored corpus (by `sample`, `score`, `ensemble`), or of a filter's result"""
    output: str
    """folder for the result"""


class OutputSettings(HubSettings):
    """Which responses are read, whether an incomplete run or a filled output folder is accepted, and uploads."""

    where: str | None = Field(default=None, json_schema_extra=OPTION)
    """read only responses for which this SQL condition is true, e.g. 'scores.correctness > 2'; same syntax as `filter
    --where`"""
    partial: bool = Field(default=False, json_schema_extra=OPTION)
    """accept a run that isn't complete, and read the parts that exist"""
    overwrite: bool = Field(default=False, json_schema_extra=OPTION)
    """delete an earlier result in the output folder first"""


class TrainerSettings(Settings):
    """What applies to the formats of trainers only."""

    fake_ok: bool = False
    """accept a corpus that was scored with --engine fake, whose numbers are made up"""
    fields: Fields = True


class Choose(StrEnum):
    """Which candidates of a prompt are kept; `ChoiceOfCandidates.strategy` says what each of them does."""

    BEST = "best"
    TOP_K = "top-k"
    ALL = "all"
    SOFTMAX = "softmax"
    MAJORITY = "majority"


class ChoiceOfCandidates(Settings):
    """Which candidates of each prompt are kept. Rejected, failed and truncated candidates never are."""

    strategy: Choose
    """best: highest reward; top-k: the K highest rewards; all: every candidate that reaches `floor`; softmax: K samples with
    probability proportional to exp(reward / `softmax_temperature`); majority: the candidate that most of `voters` rank first
    """
    k: int = Field(default=1, ge=1, json_schema_extra=OPTION)
    """number of candidates to keep per prompt, for top-k and softmax"""
    floor: float | None = None
    """minimum reward of a kept candidate"""
    softmax_temperature: float = Field(default=1.0, gt=0)
    """temperature of softmax, in the unit of the rewards; a lower value keeps high rewards more often, a very high one keeps
    all alike"""
    voters: tuple[str, ...] = ()
    """majority: names in `scores` that vote, one for each judge of an ensemble"""
    distinct: Annotated[float, Field(gt=0, le=1)] | None = None
    """keep only the best of similar candidates: threshold of the Indel similarity of the judged texts (without stripped
    reasoning), where 1 means equal texts"""
    choice_seed: int = 0
    """random seed of softmax; what is kept of a prompt depends on it and on the prompt's candidates, and not on the order of
    the rows"""
    fields: Fields = True


class GroupSettings(Settings):
    """Which candidates are compared with each other."""

    per: Literal["row", "prompt"] = Field(default="prompt", json_schema_extra=OPTION)
    """compare candidates of equal prompts, in whichever rows they are, or only candidates of the same row"""
    spill: str | None = None
    """folder or address for the files by which --per prompt brings equal prompts together; every node must reach it, and
    they are deleted at the end; default: inside the output folder"""


class ChooseSettings(ChoiceOfCandidates, GroupSettings, OutputSettings, FoldersSettings):
    """All settings of `choose`."""


class PairsOf(StrEnum):
    """Which candidates of a prompt make pairs."""

    BEST_WORST = "best-worst"
    BEST_RANDOM = "best-random"
    CONSECUTIVE = "consecutive"
    ALL = "all"


class LabelsOfCorpus(StrEnum):
    """How pairs are filtered by the corpus' labels, in rows whose responses are called `chosen` and `rejected`."""

    IGNORE = "ignore"
    AGREE = "agree"
    REQUIRE = "require"


class PairingSettings(Settings):
    """Which pairs are made. Two candidates with equal rewards or equal judged texts never make a pair."""

    pairs: PairsOf = Field(default=PairsOf.BEST_WORST, json_schema_extra=OPTION)
    """best with worst, best with a random one, each with the next by reward, or all pairs"""
    min_margin: float = Field(default=0.0, ge=0, json_schema_extra=OPTION)
    """minimum difference of the rewards in a pair, in their unit; with 0 any two different rewards make one, however near
    they are"""
    length_balanced: bool = False
    """best-worst and best-random: pair the best with the candidate nearest to it in length, of those that reach --min-margin
    """
    labels: LabelsOfCorpus = LabelsOfCorpus.IGNORE
    """rows with responses called chosen and rejected. ignore: also make pairs that contradict the label, and count them;
    agree: drop pairs that contradict it; require: keep only pairs that a label confirms"""
    pair_seed: int = 0
    """random seed of best-random; the pair of a prompt depends on it and on the prompt's candidates, and not on the order of
    the rows"""


class PairSettings(PairingSettings, GroupSettings, TrainerSettings, OutputSettings, FoldersSettings):
    """All settings of `pairs`."""

    trainer: str = Field(default="trl", json_schema_extra=OPTION)
    """trainer whose file format is written"""


class ExportSettings(TrainerSettings, OutputSettings, FoldersSettings):
    """All settings of `export`."""

    trainer: str = Field(json_schema_extra=OPTION)
    """trainer whose file format is written"""
    threshold: float | None = Field(default=None, json_schema_extra=OPTION)
    """KTO: minimum reward of a desirable response; others that have a reward are undesirable, and those without one aren't
    exported"""
