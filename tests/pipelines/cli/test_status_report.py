"""`assay status` of every folder, once and until its run ends."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from actors.errors import SourceError
from pipelines.cli.app import cli
from pipelines.cli.plain_console import show
from pipelines.cli.status_report import _short, read_status, status_report
from pipelines.data.corpus.assay_folders import EVALUATED
from pipelines.data.formats import RowShape
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import Holder, lease
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.output_folder import note_done
from pipelines.folders.run_folder.parts import Parts
from pipelines.settings.rescore_settings import RETRIED
from tests.support.candidates import judged_corpus
from tests.support.selections import corpus


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.fixture
def scored(tmp_path: Path) -> str:
    """Three prompts with two responses each."""
    rows = [{"prompt": f"p{index}", "responses": [f"good {index}", f"bad {index}"]} for index in range(3)]
    return judged_corpus(
        tmp_path / "scored", rows, [[index + 2.0, float(index)] for index in range(3)], RowShape("prompt-responses")
    )


OPTIONS = {"filter": ("--where", "reward >= 2"), "choose": ("--strategy", "best"), "export": ("--for", "sft")}


def make(command: str, scored: str, output: str) -> None:
    assert run(command, scored, output, *OPTIONS.get(command, ())).exit_code == 0


@pytest.mark.parametrize(
    ("command", "rows"), [("filter", "4 responses"), ("choose", "3 candidates"), ("pairs", "3 pairs"), ("export", "6 rows")]
)
def test_a_result_says_what_it_is_of_what_and_how_much(
    command: str, rows: str, scored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "result")
    make(command, scored, output)
    show(status_report(read_status(output)))
    shown = capsys.readouterr().out
    assert shown.startswith(f"complete: result of `{command}`, {rows} in 1 file of ")
    assert f"Made of {scored}, scored by " in shown
    assert "changed" not in shown
    assert "To resume" not in shown


def test_a_result_whose_corpus_has_changed_says_so(scored: str, tmp_path: Path) -> None:
    output = str(tmp_path / "result")
    make("choose", scored, output)
    next(Path(scored, "parts").glob("*.parquet")).unlink()
    assert "which has changed since" in run("status", output).output
    Path(scored, "manifest.json").unlink()
    assert "which isn't there any more" in run("status", output).output
    assert json.loads(run("status", output, "--json").output)["source_state"] == "gone"


def test_an_unfinished_result_says_what_is_written_and_how_to_resume(scored: str, tmp_path: Path) -> None:
    output = tmp_path / "result"
    make("pairs", scored, str(output))
    document = json.loads((output / "pairs.json").read_text())
    (output / "pairs.json").write_text(json.dumps({**document, "summary": None}))
    note_done(str(output), "00000", {"rows": 2})
    shown = run("status", output).output
    assert shown.startswith("stopped: result of `pairs`, 2 pairs in 1 file")
    assert f"assay run {output}/recipe.yaml" in shown
    with lease(str(output)):
        assert run("status", output).output.startswith("running: ")


def evaluation(folder: Path, summary: object, **settings: object) -> None:
    """The document of an evaluation."""
    EVALUATED.write(str(folder), EVALUATED.marked({"settings": settings, "description": "evaluate", "summary": summary}))


def summed_up(folder: str) -> str:
    """A run's folder, whose run is complete."""
    manifest = read_manifest(folder)
    assert manifest is not None
    replace(manifest, summary={"reasons": {}}).write(folder)
    return folder


def test_an_evaluation_names_its_models_and_benchmarks_with_their_progress(tmp_path: Path) -> None:
    files = ["reward-bench-2=a.parquet", "b.jsonl", "c.jsonl"]
    evaluation(tmp_path, None, scored=files, model=["tiny-scalar", "my/model"])
    scored = tmp_path / "scored"
    summed_up(corpus(scored / "reward-bench-2" / "tiny-scalar", [1.0] * 20))
    half = Path(corpus(scored / "pairs" / "tiny-scalar", [1.0] * 40), "parts")
    for part in sorted(half.glob("*.parquet"))[2:]:
        part.unlink()
    summed_up(corpus(scored / "reward-bench-2" / "my--model", [1.0] * 20))
    (scored / "pairs" / "my--model").mkdir()
    lines = run("status", tmp_path).output.splitlines()
    assert [line.strip() for line in lines if line.startswith("  ")] == [
        "tiny-scalar on pairs: stopped, 50.0% done, 20 responses",
        "tiny-scalar on reward-bench-2: complete, 20 responses",
        "tiny-scalar on c.jsonl: not begun",
        "my/model on pairs: not begun",
        "my/model on reward-bench-2: complete, 20 responses",
        "my/model on c.jsonl: not begun",
    ]
    runs = json.loads(run("status", tmp_path, "--json").output)["runs"]
    assert [entry["share"] for entry in runs] == [0.5, 1.0, 0.0, 0.0, 1.0, 0.0]
    with lease(str(tmp_path)):
        assert _short(read_status(str(tmp_path))).startswith("running: 2 of 6 runs complete; tiny-scalar on pairs: stopped")


def test_a_finished_evaluation_names_its_models_and_benchmarks(tmp_path: Path) -> None:
    evaluation(tmp_path, {"evaluations": 2}, scored=["a.jsonl"], model=["m"])
    saved = {"model": "m", "benchmark": "pairs"}
    (tmp_path / "results.json").write_text(
        json.dumps({"evaluations": [saved, {**saved, "preset": {}}, {**saved, "preset": 1}]})
    )
    shown = run("status", tmp_path).output
    assert "  m on pairs: complete\n" in shown
    assert "  m, as published on pairs: complete\n" in shown


def test_an_evaluation_of_scored_corpora_names_their_models(tmp_path: Path) -> None:
    folder = summed_up(corpus(tmp_path / "scored", [1.0] * 20))
    (tmp_path / "e").mkdir()
    evaluation(tmp_path / "e", None, scored=[folder, str(tmp_path / "gone")], model=[])
    model = read_status(folder).model
    assert model
    shown = run("status", tmp_path / "e").output
    assert f"  {model} on {folder}: complete, 20 responses\n" in shown
    assert f"  a model on {tmp_path / 'gone'}: not begun\n" in shown


def test_a_folder_of_something_else_says_what_status_reads(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="or the result of `filter`, `choose`, `pairs`, `export` or `evaluate`"):
        read_status(str(tmp_path))


@contextlib.contextmanager
def working(folder: Path, looks: Sequence[Callable[[], None]], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A run that holds the folder; each pause of the watch calls the next of `looks`. Yields the lengths of the pauses."""
    pauses, remaining = list[float](), iter(looks)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        next(remaining)()

    monkeypatch.setattr("pipelines.cli.status_report.time.sleep", pause)
    (folder / LEASE).write_bytes(Holder.this_process().content)
    yield pauses


@pytest.fixture
def unfinished(tmp_path: Path) -> tuple[Path, Callable[[], None], Callable[[], None]]:
    """A run of four parts of which one lacks; how it is committed, and how the run ends."""
    folder = tmp_path / "run"
    part = Path(corpus(folder, [1.0] * 40), "parts", Parts(str(folder)).listing()[0].name)
    content = part.read_bytes()
    part.unlink()

    def commit() -> None:
        part.write_bytes(content)

    def end() -> None:
        manifest = read_manifest(str(folder))
        assert manifest is not None
        replace(manifest, summary={"reasons": {}}).write(str(folder))
        (folder / LEASE).unlink()

    return folder, commit, end


def test_a_watch_appends_a_line_a_look_and_ends_with_the_run(unfinished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, commit, end = unfinished
    with working(folder, [lambda: None, commit, end], monkeypatch) as pauses:
        watched = run("status", folder, "--watch", "--interval", "2.5")
    assert watched.exit_code == 0
    assert pauses == [2.5] * 3
    lines = watched.output.splitlines()
    assert ["75.0% done: 30 responses" in line for line in lines[:2]] == [True, True]
    assert "100.0% done: 40 responses" in lines[2]
    assert lines[3].startswith("complete: 1 file by m, 4 parts")


@pytest.mark.parametrize(("how", "code"), [("stopped", 3), ("dead", 3), ("interrupted", 130)])
def test_a_watch_that_ends_early_tells_how_by_its_exit_code(
    how: str, code: int, unfinished: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, *_ = unfinished

    def end() -> None:
        if how == "interrupted":
            raise KeyboardInterrupt
        gone = replace(Holder.this_process(), start=1).content
        (folder / LEASE).unlink() if how == "stopped" else (folder / LEASE).write_bytes(gone)

    with working(folder, [end], monkeypatch):
        watched = run("status", folder, "--watch")
    assert watched.exit_code == code
    lines = watched.output.splitlines()[1:]
    assert lines == [] if how == "interrupted" else lines[0].startswith(f"{how}, 75.0% done")
    assert ("To resume" in watched.output) is (how != "interrupted")


def test_json_is_a_line_a_look(unfinished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, commit, end = unfinished
    with working(folder, [commit, end], monkeypatch):
        watched = run("status", folder, "--watch", "--json")
    assert [json.loads(line)["state"] for line in watched.output.splitlines()] == ["running", "running", "complete"]


@pytest.mark.parametrize(("reasons", "option"), [(RETRIED, ""), (["engine_timeout"], " --reasons engine_timeout")])
def test_after_a_killed_retry_its_command_resumes(scored: str, reasons: Sequence[str], option: str) -> None:
    manifest = read_manifest(scored)
    assert manifest is not None
    replace(manifest, summary=None, retries=({"reasons": sorted(reasons), "after": None},)).write(scored)
    printed = run("status", scored).output
    assert f"To resume: assay retry {scored}{option}\n" in printed.replace("\n  ", " ")
    assert "overwrite" not in printed
