"""Frozen, validated settings of the core. They travel to workers as they are, and are written beside the results."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from actors.records import Reasoning
from actors.settings.base import OPTION, Settings
from actors.settings.endpoint import HERE, ModelEndpointSettings, check_engine
from actors.settings.rubric import RubricSettings
from actors.settings.verifier import AS_GIVEN, VerifierSettings, is_verifier, verifiers


class Dtype(StrEnum):
    """The precision a model runs in; `auto` is the one its checkpoint names."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class TooLong(StrEnum):
    """What becomes of a conversation longer than the model takes.

    `cut-left` cuts tokens, so a prompt may begin in the middle of a turn.
    """

    REJECT = "reject"
    TRIM_TURNS = "trim-turns"
    CUT_LEFT = "cut-left"


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_Text = Annotated[str, Field(pattern=r"\S")]


def _template_text(value: Any) -> Any:
    # Every template has a brace, and hardly a path does.
    try:
        return Path(value).read_text(encoding="utf-8") if isinstance(value, str) and "{" not in value else value
    except (OSError, UnicodeError) as error:
        name = value.encode("utf-8", "backslashreplace").decode()  # pydantic takes no message that isn't UTF-8
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8 text"
        raise ValueError(f"the chat template {name} can't be read: {reason}") from error


ChatTemplateText = Annotated[str, BeforeValidator(_template_text)]


class ReadSettings(Settings):
    """How a head's outputs are read, where its authors do it in more than one way. Each is for some families only."""

    all_outputs: bool = False
    """attributes: include the four untrained outputs in `scores`"""
    steerlm_rounding: bool = False
    """attributes: round outputs to whole numbers from 0 to 4, as in SteerLM's labels; for SteerLM training only"""
    principles: dict[_Name, _Text] | None = Field(default=None, min_length=1)
    """principles to judge responses by; a family with one score per principle names the score NAME; default: the principles
    of each row"""
    principle_reward: Literal["mean", "min"] | None = None
    """principle, genrm-principle: how the scores of several principles become the reward; default: mean, if there are no
    `weights`"""

    rating: Literal["pairwise", "pointwise", "binary"] = "pairwise"
    """r3: compare two responses, rate one from 1 to 5, or judge one as true or false"""
    diverging_lambda: float = Field(default=1.0, ge=0)
    """distributions: weight of the two spreads in `scores.diverging`, which compares two responses"""

    @field_validator("principles")
    @classmethod
    def _differ(cls, principles: dict[str, str] | None) -> dict[str, str] | None:
        if principles is not None and len({name.lower() for name in principles}) < len(principles):
            raise ValueError("two names differ in upper and lower case alone, which SQL doesn't tell apart")
        return principles


AS_PUBLISHED = ReadSettings()


class Pairs(StrEnum):
    """Which of several responses a judge of two compares.

    Of n responses: n pairs in a circle, n(n - 1)/2 for all, and about n - 1 in a knock-out, in log2 n rounds.
    """

    CIRCULAR = "circular"
    ALL = "all"
    ACTIVE = "active"


class Aggregate(StrEnum):
    """What a response's judgements come to.

    A mean is of what each judgement makes of it, a grade or a win; the two others count comparisons, and mean something
    within a row alone.
    """

    MEAN = "mean"
    WIN_RATE = "win-rate"
    BRADLEY_TERRY = "bradley-terry"


class JudgeSettings(Settings):
    """How a judge that writes is asked, and what its judgements become. What isn't given is as its card has it."""

    votes: Annotated[int, Field(ge=1, le=128)] | None = Field(default=None, json_schema_extra=OPTION)
    """judges: number of judgements per question; of two responses, half are in swapped order. Several judgements in one
    order are sampled, at temperature 0.6 and top-p 0.95 unless the model card gives others"""
    stop: bool = Field(default=False, json_schema_extra=OPTION)
    """judges: end a question's votes as soon as they settle its verdict"""
    stop_error: float = Field(default=0.01, gt=0, lt=0.5)
    """judges with `stop`: the highest probability that all votes would have come to another verdict, which is the better of
    two responses, or the side of `stop_at`"""
    stop_at: float | None = None
    """judges with `stop`, of one response: the reward at which your filter cuts; default: 0.5, for judges that answer yes
    or no"""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """judges: sampling temperature; 0: always the most likely token"""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """judges: sample from this share of the probability"""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """judges: maximum tokens of an answer, reasoning included; default: the model card's, or half of the context"""
    seed: int = 0
    """judges: seed of the sampled votes and of the order of lists"""
    pairs: Pairs | None = None
    """judges of two responses, for rows with more: compare each with the next, all with all (n(n - 1)/2 comparisons of n
    responses), or in a knock-out that ends when the winner is certain; default: all where the reward is who won, circular
    where it is a grade"""
    aggregate: Aggregate | None = None
    """judges: reward from several judgements: their mean, the share of comparisons won, or the Bradley-Terry strength;
    default: the model card's"""
    reask: int = Field(default=2, ge=0, le=16)
    """judges: maximum number of retries after an answer without a verdict"""
    trace: bool = False
    """judges: keep every answer, also those without a verdict, in a column `trace`"""
    criteria_calls: Literal["all", "each"] = Field(default="all", json_schema_extra=OPTION)
    """criteria: judge a response by all criteria in one prompt, or by each in one of its own"""
    rubric: RubricSettings | None = Field(default=None, json_schema_extra=OPTION)
    """YAML file with your own judge prompt and how its answer is read, for any chat model; or preset:NAME, a published
    judge's (`assay models` lists them)"""


AS_ITS_CARD = JudgeSettings()


class ModelSettings(Settings):
    """Which reward model, and how its numbers become one reward."""

    bare_field: ClassVar = "model"

    model: str = Field(json_schema_extra=OPTION)
    """a local folder, a hub id, or one of the built-in tiny-* models"""
    revision: str | None = None
    """branch, tag or commit of a hub model"""
    family: str | None = Field(default=None, json_schema_extra=OPTION)
    """how the model is prompted and read, if its id and config.json don't tell (`assay models`)"""
    dtype: Dtype = Dtype.AUTO
    """precision that the model runs in; auto: the checkpoint's"""
    weights: dict[str, float] | None = None
    """weights of the named outputs in the reward; default: the model card's"""
    adapter: str | None = None
    """folder of a LoRA adapter, for judges"""
    chat_template: ChatTemplateText | None = Field(default=None, json_schema_extra=OPTION)
    """Jinja file with the chat template that the model was trained with, in place of the checkpoint's"""
    read: ReadSettings = AS_PUBLISHED
    judge: JudgeSettings = AS_ITS_CARD
    verifier: VerifierSettings = AS_GIVEN
    endpoint: ModelEndpointSettings = HERE


class RenderSettings(Settings):
    """How a conversation becomes a prompt."""

    too_long: TooLong = TooLong.REJECT
    """prompts longer than the model takes: reject them, drop the oldest whole turns, or, of reward heads, cut tokens off at
    the beginning, as some benchmarks' codes do"""
    reasoning: Reasoning | None = None
    """responses with reasoning (<think>...</think>, reasoning_content or the like): reject them, strip it and judge the
    final answer, or keep it; default: what the model's authors do; if they don't say, a corpus with reasoning is refused"""
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    """maximum tokens of a prompt, up to the model's own limit, which is the default"""
    second_bos: bool = False
    """put a second BOS before the template's, as codes do that tokenize a template's text with special tokens; only to
    reproduce published figures"""
    system: Annotated[str, Field(pattern=r"\S")] | None = None
    """system turn for conversations that begin with none, as some authors' codes put one there"""

    def recorded(self) -> dict[str, Any]:
        """What of these a run's identity holds beside the handling of reasoning, which depends on the model, too."""
        return self.model_dump(mode="json", exclude={"reasoning"})


_ENGINE_ARGS = (
    "argument of vLLM's AsyncEngineArgs (https://docs.vllm.ai, page vllm.engine.arg_utils); a number or a list is written "
    "as in YAML"
)


class EngineSettings(Settings):
    """How an engine is started."""

    bare_field: ClassVar = "engine"

    engine: Literal["vllm", "fake", "none"] = Field(default="vllm", json_schema_extra=OPTION)
    """fake: made-up numbers, for trying a pipeline without a model; none: of verifiers and endpoints"""
    tensor_parallel: int = Field(default=1, ge=1, json_schema_extra=OPTION)
    """number of GPUs of one node that share each layer"""
    pipeline_parallel: int = Field(default=1, ge=1)
    """number of pipeline stages, each with --tensor-parallel GPUs"""
    request_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """seconds without an answer to a prompt, or to any prompt before it, until the prompt fails; default: 600 for reward
    heads, 3600 for judges"""
    max_in_flight: Annotated[int, Field(ge=1)] | None = None
    """maximum number of prompts in the engine at a time; default: as many as it processes at once"""
    autoscaled: bool = False
    """the cluster adds nodes on demand: wait for GPUs that it doesn't have yet"""
    placement_timeout_s: float = Field(default=1800.0, gt=0)
    """maximum seconds to wait for the GPUs of the first engine, if others hold them or nodes are still starting"""
    deterministic: bool = False
    """the same bytes for a prompt whatever other prompts are computed beside it: on GPUs with vLLM's batch-invariant
    kernels, on CPUs one prompt at a time; slower"""
    engine_args: dict[str, Any] = Field(default_factory=dict, description=_ENGINE_ARGS)

    @property
    def is_vllm(self) -> bool:
        """Whether the numbers are a model's, and vLLM is imported for them."""
        return self.engine == "vllm"


def fit_engine(settings: Any) -> Any:
    """The validated settings of a model and its engine, which is none for a verifier or an endpoint.

    Raises `ValueError` for others, and for settings that an endpoint doesn't take.
    """
    named = settings if isinstance(settings.model, str) else settings.model
    model, engine = named.model, settings.engine
    if named.endpoint != HERE:
        pool = getattr(settings, "work", None) or getattr(settings, "pool", None)
        check_engine(engine, pool, settings.render)
    if engine.engine == "vllm" and (named.endpoint != HERE or is_verifier(model)):
        # Frozen for all others; this is the validator that completes them.
        object.__setattr__(settings, "engine", engine.model_copy(update={"engine": "none"}))
    if engine.engine == "none" and named.endpoint == HERE and not is_verifier(model):
        raise ValueError(f"--engine none is for verifiers ({', '.join(verifiers())}), and {model} is none of these")
    return settings


class PolicySettings(Settings):
    """Which model answers, and how. An endpoint is asked for what a checkpoint's engine would be."""

    bare_field: ClassVar = "policy"

    policy: str
    """model that answers prompts: a folder, a hub id, tiny-policy, or the URL of an OpenAI-compatible endpoint
    (http://host:8000/v1)"""
    policy_name: str | None = None
    """name of the model at the endpoint; default: its only model"""
    policy_revision: str | None = None
    """branch, tag or commit of a hub model"""
    policy_dtype: Dtype = Dtype.AUTO
    """precision that the policy runs in; auto: the checkpoint's"""
    policy_adapter: str | None = None
    """folder of a LoRA adapter for the policy"""
    policy_chat_template: ChatTemplateText | None = None
    """Jinja file with the policy's chat template, in place of the checkpoint's"""
    policy_system: str | None = Field(default=None, min_length=1)
    """system prompt for conversations without one"""
    policy_temperature: float = Field(default=1.0, ge=0, le=2)
    """sampling temperature of candidates"""
    policy_top_p: float = Field(default=1.0, gt=0, le=1)
    """sample from this share of the probability"""
    policy_max_tokens: int = Field(default=1024, ge=1)
    """maximum tokens of a candidate; a longer one is cut off and not judged"""
    policy_stop: tuple[str, ...] = ()
    """texts that end a candidate, and aren't part of it"""
    policy_seed: int = 0
    """seed of the candidates"""

    @property
    def is_endpoint(self) -> bool:
        return self.policy.startswith(("http://", "https://"))

    def recorded(self) -> dict[str, Any]:
        """What of these decides what candidates are, for a run's identity."""
        fields = self.model_dump(mode="json", exclude_none=True, exclude={"policy_dtype", "policy_chat_template"})
        return {name.removeprefix("policy_"): value for name, value in fields.items()}


class PolicyEngineSettings(Settings):
    """How the policy's engines are started."""

    policy_replicas: Annotated[int, Field(ge=1)] | None = None
    """number of engines of the policy; default: as many as fit on the GPUs that the judge leaves, or one"""
    policy_tensor_parallel: int = Field(default=1, ge=1)
    """number of GPUs of one node that share each layer of the policy"""
    policy_pipeline_parallel: int = Field(default=1, ge=1)
    """number of pipeline stages of the policy, each with `policy_tensor_parallel` GPUs"""
    policy_max_in_flight: Annotated[int, Field(ge=1)] | None = None
    """maximum number of candidates generated at a time, by an engine or the endpoint; default: as many as the engine
    processes at once, 512 for an endpoint"""
    endpoint_patience_s: float = Field(default=300.0, gt=0)
    """seconds without any answer from an endpoint (no connection, 429, 5xx, time-outs) until the run stops; the same command
    then generates what is missing"""
    policy_engine_args: dict[str, Any] = Field(default_factory=dict, description=_ENGINE_ARGS)
