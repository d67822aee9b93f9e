"""How far a run is, and what became of it, by its folder."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.cli import status as statuses
from pipelines.cli.plain_console import show
from pipelines.cli.status import RunState, status
from pipelines.cli.status_report import status_report
from pipelines.data.storage import LEASE
from pipelines.data.storage import lease as leases
from pipelines.data.storage.lease import Holder, lease
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.scoring.score_corpus import score
from tests.support.candidates import scored_corpus
from tests.support.corpora import chat, lines, rows, settings, write
from tests.support.selections import corpus


def test_a_run_that_works_on_tells_its_rate_and_what_is_left(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [1.0] * 200)
    parts = Parts(folder).listing()
    for index, part in enumerate(parts):
        path = tmp_path / "parts" / part.name
        os.utime(path, (1000 + 10 * index, 1000 + 10 * index))
        if index >= 15:
            path.unlink()
    result = status(folder)
    assert (result.complete, result.parts, result.rows) == (False, 15, 150)
    assert result.share == pytest.approx(0.75)
    assert result.responses_per_s == pytest.approx(1.0)  # ten every ten seconds
    assert result.eta == pytest.approx(50.0)
    assert result.last_part_ago is not None
    assert result.last_part_ago > 1e9


def test_a_run_with_nothing_done_tells_nothing_of_time(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [1.0] * 20)
    for part in Parts(folder).listing():
        (tmp_path / "parts" / part.name).unlink()
    result = status(folder)
    assert (result.complete, result.share) == (False, 0)
    assert (result.last_part_ago, result.responses_per_s, result.eta) == (None, None, None)


def test_a_run_that_isnt_complete_says_what_was_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = [{"prompt": "q", "response": 5}, *({"prompt": "q", "response": f"{index}"} for index in range(9))]
    folder = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(broken)), tmp_path / "out"))
    show(status_report(status(folder)))
    shown = capsys.readouterr().out
    assert "  content_not_text: c.jsonl:0 final: response: a number, 5, where text is expected\n" in shown


def stopped(tmp_path: Path) -> str:
    folder = corpus(tmp_path, [1.0] * 40)
    (tmp_path / "parts" / Parts(folder).listing()[0].name).unlink()
    return folder


def test_a_run_that_ended_early_is_stopped_and_one_that_holds_its_folder_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stopped(tmp_path)
    assert (status(folder).state, status(folder).holder) == (RunState.STOPPED, None)
    with lease(folder):
        run = status(folder)
        assert run.state is RunState.RUNNING
        assert run.holder is not None
        assert (run.holder.pid, run.holder.is_gone) == (os.getpid(), False)
        assert run.holder.last_sign_ago < 60
        show(status_report(run))
    shown = capsys.readouterr().out
    assert shown.startswith("running, 75.0% done: ")
    assert f"Held by process {os.getpid()} on {run.holder.host} since 20" in shown
    assert "To resume" not in shown


@pytest.mark.parametrize(
    ("change", "is_gone"),
    [
        (lambda holder: replace(holder, start=holder.start - 1), True),
        (lambda holder: replace(holder, renewed=holder.renewed - 120), False),
        (lambda holder: replace(holder, machine="another", renewed=holder.renewed - 120), False),
    ],
    ids=["its process is gone", "it is suspended", "another machine's gives no sign"],
)
def test_a_run_whose_holder_is_gone_is_dead_and_says_how_to_resume(
    change: Callable[[Holder], Holder],
    is_gone: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    folder = stopped(tmp_path)
    (tmp_path / LEASE).write_bytes(change(Holder.this_process()).content)
    (tmp_path / "recipe.yaml").touch()
    run = status(folder)
    assert run.state is RunState.DEAD
    assert run.holder is not None
    assert run.holder.is_gone is is_gone
    show(status_report(run))
    shown = capsys.readouterr().out
    assert shown.startswith("dead, 75.0% done: ")
    assert ("; that process is gone" in shown) is is_gone
    assert "To resume, run the same command again without `overwrite`, or, from" in shown
    assert f"assay run {folder}/recipe.yaml" in shown


def test_another_machines_run_whose_clock_is_behind_is_seen_to_be_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(tmp_path)
    behind = replace(Holder.this_process(), machine="another", renewed=1.0)
    (tmp_path / LEASE).write_bytes(behind.content)

    def renew(seconds: float) -> None:
        (tmp_path / LEASE).write_bytes(replace(behind, renewed=6.0).content)

    monkeypatch.setattr("pipelines.data.storage.lease.time.sleep", renew)
    assert status(folder).state is RunState.RUNNING


def test_why_rows_have_no_reward_is_counted_the_most_frequent_reason_first(
    tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [{"messages": []}, {"messages": 3}, *[chat("q", "<extra_id_1>")] * 3]
    score(settings(write(tmp_path / "c.jsonl", lines([*rows(20), *bad])), tmp_path / "out", part_rows=2))
    folder = str(tmp_path / "out")
    counted = {"control_token": 3, "no_messages": 1, "wrong_type": 1}
    (tmp_path / "out" / LEASE).write_bytes(replace(Holder.this_process(), start=1).content)  # died after the manifest
    complete = status(folder)
    assert complete.state is RunState.COMPLETE
    (tmp_path / "out" / LEASE).unlink()
    assert (complete.reasons, next(iter(complete.reasons))) == (counted, "control_token")
    Parts(folder).parts_folder.delete(Parts(folder).listing()[0].name)
    run = status(folder)
    assert (run.state, run.reasons, next(iter(run.reasons))) == (RunState.STOPPED, counted, "control_token")
    assert run.reasons_of_parts[0] == run.reasons_of_parts[1] > 1
    monkeypatch.setattr(statuses, "_REASON_PARTS", 1)
    show(status_report(status(folder)))
    assert f"(in the newest 1 of {run.reasons_of_parts[1]} parts that have any)" in capsys.readouterr().out
