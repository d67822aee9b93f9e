"""Two scored corpora: their rewards side by side, and how far the same responses have the same rank in both."""

from typing import Any

import numpy as np

from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, REWARD, ROW, WITHIN_ROW
from pipelines.results.html_report.responses import TEXT_MARK, Responses
from pipelines.results.html_report.sections.correlations import spearman
from pipelines.results.html_report.sections.outputs import distribution

_POINTS = 2_000
_KEYS = (ROW, RESPONSE, PROMPT_HASH)


def comparison(first: Responses, second: Responses) -> dict[str, Any]:
    """Distributions of both rewards over common bins, and the rank correlation over the responses that both scored.

    A response is the same if its row, its name and its prompt are, in a file that both have, and what a policy drew if its
    text is, from any file (`by_text`).
    `unmatched` says why responses can't be compared one by one, if they can't; `same_files` whether the input files are the
    same.
    """
    sides = [distribution(side, side.folder, side.name(REWARD)) for side in (first, second)]
    ends = [side["ends"] for side in sides if side["count"]]
    if ends:
        common = min(low for low, _ in ends), max(high for _, high in ends)
        sides = [distribution(side, side.folder, side.name(REWARD), common) for side in (first, second)]
    unmatched, by_text = _why_unmatched(first, second), first.columns.drawn
    pairs = _pairs(first, second, by_text=by_text) if unmatched is None else np.empty((0, 2))
    return {
        "sides": sides,
        "common": len(pairs),
        "rho": spearman(pairs[:, 0], pairs[:, 1]) if len(pairs) else None,
        "points": pairs[:_POINTS].T.tolist(),
        "unmatched": unmatched,
        "by_text": by_text,
        "same_files": _files(first) == _files(second),
    }


def _why_unmatched(first: Responses, second: Responses) -> str | None:
    if first.columns.within_row or second.columns.within_row:
        return WITHIN_ROW
    if first.columns.drawn != second.columns.drawn:
        return "a policy drew those of one folder, and those of the other may be others under the same names"
    if not first.columns.drawn and not _files(first) & _files(second):
        return "no file of one is a file of the other, under the same name; `assay diff` compares equal texts"
    return None


def _pairs(first: Responses, second: Responses, *, by_text: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The rewards of the responses that both scored, in an order of their hash; shape (responses, 2)."""
    keys = {f"key_{key}": [side.name(key) for side in (first, second)] for key in _KEYS}
    if by_text:
        keys["key_text"] = [TEXT_MARK, TEXT_MARK]
    selected = ", ".join(f"{theirs} as {key}" for key, (_, theirs) in keys.items())
    first.connection.register(
        "others", second.connection.sql(f"select {selected}, {second.name(REWARD)} as other from parts").to_arrow_table()
    )
    joined = " and ".join(f"parts.{ours} = others.{key}" for key, (ours, _) in keys.items())
    files = [name for name, *_ in (_files(first) if by_text else _files(first) & _files(second))]
    reward = f"parts.{first.name(REWARD)}"
    columns = first.connection.execute(
        f"select {reward} as first, others.other as second from parts join others on {joined} "
        f"where {reward} is not null and others.other is not null "
        f"and list_contains(?, regexp_replace(others.key_{ROW}, ':[^:]*$', '')) "
        f"order by md5_number_lower(others.key_{ROW} || others.key_{RESPONSE}), others.key_{ROW}",
        [files],
    ).fetchnumpy()
    return np.stack([np.asarray(columns[name], dtype=np.float64) for name in ("first", "second")], axis=1)


def _files(responses: Responses) -> set[tuple[str, int, str]]:
    return {(file.name, file.size, file.fingerprint) for file in responses.corpus.manifest.files}
