"""Every exception that Assay raises on purpose.

    AssayError
    +-- UserError             the command can't be carried out as given; the message says what to do (exit code 2)
    |   +-- SettingsError     a value, or a combination of values, that isn't allowed
    |   +-- SourceError       an input that is missing, unreadable or of no known shape
    |   |   `-- DamagedSource   its bytes are wrong: every read of it fails
    |   +-- OutputError       a folder that can't take this run
    |   +-- ModelError        a model that isn't a reward model Assay can read
    |   +-- EndpointError     an endpoint that can't be asked as it is given: its address, the key, a name, settings
    |   `-- ExpressionError   a filter that names or compares what isn't there
    +-- EngineError           the engine couldn't do its work
    |   +-- EngineDead        it is gone, and every request that it held with it
    |   +-- EngineTimeout     one request passed its deadline and was aborted; the engine goes on
    |   +-- PromptRefused     an endpoint refuses one request, or breaks on it, and answers others
    |   +-- CrashLoop         it died too often for another start to make sense
    |   `-- EnginesLost       their nodes are gone, and work waits for them that others could do
    +-- RunStopped            a run ended early on purpose; the same command resumes it (exit code 3)
    |   `-- CostReached       its next request to an endpoint could cost more than it may
    +-- AuditError            the parts of a run don't add up to its input (exit code 4)
    |   `-- NothingScored     they do, and no response has a reward
    +-- GateFailed            an evaluation is worse than its baseline allows (exit code 5)
    +-- Unreadable            a judge's text doesn't give the number; never leaves the core
    `-- Rejected              one row or response can't be judged as it is; never leaves the core

A bad row is never an exception outside the function that finds it: it is a `Score` with a status and a reason.
"""

from actors.records import Reason


class AssayError(Exception):
    """Base of every error that Assay raises on purpose."""


class UserError(AssayError):
    """The command can't be carried out as given."""


class SettingsError(UserError):
    """A value, or a combination of values, that isn't allowed.

    The message names the option, or the path of the setting in a recipe, and what may stand there.
    """


class SourceError(UserError):
    """An input that is missing, unreadable or of no known shape.

    A whole input, never a row: a bad row is a score with a reason.
    """


class DamagedSource(SourceError):
    """An input whose bytes are wrong: unlike a storage that doesn't answer, no later read does better."""


class OutputError(UserError):
    """A folder that can't take this run.

    It holds other results, or it can't be read or written.
    """


class ModelError(UserError):
    """A model that isn't a reward model Assay can read."""


class EndpointError(UserError):
    """An endpoint that can't be asked as it is given."""


class ExpressionError(UserError):
    """A filter expression that names or compares what isn't there."""


class EngineError(AssayError):
    """The engine couldn't do its work; `reason` is that of a response for which it couldn't."""

    reason = Reason.ENGINE_REFUSED


class EngineDead(EngineError):
    """The engine is gone, and every request that it held with it.

    Never a reason of a response: a batch job starts another engine and asks again, an endpoint answers 503.
    """


class EngineTimeout(EngineError):
    """One request passed its deadline and was aborted; the engine goes on.

    The response fails with `engine_timeout`, which `assay retry` can ask again.
    """

    reason = Reason.ENGINE_TIMEOUT


class PromptRefused(EngineError):
    """An endpoint refuses one request, or breaks on it, and answers others."""

    def __init__(self, text: str, reason: Reason = Reason.ENDPOINT_REFUSED) -> None:
        super().__init__(text)
        self.reason = reason


class CrashLoop(EngineError):
    """The engine died too often for another start to make sense.

    What kills it isn't a row: those are found by their crashes, and fail alone with `engine_killer`.
    """


class EnginesLost(EngineError):
    """Engines' nodes are gone, and work waits for them that others could do: the run begins again with those."""


class RunStopped(AssayError):
    """A run ended early on purpose; what it committed stays, and the same command resumes it.

    By a signal, a limit that was set, or a service that doesn't answer now. Exit code 3.
    """


class CostReached(RunStopped):
    """The next request to an endpoint could cost more than the run may."""


class AuditError(AssayError):
    """The parts of a run don't add up to its input.

    A row is missing, or committed twice. Exit code 4: the result must not be used.
    """


class NothingScored(AuditError):
    """A run is complete, and none of its responses has a reward."""


class GateFailed(AssayError):
    """An evaluation is worse than its baseline allows, or two runs differ more than they may.

    The result itself is whole and written. Exit code 5, for CI.
    """


class Unreadable(AssayError):
    """A judge's text has no verdict that can be read.

    The scorer asks again, `judge.reask` times; then the vote counts as unread, with this `reason`.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Rejected(AssayError):
    """One row or response that can't be judged as it is.

    Its `reason` becomes that of the score; `detail` says for a person what was found where.
    """

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
