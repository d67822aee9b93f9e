"""How a plan's numbers are shown: bounds look the same only where they are."""

from pipelines.cli.plan_report import _decimals, _durations, _whole
from pipelines.workflows.estimate.intervals import Estimate


def test_bounds_that_differ_look_different_and_no_number_looks_like_nothing() -> None:
    cases: list[tuple[object, Estimate, list[str]]] = [
        (_whole, Estimate(40.0, 39.9, 40.2), ["40", "39", "41"]),
        (_whole, Estimate(1e6, 1e6 - 1e-7, 1e6 + 1e-7), ["1,000,000", "1,000,000", "1,000,000"]),
        (_decimals, Estimate(0.107, 0.1068, 0.1072), ["0.1070", "0.1068", "0.1072"]),
        (_decimals, Estimate(12.5, 12.5, 12.5), ["12.50", "12.50", "12.50"]),
        (_decimals, Estimate(0.0007, 0.0007, 0.0007), ["0.001", "0.001", "0.001"]),
        (_decimals, Estimate(0, 0, 0), ["0.00", "0.00", "0.00"]),
        (_durations, Estimate(3600, 3590, 3610), ["1:00:00", "0:59:50", "1:00:10"]),
        (_durations, Estimate(4.26, 4.2, 4.3), ["4.26 s", "4.20 s", "4.30 s"]),
        (_durations, Estimate(0.2, 0.2, 0.2), ["0.20 s", "0.20 s", "0.20 s"]),
    ]
    for show, estimate, shown in cases:
        assert callable(show)
        assert show(estimate) == shown
