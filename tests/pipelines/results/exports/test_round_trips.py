"""What goes in comes out: byte for byte as JSONL, type for type as Parquet, whatever the rows hold."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from actors.errors import NothingScored
from assay import choose, filter, score
from pipelines.data.formats import SHAPES
from tests.pipelines.data.formats.test_detection import EXAMPLES

pytestmark = pytest.mark.usefixtures("local_ray")

DATASETS = [
    ("formats/nemo-aligner_dummy-dpo.jsonl", "nemo-preference"),
    ("formats/nemo-aligner_test-rm.jsonl", "written-out"),
    ("formats/sharegpt_ranking_40.json", "sharegpt-preference"),
    ("judgebench/gpt-4o.jsonl", "judgebench"),
    ("rm-bench/chat_filtered.json", "rm-bench"),
]


def back(corpus: Path, folder: Path, **options: Any) -> list[bytes]:
    """The rows of a corpus after scoring and filtering, as they were: each once."""
    with suppress(NothingScored):  # rows of which none can be judged come back, too
        score(str(corpus), str(folder / "scored"), model="tiny-attributes", engine="fake", **options)
    kept = filter(str(folder / "scored"), str(folder / "kept"), "true", fields=False)
    assert kept.kept_rows == json.loads((folder / "scored" / "manifest.json").read_text())["summary"]["rows"]
    return [line for path in sorted((folder / "kept").glob("*.jsonl")) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.mark.parametrize(("name", "shape"), DATASETS)
def test_public_rows_come_back_as_they_were(shared_data: Path, tmp_path: Path, name: str, shape: str) -> None:
    path = shared_data / name
    rows = back(path, tmp_path)
    recorded = json.loads((tmp_path / "scored" / "manifest.json").read_text())
    assert recorded["identity"]["shape"] == shape
    if path.suffix == ".jsonl":
        assert rows == [line for line in path.read_bytes().splitlines() if line.strip()]
    else:
        assert [json.loads(row) for row in rows] == json.loads(path.read_bytes())


ODD = [
    b'{"id": 1180591620717411303424, "prompt": "p", "response": "r"}',  # 2**70
    b'{"id": null, "prompt": "p", "response": "r", "x": {"y": [null, {"z": null}]}}',
    b'{"id": "one", "prompt": "p", "response": "r", "id": 1.0}',
    b'{"prompt":"p","response":"r","mixed":[1,"1",null,1.50,NaN,-0.0]}',
    b'{"prompt": "p", "response": "\\ud800"}',
    b'{"prompt": "caf\xe9", "response": "r"}',  # Latin-1
    b"[1, 2]",
    b"not JSON at all",
]


def test_odd_rows_come_back_byte_for_byte(tmp_path: Path) -> None:
    plain = [b'{"id": %d, "prompt": "p%d",  "response":"r"}' % (index, index) for index in range(20)]
    rows = [*plain, *ODD]
    random.Random(1).shuffle(rows)
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(b"\n".join(rows) + b"\n")
    assert back(corpus, tmp_path, format="prompt-response") == rows


SCALARS = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
ROWS = st.dictionaries(st.sampled_from(["id", "prompt", "response", "messages", "label", "a b", "ü"]), VALUES)


@settings(max_examples=5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(ROWS, min_size=1, max_size=30),
    shape=st.sampled_from(sorted(SHAPES)),
    ascii_only=st.booleans(),
)
def test_any_rows_of_any_shape_come_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], shape: str, ascii_only: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [*[dict(EXAMPLES)[shape]] * len(rows), *rows]  # a corpus of which nothing can be judged isn't scored
    lines = [json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for row in rows]
    (folder / "c.jsonl").write_bytes(b"\n".join(lines))
    assert back(folder / "c.jsonl", folder, format=shape) == lines


def test_parquet_comes_back_type_for_type(tmp_path: Path) -> None:
    turns = pa.list_(pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.large_string())]))
    messages = [[{"role": "user", "content": "p"}, {"role": "assistant", "content": f"r{index}"}] for index in range(10)]
    table = pa.table(
        {
            "messages": pa.array(messages, turns),
            "id": pa.array([None, *range(1, 10)], pa.uint64()),
            "when": pa.array(range(10), pa.timestamp("ms", "Europe/Berlin")),
            "price": pa.array([None] * 5 + [1] * 5, pa.decimal128(20, 3)),
            "nested": pa.array(
                [{"a": [None, {"b": None}]}] * 10, pa.struct([("a", pa.list_(pa.struct([("b", pa.int32())])))])
            ),
            "blob": pa.array([b"\xff"] * 10, pa.binary(1)),
            "half": pa.array([0.5] * 10, pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=4)
    score(str(tmp_path / "c.parquet"), str(tmp_path / "scored"), model="tiny-attributes", engine="fake")
    filter(str(tmp_path / "scored"), str(tmp_path / "kept"), "true")
    kept = pq.read_table(tmp_path / "kept" / "kept-00000.parquet").select(table.column_names)
    assert kept.schema.remove_metadata() == table.schema
    assert kept.equals(table)


def test_values_that_python_has_no_object_for_go_through(tmp_path: Path) -> None:
    """They are carried as they are; where a row is read, they are no text, and in JSON null."""
    never = 2**63 - 1  # the `infinity` of a database
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("at", pa.timestamp("us"))])
    turns = [
        [{"role": "user", "content": "p", "at": never}, {"role": "assistant", "content": f"r{index}", "at": 0}]
        for index in range(60)
    ]
    texts = pa.array([*[b"s"] * 57, b"\xff", None, b"t"]).buffers()
    table = pa.table(
        {
            "messages": pa.array(turns, pa.list_(turn)),
            "created": pa.array([never, *range(57), -never, never], pa.timestamp("us")),  # seen at the start, and later
            "zone": pa.array(range(60), pa.timestamp("us", "Mars/Olympus")),
            "note": pa.Array.from_buffers(pa.string(), 60, texts),
            "system": pa.Array.from_buffers(pa.string(), 60, texts),
        }
    )
    pq.write_table(table, tmp_path / "c.parquet")
    summary = score(str(tmp_path / "c.parquet"), str(tmp_path / "scored"), model="tiny-attributes", engine="fake")
    # Not taken for a row without a system prompt, which would be scored.
    assert (summary.rows, summary.scored, summary.reasons) == (60, 59, {"content_not_text": 1})
    filter(str(tmp_path / "scored"), str(tmp_path / "kept"), "true")
    assert pq.read_table(tmp_path / "kept" / "kept-00000.parquet").select(table.column_names).equals(table)
    filter(str(tmp_path / "scored"), str(tmp_path / "lines"), "true", format="jsonl")
    choose(str(tmp_path / "scored"), str(tmp_path / "best"), strategy="best", per="row")
    kept, chosen = (
        [json.loads(line) for path in sorted((tmp_path / name).glob("*.jsonl")) for line in path.read_bytes().splitlines()]
        for name in ("lines", "best")
    )
    times = [
        None,
        *(f"1970-01-01T00:00:00.{index:06d}" if index else "1970-01-01T00:00:00" for index in range(57)),
        None,
        None,
    ]
    assert [row["created"] for row in kept] == times
    assert [row["created"] for row in chosen] == times[:57] + times[58:]  # the response without a reward isn't chosen
    assert {row["zone"] for row in kept} == {row["zone"] for row in chosen} == {None}
    assert [row["note"] for row in kept[56:]] == ["s", None, None, "t"]
    assert kept[0]["messages"][0] == {"role": "user", "content": "p", "at": None}
