"""Settings of an endpoint, the same for `assay serve`, for serve.yaml and for Python. Imports nothing heavy."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from actors.settings.base import OPTION, Settings
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings, fit_engine
from actors.text.model_names import short_names
from pipelines.settings.run_settings import Store


class ScalingSettings(Settings):
    """The number of a model's replicas: fixed where both bounds are equal, otherwise scaled by load with Ray Serve."""

    min_replicas: int = Field(default=1, ge=0)
    """fewest replicas; with 0, none runs without requests, and the first request waits for one"""
    max_replicas: int = Field(default=1, ge=1, json_schema_extra=OPTION)
    """most replicas; they are added when a target below is exceeded"""
    target_requests: float = Field(default=64.0, gt=0)
    """requests under way per replica"""
    target_tokens: float = Field(default=262144.0, gt=0)
    """prompt tokens under way per replica"""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    """seconds for which the load must exceed a target before a replica is added"""
    downscale_delay_s: float = Field(default=300.0, ge=0)
    """seconds for which the load must be below the targets before a replica is removed"""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than --max-replicas {self.max_replicas}: "
                f"give --max-replicas {self.min_replicas} or more"
            )
        return self


class LimitSettings(Settings):
    """Bounds on one request, and on all requests together. A request beyond them is refused."""

    max_requests: int = Field(default=1024, ge=1)
    """most requests under way in one replica of a model, or of several models in one router; more get 429, but as many again
    wait in /verify"""
    max_body_bytes: int = Field(default=16 * 2**20, ge=1)
    """longest body of a request in bytes; a longer one gets 413"""
    # Python's objects take up to 25 times the bytes of their JSON: by bytes alone a body could take 400 MB.
    max_values: int = Field(default=2**17, ge=1)
    """most JSON values in one body, token ids included; more get 413 before parsing"""
    max_items: int = Field(default=1024, ge=1)
    """most conversations, prompts or responses in one request; more get 413"""
    max_prompts: int = Field(default=16384, ge=1)
    """most prompts of one request, that is responses x principles x orders x votes; more get 413"""
    max_characters: int = Field(default=2**26, ge=1)
    """most characters in all prompts of one request, its conversation counted in each; more get 413"""
    max_characters_under_way: int = Field(default=2**28, ge=1)
    """most characters in the prompts of all requests to a model that are under way there; more get 429"""
    num_rollouts_per_prompt: int = Field(default=1, ge=1)
    """rollouts of a prompt that /verify gathers for a judge that compares them, as NeMo Gym's setting of this name"""
    cohort_timeout_s: float = Field(default=600.0, gt=0)
    """seconds until the rollouts of a prompt that wait in /verify for others get no reward"""
    # Below HAProxy's 60 s of silence, so that a slow client is told 408.
    body_timeout_s: float = Field(default=30.0, gt=0)
    """seconds in which a client must send its body; later gets 408"""
    # At most 600: HAProxy, which starts anew when replicas come or go, ends older connections after 660 s.
    answer_timeout_s: float = Field(default=600.0, gt=0, le=600)
    """seconds until a request without an answer gets 504; a client can set less with X-Timeout-Seconds"""


class AccessSettings(Settings):
    """Who can send requests."""

    api_keys_file: str | None = Field(default=None, json_schema_extra=OPTION)
    """file with one API key per line; the variable ASSAY_API_KEYS holds more, comma-separated. Needed unless the address is
    loopback"""
    # Names without ports or brackets: `Keys` compares them with the name in the header alone.
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^[^:/\s\[\]]+$")], ...] = ()
    """values of the header `Host` that an endpoint without keys accepts beside localhost"""
    cors_origins: tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...] = ()
    """origins (https://HOST:PORT, or * for all) whose pages may send requests from a browser, with a key where one is needed
    """
    open: bool = Field(default=False, json_schema_extra=OPTION)
    """accept requests without a key from any address, where a proxy or network guards the endpoint"""


class ServedModelSettings(ModelSettings):
    """One model of an endpoint."""

    names: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), json_schema_extra=OPTION)
    """name of the model for clients; default: the model's id, or of a folder the end of its path, beside the whole path"""
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    scaling: ScalingSettings = ScalingSettings()
    store: Store = None

    _fit_engine = model_validator(mode="after")(fit_engine)


class EndpointSettings(Settings):
    """All settings of an endpoint."""

    models: tuple[ServedModelSettings, ...] = Field(min_length=1)
    """the models, each an id or its settings"""
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    ingresses: int = Field(default=1, ge=1)
    """processes of the router before several models, or before one that scales to zero; others are asked directly"""

    @property
    def asks_directly(self) -> bool:
        """Whether a model's replicas may be reached without a router: some are always there, and no requests must meet."""
        return self.limits.num_rollouts_per_prompt == 1 and all(served.scaling.min_replicas for served in self.models)

    @model_validator(mode="after")
    def _meet(self) -> Self:
        if self.limits.num_rollouts_per_prompt > 1 and self.ingresses > 1:
            raise ValueError(
                f"ingresses {self.ingresses} with limits.num_rollouts_per_prompt {self.limits.num_rollouts_per_prompt}: the "
                "rollouts of a prompt must meet in one process; give ingresses 1"
            )
        return self

    @field_validator("models")
    @classmethod
    def _name_models(cls, models: tuple[ServedModelSettings, ...]) -> tuple[ServedModelSettings, ...]:
        """Names where none were given: the id, or of a folder a short one and its path. Answers carry the first."""
        # Both the short name and the path: a client may have either, and a trainer's output folder is often `final`.
        short = short_names(model.model for model in models)
        named = ((model, model.names or tuple(dict.fromkeys((short[model.model], model.model)))) for model in models)
        models = tuple(model.model_copy(update={"names": names}) for model, names in named)
        names = [name for model in models for name in model.names]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {', '.join(repeated)}; give other `names`")
        return models


class AddressSettings(Settings):
    """Where `assay serve` listens."""

    host: str = Field(default="127.0.0.1", json_schema_extra=OPTION)
    """address to listen on; any but loopback needs API keys"""
    port: int = Field(default=8000, ge=0, le=65535, json_schema_extra=OPTION)
    """port to listen on; 0 picks a free one"""


class SingleModelSettings(Settings):
    """All settings of `assay serve --model`."""

    model: ServedModelSettings
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()

    @property
    def endpoint(self) -> EndpointSettings:
        """The settings of an endpoint with this model alone."""
        return EndpointSettings(models=(self.model,), limits=self.limits, access=self.access)
