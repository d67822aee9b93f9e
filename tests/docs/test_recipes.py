"""The recipes of docs/recipes, run as they are printed: what they show is what comes out, but for times and last digits."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from actors.engine.fork_server import SWITCH, share
from tests.conftest import REPOSITORY
from tests.support.endpoints import wait
from tests.support.pages import DOCS, Block, blocks

PAGES = sorted((DOCS / "recipes").glob("*.md"))
SERVE = "assay serve "

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Step(NamedTuple):
    """A command of a console block, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


def steps(block: Block) -> Iterator[Step]:
    for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *shown = session.splitlines()
        yield Step(command, tuple(shown))


class Shell:
    """Runs what a page shows, in one folder, with this environment's programs first on the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        self._environment = variables | {
            "PATH": path,
            "PYTHONPATH": _with_ours(variables),
            "COLUMNS": "100",
            SWITCH: share(),
        }
        self._server: subprocess.Popen[bytes] | None = None

    def run(self, step: Step) -> str:
        if step.command.startswith("cat "):
            (self._folder / step.command.removeprefix("cat ")).write_text("\n".join(step.shown).strip() + "\n")
        if step.command.startswith(SERVE):
            return self._serve(step.command)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr + done.stdout

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(60)

    def _serve(self, command: str) -> str:
        log = self._folder / "serve.log"
        with log.open("wb") as output:
            words = command.split()
            self._server = subprocess.Popen(words, cwd=self._folder, env=self._environment, stdout=output, stderr=output)
        server = self._server
        wait(lambda: "ready at" in log.read_text() or server.poll() is not None)
        return log.read_text()


def _with_ours(variables: dict[str, str]) -> str:
    return os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "client"), variables["PYTHONPATH"]])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_comes_out_as_it_is_printed(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for block in [block for block in blocks() if block.page == page]:
            if block.language == "yaml":
                shell.write("rubric.yaml", block.text)
            if block.language == "python":
                shell.write("recipe.py", block.text)
                shell.run(Step("python recipe.py", ()))
            if block.language == "console":
                for step in steps(block):
                    check_shown(step, shell.run(step))
    finally:
        shell.stop()


def check_shown(step: Step, output: str) -> None:
    """The lines that are shown come out in their order; `...` stands for any lines, or the end of one."""
    lines = iter([line.split() for line in output.splitlines()])
    for shown in filter(None, (line.split() for line in step.shown)):
        if shown != ["..."]:
            assert any(are_alike(shown, line) for line in lines), f"{step.command}: no line like {shown} in\n{output}"


def are_alike(shown: list[str], line: list[str]) -> bool:
    """Whether a line is the one that is shown: words are equal, and numbers up to what another processor changes."""
    if shown and shown[-1].endswith("..."):
        return " ".join(line).startswith(" ".join(shown).removesuffix("..."))
    return len(shown) == len(line) and all(map(is_alike, shown, line))


def is_alike(shown: str, word: str) -> bool:
    try:
        return float(word.rstrip("%,")) == pytest.approx(float(shown.rstrip("%,")), rel=0.03, abs=0.06)
    except ValueError:
        return shown == word
