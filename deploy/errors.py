"""Errors in the shape of OpenAI's API: a status, and a body that says what was wrong, never with a user's text in it."""

from actors.errors import AssayError
from actors.records import Reason, Score

UNKNOWN_MODEL = "model_not_found"

# Reasons that are the model's or the engine's fault (500); all others are the request's (400).
_MODEL_FAULTS = frozenset(
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


class ApiError(AssayError):
    """An error that is the answer to a request.

    `param` is the field at fault, `code` a word for programs: a `Reason`, or one that the reference lists.
    """

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
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


def replica_gone() -> ApiError:
    """The error for a request that a replica had when it ended: it may be the cause.

    So a client counts it as a failure; HAProxy's page says the same.
    """
    return ApiError(503, "the replica with this request has ended: send it again", code="replica_gone", retry_after_s=1)


def no_replica() -> ApiError:
    """The error for a request that no replica got.

    It was no request's fault, and a client may ask until its deadline.
    """
    return ApiError(503, "no replica is there to answer yet: send it again", code="no_replica", retry_after_s=1)


class BadRequest(ApiError):
    """400: the request can't be answered as it is; sending it again changes nothing.

    The message never repeats a user's text.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(400, message, code=code, param=param)


def no_score_error(reason: Reason | None, place: str = "messages") -> ApiError:
    """The error for a response without a score, in formats whose answer has no place for the reason.

    `place` is the field at fault, such as `messages`; for an item of a list `query[3]`, which the message then names.
    """
    field, bracket, _ = place.partition("[")
    prefix = f"{place}: " if bracket else ""
    if reason is Reason.TOO_LONG:
        return ApiError(413, f"{prefix}the conversation is longer than the model takes", code=reason)
    if reason is Reason.REASONING:
        return BadRequest(
            f"{prefix}what is judged holds reasoning, in the response or in turns before it, which this endpoint rejects, "
            "or which no answer follows: send the final answer, or serve with `reasoning` strip or keep",
            field,
            reason,
        )
    if reason is Reason.ENGINE_TIMEOUT:
        return ApiError(504, f"{prefix}the model took too long", code=reason)
    if reason in _MODEL_FAULTS:
        return ApiError(500, f"{prefix}the model answered without a reward: {reason}", code=reason)
    return BadRequest(f"{prefix}the conversation can't be judged: {reason}", field, reason)


def reward_of(score: Score, place: str = "messages") -> float:
    """The reward. Raises `ApiError` if there is none; `place` is the field of the request that the error names.

    For formats whose answer has no place for a reason.
    """
    if score.reward is None:
        raise no_score_error(score.reason, place)
    return score.reward
