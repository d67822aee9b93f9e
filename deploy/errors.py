"""Errors as OpenAI's clients know them: a status, and a body that says what was wrong. Never with a user's text in it."""

from actors.errors import AssayError
from actors.records import Reason, Score, Status

UNKNOWN_MODEL = "model_not_found"


class ApiError(AssayError):
    """A request that isn't answered with what it asked for."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, object]:
        """OpenAI's shape."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """Beside the body."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


class BadRequest(ApiError):
    """What was asked for can't be done as it is."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(400, message, code=code, param=param)


def no_score_error(reason: Reason | None, place: str = "messages") -> ApiError:
    """For routes that have one answer, and no place in it to say why there is none.

    `place` is the field at fault; of a list, with the position in it, which the message then says.
    """
    field, listed, _ = place.partition("[")
    at = f"{place}: " if listed else ""
    if reason is Reason.TOO_LONG:
        return ApiError(413, f"{at}the conversation is longer than the model takes", code=reason)
    if reason is Reason.REASONING:
        return BadRequest(
            f"{at}what is judged holds reasoning, in the response or in turns before it, which this endpoint rejects, or "
            "which no answer follows: send the final answer, or serve with --reasoning strip or keep",
            field,
            reason,
        )
    if reason is Reason.ENGINE_TIMEOUT:
        return ApiError(504, f"{at}the model took too long", code=reason)
    if reason in _OF_THE_MODEL:
        return ApiError(500, f"{at}the model was asked, and gave no reward: {reason}", code=reason)
    return BadRequest(f"{at}the conversation can't be judged: {reason}", field, reason)


def reward_of(score: Score, place: str = "messages") -> float:
    """The number. Raises `ApiError` if there is none, which says so of this place in the request."""
    if score.reward is None:
        raise no_score_error(score.reason, place)
    return score.reward


def score_error(score: Score, place: str) -> ApiError | None:
    """Why a score has no number, if it hasn't."""
    return None if score.status is Status.SCORED else no_score_error(score.reason, place)


_OF_THE_MODEL = frozenset(
    {
        Reason.NOT_FINITE,
        Reason.ENGINE_REFUSED,
        Reason.ENGINE_KILLER,
        Reason.CUT_OFF,
        Reason.NO_VERDICT,
        Reason.TWO_VERDICTS,
        Reason.OUT_OF_RANGE,
    }
)
