"""What an endpoint is told: the same settings for `assay serve`, for serve.yaml and for Python. Imports nothing heavy."""

from typing import Annotated, Any

from pydantic import Field, field_validator

from actors.settings.base import Settings
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings

MessageAsList = Annotated[
    bool, Field(description="`message` as a list in chat completions of rewards, as NVIDIA's hosted 340B had it")
]


class ScalingSettings(Settings):
    """How many replicas of a model there are, and when there are more. Serve's own delays and bounds apply around it."""

    min_replicas: int = Field(default=1, ge=0, description="0: none while nobody asks; the first request then waits for one")
    max_replicas: int = Field(default=1, ge=1, description="replicas at the most")
    target_requests: float = Field(default=64.0, gt=0, description="requests under way that one replica is enough for")
    target_tokens: float = Field(
        default=262144.0, gt=0, description="prompt tokens under way that one replica is enough for"
    )
    upscale_delay_s: float = Field(default=10.0, ge=0, description="how long there must be too few before there are more")
    downscale_delay_s: float = Field(
        default=300.0, ge=0, description="how long there must be too many before there are fewer"
    )


class LimitSettings(Settings):
    """What one client may ask for, and all together: beyond, a request is refused at once."""

    max_requests: int = Field(default=1024, ge=1, description="requests under way per ingress; more get 429")
    max_replica_requests: int = Field(
        default=256, ge=1, description="requests in one replica of a model; more wait outside it"
    )
    max_body_bytes: int = Field(default=16 * 2**20, ge=1, description="longest body of a request; a longer one gets 413")
    max_values: int = Field(
        default=2**17, ge=1, description="JSON values in one body, token ids too; more get 413 before any of them is read"
    )
    max_items: int = Field(default=1024, ge=1, description="conversations, prompts or responses in one request")
    max_prompts: int = Field(
        default=16384, ge=1, description="prompts that one request may come to: its responses x principles x orders x votes"
    )
    max_characters: int = Field(
        default=2**26, ge=1, description="characters of all prompts of one request, with its conversation in each of them"
    )
    max_characters_under_way: int = Field(
        default=2**28, ge=1, description="the same of all requests to a model under way per ingress; more get 429"
    )
    body_timeout_s: float = Field(default=30.0, gt=0, description="how long a client may take to send its body; then 408")
    answer_timeout_s: float = Field(
        default=600.0, gt=0, description="how long an answer may take; a client may ask for less with X-Timeout-Seconds"
    )


class AccessSettings(Settings):
    """Who may ask."""

    api_keys_file: str | None = Field(
        default=None, description="file with one key per line; also ASSAY_API_KEYS, comma-separated. Needed beyond loopback"
    )
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^[^:/\s\[\]]+$")], ...] = Field(
        default=(),
        description="names beside localhost that an endpoint without keys may be asked under (a request's `Host`)",
    )
    open: bool = Field(default=False, description="let everybody in who reaches the address, where something else guards it")


class ServedModelSettings(ModelSettings):
    """One model of an endpoint."""

    names: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="what clients call it; the model's id if not given"
    )
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    scaling: ScalingSettings = ScalingSettings()

    @property
    def called(self) -> tuple[str, ...]:
        """All names that clients may use; the first is the one that is told."""
        return self.names or (self.model,)


class EndpointSettings(Settings):
    """Everything that an endpoint is told."""

    models: tuple[ServedModelSettings, ...] = Field(min_length=1, description="the models, each an id or its settings")
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    ingresses: int = Field(default=1, ge=1, description="replicas of the ingress: routes, keys, limits and the page")
    message_as_list: MessageAsList = False

    @field_validator("models", mode="before")
    @classmethod
    def _ids_are_settings(cls, models: Any) -> Any:
        """A model that is given by its id alone has the defaults."""
        if isinstance(models, str):
            models = (models,)
        return (
            [{"model": one} if isinstance(one, str) else one for one in models]
            if isinstance(models, list | tuple)
            else models
        )

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ServedModelSettings, ...]) -> tuple[ServedModelSettings, ...]:
        names = [name for model in models for name in model.called]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {', '.join(twice)}; give other `names`")
        return models


class AddressSettings(Settings):
    """Where `assay serve` listens."""

    host: str = Field(default="127.0.0.1", description="address to listen on; beyond loopback there must be API keys")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")


class SingleModelSettings(Settings):
    """Everything that `assay serve --model` is told."""

    model: ModelSettings
    render: RenderSettings = RenderSettings()
    engine: EngineSettings = EngineSettings()
    scaling: ScalingSettings = ScalingSettings()
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    message_as_list: MessageAsList = False

    def endpoint(self, names: tuple[str, ...]) -> EndpointSettings:
        """The same as an endpoint of one model under these names."""
        own = ServedModelSettings(
            **dict(self.model), names=names, render=self.render, engine=self.engine, scaling=self.scaling
        )
        return EndpointSettings(models=(own,), limits=self.limits, access=self.access, message_as_list=self.message_as_list)
