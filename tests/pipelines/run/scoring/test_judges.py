"""The main job with judges, on the fake engine: what comes out, by what it is judged, and what makes another run of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import ray

import assay
from actors.contracts.judge import PARSER
from actors.errors import OutputError, SettingsError, SourceError
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.run.scoring.score_corpus import score
from tests.support.corpora import chat, lines, outcome_of, scored, settings, write
from tests.support.judges import judge_folder
from tests.support.local_ray import run_here

pytestmark = pytest.mark.usefixtures("local_ray")

ROWS = [
    {"prompt": f"What is {n} + 1?", "responses": [str(n + 1), str(n), f"It is {n + 1}."], "by": "brevity"} for n in range(40)
]
COLUMNS: dict[str, Any] = {"prompt_column": "prompt", "response_column": "responses"}
RUBRIC = (
    "shows: two\nprompt: '{{ response_1 }} {{ response_2 }}'\npattern: '(?P<winner>[AB])'\nwinners: {A: first, B: second}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judge_folder(tmp_path_factory.mktemp("judges") / "judge")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(ROWS))


def compare(corpus: Path, output: Path, folder: Path, **options: Any) -> Any:
    return score(settings(corpus, output, model=str(folder), **{"family": "genrm-json", **COLUMNS, **options}))


def test_every_response_has_its_votes_and_their_sum(tmp_path: Path, corpus: Path, folder: Path) -> None:
    summary = compare(corpus, tmp_path / "out", folder, votes=4, pairs="all", part_rows=7)
    rows = scored(tmp_path / "out")
    assert (summary.rows, summary.responses, summary.scored) == (40, 120, 120)
    assert all(len(row["votes"]) == 8 == row["scores"]["judgements"] for row in rows)
    assert all(row["reward"] == pytest.approx(sum(row["votes"]) / 8) for row in rows)
    assert summary.completion_tokens == sum(row["completion_tokens"] for row in rows) > 0
    assert summary.orders["pairs"] == 3 * 40
    assert 0 <= summary.orders["first"] <= summary.orders["decided"] <= 120
    assert summary.prompt_tokens == sum(row["prompt_tokens"] for row in rows)
    assert "trace" not in rows[0]


def test_a_trace_is_kept_on_request(tmp_path: Path, corpus: Path, folder: Path) -> None:
    compare(corpus, tmp_path / "out", folder, votes=2, trace=True)
    first = scored(tmp_path / "out")[0]
    assert [text["shown"] for text in first["trace"]] == [
        ["response[0]", "response[1]"], ["response[1]", "response[0]"],
        ["response[2]", "response[0]"], ["response[0]", "response[2]"],
    ]  # fmt: skip
    assert [text["vote"] for text in first["trace"]] == first["votes"]
    assert all(text["text"] and text["finish_reason"] == "stop" and text["reason"] is None for text in first["trace"])


def test_how_it_was_asked_is_written_down_and_makes_another_run(tmp_path: Path, corpus: Path, folder: Path) -> None:
    compare(corpus, tmp_path / "out", folder, votes=4, temperature=0.6)
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    judge = manifest.identity["judge"]
    assert (judge["votes"], judge["temperature"], judge["sampling_of"], judge["parser"]) == (4, 0.6, "the user", PARSER)
    for change in ({"votes": 2}, {"seed": 1}, {"reask": 0}, {"aggregate": "win-rate"}, {"trace": True}):
        with pytest.raises(OutputError, match="judge: "):
            compare(corpus, tmp_path / "out", folder, **{"votes": 4, "temperature": 0.6, **change})
    boxed = compare(corpus, tmp_path / "boxed", folder, family="genrm-boxed", votes=32, limit=2)
    assert boxed.scored == 6
    actual_manifest = read_manifest(str(tmp_path / "boxed"))
    assert actual_manifest is not None
    judge = actual_manifest.identity["judge"]
    assert (judge["votes"], judge["temperature"], judge["top_p"], judge["sampling_of"]) == (32, 0.6, 0.95, "Assay")


def test_a_column_says_what_responses_are_judged_by(tmp_path: Path, folder: Path) -> None:
    rows = [
        ROWS[0],
        {**ROWS[1], "by": ["clarity", "brevity"]},
        {**ROWS[2], "by": None},
        {**ROWS[3], "by": 7},
        {**ROWS[4], "by": " "},
    ]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    compare(corpus, tmp_path / "out", folder, family="reward-anything", field={"principle": "by"}, trace=True)
    result = scored(tmp_path / "out")[::3]
    assert [row["reason"] for row in result] == [None, None, "no_principle", "wrong_type", "wrong_type"]
    assert [[text["principle"] for text in row["trace"] or ()] for row in result[:2]] == [
        ["brevity"],
        ["clarity", "brevity"],
    ]


def test_a_column_that_isnt_there_or_isnt_read_is_refused(tmp_path: Path, corpus: Path, folder: Path) -> None:
    with pytest.raises(SourceError, match="none of the 40 rows looked at has 'principal'"):
        compare(corpus, tmp_path / "out", folder, family="reward-anything", field={"principle": "principal"})
    with pytest.raises(SettingsError, match=r"--field principle=by: .* because it judges by no principle"):
        compare(corpus, tmp_path / "out", folder, family="rm-r1", field={"principle": "by"})
    with pytest.raises(SettingsError, match=r"because read\.principles are given too"):
        compare(corpus, tmp_path / "out", folder, family="reward-anything", field={"principle": "by"}, principles={"a": "b"})
    with pytest.raises(SettingsError, match=r"or --field principle=COLUMN"):
        compare(corpus, tmp_path / "out", folder, family="reward-anything")


def test_a_judge_of_two_says_what_it_cant_compare(tmp_path: Path, folder: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("Hi", "Hello")]))
    with pytest.raises(SettingsError, match="compares the responses of a row, and none of the 1 rows looked at has two"):
        score(settings(corpus, tmp_path / "out", model=str(folder), family="genrm-json"))
    lone = write(tmp_path / "lone.jsonl", lines([ROWS[0], {"prompt": "Hi", "responses": ["Hello"]}]))
    compare(lone, tmp_path / "out", folder)
    assert outcome_of(tmp_path / "out")[-1] == ("rejected", "no_opponent")


@pytest.mark.long
def test_datasets_are_judged_as_folders_are(tmp_path: Path, corpus: Path, folder: Path) -> None:
    options = {"family": "genrm-json", "votes": 2, "engine": "fake", **COLUMNS}
    dataset = assay.score(ray.data.from_items(ROWS), model=str(folder), **options)
    compare(corpus, tmp_path / "out", folder, votes=2)
    item = {(row["prompt"], row["response_name"]): (row["reward"], list(row["votes"])) for row in dataset.take_all()}
    assert item == {(row["prompt"], row["response_name"]): (row["reward"], row["votes"]) for row in scored(tmp_path / "out")}


@pytest.mark.long
def test_a_rubric_is_a_file_on_the_command_line(tmp_path: Path, corpus: Path, folder: Path) -> None:
    rubric = tmp_path / "mine.yaml"
    rubric.write_text(RUBRIC)
    flags = ("--prompt-column", "prompt", "--response-column", "responses", "--engine", "fake", "--votes", 2)
    done = run_here("score", corpus, tmp_path / "out", "--model", folder, "--rubric", rubric, *flags, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scored"] == 120
    again = run_here("run", tmp_path / "out" / "recipe.yaml")
    assert again.returncode == 0, again.stderr
    assert "Position bias: of 120 pairs judged in both orders" in again.stdout
    rubric.write_text(RUBRIC.replace("prompt:", "prompts:"))
    wrong = run_here("score", corpus, tmp_path / "other", "--model", folder, "--rubric", rubric, *flags)
    assert wrong.returncode == 2
    assert "prompts isn't a setting; did you mean prompt?" in wrong.stderr
