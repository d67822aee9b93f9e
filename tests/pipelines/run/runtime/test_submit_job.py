"""What a job's end means for the command that waits for it, and what is refused before there is a job."""

from pathlib import Path

import pytest
from ray.job_submission import JobDetails, JobStatus

from actors.errors import SettingsError
from pipelines.run.runtime.submit_job import connect, exit_code
from tests.support.local_ray import run_here


def test_exit_codes() -> None:
    cases: list[tuple[JobStatus, int | None, int]] = [
        (JobStatus.SUCCEEDED, 0, 0),
        (JobStatus.SUCCEEDED, None, 0),
        (JobStatus.FAILED, 2, 2),
        (JobStatus.FAILED, 4, 4),
        (JobStatus.FAILED, -9, 137),  # out of memory
        (JobStatus.FAILED, None, 3),  # its node is gone, or it never started
        (JobStatus.STOPPED, None, 130),
    ]
    for status, driver, code in cases:
        assert exit_code(JobDetails(type="SUBMISSION", status=status, entrypoint="", driver_exit_code=driver)) == code


@pytest.mark.parametrize(
    ("address", "message"), [("http://127.0.0.1:1", "Failed to connect"), ("cloud://x", "Module: cloud does not exist")]
)
def test_no_cluster(address: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:2")
    with pytest.raises(SettingsError, match=f"no cluster accepts jobs at {address}: {message}"):
        connect(address)


def test_every_mistake_in_a_recipe_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("score: {output: out, modell: {}, model: {model: x, dtype: float8}}")
    done = run_here("submit", tmp_path / "recipe.yaml", "--address", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert "score.inputs is missing" in done.stderr
    assert "score.modell isn't a setting; did you mean model" in done.stderr
    assert "score.model.dtype = 'float8'" in done.stderr
    assert "127.0.0.1" not in done.stderr
