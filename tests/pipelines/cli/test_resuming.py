"""What a command that stopped says of how to resume: no way that is named deletes what is written."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobDetails, JobStatus

from actors.errors import OutputError, RunStopped
from pipelines.cli import app
from pipelines.cli.commands.submit import _how_it_ended
from pipelines.settings.recipe import read_recipe

RUN = "score: {inputs: c.jsonl, output: out, model: tiny-scalar, overwrite: %s}"
LATER = "filter: {scored: out, output: kept, where: reward > 1, overwrite: true}"
"""It replaces a finished result only, so it resumes as it is; without, an older result would be in its way."""
ANEW, RESUMING = f"{RUN % 'true'}\n{LATER}\n", f"{RUN % 'false'}\n{LATER}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def message(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["assay", *words])
    return app._stop_message(RunStopped("why"))[0]


@pytest.mark.parametrize(
    ("recipe", "change"),
    [(RESUMING, ""), (ANEW, ", without `overwrite` in score"), (None, ", without `overwrite`")],
    ids=["resumes", "starts anew", "is gone"],
)
def test_a_recipe_must_lose_the_overwrite_of_its_run(
    recipe: str | None, change: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recipe is not None:
        (here / "r.yaml").write_text(recipe)
    text = message(monkeypatch, "run", "--json", "r.yaml")
    assert text == f"why\nWhat is written stays, and to resume{change}:\n  assay run --json r.yaml"


def test_a_command_is_named_without_its_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    text = message(monkeypatch, "score", "c.jsonl", "out", "--overwrite")
    assert text.endswith(", and to resume, without --overwrite:\n  assay score c.jsonl out")
    assert message(monkeypatch, "score", "c.jsonl", "out").endswith(", and to resume:\n  assay score c.jsonl out")
    assert message(monkeypatch, "diff", "a", "b") == "why", "it writes nothing"


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (("score", "c.jsonl", "out", "--overwrite"), ", without --overwrite"),
        (("score", "c.jsonl", "out"), ""),
        (("run", "recipe.yaml"), ", without `overwrite` in score"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_job_isnt_submitted_again_as_it_is(
    words: tuple[str, ...], change: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = here / "runtime_resources" / "working_dir_files" / "job"
    job.mkdir(parents=True)
    (job / "recipe.yaml").write_text(ANEW)
    monkeypatch.chdir(job)
    assert message(monkeypatch, *words).endswith(f", and submit the same job again to resume{change}")


@pytest.mark.parametrize(("recipe", "change"), [(RESUMING, ""), (ANEW, ", without `overwrite` in score")])
def test_who_submits_a_recipe_reads_what_it_must_lose(recipe: str, change: str, here: Path) -> None:
    (here / "r.yaml").write_text(recipe)
    stopped = JobDetails(type="SUBMISSION", status=JobStatus.STOPPED, entrypoint="")
    text = _how_it_ended("job", stopped, 130, ["assay", "submit", "r.yaml"], read_recipe("r.yaml").change_to_resume)
    assert text == f"assay: the job job was stopped. What is written stays. To resume{change}:\n  assay submit r.yaml"


@pytest.mark.parametrize(
    ("number", "wrapped", "code"),
    [(errno.ENOSPC, True, 3), (errno.EDQUOT, False, 3), (errno.EACCES, True, 2)],
    ids=["a full disk", "a used-up share of a disk", "no permission"],
)
def test_a_full_disk_is_no_wrong_command(
    number: int, wrapped: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(**_: Any) -> None:
        cause = OSError(number, os.strerror(number))
        if not wrapped:
            raise cause
        raise OutputError(f"out can't be written: {cause.strerror}") from cause

    monkeypatch.setattr(app, "cli", write)
    with pytest.raises(SystemExit) as end:
        app._run()
    assert end.value.code == code
    text = capsys.readouterr().err
    assert os.strerror(number) in text
    assert ("to resume" in text) is (code == 3)
