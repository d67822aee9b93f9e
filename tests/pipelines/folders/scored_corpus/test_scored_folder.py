"""The result of a filter as the input of filter, choose, pairs and export: exactly the responses that it kept."""

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from actors.errors import AssayError, SourceError
from pipelines.cli.app import cli
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.parts import Parts
from pipelines.results.exports import export_commands
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import FilterSummary, keep
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.workflows.datasets.score_datasets import read_scored
from tests.support.candidates import drawn_corpus, files_in, judged_corpus, prompts, rows_in

BATCHES = "pipelines.folders.run_folder.part_content._BATCH_ROWS"
SFT: Mapping[str, Any] = {"trainer": "sft", "fake_ok": True}

Key = tuple[str, str]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Candidates of forty rows to ten prompts, in parts of three rows that are read in tables of five responses."""
    monkeypatch.setattr(BATCHES, 5)
    luck = random.Random(7)
    rows = [{"prompt": f"p{index % 10}"} for index in range(40)]
    candidates = [
        [(f"{index}.{place}", None if luck.random() < 0.2 else luck.uniform(-3, 3)) for place in range(luck.randint(1, 6))]
        for index in range(40)
    ]
    return drawn_corpus(tmp_path / "scored", rows, candidates, prompts(), part_rows=3)


def run(scored: str, output: Path, condition: str | None = None, **more: Any) -> FilterSummary:
    return keep(FilterSettings(scored=scored, output=str(output), where=condition, **more))


def keys(folder: Path) -> list[Key]:
    return [(row["row"], row["response_name"]) for row in rows_in(folder)]


SELECTIONS: list[dict[str, Any]] = [
    {"condition": "status <> 'scored' or reward > 0"},
    {"top_k": 1, "per": "prompt"},
    {"top_k": 2, "per": "row"},
    {"top_fraction": 0.3},
]


@pytest.mark.parametrize("second", SELECTIONS, ids=str)
def test_what_is_kept_of_what_was_kept_is_what_one_filter_keeps_of_both(
    corpus: str, tmp_path: Path, second: dict[str, Any]
) -> None:
    first = run(corpus, tmp_path / "first", "reward > -1")
    again = run(str(tmp_path / "first"), tmp_path / "second", **second)
    condition = f"reward > -1 and ({second.get('condition', 'true')})"
    once = run(corpus, tmp_path / "once", **{**second, "condition": condition})
    assert again.responses == first.kept == len(keys(tmp_path / "first"))
    assert (again.rows, again.kept, again.kept_rows) == (first.kept_rows, once.kept, once.kept_rows)
    assert keys(tmp_path / "second") == keys(tmp_path / "once") != []


def test_a_choice_is_made_among_what_was_kept_and_goes_on(corpus: str, tmp_path: Path) -> None:
    """The best of each prompt, of these the best half, and of the others the worse ones: three filters, one of another."""
    run(corpus, tmp_path / "best", top_k=1, per="prompt")
    half = run(str(tmp_path / "best"), tmp_path / "half", top_fraction=0.5, rest=str(tmp_path / "rest"))
    assert (half.responses, half.kept) == (10, 5)
    assert sorted([*keys(tmp_path / "half"), *keys(tmp_path / "rest")]) == sorted(keys(tmp_path / "best"))
    worse = run(str(tmp_path / "rest"), tmp_path / "others", "reward > 0")
    assert worse.responses == 5
    assert keys(tmp_path / "others") == [
        (row["row"], row["response_name"]) for row in rows_in(tmp_path / "rest") if row["reward"] > 0
    ]
    document = json.loads((tmp_path / "others" / "filter.json").read_text())
    assert document["source"]["folder"] == corpus
    assert document["source"]["kept"]["about"] == "top_k: 1, per: prompt; then not top_fraction: 0.5"


@pytest.mark.parametrize(
    ("kind", "per"),
    [
        ("choose", "prompt"),
        ("pairs", "row"),
        ("export", "row"),
        *(pytest.param(kind, per, marks=pytest.mark.long) for kind, per in (("choose", "row"), ("pairs", "prompt"))),
    ],
)
def test_what_is_made_of_what_was_kept_is_what_the_same_condition_makes(
    corpus: str, tmp_path: Path, kind: str, per: str
) -> None:
    make: dict[str, Callable[[dict[str, Any]], Any]] = {
        "choose": lambda of: export_commands.choose(ChooseSettings(**of, strategy="top-k", k=2, per=per)),
        "pairs": lambda of: export_commands.make_pairs(PairSettings(**of, per=per, pairs="all", fake_ok=True)),
        "export": lambda of: export_commands.export(ExportSettings(**of, **SFT)),
    }
    kept = run(corpus, tmp_path / "kept", "reward > 0")
    of_kept = make[kind]({"scored": str(tmp_path / "kept"), "output": str(tmp_path / "of kept")})
    by_where = make[kind]({"scored": corpus, "output": str(tmp_path / "where"), "where": "reward > 0"})
    assert files_in(tmp_path / "of kept") == files_in(tmp_path / "where") != {}
    assert (of_kept.candidates, of_kept.unscored, of_kept.rows) == (kept.kept, 0, by_where.rows)
    assert of_kept.taken == f"every response with a reward that `filter` left in {tmp_path}/kept (where: reward > 0)"
    assert by_where.taken == "every response with a reward for which reward > 0"


def test_the_notes_of_many_outputs_are_found(
    corpus: str, tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for each part or two, of each of which the next filter finds the note by the first part of the output."""
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 2)
    monkeypatch.setattr(filter_corpus, "_OUTPUT_BYTES", 1)
    run(corpus, tmp_path / "first", "reward > -1")
    assert len(list((tmp_path / "first" / "_responses").iterdir())) > 7
    run(str(tmp_path / "first"), tmp_path / "second", "reward < 1")
    run(corpus, tmp_path / "once", "reward > -1 and reward < 1")
    assert keys(tmp_path / "second") == keys(tmp_path / "once") != []


def test_whole_rows_hold_all_of_their_responses_whatever_was_filtered_before(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{index}", "chosen": "yes", "rejected": "no"} for index in range(3)]
    folder = judged_corpus(tmp_path / "scored", rows, [[1.0, 0.0], [2.0, 3.0], [0.0, 1.0]], RowShape("preference"))
    first = run(folder, tmp_path / "first", "reward > 0", fields=False)
    again = run(str(tmp_path / "first"), tmp_path / "again", "reward < 2", fields=False)
    assert (first.kept, again.kept, again.several) == (4, 2, True)
    assert rows_in(tmp_path / "again") == [rows[0], rows[2]]


def test_a_dataset_holds_what_was_kept(corpus: str, tmp_path: Path, local_ray: None) -> None:
    run(corpus, tmp_path / "kept", "reward > 0")
    rows = read_scored(str(tmp_path / "kept")).take_all()
    assert sorted((row["row"], row["response_name"]) for row in rows) == sorted(keys(tmp_path / "kept"))


def test_a_finished_step_of_a_recipe_is_known_and_one_of_another_filter_isnt(corpus: str, tmp_path: Path) -> None:
    run(corpus, tmp_path / "kept", "reward > 0")
    filter_settings = FilterSettings(scored=str(tmp_path / "kept"), output=str(tmp_path / "again"), where="reward < 1")
    done = keep(filter_settings)
    assert filter_corpus.read_finished_filter(filter_settings) == done
    run(corpus, tmp_path / "kept", "reward > 0.5", overwrite=True)
    assert filter_corpus.read_finished_filter(filter_settings) is None


def test_a_recipe_filters_and_exports_what_it_kept(corpus: str, tmp_path: Path) -> None:
    recipe = {
        "filter": {"scored": corpus, "output": str(tmp_path / "best"), "top_k": 1},
        "export": {"scored": str(tmp_path / "best"), "output": str(tmp_path / "sft"), "where": "reward > 0", **SFT},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "recipe.yaml")], catch_exceptions=False)
    assert f"Taken: every response with a reward that `filter` left in {tmp_path}/best" in done.output
    assert len(rows_in(tmp_path / "sft")) == sum(row["reward"] > 0 for row in rows_in(tmp_path / "best")) > 0


# --- what can't be read any more -------------------------------------------------------------------------------------


def gone(folder: str, kept: Path) -> None:
    shutil.move(folder, f"{folder}-elsewhere")


def replaced(folder: str, kept: Path) -> None:
    path = Path(folder, "parts", Parts(folder).listing()[0].name)
    path.write_bytes(path.read_bytes() + b" ")


def unfinished(folder: str, kept: Path) -> None:
    document = json.loads((kept / "filter.json").read_text())
    (kept / "filter.json").write_text(json.dumps({**document, "summary": None}))


def without_a_note(folder: str, kept: Path) -> None:
    shutil.rmtree(kept / "_responses")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (gone, "is the result of a `filter` of {scored}, where the scores .*, and {scored} isn't there; put it back"),
        (replaced, "is the result of a `filter` of {scored}, which has changed since; run the same `filter` again"),
        (unfinished, "{kept} is an unfinished result of `filter` of {scored}; run the command that wrote it again"),
        (without_a_note, "00000.parquet, which says what responses {kept} holds, can't be read"),
    ],
)
def test_a_result_that_no_longer_says_what_it_holds(
    corpus: str, tmp_path: Path, change: Callable[[str, Path], None], message: str
) -> None:
    run(corpus, tmp_path / "kept", "reward > 0")
    change(corpus, tmp_path / "kept")
    with pytest.raises(SourceError, match=message.format(scored=corpus, kept=tmp_path / "kept")):
        run(str(tmp_path / "kept"), tmp_path / "again", "reward < 1")


def test_nothing_is_written_into_what_is_read(corpus: str, tmp_path: Path) -> None:
    run(corpus, tmp_path / "kept", "reward > 0")
    for output in (tmp_path / "kept" / "again", Path(corpus, "again")):
        with pytest.raises(AssayError, match="same folder"):
            run(str(tmp_path / "kept"), output, "reward < 1")
        with pytest.raises(AssayError, match="same folder"):
            export_commands.export(ExportSettings(scored=str(tmp_path / "kept"), output=str(output), **SFT))
