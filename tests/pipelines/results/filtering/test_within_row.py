"""Rewards that compare the responses of one row are never compared with those of another."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actors.errors import SettingsError
from actors.reward_model import resolve_model
from actors.settings.replica import JudgeSettings, ModelSettings, ReadSettings, RenderSettings
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.results.exports import export_commands, export_job
from pipelines.results.filtering import filter_corpus
from pipelines.run.prepare import resolve_run
from pipelines.settings.export_settings import PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.run_settings import DatasetSettings
from tests.support.candidates import drawn_corpus, prompts
from tests.support.corpora import scored
from tests.support.ensembles import combined, members, to_prompt
from tests.support.exports import choose, pair
from tests.support.judges import judge_folder

OUTSIDE = "those of different rows can't be compared"


def compared(folder: str) -> str:
    """A scored folder as a judge makes it that compares the responses of a row."""
    path = Path(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "within_row": True}))
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """Two rows of one prompt, with two candidates each."""
    candidates = [[("a", 1.0), ("b", 0.0)], [("c", 0.9), ("d", 0.1)]]
    return compared(drawn_corpus(tmp_path / "scored", [{"prompt": "p"}] * 2, candidates, prompts()))


def test_pairs_and_choices_are_made_within_a_row(corpus: str, tmp_path: Path) -> None:
    for name, export, settings in (("choose", choose, {"strategy": "best"}), ("pairs", pair, {"pairs": "all"})):
        with pytest.raises(SettingsError, match=rf"--per prompt: .*{OUTSIDE}; give --per row"):
            export(corpus, tmp_path / name, **settings)
        assert export(corpus, tmp_path / name, per="row", **settings).rows == 2


@pytest.mark.parametrize("choice", [{"top_fraction": 0.5}, {"quantile": 0.5}, {"top_k": 1}])
def test_the_best_of_several_rows_arent_chosen(corpus: str, choice: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=OUTSIDE):
        filter_corpus.keep(FilterSettings(scored=corpus, **choice))
    with pytest.raises(SettingsError, match=OUTSIDE):
        filter_corpus.keep(FilterSettings(scored=corpus, by="1 - scores.reward", **choice))
    assert filter_corpus.keep(FilterSettings(scored=corpus, by="length(candidate)", **choice)).responses == 4
    assert filter_corpus.keep(FilterSettings(scored=corpus, top_k=1, per="row")).kept == 2


def test_a_recipes_steps_are_refused_ahead(corpus: str) -> None:
    manifest = read_manifest(corpus)
    assert manifest is not None
    job = export_commands.pairing_job(PairSettings(scored="later", output="pairs"))
    with pytest.raises(SettingsError, match=OUTSIDE):
        export_job.check_ahead(job, manifest.columns)
    with pytest.raises(SettingsError, match=OUTSIDE):
        filter_corpus.check_ahead(FilterSettings(scored="later", top_fraction=0.5), manifest.columns)


def test_z_scores_of_an_ensemble_are_within_a_row(tmp_path: Path) -> None:
    first, second = (
        to_prompt("p", (1.0, 1.0), (0.0, 0.0), (0.9, 0.9), (0.4, 0.4))[:2],
        to_prompt("p", (0.9, 0.9), (0.4, 0.4)),
    )
    rows = [[*first[0], *first[1]], [*second[0], *second[1]]]
    members(tmp_path, rows, ("a", "b"))
    compared(folder_of(str(tmp_path), "b"))
    combined(tmp_path, ("a", "b"))
    result = scored(tmp_path)
    assert [round(row["scores"]["z_a"], 3) for row in result] == [0.707, -0.707] * 2
    manifest = read_manifest(str(tmp_path))
    assert manifest is not None
    assert manifest.columns.within_row


JUDGES: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("genrm-boxed", {}, {}, False),
    ("genrm-boxed", {"aggregate": "win-rate"}, {}, True),
    ("genrm-boxed", {"aggregate": "bradley-terry"}, {}, True),
    ("genrm-boxed", {"pairs": "active"}, {}, True),
    ("genrm-boxed", {}, {"weights": {"margin": 1.0}}, True),
    ("genrm-json", {}, {}, False),
    ("genrm-json", {}, {"weights": {"score": 1.0, "margin": 0.5}}, True),
    ("rm-r1", {}, {}, True),
    ("rm-r1-instruct", {}, {}, True),
    ("reward-anything", {}, {}, False),
    ("reward-anything", {"aggregate": "win-rate"}, {}, True),
    ("reward-anything", {}, {"weights": {"score": 1.0, "rank": -0.1}}, True),
    ("r3", {}, {}, True),
    ("r3", {}, {"read": ReadSettings(rating="pointwise")}, False),
    ("r3", {}, {"read": ReadSettings(rating="binary")}, False),
]


@pytest.mark.parametrize(("family", "judge", "more", "within_row"), JUDGES)
def test_what_is_asked_of_a_judge_tells(
    tmp_path: Path, family: str, judge: dict[str, Any], more: dict[str, Any], within_row: bool
) -> None:
    folder = judge_folder(tmp_path / "judge")
    settings = ModelSettings(model=str(folder), family=family, judge=JudgeSettings(**judge), **more)
    assert columns_of(settings).within_row is within_row


def test_a_reward_head_gives_numbers_of_their_own() -> None:
    assert not columns_of(ModelSettings(model="tiny-scalar")).within_row


def columns_of(model: ModelSettings) -> Columns:
    resolved = resolve_model(model, RenderSettings())
    settings = DatasetSettings(model=model)
    return resolve_run.preparation_of(pa.schema([]), resolved, RowShape("messages"), settings).columns
