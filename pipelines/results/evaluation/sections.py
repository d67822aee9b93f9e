"""Tables beside the figures, for a terminal and for Markdown: accuracy by margin, a judge's votes, two models compared."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actors.text.visible import markdown, markdown_table
from pipelines.results.evaluation.statistics.margins import MarginReport
from pipelines.results.evaluation.statistics.paired import Difference, PairedComparison
from pipelines.results.evaluation.statistics.votes import VoteReport


class Section(NamedTuple):
    """A table with a title, and sentences below it.

    All is text, so that a terminal, Markdown and HTML show the same digits; nothing is escaped yet.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str]

    def markdown(self) -> str:
        table = "\n".join(markdown_table(self.columns, self.rows))
        return "\n\n".join([f"## {markdown(self.title)}", table, *map(markdown, self.notes)]) + "\n"


def margin_section(report: MarginReport) -> Section:
    """How often the labels' response is ahead, by the difference of the rewards."""
    rows = [
        (
            f"{entry.low:.4g} to {entry.high:.4g}",
            f"{entry.accuracy:.1%}",
            f"{entry.accuracy_low:.1%} to {entry.accuracy_high:.1%}",
            f"{entry.expected:.1%}",
            f"{entry.comparisons:,}",
        )
        for entry in report.bins
    ]
    columns = ("difference of rewards", "right", "95 % interval", "sigmoid says", "comparisons")
    if report.ece is None:
        note = f"Calibration error (ECE): undefined, as all {report.comparisons:,} comparisons are of equal rewards."
    else:
        note = (
            f"Calibration error (ECE) {report.ece:.3f} over {report.comparisons:,} comparisons; rewards whose sigmoid is "
            f"right would have about {report.ece_by_chance:.3f}."
        )
    return Section("Accuracy by margin", columns, rows, [note])


def vote_section(report: VoteReport) -> Section:
    """Accuracy by number of votes, and how votes agree."""
    rows = [
        (share.name, f"{share.value:.1%}", f"{share.low:.1%} to {share.high:.1%}", f"{share.n:,}")
        for share in (*report.curve, *report.agreement)
    ]
    left_out = f" {report.left_out:,} items with fewer readable votes are left out." if report.left_out else ""
    return Section(
        f"Votes of the judge, {report.votes} an item",
        ("share", "value", "95 % interval", "items"),
        rows,
        [f"Fewer votes are drawn from those that are there; a tie counts half.{left_out}"],
    )


def paired_sections(
    comparison: PairedComparison, readings: Sequence[Mapping[str, str]] = (), about: Sequence[str] = ()
) -> list[Section]:
    """Differences of figures, and items for which one of two models has more credit than the other.

    Of one model by its card and as published, `readings` are its figures in these two, as text by name, and `about` says
    how it was run. They stand beside the differences.
    """
    first, second, benchmark = comparison.first, comparison.second, comparison.benchmark
    differences = [
        (entry.name, *(figures.get(entry.name, "") for figures in readings), *_points(entry))
        for entry in comparison.differences
    ]
    columns: tuple[str, ...]
    if readings:
        title = f"{second} on {benchmark}: by its card, and as published"
        columns = ("measure", "ours", "as published", "points", "95 % interval")
        note = " ".join([*about, "Points are as published less ours, over the items that both graded."])
    else:
        title, columns = f"{first} less {second} on {benchmark}", ("measure", "points", "95 % interval")
        note = f"Over the items that both graded, the same ones for both. {comparison.unmatched}".rstrip()
    splits = [
        (split.subset, f"{split.items:,}", f"{split.first_ahead:,}", f"{split.second_ahead:,}", f"{split.p:.3g}")
        for split in comparison.splits
    ]
    overall = comparison.splits[0]
    differing = overall.first_ahead + overall.second_ahead
    return [
        Section(title, columns, differences, [note]),
        Section(
            f"{first} (first) and {second} (second), item by item",
            ("items", "both graded", "first ahead", "second ahead", "p"),
            splits,
            [f"{differing:,} of {overall.items:,} items differ; with --out, disagreements.parquet has them."],
        ),
    ]


def _points(difference: Difference) -> tuple[str, str]:
    # + 0.0 makes -0.0 a 0.0.
    points, low, high = (100 * value + 0.0 for value in (difference.value, difference.low, difference.high))
    return f"{points:+.2f}", f"{low:+.2f} to {high:+.2f}"
