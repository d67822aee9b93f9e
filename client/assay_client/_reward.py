"""What comes back for a response: a number, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class NoReward(Exception):
    """A response has no reward, and the trainer has no place for that."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(reason, message)  # both, so that it leaves a pickle as it went in
        self.reason, self.message = reason, message

    def __str__(self) -> str:
        return f"no reward: {self.reason}" + (f" ({self.message})" if self.message else "")


@dataclass(frozen=True)
class Reward:
    """The outcome of one response. `value` is a finite number if, and only if, `status` is `scored`; else `reason` says why.

    Beside the endpoint's reasons there are the client's: `deadline`, `unreachable`, `bad_answer` (one that can't be read),
    `closed`, and for a refused request the code of its error, or `http_` with the status. `scores` are the model's named
    outputs; `message` is what the endpoint, or the connection, said of a failure.
    """

    value: float | None
    status: str = "scored"
    reason: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    truncated: bool = False
    message: str = ""

    def require(self) -> float:
        """The number. Raises `NoReward` if there is none."""
        if self.value is None:
            raise NoReward(self.reason or self.status, self.message)
        return self.value
