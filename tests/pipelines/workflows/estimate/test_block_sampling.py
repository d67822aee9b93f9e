"""Blocks of every kind of file: each row has the same chance, and totals are within their bounds as often as they say."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import SettingsError
from pipelines.data.corpus.corpus_files import InputFile, limit_files
from pipelines.data.corpus.readers import RECORD
from pipelines.workflows.estimate import block_sampling
from pipelines.workflows.estimate.block_sampling import BlockSampler, Sample
from pipelines.workflows.estimate.intervals import Estimate, totals
from pipelines.workflows.estimate.tally import QUANTITIES, Tally
from tests.support.corpora import find, lines, write
from tests.support.estimates import holds

ROW_BYTES, MOST_BYTES, TOO_LONG = 300.0, 2**20, 2000
KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "parquet")
QUICK = ("jsonl", "parquet")  # `make test-all` takes all kinds
TRIALS = 200


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


def sampled(files: Sequence[InputFile], rows: int, seed: int, row_bytes: float = ROW_BYTES) -> Sample:
    return BlockSampler(count, MOST_BYTES, row_bytes, seed).sample(files, rows)


def estimated(sample: Sample, seed: int = 0) -> dict[str, Estimate]:
    return totals(sample.parts, sample.seen.values, seed)


def truth(lengths_by_file: Sequence[Sequence[int]]) -> dict[str, int]:
    lengths = list(itertools.chain(*lengths_by_file))
    accepted = [length for length in lengths if length <= TOO_LONG]
    return {"tokens": sum(accepted), "rows": len(lengths), "rejected": len(lengths) - len(accepted)}


def check_trials(files: Sequence[InputFile], rows: int, facts: dict[str, int], trials: int = TRIALS) -> None:
    """The truth is within the bounds of at least 90 % of the trials, and the estimates are right on the average."""
    estimates = [estimated(sampled(files, rows, seed), seed) for seed in range(trials)]
    assert not all(trial["tokens"].is_exact for trial in estimates)
    for name, fact in facts.items():
        values = np.array([trial[name].value for trial in estimates])
        coverage = np.mean([holds(trial[name], fact) for trial in estimates])
        assert coverage >= 0.9, (name, coverage)
        # A ratio is unbiased but for a term of the order of 1 / units.
        assert values.mean() == pytest.approx(fact, rel=0.01, abs=3.5 * values.std() / np.sqrt(trials)), name


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_counted_once_if_all_are_asked_for(tmp_path: Path, kind: str) -> None:
    lengths = [skewed(300, 1), [], skewed(50, 2)]
    sample = sampled(corpus(tmp_path, kind, lengths), 100_000, 0)
    for name, fact in truth(lengths).items():
        assert estimated(sample)[name] == Estimate.exact(fact)
    assert sample.seen.rows == 350
    assert sample.reasons == Counter(too_long=truth(lengths)["rejected"])
    assert sample.lengths == Counter(length for length in itertools.chain(*lengths) if length <= TOO_LONG)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in KINDS])
def test_totals_are_within_their_bounds(tmp_path: Path, kind: str) -> None:
    """Of a corpus of three unlike files, of which a sixth is read."""
    lengths = [skewed(900, 1), [40] * 800, skewed(300, 3)[::-1]]
    check_trials(corpus(tmp_path, kind, lengths), 320, truth(lengths))


@pytest.mark.long
def test_totals_of_a_corpus_of_several_kinds_are_within_their_bounds(tmp_path: Path) -> None:
    lengths = {kind: [skewed(400, number), [40 * number + 20] * 300] for number, kind in enumerate(KINDS)}
    for kind, lengths_by_file in lengths.items():
        corpus(tmp_path / kind, kind, lengths_by_file)
    check_trials(find([str(tmp_path)]), 500, truth(list(itertools.chain(*lengths.values()))))


@pytest.mark.long
def test_totals_of_many_small_files_are_within_their_bounds(tmp_path: Path) -> None:
    lengths = [[length] for length in skewed(600)]
    check_trials(corpus(tmp_path, "jsonl", lengths), 200, truth(lengths))


@pytest.mark.parametrize("kind", QUICK)
def test_the_totals_of_a_corpus_of_which_files_are_a_sample_are_within_their_bounds(tmp_path: Path, kind: str) -> None:
    """A tenth of its rows lies in the files, all of which is read; other tenths would have given other totals."""
    rows, random = skewed(6000), Random(7)
    estimates = []
    for trial in range(40):
        lengths = random.sample(rows, 600)
        files = corpus(tmp_path / str(trial), kind, [lengths[:400], lengths[400:]])
        sample = sampled(files, 100_000, trial).of_more_rows(len(rows))
        estimates.append(estimated(sample, trial))
        assert tuple(estimates[-1]["rows"]) == pytest.approx((len(rows),) * 3, rel=1e-12)
    for name, fact in truth([rows]).items():
        assert np.mean([holds(trial[name], fact) for trial in estimates]) >= 0.9, name
        assert np.mean([trial[name].value for trial in estimates]) == pytest.approx(fact, rel=0.05), name
    with pytest.raises(SettingsError, match="--rows 599 is of a corpus of which INPUTS are a part, and these hold 600 rows"):
        sampled(files, 100_000, 0).of_more_rows(599)


def test_a_long_row_is_no_likelier_than_a_short_one(tmp_path: Path) -> None:
    """Of rows taken from wherever a random byte falls, four in five would be long."""
    files = corpus(tmp_path, "jsonl", [[20, 20, 20, 1000] * 250])
    seen: Counter[int] = Counter()
    for seed in range(60):
        seen.update(sampled(files, 80, seed).seen.lengths)
    assert seen[1000] / seen.total() == pytest.approx(0.25, abs=0.02)


@pytest.mark.long
def test_rows_longer_than_a_block_leave_blocks_without_one(tmp_path: Path) -> None:
    lengths = [[1500] * 40 + [5] * 400]
    facts = truth(lengths)
    check_trials(corpus(tmp_path, "jsonl", lengths), 64, {name: facts[name] for name in ("tokens", "rows")})


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_the_first_rows_being_unlike_the_rest_makes_no_more_work(tmp_path: Path, kind: str) -> None:
    """Where a file begins with long rows, blocks that are cut by these hold very many of the short ones."""
    sample = sampled(corpus(tmp_path, kind, [[6000] * 20 + [10] * 20_000]), 400, 3, row_bytes=6000.0)
    assert sample.seen.rows <= 4 * 400 + 400
    assert holds(estimated(sample)["rows"], 20_020)


def test_files_that_begin_with_short_rows_are_sampled_by_their_long_ones(tmp_path: Path) -> None:
    """Blocks that are cut by the short ones would hold next to none of the long ones: some 20 of 2,000 rows."""
    files = corpus(tmp_path, "jsonl", [[10] * 20 + [1900] * 130] * 20)
    sample = sampled(files, 800, 3, row_bytes=22.0)
    assert 400 <= sample.seen.rows <= 1600
    assert holds(estimated(sample)["rows"], 3000)


@pytest.mark.long
def test_of_many_large_files_that_must_be_read_through_some_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(4)
    lengths = [skewed(int(random.choice([5, 20, 120])), seed) for seed in range(60)]
    files = corpus(tmp_path, "jsonl.gz", lengths)
    largest = max(file.size for file in files)
    monkeypatch.setattr(block_sampling, "_READ_THROUGH", 20 * largest)
    sample = sampled(files, 400, 0)
    assert len(sample.parts) == 1
    assert 16 <= len(sample.parts[0].sizes) < 60
    assert not sample.beginnings
    check_trials(files, 400, truth(lengths))
    weighed = np.mean([sum(sampled(files, 400, seed).lengths.values()) for seed in range(20)])
    assert weighed == pytest.approx(truth(lengths)["rows"] - truth(lengths)["rejected"], rel=0.1)


@pytest.mark.parametrize("kind", ["jsonl.gz", "json"])
def test_of_a_large_file_that_must_be_read_through_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The rest is taken to be like it, which is said."""
    lengths = [np.random.default_rng(1).permutation(skewed(3000)).tolist()]
    (file,) = corpus(tmp_path, kind, lengths)
    monkeypatch.setattr(block_sampling, "_READ_THROUGH", file.size // 3)
    sample = sampled([file], 300, 0)
    assert sample.beginnings == [file.name]
    rows = estimated(sample)["rows"]
    assert rows.value == pytest.approx(3000, rel=0.15)
    assert not rows.is_exact
    limited = sampled(limit_files([file], [10 if kind == "json" else 1000]), 300, 0)
    assert not limited.beginnings


def test_a_limit_is_the_end_of_the_file(tmp_path: Path) -> None:
    lengths = [skewed(200), [7] * 100]
    files = corpus(tmp_path, "json", lengths)
    estimates = estimated(sampled(limit_files(files, [50, 0]), 1000, 0))
    assert estimates["rows"] == Estimate.exact(50)
    assert estimates["tokens"] == Estimate.exact(sum(lengths[0][:50]))


def test_the_same_seed_draws_the_same_rows(tmp_path: Path) -> None:
    files = corpus(tmp_path, "jsonl", [skewed(900)])
    first, again, other = (sampled(files, 100, seed) for seed in (1, 1, 2))
    assert first.lengths == again.lengths
    assert estimated(first) == estimated(again)
    assert first.lengths != other.lengths


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "parquet"])
def test_an_empty_corpus_has_nothing(tmp_path: Path, kind: str) -> None:
    sample = sampled(corpus(tmp_path, kind, [[]]), 100, 0)
    assert estimated(sample)["tokens"] == Estimate.exact(0)


def test_blocks_of_parquet_go_over_the_borders_of_row_groups(tmp_path: Path) -> None:
    """70 is no multiple of 4: a block in two groups has its rows from both."""
    sample = sampled(corpus(tmp_path, "parquet", [[1] * 1000]), 1000, 0)
    (part,) = sample.parts
    assert part.values[:, QUANTITIES.index("rows")].tolist() == [4.0] * 250
