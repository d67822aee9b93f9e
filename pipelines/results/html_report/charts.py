"""The charts of the page as data: kind, values of both axes, and labels. The script draws them with the chart library."""

from collections.abc import Mapping, Sequence
from typing import Any

Chart = dict[str, Any]


def charts(shown: Mapping[str, Any]) -> dict[str, Chart]:
    """The charts by the ids of their places in the template."""
    by_place: dict[str, Chart] = {}
    for at, run in enumerate(shown.get("runs", ())):
        by_place |= {f"{at}-output-{place}": _histogram(output) for place, output in enumerate(run["outputs"])}
        if run["steps"]:
            by_place[f"{at}-steps"] = _lines(run["steps"]["places"], run["steps"]["means"], "step", "mean reward")
        if (sampling := run["sampling"]) is not None:
            if sampling["lengths"]["count"]:
                by_place[f"{at}-lengths"] = _histogram(sampling["lengths"])
            if sampling["best"]:
                by_place[f"{at}-best"] = _lines(
                    sampling["best"]["n"], sampling["best"]["means"], "candidates", "mean best reward"
                )
    if (pair := shown.get("comparison")) is not None:
        by_place["sides"] = _sides([side for side in pair["sides"] if side["count"]])
        if pair["common"]:
            by_place["pairs"] = _chart(
                "scatter", pair["points"][0], {"second": pair["points"][1]}, "reward in the first", "in the second"
            )
    for at, benchmark in enumerate(shown.get("evaluation") or ()):
        by_place |= _of_benchmark(at, benchmark)
    return by_place


def _of_benchmark(at: int, benchmark: Mapping[str, Any]) -> dict[str, Chart]:
    by_place = {f"benchmark-{at}": _intervals(benchmark)}
    for number, table in enumerate(benchmark["published"]):
        if table["rows"]:
            by_place[f"published-{at}-{number}"] = _intervals(table)
    if benchmark["margins"] is not None:
        by_place[f"margins-{at}"] = _intervals(benchmark["margins"], "tenth of the comparisons", "accuracy")
    if (votes := benchmark["votes"]) is not None:
        curves = _chart("lines", votes["counts"], {}, "votes", "accuracy")
        models = zip(votes["models"], votes["curves"], strict=True)  # two folders may have models of one name
        curves["series"] = [{"label": model, "values": values} for model, values in models]
        by_place[f"votes-{at}"] = curves
    if benchmark["differences"] is not None:
        by_place[f"differences-{at}"] = _intervals(benchmark["differences"], y_label="difference")
    return by_place


def _chart(kind: str, x: Sequence[float], series: Mapping[str, Sequence[Any]], x_label: str, y_label: str) -> Chart:
    lines = [{"label": label, "values": values} for label, values in series.items()]
    return {"kind": kind, "x": x, "series": lines, "xLabel": x_label, "yLabel": y_label}


def _histogram(output: Mapping[str, Any]) -> Chart:
    return _chart("bars", output["centres"], {"responses": output["counts"]}, output["name"], "responses")


def _lines(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str) -> Chart:
    return _chart("lines", x, {y_label: y}, x_label, y_label)


def _sides(sides: Sequence[Mapping[str, Any]]) -> Chart:
    """Shares of the scored responses, since the two may have different numbers of them."""
    series = {
        f"{at + 1}: {side['name']}": [count / side["count"] for count in side["counts"]] for at, side in enumerate(sides)
    }
    return _chart("lines", sides[0]["centres"] if sides else [], series, "reward", "share of scored")


def _intervals(table: Mapping[str, Any], x_label: str = "number of the measure", y_label: str = "value") -> Chart:
    """A place for each row of a table, and in it the models beside each other, each with its interval."""
    models = table["models"]
    step = 0.6 / max(1, len(models))
    x = [
        row + (model - (len(models) - 1) / 2) * step
        for row in range(1, len(table["rows"]) + 1)
        for model in range(len(models))
    ]
    series = []
    for at, model in enumerate(models):
        own_places = [
            figure if place == at else None for row in table["rows"] for place, figure in enumerate(row["figures"])
        ]
        series.append({
            "label": model,
            **{key: [figure and figure[name] for figure in own_places] for key, name in
               (("values", "value"), ("lows", "low"), ("highs", "high"))},
        })  # fmt: skip
    return {"kind": "intervals", "x": x, "series": series, "xLabel": x_label, "yLabel": y_label}
