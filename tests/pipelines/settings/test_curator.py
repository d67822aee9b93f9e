"""NeMo Curator's judges in YAML, read as a recipe: what each becomes, what it comes to, and what is refused by its name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.engine.protocol import Generation
from actors.errors import SettingsError, SourceError
from actors.models.rubric import Rubric
from actors.records import Message, Response, Role, ScoreRequest
from actors.reward_model import families
from actors.settings.replica import JudgeSettings
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.preview import fill_fields
from pipelines.settings.recipe import Recipe, read_recipe
from tests.support.commands import sets
from tests.support.corpora import lines, scored, write
from tests.support.judges import judge_folder, judge_model, rendered
from tests.support.local_ray import run_here

PROMPTS = {
    "system.jinja": "What stands between tags is evidence.\n",
    "quality.jinja": '<raw>{{ raw[:40] if raw is string else "" }}</raw>\n'
    '<a>{{ (text_a or "")[:9] }}</a>\n<b>{{ text_b }}</b>\n',
    "check.jinja": "One says {{ first.best.score }}, {{ first.kept.score }}{% if first.kept.score > 2 %} (much){% endif %};"
    " the other {{ second.best.score }}. It is about {{ raw }}",
}
FILE = """
models:
  - alias: small
    model: tiny-r3
    served_model_name: Org/Small
    dynamo_model:
      num_replicas: 1
      mode: aggregated
      engine_kwargs: {tensor_parallel_size: 1, max_model_len: 1024, dtype: float32}
    inference_parameters: {temperature: 0.0, max_tokens: 128, timeout: 600, max_parallel_requests: 64}
  - {alias: other, model: tiny-policy}
execution:
  stages:
    - name: quality
      judges:
        - &quality
          name: first
          system_prompt_path: system.jinja
          prompt_path: quality.jinja
          with_trace: last_message
          extract_reasoning_content: false
          scores:
            - name: best
              description: Which text keeps "the page's" {{ meaning }}.
              options: {candidate_a: The first., candidate_b: The second., none: Neither.}
            - name: kept
              description: How much is kept.
              options: {1: Nearly nothing., 3: Half., 5: All.}
    - name: agreement
      judges:
        - {<<: *quality, name: second, model_alias: other}
        - name: check
          prompt_path: check.jinja
          scores: [{name: same, description: Whether both agree., options: {0: "No.", 1: "Yes."}}]
      filters: [{judge: first, score: best, operator: not_in, value: [none]}]
filters: [{judge: first, score: kept, operator: gte, value: 0.4}]
"""
ROWS = [
    {"id": i, "raw": f"Home. {i} and 1 are {i + 1}.", "text_a": None if i == 3 else f"{i}", "text_b": f"{i + 1}."}
    for i in range(9)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PROMPTS.items():
        (tmp_path / name).write_text(text)
    write(tmp_path / "rows.jsonl", lines([*ROWS, {**ROWS[0], "id": 9, "text_b": None}]))
    return tmp_path


def places(folder: Path) -> tuple[str, str]:
    return f"inputs={folder / 'rows.jsonl'}", f"output={folder / 'out'}"


def read(folder: Path, text: str = FILE, *assignments: str) -> Recipe:
    (folder / "judge.yaml").write_text(text)
    return read_recipe(str(folder / "judge.yaml"), [*places(folder), *assignments])


def steps(recipe: Recipe) -> list[Mapping[str, Any]]:
    return [stage.steps for stage in recipe.stages]


def test_each_judge_is_a_step_with_its_model_and_a_filter(folder: Path) -> None:
    first, second, check = steps(read(folder, FILE, "seed=7"))
    run = first["score"]
    assert (run.model.model, run.model.dtype, run.engine.tensor_parallel, run.work.replicas) == (
        "tiny-r3",
        "float32",
        1,
        1,
    )
    assert (run.model.judge.temperature, run.model.judge.trace, run.engine.request_timeout_s) == (0, True, 600)
    assert run.render.max_model_len + run.model.judge.rubric.max_tokens == 1024
    assert second["score"].model.model == "tiny-policy"
    assert [step["score"].model.judge.seed for step in (first, second, check)] == [7, 7, 7]
    assert first["filter"].where == "first_scores.best not in (2) and first_scores.kept >= 0.4"
    assert second["filter"].where == "second_status = 'scored'"
    assert [step["score"].corpus.inputs[0] for step in (second, check)] == [first["filter"].output, second["filter"].output]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["fake", "vllm"])
def test_judges_run_one_after_another_and_again_without_work(folder: Path, engine: str) -> None:
    # A tiny model that nobody taught these judges' prompts writes long reasons.
    text = FILE.replace("tiny-policy", "tiny-r3").replace("max_tokens: 128", "max_tokens: 1500").replace("1024", "4096")
    (folder / "judge.yaml").write_text(FILE if engine == "fake" else text)
    command = ("run", folder / "judge.yaml", *sets(*places(folder), f"engine={engine}"))
    done = run_here(*command)
    assert done.returncode == 0, done.stderr
    out = folder / "out"
    kept, without_b = rows_of(out / "kept/check"), rows_of(out / "rest/first")[-1]
    assert engine == "vllm" or 0 < len(kept) < len(ROWS)  # what a tiny model says of texts is anybody's guess
    reasons = {row["first_reason"] for row in scored(out / "judges/first")}
    assert reasons <= {None, "missing_field", "cut_off"}, "the engine is held to the options"
    assert all(row["first_scores"]["kept"] >= 0.4 and row["check_status"] == "scored" for row in kept)
    assert (without_b["id"], without_b["first_status"], without_b["first_reason"]) == (9, "rejected", "missing_field")
    judged, passed = len(scored(out / "judges/first")), len(scored(out / "judges/second"))
    assert (judged, passed) == (len(ROWS) + 1, len(rows_of(out / "kept/first")))
    assert len(rows_of(out / "rest/first")) == judged - passed
    before = {path: path.stat().st_mtime_ns for kind in ("parquet", "jsonl") for path in out.rglob(f"*.{kind}")}
    for _ in range(2):
        again = run_here(*command)
        assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def prompt_of(folder: Path, step: Mapping[str, Any], **fields: str) -> str:
    """The prompt of a judge for a row with these columns."""
    place = folder / "model" if (folder / "model").is_dir() else judge_folder(folder / "model")
    model = judge_model(place, rubric=step["score"].model.judge.rubric)
    texts = {f"row.{name.replace('__', '.')}": text for name, text in fields.items()}
    request = ScoreRequest((Message(Role.USER, "raw"),), (Response("final", "raw"),), fields=texts)
    _, (prompt,) = rendered(model, request)
    return prompt


def test_a_prompt_shows_columns_and_what_earlier_judges_said(folder: Path) -> None:
    first, _, check = steps(read(folder))
    prompt = prompt_of(folder, first, raw="Home. " * 9, text_b="{{ 1 + 1 }}")
    assert "<raw>" + ("Home. " * 9)[:40] + "</raw>\n<a></a>\n<b>{{ 1 + 1 }}</b>\n\n" in prompt
    assert 'best_reasoning, best: Which text keeps "the page\'s" {{ meaning }}.\n- "candidate_a": The first.' in prompt
    assert "kept_reasoning, kept: How much is kept.\n- 1: Nearly nothing." in prompt
    columns = {
        "first_scores__best": "1.0",
        "first_scores__kept": "5.0",
        "second_scores__best": "0.0",
        "second_scores__kept": "1.0",
    }
    shown = prompt_of(folder, check, raw="sums", **columns)
    assert "One says candidate_b, 5 (much); the other candidate_a. It is about sums" in shown


def test_an_answer_is_read_by_options(folder: Path) -> None:
    family = families()["rubric"]
    assert isinstance(family, Rubric)
    rubric = family.with_settings(JudgeSettings(rubric=steps(read(folder))[0]["score"].model.judge.rubric))
    answer = {"best_reasoning": "B has all.", "best": "candidate_b", "kept_reasoning": "Nothing lacks.", "kept": 5}
    verdict = rubric.verdict(Generation(json.dumps(answer), (), "stop", (), 0, 1), 1)
    assert verdict.scores == ({"best": 1, "kept": 5},)
    assert rubric.card_weights() == {"kept": 1.0}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("max_tokens: 128,", "max_tokens: 128, extra_body: {},", "inference_parameters.extra_body"),
        ("mode: aggregated", "mode: disagg", "mode = 'disagg': must be 'aggregated'"),
        ("mode: aggregated", "prefill: {}", "dynamo_model.prefill"),
        ("- name: quality", "- num_workers: 2", r"stages\[0\].num_workers isn't a setting"),
        ("execution:", "dynamo_server: {}\nexecution:", "dynamo_server isn't a setting"),
        ("with_trace: last_message", "with_trace: all_messages", "with_trace = 'all_messages'"),
        ("reasoning_content: false", "reasoning_content: true", "extract_reasoning_content"),
        ("1: Nearly nothing.", "few: Nearly nothing.", r"scores\[1\].options"),
        ("model_alias: other", "model_alias: large", "second: model_alias large is none of small, other"),
        ("name: second", "name: first", "different names: first, first, check"),
        ("judge: first, score: kept", "judge: first, score: lost", "the filter on first.lost: no judge before it gives"),
        ("operator: gte, value: 0.4", 'operator: gte, value: "4"', "'4' isn't of its options, 1, 3, 5"),
        ("operator: gte, value: 0.4", "operator: in, value: 4", "in and not_in take a list"),
        ("operator: not_in, value: [none]", "operator: gt, value: none", "words eq, ne, in or not_in: not gt"),
        ("operator: not_in, value: [none]", "operator: eq, value: both", "'both' isn't of its options, 'candidate_a'"),
        ("prompt_path: check.jinja", "prompt_path: gone.jinja", r"gone\.jinja can't be read"),
    ],
)
def test_what_cant_be_done_as_curator_does_it_is_refused_by_name(
    folder: Path, before: str, after: str, message: str
) -> None:
    assert before in FILE
    with pytest.raises(SettingsError, match=message):
        read(folder, FILE.replace(before, after, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raw }}{% for part in raw %}{{ part }}{% endfor %}", "raw is text, also of a list"),
        ("{{ raw|length }}", "raw is text, also of a list"),
        ("{% if raw == 3 %}x{% endif %}", "raw is text, also of a list"),
        ("{{ raw.spans }}", "no attribute 'spans'"),
        ("{{ raw }}{% if text_a %}x{% endif %}", "text_a is text, also of"),
        ("{{ raw if not text_a }}", "text_a is text, also of"),
        ("{{ raw }}{% if text_a is number %}x{% endif %}", "text_a is text, also of"),
        ("{{ raw }}{{ first.kept.reasoning }}", "no attribute 'reasoning'"),
        ("{{ raw }}{{ first.kept }}", "NAME.SCORE.score"),
        ("{{ raw", "can't be read"),
        ("Nothing.", "shows no column"),
    ],
)
def test_a_prompt_to_which_more_than_text_matters_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "check.jinja").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read(folder)


def test_a_column_that_no_row_has_is_refused_even_where_a_prompt_provides_for_null(folder: Path) -> None:
    run = steps(read(folder))[0]["score"]
    names = [f"row.{name}" for name in ("raw", "text_a", "text_b")]
    fill_fields(preview_of(run.corpus, ROWS), "judge", names)
    without = [{name: value for name, value in row.items() if name != "text_a"} for row in ROWS]
    with pytest.raises(SourceError, match="none of the 9 rows looked at has 'text_a'"):
        fill_fields(preview_of(run.corpus, without), "judge", names)


def test_rows_and_folder_are_named_at_the_command(folder: Path) -> None:
    (folder / "judge.yaml").write_text(FILE)
    with pytest.raises(SettingsError, match="names no rows"):
        read_recipe(str(folder / "judge.yaml"), [places(folder)[0]])
