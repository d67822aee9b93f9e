"""The summary of a run: counts by status and reason, and quantiles of every score, to choose a threshold by.

All figures are one SQL statement in DuckDB, which reads only the columns that it needs, once. Counts are exact. Quantiles
are exact up to `_EXACT` scored responses; beyond that DuckDB keeps a sketch (t-digest) instead of the rewards, whose
quantiles are within half a percent of rank.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import AuditError, NothingScored, SourceError
from actors.records import Reason, Status
from actors.text.counted import counts_text
from actors.text.readable import Readable
from actors.verdicts.standing import BOTH_ORDERS, FIRST_PREFERRED, ORDER_DECIDED
from pipelines.folders.run_folder.columns import (
    COMPLETION_TOKENS,
    PROMPT_HASH,
    PROMPT_TOKENS,
    REASON,
    RESPONSE,
    REWARD,
    ROW,
    SCORES,
    SHAPE,
    STATUS,
    TEXT,
    TRUNCATED,
    Columns,
)
from pipelines.folders.run_folder.examples import Example
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.parts import Parts, read_tables, unreadable
from pipelines.folders.scored_corpus.databases import connect
from pipelines.folders.scored_corpus.label_agreement import label_agreement
from pipelines.folders.scored_corpus.part_files import check_contents, read_unordered
from pipelines.folders.scored_corpus.unscored import first_examples, unscored_lines

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_QUANTILE_NAMES = ("min", "p5", "p25", "median", "p75", "p95", "max")

_COUNTS = (BOTH_ORDERS, ORDER_DECIDED, FIRST_PREFERRED)  # outputs that are counts: they are summed, and have no quantiles
# 100,000 numbers take about a megabyte; of fewer than twenty, the sketch can give quantiles above the maximum
_EXACT = 100_000
# Responses up to which repeats are counted: that reads all texts, a gigabyte where they have 1 kB each.
_LOOKED_AT_FOR_REPEATS = 1_000_000


_SHAPE_THREADS = 8  # parts are read one by one for shapes, and in a store each is a request or two


@dataclass(frozen=True)
class Summary(Readable):
    """Counts, reasons and quantiles of a scored corpus.

    `quantiles` has one row per score that any response has, at `QUANTILES`; `flags` counts the responses for
    which a flag is true. For a judge that saw pairs in both orders, `orders` counts these pairs, those whose verdict changed
    with the order, and those of them won by the first position.
    """

    rows: int
    responses: int
    scored: int
    rejected: int
    failed: int
    truncated: int
    prompt_tokens: int
    reasons: Mapping[str, int]
    quantiles: Mapping[str, tuple[float, ...]]
    flags: Mapping[str, int] = field(default_factory=dict)
    completion_tokens: int = 0
    orders: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, int] = field(default_factory=dict)
    """Of a mixed corpus the input rows of each shape, the most frequent first, without those of none or two."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    """How far rewards agree with the corpus' labels (`label_agreement`); empty if it has none."""
    repeats: int | None = None
    """Responses whose text equals that of an earlier response to an equal prompt; None if they weren't counted, as in a
    corpus of more than 1,000,000 responses, or without their texts."""
    work: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Time, engines and GPU-hours (`pipelines.run.runtime.run_timing`)."""
    endpoint: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What an endpoint was asked for in all sessions: requests, tokens, cost, `system_fingerprint`s (`endpoint_notes`)."""
    left_out: Sequence[str] = field(default=(), compare=False)
    """Files in the input's folders that weren't read."""
    examples: Sequence[Example] = field(default=(), compare=False)
    """The first responses of each reason, with what was wrong or a judge's text; and the first texts that it was read in."""

    def check_scored(self) -> None:
        """Raise `NothingScored` if there are responses and none has a reward, with the counts of reasons and examples."""
        if self.responses and not self.scored:
            reasons = counts_text(self.reasons)
            what = f"nothing was scored: of {self.responses:,} responses none has a reward ({reasons})"
            raise NothingScored("\n".join([what, *unscored_lines(self.reasons, self.examples)]))

    def figures(self) -> dict[str, float]:
        # For loggers, whose charts are of single numbers: `scored`, `reasons/too_long`, `reward/median`.
        counts = ("rows", "responses", "scored", "rejected", "failed", "truncated", "prompt_tokens", "completion_tokens")
        return {
            **{name: getattr(self, name) for name in counts},
            **{f"reasons/{reason}": count for reason, count in self.reasons.items()},
            **{
                f"{name}/{quantile}": value
                for name, values in self.quantiles.items()
                for quantile, value in zip(_QUANTILE_NAMES, values, strict=True)
            },
        }

    @classmethod
    def of_json(cls, saved: Mapping[str, Any]) -> "Summary":
        values = {each.name: saved[each.name] for each in fields(cls) if each.name in saved}
        quantiles = {name: tuple(row) for name, row in saved["quantiles"].items()}
        return cls(
            **{**values, "quantiles": quantiles, "examples": [Example(**each) for each in values.get("examples", ())]}
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def quantile_title(quantile: float) -> str:
    """The title of a quantile in tables: min, 25%, median, max."""
    return {0.0: "min", 0.5: "median", 1.0: "max"}.get(quantile, f"{quantile:.0%}")


def summarise(parts: Parts, columns: Columns, counts: Counts) -> Summary:
    """Summarise the parts, whose names say `counts`.

    Raises `AuditError` if their rows give other counts, and `SourceError` if a part can't be read.
    """
    if not counts.responses:
        return Summary(counts.rows, 0, 0, 0, 0, 0, 0, {}, {})
    figures = _read_figures(parts, columns, counts)
    # The names of the parts were proven to tile the input; this proves that the rows inside are those that the names count.
    stored = Counts(counts.rows, *(figures[f"status {status}"] for status in Counts._fields[1:]))
    if stored != counts:
        raise AuditError(f"the parts' names say {counts}, and they hold {stored}")
    labels, orders = {}, {}
    if figures["is_labelled"]:
        with connected(parts, columns, [ROW, PROMPT_HASH, RESPONSE, REWARD]) as connection:
            labels = label_agreement(connection, columns, _quantile(counts.scored))
    if BOTH_ORDERS in columns.outputs:
        with connected(parts, columns, [SCORES]) as connection:
            # A statement of its own, as a table of parts can be read once.
            orders = order_counts(connection, columns)
    reasons = {reason.value: count for reason in Reason if (count := figures[f"reason {reason}"])}
    outputs = {name: (figures[f"ends {name}"], figures[f"inner {name}"]) for name in number_columns(columns)}
    return Summary(
        **counts._asdict(),
        responses=counts.responses,
        truncated=figures["truncated"],
        prompt_tokens=int(figures["prompt_tokens"] or 0),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        quantiles={name: (low, *inner, high) for name, ((low, high), inner) in outputs.items() if low is not None},
        flags={name: figures[f"flag {name}"] for name in columns.flags},
        completion_tokens=int(figures["completion_tokens"] or 0),
        orders=orders,
        shapes=count_shapes(parts, columns) if columns.mixed else {},
        labels=labels,
        repeats=figures["repeats"],
        examples=first_examples(parts),
    )


def _read_figures(parts: Parts, columns: Columns, counts: Counts) -> dict[str, Any]:
    # All figures by one statement: in a store, each statement over the parts would be a request or two for each part.
    numbers, quantile = number_columns(columns), _quantile(counts.scored)
    inner = ", ".join(map(str, QUANTILES[1:-1]))
    has_repeats = columns.text and counts.responses <= _LOOKED_AT_FOR_REPEATS
    status, reason = f'"{columns.prefix}{STATUS}"', f'"{columns.prefix}{REASON}"'
    figures = {
        # Not `histogram`: beside other aggregates it keeps 12 kB for each batch of rows, a gigabyte of 100,000 parts.
        **{f"status {each}": f"count(*) filter ({status} = '{each}')" for each in Status},
        **{f"reason {each}": f"count(*) filter ({reason} = '{each}')" for each in Reason},
        "truncated": f'count(*) filter ("{columns.prefix}{TRUNCATED}")',
        "prompt_tokens": f'sum("{columns.prefix}{PROMPT_TOKENS}")',
        "completion_tokens": f'sum("{columns.prefix}{COMPLETION_TOKENS}")' if columns.votes else "0",
        "is_labelled": f"""bool_or("{columns.prefix}{RESPONSE}" = 'chosen')""",
        "repeats": _repeats(columns) if has_repeats else "null",
        **{f"flag {name}": f'count(*) filter ("{columns.prefix}{name}")' for name in columns.flags},
        **{f"ends {name}": f"[min({number}), max({number})]" for name, number in numbers.items()},
        **{f"inner {name}": f"{quantile}({number}, [{inner}])" for name, number in numbers.items()},
    }
    names = [
        STATUS, REASON, TRUNCATED, PROMPT_TOKENS, RESPONSE, REWARD, *columns.flags,
        *([COMPLETION_TOKENS] if columns.votes else []),
        *([SCORES] if len(columns.outputs) > 1 else []),
        *([PROMPT_HASH, TEXT] if has_repeats else []),
    ]  # fmt: skip
    with connected(parts, columns, names) as connection:
        values = _only_row(connection, f"select {', '.join(figures.values())} from parts")
    return dict(zip(figures, values, strict=True))


def _repeats(columns: Columns) -> str:
    # SQL that counts the responses that repeat an earlier text to an equal prompt.
    # Prompt and text are told apart by a hash of 64 bits: of a million different ones, two have the same hash in 3 of 100
    # million corpora.
    prompt, text = f'"{columns.prefix}{PROMPT_HASH}"', f'"{columns.prefix}{TEXT}"'
    with_text = f"filter ({prompt} is not null and {text} is not null)"
    return f"count(*) {with_text} - count(distinct hash({prompt}, {text})) {with_text}"


def _quantile(scored: int) -> str:
    return "quantile_cont" if scored <= _EXACT else "approx_quantile"


def number_columns(columns: Columns) -> dict[str, str]:
    """The outputs that have quantiles, by name, each as SQL: the reward, and the named scores if there are several.

    Of a single output the reward is that output, or a multiple of it, so it has no row of its own.
    """
    numbers = {"reward": f'"{columns.prefix}{REWARD}"'}
    if len(columns.outputs) > 1:
        shown = (name for name in columns.outputs if name not in _COUNTS)
        numbers |= {f"scores.{name}": f'"{columns.prefix}{SCORES}"."{name}"' for name in shown}
    return numbers


@contextmanager
def connected(parts: Parts, columns: Columns, names: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a table `parts` of some of our columns of all parts, which a single statement may name, once.

    `names` are without the prefix. Raises `SourceError`, naming the part, if one can't be read.
    """
    schema = pa.schema([columns.ours.field(columns.prefix + name) for name in names])
    with connect() as connection, readable(parts):
        connection.register("parts", read_unordered(parts, schema))
        yield connection


@contextmanager
def readable(parts: Parts) -> Iterator[None]:
    """Turn DuckDB's errors in the block into `SourceError`, naming the part that can't be read, which DuckDB doesn't.

    DuckDB reports an error of Arrow's reader as text alone, without the path.
    """
    try:
        yield
    except duckdb.Error as error:
        refuse_damaged(parts, error)
        raise SourceError(f"the parts in {parts.folder} can't be read: {error}") from error


def refuse_damaged(parts: Parts, error: duckdb.Error) -> None:
    """Raise `SourceError` for the part that DuckDB couldn't read, which its error doesn't name; return if all are whole."""
    for checked in check_contents(parts):
        if checked.problem is not None:
            raise unreadable(parts.path(checked.part), checked.problem) from error


def order_counts(connection: Any, columns: Columns) -> dict[str, int]:
    """Counts of pairs. Both responses of a pair count it, hence the half; with only one reward it counts half a pair.

    Keys are `pairs`, `decided` (the order alone decided) and `first` (of those, for the response shown first).
    """
    scores = f'"{columns.prefix}{SCORES}"'
    counts = _only_row(connection, f"select {', '.join(f'sum({scores}.{name})' for name in _COUNTS)} from parts")
    return {name: round((count or 0) / 2) for name, count in zip(("pairs", "decided", "first"), counts, strict=True)}


def _only_row(connection: Any, statement: str) -> tuple[Any, ...]:
    (row,) = connection.execute(statement).fetchall()  # to its end, or the connection takes no other statement
    return tuple(row)


def count_shapes(parts: Parts, columns: Columns) -> dict[str, int]:
    """The input rows of each shape, the most frequent first. Raises `SourceError` if a part can't be read."""
    row, shape = columns.prefix + ROW, columns.prefix + SHAPE
    with ThreadPoolExecutor(_SHAPE_THREADS) as threads:
        by_part = threads.map(lambda part: _shapes_in(parts.path(part), row, shape), parts.listing())
        counts = sum(by_part, Counter[str]())
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _shapes_in(path: str, row: str, shape: str) -> Counter[str]:
    # The rows of one part, which holds each of its rows whole: the responses to a row are neighbours, and the first counts.
    # In SQL, `count(distinct row)` would hold the names of all rows of the corpus in memory.
    counts: Counter[str] = Counter()
    last: str | None = None
    for table in read_tables(path, [row, shape]):
        rows, shapes = (column.combine_chunks() for column in table.columns)
        before = pa.concat_arrays([pa.array([last], rows.type), rows[:-1]])
        firsts = shapes.filter(pc.fill_null(pc.not_equal(rows, before), True)).drop_null()
        counts.update({entry["values"]: entry["counts"] for entry in pc.value_counts(firsts).to_pylist()})
        last = rows[-1].as_py()
    return counts
