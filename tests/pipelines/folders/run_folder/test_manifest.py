"""What a scored folder says of itself, and which runs may go on in it."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actors.engine.protocol import Task
from actors.errors import OutputError
from actors.reward_model import RewardModel
from pipelines.data.corpus.corpus_files import FileKind, InputFile
from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import NAME, Manifest, files_mark, read_manifest
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import ResolvedRun
from pipelines.run.prepare.score_requests import Preparation
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings, Turns
from tests.support.corpora import RUN, find

MODEL = RewardModel(
    "m",
    "main",
    "scalar",
    Task.CLASSIFY,
    1,
    "float32",
    512,
    {"score": 1.0},
    {"weights": "w", "template": "t", "tokenizer": "k", "config": "c"},
)
JSON_COLUMNS = pa.schema([(RECORD, pa.large_binary()), ("id", pa.int64())])
PARQUET_COLUMNS = pa.schema([pa.field("x", pa.list_(pa.int8()), nullable=False), ("t", pa.timestamp("us", "UTC"))])


def file(name: str, kind: FileKind = FileKind.JSONL, content: str = "", folder: str = "/data") -> InputFile:
    return InputFile(0, name, f"{folder}/{name}", kind, 10, content or f"content of {name}", 10)


def numbered(*files: InputFile) -> tuple[InputFile, ...]:
    return tuple(replace(input_file, index=index) for index, input_file in enumerate(files))


A, B, C = numbered(file("a.jsonl"), file("b.jsonl"), file("c.jsonl"))


def manifest(
    files: Sequence[InputFile] = (A, B),
    model: RewardModel = MODEL,
    carried: pa.Schema = JSON_COLUMNS,
    shape: str = "messages",
    **options: Any,
) -> Manifest:
    settings = build(ScoreSettings, {"inputs": ("x",), "output": "out", "model": "m", **options})
    columns = Columns(carried, ("score",), settings.prefix)
    preparation = Preparation(model, settings.render, RowShape(shape, settings.corpus.turns.value), columns)
    resolved = ResolvedRun(tuple(files), preparation, part_rows=64, block_bytes=2**20)
    return replace(manifest_of(resolved, settings), run=RUN)


def read_back(folder: Path) -> Manifest:
    read = read_manifest(str(folder))
    assert read is not None
    return read


# --- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carried", [JSON_COLUMNS, PARQUET_COLUMNS, pa.schema([])], ids=["json", "parquet", "none"])
@pytest.mark.parametrize("summary", [None, {"rows": 3, "quantiles": {"reward": [0.1, 1e-300]}}])
def test_a_manifest_comes_back_as_it_was(tmp_path: Path, carried: pa.Schema, summary: dict[str, Any] | None) -> None:
    unread = replace(file("ü \udcff.jsonl.gz", FileKind.JSONL_GZIP), index=2, extent=None)
    written = manifest((A, B, unread), carried=carried, prefix="j_", engine_args={"seed": 1}, weights={"score": 0.5})
    replace(written, summary=summary).write(str(tmp_path))
    read = read_back(tmp_path)
    assert (read.files, read.columns, read.summary) == (written.files, written.columns, summary)
    assert (read.identity, read.made_with) == (written.identity, written.made_with)
    assert read.columns.carried.equals(carried, check_metadata=True)
    read.check(written)


@pytest.mark.parametrize("files", [(), (A,), (A, B, C)])
def test_marks_are_those_of_the_whole_text(files: tuple[InputFile, ...], tmp_path: Path) -> None:
    """Parts and filters hold them: whatever spares memory, a run that goes on must find the same ones."""
    written = replace(manifest(files), run="0123")
    text = json.dumps([written.identity, [entry.identity for entry in files], "0123"], sort_keys=True)
    assert written.fingerprint == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    text = json.dumps([(entry.index, entry.identity) for entry in files], sort_keys=True)
    assert files_mark(files) == f"{len(files)}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    manifest(files).write(str(tmp_path))
    assert read_back(tmp_path).files == files


def test_a_manifest_is_replaced_in_one_step_or_stays_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("disk full")

    manifest().write(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(OutputError, match="disk full"):
            manifest(files=(C,)).write(str(tmp_path))
    assert read_back(tmp_path).files == (A, B)
    manifest(files=(C,)).write(str(tmp_path))
    assert read_back(tmp_path).files == (C,)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_people_can_read_the_columns_and_what_it_was_made_with(tmp_path: Path) -> None:
    manifest(prefix="j_", engine_args={"seed": 1}).write(str(tmp_path))
    document = json.loads((tmp_path / NAME).read_text())
    assert document["columns"] | {"j_reward": "double", "id": "int64"} == document["columns"]
    assert document["made_with"]["engine_args"] == {"seed": 1}
    assert document["made_with"]["ray"]


def test_only_a_file_in_a_folder_is_a_manifest(tmp_path: Path) -> None:
    assert read_manifest(str(tmp_path)) is None
    assert read_manifest(str(tmp_path / "missing")) is None
    (tmp_path / "file").write_text("{}")
    with pytest.raises(OutputError, match="is a file, and a folder is needed"):
        read_manifest(str(tmp_path / "file"))
    (tmp_path / NAME).mkdir()
    with pytest.raises(OutputError, match="is no manifest of Assay"):
        read_manifest(str(tmp_path))


def test_a_broken_manifest_is_refused(tmp_path: Path) -> None:
    manifest().write(str(tmp_path))
    whole = (tmp_path / NAME).read_bytes()
    halves = [whole[: int(len(whole) * fraction)] for fraction in (0.1, 0.5, 0.9)]
    for content in (b"", b"[]", b"null", b"\xff", b'{"assay": 1}', b'{"assay": 1, "files": 5}', *halves):
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(OutputError, match=f"{NAME} is no manifest of Assay"):
            read_manifest(str(tmp_path))


def test_a_manifest_with_something_wrong_in_it_is_refused(tmp_path: Path) -> None:
    wrongs: list[dict[str, Any]] = [
        {"files": [{"index": 0}]},
        {"files": ["x"]},
        {"files": None},
        {"files": [asdict(A) | {"kind": "csv"}]},
        {"files": [asdict(A) | {"owner": "me"}]},
        {"carried_columns": "AAAA"},
        {"carried_columns": "not base64!"},
        {"carried_columns": None},
        {"outputs": None},
        {"identity": None},
        {"identity": {}},
    ]
    manifest().write(str(tmp_path))
    document = json.loads((tmp_path / NAME).read_text())
    for wrong in wrongs:
        (tmp_path / NAME).write_text(json.dumps(document | wrong))
        with pytest.raises(OutputError, match="is no manifest of Assay"):
            read_manifest(str(tmp_path))


def test_a_manifest_of_another_version_says_so(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"assay": 2, "new": []}')
    with pytest.raises(OutputError, match=r"another version of Assay \(2\)"):
        read_manifest(str(tmp_path))


# --- identity ------------------------------------------------------------------------------------------------------


def test_a_model_runner_that_is_asked_for_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    assert manifest().made_with["model_runner"] == "as vLLM chooses where an engine runs"
    for value, runner in (("0", "V1"), ("1", "V2")):
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", value)
        assert manifest().made_with["model_runner"] == runner


def test_how_the_work_is_shared_out_may_change() -> None:
    other = manifest(
        tensor_parallel=4, pipeline_parallel=2, engine_args={"seed": 7}, max_in_flight=3, request_timeout_s=1.0, replicas=9,
        part_rows=7, unit_bytes=1, max_engine_deaths=1, max_failed_fraction=0.1, overwrite=True, append=True,
        inputs=("elsewhere",), output="elsewhere", autoscaled=True, placement_timeout_s=1.0,
    )  # fmt: skip
    manifest().check(other)
    manifest().check(manifest(max_replicas=8, min_replicas=2))
    manifest(model=replace(MODEL, task=Task.TOKEN_CLASSIFY)).check(manifest())
    assert other.made_with != manifest().made_with


def test_another_model_is_refused() -> None:
    cases: list[tuple[str, Any, str]] = [
        ("model", "other", "model"),
        ("revision", "dev", "revision"),
        ("family_name", "attributes", "family"),
        ("dtype", "bfloat16", "dtype"),
        ("max_model_len", 256, "max_model_len"),
        ("weights", {"score": 2.0}, "reward_weights"),
        *(("hashes", {**MODEL.hashes, name: "other"}, name) for name in MODEL.hashes),
    ]
    for field, value, name in cases:
        with pytest.raises(OutputError, match=f"(?m)^  {name}: ") as caught:
            manifest().check(manifest(model=replace(MODEL, **{field: value})))
        assert len(str(caught.value).splitlines()) == 3


def test_other_settings_are_refused() -> None:
    cases: list[tuple[str, Any, str]] = [
        ("engine", "fake", "engine"),
        ("turns", Turns.ALL, "turns"),
        ("limit", 5, "limit"),
        ("max_record_bytes", 5, "max_record_bytes"),
        ("prefix", "j_", "prefix"),
        ("too_long", "trim-turns", "render"),
        ("shape", "preference", "shape"),
    ]
    for option, value, name in cases:
        with pytest.raises(OutputError, match=f"(?m)^  {name}: .*there, .*{value}.* now$") as caught:
            manifest().check(manifest(**{option: value}))
        assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["quantization", "not_known_yet"])
def test_an_engine_argument_that_may_change_numbers_is_another_run(name: str) -> None:
    with pytest.raises(OutputError, match=f"(?m)^  engine_args: {{}} there, {{'{name}': 'x'}} now$"):
        manifest().check(manifest(engine_args={name: "x", "seed": 7}))


def test_all_differences_are_told_at_once() -> None:
    with pytest.raises(OutputError, match="--overwrite") as caught:
        manifest().check(manifest(prefix="j_", limit=5, model=replace(MODEL, dtype="bfloat16")))
    differences = str(caught.value).splitlines()[1:-1]
    assert differences == [
        "  dtype: 'float32' there, 'bfloat16' now",
        "  limit: None there, 5 now",
        "  prefix: '' there, 'j_' now",
    ]


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_corpus_that_has_moved_is_still_the_same() -> None:
    moved = numbered(file("a.jsonl", folder="/elsewhere"), file("b.jsonl", folder="/elsewhere"))
    assert manifest().check_files(moved) == moved


def test_files_keep_the_numbers_that_their_parts_have() -> None:
    appended = manifest(numbered(A, C)).with_appended(numbered(A, B, C), ())
    assert [(input_file.name, input_file.index) for input_file in appended.check_files(numbered(A, B, C))] == [
        ("a.jsonl", 0),
        ("c.jsonl", 1),
        ("b.jsonl", 2),
    ]


def test_changed_missing_and_new_files_are_named() -> None:
    now = numbered(file("a.jsonl", content="other"), C)
    with pytest.raises(OutputError, match="Put back what it was and leave out what is new") as caught:
        manifest().check_files(now)
    assert str(caught.value).splitlines()[1:-1] == [
        "  a.jsonl: has changed since its scoring started (its size is the same, its content isn't)",
        "  b.jsonl: isn't there any more",
        "  c.jsonl: new",
    ]


@pytest.mark.parametrize(
    ("now", "limit", "advised"),
    [
        ((A, B, C), None, "Give --append to take it in"),
        ((A, B, C), 5, "Leave out what is new"),
        ((A,), None, "Put back what it was"),
        ((A, replace(B, size=11)), None, "Put back what it was"),
    ],
    ids=["new", "new to a run with a limit", "gone", "changed"],
)
def test_what_is_advised_isnt_refused_afterwards(now: tuple[InputFile, ...], limit: int | None, advised: str) -> None:
    with pytest.raises(OutputError) as caught:
        manifest(limit=limit).check_files(now)
    assert str(caught.value).splitlines()[-1] == f"{advised}, give another output folder, or --overwrite to start again"


# --- appending -----------------------------------------------------------------------------------------------------


def test_new_files_are_taken_in_after_the_old_ones() -> None:
    before = replace(manifest(), summary={"rows": 1})
    after = before.with_appended(numbered(C, A, B), ())
    assert after.files == (A, B, replace(C, index=2))
    assert after.summary is None
    assert replace(after, files=before.files, summary=before.summary) == before


def test_a_copy_of_a_file_that_is_where_it_was_is_taken_in(tmp_path: Path) -> None:
    for name in ("one/a.jsonl", "two/a.jsonl", "two/b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"a": 1}\n')
    before = manifest(find([str(tmp_path / "one")]))
    appended = before.with_appended(find([str(tmp_path / "one"), str(tmp_path / "two")]), ())
    assert [input_file.path.removeprefix(f"{tmp_path}/") for input_file in appended.files] == [
        "one/a.jsonl",
        "two/a.jsonl",
        "two/b.jsonl",
    ]
    (tmp_path / "one" / "a.jsonl").unlink()
    assert [input_file.name for input_file in before.known(find([str(tmp_path / "two")]))] == [
        "a.jsonl"
    ]  # it was moved there


def test_a_file_behind_a_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"{}")
    before = manifest(find([str(tmp_path / "in")]))
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "in" / "a.jsonl")
    for again in (tmp_path / "link", tmp_path / "b.jsonl"):
        assert before.with_appended(find([str(again)]), ()).files == before.files
    files = [str(tmp_path / "in"), str(tmp_path / "b.jsonl")]
    assert before.with_appended(find(files), ()).files == before.files


def test_a_file_is_taken_in_once_wherever_it_is_now() -> None:
    renamed = file("day1/a.jsonl", content=A.fingerprint, folder="/elsewhere")
    assert manifest().with_appended([renamed, B], ()).files == (A, B)
    copies = [file(f"{place}/a.jsonl", content=A.fingerprint, folder="/elsewhere") for place in ("one", "two")]
    copies += [file("z.jsonl", content=A.fingerprint)]
    names = [input_file.name for input_file in manifest().with_appended(copies, ()).files]
    assert names == ["a.jsonl", "b.jsonl", "two/a.jsonl", "z.jsonl"], "one was moved; a copy and another name are new"


def test_files_of_one_name_are_told_apart_by_their_paths() -> None:
    once = manifest().with_appended([file("a.jsonl", content="x", folder="/new")], ())
    twice = once.with_appended(
        [file("a.jsonl", content="y", folder="/newer"), file("b.jsonl", content="z", folder="/newer")], ()
    )
    assert [input_file.name for input_file in twice.files] == [
        "a.jsonl",
        "b.jsonl",
        "/new/a.jsonl",
        "/newer/a.jsonl",
        "/newer/b.jsonl",
    ]
    assert [input_file.index for input_file in twice.files] == [0, 1, 2, 3, 4]
    with pytest.raises(OutputError, match=r"/data/a\.jsonl has changed since its scoring started"):
        twice.with_appended([file("a.jsonl", content="more")], ())


@pytest.mark.parametrize(
    ("carried", "kind", "message"),
    [
        (JSON_COLUMNS, FileKind.PARQUET, "a run over JSON files can't add /data/x"),
        (PARQUET_COLUMNS, FileKind.ARRAY, "a run over Parquet files can't add /data/x"),
    ],
)
def test_json_and_parquet_dont_go_into_one_folder(carried: pa.Schema, kind: FileKind, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        manifest(carried=carried).with_appended([file("x", kind)], ())
    same_sort = FileKind.JSONL_ZSTD if kind is FileKind.PARQUET else FileKind.PARQUET
    assert manifest(carried=carried).with_appended([file("x", same_sort)], ()).files[-1].kind is same_sort


def test_new_parquet_columns_would_be_lost() -> None:
    names = [*PARQUET_COLUMNS.names, "wit"]
    with pytest.raises(OutputError, match="columns that the run doesn't: wit"):
        manifest(carried=PARQUET_COLUMNS).with_appended([file("x", FileKind.PARQUET)], names)
