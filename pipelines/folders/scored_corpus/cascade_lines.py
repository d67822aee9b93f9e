"""What the summary of a cascade says, for its end and for the report."""

from collections.abc import Iterator, Mapping
from typing import Any


def cascade_lines(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The bound, each model's band and share of the rows, and the errors that a second slice shows, each with a title."""
    *stages, last = figures["stages"]
    rows, where = max(1, figures["rows"]), f"{last['name']} ({figures['where']})"
    missed = f"at most {figures['miss']:.3g} of those that it would keep are lost" if figures["miss"] else "none is lost"
    yield (
        "Bound",
        f"at most {figures['error']:.3g} of the kept responses wouldn't be kept by {where}, and {missed}; with confidence "
        f"{figures['confidence']:g}, over slices drawn at random",
    )
    for stage in stages:
        edges = [f"drops below {stage['low']:.6g}"] * (stage["low"] is not None)
        edges += [f"keeps from {stage['high']:.6g} on"] * (stage["high"] is not None)
        done = f"scored {stage['rows']:,} rows, and {' and '.join(edges) or 'settles nothing'}"
        if stage["sample"]:
            done += f", by a slice of {stage['sample']:,} responses, of which {stage['wanted']:,} are to be kept"
        yield stage["name"], done + (f" ({stage['why']})" if stage["why"] else "")
    yield last["name"], f"scored {last['rows']:,} of {figures['rows']:,} rows ({last['rows'] / rows:.1%}), slices included"
    if check := figures["check"]:
        share = _share(check["wrong"], check["kept"], check["error"])
        yield "Error in a slice not calibrated by", f"{share} kept responses wouldn't be kept by {last['name']}"
        yield (
            "Miss in it",
            f"{_share(check['lost'], check['wanted'], check['miss'])} that {last['name']} would keep are lost",
        )


def _share(count: int, of: int, bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{count:,} ({low:.2%} to {high:.2%}) of {of:,}"
