"""Blocks of every kind of file: each row has the same chance, and totals are within their bounds as often as they say."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.corpus.corpus_files import InputFile, find, limit_files
from pipelines.corpus.readers import RECORD
from pipelines.estimate import block_sampling
from pipelines.estimate.block_sampling import BlockSampler, Sample
from pipelines.estimate.intervals import Estimate, totals
from pipelines.estimate.tally import AMOUNTS, COUNTS, Tally
from tests.support.corpora import lines, write

ROW_BYTES, MOST_BYTES, TOO_LONG = 300.0, 2**20, 2000
KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "parquet")
QUICK = ("jsonl",)  # `make test-all` takes all kinds


def count(table: pa.Table) -> Tally:
    """In place of a tokenizer: a token for each letter of a row's text, unless there are too many."""
    tally = Tally()
    texts = (
        [json.loads(record)["text"] for record in table.column(RECORD).to_pylist() if record is not None]
        if RECORD in table.column_names
        else table.column("text").to_pylist()
    )
    for text in texts:
        tally.rows, tally.responses, tally.prompts = tally.rows + 1, tally.responses + 1, tally.prompts + 1
        if len(text) > TOO_LONG:
            tally.rejected += 1
            tally.reasons["too_long"] += 1
        else:
            tally.tokens, tally.read_tokens = tally.tokens + len(text), tally.read_tokens + len(text)
            tally.lengths[len(text)] += 1
            tally.longest = max(tally.longest, len(text))
    return tally


def corpus(folder: Path, kind: str, files: Sequence[Sequence[int]]) -> list[InputFile]:
    """A file for each list of lengths, with a row of each."""
    for number, lengths in enumerate(files):
        rows = [{"text": "x" * length} for length in lengths]
        path = folder / f"{number:03d}.{kind}"
        if kind == "parquet":
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=70)
        else:
            write(path, json.dumps(rows).encode() if kind == "json" else lines(rows))
    return find([str(folder)])


def skewed(rows: int, seed: int = 1) -> list[int]:
    """Heavy tails, and the longer ones towards the end: a tenth of the letters are in rows that are too long."""
    rng = np.random.default_rng(seed)
    return sorted(int(length) for length in np.minimum(rng.lognormal(5, 1.1, rows), 9000) + 1)


def looked(files: Sequence[InputFile], rows: int, seed: int, row_bytes: float = ROW_BYTES) -> Sample:
    return BlockSampler(count, MOST_BYTES, row_bytes, seed).sample(files, rows)


def truth(files: Sequence[Sequence[int]]) -> dict[str, int]:
    lengths = [length for own in files for length in own]
    taken = [length for length in lengths if length <= TOO_LONG]
    return {"tokens": sum(taken), "rows": len(lengths), "rejected": len(lengths) - len(taken)}


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_counted_once_if_all_are_asked_for(tmp_path: Path, kind: str) -> None:
    own = [skewed(300, 1), [], skewed(50, 2)]
    sample = looked(corpus(tmp_path, kind, own), 100_000, 0)
    found = totals(sample.strata, AMOUNTS, COUNTS)
    assert {name: found[name] for name in truth(own)} == {name: Estimate.exact(fact) for name, fact in truth(own).items()}
    assert sample.rows == 350
    assert sample.reasons == Counter(too_long=truth(own)["rejected"])
    assert sample.lengths == Counter(length for length in itertools.chain(*own) if length <= TOO_LONG)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in KINDS])
def test_totals_are_within_their_bounds(tmp_path: Path, kind: str) -> None:
    """And right on the average: a corpus of three unlike files, of which a sixth is looked at."""
    own = [skewed(900, 1), [40] * 800, skewed(300, 3)[::-1]]
    files, facts = corpus(tmp_path, kind, own), truth(own)
    found = [totals(looked(files, 320, seed).strata, AMOUNTS, COUNTS) for seed in range(50)]
    for name, fact in facts.items():
        values = np.array([one[name].value for one in found])
        assert np.mean([one[name].holds(fact) for one in found]) >= 0.9, name
        assert values.mean() == pytest.approx(fact, abs=3.5 * values.std() / np.sqrt(len(found)) + 1e-9), name
    assert not all(one["tokens"].is_exact for one in found)


def test_a_long_row_is_no_likelier_than_a_short_one(tmp_path: Path) -> None:
    """Of rows taken from wherever a random byte falls, four in five would be long."""
    own = [[20, 20, 20, 1000] * 250]
    files = corpus(tmp_path, "jsonl", own)
    seen: Counter[int] = Counter()
    for seed in range(60):
        sample = looked(files, 80, seed)
        for length, weight in sample.lengths.items():
            seen[length] += round(weight / (sample.strata[0].blocks / sample.strata[0].sampled))
    assert seen[1000] / seen.total() == pytest.approx(0.25, abs=0.02)


@pytest.mark.long
def test_rows_longer_than_a_block_leave_blocks_without_one(tmp_path: Path) -> None:
    own = [[1500] * 40 + [5] * 400]
    files = corpus(tmp_path, "jsonl", own)
    found = [totals(looked(files, 64, seed, row_bytes=20.0).strata, AMOUNTS, COUNTS) for seed in range(200)]
    for name in ("tokens", "rows"):
        values = np.array([one[name].value for one in found])
        assert values.mean() == pytest.approx(truth(own)[name], abs=3.5 * values.std() / np.sqrt(200)), name


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_the_first_rows_being_unlike_the_rest_makes_no_more_work(tmp_path: Path, kind: str) -> None:
    """Where a file begins with long rows, blocks that are cut by these hold very many of the short ones."""
    own = [[6000] * 20 + [10] * 20_000]
    sample = looked(corpus(tmp_path, kind, own), 400, 3, row_bytes=6000.0)
    assert sample.rows <= 4 * 400 + 400
    assert totals(sample.strata, AMOUNTS, COUNTS)["rows"].holds(20_020)


@pytest.mark.long
def test_many_files_that_must_be_read_through_are_drawn_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(4)
    own = [skewed(rng.choice([5, 20, 120]), seed) for seed in range(60)]
    files, facts = corpus(tmp_path, "jsonl.gz", own), truth(own)
    monkeypatch.setattr(block_sampling, "_READ_THROUGH", sum(file.size for file in files) // 2)
    samples = [looked(files, 400, seed) for seed in range(100)]
    assert all(stratum.replacement for sample in samples for stratum in sample.strata)
    found = [totals(sample.strata, AMOUNTS, COUNTS) for sample in samples]
    for name, fact in facts.items():
        values = np.array([one[name].value for one in found])
        assert np.mean([one[name].holds(fact) for one in found]) >= 0.9, name
        assert values.mean() == pytest.approx(fact, abs=3.5 * values.std() / np.sqrt(len(found))), name
    weighed = np.mean([sum(sample.lengths.values()) for sample in samples])
    assert weighed == pytest.approx(facts["rows"] - facts["rejected"], rel=0.1)


def test_a_limit_is_the_end_of_the_file(tmp_path: Path) -> None:
    own = [skewed(200), [7] * 100]
    files = corpus(tmp_path, "json", own)
    found = totals(looked(limit_files(files, [50, 0]), 1000, 0).strata, AMOUNTS, COUNTS)
    assert found["rows"] == Estimate.exact(50)
    assert found["tokens"] == Estimate.exact(sum(own[0][:50]))


def test_the_same_seed_draws_the_same_rows(tmp_path: Path) -> None:
    files = corpus(tmp_path, "jsonl", [skewed(900)])
    first, again, other = (looked(files, 100, seed) for seed in (1, 1, 2))
    assert first.lengths == again.lengths
    assert first.lengths != other.lengths


def test_an_empty_corpus_has_nothing(tmp_path: Path) -> None:
    sample = looked(corpus(tmp_path, "jsonl", [[]]), 100, 0)
    assert totals(sample.strata, AMOUNTS, COUNTS)["tokens"] == Estimate.exact(0)


def test_blocks_of_parquet_go_over_the_borders_of_row_groups(tmp_path: Path) -> None:
    """70 is no multiple of 4: a block in two groups has its rows from both."""
    files = corpus(tmp_path, "parquet", [[1] * 1000])
    sample = looked(files, 1000, 0)
    (stratum,) = sample.strata
    assert stratum.values[:, AMOUNTS.index("rows")].tolist() == [4.0] * 250
