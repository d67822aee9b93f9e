"""A model behind an address: what its endpoint says of it, and all that is known of what decides its numbers.

An endpoint of `assay serve` lists a model with its whole identity and judges conversations. Any other is asked for chat
completions as a judge that writes: of that nothing is known but its name and what the endpoint lists, so it isn't pinned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from actors.endpoint.faults import MODELS, display_url
from actors.endpoint.http import listed_models
from actors.errors import EndpointError
from actors.settings.endpoint import ModelEndpointSettings

CHAT_RENDERER = 3
"""Version in a run's identity: it goes up when a request becomes other messages than before, or other answers are read."""
# Fields of a model's card that tell what it is.
_LISTED = ("id", "root", "parent", "max_model_len")


@dataclass(frozen=True)
class RemoteModel:
    """A model of an endpoint: `card` is what the endpoint lists of it, empty without such a list."""

    settings: ModelEndpointSettings
    name: str
    card: Mapping[str, Any]

    @classmethod
    def find(cls, settings: ModelEndpointSettings, name: str) -> "RemoteModel":
        """Ask the endpoint for a model.

        Raises `EndpointError` if it refuses the question or has no such model; `RunStopped` if it isn't reached now.
        """
        listed = listed_models(str(settings.endpoint), MODELS._replace(option="--model"))
        if listed is None:
            return cls(settings, name, {})
        cards = {card["id"]: card for card in listed}
        if name not in cards:
            serves = ", ".join(cards) or "nothing"
            raise EndpointError(f"the endpoint {display_url(str(settings.endpoint))} serves no {name}; it serves {serves}")
        return cls(settings, name, cards[name])

    @property
    def url(self) -> str:
        return display_url(str(self.settings.endpoint))

    @property
    def is_assay(self) -> bool:
        """Whether its endpoint is one of `assay serve`, which judges conversations."""
        return "identity" in self.card

    @property
    def longest(self) -> int | None:
        limit = self.card.get("max_model_len")
        return limit if isinstance(limit, int) else None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What is known of what decides its numbers: all of a model of `assay serve`, else no hash of anything."""
        if self.is_assay:
            # "endpoint": control tokens and the like may be treated otherwise there: never resumed by a run with engines.
            return {"model": self.card["root"], "endpoint": True, **self.card["identity"]}
        return {
            "endpoint": True,
            "pinned": False,
            "served_at": self.url,
            "listed": {name: self.card[name] for name in _LISTED if self.card.get(name) is not None},
            **dict.fromkeys(("weights", "template", "tokenizer", "config", "dtype", "max_model_len")),
            "chat_renderer": CHAT_RENDERER,
            "engine": "chat completions",
        }
