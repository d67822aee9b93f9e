"""What clients of other systems send and read, restated from their code, against `assay serve` on real engines.

One endpoint for all tests here: a reward head and a judge, each on its vLLM, behind Ray Serve.
"""

import asyncio
import json
import math
import os
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pyarrow.dataset
import pytest

from actors.contracts.family import Question
from actors.engine.process_reaper import VARIABLE, _find_marked
from actors.records import Message, Role
from actors.reward_model import resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from tests.support.commands import summary
from tests.support.endpoints import serving, wait
from tests.support.processes import family, title
from tiny_models.synthetic import pairs

HEAD, JUDGE = "tiny-attributes", "tiny-genrm-json"
HOSTED = "nvidia/nemotron-4-340b-reward"
ENDPOINT = f"""
models:
  - model: {HEAD}
    names: [{HEAD}, {HOSTED}]
  - model: {JUDGE}
"""
QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]
NAMES = ["helpfulness", "correctness", "coherence", "complexity", "verbosity"]
SAME = 1e-5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, psutil.Process]]:
    folder = tmp_path_factory.mktemp("endpoint")
    (folder / "endpoint.yaml").write_text(ENDPOINT)
    settings = {"RAY_enable_metrics_collection": "1"}
    with serving("--file", folder / "endpoint.yaml", log=folder / "log", **settings) as result:
        yield result


@pytest.fixture(scope="module")
def endpoint(served: tuple[str, psutil.Process]) -> str:
    return served[0]


@pytest.fixture(scope="module")
def process(served: tuple[str, psutil.Process]) -> psutil.Process:
    return served[1]


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{endpoint}/v1", api_key="none", timeout=120) as http:
        yield http


def answered(text: str) -> list[Any]:
    return [*QUESTION, {"role": "assistant", "content": text}]


def post(endpoint: str, path: str, body: Any) -> Any:
    answer = httpx.post(f"{endpoint}{path}", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def truth(endpoint: str, text: str = "7") -> dict[str, Any]:
    body = post(endpoint, "/v1/rewards", {"model": HEAD, "conversations": [{"messages": answered(text)}]})
    response: dict[str, Any] = body["data"][0]["responses"][0]
    assert response["status"] == "scored"
    return response


# One number everywhere.


@pytest.mark.long
def test_the_batch_job_gives_the_same_number(endpoint: str, tmp_path: Path) -> None:
    expected = truth(endpoint)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"messages": answered("7")}) + "\n")
    summary("score", corpus, tmp_path / "scored", "--model", HEAD)
    (row,) = pyarrow.dataset.dataset(tmp_path / "scored" / "parts").to_table(columns=["reward", "scores"]).to_pylist()
    assert row["reward"] == pytest.approx(expected["reward"], abs=SAME)
    assert row["scores"] == pytest.approx(expected["scores"], abs=SAME)


def test_every_route_gives_the_same_number(endpoint: str) -> None:
    expected = truth(endpoint)
    by_route: dict[str, float] = {}
    model = resolve_model(ModelSettings(model=HEAD), RenderSettings())
    text = model.family.text(Question((Message(Role.USER, QUESTION[0]["content"]),), ("7",), (0,)), lambda *_, **__: "")
    messages = {"model": HEAD, "messages": answered("7")}

    chat = post(endpoint, "/v1/chat/completions", messages)
    attributes = {item["token"]: item["logprob"] for item in chat["choices"][0]["logprobs"]["content"]}
    by_route["chat"] = sum(model.weights.get(name, 0) * value for name, value in attributes.items())
    for path, body in (("messages", messages), ("input", {"model": HEAD, "input": text})):
        (pooled,) = post(endpoint, "/pooling", body)["data"]
        by_name = dict(zip(NAMES, pooled["data"][4:], strict=True))
        by_route[f"/pooling {path}"] = sum(model.weights.get(name, 0) * value for name, value in by_name.items())
        by_route[f"/v1/embeddings {path}"] = post(endpoint, "/v1/embeddings", body)["data"][-1]["embedding"][-1]
        by_route[f"/classify {path}"] = post(endpoint, "/classify", body)["data"][0]["probs"][-1]
    by_route["/classify text"] = post(endpoint, "/classify", {"model": HEAD, "text": text})["meta_info"]["reward"]
    pair = {"queries": QUESTION[0]["content"], "documents": ["7"]}
    by_route["/score"] = post(endpoint, "/score", {"model": HEAD, **pair})["data"][0]["score"]
    ranked = {"query": QUESTION[0]["content"], "documents": ["9", "7"]}
    results = post(endpoint, "/rerank", {"model": HEAD, **ranked})["results"]
    by_route["/rerank"] = next(result["relevance_score"] for result in results if result["index"] == 1)
    queries = {"query": [text], "prompts": [None]}
    by_route["/get_reward"] = post(endpoint, f"/get_reward?model={HEAD}", queries)["rewards"][0]
    compared = {"conversation_history": QUESTION, "response_objs": [output("7"), output("9")], "model": HEAD}
    by_route["/compare"] = post(endpoint, "/compare", compared)["rewards"][0]
    rollout = {"responses_create_params": {"input": QUESTION}, "response": output("7"), "model": HEAD}
    by_route["/verify"] = post(endpoint, "/verify", rollout)["reward"]
    by_route["/rm"] = post(endpoint, f"/rm?model={HEAD}", {"prompt": QUESTION, "response": "7", "label": None})

    print(by_route)
    assert by_route == pytest.approx(dict.fromkeys(by_route, expected["reward"]), abs=SAME)


def output(text: str) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"output": [message]}


def test_right_answers_have_the_higher_reward(endpoint: str) -> None:
    held_out = list(pairs(seed=77, n=200, split="held-out"))
    conversations = [{"messages": item.context, "responses": [item.chosen, item.rejected]} for item in held_out]
    data = post(endpoint, "/v1/rewards", {"model": HEAD, "conversations": conversations})["data"]
    assert sum(entry["ranking"][0] == 0 for entry in data) >= 0.9 * len(held_out)
    data = post(endpoint, "/v1/rewards", {"model": JUDGE, "conversations": sums(40)})["data"]
    assert sum(entry["ranking"][0] == 0 for entry in data) >= 0.95 * 40


def sums(count: int) -> list[dict[str, Any]]:
    """Questions that the judge knows, with a right and a wrong answer."""
    result = [(index, other) for index in range(1, 8) for other in range(1, 8) if index + other < 10][:count]
    return [
        {
            "messages": [{"role": "user", "content": f"What is {item} + {other}?"}],
            "responses": [str(item + other), str(item + other - 1)],
            "principles": ["correctness"],
        }
        for item, other in (result * 2)[:count]
    ]


# The OpenAI package.


def test_openais_client_lists_and_asks(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [HEAD, HOSTED, JUDGE]
    answer = client.chat.completions.create(model=HEAD, messages=answered("7"))
    assert answer.choices[0].logprobs is not None
    assert [item.token for item in answer.choices[0].logprobs.content or []] == NAMES
    with pytest.raises(openai.NotFoundError, match=r"tiny-attributes"):
        client.chat.completions.create(model="gpt", messages=answered("7"))
    with pytest.raises(openai.BadRequestError, match="no_final_assistant"):
        client.chat.completions.create(model=HEAD, messages=QUESTION)  # type: ignore[arg-type]


def build_messages(text: str = "7") -> list[Any]:
    return [
        *QUESTION,
        {"role": "principle", "content": "correctness"},
        {"role": "response_1", "content": text},
        {"role": "response_2", "content": "9"},
    ]


def test_openais_client_streams_what_it_would_get_whole(client: openai.OpenAI, endpoint: str) -> None:
    whole = client.chat.completions.create(model=JUDGE, messages=build_messages(), temperature=0)
    assert whole.choices[0].finish_reason == "stop"
    text = whole.choices[0].message.content or ""

    pieces = list(client.chat.completions.create(model=JUDGE, messages=build_messages(), temperature=0, stream=True))
    words = "".join(choice.delta.content or "" for piece in pieces for choice in piece.choices)
    thought = "".join(getattr(choice.delta, "reasoning_content", "") or "" for piece in pieces for choice in piece.choices)
    assert words == text
    assert thought == getattr(whole.choices[0].message, "reasoning_content", None)

    async def ask_asynchronously() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{endpoint}/v1", api_key="none") as async_client:
            answer = await async_client.chat.completions.create(model=JUDGE, messages=build_messages(), temperature=0)
            stream: AsyncIterator[Any] = await async_client.chat.completions.create(
                model=JUDGE, messages=build_messages(), temperature=0, stream=True
            )
            parts = [choice.delta.content or "" async for piece in stream for choice in piece.choices]
            return answer.choices[0].message.content or "", "".join(parts)

    assert asyncio.run(ask_asynchronously()) == (text, text)


# NVIDIA's reward models, as they are asked.


def test_curator_and_camel_read_the_scores(client: openai.OpenAI, endpoint: str) -> None:
    """NeMo Curator's `query_reward_model`, CAMEL's `NemotronRewardModel`, and the notebooks: messages, a model, no more."""
    for model in (HEAD, HOSTED):
        response = client.chat.completions.create(messages=answered("7"), model=model)
        if response.choices[0].logprobs is None:
            raise ValueError("Logprobs not found: it isn't a reward model")
        scores = {score.token: score.logprob for score in response.choices[0].logprobs.content or []}
        assert scores == pytest.approx(truth(endpoint)["scores"], abs=SAME)
        content = response.choices[0].message.content or ""
        assert {name: float(value) for name, value in (pair.split(":") for pair in content.split(","))} == scores
        assert list(scores) == NAMES


def test_verl_reads_the_last_number(endpoint: str) -> None:
    """Its reward loop posts a rendered prompt, and takes `data[-1]["probs"][-1]`, or `data[-1]["embedding"][-1]`."""
    model = resolve_model(ModelSettings(model=HEAD), RenderSettings())
    text = model.family.text(Question((Message(Role.USER, QUESTION[0]["content"]),), ("7",), (0,)), lambda *_, **__: "")
    output = post(endpoint, "/classify", {"model": HEAD, "input": text, "activation": False})
    assert output["data"][-1]["probs"][-1] == pytest.approx(truth(endpoint)["reward"], abs=SAME)
    output = post(endpoint, "/v1/embeddings", {"model": HEAD, "input": text})  # where its engine is SGLang
    assert output["data"][-1]["embedding"][-1] == pytest.approx(truth(endpoint)["reward"], abs=SAME)


# GenRM clients.


def test_nemo_rl_reads_a_judges_verdict(client: openai.OpenAI) -> None:
    """Roles as NeMo-Gym sends them; then the JSON after the reasoning."""
    response = client.chat.completions.create(
        model=JUDGE, messages=build_messages(), temperature=0.6, top_p=0.95, max_tokens=512, seed=3
    )
    text = response.choices[0].message.content or ""
    result = re.search(r"\{.*\}", text.rpartition("</think>")[2], re.DOTALL)
    assert result is not None
    verdict = json.loads(result[0])
    assert verdict["score_1"] > verdict["score_2"]
    assert 1 <= verdict["ranking"] <= 3


def test_nemo_gym_compares(endpoint: str) -> None:
    body = {
        "conversation_history": QUESTION,
        "response_objs": [output("9"), output("7"), output("8")],
        "principle": "correctness",
    }
    answer = post(endpoint, "/compare", {**body, "model": JUDGE})
    rewards = answer["rewards"]
    assert all(isinstance(reward, float) and math.isfinite(reward) for reward in rewards)
    assert max(range(3), key=rewards.__getitem__) == 1


# About the endpoint itself.


@pytest.mark.long
def test_metrics_are_of_all_replicas(endpoint: str) -> None:
    for model, conversation in ((HEAD, {"messages": answered("7")}), (JUDGE, sums(1)[0])):
        post(endpoint, "/v1/rewards", {"model": model, "conversations": [conversation]})
    wait(lambda: exported(endpoint, f'ray_assay_responses_total{{.*model="{JUDGE}"'))
    for pattern in (
        f'ray_assay_responses_total{{.*model="{HEAD}".*status="scored"',
        f'ray_assay_replica_tokens{{.*model="{HEAD}"',
        f'ray_assay_replica_tokens{{.*model="{JUDGE}"',
        r'ray_assay_request_seconds_bucket{.*route="/v1/rewards"',
        r'ray_assay_scores_total{.*output="helpfulness"',
        "ray_serve_",
    ):
        wait(partial(exported, endpoint, pattern))


def exported(endpoint: str, pattern: str) -> bool:
    answer = httpx.get(f"{endpoint}/metrics", timeout=30)
    assert answer.status_code == 200
    return re.search(pattern, answer.text) is not None


def cores_of_head(process: psutil.Process) -> list[psutil.Process]:
    """vLLM's engine cores of the head: they carry the mark of the tether that its application's replica holds."""
    replicas = [below for below in family(process) if "assay-0:" in title(below)]
    arguments = [item.cmdline()[-1] for replica in replicas for item in replica.children() if VARIABLE in title(item)]
    marked = [psutil.Process(int(entry.name)) for argument in arguments for entry in _find_marked(os.fsencode(argument))]
    return [item for item in marked if "EngineCore" in title(item)]


@pytest.mark.long
def test_an_engine_that_is_killed_comes_back_by_itself(endpoint: str, process: psutil.Process) -> None:
    """vLLM's own process, under load. The last test here, for it takes a start of an engine."""
    expected = truth(endpoint)["reward"]
    body = {"model": HEAD, "conversations": [{"messages": answered("7")}]}
    engines = cores_of_head(process)
    assert len(engines) == 1

    async def load() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=endpoint, timeout=240) as client:

            async def ask(count: int) -> list[httpx.Response]:
                answers = []
                for _ in range(count):
                    answers.append(await client.post("/v1/rewards", json=body))
                    await asyncio.sleep(float(answers[-1].headers.get("Retry-After", 0)))
                return answers

            asking = [asyncio.create_task(ask(20)) for _ in range(16)]
            await ask(2)
            engines[0].kill()
            return [answer for answers in await asyncio.gather(*asking) for answer in answers]

    answers = asyncio.run(load())
    failed = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in failed} <= {503}
    assert len(failed) <= 16, "those that were in flight, and no others"
    for answer in answers:
        if answer.status_code == 200:
            assert answer.json()["data"][0]["responses"][0]["reward"] == pytest.approx(expected, abs=SAME)
    assert truth(endpoint)["reward"] == pytest.approx(expected, abs=SAME)
    wait(lambda: httpx.get(f"{endpoint}/ready", timeout=30).status_code == 200)
