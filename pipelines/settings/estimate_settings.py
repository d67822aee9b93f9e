"""What `plan` is told. Imports nothing heavy."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import Settings
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from pipelines.settings.run_settings import CorpusSettings, Prefix, ScoreSettings, WorkSettings


class CardSettings(Settings):
    """The cards that an engine is laid out on."""

    gpu: Literal["80GB", "141GB"] = Field(default="80GB", description="the card: 80GB as A100 and H100, 141GB as H200")
    precision: Literal["bfloat16", "fp8"] = Field(default="bfloat16", description="how weights are held")
    gpus_per_node: int = Field(default=8, ge=1, description="GPUs that share a node")
    context: int | None = Field(
        default=None, ge=1, description="longest prompt with its answer, in tokens; what its card says if not given"
    )
    tensor_parallel: int | None = Field(default=None, ge=1, description="check this layout: GPUs that share a layer")
    pipeline_parallel: int = Field(default=1, ge=1, description="and groups of them that share the layers out")


class ModelName(Settings):
    """Whose layout it is. A class of its own, so that it comes first."""

    model: str | None = Field(default=None, description="a folder, or the hub id of a model that `assay models` lists")


class LayoutSettings(CardSettings, ModelName):
    """What a layout is asked for."""


class LookSettings(Settings):
    """How much of a corpus is looked at."""

    sample_rows: int = Field(default=2000, ge=16, description="about how many rows to tokenise, drawn at random")
    sample_seed: int = Field(default=0, description="another one draws other rows")
    full: bool = Field(
        default=False, description="tokenise every row: exact, and as long as the run itself reads and renders"
    )


class BillSettings(Settings):
    """What the run is to be done with, and how fast that is."""

    gpus: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="GPUs of the cluster; as many as an engine takes if not given"
    )
    gpu_price: Annotated[float, Field(gt=0)] | None = Field(default=None, description="what a GPU costs for an hour")
    tokens_per_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="prompt tokens that an engine reads in a second, instead of published figures"
    )
    written_per_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="judges: tokens that an engine writes in a second, for all its prompts together"
    )
    answer_tokens: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="judges: tokens that are written in answer to a prompt, on average; half of the most if not given",
    )
    like: str | None = Field(
        default=None, description="folder of a run by this model: as fast as it was, and with answers as long"
    )


class PlanSettings(Settings):
    """Everything that `plan` is told of a run."""

    corpus: CorpusSettings
    model: ModelSettings
    render: RenderSettings = RenderSettings()
    prefix: Prefix = ""
    part_rows: Annotated[int, Field(ge=1)] | None = Field(default=None, description="as for `score`")
    card: CardSettings = CardSettings()
    look: LookSettings = LookSettings()
    bill: BillSettings = BillSettings()

    def as_score(self) -> ScoreSettings:
        """The run that is planned. Where to is nobody's matter yet."""
        return ScoreSettings(
            corpus=self.corpus,
            output=".",
            model=self.model,
            render=self.render,
            prefix=self.prefix,
            engine=EngineSettings(tensor_parallel=self.card.tensor_parallel or 1),
            work=WorkSettings(part_rows=self.part_rows),
        )
