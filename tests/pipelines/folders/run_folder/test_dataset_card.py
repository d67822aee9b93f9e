"""Cards of output folders, read by `datasets.load_dataset` itself."""

import datetime as dt
import decimal
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from actors.records import JudgeAnswer, Reading, Reason, Score
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.dataset_card import features, write_card, write_scored_card
from pipelines.folders.run_folder.json_lines import encode, written_type
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.results.exports import export_commands, export_job, row_types
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.runtime.workers import workers
from pipelines.settings.export_settings import Choose, ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from tests.support.candidates import drawn_corpus, judged_corpus, prompts, rows_in
from tests.support.object_store import BUCKET

Load = Callable[[Path], Any]

JSON = pa.schema([("record", pa.large_binary()), ("n", pa.int64())])
ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """A folder's rows, as `datasets` loads them."""

    def rows_of(folder: Path) -> Any:
        datasets = importlib.import_module("datasets")
        return datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))

    return rows_of


def front(folder: Path) -> Any:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def graded(value: float) -> dict[str, float]:
    return {"reward": value, **dict.fromkeys(ATTRIBUTES, value)}


@pytest.fixture
def preferences(tmp_path: Path) -> str:
    """Four preference rows to two prompts, so that some pairs have a label and others none."""
    rows = [{"prompt": f"p{at // 2}", "chosen": [reply(f"good {at}")], "rejected": [reply(f"bad {at}")]} for at in range(4)]
    rewards = [[graded(at + 2.0), graded(float(at))] for at in range(4)]
    return judged_corpus(tmp_path / "preferences", rows, rewards, RowShape("preference"), outputs=("reward", *ATTRIBUTES))


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_judges_parts_load_whatever_is_null_in_the_first(tmp_path: Path, load: Load) -> None:
    columns = Columns(JSON, ("score",), "", votes=True, trace=True)
    answer = JudgeAnswer(shown=("final",), principle=None, text="fine", finish_reason="stop", vote=4.0, reason=None)
    whole = Score.scored(Reading(4.0, {"score": 4.0}, votes=(4.0, 5.0)), 9)
    parts = Parts(str(tmp_path), "0123456789abcdef")
    parts.create()
    outcomes = [Score.rejected(Reason.TOO_LONG), whole, replace(Score.failed(Reason.CUT_OFF, 9), trace=(answer,))]
    for at, score in enumerate(outcomes):
        carried = pa.table([[b"{}"], [at]], schema=columns.carried)
        table = columns.table(carried, [(f"c:{at}", "final", None, score)])
        parts.commit(Part(0, Range(at, at + 1), Counts.of(1, [score])), table, {})
    stranger = Parts(str(tmp_path), "f" * 16)
    stranger.commit(Part(0, Range(0, 1), Counts(1, 1)), pa.table({"another": ["run"]}), {})
    file = InputFile(0, "c", "/c", FileKind.JSONL, 1, "sha256-of-ends:0", 3)
    write_scored_card(str(tmp_path), "score", Manifest({"model": "m"}, (file,), columns, {}, run="0123456789abcdef"))
    rows = load(tmp_path)
    assert rows.column_names == columns.schema.names
    assert (rows["reward"][:], rows["n"][:]) == ([None, 4.0, None], [0, 1, 2])
    assert rows["votes"][:] == [None, [4.0, 5.0], None]
    assert rows["status"][:] == ["rejected", "scored", "failed"]


def test_an_unfinished_result_is_not_loaded_as_if_its_documents_were_rows(
    tmp_path: Path, load: Load, preferences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    kept, chosen = tmp_path / "kept", tmp_path / "chosen"
    filtering = FilterSettings(scored=preferences, output=str(kept), where="reward > 2")
    choosing = ChooseSettings(scored=preferences, output=str(chosen), strategy=Choose.BEST)
    with monkeypatch.context() as killed:
        killed.setattr(filter_corpus, "_write_card", die)
        killed.setattr(export_job, "_write_card", die)
        with pytest.raises(KeyboardInterrupt):
            keep(filtering)
        with pytest.raises(KeyboardInterrupt):
            export_commands.choose(choosing)
    for folder in (kept, chosen):
        assert len(list(folder.glob("*.json*"))) > 1
        with pytest.raises(FileNotFoundError, match=r"Unable to find .*rows of an unfinished result"):
            load(folder)
    keep(filtering)
    export_commands.choose(choosing)
    assert (load(kept).num_rows, load(chosen).num_rows) == (4, 2)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_a_filter_kept_loads_and_so_does_the_rest(tmp_path: Path, load: Load, form: Any) -> None:
    rows = [{"prompt": f"p{at}", "response": "r"} for at in range(6)]
    folder = judged_corpus(tmp_path / "in", rows, [[None], [1.0], [2.0], [3.0], [4.0], [5.0]], RowShape("prompt-response"))
    kept, left_out = tmp_path / "kept", tmp_path / "rest"
    keep(FilterSettings(scored=folder, output=str(kept), rest=str(left_out), where="reward > 2", format=form))
    assert load(kept)["reward"][:] == [3.0, 4.0, 5.0]
    assert load(left_out)["why"][:] == ["rejected: too_long", "condition", "condition"]
    assert "What is kept by `where: reward > 2`" in (kept / "README.md").read_text()


@pytest.mark.usefixtures("local_ray")
def test_what_is_null_until_late_loads_from_rows_of_single_responses(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 1)
    monkeypatch.setattr(filter_corpus, "_OUTPUT_BYTES", 1)
    rows = [{"prompt": f"p{at}", "response": "r"} for at in range(4)]
    rewards: list[Any] = [[None], [None], [None], [1.0]]
    folder = judged_corpus(tmp_path / "in", rows, rewards, RowShape("prompt-response"), part_rows=1)
    job: dict[str, Any] = {"scored": folder, "where": "true or reward is null", "rows": "responses", "format": "jsonl"}
    keep(FilterSettings(**job, output=str(tmp_path / "kept")))
    assert len(list((tmp_path / "kept").glob("*.jsonl"))) > 1
    loaded = load(tmp_path / "kept")
    assert loaded["reward"][:] == [None, None, None, 1.0]


def test_types_of_lines_are_those_that_a_reader_finds() -> None:
    day = pa.struct([("at", pa.timestamp("us")), ("names", pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))])
    assert written_type(day) == pa.struct([("at", pa.string()), ("names", pa.list_(pa.string()))])
    assert written_type(pa.decimal128(5, 2)) == pa.string()
    assert written_type(pa.int32()) == pa.int32()


@pytest.mark.parametrize("trainer", [*PAIR_FORMATS, *RESPONSE_FORMATS])
def test_every_trainers_rows_load_as_they_were_written(tmp_path: Path, preferences: str, load: Load, trainer: str) -> None:
    job: dict[str, Any] = {"scored": preferences, "output": str(tmp_path / "out"), "trainer": trainer, "fake_ok": True}
    if trainer in PAIR_FORMATS:
        export_commands.make_pairs(PairSettings(**job, pairs="all"))
    else:
        form = RESPONSE_FORMATS[trainer]
        export_commands.export(ExportSettings(**job, threshold=2.5 if form.needs_threshold else None))
    written = rows_in(tmp_path / "out")
    names = {name for row in written for name in row}
    assert list(load(tmp_path / "out")) == [dict.fromkeys(names) | row for row in written]
    assert {feature["name"] for feature in front(tmp_path / "out")["dataset_info"]["features"]} == names


def test_a_column_that_only_later_rows_have_loads(tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` takes its types from the first file; the card says what is in the others."""
    monkeypatch.setattr(export_job, "_PARTS", 1)
    monkeypatch.setattr(row_types, "_BATCH_ROWS", 1)
    rows = [{"prompt": f"p{at}"} for at in range(2)]
    candidates: list[Any] = [[("a", 1.0), ("b", 1.0)], [("c", {"reward": 1.0}), ("d", {"reward": 2.0})]]
    folder = drawn_corpus(tmp_path / "in", rows, candidates, prompts(), part_rows=1)
    with monkeypatch.context() as patch:
        patch.setattr(export_job, "workers", lambda _: workers(1))
        settings = ChooseSettings(scored=folder, output=str(tmp_path / "out"), strategy="top-k", k=2, per="row")
        export_commands.choose(settings)
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 2
    assert load(tmp_path / "out")["z_score"][:] == [None, None, 1.0, -1.0]


def test_types_that_dont_go_together_are_left_out() -> None:
    texts = []
    for row in ({"a": 1}, {"a": "x"}):
        types = row_types.RowTypes()
        types.add([row])
        texts.append(types.text())
    assert row_types.schema_of(texts[0]) == pa.schema([("a", pa.int64())])
    assert row_types.schema_of(row_types.merge(*texts)) is None
    assert row_types.schema_of("") is None
    assert (ExportSummary(row_types=texts[0]) + ExportSummary()).row_types == texts[0]


def test_types_are_those_of_the_written_lines() -> None:
    values: list[object] = [
        1,
        1.5,
        "x",
        True,
        None,
        dt.datetime(2026, 1, 1, 2, 3, tzinfo=dt.UTC),
        dt.date(2026, 1, 1),
        dt.time(1, 2),
        decimal.Decimal("1.50"),
        {"a": [1, 2], "b": [{"c": dt.date(2026, 1, 1)}]},
        [],
        [None, 2.5],
        2**40,
    ]
    for value in values:
        types, row = row_types.RowTypes(), {"a": value, "text": "x"}
        types.add([row])
        assert row_types.schema_of(types.text()) == pa.schema(list(pa.array([json.loads(encode(row))]).type))


def test_features_are_written_as_datasets_writes_them() -> None:
    datasets = importlib.import_module("datasets")
    turn = pa.struct([("role", pa.string()), ("grades", pa.list_(pa.float64()))])
    kinds = [pa.list_(turn), turn, pa.float64(), pa.null(), pa.int64(), pa.bool_(), pa.list_(pa.list_(pa.string()))]
    schema = pa.schema([(f"c{at}", kind) for at, kind in enumerate(kinds)])
    assert features(schema) == datasets.Features.from_arrow_schema(schema)._to_yaml_list()


def test_a_readme_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    write_card(str(tmp_path), "filter", "kept-*.jsonl", ["What is kept."])
    assert (tmp_path / "README.md").read_text() == "mine"
    (tmp_path / "README.md").unlink()
    for line in ("Once.", "Again."):
        write_card(str(tmp_path), "filter", "kept-*.jsonl", [line])
        assert line in (tmp_path / "README.md").read_text()


def test_a_store_has_the_card_and_the_notes_and_takes_the_result(preferences: str, s3: Any) -> None:
    """What was kept is filtered again, and of its folder `score` reads the rows alone."""
    scored, kept = f"{BUCKET}/scored", f"{BUCKET}/kept"
    s3.put(preferences, scored, recursive=True)
    keep(FilterSettings(scored=scored, output=kept, where="reward >= 3"))
    again = keep(FilterSettings(scored=kept, output=f"{BUCKET}/again", where="reward < 5"))
    assert (again.responses, again.kept) == (4, 3)
    assert b"data_files: kept-*.jsonl" in s3.cat_file(f"{kept}/README.md")
    corpus = find_corpus([kept])
    assert [file.name for file in corpus.files] == ["kept-00000.jsonl"]
    assert corpus.left_out == []
