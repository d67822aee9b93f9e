"""A scored folder in, kept rows out: what is kept, as what, and what is refused."""

import base64
import datetime
import decimal
import json
import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.errors import ExpressionError, OutputError, RunStopped, SettingsError, SourceError
from actors.records import Reading, Reason, Score
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.readers import RECORD
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import Ticket, lease
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.json_lines import encode
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import FilterSummary, keep
from pipelines.results.filtering.filter_step import FilterStep, ResponseEvaluator, filter_group
from pipelines.results.filtering.json_splice import one_line, splice, wrap
from pipelines.results.filtering.writers import Target, writing
from pipelines.settings.filter_settings import FilterSettings
from tests.support.corpora import RUN
from tests.support.deletions import die_in_start
from tests.support.lost_leases import take_over

Response = tuple[str, Score]
Row = tuple[Any, Sequence[Response]]

NOTES = {"README.md", "_responses", "filter.json", "recipe.yaml"}
"""What lies beside the rows of a result."""

REWARD = 0.1 + 0.2  # 0.30000000000000004: comes back only if it is written in full


def scored(reward: float, correctness: float = 0.0) -> Score:
    return Score.scored(Reading(reward, {"helpfulness": reward, "correctness": correctness}), 7)


class Corpus:
    """A scored folder, written the way that scoring writes one."""

    def __init__(self, folder: Path, carried: pa.Schema, prefix: str = "", rows_in_file: int | None = None) -> None:
        self.folder = folder
        self.columns = Columns(carried, ("helpfulness", "correctness"), prefix)
        self.parts = Parts(str(folder), RUN)
        self.parts.create()
        self._extent = rows_in_file
        self.end = 0

    def part(self, rows: Sequence[Row], start: int | None = None) -> Part:
        """Commit a part. A row is its carried values (a record, or a dict), and its responses."""
        first = self.end if start is None else start
        self.end = max(self.end, first + len(rows))
        names = self.columns.carried.names
        values = [(item if isinstance(item, dict) else {names[0]: item}) for item, responses in rows for _ in responses]
        carried = pa.Table.from_pylist(values, self.columns.carried)
        ours = [
            (f"corpus:{first + index}", name, "hash", score)
            for index, (_, responses) in enumerate(rows)
            for name, score in responses
        ]
        part = Part(0, Range(first, first + len(rows)), Counts.of(len(rows), [score for *_, score in ours]), RUN)
        self.parts.commit(part, self.columns.table(carried, ours), {"assay": "{}"})
        return part

    def close(self) -> str:
        """Write the manifest; gives the folder."""
        kind = FileKind.JSONL if self.columns.is_json else FileKind.PARQUET
        extent = self.end if self._extent is None else self._extent
        file = InputFile(0, "corpus", "/corpus", kind, 1, "sha256-of-ends:0", extent)
        identity = {"model": "m", "prefix": self.columns.prefix}
        Manifest(identity, (file,), self.columns, {"assay": "0"}, run=RUN).write(str(self.folder))
        return str(self.folder)


JSON = pa.schema([("record", pa.large_binary()), ("topic", pa.string())])


def json_corpus(folder: Path, rows: Sequence[Row], prefix: str = "") -> str:
    corpus = Corpus(folder, JSON, prefix)
    corpus.part(rows)
    return corpus.close()


def row_of(record: bytes | None, score: Score) -> Row:
    return record, [("final", score)]


def run(folder: str, condition: str, output: Path | None = None, **more: Any) -> FilterSummary:
    return keep(FilterSettings(scored=folder, where=condition, output=output and str(output), **more))


def read_lines(folder: Path) -> list[bytes]:
    files = sorted(folder.glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]


def objects(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(folder)]


FOUR: list[Row] = [
    row_of(b'{"id": 0, "x": 1.10}', scored(REWARD, 3.0)),
    row_of(b'{"id": 1}', scored(-1.0, 3.0)),
    row_of(b'{"id": 2}', Score.rejected(Reason.TOO_LONG)),
    row_of(b'{"id": 3}', Score.failed(Reason.ENGINE_KILLER, 9)),
]


@pytest.fixture
def four(tmp_path: Path) -> str:
    return json_corpus(tmp_path / "scored", FOUR)


def test_without_an_output_it_counts(four: str) -> None:
    summary = run(four, "reward > 0 and scores.correctness > 2.5")
    assert summary == FilterSummary(4, 4, 1, 1, {"condition": 1, "failed: engine_killer": 1, "rejected: too_long": 1})
    assert json.loads(json.dumps(summary.as_json()))["not_kept"]["condition"] == 1
    assert sorted(os.listdir(four)) == ["ends", "manifest.json", "parts"]


def test_a_kept_row_is_its_record_with_our_fields(four: str, tmp_path: Path) -> None:
    run(four, "reward > 0", tmp_path / "kept")
    (line,) = read_lines(tmp_path / "kept")
    assert line.startswith(b'{"id": 0, "x": 1.10,"row":"corpus:0",')
    assert json.loads(line) == {
        "id": 0,
        "x": 1.1,
        "row": "corpus:0",
        "response_name": "final",
        "prompt_hash": "hash",
        "reward": REWARD,
        "scores": {"helpfulness": REWARD, "correctness": 3.0},
        "status": "scored",
        "reason": None,
        "prompt_tokens": 7,
        "truncated": False,
    }


def test_both_sides_are_written_with_what_was_done(four: str, tmp_path: Path) -> None:
    summary = run(four, "reward > 0", tmp_path / "kept", rest=str(tmp_path / "rest"))
    document = json.loads((tmp_path / "kept" / "filter.json").read_text())
    assert (document["description"], document["settings"]["scored"]) == ("where: reward > 0", four)
    assert document["source"]["identity"]["model"] == "m"
    assert document["source"]["fingerprint"].startswith("sha256:")
    assert document["summary"] == summary.as_json()
    rows = objects(tmp_path / "rest")
    assert [(row["id"], row["why"]) for row in rows] == [
        (1, "condition"),
        (2, "rejected: too_long"),
        (3, "failed: engine_killer"),
    ]
    assert rows[1]["reward"] is None
    assert rows[1]["scores"] is None
    assert [row["id"] for row in objects(tmp_path / "kept")] == [0]
    assert "why" not in objects(tmp_path / "kept")[0]
    assert run(four, "reward > 100", tmp_path / "none").kept == 0
    assert set(os.listdir(tmp_path / "none")) == NOTES


def test_several_responses_of_a_row_and_names_with_a_prefix(tmp_path: Path) -> None:
    row: Row = (b'{"reward": 5}', [("chosen", scored(2.0)), ("rejected[0]", scored(1.0)), ("rejected[1]", scored(-1.0))])
    folder = json_corpus(tmp_path / "scored", [row, row_of(b'{"p": 2}', scored(-1.0)), row], "judge_")
    summary = run(folder, "judge_reward > 0", tmp_path / "kept", rest=str(tmp_path / "rest"))
    assert (summary.rows, summary.responses, summary.kept, summary.kept_rows, summary.several) == (3, 7, 4, 2, True)
    rows = objects(tmp_path / "kept")
    assert [row["judge_response_name"] for row in rows] == ["chosen", "rejected[0]"] * 2
    assert (rows[0]["reward"], rows[0]["judge_reward"], rows[0]["judge_status"]) == (5, 2.0, "scored")
    assert [row["judge_why"] for row in objects(tmp_path / "rest")] == ["condition"] * 3


def test_original_bytes_once_per_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pipelines.folders.run_folder.part_content._BATCH_ROWS", 2
    )  # a row's responses then lie in two batches
    several: Row = (b'{"p":1,  "n": 1.50}  ', [("chosen", scored(2.0)), ("A", scored(-1.0)), ("rejected", scored(1.0))])
    folder = json_corpus(tmp_path / "scored", [several, row_of(b'{"p": 2}', scored(-1.0)), several])
    summary = run(folder, "reward > 0", tmp_path / "kept", fields=False, rest=str(tmp_path / "rest"))
    assert read_lines(tmp_path / "kept") == [b'{"p":1,  "n": 1.50}'] * 2
    assert summary.kept_rows == 2
    assert [row["why"] for row in objects(tmp_path / "rest")] == ["condition"] * 3


ODD: list[Row] = [
    row_of(b"{}", scored(1.0)),
    row_of(b'\xef\xbb\xbf{"a": 1 } \r', scored(1.0)),
    row_of(b'{\n  "a": "b\\nc",\r\n  "d": {}\n}', scored(1.0)),
    row_of(b'{"broken": ', Score.rejected(Reason.BROKEN_JSON)),
    row_of(b"\xff\xfe", Score.rejected(Reason.NOT_UTF8)),
    row_of(b"[1, 2]", Score.rejected(Reason.NOT_AN_OBJECT)),
    row_of(None, Score.rejected(Reason.RECORD_TOO_LARGE)),
    row_of(b"", Score.rejected(Reason.BROKEN_JSON)),
    row_of(b'{"reward": 3}', Score.rejected(Reason.COLUMN_COLLISION)),
    row_of(b'{"s": "\\ud800"}', Score.rejected(Reason.LONE_SURROGATE)),
]


def test_records_of_all_kinds_come_back(tmp_path: Path) -> None:
    folder = json_corpus(tmp_path / "scored", ODD)
    run(folder, "status = 'scored'", tmp_path / "kept", rest=str(tmp_path / "rest"))
    lines = read_lines(tmp_path / "kept")
    assert [line.split(b'"row"')[0] for line in lines] == [
        b"{",
        b'{"a": 1 ,',
        b'{   "a": "b\\nc",    "d": {} ,',
    ]
    assert json.loads(lines[2])["a"] == "b\nc"
    rows = objects(tmp_path / "rest")
    assert [(row.get("record"), row.get("record_base64")) for row in rows] == [
        ('{"broken": ', None),
        (None, base64.b64encode(b"\xff\xfe").decode()),
        ("[1, 2]", None),
        (None, None),
        ("", None),
        ('{"reward": 3}', None),
        (None, None),
    ]
    assert rows[3]["record"] is None
    assert rows[6]["s"] == "\ud800"
    assert [row["why"] for row in rows] == [f"rejected: {score.reason}" for _, ((_, score),) in ODD[3:]]
    assert run(folder, "status = 'rejected'", tmp_path / "plain", fields=False).kept_rows == 7
    assert read_lines(tmp_path / "plain") == [
        b'{"broken":',
        b"\xff\xfe",
        b"[1, 2]",
        b'{"record":null,"row":"corpus:6"}',
        b'{"record":"","row":"corpus:7"}',
        b'{"reward": 3}',
        b'{"s": "\\ud800"}',
    ]


def test_a_record_with_a_field_why_of_its_own(tmp_path: Path) -> None:
    records = [b'{"why": 1}', b'{"\\u0077hy": 1}', b'{"a": "why"}']
    folder = json_corpus(tmp_path / "scored", [row_of(record, scored(0.0)) for record in records])
    run(folder, "reward > 0", rest=str(tmp_path / "rest"))
    rows = objects(tmp_path / "rest")
    assert [row["why"] for row in rows] == ["condition"] * 3
    assert [row.get("record") for row in rows] == ['{"why": 1}', '{"\\u0077hy": 1}', None]
    corpus = Corpus(tmp_path / "columns", pa.schema([("record", pa.large_binary()), ("why", pa.string())]))
    corpus.part([({"record": b'{"why": "x"}', "why": "x"}, [("final", scored(0.0))])])
    run(corpus.close(), "reward > 0", rest=str(tmp_path / "other"))
    (row,) = objects(tmp_path / "other")
    assert (row["why"], row["assay_why"]) == ("x", "condition")


def test_json_to_parquet(four: str, tmp_path: Path) -> None:
    run(four, "reward > 0", tmp_path / "kept", format="parquet", rest=str(tmp_path / "rest"))
    kept = pq.read_table(tmp_path / "kept" / "kept-00000.parquet")
    assert kept.schema.equals(Columns(JSON, ("helpfulness", "correctness"), "").schema)
    assert kept.column("record").to_pylist() == [b'{"id": 0, "x": 1.10}']
    assert json.loads(kept.schema.metadata[b"assay"])["filter"] == "where: reward > 0"
    assert len(pq.read_table(tmp_path / "rest" / "rest-00000.parquet").column("why")) == 3
    run(four, "reward > 0", tmp_path / "plain", format="parquet", fields=False)
    assert pq.read_table(tmp_path / "plain" / "kept-00000.parquet").column_names == ["record", "topic"]


TABLE = pa.schema(
    [
        ("prompt", pa.string()),
        ("at", pa.timestamp("ns", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("turns", pa.list_(pa.struct([("role", pa.string()), ("weight", pa.float32())]))),
    ]
)
VALUES = {
    "prompt": "zwölf\n",
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 1, 2),
    "price": decimal.Decimal("1.10"),
    "kind": "k",
    "turns": [{"role": "user", "weight": math.nan}],
}


@pytest.fixture
def table_corpus(tmp_path: Path) -> str:
    corpus = Corpus(tmp_path / "scored", TABLE)
    corpus.part([(VALUES, [("chosen", scored(1.0)), ("rejected", scored(2.0))]), (VALUES, [("chosen", scored(-1.0))])])
    return corpus.close()


def test_parquet_stays_parquet(table_corpus: str, tmp_path: Path) -> None:
    run(table_corpus, "reward > 0 and kind = 'k'", tmp_path / "kept")
    kept = pq.read_table(tmp_path / "kept" / "kept-00000.parquet")
    assert kept.schema.equals(Columns(TABLE, ("helpfulness", "correctness"), "").schema)
    assert kept.column("reward").to_pylist() == [1.0, 2.0]
    assert kept.column("price").to_pylist() == [decimal.Decimal("1.10")] * 2
    run(table_corpus, "reward > 0", tmp_path / "plain", fields=False)
    assert pq.read_table(tmp_path / "plain" / "kept-00000.parquet").schema.names == TABLE.names
    assert pq.read_metadata(tmp_path / "plain" / "kept-00000.parquet").num_rows == 1


def test_parquet_to_jsonl(table_corpus: str, tmp_path: Path) -> None:
    run(table_corpus, "reward > 1", tmp_path / "kept", format="jsonl", rest=str(tmp_path / "rest"))
    (row,) = objects(tmp_path / "kept")
    assert row["prompt"] == "zwölf\n"
    assert row["at"] == "2026-01-02T03:04:05.000006+00:00"
    assert (row["day"], row["price"], row["kind"]) == ("2026-01-02", "1.10", "k")
    assert row["turns"] == [{"role": "user", "weight": None}]
    assert row["reward"] == 2.0
    assert [row["why"] for row in objects(tmp_path / "rest")] == ["condition"] * 2
    run(table_corpus, "reward > 0", tmp_path / "plain", format="jsonl", fields=False)
    assert [list(row) for row in objects(tmp_path / "plain")] == [TABLE.names]


def test_what_a_format_cannot_hold_is_named(four: str, tmp_path: Path) -> None:
    for number, kind in enumerate((pa.binary(), pa.list_(pa.struct([("x", pa.large_binary())])), pa.duration("s"))):
        corpus = Corpus(tmp_path / f"{number}", pa.schema([("image", kind)]))
        corpus.part([({"image": None}, [("final", scored(1.0))])])
        folder = corpus.close()
        with pytest.raises(OutputError, match="'image'"):
            run(folder, "true", tmp_path / "kept", format="jsonl")
        assert run(folder, "true", tmp_path / f"kept-{number}").kept == 1
    with pytest.raises(SettingsError, match="--rows responses --format parquet is for Parquet input"):
        run(four, "true", tmp_path / "kept", format="parquet", rows="responses")
    with pytest.raises(ExpressionError, match="there is no column nope"):
        run(four, "nope > 1", tmp_path / "kept")
    assert not (tmp_path / "kept").exists(), "it is told before any work"
    with pytest.raises(ExpressionError, match="can't be evaluated"):
        run(four, "cast(reason as double) > 0", tmp_path / "kept")
    assert set(os.listdir(tmp_path / "kept")) == {"README.md", "filter.json"}
    assert run(four, "reward > 0", tmp_path / "kept").kept == 1


def test_an_incomplete_run_is_refused_unless_part_of_it_will_do(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "scored", JSON, rows_in_file=10)
    corpus.part(FOUR[:2])
    damaged = corpus.part(FOUR[2:], start=6)
    folder = corpus.close()
    with pytest.raises(SourceError) as caught:
        run(folder, "reward > 0")
    assert all(text in str(caught.value) for text in ("2 to 6 is missing", "8 to 10 is missing", "--partial"))
    assert run(folder, "reward > 0", partial=True).responses == 4
    (Path(folder, "parts") / damaged.name).write_bytes(b"PAR1 no more")
    with pytest.raises(SourceError, match=damaged.name):
        run(folder, "reward > 0", partial=True)


def test_output_folders_are_apart_free_and_of_a_filter(four: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (tmp_path / "link").symlink_to(four)
    for output in ("scored", "scored/kept", ".", "link"):
        with pytest.raises(OutputError, match="separate folders"):
            run(four, "reward > 0", tmp_path / output, overwrite=True)
    with pytest.raises(OutputError, match="separate folders"):
        run(four, "reward > 0", kept, rest=str(kept / "rest"))
    run(four, "reward > -10", kept)
    (kept / "mine.txt").touch()
    with pytest.raises(OutputError, match="--overwrite"):
        run(four, "reward > 0", kept)
    assert len(read_lines(kept)) == 2
    run(four, "reward > 0", kept, overwrite=True, format="parquet")
    assert set(os.listdir(kept)) == {*NOTES, "kept-00000.parquet", "mine.txt"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(OutputError, match="something else"):
        run(four, "reward > 0", tmp_path / "mine", overwrite=True)
    with pytest.raises(OutputError, match="is a file"):
        run(four, "reward > 0", tmp_path / "mine" / "thesis.tex")
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


@pytest.mark.parametrize("condition", [pytest.param("reward > 0", marks=pytest.mark.long), "reward > 100"])
def test_a_filter_that_is_killed_while_it_clears_its_folders_takes_nothing_of_another(
    four: str, tmp_path: Path, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_sides(place: Path, condition: str) -> FilterSummary:
        return run(four, condition, place / "kept", rest=str(place / "rest"))

    def files(place: Path) -> dict[str, list[bytes]]:
        return {path.name: read_lines(path.parent) for path in place.glob("*/*.jsonl")}

    whole, deletions, killed = both_sides(tmp_path / "calm", condition), 0, True
    while killed:
        out = tmp_path / f"{deletions}"
        with monkeypatch.context() as patch:
            patch.setattr(output_folder, "finish", _dies)
            with pytest.raises(KeyboardInterrupt):
                both_sides(out, "reward > -10")
        assert set(files(out)) == {"kept-00000.jsonl", "rest-00000.jsonl"}
        with monkeypatch.context() as patch:
            die_in_start(patch, deletions)
            try:
                killed = both_sides(out, condition) != whole
            except KeyboardInterrupt:
                deletions += 1
        assert both_sides(out, condition) == whole if killed else deletions == 6
        assert files(out) == files(tmp_path / "calm")


def test_a_filter_that_is_killed_between_the_commits_of_its_folders_goes_on_with_the_second(
    four: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, rest = tmp_path / "kept", tmp_path / "rest"
    finish = output_folder.finish

    def finish_or_die(folder: str, *more: Any, **named: Any) -> None:
        (_dies if folder == str(rest) else finish)(folder, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "finish", finish_or_die)
        with pytest.raises(KeyboardInterrupt):
            run(four, "reward > 0", kept, rest=str(rest))
    before = {path: path.stat().st_ino for path in (*kept.iterdir(), rest / "rest-00000.jsonl") if path.is_file()}
    with pytest.raises(OutputError, match=r"holds what .* gave; --overwrite replaces it"):
        run(four, "reward > 1", kept, rest=str(rest))
    ahead = FilterSettings(scored=four, where="reward > 0", output=str(kept), rest=str(rest))
    filter_corpus.check_ahead(ahead, open_scored(four, "filter").manifest.columns)  # of a recipe that is run again
    summary = run(four, "reward > 0", kept, rest=str(rest))
    assert filter_corpus.read_finished_filter(ahead) == summary
    assert {path: path.stat().st_ino for path in before} == before, "what was complete is left as it is"


def _dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ten parts in four groups."""
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 3)
    corpus = Corpus(tmp_path / "scored", JSON)
    for part in range(10):
        corpus.part([row_of(b'{"id": %d}' % (part * 5 + index), scored(float(part))) for index in range(5)])
    return corpus.close()


def test_groups_are_filtered_on_ray_in_order(many: str, tmp_path: Path, local_ray: None) -> None:
    summary = run(many, "reward <> 4 and reward < 9", tmp_path / "kept")
    assert summary == FilterSummary(50, 50, 40, 40, {"condition": 10})
    assert [row["id"] for row in objects(tmp_path / "kept")] == [*range(20), *range(25, 45)]
    assert set(os.listdir(tmp_path / "kept")) == {*NOTES, "kept-00000.jsonl"}, "little enough for one file"


def test_an_error_of_ours_in_a_task_is_itself_and_any_other_stops_the_run(
    many: str, tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExpressionError, match="can't be evaluated"):
        run(many, "cast(row as double) > 0", tmp_path / "kept")
    monkeypatch.setattr(filter_corpus, "filter_group", lambda step, selection, number, group: {}[number])
    with pytest.raises(RunStopped, match="a task failed"):
        run(many, "reward > 0", tmp_path / "kept")


def test_a_group_done_again_writes_the_same(four: str, tmp_path: Path) -> None:
    """By a step that was sent to a worker, which reads no other column than it needs."""
    run(four, "reward > 0", tmp_path / "kept")
    before = read_lines(tmp_path / "kept")
    settings = FilterSettings(scored=four, where="reward > 0", output=str(tmp_path / "kept"))
    corpus = open_scored(four, "filter")
    manifest = corpus.manifest
    evaluator = ResponseEvaluator.of(settings, "", manifest.columns.ours_first)
    step = FilterStep(corpus.responses, manifest.columns, evaluator, filter_corpus._targets(settings, manifest))
    (group,) = filter_corpus.groups_of(corpus.entries)
    filter_group(pickle.loads(pickle.dumps(step)), None, 0, group)
    assert read_lines(tmp_path / "kept") == before
    assert step.reads == [name for name in manifest.columns.schema.names if name != "topic"]
    assert replace(step, targets=()).reads == ["row", "reward", "status", "reason"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {"reward": REWARD, "scores": {"a": 1e-320}, "reason": None, "row": 'f"\n:1'}


@given(
    st.dictionaries(st.text(), JSON_VALUES, max_size=4).filter(lambda row: not row.keys() & FIELDS.keys()),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]),
    st.sampled_from([None, 2, "\t", "\r\n"]),
    st.booleans(),
)
@example({}, (", ", ": "), None, True)
@example({"a": {}}, (",", ":"), 2, False)
def test_a_spliced_record_is_the_record_and_our_fields(
    row: dict[str, Any], separators: tuple[str, str], indent: Any, ascii_only: bool
) -> None:
    text = json.dumps(row, separators=separators, indent=indent, ensure_ascii=ascii_only)
    record = text.encode("utf-8", "replace")
    line = splice(record, FIELDS)
    assert b"\n" not in line
    assert b"\r" not in line
    body = record[:-1].replace(b"\n", b" ").replace(b"\r", b" ")
    assert line.startswith(body)
    assert json.loads(line) == json.loads(record) | FIELDS
    assert list(json.loads(line)) == [*json.loads(record), *FIELDS]
    if indent is None and "\n" not in "".join(separators):
        assert line.startswith(record[:-1])
    assert json.loads(splice(record, {})) == json.loads(record)


@given(st.binary())
def test_a_wrapped_record_comes_back_whole(record: bytes) -> None:
    line = json.loads(wrap(record, FIELDS))
    back = line["record"].encode() if "record" in line else base64.b64decode(line["record_base64"])
    assert back == record
    assert {name: line[name] for name in FIELDS} == FIELDS
    assert b"\n" not in one_line(record)


def test_what_json_has_no_kind_for_is_written_without_loss() -> None:
    moment = datetime.datetime(2026, 11, 26, 21, 5, tzinfo=datetime.UTC)
    columns = {
        "nanoseconds": pa.array([1_764_191_100_123_456_789], pa.timestamp("ns")),
        "zoned": pa.array([moment], pa.timestamp("us", "UTC")),
        "day": pa.array([moment.date()]),
        "time": pa.array([datetime.time(1, 2, 3)]),
        "decimal": pa.array([decimal.Decimal("1.10")]),
        "largest": pa.array([2**64 - 1], pa.uint64()),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    assert encode({"a": math.nan, "b": [{"c": math.inf}], "d": 1.5}) == b'{"a":null,"b":[{"c":null}],"d":1.5}'
    assert json.loads(encode(pa.table(columns).to_pylist()[0])) == {
        "nanoseconds": "2025-11-26T21:05:00.123456789",
        "zoned": "2026-11-26T21:05:00+00:00",
        "day": "2026-11-26",
        "time": "01:02:03",
        "decimal": "1.10",
        "largest": 2**64 - 1,
        "map": [["k", 1]],
    }


# --- one at a time -------------------------------------------------------------------------------------------------


def test_a_folder_that_another_filter_writes_is_refused(four: str, tmp_path: Path) -> None:
    with lease(str(tmp_path / "kept")), pytest.raises(OutputError, match=r"being written by another run: process \d+ on"):
        run(four, "reward > 1", tmp_path / "kept")
    (tmp_path / "kept" / f"{'0a' * 16}.tmp").write_bytes(b"half a row, left by a filter that was killed")
    run(four, "reward > 1", tmp_path / "kept")
    assert set(os.listdir(tmp_path / "kept")) == NOTES


def test_a_worker_of_a_filter_that_lost_its_folder_writes_no_file(tmp_path: Path) -> None:
    columns = Columns(pa.schema([(RECORD, pa.large_binary())]), ("score",), "")
    lost = Ticket(str(tmp_path), "of the lost lease")
    target = Target(str(tmp_path), "kept", "jsonl", columns, False, None, {}, ticket=lost)
    table = pa.table({RECORD: pa.array([b"{}"], pa.large_binary()), "row": ["a:0"], "reason": pa.nulls(1, pa.string())})
    with lease(str(tmp_path)):
        with pytest.raises(RunStopped, match="isn't held by this run any more"), writing(target, 0) as file:
            file.write(table, pa.array([True]), pa.nulls(0, pa.string()))
        assert [path.name for path in tmp_path.iterdir()] == [LEASE]


def test_a_filter_that_lost_its_folder_at_its_end_leaves_it_to_the_other(
    four: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write, foreign = tmp_path / "kept", filter_corpus._write_outputs, ("filter.json", "recipe.yaml", "half.tmp")

    def suspended(*arguments: Any) -> Any:
        written = write(*arguments)
        take_over(out)
        for name in foreign:
            (out / name).write_text("the other's")
        return written

    monkeypatch.setattr(filter_corpus, "_write_outputs", suspended)
    with pytest.raises(RunStopped, match="another run has taken"):
        run(four, "reward > 1", out)
    assert {(out / name).read_text() for name in foreign} == {"the other's"}


def test_what_another_version_noted_is_written_again(four: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "finish", _dies)
        with pytest.raises(KeyboardInterrupt):
            run(four, "reward > 0", tmp_path / "kept")
    (note,) = (tmp_path / "kept" / "done").iterdir()
    note.write_text(json.dumps({"rows": 4, "held": 3}))
    assert run(four, "reward > 0", tmp_path / "kept").kept == 1
