"""The settings of a model behind an address: an endpoint of chat completions, or of `assay serve`."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from actors.settings.base import OPTION, Settings


class ModelEndpointSettings(Settings):
    """The endpoint that a model is asked at, and how much may be asked of it."""

    bare_field: ClassVar = "endpoint"

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = Field(default=None, json_schema_extra=OPTION)
    """address to ask the model at, e.g. http://host:8000/v1: of `assay serve`, or with --rubric or --family of any chat
    completions; the environment's OPENAI_API_KEY is the key"""
    max_cost: Annotated[float, Field(gt=0)] | None = Field(default=None, json_schema_extra=OPTION)
    """--endpoint: most that the run may cost in all its sessions, by `endpoint.input_price` and `output_price`"""
    input_price: Annotated[float, Field(ge=0)] | None = None
    """price of a million prompt tokens, in any currency"""
    output_price: Annotated[float, Field(ge=0)] | None = None
    """price of a million written tokens"""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """maximum number of requests in a minute"""
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    """maximum number of prompt and written tokens in a minute"""
    patience_s: float = Field(default=300.0, gt=0)
    """seconds without any answer (no connection, 429, 5xx, time-outs) until the run stops; the same command then scores what
    is missing"""
    batch: bool = False
    """send prompts as files to OpenAI's Batch API, which answers within a day, for less; the prices are then those of it"""
    batch_poll_s: float = Field(default=30.0, gt=0)
    """seconds between two looks at a batch, and without a new prompt until those that wait are sent"""

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.max_cost is not None and (self.input_price is None or self.output_price is None):
            raise ValueError("--max-cost needs endpoint.input_price and endpoint.output_price, for a million tokens each")
        if self.endpoint is None and (set_without := sorted(self.model_dump(exclude_defaults=True))):
            raise ValueError(f"endpoint.{set_without[0]} goes with --endpoint, which isn't given")
        return self

    def cost(self, prompt_tokens: float, written_tokens: float) -> float:
        """What tokens cost, in the currency of the prices; 0 without prices."""
        # Prices are for a million tokens.
        return (prompt_tokens * (self.input_price or 0.0) + written_tokens * (self.output_price or 0.0)) / 1e6


HERE = ModelEndpointSettings()
"""No endpoint: the model runs on engines of the run."""

# The settings of engines that hold for an endpoint, too: the requests at a time, and the seconds for each.
OF_REQUESTS = frozenset({"max_in_flight", "request_timeout_s"})


def check_engine(engine: Settings, pool: Any = None, render: Any = None) -> None:
    """Raise `ValueError` for a setting of engines, of their number or of prompts that says nothing to an endpoint.

    The endpoint chose them when it was started, so here they would be ignored in silence.
    """
    settings = {**engine.model_dump(exclude_defaults=True, exclude={*OF_REQUESTS, "placement_timeout_s"})}
    # What an endpoint's settings become (`fit_engine`), so no choice of the user's.
    if settings.get("engine") == "none":
        del settings["engine"]
    if settings:
        raise ValueError(
            f"--endpoint scores as the endpoint was started: leave out settings of engines: {', '.join(sorted(settings))}"
        )
    if pool is not None and (pool.replicas not in (None, 1) or pool.max_replicas is not None):
        raise ValueError("--endpoint is asked by one process: leave out the number of engines, and set engine.max_in_flight")
    prompts = {} if render is None else render.model_dump(exclude_defaults=True, exclude={"reasoning", "system"})
    if prompts:
        raise ValueError(
            f"--endpoint makes prompts as it was started: leave out settings of prompts: {', '.join(sorted(prompts))}"
        )
