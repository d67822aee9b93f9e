"""The notebooks of examples/ run from top to bottom, each in a kernel and an empty folder, and show what they say."""

import re
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import reads

from actors.engine.fork_server import SWITCH, share
from tests.conftest import REPOSITORY

SHOWN = {
    "best_of_n_to_pairs": (r"320 candidates for 40 prompts", r"40 best answers; \d+ pairs of 40 prompts", r"rejected: \S"),
    "choose_a_reward_model": (r"tiny-attributes: 19\d of 200 pairs", r"tiny-scalar: 9\d\.\d%, from 9\d\.\d% to \d+\.\d%"),
    "filter_a_corpus": (r"300 rows, 300 responses: 300 scored", r"kept 1[34]\d of 300 responses"),
    "judge_with_a_rubric": (r"3 of 3 responses scored", r"sum +│ +5\.0", r'"score": 2'),
}
"""What each must show, by its name: what a reader is led to, and numbers only as far as another CPU gives them, too."""


def read(path: Path) -> Any:
    """A notebook, cell by cell."""
    return reads(path.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]


def run(path: Path, place: Path) -> tuple[str, str]:
    """The output of all cells: what is shown, and what was written to standard error."""
    notebook = read(path)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output.get("data", {}).get("text/plain", "") or output.get("text", "") for output in outputs]
    return "\n".join(shown), "".join(output["text"] for output in outputs if output.get("name") == "stderr")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_notebook_runs_and_shows_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(SWITCH, share())  # vLLM is imported for the engines of all notebooks once
    shown, errors = run(REPOSITORY / "examples" / f"{name}.ipynb", tmp_path)
    for pattern in SHOWN[name]:
        assert re.search(pattern, shown), f"{pattern}\n{shown}"
    assert errors == ""


def test_every_notebook_is_run_and_holds_the_outputs_of_a_whole_run() -> None:
    paths = {path.stem: path for path in (REPOSITORY / "examples").glob("*.ipynb")}
    assert paths.keys() == SHOWN.keys()
    for name, path in paths.items():
        cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), name
        shown = "\n".join(str(output) for cell in cells for output in cell.outputs)
        assert "error" not in {output.output_type for cell in cells for output in cell.outputs}
        assert not re.search(r"/(home|root|tmp|Users)/", shown), f"{name} shows a path of somebody's machine"
