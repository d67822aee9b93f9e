"""What a run asked of an endpoint: `endpoint/` in its folder, which the engine behind the address writes."""

from actors.endpoint.account import read_spent
from pipelines.data import storage

FOLDER = "endpoint"


def endpoint_notes(folder: str) -> storage.Folder:
    """The place of the notes, for the engine."""
    return storage.folder(folder).sub(FOLDER)


def endpoint_work(folder: str) -> dict[str, object]:
    """For a summary: requests, tokens, cost, and the `system_fingerprint`s that were seen; empty without an endpoint.

    The cost is in the currency of the prices, and 0 without them. With `max_cost` it may be above what was spent, never
    below: of a session that was killed, requests whose answer never came count with the most that they may have cost.
    Without it, the last seconds of such a session may be missing.
    """
    spent = read_spent(endpoint_notes(folder))
    if not spent.requests:
        return {}
    return {
        "requests": spent.requests,
        "prompt_tokens": spent.prompt_tokens,
        "written_tokens": spent.written_tokens,
        "cost": spent.cost + spent.ahead,
        "fingerprints": list(spent.fingerprints),
    }
