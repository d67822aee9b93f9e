"""Results on the Hub: the real client, against the Hub's routes on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import huggingface_hub.constants
import pytest
import yaml

from actors.errors import RunStopped, SettingsError
from assay import choose, filter, pairs
from pipelines.data.formats import RowShape
from pipelines.results.hub import upload
from pipelines.settings.export_settings import PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus
from tests.support.commands import assay
from tests.support.corpora import chat
from tests.support.hub import TOKEN, HubDataset, LocalHub, local_hub

REPOSITORY = "my-team/best-answers"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with local_hub() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(upload, "_WAITS_S", (0.0, 0.0))
        yield hub


@pytest.fixture
def scored(tmp_path: Path) -> str:
    rows = [chat("What is 2 + 2?", answer, id=index) for index, answer in enumerate(("4", "5", "four"))]
    return judged_corpus(tmp_path / "secret place", rows, [[3.0], [-1.0], [2.0]], RowShape("messages"))


def lines_of(dataset: HubDataset) -> list[dict[str, Any]]:
    rows = [content for name, content in sorted(dataset.files.items()) if name.startswith("data/")]
    return [json.loads(line) for content in rows for line in content.splitlines()]


def test_only_rows_and_the_card_leave_and_can_be_loaded(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    hub.refusals = [503, 429]  # a busy Hub is asked again
    filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY)
    dataset = hub.datasets[REPOSITORY]
    assert (dataset.private, dataset.commits, set(dataset.files)) == (True, 1, {"README.md", "data/kept-00000.jsonl"})
    for name, content in dataset.files.items():
        assert not any(text in content for text in (str(tmp_path).encode(), b"secret place", TOKEN.encode()))
        path = tmp_path / "downloaded" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    loaded = datasets.load_dataset(str(tmp_path / "downloaded"), split="train", cache_dir=str(tmp_path / "cache"))
    assert (loaded["id"], loaded["reward"]) == ([0, 2], [3.0, 2.0])
    for file in ("filter.json", "recipe.yaml"):
        assert REPOSITORY not in (tmp_path / "out" / file).read_text(), "the Hub is no part of what a result is"


def test_the_card_says_what_made_the_rows(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    pairs(scored, str(tmp_path / "out"), min_margin=0.5, hub=REPOSITORY, public=True)
    assert not hub.datasets[REPOSITORY].private
    card = hub.datasets[REPOSITORY].files["README.md"].decode()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["configs"] == [{"config_name": "default", "data_files": "data/*.jsonl"}]
    for text in (
        "`assay pairs` (for: trl, min_margin: 0.5)",
        "of responses scored by `m`.",
        "| rows | 1 |",
        "| candidates | 3 |",
    ):
        assert text in card


def test_a_second_result_replaces_the_first_and_nothing_beside_it(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    hub.datasets[REPOSITORY] = HubDataset(True, {"LICENSE": b"ours", "data/kept-00007.jsonl": b"{}\n", "README.md": b"old"})
    filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY)
    dataset = hub.datasets[REPOSITORY]
    assert set(dataset.files) == {"LICENSE", "README.md", "data/kept-00000.jsonl"}
    assert dataset.files["LICENSE"] == b"ours"
    assert dataset.commits == 1


def test_the_visibility_of_a_dataset_is_what_is_said(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    for private, says in ((False, "is public: anybody could read the rows"), (True, "is private, and --public is given")):
        hub.datasets[REPOSITORY] = HubDataset(private=private)
        with pytest.raises(SettingsError, match=says):
            filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY, public=private)
    assert not (tmp_path / "out").exists(), "it is refused before the command works"
    hub.datasets[REPOSITORY] = HubDataset(private=False)
    choose(scored, str(tmp_path / "out"), "top-k", k=3, hub=REPOSITORY, public=True)
    assert len(lines_of(hub.datasets[REPOSITORY])) == 3


def test_a_result_that_couldnt_be_uploaded_stays_and_is_uploaded_later(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hub.refusals = [503] * 3
    with pytest.raises(RunStopped, match=r"the Hub answered 503; the result is complete, and `assay upload .*out my-team"):
        filter(scored, str(out), "reward > 0", hub=REPOSITORY)
    written = {path.name: path.stat().st_mtime_ns for path in out.glob("*.jsonl")}
    assert written
    upload.upload_result(str(out), REPOSITORY)
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("*.jsonl")} == written
    assert len(lines_of(hub.datasets[REPOSITORY])) == 2


@pytest.mark.parametrize("missing", ["token", "right"])
def test_a_token_that_may_not_write_is_known_before_anything_is_done(
    hub: LocalHub, scored: str, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.datasets[REPOSITORY] = HubDataset(private=True)
    hub.writable = missing != "right"
    if missing == "token":
        monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    with pytest.raises(SettingsError, match=r"the Hub refuses it \(40[13]\)"):
        filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY)
    assert not (tmp_path / "out").exists()


def test_a_hub_that_cant_be_reached_is_told(
    hub: LocalHub, scored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RunStopped, match="the Hub can't be reached"):
        filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="HF_HUB_OFFLINE is set"):
        filter(scored, str(tmp_path / "out"), "reward > 0", hub=REPOSITORY)
    assert not (tmp_path / "out").exists()


def test_a_result_without_rows_is_not_uploaded(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has no rows, so there is nothing to upload"):
        filter(scored, str(tmp_path / "out"), "reward > 100", hub=REPOSITORY)
    assert REPOSITORY not in hub.datasets or not hub.datasets[REPOSITORY].files


def test_an_output_on_the_hub_is_a_folder_and_the_dataset() -> None:
    settings = PairSettings(scored="s", output="hf://datasets/my-team/best-answers")
    assert (settings.output, settings.hub) == ("hf-my-team-best-answers", REPOSITORY)
    with pytest.raises(SettingsError, match="are two datasets"):
        build(PairSettings, {"scored": "s", "output": "hf://datasets/a/b", "hub": "c/d"})


@pytest.mark.parametrize("name", ["no-owner", "a/b/c", "../x/y", "https://huggingface.co/datasets/a/b"])
def test_a_name_that_isnt_one_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="isn't the name of a dataset on the Hub"):
        FilterSettings(scored="s", output="o", hub=name)


def test_the_commands_upload_at_their_end_and_alone(hub: LocalHub, scored: str, tmp_path: Path) -> None:
    more = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
    done = assay("filter", scored, tmp_path / "out", "--where", "reward > 0", "--hub", REPOSITORY, **more)
    assert done.returncode == 0, done.stderr
    assert f"Uploaded to {hub.url}/datasets/{REPOSITORY} (private), commit {1:040x}" in done.stdout
    done = assay("upload", tmp_path / "out", REPOSITORY, "--json", **more)
    assert done.returncode == 0, done.stderr
    figures = {
        "assay_json": 1,
        "url": f"{hub.url}/datasets/{REPOSITORY}",
        "commit": f"{2:040x}",
        "files": 1,
        "public": False,
    }
    assert json.loads(done.stdout) == figures
    assert len(lines_of(hub.datasets[REPOSITORY])) == 2
    done = assay("upload", scored, REPOSITORY, **more)
    assert (done.returncode, hub.datasets[REPOSITORY].commits) == (2, 2)
    assert "what can be uploaded is a finished result of `filter`, `choose`, `pairs` or `export`" in done.stderr
