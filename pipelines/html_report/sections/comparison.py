"""Two scored corpora: their rewards side by side, and how far the same responses have the same rank in both."""

from typing import Any

import numpy as np

from pipelines.html_report.responses import Responses
from pipelines.html_report.sections.correlations import spearman
from pipelines.html_report.sections.outputs import distribution
from pipelines.run_folder.columns import PROMPT_HASH, RESPONSE, REWARD, ROW

_POINTS = 2_000
_KEYS = (ROW, RESPONSE, PROMPT_HASH)


def comparison(first: Responses, second: Responses) -> dict[str, Any]:
    """Distributions of both rewards over common bins, and the rank correlation over the responses that both scored.

    A response is the same if its row, its name and its prompt are; `same_files` says whether the input files are, too.
    """
    sides = [distribution(side, side.folder, side.name(REWARD)) for side in (first, second)]
    ends = [side["ends"] for side in sides if side["count"]]
    if ends:
        common = min(low for low, _ in ends), max(high for _, high in ends)
        sides = [distribution(side, side.folder, side.name(REWARD), common) for side in (first, second)]
    pairs = _pairs(first, second)
    return {
        "sides": sides,
        "common": len(pairs),
        "rho": spearman(pairs[:, 0], pairs[:, 1]) if len(pairs) else None,
        "points": pairs[:_POINTS].T.tolist(),
        "same_files": _contents(first) == _contents(second),
    }


def _pairs(first: Responses, second: Responses) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The rewards of the responses that both scored, in an order of their hash; shape (responses, 2)."""
    keys = ", ".join(f"{second.name(key)} as key_{key}" for key in _KEYS)
    first.connection.register(
        "others", second.connection.sql(f"select {keys}, {second.name(REWARD)} as other from parts").to_arrow_table()
    )
    joined = " and ".join(f"parts.{first.name(key)} = others.key_{key}" for key in _KEYS)
    reward = f"parts.{first.name(REWARD)}"
    columns = first.connection.sql(
        f"select {reward} as first, others.other as second from parts join others on {joined} "
        f"where {reward} is not null and others.other is not null "
        f"order by md5_number_lower(others.key_{ROW} || others.key_{RESPONSE}), others.key_{ROW}"
    ).fetchnumpy()
    return np.stack([np.asarray(columns[name], dtype=np.float64) for name in ("first", "second")], axis=1)


def _contents(responses: Responses) -> set[tuple[int, str]]:
    return {(file.size, file.fingerprint) for file in responses.corpus.manifest.files}
