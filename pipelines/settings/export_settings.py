"""What is told to the commands that make something of a scored corpus: choices, pairs and exports."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import Settings


class FoldersSettings(Settings):
    """Where they read and write."""

    scored: str = Field(description="folder of a scored corpus: of `sample`, `score` or `ensemble`")
    output: str = Field(description="folder for what is made of it")


class OutputSettings(Settings):
    """What they look at, and how they deal with the folders."""

    where: str | None = Field(
        default=None, description="only responses that meet this, in SQL, e.g. 'scores.correctness > 2'; as `filter --keep`"
    )
    partial: bool = Field(default=False, description="of a run that isn't complete")
    overwrite: bool = Field(default=False, description="delete an earlier result in the output folder first")


class TrainerSettings(Settings):
    """What is written for trainers."""

    fake_ok: bool = Field(default=False, description="also of numbers that --engine fake has made up")


class Choose(StrEnum):
    """Which candidates of a prompt are kept."""

    BEST = "best"
    TOP_K = "top-k"
    ALL = "all"
    SOFTMAX = "softmax"
    MAJORITY = "majority"


class ChoiceOfCandidates(Settings):
    """Which candidates of each prompt are kept. Those that are rejected, failed or cut off never are."""

    keep: Choose | None = Field(
        default=None,
        description="best: the highest reward; top-k; all (that reach --floor); softmax: drawn by exp(reward / "
        "--softmax-temperature); majority: the one that most of --voters put first",
    )
    k: int = Field(default=1, ge=1, description="how many, for top-k and softmax")
    floor: float | None = Field(default=None, description="only those with at least this reward")
    softmax_temperature: float = Field(default=1.0, gt=0, description="lower keeps the better ones more often")
    voters: tuple[str, ...] = Field(default=(), description="names in `scores`, for majority: of judges in an ensemble")
    distinct: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="of candidates that are alike only the best one: 1 means equal texts, 0.9 nearly so (Indel similarity); "
        "texts as they were judged, without reasoning that was stripped",
    )
    choice_seed: int = Field(default=0, description="softmax: another one draws others")


class GroupSettings(Settings):
    """What candidates are compared with each other."""

    per: Literal["row", "prompt"] = Field(
        default="prompt", description="candidates of equal prompts, wherever their rows are, or those of one row"
    )


class ChooseSettings(ChoiceOfCandidates, GroupSettings, OutputSettings, FoldersSettings):
    """Everything that `choose` is told."""


class PairsOf(StrEnum):
    """Which candidates of a prompt make pairs."""

    BEST_WORST = "best-worst"
    BEST_RANDOM = "best-random"
    CONSECUTIVE = "consecutive"
    ALL = "all"


class LabelsOfCorpus(StrEnum):
    """What the corpus' own labels, where its rows have responses that are `chosen` and `rejected`, are to pairs."""

    IGNORE = "ignore"
    AGREE = "agree"
    REQUIRE = "require"


class PairingSettings(Settings):
    """Which pairs are made. Equal rewards, and texts that are equal as they were judged, never are one."""

    pairs: PairsOf = Field(
        default=PairsOf.BEST_WORST, description="the best with the worst, with a random one, each with the next, or all"
    )
    min_margin: float = Field(default=0.0, ge=0, description="only pairs whose rewards differ by at least this")
    length_balanced: bool = Field(
        default=False, description="best-worst and best-random: of those that differ enough, the one nearest in length"
    )
    labels: LabelsOfCorpus = Field(
        default=LabelsOfCorpus.IGNORE,
        description="of rows with responses that are chosen and rejected: make pairs of the other way round, too, and count "
        "them; agree: leave these out; require: only pairs that a label agrees with",
    )
    pair_seed: int = Field(default=0, description="another one draws other random ones")


class PairSettings(PairingSettings, GroupSettings, TrainerSettings, OutputSettings, FoldersSettings):
    """Everything that `pairs` is told."""

    trainer: str = Field(default="trl", description="whose format")


class ExportSettings(PairingSettings, GroupSettings, TrainerSettings, OutputSettings, FoldersSettings):
    """Everything that `export` is told."""

    trainer: str = Field(description="whose format")
    threshold: float | None = Field(default=None, description="KTO: a response with this reward or more is desirable")
