"""The lines of README.md that score and filter, in a shell, on the real engine; the quickstart shows what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from actors.engine.fork_server import SWITCH, share
from tests.conftest import REPOSITORY
from tests.support.commands import PATIENCE_S
from tests.support.pages import DOCS, Block, blocks

README = REPOSITORY / "README.md"
ACTIVATE = ". .venv/bin/activate\n"


def block_with(page: Path, text: str) -> Block:
    (actual_block,) = [block for block in blocks() if block.page == page and text in block.text]
    return actual_block


@pytest.mark.long
@pytest.mark.timeout(900)  # two engines start, one after the other
def test_readme_scores_and_filters_as_the_quickstart_shows(tmp_path: Path) -> None:
    shown = block_with(README, "--per prompt --overwrite")
    assert shown.text.startswith(ACTIVATE)
    (tmp_path / "from_python.py").write_text(block_with(README, "from assay import filter, score").text)
    done = subprocess.run(
        ["bash", "-euc", f"mkdir demo\n{shown.text.removeprefix(ACTIVATE)}\npython from_python.py"],
        cwd=tmp_path,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY), SWITCH: share()},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    stdout = done.stdout + done.stderr
    quickstart = DOCS / "quickstart.md"
    for line in block_with(quickstart, "$ assay score").text.splitlines():
        if re.match(r"messages: |loading |.* 19,344$|Scored corpus: ", line):
            assert line in stdout
    kept, expected = (
        re.findall(r"Kept (\d+) of 300 responses", text)[0]
        for text in (stdout, block_with(quickstart, "$ assay filter").text)
    )
    assert abs(int(kept) - int(expected)) <= 3, "on other cards the last bits differ"
    assert list((tmp_path / "demo" / "best").glob("kept-*.jsonl"))
    assert list((tmp_path / "demo" / "good").glob("kept-*.jsonl"))
