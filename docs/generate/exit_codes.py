"""The page of the exit codes: what each says, and which of Assay's errors ends a command with it."""

from collections.abc import Iterator

from actors import errors
from actors.errors import AssayError, AuditError, GateFailed, UserError
from docs.generate.markdown import Page, code, document, table, text

MEANINGS = {
    0: "done: every response is scored, rejected or failed, and counted, also where the input has none or nothing is kept",
    1: "a mistake of Assay's own, with its traceback",
    2: "it can't be done as given; the message says what to change",
    3: "stopped early (engines that die again and again, a full disk, too many failures); the same command resumes the run",
    4: "the audit found a gap or something counted twice, or `verify` a bad part; or not one response has a reward",
    5: "a gate failed: of `evaluate --against`, of `verify --max-difference`, of `certify --max-effect`, or of `diff`; or "
    "`filter --labels` has no cut that the labels show to have what was asked",
    130: "interrupted by Ctrl-C or SIGTERM, or a job that was stopped; the last line says the command that resumes it",
    141: "who read the output had enough of it, as `head` has; what shells show of other programs, too",
}
_INSIDE = (errors.Rejected, errors.Unreadable)
"""These never leave the core: a row that can't be judged is an outcome."""


def exit_code(error: type[AssayError]) -> int:
    """What a command ends with that such an error ends."""
    if issubclass(error, GateFailed):
        return 5
    return 4 if issubclass(error, AuditError) else 2 if issubclass(error, UserError) else 3


def ending_errors() -> Iterator[type[AssayError]]:
    """Assay's errors that may end a command, in the order of their source."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, AssayError) and not issubclass(kind, _INSIDE):
            yield kind


def pages() -> Iterator[Page]:
    """The page."""
    rows = [
        (code(kind.__name__), str(exit_code(kind)), text((kind.__doc__ or "").split("\n")[0])) for kind in ending_errors()
    ]
    yield Page(
        "exit-codes.md",
        document(
            "# Exit codes",
            table(("code", "what it says"), ((str(number), text(meaning)) for number, meaning in MEANINGS.items())),
            "A full disk, or a used-up share of one, is 3 wherever it is met. `assay submit` ends with its job's code.",
            "## Errors",
            "From Python these are exceptions of `actors.errors`. A row that can't be judged is none: it is an "
            "[outcome](outcomes.md) with a status and a reason.",
            table(("exception", "exit code", "what it says"), rows),
        ),
    )
