"""Grouping a whole corpus by prompt, and choosing its best: how does the time grow with rows and parts, and beside DuckDB?

Makes scored corpora of three sizes, ten times between neighbours, in parts of 1,000 rows: four responses to a prompt, in
four places of the corpus, 600 random characters each. Measures each command in a process of its own:

- `pairs`, beside DuckDB alone on two threads: the same columns, sorted by prompt into one file; and the same pairs, made of
  the records by one statement
- `filter --top-k 1` and `filter --top-fraction 0.1`
- `pairs` of one prompt with 100,000 responses of equal reward, and `choose` of them
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from actors.records import Message, Role, ScoreRequest
from bench._scored_corpora import write_scored
from bench._watch import Watch, start_ray
from pipelines.data.corpus.corpus_files import FileKind

SIZES = (10_000, 100_000, 1_000_000)
PART_ROWS = 1000
TEXT_BYTES = 300
"""Random bytes of a response: twice as many characters, as they are written in hex."""
EQUAL_ROWS = 100_000
COMMANDS: dict[str, dict[str, Any]] = {
    "pairs": {"trainer": "trl", "fake_ok": True},
    "choose": {"strategy": "best"},
    "filter --top-k 1": {"top_k": 1},
    "filter --top-fraction 0.1": {"top_fraction": 0.1},
}


def main(arguments: Sequence[str]) -> None:
    """`grouping`, or `grouping ROWS ROWS ...` for other sizes, and `grouping --parts PARTS` for parts of one row."""
    if arguments and arguments[0] == "--one":
        _run_in_process(arguments[1], json.loads(arguments[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments and arguments[0] == "--parts":
            _measure_parts(Path(folder), int(arguments[1]))
        else:
            _measure_sizes(Path(folder), tuple(map(int, arguments)) or SIZES)
            _measure_equal(Path(folder))


def _measure_sizes(folder: Path, sizes: Sequence[int]) -> None:
    for rows in sizes:
        _write(folder / str(rows), rows, rows // 4, PART_ROWS)
        sorting, pairing = (seconds_of(folder / str(rows)) for seconds_of in (_duckdb_seconds, _duckdb_pairs_seconds))
        print(f"{rows:>9,} rows: DuckDB alone sorts them in {sorting:,.1f} s, and makes the pairs in {pairing:,.1f} s")
    for name in COMMANDS:
        seconds = [_measure(folder, str(rows), name) for rows in sizes]
        if len(sizes) > 1:
            exponent = math.log(seconds[-1] / seconds[-2], sizes[-1] / sizes[-2])
            print(f"{name}: time grows with rows to the power of {exponent:.2f}, from {sizes[-2]:,} to {sizes[-1]:,}")


def _measure_equal(folder: Path) -> None:
    _write(folder / "equal", EQUAL_ROWS, 1, PART_ROWS, equal=True)
    for name in ("pairs", "choose"):
        _measure(folder, "equal", name)


def _measure_parts(folder: Path, parts: int) -> None:
    _write(folder / "parts", 100 * parts, 25 * parts, 100)
    print(f"{parts:,} parts: DuckDB alone {_duckdb_fraction_seconds(folder / 'parts'):,.1f} s for the best tenth")
    for name in ("filter --top-fraction 0.1", "filter --top-k 1"):
        _measure(folder, "parts", name)


def _write(folder: Path, rows: int, prompts: int, part_rows: int, *, equal: bool = False) -> None:
    generator = np.random.default_rng(rows)
    hashes = [ScoreRequest((Message(Role.USER, f"prompt {at}"),), ()).prompt_hash for at in range(prompts)]

    def record(number: int) -> bytes:
        response = generator.bytes(TEXT_BYTES).hex()
        return json.dumps({"prompt": f"prompt {number % prompts}", "response": response}).encode()

    write_scored(
        folder,
        np.zeros(rows) if equal else generator.normal(size=rows),
        pa.schema([("record", pa.large_binary())]),
        lambda numbers: {
            "record": pa.array(map(record, numbers), pa.large_binary()),
            "prompt_hash": [hashes[number % prompts] for number in numbers],
        },
        part_rows=part_rows,
        kind=FileKind.JSONL,
    )


def _duckdb_seconds(corpus: Path) -> float:
    """Of sorting the columns that `pairs` reads by prompt, and writing them."""
    query = (
        "copy (select record, row, response_name, prompt_hash, reward, scores "
        f"from '{corpus}/parts/*.parquet' order by prompt_hash) to '{corpus}-sorted.parquet'"
    )
    return _query_seconds(corpus, query)


def _duckdb_pairs_seconds(corpus: Path) -> float:
    """Of writing the best and the worst response to each prompt, without a look at whether a record is what was scored."""
    best = (
        "select decode(arg_max(record, reward)) as best, decode(arg_min(record, reward)) as worst, max(reward) as high, "
        f"min(reward) as low from '{corpus}/parts/*.parquet' group by prompt_hash"
    )
    messages = [
        f"[{{'role': '{role}', 'content': json_extract_string({record}, '$.{field}')}}] as {name}"
        for role, record, field, name in (
            ("user", "best", "prompt", "prompt"),
            ("assistant", "best", "response", "chosen"),
            ("assistant", "worst", "response", "rejected"),
        )
    ]
    columns = ", ".join(messages)
    query = (
        f"copy (select {columns}, high - low as margin, high as score_chosen, low as score_rejected from ({best}) "
        f"where high - low > 1e-5) to '{corpus}-pairs.json'"
    )
    return _query_seconds(corpus, query)


def _duckdb_fraction_seconds(corpus: Path) -> float:
    """Of finding the reward of the best tenth, and writing the records at or above it."""
    parts = f"'{corpus}/parts/*.parquet'"
    best = f"(select quantile_disc(reward, 0.9) from {parts})"
    return _query_seconds(corpus, f"copy (select record from {parts} where reward >= {best}) to '{corpus}-best.parquet'")


def _query_seconds(corpus: Path, query: str) -> float:
    with duckdb.connect(config={"threads": 2, "temp_directory": f"{corpus}-spilled"}) as connection:
        start = time.monotonic()
        connection.execute(query)
        return time.monotonic() - start


def _measure(folder: Path, corpus: str, name: str) -> float:
    """Run a command in a process of its own; returns its seconds."""
    settings = {"scored": str(folder / corpus), "output": str(folder / f"{corpus}-{name}"), **COMMANDS[name]}
    command = [sys.executable, "-m", "bench", "grouping", "--one", name, json.dumps(settings)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(f"{corpus:>9}, {name}: {figures['seconds']:,.1f} s, peak {figures['peak_mb']:,.0f} MB", flush=True)
    return float(figures["seconds"])


def _run_in_process(name: str, settings: dict[str, Any]) -> None:
    """Run a command once in this process, and print its seconds and peak memory as JSON."""
    import ray

    from pipelines.results.exports.export_commands import choose, make_pairs
    from pipelines.results.filtering.filter_corpus import keep
    from pipelines.settings.export_settings import ChooseSettings, PairSettings
    from pipelines.settings.filter_settings import FilterSettings

    start_ray()
    watch = Watch()
    start = time.monotonic()
    if name == "pairs":
        make_pairs(PairSettings(**settings))
    elif name == "choose":
        choose(ChooseSettings(**settings))
    else:
        keep(FilterSettings(**settings))
    seconds = time.monotonic() - start
    watch.stop()
    ray.shutdown()
    print(json.dumps({"seconds": seconds, "peak_mb": watch.peak_mb, "at_peak": watch.at_peak}))
