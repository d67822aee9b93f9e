"""Corpora of several shapes, scored, resumed, combined and read back like any other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import assay
from actors.errors import OutputError, SettingsError, SourceError
from actors.records import Reading, Reason, Score
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.formats import SHAPES, RowShape, Shape
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table
from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.folders.scored_corpus.summary import count_shapes
from pipelines.run.prepare import identity, resolve_run
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.run_settings import CombineSettings
from pipelines.workflows.ensembles.score_ensemble import combine
from tests.support.candidates import scored_corpus
from tests.support.corpora import RUN, chat, lines, scored, settings, write


def rows(count: int) -> list[dict[str, Any]]:
    """Rows of four shapes in turn."""
    return [row for number in range(count) for row in _of_each_shape(f"What is {number} + 1?", str(number + 1))]


def _of_each_shape(question: str, answer: str) -> list[dict[str, Any]]:
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": f"It's {answer}."}]
    return [
        chat(question, answer),
        {"prompt": question, "chosen": answer, "rejected": "0"},
        {"prompt": question, "responses": [f"{answer}!", "1 or 2", "3 or 4"]},
        {"conversations": turns},
    ]


SHAPELESS = [{"text": "x"}, {"prompt": "q", "response": "a", "completion": "b"}]
TEXTS = {
    "messages": {"final": "{}"},
    "preference": {"chosen": "{}", "rejected": "0"},
    "prompt-responses": {"responses[0]": "{}!", "responses[1]": "1 or 2", "responses[2]": "3 or 4"},
    "sharegpt": {"final": "It's {}."},
}


def table_of(objects: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows as Parquet has them: each with the columns of all, nearly all of them null."""
    names = dict.fromkeys(name for row in objects for name in row)
    return pa.Table.from_pylist([{**dict.fromkeys(names), **row} for row in objects])


def expected(count: int) -> list[tuple[str, str, str]]:
    """Shape, name and text of each response of `rows`."""
    return [
        (shape, name, text.format(number + 1))
        for number in range(count)
        for shape, texts in TEXTS.items()
        for name, text in texts.items()
    ]


def candidates_in(folder: str) -> list[Candidate]:
    """What exports read back."""
    manifest = read_manifest(folder)
    assert manifest is not None
    reader, parts = Reader.of(manifest), Parts(folder, manifest.run)
    tables = [read_table(parts.path(part)) for part in parts.listing()]
    return [result for row in reader.candidates(tables) for result in row if isinstance(result, Candidate)]


def shaped(folder: Path | str) -> list[tuple[str | None, str]]:
    return [(row["shape"], row["response_name"]) for row in scored(Path(folder))]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_every_row_is_scored_and_read_back_in_its_shape(tmp_path: Path, kind: str) -> None:
    corpus = tmp_path / f"c.{kind}"
    if kind == "jsonl":
        write(corpus, lines([*rows(9), *SHAPELESS]))
    else:
        pq.write_table(table_of([*rows(9), *SHAPELESS]), corpus, row_group_size=5)
    folder = scored_corpus(settings(corpus, tmp_path / "out", format="mixed", part_rows=7))
    assert shaped(folder) == [*((shape, name) for shape, name, _ in expected(9)), (None, "final"), (None, "final")]
    assert [row["reason"] for row in scored(Path(folder))][-2:] == ["missing_field", "two_shapes"]
    assert [(candidate.name, candidate.text) for candidate in candidates_in(folder)] == [
        (name, text) for _, name, text in expected(9)
    ]


def test_files_of_different_shapes_are_one_corpus(tmp_path: Path) -> None:
    files = [write(tmp_path / "in" / f"{index}.jsonl", lines(rows(6)[index::4])) for index in range(4)]
    folder = scored_corpus(settings(files, tmp_path / "out", format="mixed"))
    assert Counter(shaped(folder)) == Counter((shape, name) for shape, name, _ in expected(6))
    with pytest.raises(SourceError, match="--format mixed"):
        resolve_run.resolve(settings(files, tmp_path / "other"))


def test_a_sample_of_ambiguous_rows_is_refused_before_anything_starts(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(SHAPELESS[1:] * 3))
    with pytest.raises(SourceError, match=r"prompt-completion and prompt-response \(3 of 3 rows\)"):
        resolve_run.resolve(settings(corpus, tmp_path / "out", format="mixed"))


def test_all_turns_of_conversations_are_judged_and_the_responses_of_other_rows(tmp_path: Path) -> None:
    long = {"messages": [*chat("Hi", "Hello")["messages"], *chat("What is 1 + 1?", "2")["messages"]]}
    corpus = write(tmp_path / "c.jsonl", lines([long, *rows(1)[1:2]]))
    folder = scored_corpus(settings(corpus, tmp_path / "out", format="mixed", turns="all"))
    assert shaped(folder) == [
        ("messages", "turn[1]"),
        ("messages", "turn[3]"),
        ("preference", "chosen"),
        ("preference", "rejected"),
    ]
    assert [candidate.text for candidate in candidates_in(folder)] == ["Hello", "2", "1", "0"]


def add_shape(monkeypatch: pytest.MonkeyPatch, name: str, shape: Shape) -> None:
    """Another shape, as a plug-in would bring it."""
    monkeypatch.setattr(SHAPES, "_loaded", ({**SHAPES, name: shape}, {name: "rivals 1.0"}))


def test_a_new_shape_makes_a_mixed_run_another_one_and_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(3)[::4]))
    mixed, single = (settings(corpus, tmp_path / name, **more) for name, more in (("m", {"format": "mixed"}), ("s", {})))
    before = [identity.manifest_of(resolve_run.resolve(message), message) for message in (mixed, single)]
    assert before[0].identity["shapes"] == dict.fromkeys(sorted(SHAPES))
    assert "shapes" not in before[1].identity
    add_shape(monkeypatch, "new", replace(SHAPES["messages"], looks_like=lambda row: False))
    after = [identity.manifest_of(resolve_run.resolve(message), message) for message in (mixed, single)]
    with pytest.raises(OutputError, match=r"shapes: .*'new'"):
        before[0].check(after[0])
    before[1].check(after[1])


def test_a_row_scored_before_a_shape_was_added_is_read_back_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows(2))), tmp_path / "out", format="mixed"))
    add_shape(monkeypatch, "rival", SHAPES["messages"])  # now two shapes fit
    assert [candidate.text for candidate in candidates_in(folder)] == [text for *_, text in expected(2)]


def test_an_input_column_of_that_name_is_in_the_way_of_mixed_corpora_alone(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([row | {"shape": "round"} for row in rows(2)[::4]]))
    with pytest.raises(SourceError, match=r"'shape'.+--set prefix"):
        resolve_run.resolve(settings(corpus, tmp_path / "out", format="mixed"))
    resolve_run.resolve(settings(corpus, tmp_path / "out"))
    folder = scored_corpus(settings(corpus, tmp_path / "out", format="mixed", prefix="our_"))
    assert [(row["shape"], row["our_shape"]) for row in scored(Path(folder))] == [("round", "messages")] * 2


def test_rows_are_counted_once_however_many_responses_they_have(tmp_path: Path) -> None:
    """Rows of several thousand responses lie across the tables in which a part is read."""
    columns = Columns(pa.schema([("n", pa.int64())]), ("reward",), "our_", mixed=True)
    parts = Parts(str(tmp_path), RUN)
    parts.create()
    shapes_by_file: list[list[str | None]] = [[*["messages"] * 3, None, "preference"], ["messages"], [None]]
    for file, shapes in enumerate(shapes_by_file):
        responses = [(row, shape) for row, shape in enumerate(shapes) for _ in range(3000)]
        repeated = pa.table([[1] * len(responses), [shape for _, shape in responses]], schema=columns.repeated)
        ours = [(f"{file}:{row}", "final", "p", Score.scored(Reading(1.0, {"reward": 1.0}), 1)) for row, _ in responses]
        counts = Counts.of(len(shapes), [reading for *_, reading in ours])
        parts.commit(Part(file, Range(0, len(shapes)), counts), columns.table(repeated, ours), {})
    assert list(count_shapes(parts, columns).items()) == [("messages", 4), ("preference", 1)]


def test_an_ensemble_of_a_mixed_corpus_is_one_too(tmp_path: Path) -> None:
    corpus, output = write(tmp_path / "c.jsonl", lines([*rows(20), *SHAPELESS])), str(tmp_path / "out")
    for name, model in (("a", "tiny-attributes"), ("b", "tiny-first-logit")):
        scored_corpus(settings(corpus, Path(folder_of(output, name)), model=model, format="mixed", part_rows=9))
    summary, _ = combine(output, ("a", "b"), CombineSettings(combine="mean"), {})
    assert summary.shapes == {"messages": 20, "preference": 20, "prompt-responses": 20, "sharegpt": 20}
    assert shaped(output)[:-2] == [(shape, name) for shape, name, _ in expected(20)]
    assert [candidate.text for candidate in candidates_in(output)] == [text for *_, text in expected(20)]


# --- on Ray, by the fake engine ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_ray")
def test_a_run_is_resumed_and_its_rows_are_counted_by_shape(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*rows(30), *SHAPELESS]))
    score_settings = settings(corpus, tmp_path / "out", format="mixed", part_rows=16)
    first = score(score_settings)
    assert first.shapes == dict.fromkeys(sorted(TEXTS), 30)
    assert (first.rows, first.responses) == (122, 30 * 7 + 2)
    assert first.reasons == {"missing_field": 1, "two_shapes": 1}
    whole = scored(tmp_path / "out")
    for path in sorted((tmp_path / "out" / "parts").iterdir())[1::3]:
        path.unlink()
    assert score(score_settings) == first
    assert scored(tmp_path / "out") == whole


@pytest.mark.usefixtures("local_ray")
@pytest.mark.long
def test_a_dataset_of_several_shapes_is_scored_and_sampled(tmp_path: Path) -> None:
    dataset = ray.data.from_arrow(table_of(rows(5)))
    result = assay.score(dataset, model="tiny-attributes", engine="fake", format="mixed").take_all()
    assert Counter((row["shape"], row["response_name"]) for row in result) == Counter(
        (shape, name) for shape, name, _ in expected(5)
    )
    prompts = ray.data.from_arrow(table_of([{"prompt": "What is 1 + 1?"}, chat("What is 2 + 2?", "4")]))
    options: dict[str, Any] = {"policy": "tiny-policy", "judge": "tiny-attributes", "engine": "fake", "n": 2}
    drawn = assay.sample(prompts, format="mixed", **options).take_all()
    assert Counter(row["shape"] for row in drawn) == {"prompt": 2, "messages": 2}


@pytest.mark.usefixtures("local_ray")
def test_prompts_of_several_shapes_are_sampled_into_a_folder(tmp_path: Path) -> None:
    request = [
        {"prompt": "What is 1 + 2?"},
        chat("What is 2 + 2?", "4"),
        {"conversations": [{"from": "human", "value": "Hi"}]},
    ]
    corpus, output = write(tmp_path / "c.jsonl", lines(request)), str(tmp_path / "out")
    options: dict[str, Any] = {"policy": "tiny-policy", "judge": "tiny-attributes", "engine": "fake", "n": 2}
    summary = assay.sample(str(corpus), output, format="mixed", **options)
    assert summary.scored.shapes == {"messages": 1, "prompt": 1, "sharegpt": 1}
    contexts = {candidate.row: candidate.context[-1].content for candidate in candidates_in(output)}
    assert sorted(contexts.values()) == ["Hi", "What is 1 + 2?", "What is 2 + 2?"]


def test_a_shape_of_a_plugin_is_read_by_the_version_of_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row, other = chat("q", "a"), {"prompt": "q", "response": "a"}
    add_shape(monkeypatch, "rival", replace(SHAPES["messages"], name="rival"))
    identity_of = {"turns": "final", "own_columns": None, "written_out": False}
    alone = RowShape.read({"shape": "rival", "shape_plugin": "rivals 1.0", **identity_of}, unanswered=False)
    mixed = RowShape.read({"shape": "mixed", "shapes": {"rival": "rivals 1.0"}, **identity_of}, unanswered=False)
    assert alone.requests(row).requests
    assert mixed.requests(row).rejected[0].reason is Reason.TWO_SHAPES
    assert RowShape("mixed").requests(row).requests, "a run that began without the plug-in goes on without it"
    for shape, version in ((alone, "1.1"), (mixed, "1.1"), (mixed.of_row("rival"), "0.9")):
        later = replace(shape, plugins=(("rival", f"rivals {version}"),))
        with pytest.raises(SettingsError, match=rf"rival is of rivals {version} where the run began, and of rivals 1\.0 on"):
            later.requests(other)
