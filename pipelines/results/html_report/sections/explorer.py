"""What each cut would keep: shares and tokens of all responses, lengths and examples of the sample."""

import shlex
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
import pyarrow as pa

from actors.errors import ExpressionError
from pipelines.folders.run_folder.columns import PROMPT_TOKENS, RESPONSE, ROW
from pipelines.folders.scored_corpus.expressions import Condition
from pipelines.results.comparison.shown_responses import Place
from pipelines.results.html_report.responses import Responses, place_table
from pipelines.results.html_report.shown_text import show

# Sampled responses that the page holds to show those next to a cut: at most 900 characters each, 0.3 MB.
EXAMPLES = 300
_CUTS, _MOST_OUTPUTS = 400, 20  # a slider is about 400 pixels wide
# Cuts are short numbers, so that the command is one: rounded down, the lowest cut keeps everything that has the output.
_DIGITS = Context(prec=6, rounding=ROUND_FLOOR)
_NAME_CHARACTERS, _PROMPT_CHARACTERS, _TEXT_CHARACTERS = 100, 200, 500


def neighbour_places(responses: Responses) -> list[Place]:
    """At most `EXAMPLES` sampled responses to be shown beside cuts: for every output some, over all of its ranks."""
    numbers = _numbers(responses)
    sampled = _values_of_sample(responses, [sql for _, sql in numbers])
    places: dict[Place, None] = {}
    for position in range(len(numbers)):
        ranked = sorted((value, place) for place, values in sampled.items() if (value := values[position]) is not None)
        places |= dict.fromkeys(ranked[rank][1] for rank in _spread_ranks(len(ranked), EXAMPLES // len(numbers)))
    # Outputs often agree on the same responses; what room is left is for others that have an output.
    with_output = (place for place in responses.sampled if any(value is not None for value in sampled[place]))
    return list(dict.fromkeys([*places, *with_output]))[:EXAMPLES]


def _spread_ranks(count: int, most: int) -> list[int]:
    """At most so many of the ranks below `count`, denser towards both ends."""
    # Cuts lie at the best tenth or hundredth, where even steps would leave few examples. A cosine's are half a rank at the
    # ends of 20,000 with 300 examples, and pi / 2 times an even one in the middle.
    spread = (count - 1) * (1 - np.cos(np.linspace(0, np.pi, min(count, most)))) / 2
    return np.unique(np.rint(spread).astype(int)).tolist() if count > most else list(range(count))


def explorer(responses: Responses) -> dict[str, Any]:
    """Cuts of every output, with what they keep, and examples with their values."""
    numbers = _numbers(responses)
    sampled = _values_of_sample(responses, [sql for _, sql in numbers])
    cuts = [
        {"name": name, "index": position, "command": _command(responses, _condition(responses, name, sql)), **kept}
        for position, (name, sql) in enumerate(numbers)
        if (kept := _cuts(responses, sql, [(place, values[position]) for place, values in sampled.items()]))
    ]
    return {
        "total": responses.total,
        "outputs": cuts,
        "examples": _examples(responses, sampled),
    }


def _numbers(responses: Responses) -> list[tuple[str, str]]:
    return list(responses.numbers.items())[:_MOST_OUTPUTS]


def _command(responses: Responses, condition: str) -> tuple[str, str]:
    # What stands before the cut, and the quotation mark after it: the script puts the number between.
    quoted = shlex.quote(f"{condition} >= ")
    return f"assay filter {shlex.quote(responses.folder)} kept/ --where {quoted[:-1]}", quoted[-1]


def _values_of_sample(responses: Responses, numbers: Sequence[str]) -> dict[Place, list[float | None]]:
    responses.connection.register("sampled", place_table(responses.sampled))
    values = ", ".join(f"case when isfinite({sql}) then {sql} end" for sql in numbers)
    rows = responses.query(
        f"select part_at, row_at, {values} from parts semi join sampled on sampled.p = part_at and sampled.r = row_at"
    )
    return {(part, row): list(of_row) for part, row, *of_row in rows}


def _condition(responses: Responses, name: str, sql: str) -> str:
    # Plain names read better, and only DuckDB knows which of them need quotation marks.
    plain = responses.columns.prefix + name
    try:
        Condition.check(f"{plain} >= 0", responses.columns.ours_first)
    except ExpressionError:
        return sql
    return plain


def _cuts(responses: Responses, sql: str, sampled: Sequence[tuple[Place, float | None]]) -> dict[str, Any] | None:
    """Ascending cuts as texts, and for each the responses and tokens that it keeps, and their mean length with its error.

    Kept counts are exact. The length is of the sample; its error is 0 where the sample is everything, null below two
    responses.
    """
    levels = [position / _CUTS for position in range(_CUTS + 1)]
    ((quantiles,),) = responses.query(f"select quantile_cont({sql}, {levels}) from parts where isfinite({sql})")
    if not quantiles:
        return None
    # Equal ones meet: rewards of five grades have five cuts and not 401.
    cuts = sorted({float(_DIGITS.create_decimal(repr(value))) for value in quantiles})
    responses.connection.register("cuts", pa.table({"cut": cuts, "cut_at": range(len(cuts))}))
    # An asof join gives each response the highest cut that keeps it; sums from the end then give what each cut keeps.
    counts_at = {
        position: (count, tokens or 0)
        for position, count, tokens in responses.query(
            f"select cut_at, count(*), sum(tokens) from (select {sql} as number, {responses.name(PROMPT_TOKENS)} as tokens "
            f"from parts where isfinite({sql})) asof join cuts on number >= cut group by cut_at"
        )
    }
    counts_between = np.array([counts_at.get(position, (0, 0)) for position in range(len(cuts))], dtype=np.int64)
    kept = counts_between[::-1].cumsum(axis=0)[::-1]
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
    # Added up from the end, as a cut keeps what is at or above it; the 0 is for a cut above all sampled values.
    sums, squares = (np.append(power[::-1].cumsum()[::-1], 0.0)[starts] for power in (lengths, lengths**2))
    means = sums / np.maximum(counts, 1)
    variances = np.maximum(squares / np.maximum(counts, 1) - means**2, 0.0)
    # The error of a mean, sqrt(sample variance / n), where the sample variance is this one times n / (n - 1). `missing` is
    # the finite population correction: a sample of all responses has no error.
    missing = 1 - len(responses.sampled) / responses.total
    errors = np.sqrt(variances / np.maximum(counts - 1, 1) * missing)
    return {
        "length": [round(float(mean), 1) if count else None for mean, count in zip(means, counts, strict=True)],
        "length_error": [round(float(error), 1) if count > 1 else None for error, count in zip(errors, counts, strict=True)],
    }


def _examples(responses: Responses, sampled: dict[Place, list[float | None]]) -> list[dict[str, Any]]:
    places = neighbour_places(responses)
    rows, prefix = responses.rows(places), responses.columns.prefix
    examples = []
    for place in places:
        read = responses.texts[place]
        shown = {
            "row": show(rows[place][prefix + ROW], _NAME_CHARACTERS),
            "response": show(rows[place][prefix + RESPONSE], _NAME_CHARACTERS),
            "prompt": show(read.turns[-1]["text"] if read.turns else "", _PROMPT_CHARACTERS),
            "text": show(read.text or "", _TEXT_CHARACTERS),
        }
        examples.append({**shown, "values": sampled[place]})
    return examples
