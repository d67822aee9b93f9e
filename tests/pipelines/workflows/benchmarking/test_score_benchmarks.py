"""Benchmark files scored by an endpoint: the numbers of a batch run, resumed after faults, without failures that pass."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import locate
from actors.errors import EndpointError, OutputError, RunStopped, SettingsError, SourceError
from actors.records import Message, Role, ScoreRequest
from actors.settings.replica import RenderSettings
from pipelines.results.evaluation.gate import compare
from pipelines.results.evaluation.results import Results
from pipelines.results.evaluation.saved_results import read_evaluations
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate
from tests.support.corpora import Notes, lines, scored, settings, write
from tests.support.endpoints import application, listening, scorer
from tests.support.local_ray import use_ray

MODEL = "tiny-attributes"
COLUMNS = ("row", "response_name", "prompt_hash", "reward", "scores", "status", "reason", "prompt_tokens", "truncated")


KEY = "secret-key-of-some-length"
pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def ray_with_key() -> None:
    """A Ray whose workers have a key."""
    use_ray({"OPENAI_API_KEY": KEY})


def pairs(count: int) -> bytes:
    rows = [
        {"prompt": f"What is {index} + 1?", "chosen": f"It is {index + 1}.", "rejected": f"{index}"}
        for index in range(count)
    ]
    return lines([*rows, {"prompt": "?", "chosen": None, "rejected": "x"}])


class Faulty:
    """The application, in front of which requests for rewards may be answered with a status instead."""

    def __init__(self, app: Any, fault: Callable[[int], int | None]) -> None:
        self._app, self._fault, self._lock = app, fault, threading.Lock()
        self.request_count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = None
        if scope.get("path") == "/v1/rewards":
            with self._lock:
                self.request_count += 1
                status = self._fault(self.request_count)
        if status is None:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"retry-after", b"0.01")]})
        await send({"type": "http.response.body", "body": b"{}"})


@contextmanager
def endpoint(fault: Callable[[int], int | None] = lambda _: None, **how: Any) -> Iterator[tuple[str, Faulty]]:
    app = Faulty(application([scorer(MODEL)], **how), fault)
    with listening(app) as address:
        yield f"{address}/v1", app


def evaluated(progress: Progress | None = None, **options: Any) -> Results:
    return score_and_evaluate(build(EvaluateSettings, options), progress or Progress())


def run(corpus: Path, address: str, output: Path, **options: object) -> Results:
    flat: dict[str, Any] = {"scored": f"pairs={corpus}", "endpoint": address, "model": MODEL, "output": str(output)}
    return evaluated(**{**flat, **options})


def outcomes(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in scored(folder)]


def test_the_numbers_are_those_of_a_batch_run_to_the_last_bit(tmp_path: Path) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(150))
    score(settings(corpus, tmp_path / "batch", model=MODEL))
    with endpoint() as (address, _):
        (evaluation,) = run(corpus, address, tmp_path / "out")
    assert outcomes(tmp_path / "out" / "scored" / "pairs" / MODEL) == outcomes(tmp_path / "batch")
    assert evaluation.is_made_up, "the endpoint tells that its engine is the fake one"
    tokens = sum(row["prompt_tokens"] or 0 for row in scored(tmp_path / "batch"))
    assert (evaluation.work["prompt_tokens"], evaluation.work["completion_tokens"]) == (tokens, 0)
    assert tokens > 0
    (counts,) = evaluation.subsets.values()
    assert (counts.items, counts.graded, counts.reasons) == (151, 150, {"rejected: empty_content": 1})


def test_transient_failures_are_asked_again_and_are_no_outcome(tmp_path: Path) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(40))
    with endpoint() as (address, _):
        run(corpus, address, tmp_path / "calm")
    with endpoint(lambda number: {0: 503, 1: 429, 2: 500}.get(number % 5) if number < 30 else None) as (address, app):
        run(corpus, address, tmp_path / "stormy")
    assert app.request_count > 50
    calm, stormy = (outcomes(tmp_path / name / "scored" / "pairs" / MODEL) for name in ("calm", "stormy"))
    assert stormy == calm
    assert not [row for row in stormy if row[5] == "failed"]


def test_a_file_without_all_subsets_is_refused_before_the_next_one_is_scored(tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "response_A": "2", "response_B": "3", "label": "A>B", "source": "mmlu-pro-law"}]
    law, corpus = write(tmp_path / "law.jsonl", lines(rows)), write(tmp_path / "pairs.jsonl", pairs(3))
    files = [f"judgebench={law}", f"pairs={corpus}"]
    with endpoint() as (address, _):
        with pytest.raises(SourceError, match="has no items of reasoning, math, coding, which judgebench has; --partial"):
            run(corpus, address, tmp_path / "out", scored=files)
        assert not (tmp_path / "out" / "scored" / "pairs").exists()
        assert [result.benchmark for result in run(corpus, address, tmp_path / "out", scored=files, partial=True)] == [
            "judgebench",
            "pairs",
        ]


def test_an_endpoint_that_dies_stops_the_run_which_is_resumed(tmp_path: Path) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(200))
    folder = tmp_path / "out" / "scored" / "pairs" / MODEL / "parts"
    with (
        endpoint(lambda number: 503 if number > 100 else None) as (address, _),
        pytest.raises(RunStopped, match="--patience-s"),
    ):
        run(corpus, address, tmp_path / "out", patience_s=0.2)
    early = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert early, "what was answered is committed"
    with endpoint() as (address, app):
        (evaluation,) = run(corpus, address, tmp_path / "out")
    assert app.request_count < 200, "and isn't asked for again"
    assert early.items() <= {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}.items()
    assert evaluation.coverage == 200 / 201


def test_mistakes_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(3))
    with endpoint(keys=[KEY]) as (address, _):
        with pytest.raises(EndpointError, match=r"answers 401.*OPENAI_API_KEY"):
            run(corpus, address, tmp_path / "a")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with pytest.raises(EndpointError, match=f"serves no other; it serves {MODEL}"):
            run(corpus, address, tmp_path / "b", model="other")
        run(corpus, address, tmp_path / "c")
        written = json.dumps([path.read_text() for path in (tmp_path / "c").rglob("*.json")])
        assert "secret-key" not in written
    with pytest.raises(SettingsError, match="--endpoint needs --model"):
        run(corpus, "http://127.0.0.1:9/v1", tmp_path / "d", model=())
    with pytest.raises(SettingsError, match="leave out settings of engines: engine"):
        run(corpus, "http://127.0.0.1:9/v1", tmp_path / "e", engine="fake")


def test_principles_are_left_out_for_a_model_that_takes_none(tmp_path: Path) -> None:
    """As in a batch run, whose hashes of prompts are without them, too."""
    row = {"domain": "stem", "context": [{"role": "user", "content": "1 + 1?"}], "response": "2", "fulfilment": "Yes"}
    corpus = write(tmp_path / "principle.jsonl", lines([{**row, "principle": "correctness"}]))
    with endpoint() as (address, _):
        run(corpus, address, tmp_path / "out", scored=f"helpsteer3={corpus}", partial=True)
    (scored_row,) = scored(tmp_path / "out" / "scored" / "helpsteer3" / MODEL)
    question = ScoreRequest((Message(Role.USER, "1 + 1?"),), ())
    assert (scored_row["status"], scored_row["prompt_hash"]) == ("scored", question.prompt_hash)


@pytest.mark.parametrize("entry", ["weights", "template", "versions"])
def test_another_model_under_the_same_name_is_another_run(tmp_path: Path, entry: str) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(3))
    with endpoint() as (address, _):
        run(corpus, address, tmp_path / "out")
    manifest = tmp_path / "out" / "scored" / "pairs" / MODEL / "manifest.json"
    document = json.loads(manifest.read_text())
    document["identity"][entry] = "of others"
    manifest.write_text(json.dumps(document))
    with endpoint() as (address, _), pytest.raises(OutputError, match=f"{entry}: 'of others' there"):
        run(corpus, address, tmp_path / "out", overwrite=True)


def test_prompts_that_are_made_otherwise_are_another_run(tmp_path: Path) -> None:
    reasoned = {"prompt": "3 + 4?", "chosen": "<think>Hm, hm.</think>7", "rejected": "9"}
    corpus = write(tmp_path / "pairs.jsonl", lines([reasoned]))

    def serving(**render: Any) -> Any:
        return listening(application([scorer(MODEL, **render)], render=RenderSettings.model_validate(render)))

    with serving(reasoning="strip") as address:
        run(corpus, f"{address}/v1", tmp_path / "out")
    rows = scored(tmp_path / "out" / "scored" / "pairs" / MODEL)
    assert [(row["status"], row["response_text"]) for row in rows] == [("scored", "7"), ("scored", "9")]
    with serving(reasoning="strip", too_long="trim-turns") as address, pytest.raises(OutputError, match="trim-turns"):
        run(corpus, f"{address}/v1", tmp_path / "out", overwrite=True)
    with serving(reasoning="keep") as address, pytest.raises(OutputError, match="reasoning: 'strip' there"):
        run(corpus, f"{address}/v1", tmp_path / "out", overwrite=True)


def as_published(corpus: Path, model: Path, output: Path, **options: object) -> Results:
    flat: dict[str, Any] = {"scored": f"judgebench={corpus}", "model": str(model), "output": str(output), "engine": "fake"}
    return evaluated(**{**flat, "as_published": True, **options})


def judgebench_rows() -> bytes:
    sources = ["mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench"] * 10
    row = {"response_model": "gpt-4o", "response_A": "It is 4.", "response_B": "5", "label": "A>B"}
    return lines(
        [{**row, "pair_id": f"{index}", "question": f"What is {index}?", "source": sources[index]} for index in range(40)]
    )


def test_both_readings_are_scored_evaluated_and_compared(tmp_path: Path) -> None:
    corpus, model = write(tmp_path / "gpt-4o.jsonl", judgebench_rows()), tmp_path / "Skywork-Reward-Llama-3.1-8B"
    shutil.copytree(locate("tiny-scalar"), model)
    results = as_published(corpus, model, tmp_path / "out")
    ours, theirs = results
    assert (ours.preset, theirs.label) == (None, f"{model.name}, as published")
    assert [evaluation.identity["render"].get("second_bos") for evaluation in results] == [False, True]
    assert [evaluation.identity["dtype"] for evaluation in results] == ["float32", "bfloat16"]
    name = str(model).strip("/").replace("/", "--")
    folders = [tmp_path / "out" / "scored" / "judgebench" / f"{name}{suffix}" for suffix in ("", "@as-published")]
    tokens = [[row["prompt_tokens"] for row in scored(folder)] for folder in folders]
    assert [count + 1 for count in tokens[0]] == tokens[1], "one BOS more"
    *_figures, reading, _items = results.sections
    assert reading.columns == ("measure", "ours", "as published", "points", "95 % interval")
    values = [{figure.name: figure.shown(figure.value) for figure in evaluation.figures} for evaluation in results]
    assert all(row[1:3] == (values[0][row[0]], values[1][row[0]]) for row in reading.rows)
    overall = [evaluation.figures[0].value for evaluation in results]
    assert reading.rows[0][3] == f"{100 * (overall[1] - overall[0]):+.2f}"  # type: ignore[operator]
    assert "ScalerLab/JudgeBench, utils/judges.py" in reading.notes[0]
    assert "Not reproduced: flash_attention_2" in reading.notes[0]
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "scored").rglob("parts/*")}
    as_published(corpus, model, tmp_path / "out", overwrite=True)
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "scored").rglob("parts/*")}, "resumed"
    saved = read_evaluations(str(tmp_path / "out"))
    assert [saved_evaluation.evaluation.label for saved_evaluation in saved] == [model.name, f"{model.name}, as published"]
    assert len(compare(saved, saved)) == 2, "each with the same reading before"


def test_a_reading_that_isnt_known_is_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path / "gpt-4o.jsonl", judgebench_rows())
    with pytest.raises(SettingsError, match=r"nothing is known of these models.*judgebench: Skywork/Skywork-Reward-Gemma"):
        as_published(corpus, tmp_path / "somebodys", tmp_path / "out")
    with pytest.raises(SettingsError, match="need --model, which scores them"):
        evaluated(scored=f"judgebench={corpus}", as_published=True)
    with pytest.raises(SettingsError, match="leave out --endpoint"):
        as_published(corpus, tmp_path / "m", tmp_path / "out", endpoint="http://127.0.0.1:9/v1", engine="vllm")


def test_a_file_alone_is_of_the_benchmark_that_its_rows_are(tmp_path: Path) -> None:
    preferences, hard = write(tmp_path / "p.jsonl", pairs(3)), write(tmp_path / "a=b" / "hard.jsonl", judgebench_rows())
    with endpoint() as (address, _):
        how: dict[str, Any] = {"endpoint": address, "model": MODEL, "output": str(tmp_path / "out")}
        both = evaluated(**how, scored=[str(preferences), str(hard)])
        named = {**how, "output": str(tmp_path / "named"), "scored": str(hard), "benchmark": "pairs"}
        (as_named,) = evaluated(**named)
        answers = write(tmp_path / "answers.jsonl", lines([{"prompt": "p", "response": "r"}]))
        with pytest.raises(
            SettingsError,
            match=r"answers.jsonl doesn't say which benchmark it is .*give BENCHMARK=FILE or --as, of helpsteer2, ",
        ):
            evaluated(**how, scored=str(answers))
    assert [evaluation.benchmark for evaluation in both] == ["pairs", "judgebench"]
    assert sorted(path.name for path in (tmp_path / "out" / "scored").iterdir()) == ["judgebench", "pairs"]
    assert as_named.benchmark == "pairs"
    with pytest.raises(SettingsError, match=r"rmbench=x.jsonl: there is no such benchmark; there are helpsteer2, "):
        evaluated(**how, scored="rmbench=x.jsonl")


def test_without_a_folder_what_is_scored_isnt_kept(tmp_path: Path) -> None:
    corpus, notes = write(tmp_path / "p.jsonl", pairs(3)), Notes()
    with endpoint() as (address, _):
        (evaluation,) = evaluated(notes, endpoint=address, model=MODEL, scored=str(corpus))
    assert evaluation.figures[0].n == 3
    assert notes.all[0] == "without --out, what is scored isn't kept, and a run that is killed begins anew"


def test_two_files_of_a_benchmark_and_a_model_named_twice_are_refused_with_words(tmp_path: Path) -> None:
    corpus = write(tmp_path / "pairs.jsonl", pairs(3))
    how: dict[str, Any] = {"model": MODEL, "output": str(tmp_path / "out"), "engine": "fake"}
    files = [f"pairs={corpus}", f"pairs={tmp_path / 'other.jsonl'}"]
    with pytest.raises(SettingsError, match=r"pairs is given as 2 files .*pairs.jsonl, .*other.jsonl.* a folder with both"):
        evaluated(**how, scored=files)
    with pytest.raises(SettingsError, match=f"--model {MODEL} is given twice"):
        evaluated(**{**how, "scored": files[:1], "model": [MODEL, MODEL]})
    assert not (tmp_path / "out").exists()
