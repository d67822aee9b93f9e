"""How counts and long lists are written in messages and reports."""

from collections.abc import Mapping, Sequence


def number_of(count: int, noun: str) -> str:
    """A count of things: `1 file`, `2,000 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counts_text(counts: Mapping[str, float]) -> str:
    """Counts by name: `3 too_long, 1 empty`."""
    return ", ".join(f"{count:,.0f} {name}" for name, count in counts.items())


def first_of(names: Sequence[str], most: int) -> str:
    """The first names of a list, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def shown_lines(lines: Sequence[str], most: int) -> list[str]:
    """The first lines of a list for a report, indented, and how many more `--json` has."""
    more = len(lines) - most
    return [f"  {line}" for line in lines[:most]] + ([f"  and {more:,} more; --json has all of them"] if more > 0 else [])
