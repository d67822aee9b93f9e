"""Frozen, validated settings of the core. They travel to workers as they are, and are written beside the results."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from actors.records import Reasoning
from actors.settings.base import Settings
from actors.settings.rubric import RubricSettings


class Dtype(StrEnum):
    """The precision a model runs in; `auto` is the one its checkpoint names."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class TooLong(StrEnum):
    """What becomes of a conversation longer than the model takes."""

    REJECT = "reject"
    TRIM_TURNS = "trim-turns"


class ControlTokens(StrEnum):
    """What becomes of a template's control tokens inside somebody's text."""

    REJECT = "reject"
    NEUTRALISE = "neutralise"


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_Text = Annotated[str, Field(pattern=r"\S")]


class ReadSettings(Settings):
    """How a head's outputs are read, where its authors do it in more than one way. Each is for some families only."""

    all_outputs: bool = Field(
        default=False, description="attributes: the four outputs that were never trained in `scores` too"
    )
    steerlm_rounding: bool = Field(
        default=False, description="attributes: whole numbers from 0 to 4, as SteerLM's labels are; for its training only"
    )
    principles: dict[_Name, _Text] | None = Field(
        default=None,
        min_length=1,
        description="what responses are judged by, each a score of its name where a family has one; without, the rows' own",
    )
    principle_reward: Literal["mean", "min"] | None = Field(
        default=None,
        description="principle, genrm-principle: what several principles come to; mean if not given, and no --weights",
    )

    rating: Literal["pairwise", "pointwise", "binary"] = Field(
        default="pairwise", description="r3: two responses against each other, one from 1 to 5, or one as true or false"
    )
    diverging_lambda: float = Field(
        default=1.0, ge=0, description="distributions: how much spreads count in `scores.diverging`, of two responses"
    )

    @field_validator("principles")
    @classmethod
    def _differ(cls, principles: dict[str, str] | None) -> dict[str, str] | None:
        if principles is not None and len({name.lower() for name in principles}) < len(principles):
            raise ValueError("two names differ in upper and lower case alone, which SQL doesn't tell apart")
        return principles


AS_PUBLISHED = ReadSettings()


class Pairs(StrEnum):
    """Which of several responses a judge of two compares."""

    CIRCULAR = "circular"
    ALL = "all"
    ACTIVE = "active"


class Aggregate(StrEnum):
    """What a response's judgements come to."""

    MEAN = "mean"
    WIN_RATE = "win-rate"
    BRADLEY_TERRY = "bradley-terry"


class JudgeSettings(Settings):
    """How a judge that writes is asked, and what its judgements become. What isn't given is as its card has it."""

    votes: Annotated[int, Field(ge=1, le=128)] | None = Field(
        default=None,
        description="judges: how often each question is put; of two responses half of them in swapped order. More than one "
        "each way is sampled, at temperature 0.6 and top-p 0.95 unless its card says how",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="judges: 0 takes the likeliest token"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None, description="judges: draw from this share")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="judges: longest answer in tokens, reasoning included; the card's, or half of the context"
    )
    seed: int = Field(default=0, description="judges: another one draws other votes, and another order of lists")
    pairs: Pairs = Field(
        default=Pairs.CIRCULAR,
        description="judges of two, of a row with more: each with the next, all with all, or a knock-out that ends when the "
        "winner is settled",
    )
    aggregate: Aggregate | None = Field(
        default=None, description="judges: the mean of the judgements, the share of comparisons won, or Bradley-Terry's"
    )
    reask: int = Field(default=2, ge=0, le=16, description="judges: how often again after a text without a verdict")
    trace: bool = Field(default=False, description="judges: keep what they wrote in a column `trace`, failures too")
    rubric: RubricSettings | None = Field(
        default=None, description="judge by a prompt and a reader of your own, with any chat model: a YAML file"
    )


AS_ITS_CARD = JudgeSettings()


class ModelSettings(Settings):
    """Which reward model, and how its numbers become one reward."""

    model: str = Field(description="a local folder, a hub id, or one of the built-in tiny-* models")
    revision: str | None = Field(default=None, description="branch, tag or commit of a hub model")
    family: str | None = Field(
        default=None, description="how it is asked and read, where its id and its config.json don't tell (`assay models`)"
    )
    dtype: Dtype = Field(default=Dtype.AUTO, description="precision to run in")
    weights: dict[str, float] | None = Field(
        default=None, description="weights of the named outputs in the reward, instead of the model card's"
    )
    adapter: str | None = Field(default=None, description="folder of a LoRA adapter, for judges")
    read: ReadSettings = AS_PUBLISHED
    judge: JudgeSettings = AS_ITS_CARD


class RenderSettings(Settings):
    """How a conversation becomes a prompt."""

    too_long: TooLong = Field(default=TooLong.REJECT, description="reject, or drop the oldest whole turns")
    control_tokens: ControlTokens = Field(
        default=ControlTokens.REJECT, description="reject text that holds a control token, or break the token up"
    )
    reasoning: Reasoning | None = Field(
        default=None,
        description="responses that begin with reasoning (<think>...</think> or the like, reasoning_content): reject them, "
        "strip it and judge the final answer, or keep it; if not given as the model's authors do, and where they don't say "
        "a corpus that has any is refused",
    )
    max_model_len: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="longest prompt in tokens, if shorter than the model's own limit"
    )


class EngineSettings(Settings):
    """How an engine is started."""

    engine: Literal["vllm", "fake"] = Field(default="vllm", description="fake: made-up numbers, to try a pipeline out")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs of one node that share a layer")
    pipeline_parallel: int = Field(default=1, ge=1, description="groups of GPUs that share the layers out")
    request_timeout_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="longest time in which neither a prompt nor any given to the engine before it is answered; 600 for a "
        "head, 3600 for a judge",
    )
    max_in_flight: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="prompts given to the engine at a time; as many as it works on if not given"
    )
    autoscaled: bool = Field(
        default=False, description="the cluster gets more nodes when they are asked for: wait for GPUs that it hasn't yet"
    )
    placement_timeout_s: float = Field(
        default=1800.0,
        gt=0,
        description="longest wait for the GPUs of the first engine, if others have them or they are to come",
    )
    engine_args: dict[str, Any] = Field(default_factory=dict, description="passed on to vLLM's AsyncEngineArgs")

    @property
    def is_vllm(self) -> bool:
        """Whether the numbers are a model's, and vLLM is imported for them."""
        return self.engine == "vllm"


class PolicySettings(Settings):
    """Which model answers, and how. An endpoint is asked for what a checkpoint's engine would be."""

    policy: str | None = Field(
        default=None,
        description="the model that answers: a folder, a hub id, tiny-policy, or the URL of an OpenAI-compatible endpoint "
        "(http://host:8000/v1); without one, the rows' own responses are the candidates",
    )
    policy_name: str | None = Field(default=None, description="what the endpoint calls the model; its only one if not given")
    policy_revision: str | None = Field(default=None, description="branch, tag or commit of a hub model")
    policy_dtype: Dtype = Field(default=Dtype.AUTO, description="precision of the policy")
    policy_adapter: str | None = Field(default=None, description="folder of a LoRA adapter for the policy")
    policy_system: str | None = Field(
        default=None, min_length=1, description="system prompt for conversations that begin without one"
    )
    policy_temperature: float = Field(default=1.0, ge=0, le=2, description="how candidates are drawn")
    policy_top_p: float = Field(default=1.0, gt=0, le=1, description="draw from this share of the probability")
    policy_max_tokens: int = Field(default=1024, ge=1, description="longest candidate; one that goes on isn't judged")
    policy_stop: tuple[str, ...] = Field(default=(), description="texts that end a candidate, and aren't part of it")
    policy_seed: int = Field(default=0, description="another one draws other candidates")

    @property
    def is_endpoint(self) -> bool:
        """Whether the policy is asked over HTTP."""
        return self.policy is not None and self.policy.startswith(("http://", "https://"))

    def recorded(self) -> dict[str, Any]:
        """What of these decides what candidates are, for a run's identity."""
        fields = self.model_dump(mode="json", exclude_none=True)
        return {name.removeprefix("policy_"): value for name, value in fields.items() if name != "policy_dtype"}


class PolicyEngineSettings(Settings):
    """How the policy's engines are started."""

    policy_replicas: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="engines of the policy; as many as the GPUs carry that the judge leaves, or one"
    )
    policy_tensor_parallel: int = Field(default=1, ge=1, description="GPUs of one node that share a layer of the policy")
    policy_pipeline_parallel: int = Field(default=1, ge=1, description="groups of GPUs that share the policy's layers out")
    policy_max_in_flight: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="candidates that are drawn at a time, by an engine or from the endpoint; as many as the engine works on "
        "if not given, 512 from an endpoint",
    )
    endpoint_patience_s: float = Field(
        default=300.0,
        gt=0,
        description="seconds to wait for an endpoint that answers nothing (no connection, 429, 5xx, time-outs) until the "
        "run stops; the same command then draws what is missing",
    )
    policy_engine_args: dict[str, Any] = Field(default_factory=dict, description="passed on to vLLM's AsyncEngineArgs")
