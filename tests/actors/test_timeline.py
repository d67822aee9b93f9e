"""The moments of a start, from several processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from actors import timeline


def test_moments_of_several_processes_are_in_the_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "timeline"
    monkeypatch.setenv(timeline.FILE, str(file))
    timeline.mark("first step")
    subprocess.run([sys.executable, "-c", "from actors.timeline import mark; mark('in another process')"], check=True)
    timeline.mark("last step")
    moments = timeline.read(file)
    assert [moment.step for moment in moments] == ["first step", "in another process", "last step"]
    lines = timeline.lines_of(moments, moments[0].at)
    assert lines[0] == "  0.00 s  process 1  first step"
    assert lines[1].endswith("process 2  in another process")
    assert lines[2].endswith("process 1  last step")


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(timeline.FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    timeline.mark("a step")
    assert list(tmp_path.iterdir()) == []
