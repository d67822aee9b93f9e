"""What is told of a folder, and which of its files `score` and `plan` read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.errors import SourceError, UserError
from pipelines.cli.status import status
from pipelines.data.corpus.assay_folders import CERTIFIED, describe
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.formats import RowShape
from pipelines.results.exports import export_commands
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.export_settings import ChooseSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from tests.support.candidates import drawn_corpus, judged_corpus, prompts

RUNS = "`score`, `ensemble`, `sample` or `refine`"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path := tmp_path_factory.mktemp("folders"))
        return _write_each(tmp_path)


@pytest.fixture
def folders(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of each kind, in the current folder."""
    monkeypatch.chdir(written)
    return written


def _write_each(tmp_path: Path) -> Path:
    rows = [{"prompt": f"p{index}", "response": "r"} for index in range(4)]
    answered, rewards = RowShape("prompt-response"), [[float(index)] for index in range(4)]
    judged_corpus(tmp_path / "scored", rows, rewards, answered)
    drawn_corpus(tmp_path / "sampled", [{"prompt": "p"}], [[("a", 1.0), ("b", 2.0)]], prompts())
    judged_corpus(tmp_path / "both", rows, rewards, answered, ensemble=True)
    judged_corpus(tmp_path / "both" / "models" / "first", rows, rewards, answered)
    for name, condition in (("kept", "reward > 1"), ("none", "reward > 9")):
        keep(FilterSettings(scored="scored", output=name, where=condition))
    keep(FilterSettings(scored="scored", output="columns", where="reward > 1", format="parquet"))
    export_commands.choose(ChooseSettings(scored="sampled", output="chosen", strategy="best"))
    export_commands.make_pairs(PairSettings(scored="sampled", output="pairs", fake_ok=True))
    (tmp_path / "empty").mkdir()
    for name in ("file", "other/notes.txt", "other/filter.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


TOLD = [
    ("nowhere", "isn't there"),
    ("file", "is a file"),
    ("empty", "is an empty folder"),
    ("other", "has no manifest.json; it holds filter.json, notes.txt"),
    ("scored", "is a scored corpus"),
    ("sampled", "is a scored corpus of a policy's candidates"),
    ("both", "is the scored corpus of an ensemble"),
    ("both/models", "isn't one itself, and holds {folders}/both/models/first"),
    ("scored/parts", "is the folder 'parts' inside {folders}/scored, which is a scored corpus"),
    ("kept", "is the result of `filter` of scored"),
    ("chosen", "is the result of `choose` of sampled"),
    ("pairs", "is the result of `pairs` of sampled"),
]


@pytest.mark.parametrize(("folder", "description"), TOLD)
def test_a_folder_is_told_as_what_it_is(folders: Path, folder: str, description: str) -> None:
    assert describe(folder) == description.replace("{folders}", str(folders))


def test_a_result_that_was_begun_is_told_as_such(folders: Path, tmp_path: Path) -> None:
    path = shutil.copytree(folders / "kept", tmp_path / "begun") / "filter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "summary": None}))
    assert describe(str(path.parent)) == "is an unfinished result of `filter` of scored"
    with pytest.raises(SourceError, match="is an unfinished result of `filter` of scored; run the command"):
        find_corpus([str(path.parent)])


UNREADABLE = ["nowhere", "empty", "other", "chosen", "pairs", "both/models", "scored/parts"]
COMMANDS: dict[str, Callable[[str], object]] = {
    "filter": lambda folder: keep(FilterSettings(scored=folder, where="reward > 0")),
    "choose": lambda folder: export_commands.choose(ChooseSettings(scored=folder, output="out", strategy="best")),
    "pairs": lambda folder: export_commands.make_pairs(PairSettings(scored=folder, output="out", fake_ok=True)),
    "status": status,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_a_folder_is_that_it_cant_read(folders: Path, command: str) -> None:
    for folder in [*UNREADABLE, *(["kept"] if command == "status" else [])]:
        with pytest.raises(UserError) as refused:
            COMMANDS[command](folder)
        assert f"{folder} {describe(folder)}, and `{command}` reads a scored corpus" in str(refused.value)
        assert f"(the output folder of {RUNS})" in str(refused.value)
    with pytest.raises(UserError, match="file is a file"):
        COMMANDS[command]("file")


@pytest.mark.parametrize(("folder", "name"), [("kept", "kept"), ("chosen", "chosen"), ("pairs", "pairs")])
def test_of_a_result_its_rows_alone_are_read(folders: Path, folder: str, name: str) -> None:
    corpus = find_corpus([folder])
    assert [file.name for file in corpus.files] == [f"{name}-00000.jsonl"]
    assert corpus.left_out == []


def test_changed_rows_of_a_certificate_are_no_corpus(tmp_path: Path) -> None:
    CERTIFIED.write(str(tmp_path / "certificate"), CERTIFIED.marked({}))
    for name in ("rows.jsonl", "certificate/rows.jsonl"):
        (tmp_path / name).write_text("{}\n")
    corpus = find_corpus([str(tmp_path)])
    assert [file.path for file in corpus.files] == [str(tmp_path / "rows.jsonl")]
    assert corpus.left_out == [f"{tmp_path}/certificate (a certificate)"]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        (
            "scored",
            "scored is a scored corpus: its rows are responses with their scores. Give the corpus",
        ),
        ("both", "both is the scored corpus of an ensemble: its rows are"),
        (
            "columns",
            "columns is the result of `filter` of scored with --format parquet, .* filter again with --format jsonl",
        ),
        ("none", "none is the result of `filter` of scored, and no row came out of it"),
    ],
)
def test_a_folder_without_input_rows_is_told(folders: Path, folder: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        find_corpus([folder])


def test_a_document_of_somebody_else_is_a_file_like_any_other(folders: Path) -> None:
    assert [file.name for file in find_corpus(["other"]).files] == ["filter.json"]
