"""Texts that rows have beside their conversation: a reference, and other columns that a rubric's prompt shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError, SourceError
from actors.records import Message, Reason, Response, Role, ScoreRequest
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.corpora import chat, lines, scored, settings, write
from tests.support.judges import judge_folder, judge_model, rendered

pytestmark = pytest.mark.usefixtures("local_ray")

PROMPT = "{{ response }} / {{ reference }}{% if row.meta.unit is defined %} in {{ row.meta.unit }}{% endif %}"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(judge_folder(tmp_path_factory.mktemp("fields") / "judge"))


def rubric_file(folder: Path, prompt: str = PROMPT) -> str:
    return str(write(folder / "rubric.yaml", f"prompt: '{prompt}'\npattern: '([0-9])'\nlow: 0\nhigh: 9\n".encode()))


def run(folder: Path, judge: str, rows: list[dict[str, Any]], prompt: str = PROMPT, **options: Any) -> Any:
    corpus = write(folder / "c.jsonl", lines(rows))
    rubric = rubric_file(folder, prompt)
    return settings(corpus, folder / "out", model=judge, family="rubric", rubric=rubric, **options)


def requests_of(folder: Path, judge: str, rows: list[dict[str, Any]], prompt: str = PROMPT, **options: Any) -> list[Any]:
    plan = resolve(run(folder, judge, rows, prompt, **options))
    return [plan.preparation.row_shape.requests(row) for row in rows]


def test_a_prompt_shows_the_fields(tmp_path: Path, judge: str) -> None:
    model = judge_model(judge, "rubric", rubric=rubric_file(tmp_path))
    context, response = (Message(Role.USER, "What is 3 + 4?"),), (Response("final", "7"),)
    with_unit = {"reference": "seven", "row.meta.unit": "apples"}
    for fields, text in ((with_unit, "7 / seven in apples"), ({"reference": "seven"}, "7 / seven")):
        _, (prompt,) = rendered(model, ScoreRequest(context, response, fields=fields))
        assert f"{text}\n" in prompt.replace("<", "\n")


def test_fields_come_from_the_columns_that_are_named_for_them_or_of_their_name(tmp_path: Path, judge: str) -> None:
    rows = [
        {**chat("What is 3 + 4?", "7"), "reference": 7, "answer": {"text": "seven"}, "meta": {"unit": "apples"}},
        {**chat("What is 3 + 5?", "8"), "reference": ["8", "eight"], "answer": {"text": "eight"}, "meta": None},
    ]
    by_name = requests_of(tmp_path, judge, rows)
    assert [row.requests[0].fields for row in by_name] == [
        {"reference": "7", "row.meta.unit": "apples"},
        {"reference": '["8", "eight"]'},
    ]
    for options in ({"reference_column": "answer.text"}, {"field": {"reference": "answer.text"}}):
        texts = [row.requests[0].fields["reference"] for row in requests_of(tmp_path, judge, rows, **options)]
        assert texts == ["seven", "eight"]
    hashes = {row.requests[0].prompt_hash for row in (*by_name, *requests_of(tmp_path, judge, rows, **options))}
    assert len(hashes) == 4  # equal conversations with other references are other prompts


def test_a_row_without_a_needed_field_or_with_an_unreadable_one_has_its_reason(tmp_path: Path, judge: str) -> None:
    rows = [
        {**chat("a", "b"), "reference": "c", "meta": {}},
        {**chat("a", "b"), "reference": " ", "meta": {}},
        {**chat("a", "b"), "meta": {}},
        {**chat("a", "b"), "reference": "</s>", "meta": {}},
        {**chat("a", "b"), "reference": "\ud800", "meta": {}},
    ]
    score(run(tmp_path, judge, rows))
    assert [row["reason"] for row in scored(tmp_path / "out")] == [
        None, Reason.NO_REFERENCE, Reason.NO_REFERENCE, Reason.CONTROL_TOKEN, Reason.LONE_SURROGATE,
    ]  # fmt: skip
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    assert manifest.identity["fields"] == {"reference": "reference", "row.meta.unit": "meta.unit"}


def test_a_column_is_not_its_own_reference(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{"q": "a", "reference": "b"}]))
    columns = {"prompt_column": "q", "response_column": "reference", "engine": "vllm"}
    with pytest.raises(SettingsError, match="reference is what is judged: name another column"):
        resolve(settings(corpus, tmp_path / "out", model="exact-match", **columns))


def test_columns_called_as_methods_of_mappings_are_columns(tmp_path: Path, judge: str) -> None:
    model = judge_model(judge, "rubric", rubric=rubric_file(tmp_path, "{{ row.items }} {{ response }}"))
    context, response = (Message(Role.USER, "?"),), (Response("final", "7"),)
    _, (prompt,) = rendered(model, ScoreRequest(context, response, fields={"row.items": "eggs"}))
    assert "eggs 7" in prompt
    assert model.family.needed_fields == ("row.items",)


def test_a_column_that_nothing_reads_or_that_is_not_there_stops_the_run(tmp_path: Path, judge: str) -> None:
    rows = [{**chat("a", "b"), "reference": "c"}]
    with pytest.raises(SettingsError, match=r"--field key=k: .* reads no field of that name, .* it reads reference"):
        resolve(run(tmp_path, judge, rows, field={"key": "k"}))
    with pytest.raises(SettingsError, match=r"\{\{ key \}\}.* give --field key=COLUMN, or write \{\{ row.COLUMN \}\}"):
        resolve(run(tmp_path, judge, rows, PROMPT + "{{ key }}"))
    with pytest.raises(SourceError, match=r"none of the 1 rows looked at has 'referenc'. Did you mean 'reference'?"):
        resolve(run(tmp_path, judge, rows, reference_column="referenc"))
    with pytest.raises(SettingsError, match="name the same field: give one of them"):
        run(tmp_path, judge, rows, reference_column="a", field={"reference": "b"})
    head = settings(tmp_path / "c.jsonl", tmp_path / "head", model="tiny-scalar", reference_column="reference")
    with pytest.raises(SettingsError, match="tiny-scalar reads no field of that name, and would ignore it; it reads none"):
        resolve(head)


def test_the_values_of_criteria_come_back_by_their_names(tmp_path: Path, judge: str) -> None:
    rows = [
        {
            **chat("a", "b"),
            "rubric": [{"name": "right", "text": "?", "weight": 2}, {"name": "rude", "text": "?", "weight": -1}],
        },
        {**chat("c", "d"), "rubric": {"criteria": ["It is short."]}},
        {**chat("c", "e"), "rubric": [{"name": "right"}]},
    ]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    score(settings(corpus, tmp_path / "out", model=judge, family="criteria", criteria_column="rubric"))
    first, second, third = scored(tmp_path / "out")
    assert (third["reason"], third["criteria_scores"]) == (Reason.WRONG_TYPE, None)
    values = dict(first["criteria_scores"])
    assert [*values] == ["right", "rude"]
    assert first["reward"] == pytest.approx(max(0.0, (2 * values["right"] - values["rude"]) / 2))
    assert second["criteria_scores"] == [("c1", second["reward"])]
    keep(build(FilterSettings, {"scored": str(tmp_path / "out"), "output": str(tmp_path / "kept"),
                                "where": "criteria_scores['c1'] is not null"}))  # fmt: skip
    (file,) = (tmp_path / "kept").glob("*.jsonl")
    assert json.loads(file.read_text())["criteria_scores"] == {"c1": second["reward"]}
