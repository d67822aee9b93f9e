"""`export` and the trainers' formats by their commands; made-up rewards; what the commands and recipes print."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from actors.errors import SettingsError
from pipelines.cli.app import cli
from pipelines.data.formats import RowShape
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.filter_settings import FilterSettings
from tests.support.candidates import files_in, judged_corpus, rows_in, scored_corpus
from tests.support.corpora import lines, scored, settings, write
from tests.support.exports import SIX, choose, document, export, pair, texts, write_candidates
from tests.support.parsed_rows import reply, user

TURNS = [user("q"), reply("a"), user("r"), reply("b"), user("s"), reply("c")]


def test_an_export_tells_whole_conversations(tmp_path: Path) -> None:
    """SFT learns all turns of the assistant's, so a conversation with several judged turns is one row."""
    rows = [{"messages": TURNS}, {"messages": TURNS[:2]}]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0, 3.0], [1.0]], RowShape("messages", "all"))
    summary = export(folder, tmp_path / "sft", "sft")
    assert (summary.groups, summary.candidates, summary.rows) == (2, 4, 2)
    assert rows_in(tmp_path / "sft") == rows
    assert export(folder, tmp_path / "kto", "kto", threshold=2.0).rows == 4
    assert [row["label"] for row in rows_in(tmp_path / "kto")] == [False, True, True, False]
    assert document(tmp_path / "kto", "export")["description"] == "for: kto, threshold: 2.0"


def test_a_turn_that_isnt_kept_is_not_trained_on_in_a_later_one(tmp_path: Path) -> None:
    """SFT's loss is on every turn of the assistant's: after a turn that was left out, a conversation can't go on."""
    rows = [{"messages": TURNS}, {"messages": TURNS}]
    folder = judged_corpus(tmp_path / "in", rows, [[3.0, 1.0, 3.0], [3.0, 3.0, 1.0]], RowShape("messages", "all"))
    summary = export(folder, tmp_path / "sft", "sft", where="reward > 2")
    assert rows_in(tmp_path / "sft") == [{"messages": TURNS[:2]}, {"messages": TURNS[:4]}]
    assert summary.left == {"outside --where": 2, "after_unkept_turn": 1}
    keep(FilterSettings(scored=folder, output=str(tmp_path / "good"), where="reward > 2"))
    assert export(str(tmp_path / "good"), tmp_path / "kept-sft", "sft").left == {"after_unkept_turn": 1}
    assert rows_in(tmp_path / "kept-sft") == rows_in(tmp_path / "sft")


def test_what_a_format_needs_is_told(tmp_path: Path) -> None:
    folder, out = write_candidates(tmp_path / "in", *SIX, outputs=("reward", "helpfulness")), tmp_path / "out"
    with pytest.raises(SettingsError, match=r"for: steerlm needs the scores .*correctness.* it has reward, helpfulness"):
        export(folder, out, "steerlm")
    for trainer in (form.name for form in RESPONSE_FORMATS.values() if form.needs_threshold):
        with pytest.raises(SettingsError, match=f"--for {trainer} tells desirable responses from others: give --threshold"):
            export(folder, out, trainer)
    with pytest.raises(SettingsError, match="--for sft has no use for --threshold"):
        export(folder, out, "sft", threshold=1.0)
    assert not out.exists()


def test_a_format_has_one_command_and_the_other_names_it(tmp_path: Path) -> None:
    for trainer in PAIR_FORMATS:
        with pytest.raises(SettingsError, match=f"a format of pairs: `assay pairs --for {trainer}` writes it"):
            export("scored", tmp_path, trainer)
    for trainer in RESPONSE_FORMATS:
        with pytest.raises(SettingsError, match=f"a format of single responses: `assay export --for {trainer}` writes it"):
            pair("scored", tmp_path, trainer=trainer)
    with pytest.raises(SettingsError, match="--for nobody is no format of pairs; there are ") as caught:
        pair("scored", tmp_path, trainer="nobody")
    assert str(caught.value).endswith(", ".join(PAIR_FORMATS))
    with pytest.raises(SettingsError, match="--for nobody is no format of single responses; there are ") as caught:
        export("scored", tmp_path, "nobody")
    assert str(caught.value).endswith(", ".join(RESPONSE_FORMATS))


# --- a corpus as scoring writes it -----------------------------------------------------------------------------------

SCORED: list[dict[str, Any]] = [
    {"prompt": f"q{at % 4}", "chosen": f"good {at}", "rejected": f"bad {at}" if at != 3 else ""} for at in range(10)
]


@pytest.fixture(scope="session")
def as_scored(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The same rows as JSONL and as Parquet; one response is empty."""
    place = tmp_path_factory.mktemp("scored")
    write(place / "c.jsonl", lines(SCORED))
    pq.write_table(pa.Table.from_pylist(SCORED), place / "c.parquet")
    kinds = ("jsonl", "parquet")
    return {kind: scored_corpus(settings(place / f"c.{kind}", place / kind, part_rows=3)) for kind in kinds}


def test_of_a_corpus_as_it_is_scored_the_best_of_each_prompt(as_scored: Mapping[str, str], tmp_path: Path) -> None:
    responses = [(row["prompt"], row[side]) for row in SCORED for side in ("chosen", "rejected")]
    best: dict[str, tuple[float, str]] = {}
    for (prompt, text), row in zip(responses, scored(Path(as_scored["jsonl"])), strict=True):
        if row["reward"] is not None:
            best[prompt] = max(best.get(prompt, (row["reward"], text)), (row["reward"], text))
    summary = choose(as_scored["jsonl"], tmp_path / "out", strategy="best")
    assert (summary.groups, summary.candidates, summary.unscored, summary.rows) == (4, 19, 1, 4)
    chosen = rows_in(tmp_path / "out")
    assert {row["messages"][0]["content"]: (row["reward"], row["messages"][1]["content"]) for row in chosen} == best
    assert sorted(row["of"] for row in chosen) == [3, 4, 6, 6]


@pytest.mark.parametrize("trainer", [*PAIR_FORMATS, *RESPONSE_FORMATS])
def test_of_a_corpus_as_it_is_scored_every_export(as_scored: Mapping[str, str], trainer: str, tmp_path: Path) -> None:
    def write_rows(folder: str, output: Path) -> ExportSummary:
        if trainer in PAIR_FORMATS:
            return pair(folder, output, trainer=trainer, where="prompt <> 'q0'")
        threshold = 0.0 if RESPONSE_FORMATS[trainer].needs_threshold else None
        return export(folder, output, trainer, threshold=threshold, where="prompt <> 'q0'")

    of_json, of_parquet = [write_rows(folder, tmp_path / kind) for kind, folder in as_scored.items()]
    assert of_json == of_parquet
    assert (of_json.candidates, of_json.unscored, of_json.left["outside --where"]) == (19, 1, 6)
    assert of_json.rows == len(rows_in(tmp_path / "jsonl")) > 0
    assert files_in(tmp_path / "jsonl") == files_in(tmp_path / "parquet")


# --- made-up numbers -------------------------------------------------------------------------------------------------


def test_made_up_numbers_are_for_no_trainer_unless_that_is_said(as_scored: Mapping[str, str], tmp_path: Path) -> None:
    folder = as_scored["jsonl"]
    says = r"are made up, by --engine fake, and `{}` writes for trainers.*--set fake_ok=true"
    with pytest.raises(SettingsError, match=says.format("pairs")):
        pair(folder, tmp_path / "out", fake_ok=False)
    with pytest.raises(SettingsError, match=says.format("export")):
        export(folder, tmp_path / "out", "sft", fake_ok=False)
    assert not (tmp_path / "out").exists()
    assert pair(folder, tmp_path / "out").made_up


def test_everything_that_is_made_of_them_says_so(as_scored: Mapping[str, str], tmp_path: Path) -> None:
    folder = as_scored["jsonl"]
    commands = {
        "status": ("status", folder),
        "filter": ("filter", folder, "--where", "reward > -99"),
        "choose": ("choose", folder, tmp_path / "best", "--strategy", "best"),
        "pairs": ("pairs", folder, tmp_path / "pairs", "--set", "fake_ok=true"),
        "export": ("export", folder, tmp_path / "sft", "--for", "sft", "--set", "fake_ok=true"),
    }
    for name, words in commands.items():
        again = ("--overwrite",) if name in ("choose", "pairs", "export") else ()
        assert "These numbers are made up" in run(*words), name
        assert json.loads(run(*words, *again, "--json"))["made_up"] is True, name


# --- the command line ------------------------------------------------------------------------------------------------


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, [*map(str, words)])
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


def test_the_commands_tell_what_the_documents_say(tmp_path: Path) -> None:
    folder, out = write_candidates(tmp_path / "in", *SIX, outputs=("reward", "a")), tmp_path / "out"
    commands = {
        "choose": ("--strategy", "softmax", "-k", "2", "--set", "softmax_temperature=0.5", "--per", "row"),
        "pairs": ("--pairs", "all", "--for", "nemo-aligner-rm", "--min-margin", "1"),
        "export": ("--for", "kto", "--threshold", "2"),
    }
    rows = {"choose": 5, "pairs": 8, "export": 6}
    for command, words in commands.items():
        summary = json.loads(run(command, folder, out / command, *words, "--json"))
        assert summary == {"assay_json": 1, **document(out / command, command)["summary"]}
        assert (summary["rows"], summary["candidates"]) == (rows[command], 6)
        shown = run(command, folder, out / command, *words, "--overwrite")
        assert f"{summary['rows']} rows of 6 scored responses in 3 groups" in shown
        assert "3 without a reward" in shown


def test_a_recipe_goes_on_past_what_is_finished_and_refuses_what_isnt_the_same(tmp_path: Path) -> None:
    folder, out = write_candidates(tmp_path / "in", *SIX), tmp_path / "out"
    recipe: dict[str, Any] = {
        "filter": {"scored": folder, "output": str(out / "filter"), "where": "reward > 1"},
        "choose": {"scored": folder, "output": str(out / "choose"), "strategy": "best"},
        "pairs": {"scored": folder, "output": str(out / "pairs"), "pairs": "consecutive", "trainer": "trl"},
    }

    def run_recipe() -> list[str]:
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        result = CliRunner().invoke(cli, ["run", str(tmp_path / "recipe.yaml"), "--json"])
        assert result.exit_code == 0, result.exception or result.output
        return result.output.splitlines()

    first = run_recipe()
    documents = [{"assay_json": 1, **document(out / name, name)["summary"]} for name in recipe]
    assert [json.loads(line) for line in first] == documents
    assert sorted(texts(out / "choose")) == ["0.1", "1.2", "3.0"]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = run_recipe()
    assert [line for line in again if line.startswith("{")] == first
    assert [line for line in again if not line.startswith("{")] == [
        f"{name}: nothing to do, {out / name} holds it" for name in recipe
    ]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    shutil.rmtree(out / "pairs")
    assert [line for line in run_recipe() if line.startswith("{")] == first
    recipe["choose"] |= {"strategy": "majority", "voters": ["reward"]}
    with pytest.raises(AssertionError, match="--overwrite replaces it"):
        run_recipe()
    recipe["choose"] = {"scored": folder, "output": str(out / "choose"), "strategy": "best"}
    next((out / "choose").glob("*.jsonl")).unlink()
    with pytest.raises(AssertionError, match="--overwrite replaces it"):
        run_recipe()
