"""Settings of `plan`. Imports nothing heavy."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from actors.capacity.cards import NO_GPU, find_card
from actors.settings.base import OPTION, Settings
from actors.settings.endpoint import HERE
from actors.settings.replica import Dtype, EngineSettings, ModelSettings, RenderSettings
from pipelines.settings.run_settings import CorpusSettings, Prefix, ScoreSettings, WorkSettings


def _check_gpu(name: str) -> str:
    return name if name == NO_GPU else find_card(name).name  # as `h100` is one, too


class CardSettings(Settings):
    """The GPUs that an engine is laid out on."""

    gpu: Annotated[str, AfterValidator(_check_gpu)] = Field(default="H100", json_schema_extra=OPTION)
    """a GPU's name (H200, B200, L40S, MI300X), or its memory, such as 96GB; none: engines run on CPUs"""
    precision: Literal["bfloat16", "fp8", "nvfp4", "int4"] | None = None
    """precision of the weights in GPU memory; default: the checkpoint's, or the one of `dtype`"""
    gpus_per_node: Annotated[int, Field(ge=1)] | None = None
    """number of GPUs in a node; default: 4 of GB200 and GB300, 8 of others"""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """share of a GPU's memory that vLLM takes"""
    context: int | None = Field(default=None, ge=1)
    """maximum tokens of a prompt and its answer together; default: the context length on the model card"""
    tensor_parallel: int | None = Field(default=None, ge=1, json_schema_extra=OPTION)
    """check this layout: number of GPUs that each layer is split over"""
    pipeline_parallel: int = Field(default=1, ge=1)
    """check this layout: number of GPU groups that the layers are divided among"""


class LayoutSettings(CardSettings):
    """Settings of `plan` without a corpus: a model and the GPUs that it is laid out on."""

    model: str | None = None
    """local folder, or hub id of a model that `assay models` lists"""
    dtype: Dtype = Dtype.AUTO
    """precision that the model runs in; auto: the checkpoint's"""


class SamplingSettings(Settings):
    """How much of the corpus is read for the estimate."""

    sample_rows: int = Field(default=2000, ge=16)
    """approximate number of rows to tokenise, sampled at random; of four times as many the interval of the estimate is half
    as wide"""
    sample_seed: int = 0
    """random seed of the row sample"""
    rows: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """number of rows of the corpus that is planned, where INPUTS are a sample of it; default: INPUTS are all"""
    full: bool = Field(default=False, json_schema_extra=OPTION)
    """tokenise every row: exact, and takes as long as the reading and rendering of the run itself"""


class BillSettings(Settings):
    """The hardware of the run, its price, and its throughput."""

    gpus: Annotated[int, Field(ge=1)] | None = Field(default=None, json_schema_extra=OPTION)
    """number of GPUs in the cluster; default: those of the run's engines (--replicas), or of one"""
    gpu_price: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """price of one GPU for one hour, in any currency"""
    tokens_per_s: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """prompt tokens per second of one engine, instead of published figures"""
    written_per_s: Annotated[float, Field(gt=0)] | None = None
    """judges: generated tokens per second of one engine, summed over its concurrent prompts"""
    answer_tokens: Annotated[float, Field(gt=0)] | None = None
    """judges: mean number of generated tokens per prompt; default: half of the maximum"""
    like: str | None = Field(default=None, json_schema_extra=OPTION)
    """folder of an earlier run of this model, whose throughput and answer length are used"""


class PlanSettings(Settings):
    """All settings of `plan`: those of the run that decide its cost, and those of the estimate."""

    corpus: CorpusSettings
    model: ModelSettings
    render: RenderSettings = RenderSettings()
    prefix: Prefix = ""
    work: WorkSettings = WorkSettings()
    card: CardSettings = CardSettings()
    look: SamplingSettings = SamplingSettings()
    bill: BillSettings = BillSettings()

    def as_score(self) -> ScoreSettings:
        # `output` is a placeholder: an estimate writes no folder.
        return ScoreSettings(
            corpus=self.corpus,
            output=".",
            model=self.model,
            render=self.render,
            prefix=self.prefix,
            engine=EngineSettings()
            if self.model.endpoint != HERE
            else EngineSettings(
                tensor_parallel=self.card.tensor_parallel or 1, pipeline_parallel=self.card.pipeline_parallel
            ),
            work=self.work,
        )
