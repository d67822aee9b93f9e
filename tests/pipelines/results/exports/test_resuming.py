"""Output folders of exports: which are refused, what a killed export goes on with, and pieces made anywhere."""

import json
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.errors import AuditError, OutputError, RunStopped
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import Ticket, lease
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus import shuffle
from pipelines.folders.scored_corpus.shuffle import Shuffle
from pipelines.results.exports import export_commands, export_job
from pipelines.settings.export_settings import ChooseSettings
from tests.support.candidates import Given, drawn_corpus, files_in, prompts, rows_in
from tests.support.exports import (
    SIX,
    choose,
    cut_up,
    document,
    export,
    numbered_texts,
    pair,
    parts_of,
    texts,
    write_candidates,
)
from tests.support.lost_leases import take_over

PER = pytest.mark.parametrize("per", ["row", "prompt"])
NOTES = {"README.md", "recipe.yaml", "choose.json"}

# --- folders ---------------------------------------------------------------------------------------------------------


def test_the_scored_folder_is_never_written_into(tmp_path: Path) -> None:
    folder = write_candidates(tmp_path / "in", *SIX)
    (tmp_path / "link").symlink_to(folder)
    for output in ("in", "in/best", ".", "link"):
        with pytest.raises(OutputError, match="give two separate folders"):
            choose(folder, tmp_path / output, strategy="best", overwrite=True)


def test_an_earlier_result_is_replaced_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write_candidates(tmp_path / "in", *SIX), tmp_path / "out"
    with monkeypatch.context() as patch:
        cut_up(patch, folder)
        choose(folder, out, strategy="top-k", k=9, per="row")
    (out / "mine.txt").touch()
    assert len(files_in(out)) == 2
    for strategy in ("best", "top-k"):
        with pytest.raises(OutputError, match="holds what 'strategy: top-k, k: 9' gave; --overwrite replaces it"):
            choose(folder, out, strategy=strategy)
    with pytest.raises(OutputError, match="holds something else than the result of `pairs`"):
        pair(folder, out, overwrite=True)
    assert len(texts(out)) == 6
    assert choose(folder, out, strategy="best", floor=3.0, overwrite=True).rows == 1
    assert set(os.listdir(out)) == {*NOTES, "chosen-00000.jsonl", "mine.txt"}
    assert texts(out) == ["0.1"]


def test_a_folder_that_another_run_writes_is_refused(tmp_path: Path) -> None:
    folder = write_candidates(tmp_path / "in", [1.0, 2.0])
    with lease(str(tmp_path / "out")), pytest.raises(OutputError, match=r"being written by another run: process \d+ on"):
        pair(folder, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    pair(folder, tmp_path / "out")
    assert not (tmp_path / "out" / LEASE).exists()


def test_a_worker_of_a_run_that_lost_its_folder_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Ticket(str(tmp_path / "out"), "of the lost lease")
    monkeypatch.setattr("pipelines.results.exports.export_job.ticket", lambda folder: lost)
    with pytest.raises(RunStopped, match="isn't held by this run any more"):
        choose(write_candidates(tmp_path / "in", [1.0, 2.0]), tmp_path / "out", strategy="best")
    assert {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()} == {"README.md", "choose.json"}


@pytest.mark.parametrize("moment", ["_make_pieces", "_write_card"])
def test_a_run_that_lost_its_folder_at_its_end_leaves_it_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder, out, step = write_candidates(tmp_path / "in", [1.0, 2.0]), tmp_path / "out", getattr(export_job, moment)
    foreign = {"choose.json": "its document", "chosen-00007.jsonl": "its rows", "half.tmp": "what it writes"}

    def suspended(*arguments: Any) -> Any:
        result = step(*arguments)
        take_over(out)
        for name, text in foreign.items():
            (out / name).write_text(text)
        return result

    monkeypatch.setattr(export_job, moment, suspended)
    with pytest.raises(RunStopped, match=r"another run has taken|isn't held by this run any more"):
        choose(folder, out, strategy="best", per="row")
    assert {name: (out / name).read_text() for name in foreign} == foreign


@PER
def test_parts_that_dont_hold_what_their_names_say(tmp_path: Path, per: str) -> None:
    folder = write_candidates(tmp_path / "in", *SIX)
    part, path = Parts(folder).listing()[0], parts_of(folder)[0]
    path.rename(path.with_name(part._replace(counts=part.counts._replace(scored=6, rejected=0)).name))
    with pytest.raises(AuditError, match="was seen"):
        choose(folder, tmp_path / "out", strategy="best", per=per)
    assert document(tmp_path / "out")["summary"] is None


# --- pieces ----------------------------------------------------------------------------------------------------------

MANY: list[list[Given]] = [[float(at % 3), float(at % 5), None if at % 4 else 1.0] for at in range(24)]


@pytest.fixture
def equal_prompts(tmp_path: Path) -> str:
    """Eight prompts, three rows of each far from each other."""
    rows = [{"prompt": f"p{at % 8}"} for at in range(24)]
    return drawn_corpus(tmp_path / "in", rows, numbered_texts(MANY), prompts())


@PER
def test_what_is_written_depends_neither_on_the_pieces_nor_on_who_makes_them(
    equal_prompts: str, tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = []
    for name in ("whole", "here", "elsewhere"):
        if name == "here":
            cut_up(monkeypatch, equal_prompts)
        if name == "elsewhere":
            monkeypatch.setattr(export_job, "workers", _elsewhere)
        out = tmp_path / name
        chosen = choose(equal_prompts, out / "best", strategy="softmax", k=2, per=per)
        summaries.append((chosen, pair(equal_prompts, out / "pairs", per=per), export(equal_prompts, out / "sft", "sft")))
    assert summaries == [summaries[0]] * 3
    assert min(summary.rows for summary in summaries[0]) > 0
    for name in ("pairs", "best", "sft"):
        assert files_in(tmp_path / "here" / name) == files_in(tmp_path / "elsewhere" / name)
        assert len(files_in(tmp_path / "here" / name)) > 1 == len(files_in(tmp_path / "whole" / name))
    whole, pieces = rows_in(tmp_path / "whole" / "best"), rows_in(tmp_path / "here" / "best")
    assert pieces == whole if per == "row" else _by_prompt(pieces) == _by_prompt(whole)


def _by_prompt(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What was chosen of each prompt, which must be all together in one place."""
    rows_by_prompt: dict[str, list[Any]] = {}
    before = None
    for row in rows:
        prompt = row["prompt_hash"]
        assert prompt == before or prompt not in rows_by_prompt
        rows_by_prompt.setdefault(prompt, []).append(row)
        before = prompt
    return rows_by_prompt


class Elsewhere:
    """Workers that get what Ray's get: pickles, in an order that isn't ours."""

    def map(self, function: Any, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        for call in reversed(arguments):
            yield pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(call)))


@contextmanager
def _elsewhere(tasks: int) -> Iterator[Elsewhere]:
    yield Elsewhere()


@PER
def test_what_was_killed_goes_on_with_what_isnt_there(
    equal_prompts: str, tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, out = tmp_path / "calm", tmp_path / "out"
    cut_up(monkeypatch, equal_prompts)
    settings = {"strategy": "top-k", "k": 2, "per": per}
    whole = choose(equal_prompts, calm, **settings)
    _kill(monkeypatch, "note_done", 2, equal_prompts, out, **settings)
    assert document(out)["summary"] is None
    noted = {f"chosen-{name.removesuffix('.json')}.jsonl" for name in os.listdir(out / "done")}
    assert len(noted) == 2
    before = {path.name: _stamp(path) for path in out.glob("*.jsonl")}
    (unnoted,) = before.keys() - noted
    (out / unnoted).write_bytes(b"half of it")
    (out / "done" / "half-written.tmp").touch()
    assert choose(equal_prompts, out, **settings) == whole
    after = {path.name: _stamp(path) for path in out.glob("*.jsonl")}
    assert {name for name in before if after[name] == before[name]} == noted & before.keys(), "these aren't made again"
    assert files_in(out) == files_in(calm)
    assert sorted(os.listdir(out)) == sorted(os.listdir(calm)), "what was noted on the way is gone"


def test_what_another_version_noted_is_made_again(
    equal_prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, out = tmp_path / "calm", tmp_path / "out"
    cut_up(monkeypatch, equal_prompts)
    whole = choose(equal_prompts, calm, strategy="best")
    _kill(monkeypatch, "note_done", 2, equal_prompts, out, strategy="best")
    for note in (out / "done").iterdir():
        note.write_text(json.dumps({"prompts": 7, "candidates": 9, "rows": 1}))
    assert choose(equal_prompts, out, strategy="best") == whole
    assert files_in(out) == files_in(calm)
    summary = {**document(out)["summary"], "prompts": 7}
    (out / "choose.json").write_text(json.dumps({**document(out), "summary": summary}))
    job = export_commands.choosing_job(ChooseSettings(scored=equal_prompts, output=str(out), strategy="best"))
    assert export_job.read_finished_export(job) is None


def _stamp(path: Path) -> tuple[int, int]:
    """Differs for a file that was written again, though a file system may give it the number of one that is gone."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def _kill(monkeypatch: pytest.MonkeyPatch, step: str, calls: int, folder: str, output: Path, **settings: Any) -> None:
    """Choose, and die at a step of `output_folder` after some calls of it."""
    with monkeypatch.context() as patch:
        patch.setattr(output_folder, step, _dies_after(calls, getattr(output_folder, step)))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, output, **settings)


def _dies_after(calls: int, function: Any) -> Any:
    remaining = iter(range(calls))

    def call_or_die(*arguments: Any, **named: Any) -> Any:
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **named)

    return call_or_die


@pytest.mark.parametrize(("spill", "killed_at"), [(None, 1), ("spilled", 3)])
def test_a_shuffle_that_was_killed_goes_on_and_leaves_nothing(
    equal_prompts: str, tmp_path: Path, spill: str | None, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_PARTS", 4)
    out = tmp_path / "out"
    cut_up(monkeypatch, equal_prompts)
    settings = {"strategy": "top-k", "k": 2, "spill": spill and str(tmp_path / spill)}
    whole = choose(equal_prompts, tmp_path / "calm", **settings)
    written: list[int] = []
    write = Shuffle.write

    def write_or_die(self: Shuffle, number: int, parts: Sequence[Part]) -> None:
        if len(written) == killed_at:
            raise KeyboardInterrupt
        write(self, number, parts)
        written.append(number)

    monkeypatch.setattr(Shuffle, "write", write_or_die)
    with pytest.raises(KeyboardInterrupt):
        choose(equal_prompts, out, **settings)
    killed_at = 99
    assert choose(equal_prompts, out, **settings) == whole
    assert written == list(range(len(written))), "no file is written twice"
    assert len(written) > 3
    assert files_in(out) == files_in(tmp_path / "calm")
    assert [*(tmp_path / spill if spill else out).rglob("*.arrow"), *out.glob("_shuffle")] == []


def test_other_settings_take_nothing_of_a_killed_shuffle(
    equal_prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it left hold other columns, and the responses of a corpus that may have changed."""
    out = tmp_path / "out"
    cut_up(monkeypatch, equal_prompts)
    monkeypatch.setattr(export_job, "_BYTES", 2**26)
    monkeypatch.setattr(Shuffle, "read", _dies_after(0, None))
    names = []
    for floor in (None, 1.0):
        with pytest.raises(KeyboardInterrupt):
            choose(equal_prompts, out, strategy="best", floor=floor)
        (path,) = (out / "_shuffle").glob("*.arrow")
        names.append(path.name)
    assert names[0] != names[1]


def test_a_corpus_that_was_scored_on_is_chosen_from_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of what was done belong to the parts that were there."""
    folder, out = write_candidates(tmp_path / "in", *SIX), tmp_path / "out"
    cut_up(monkeypatch, folder)
    away = tmp_path / parts_of(folder)[0].name
    shutil.move(parts_of(folder)[0], away)
    _kill(monkeypatch, "finish", 0, folder, out, strategy="best", per="row", partial=True)
    assert os.listdir(out / "done") == ["00000.json"]
    shutil.move(away, Path(folder, "parts", away.name))
    assert choose(folder, out, strategy="best", per="row", partial=True).rows == 3
    assert texts(out) == ["0.1", "1.2", "3.0"]
