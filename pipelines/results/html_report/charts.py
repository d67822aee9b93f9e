"""The charts of the page as data: kind, values of both axes, and labels. The script draws them with the chart library."""

from collections.abc import Mapping, Sequence
from typing import Any

Chart = dict[str, Any]


def lines(x: Sequence[float], series: Sequence[tuple[str, Sequence[Any]]], x_label: str, y_label: str) -> Chart:
    """A line for each label with its values. Two of them may have one label, as two folders may have models of one name."""
    return _chart("lines", x, series, x_label, y_label)


def histogram(output: Mapping[str, Any]) -> Chart:
    """Of a distribution: a bar for each of its bins."""
    return _chart("bars", output["centres"], [("responses", output["counts"])], output["name"], "responses")


def sides(distributions: Sequence[Mapping[str, Any]]) -> Chart:
    """Distributions over common bins, as shares of the scored responses, since each may have another number of them."""
    scored = [side for side in distributions if side["count"]]
    series = [
        (f"{index}: {side['name']}", [count / side["count"] for count in side["counts"]])
        for index, side in enumerate(scored, start=1)
    ]
    return lines(scored[0]["centres"] if scored else [], series, "reward", "share of scored")


def scatter(points: Sequence[Sequence[float]]) -> Chart:
    """The rewards of the same responses in two folders."""
    return _chart("scatter", points[0], [("second", points[1])], "reward in the first", "in the second")


def intervals(table: Mapping[str, Any]) -> Chart:
    """A place for each row of a table, and in it the columns beside each other, each with its interval."""
    models = table["columns"]
    step = 0.6 / max(1, len(models))  # rows are 1 apart, so that 0.4 stays free between two of them
    x = [
        row + (place - (len(models) - 1) / 2) * step
        for row in range(1, len(table["rows"]) + 1)
        for place in range(len(models))
    ]
    series = []
    for index, label in enumerate(models):
        # The library takes one x for all series: a model has null at the places of the others.
        figures = [figure if place == index else None for row in table["rows"] for place, figure in enumerate(row["cells"])]
        values, lows, highs = ([figure and getattr(figure, name) for figure in figures] for name in ("value", "low", "high"))
        series.append({"label": label, "values": values, "lows": lows, "highs": highs})
    return {"kind": "intervals", "x": x, "series": series, "xLabel": "number of the measure", "yLabel": "value"}


def _chart(kind: str, x: Sequence[float], series: Sequence[tuple[str, Sequence[Any]]], x_label: str, y_label: str) -> Chart:
    data = [{"label": label, "values": values} for label, values in series]
    return {"kind": kind, "x": x, "series": data, "xLabel": x_label, "yLabel": y_label}
