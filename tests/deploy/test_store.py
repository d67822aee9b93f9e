"""One store for runs and endpoints: whoever scored first, the other asks no engine, and no number changes."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from actors.scorers.online import OnlineScorer
from pipelines.folders.run_folder.columns import FROM_STORE
from pipelines.run.scoring.score_corpus import score
from tests.support.corpora import lines, rows, scored, settings, write
from tests.support.endpoints import QUESTION, application, deploy, post, ray_serve, scorer, wait
from tests.support.processes import family

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
ROWS = rows(20)
CONVERSATIONS = {"conversations": [{"messages": row["messages"]} for row in ROWS]}


@contextmanager
def serving(name: str, store: Path | None) -> Iterator[tuple[Any, Callable[[], int]]]:
    """The application over a model with a store, and how many prompts its engine was asked."""
    made: OnlineScorer = scorer(name, store=store)
    engine: Any = made._engine
    prompts: list[Any] = []
    pool, generate = engine.pool, engine.generate

    async def count_pool(ids: Any, *arguments: Any, **options: Any) -> Any:
        prompts.append(ids)
        return await pool(ids, *arguments, **options)

    async def count_generate(ids: Any, *arguments: Any, **options: Any) -> Any:
        prompts.append(ids)
        return await generate(ids, *arguments, **options)

    engine.pool, engine.generate = count_pool, count_generate
    try:
        yield application([made]), lambda: len(prompts)
    finally:
        made.close()


def rewards_of(app: Any) -> list[float]:
    data = post(app, "/v1/rewards", CONVERSATIONS).json()["data"]
    return [entry["responses"][0]["reward"] for entry in data]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(ROWS))


@pytest.mark.usefixtures("local_ray")
def test_an_endpoint_asks_for_nothing_that_a_run_scored(tmp_path: Path, corpus: Path) -> None:
    score(settings(corpus, tmp_path / "out", store=str(tmp_path / "store")))
    truth = [row["reward"] for row in scored(tmp_path / "out")]
    with serving(HEAD, tmp_path / "store") as (app, count_prompts):
        assert rewards_of(app) == truth
        body = {"messages": ROWS[3]["messages"], "use_activation": False}
        assert post(app, "/classify", body).json()["data"][0]["probs"] == [truth[3]], "as verl asks"
        assert count_prompts() == 0
        post(app, "/pooling", {"messages": ROWS[3]["messages"]})
        assert count_prompts() == 1, "raw outputs aren't stored"
    with serving("tiny-scalar", tmp_path / "store") as (app, count_prompts):
        assert rewards_of(app) != truth
        assert count_prompts() == 20, "another model's scores are no answer"


@pytest.mark.usefixtures("local_ray")
def test_a_run_asks_for_nothing_that_an_endpoint_scored(tmp_path: Path, corpus: Path) -> None:
    with serving(HEAD, tmp_path / "store") as (app, count_prompts):
        truth = rewards_of(app)
        assert (count_prompts(), rewards_of(app), count_prompts()) == (20, truth, 20)
    # Its engine dies at the first prompt that it is asked.
    result = score(settings(corpus, tmp_path / "out", store=str(tmp_path / "store"), engine_args={"die_after": 0}))
    assert result.flags[FROM_STORE] == result.scored == 20
    assert [row["reward"] for row in scored(tmp_path / "out")] == truth


@pytest.mark.usefixtures("local_ray")
def test_a_judges_texts_are_there_for_compare_though_the_run_showed_none(tmp_path: Path) -> None:
    """Gym's rewards are made of the texts: without them, equal grades would be left equal."""
    texts = ["7", "9", "11"]
    messages = [{"type": "message", "role": "assistant", "content": text} for text in texts]
    body = {"conversation_history": QUESTION, "response_objs": [{"output": [message]} for message in messages]}
    with serving(JUDGE, None) as (app, _):
        truth = post(app, "/compare", body).json()
    row = {"messages": QUESTION, **dict(zip("abc", texts, strict=True))}
    corpus = write(tmp_path / "c.jsonl", lines([row]))
    columns = {"prompt_column": "messages", "response_column": tuple("abc")}
    score(settings(corpus, tmp_path / "out", model=JUDGE, store=str(tmp_path / "store"), **columns))
    assert "trace" not in scored(tmp_path / "out")[0]
    with serving(JUDGE, tmp_path / "store") as (app, count_prompts):
        assert post(app, "/compare", body).json() == truth
        assert count_prompts() == 0


@pytest.mark.long
def test_replicas_write_a_store_together_and_one_may_be_killed(tmp_path: Path) -> None:
    """Each writes its own segments; what a killed one hadn't written is scored again."""
    store = tmp_path / "store"
    with ray_serve() as address:
        deploy(HEAD, store=str(store), scaling={"min_replicas": 2, "max_replicas": 2})

        def send(http: httpx.Client, body: Any) -> httpx.Response:
            try:
                return http.post("/v1/rewards", json=body)
            except httpx.RemoteProtocolError:  # what a replica that is killed has of a kept connection is sent again
                return http.post("/v1/rewards", json=body)

        def ask(items: list[Any]) -> list[float]:
            batch = [{"conversations": [{"messages": row["messages"]}]} for row in items]
            with httpx.Client(base_url=address, timeout=120) as http:
                answers = [send(http, body) for body in batch]
            return [answer.json()["data"][0]["responses"][0]["reward"] for answer in answers]

        truth = ask(rows(100))
        ends = itertools.count(160, 10)

        def have_written() -> bool:
            ask(rows(next(ends))[-10:])  # HAProxy may have noticed one of them after the first hundred
            return len(list(store.rglob("*.segment"))) >= 2

        wait(have_written)  # each after its half minute
        replicas = [process for process in family(psutil.Process()) if "model-0" in " ".join(process.cmdline())]
        replicas[0].kill()
        assert ask(rows(150))[:100] == truth
    with serving(HEAD, store) as (app, count_prompts):
        answers = post(app, "/v1/rewards", {"conversations": [{"messages": row["messages"]} for row in rows(150)]}).json()
        assert [entry["responses"][0]["reward"] for entry in answers["data"]][:100] == truth
        assert count_prompts() <= 50, "the first hundred were all written before"
