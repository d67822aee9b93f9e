"""What each cut would keep: shares and tokens of all responses, lengths and examples of the sample."""

import re
import shlex
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.html_report.responses import Place, Responses
from pipelines.html_report.shown_text import show
from pipelines.run_folder.columns import PROMPT_TOKENS, REWARD, SCORES

EXAMPLES = 300
"""Sampled responses that the page holds to show those next to a cut."""
_CUTS, _MOST_OUTPUTS = 400, 20
_DIGITS = Context(prec=6, rounding=ROUND_FLOOR)
"""Cuts are short numbers, so that the command is one: rounded down, the lowest cut keeps everything that has the output."""
_PROMPT_CHARACTERS, _TEXT_CHARACTERS = 200, 500


def explorer(responses: Responses) -> dict[str, Any]:
    """Cuts of every output, with what they keep, and examples with their values."""
    numbers = list(responses.numbers.items())[:_MOST_OUTPUTS]
    rows = responses.connection.sql(
        f"select part_at, row_at, {', '.join(f'{sql} as n{at}' for at, (_, sql) in enumerate(numbers))} from parts"
    )
    sampled = {(part, row): values for part, row, *values in _of_sample(responses, rows)}
    cuts = [
        {"name": name, "index": at, "condition": _condition(responses, name), **found}
        for at, (name, sql) in enumerate(numbers)
        if (found := _cuts(responses, sql, [(place, values[at]) for place, values in sampled.items()]))
    ]
    return {
        "total": responses.total,
        "command": f"assay filter {shlex.quote(responses.folder)} kept/ --keep ",
        "outputs": cuts,
        "examples": [_example(responses, place, sampled[place]) for place in responses.sampled[:EXAMPLES]],
    }


def _of_sample(responses: Responses, rows: Any) -> list[tuple[Any, ...]]:
    """The rows of a relation that are in the sample."""
    places = pa.table({"p": [part for part, _ in responses.sampled], "r": [row for _, row in responses.sampled]})
    responses.connection.register("sampled", places)
    fetched: list[tuple[Any, ...]] = rows.query(
        "numbers", "select numbers.* from numbers join sampled on p = part_at and r = row_at"
    ).fetchall()
    return fetched


def _condition(responses: Responses, name: str) -> str:
    """An output as a condition names it."""
    prefix, (first, _, score) = responses.columns.prefix, name.partition(".")
    column = prefix + (SCORES if first == SCORES else REWARD)
    return ".".join(word if re.fullmatch(r"[a-z_]\w*", word) else f'"{word}"' for word in (column, score) if word)


def _cuts(responses: Responses, sql: str, sampled: Sequence[tuple[Place, float | None]]) -> dict[str, Any] | None:
    """Ascending cuts as texts, and for each the responses and tokens that it keeps, and their mean length with its error.

    Kept counts are exact. The length is of the sample; its error is 0 where the sample is everything, null below two
    responses.
    """
    levels = [at / _CUTS for at in range(_CUTS + 1)]
    ((quantiles,),) = responses.query(f"select quantile_cont({sql}, {levels}) from parts where isfinite({sql})")
    if not quantiles:
        return None
    cuts = sorted({float(_DIGITS.create_decimal(repr(value))) for value in quantiles})
    responses.connection.register("cuts", pa.table({"cut": cuts, "cut_at": range(len(cuts))}))
    counted = {
        at: (count, tokens or 0)
        for at, count, tokens in responses.query(
            f"select cut_at, count(*), sum(tokens) from (select {sql} as number, {responses.name(PROMPT_TOKENS)} as tokens "
            f"from parts where isfinite({sql})) asof join cuts on number >= cut group by cut_at"
        )
    }
    between = np.array([counted.get(at, (0, 0)) for at in range(len(cuts))], dtype=np.int64)
    kept = between[::-1].cumsum(axis=0)[::-1]
    lengths = _lengths_above(responses, cuts, sampled)
    return {"cuts": [repr(cut) for cut in cuts], "kept": kept[:, 0].tolist(), "tokens": kept[:, 1].tolist(), **lengths}


def _lengths_above(
    responses: Responses, cuts: Sequence[float], sampled: Sequence[tuple[Place, float | None]]
) -> dict[str, list[float | None]]:
    pairs = [
        (value, measured.characters)
        for place, value in sampled
        if value is not None and (measured := responses.texts[place].features) is not None
    ]
    values, lengths = np.array(sorted(pairs), dtype=np.float64).reshape(-1, 2).T
    starts = np.searchsorted(values, cuts)
    counts = len(values) - starts
    sums, squares = (np.append(power[::-1].cumsum()[::-1], 0.0)[starts] for power in (lengths, lengths**2))
    means = sums / np.maximum(counts, 1)
    variances = np.maximum(squares / np.maximum(counts, 1) - means**2, 0.0)
    missing = 1 - len(responses.sampled) / responses.total
    errors = np.sqrt(variances / np.maximum(counts - 1, 1) * missing)
    return {
        "length": [round(float(mean), 1) if count else None for mean, count in zip(means, counts, strict=True)],
        "length_error": [round(float(error), 1) if count > 1 else None for error, count in zip(errors, counts, strict=True)],
    }


def _example(responses: Responses, place: Place, values: Sequence[float | None]) -> dict[str, Any]:
    read = responses.texts[place]
    prompt = read.turns[-1]["text"] if read.turns else ""
    return {
        "prompt": show(prompt, _PROMPT_CHARACTERS),
        "text": show(read.text or "", _TEXT_CHARACTERS),
        "values": list(values),
    }
