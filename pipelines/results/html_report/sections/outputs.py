"""The distribution of every output, over all responses that have it."""

from typing import Any

from pipelines.folders.scored_corpus.summary import QUANTILES
from pipelines.results.html_report.responses import Responses

BINS = 50
_MOST = 40  # each is a chart of the page
# The bins lie between these quantiles; what is beyond counts for the outermost bins, so that one outlier hides nothing.
_OUTER = (0.005, 0.995)


def outputs(responses: Responses) -> list[dict[str, Any]]:
    """For each output the count, mean, quantiles and a histogram."""
    shown = [distribution(responses, name, sql) for name, sql in list(responses.numbers.items())[:_MOST]]
    return [output for output in shown if output["count"]]


def distribution(responses: Responses, name: str, sql: str, ends: tuple[float, float] | None = None) -> dict[str, Any]:
    """Count, mean and quantiles of an output, with the counts of bins between the `ends`; default: its outer quantiles."""
    levels = [*QUANTILES, *_OUTER]
    ((count, mean, quantiles),) = responses.query(
        f"select count({sql}), avg({sql}), quantile_cont({sql}, {levels}) from parts where isfinite({sql})"
    )
    if not count:
        return {"name": name, "count": 0}
    low, high = ends or quantiles[-2:]
    return {
        "name": name,
        "count": count,
        "mean": mean,
        "quantiles": quantiles[: len(QUANTILES)],
        "ends": (low, high),
        **_histogram(responses, sql, low, high),
    }


def _histogram(responses: Responses, sql: str, low: float, high: float) -> dict[str, list[float]]:
    # All alike: one bar in the middle of a chart, instead of bins without a width.
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / BINS or 1.0  # of numbers so large that a half more is the same number
    counts = dict(
        responses.query(
            f"select least(greatest(floor(({sql} - ?) / ?), 0), {BINS - 1})::integer, count(*) from parts "
            f"where isfinite({sql}) group by 1",
            [low, width],
        )
    )
    return {
        "centres": [low + (position + 0.5) * width for position in range(BINS)],
        "counts": [counts.get(position, 0) for position in range(BINS)],
    }
