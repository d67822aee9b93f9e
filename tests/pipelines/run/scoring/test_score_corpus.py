"""The main job on the fake engine: every row comes out, once, whatever the corpus looks like and whatever is cut how."""

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import AuditError, DamagedSource, ModelError, OutputError, RunStopped, SourceError
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import Holder
from pipelines.folders.run_folder.coverage import audit
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.parts import MANIFEST, Parts
from pipelines.folders.scored_corpus.summary import Summary, summarise
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.score_corpus import score
from tests.support.candidates import scored_corpus
from tests.support.corpora import Notes, chat, damaged_parquet, lines, outcome_of, rows, scored, settings, write
from tests.support.lost_leases import take_over
from tests.support.object_store import BUCKET, TerseStore

pytestmark = pytest.mark.usefixtures("local_ray")


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every part with its inode and time: what was written again would differ."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (folder / "parts").glob("*.parquet")}


def test_every_kind_of_json_gives_the_same_scores(tmp_path: Path) -> None:
    numbers = {}
    for name in ("c.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.json"):
        corpus = write(tmp_path / name, json.dumps(rows(200)).encode() if name == "c.json" else lines(rows(200)))
        summary = score(settings(corpus, tmp_path / f"of {name}", part_rows=64 if name == "c.jsonl" else 30))
        assert (summary.rows, summary.scored) == (200, 200), name
        numbers[name] = [(row["id"], row["reward"], row["scores"]) for row in scored(tmp_path / f"of {name}")]
    assert [number for number, *_ in numbers["c.jsonl"]] == list(range(200))
    for name, actual_number in numbers.items():
        assert actual_number == numbers["c.jsonl"], name


def test_parquet_columns_come_back_as_they_were(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row | {"when": None, "tags": ["a", None]} for row in rows(150)])
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=40)
    score(settings(tmp_path / "c.parquet", tmp_path / "out", part_rows=32))
    parts = Parts(str(tmp_path / "out"))
    back = pa.concat_tables([pq.read_table(Path(parts.folder, "parts") / part.name) for part in parts.listing()])
    assert json.loads(back.schema.metadata[b"assay"])["model_runner"] == "fake", "as the engine itself tells"
    assert back.select(table.column_names).cast(table.schema).equals(table)
    assert back.column("row").to_pylist() == [f"c.parquet:{number}" for number in range(150)]


def test_json_records_come_back_byte_for_byte(tmp_path: Path) -> None:
    turns = b'[{"role":"user","content":"\\u00e9"},{"role":"assistant","content":"b"}]'
    odd = b'{"messages":' + turns + b' , "n": 1180591620717411303424}'
    write(tmp_path / "c.jsonl", odd + b"\r\n\n" + b"\xff\xfe broken\n" + lines(rows(1)))
    score(settings(tmp_path / "c.jsonl", tmp_path / "out", format="messages"))
    assert [row["record"] for row in scored(tmp_path / "out")] == [odd, b"\xff\xfe broken", lines(rows(1)).rstrip()]
    assert outcome_of(tmp_path / "out") == [("scored", None), ("rejected", "not_utf8"), ("scored", None)]


def test_a_complete_run_is_neither_written_nor_read_again_until_a_part_was_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a million parts would take hours. The figures are those of the manifest."""
    corpus = write(tmp_path / "c.jsonl", lines(rows(100)))
    first = score(settings(corpus, tmp_path / "out", part_rows=20))
    before, manifest, notes = files_of(tmp_path / "out"), read_manifest(str(tmp_path / "out")), Notes()
    with monkeypatch.context() as patch:
        patch.setattr(score_corpus, "summarise", None)
        patch.setattr(score_corpus, "drop_unreadable", None)
        again = score(settings(corpus, tmp_path / "out", part_rows=7), notes)
    assert (again, again.as_json()) == (first, first.as_json())
    assert "5 parts are there, and none has changed since all were read" in "\n".join(notes.all)
    assert (files_of(tmp_path / "out"), read_manifest(str(tmp_path / "out"))) == (before, manifest)
    part = sorted((tmp_path / "out" / "parts").glob("*.parquet"))[1]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    notes = Notes()
    assert score(settings(corpus, tmp_path / "out"), notes) == first
    assert f"{part.name}" in "\n".join(notes.all)
    assert "there; checking" in "\n".join(notes.all)


def test_a_store_that_refuses_while_a_run_is_summed_up_costs_it_no_part(
    tmp_path: Path, terse_s3: TerseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(100)))
    run = settings(corpus, tmp_path, part_rows=20, storage_patience_s=0.5).model_copy(update={"output": f"{BUCKET}/out"})
    parts = Parts(scored_corpus(run))
    before = parts.entries()

    def summed_up_in_an_outage(*arguments: Any) -> Summary:
        terse_s3.refused = ".parquet"
        return summarise(*arguments)

    monkeypatch.setattr(score_corpus, "summarise", summed_up_in_an_outage)
    with pytest.raises(RunStopped, match=r"a store hasn't answered for \d+ s: .*No"):
        score(run)
    with pytest.raises(RunStopped, match=r"a store hasn't answered for \d+ s: .*No"):
        score(run)  # whose parts are checked first, in the same outage
    terse_s3.refused = None
    monkeypatch.setattr(score_corpus, "summarise", summarise)
    assert score(run).rows == 100
    assert list(parts.entries()) == list(before)


def test_lost_parts_are_scored_again_and_no_others(tmp_path: Path) -> None:
    corpus = [write(tmp_path / "in" / name, lines(rows(200))) for name in ("a.jsonl", "b.jsonl.gz")]
    score(settings(corpus, tmp_path / "out", part_rows=20, unit_bytes=3000))
    whole = scored(tmp_path / "out")
    lost = sorted((tmp_path / "out" / "parts").iterdir())[1::3]
    for path in lost:
        path.unlink()
    kept = files_of(tmp_path / "out")
    score(settings(corpus, tmp_path / "out", part_rows=33, unit_bytes=1700))
    after = files_of(tmp_path / "out")
    assert {name: after[name] for name in kept} == kept
    assert scored(tmp_path / "out") == whole


def test_a_run_that_was_suspended_as_it_summed_up_leaves_the_manifest_of_the_one_that_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out = write(tmp_path / "c.jsonl", lines(rows(20))), tmp_path / "out"

    def suspended(*arguments: Any) -> Summary:
        summary = summarise(*arguments)
        take_over(out)
        (out / MANIFEST).write_text("the other's")
        return summary

    monkeypatch.setattr(score_corpus, "summarise", suspended)
    with pytest.raises(RunStopped, match=r"isn't held by this run any more|another run has taken"):
        score(settings(corpus, out))
    assert (out / MANIFEST).read_text() == "the other's"
    assert Holder.read((out / LEASE).read_bytes()).token == "another"


def test_an_overlapping_part_of_a_dead_driver_is_dropped(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(100)))
    score(settings(corpus, tmp_path / "out", part_rows=10))
    whole = scored(tmp_path / "out")
    parts = Parts(str(tmp_path / "out"))
    _, second, third, *_ = parts.listing()
    joined = pa.concat_tables([pq.read_table(Path(parts.folder, "parts") / part.name) for part in (second, third)])
    (Path(parts.folder, "parts") / third.name).unlink()
    late = second._replace(
        range=type(second.range)(second.range.start, third.range.end), counts=second.counts + third.counts
    )
    parts.commit(late, joined, {})
    with pytest.raises(AuditError, match="there twice"):
        audit(read_manifest(parts.folder).files, {0: corpus.stat().st_size}, parts.listing())  # type: ignore[union-attr]
    score(settings(corpus, tmp_path / "out", part_rows=10))
    assert scored(tmp_path / "out") == whole


def test_another_command_is_refused_by_name(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(5)))
    score(settings(corpus, tmp_path / "out"))
    with pytest.raises(OutputError, match=r"dtype: 'float32' there, 'bfloat16' now"):
        score(settings(corpus, tmp_path / "out", dtype="bfloat16"))
    with pytest.raises(OutputError, match="reward_weights"):
        score(settings(corpus, tmp_path / "out", weights={"verbosity": 1.0}))
    summary = score(settings(corpus, tmp_path / "out", weights={"verbosity": 1.0}, overwrite=True))
    assert summary.quantiles["reward"] == summary.quantiles["scores.verbosity"]


def test_changed_and_new_input_is_refused_and_appended(tmp_path: Path) -> None:
    first = write(tmp_path / "in" / "a.jsonl", lines(rows(5)))
    score(settings(tmp_path / "in", tmp_path / "out"))
    write(tmp_path / "in" / "b.jsonl.gz", lines(rows(7)))
    with pytest.raises(OutputError, match=r"b\.jsonl\.gz: new"):
        score(settings(tmp_path / "in", tmp_path / "out"))
    notes = Notes()
    assert score(settings(tmp_path / "in", tmp_path / "out", append=True), notes).rows == 12
    assert f"not appended again, as the run holds them already: {first}" in notes.all
    write(first, lines(rows(6)))
    with pytest.raises(OutputError, match=r"a\.jsonl: has changed since its scoring started"):
        score(settings(tmp_path / "in", tmp_path / "out"))
    first.unlink()
    with pytest.raises(OutputError, match=r"a\.jsonl: isn't there any more"):
        score(settings(tmp_path / "in", tmp_path / "out"))
    assert score(settings(tmp_path / "in", tmp_path / "out", append=True)).rows == 12  # its rows are done
    next((tmp_path / "out" / "parts").glob("000000-*")).unlink()
    with pytest.raises(OutputError, match=r"a\.jsonl isn't there any more, and its scoring isn't finished"):
        score(settings(tmp_path / "in", tmp_path / "out", append=True))


def test_appended_parquet_files_of_other_types_are_refused_and_nothing_is_cast(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist([chat("q", "a", id=3, tag={"x": 1})]), first)
    score(settings(first, tmp_path / "out"))
    for more, name in (({"id": "4", "tag": {"x": 1}}, "id"), ({"id": 4, "tag": {"x": 1, "y": 2}}, "tag")):
        pq.write_table(pa.Table.from_pylist([chat("q", "b", **more)]), second)
        with pytest.raises(SourceError, match=rf"b\.parquet has the column '{name}' as .* has it as .*"):
            score(settings(second, tmp_path / "out", append=True))
    pq.write_table(pa.Table.from_pylist([chat("q", "b", id=4, tag={"x": 2})]), second)
    assert score(settings(second, tmp_path / "out", append=True)).rows == 2
    assert [row["id"] for row in scored(tmp_path / "out")] == [3, 4]


def test_a_file_that_changes_under_a_run_stops_it_by_name_until_it_is_restored(tmp_path: Path) -> None:
    corpus, whole = tmp_path / "c.jsonl", lines(rows(40))
    write(corpus, whole)

    class Spoiling(Notes):
        """Whose file is another one when the reading begins."""

        def running(self, files: Any, done: Any) -> Any:
            write(corpus, b"\n".join(reversed(whole.splitlines())) + b"\n")
            return super().running(files, done)

    with pytest.raises(
        RunStopped, match=r"c\.jsonl has changed since its scoring started \(its size is the same, its content isn't\)"
    ):
        score(settings(corpus, tmp_path / "out"), Spoiling())
    assert not list((tmp_path / "out" / "parts").iterdir())
    write(corpus, whole)
    assert score(settings(corpus, tmp_path / "out")).rows == 40


def test_a_file_of_a_folder_that_isnt_read_is_named_in_the_notes_and_in_the_summary(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", lines(rows(3)))
    left_out = write(tmp_path / "in" / "b.json.gz", b"[]")
    notes = Notes()
    assert score(settings(tmp_path / "in", tmp_path / "out"), notes).left_out == (str(left_out),)
    assert any(note.startswith("Left out, as ") and note.endswith(str(left_out)) for note in notes.all)
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    assert manifest.summary is not None
    assert manifest.summary["left_out"] == [str(left_out)]


@pytest.mark.long
def test_a_run_goes_on_after_files_were_appended_between_the_old_ones(tmp_path: Path) -> None:
    for name, question in (("a.jsonl", "a"), ("c.jsonl", "c")):
        write(tmp_path / "in" / name, lines([chat(f"{question} {number}", "x") for number in range(20)]))
    score(settings(tmp_path / "in", tmp_path / "out", part_rows=5))
    write(tmp_path / "in" / "b.jsonl", lines([chat(f"b {number}", "x") for number in range(20)]))
    score(settings(tmp_path / "in", tmp_path / "out", part_rows=5, append=True))
    for path in sorted((tmp_path / "out" / "parts").iterdir())[::2]:
        path.unlink()
    assert score(settings(tmp_path / "in", tmp_path / "out")).rows == 60
    contents = [json.loads(row["record"])["messages"][0]["content"] for row in scored(tmp_path / "out")]
    assert contents == [f"{name} {number}" for name in "acb" for number in range(20)]


def test_a_folder_left_by_a_run_killed_at_its_start_is_taken(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(3)))
    write(tmp_path / "out" / f"{'01' * 16}.tmp", b"{")
    assert score(settings(corpus, tmp_path / "out")).scored == 3


def test_limit_takes_the_first_rows(tmp_path: Path) -> None:
    corpus = [write(tmp_path / "in" / name, lines(rows(10))) for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl")]
    assert score(settings(corpus, tmp_path / "out", limit=13)).rows == 13
    names = [row["row"].split(":")[0] for row in scored(tmp_path / "out")]
    assert names == ["a.jsonl"] * 10 + ["b.jsonl.gz"] * 3


def test_empty_files_and_an_empty_corpus(tmp_path: Path) -> None:
    write(tmp_path / "in" / "empty.jsonl", b"")
    write(tmp_path / "in" / "blank.jsonl", b"\n\n  \n")
    write(tmp_path / "in" / "none.jsonl.gz", b"")
    write(tmp_path / "in" / "array.json", b"[]")
    assert score(settings(tmp_path / "in", tmp_path / "out")).responses == 0
    write(tmp_path / "in" / "some.jsonl", lines(rows(3)))
    assert score(settings(tmp_path / "in", tmp_path / "more")).scored == 3


def test_every_assistant_turn_on_request(tmp_path: Path) -> None:
    talk = {"messages": [*chat("1 + 1?", "2")["messages"], *chat("2 + 2?", "4")["messages"]]}
    corpus = write(tmp_path / "c.jsonl", lines([talk, chat("1 + 1?", "2")]))
    score(settings(corpus, tmp_path / "out", turns="all"))
    result = [(row["row"], row["response_name"], row["reward"]) for row in scored(tmp_path / "out")]
    assert [name for _, name, _ in result] == ["turn[1]", "turn[3]", "turn[1]"]
    assert result[0][2] == result[2][2] != result[1][2]


def test_the_turns_of_a_conversation_are_one_forward_pass(tmp_path: Path) -> None:
    """The engine answers one request; at another it would die, and that would end the run."""
    talk = {"messages": [turn for number in range(4) for turn in chat(f"{number} + 1?", f"{number + 1}")["messages"]]}
    corpus = write(tmp_path / "c.jsonl", lines([talk]))
    once: dict[str, Any] = {"engine_args": {"die_after": 1}, "max_engine_deaths": 1}
    score(settings(corpus, tmp_path / "out", model="tiny-scalar", turns="all", **once))
    score(settings(corpus, tmp_path / "last", model="tiny-scalar"))
    *_, last = result = scored(tmp_path / "out")
    (alone,) = scored(tmp_path / "last")
    assert [row["response_name"] for row in result] == ["turn[1]", "turn[3]", "turn[5]", "turn[7]"]
    assert len({row["reward"] for row in result}) == 4
    assert last["reward"] == alone["reward"]


def test_pairs_share_a_row_and_a_prompt(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{"prompt": "1 + 1?", "chosen": "2", "rejected": "3"}]))
    score(settings(corpus, tmp_path / "out"))
    chosen, rejected = scored(tmp_path / "out")
    assert (chosen["response_name"], rejected["response_name"]) == ("chosen", "rejected")
    assert (chosen["row"], chosen["prompt_hash"]) == (rejected["row"], rejected["prompt_hash"])


def test_a_column_of_ours_in_the_input(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("a", "b", reward=1.0)]))
    with pytest.raises(SourceError, match=r"'reward'.*--set prefix"):
        score(settings(corpus, tmp_path / "out"))
    score(settings(corpus, tmp_path / "out", prefix="judge_"))
    (row,) = scored(tmp_path / "out")
    assert row["reward"] == 1.0 != row["judge_reward"]


@pytest.mark.long  # kills engines
def test_a_row_that_kills_engines_is_found_and_set_aside(tmp_path: Path) -> None:
    killer = _token("\x07")
    corpus = write(tmp_path / "c.jsonl", lines([*rows(20), chat("ring", "the \x07 bell"), *rows(20)]))
    summary = score(settings(corpus, tmp_path / "out", engine_args={"at": {str(killer): "die"}}))
    assert (summary.scored, summary.reasons) == (40, {"engine_killer": 1})
    (aside,) = (tmp_path / "out" / "engine_killers").iterdir()
    assert any(killer in prompt for prompt in json.loads(aside.read_text())["prompts"])


@pytest.mark.long  # kills engines
def test_rows_that_kill_engines_are_found_though_they_are_neighbours(tmp_path: Path) -> None:
    bells = [chat("ring", f"the \x07 bell of {number}") for number in range(4)]
    corpus = write(tmp_path / "c.jsonl", lines([*rows(20), *bells, *rows(20)]))
    summary = score(settings(corpus, tmp_path / "out", engine_args={"at": {str(_token("\x07")): "die"}}))
    assert (summary.scored, summary.reasons) == (40, {"engine_killer": 4})


@pytest.mark.long
def test_a_process_that_ends_without_a_word_loses_nothing(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*rows(30), chat("ring", "the \x07 bell")]))
    summary = score(settings(corpus, tmp_path / "out", engine_args={"at": {str(_token("\x07")): "exit"}}))
    assert (summary.scored, summary.reasons) == (30, {"engine_killer": 1})


@pytest.mark.long
def test_an_engine_that_dies_now_and_then_loses_nothing(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(300)))
    score(settings(corpus, tmp_path / "calm", part_rows=20))
    score(settings(corpus, tmp_path / "out", part_rows=20, engine_args={"die_after": 90}))
    couples = list(zip(scored(tmp_path / "out"), scored(tmp_path / "calm"), strict=True))
    differ = [row["reason"] for row, calm in couples if row != calm]
    # A row that happens to be alone in the engine at two of its deaths is taken for their cause: seen once in fifty runs.
    assert differ in ([], ["engine_killer"])


@pytest.mark.long  # kills engines
def test_an_engine_that_always_dies_ends_the_run_with_its_own_error(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(30)))
    with pytest.raises(RunStopped, match=r"an engine died 3 times .* the engine is gone"):
        score(settings(corpus, tmp_path / "out", engine_args={"die_after": 0}, max_engine_deaths=3))
    assert score(settings(corpus, tmp_path / "out")).scored == 30


def test_nan_and_refusals_are_failures_and_too_many_stop_the_run(tmp_path: Path) -> None:
    faults: dict[str, Any] = {"at": {str(_token("\x07")): "nan", str(_token("\x08")): "refuse"}}
    corpus = write(tmp_path / "c.jsonl", lines([chat("a", "\x07 b"), chat("a", "\x08 b"), *rows(3)]))
    score(settings(corpus, tmp_path / "out", engine_args=faults))
    assert outcome_of(tmp_path / "out")[:2] == [("failed", "not_finite"), ("failed", "engine_refused")]
    assert [row["reward"] for row in scored(tmp_path / "out")[:2]] == [None, None]
    many = write(tmp_path / "many.jsonl", lines([chat(f"{number}", "\x07 b") for number in range(400)]))
    with pytest.raises(RunStopped, match="responses failed"):
        score(settings(many, tmp_path / "stopped", engine_args=faults, part_rows=64))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root can mount a small file system to fill")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_full_stops_the_run_and_it_goes_on_later(tmp_path: Path, small_disk: Path) -> None:
    noise = random.Random(0)
    corpus = write(tmp_path / "c.jsonl", lines([chat("say", noise.randbytes(1000).hex()) for _ in range(600)]))
    run = settings(corpus, small_disk / "out", part_rows=50)
    with pytest.raises(RunStopped, match="No space left on device"):
        score(run)
    before = files_of(small_disk / "out")
    assert before, "nothing was committed before the disk was full"
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    assert score(run).scored == 600
    after = files_of(small_disk / "out")
    assert {name: after[name] for name in before} == before


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl.gz", lines(chat("say", f"{index} {'x' * 500}") for index in range(5000)))
    whole = corpus.read_bytes()
    corpus.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedSource, match=r"c\.jsonl\.gz can't be read to its end"):  # beyond what is looked at before
        score(settings(corpus, tmp_path / "out"))
    assert not (tmp_path / "out" / "ends" / "000000-000000000000").exists()


def test_a_damaged_page_of_parquet_is_named_and_no_retry_is_advised(tmp_path: Path) -> None:
    texts = [{"prompt": f"say {number}", "response": f"{number} of {number * 7919}"} for number in range(400)]
    damaged_parquet(tmp_path / "c.parquet", texts, slice(60, 100), group=0)
    with pytest.raises(DamagedSource, match=r"c\.parquet can't be read to its end: .*: fetch it again"):
        score(settings(tmp_path / "c.parquet", tmp_path / "out"))
    assert (tmp_path / "out" / "manifest.json").exists(), "it lies in the sample: no worker has read it"


def test_a_model_without_a_template_is_told_by_name(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(5)))
    shutil.copytree("tiny_models/scalar", tmp_path / "mute")
    (tmp_path / "mute" / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="has no chat template"):  # which no later run can do anything about
        score(settings(corpus, tmp_path / "out", model=str(tmp_path / "mute")))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(5)))
    run = settings(corpus, tmp_path / "out")
    score(run)
    shutil.rmtree(tmp_path / "out" / "parts")
    (tmp_path / "out" / "parts").write_text("a file in its place")
    with pytest.raises(OutputError, match="can't be written"):
        score(run)


def _token(text: str) -> int:
    from transformers import AutoTokenizer

    (token,) = AutoTokenizer.from_pretrained("tiny_models/attributes").encode(text, add_special_tokens=False)
    return int(token)
