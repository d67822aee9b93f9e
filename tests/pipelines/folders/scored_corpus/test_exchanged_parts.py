"""A part file that holds another part's rows is refused by whoever reads it, and nothing else lies among the parts."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from actors.errors import SourceError
from pipelines.cli.app import cli
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.part_files import drop_unreadable
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.folders.scored_corpus.summary import summarise
from tests.support.candidates import drawn_corpus, prompts

ROWS = 12
OTHER_RUN = "f" * 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six parts of two rows with two candidates each: of equal counts, so that their files differ by their rows alone."""
    candidates = [[(f"{at}.{place}", float(at + place)) for place in range(2)] for at in range(ROWS)]
    drawn_corpus(tmp_path / "scored", [{"prompt": f"p{at}"} for at in range(ROWS)], candidates, prompts())
    return tmp_path / "scored"


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "parts").iterdir())


def copied(folder: Path) -> None:
    shutil.copy(files_of(folder)[3], files_of(folder)[1])


def of_another_run(folder: Path) -> None:
    """The part of the same rows, as another run scored them."""
    path, other = files_of(folder)[1], Parts(str(folder.parent / "other"), OTHER_RUN)
    part = Part.parse(path.name)
    assert part is not None
    other.create()
    other.commit(part, pq.read_table(path), {})
    path.write_bytes(other.parts_folder.read(part._replace(run=OTHER_RUN).name))


def rewritten(folder: Path) -> None:
    """By another program, which leaves out what the file says of itself."""
    pq.write_table(pq.read_table(files_of(folder)[3]), files_of(folder)[1])


def fewer_responses(folder: Path) -> None:
    """What a retry replaced, under the name of what replaced it: other counts, the same place."""
    path = files_of(folder)[1]
    path.rename(path.with_name(path.name.replace("-2-4-0-0-", "-2-5-0-0-")))


HARMS = (copied, of_another_run, rewritten, fewer_responses)
COMMANDS = [
    "filter SCORED OUT --where 'reward > 0'",
    "filter SCORED OUT --where 'reward > 0' --rows responses",
    "filter SCORED OUT --top-fraction 0.5",
    "filter SCORED OUT --top-k 1 --per prompt",
    "choose SCORED OUT --strategy best",
    "pairs SCORED OUT --set fake_ok=true",
    "export SCORED OUT --for sft",
    "report SCORED --out OUT.html",
    "diff SCORED SAME",
]


@pytest.mark.parametrize("harm", HARMS)
def test_a_part_that_isnt_what_its_name_says_is_refused_wherever_parts_are_read(
    harm: Callable[[Path], None], folder: Path
) -> None:
    harm(folder)
    opened, files_before = open_scored(str(folder), "x"), files_of(folder)
    wrong = files_before[1]
    named = rf"{wrong.name} can't be read: .*`assay verify {folder} --repair`"
    with pytest.raises(SourceError, match=named):
        [list(opened.responses.tables(part, ["reward"])) for part in opened.responses.parts.listing()]
    with pytest.raises(SourceError, match=named):
        summarise(opened.responses.parts, opened.manifest.columns, opened.counts)
    dropped = [part.name for part in drop_unreadable(opened.responses.parts, lambda note: None)]
    assert dropped == [wrong.name]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_counts_rows_twice(command: str, folder: Path, tmp_path: Path) -> None:
    def run(output: str) -> Result:
        places = {"SCORED": folder, "OUT": tmp_path / output, "OUT.html": tmp_path / "r.html", "SAME": tmp_path / "same"}
        words = [str(places.get(word, word)) for word in shlex.split(command)]
        return CliRunner().invoke(cli, words, standalone_mode=False)

    shutil.copytree(folder, tmp_path / "same")
    assert run("before").exception is None
    copied(folder)
    ended = run("after")
    assert isinstance(ended.exception, SourceError)
    assert files_of(folder)[1].name in str(ended.exception)
