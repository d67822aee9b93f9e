"""vLLM's numbers against those of transformers, and what becomes of requests when vLLM's processes die."""

import asyncio
import inspect
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actors.engine.admission import Admission
from actors.engine.engine_arguments import (
    FAKE_ARGUMENTS,
    OURS,
    _installed_source,
    check_adapter_precision,
    check_arguments,
    check_installed,
    cpu_shares,
    engine_arguments,
    fields_in,
)
from actors.engine.engine_folder import EngineFolder
from actors.engine.protocol import Sampling, Task
from actors.errors import EngineDead, EngineError, EngineTimeout, SettingsError
from actors.launch.start_engine import _fake_engine
from actors.records import Prompt, RenderedRequest, RenderedResponse
from actors.reward_model import families
from actors.scorers.head_scorer import HeadScorer
from actors.settings.replica import EngineSettings
from tests.support.clock import Clock
from tests.support.engines import (
    BLOCK,
    CLASSIFIER_VOCABULARY,
    EOS,
    MAX_MODEL_LEN,
    ask,
    ask_all,
    close_vllm,
    refusal,
    running,
    start_vllm,
    until,
)

if TYPE_CHECKING:
    from actors.engine.vllm_engine import VllmEngine

ENDLESS = Sampling(max_tokens=MAX_MODEL_LEN - 8)


def prompts() -> list[list[int]]:
    draw = random.Random(3)
    lengths = [1, 2, 3, 17, 63, BLOCK, BLOCK + 1, 200, 2 * BLOCK, MAX_MODEL_LEN - 1, MAX_MODEL_LEN]
    return [[draw.randrange(CLASSIFIER_VOCABULARY) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def logits(classifier: Path) -> list[list[float]]:
    """What transformers says of the prompts, with the bias that its class leaves out."""
    import torch
    from safetensors.torch import load_file
    from transformers import NemotronForSequenceClassification

    model = NemotronForSequenceClassification.from_pretrained(classifier, dtype=torch.float32, pad_token_id=None)
    bias = load_file(classifier / "model.safetensors")["score.bias"]
    assert bias.abs().max() > 1
    with torch.inference_mode():
        hidden = [model.model(torch.tensor([ids])).last_hidden_state[0, -1] for ids in prompts()]
        return [(model.score(state) + bias).tolist() for state in hidden]


def test_logits_are_those_of_transformers_alone_and_in_a_mixed_batch(
    classify_engine: "VllmEngine", logits: list[list[float]]
) -> None:
    alone = [ask(classify_engine, classify_engine.pool(ids)) for ids in prompts()]
    mixed = ask_all(classify_engine, map(classify_engine.pool, prompts()[::-1] + prompts()))
    for pooled, expected in zip([*alone, *mixed], logits + logits[::-1] + logits, strict=True):
        assert pooled.values == pytest.approx(expected, abs=1e-4)
        assert sum(pooled.values) != pytest.approx(1, abs=0.01)  # a softmax over the labels would be


def test_a_file_for_sentence_embeddings_beside_a_classifier_changes_no_number(
    classifier: Path, tmp_path: Path, logits: list[list[float]]
) -> None:
    """It asks for the mean of all positions; the reward is at the last."""
    folder = tmp_path / "classifier"
    shutil.copytree(classifier, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true, "word_embedding_dimension": 128}')
    modules = [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    engine = start_vllm(folder, Task.CLASSIFY)
    try:
        for ids, expected in zip(prompts()[:4], logits, strict=False):
            assert ask(engine, engine.pool(ids)).values == pytest.approx(expected, abs=1e-4)
    finally:
        close_vllm(engine)


def test_the_prefix_cache_is_reported(classify_engine: "VllmEngine") -> None:
    ids = [11] * 300
    first, second = (ask(classify_engine, classify_engine.pool(ids)) for _ in range(2))
    assert (first.cached_tokens, first.computed_tokens) == (0, 300)
    block = classify_engine._engine.vllm_config.cache_config.block_size  # 128 tokens on a CPU, 16 on a GPU
    cached = 300 // block * block
    assert cached >= 256
    assert (second.cached_tokens, second.computed_tokens) == (cached, 300 - cached)
    assert second.values == pytest.approx(first.values, abs=1e-5)
    third = ask(classify_engine, classify_engine.pool(ids, uncached=True))
    assert (third.cached_tokens, third.computed_tokens) == (0, 300)
    assert third.values == pytest.approx(first.values, abs=1e-5)


def greedy(judge: Path, prompt: Sequence[int], count: int) -> tuple[list[int], Any]:
    """The tokens that transformers generates, and the log-probabilities of all tokens at each."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(judge, dtype=torch.float32)
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1], dim=-1)
    return ids[len(prompt) :], rows


def test_candidates_of_a_prompt_pay_for_it_once(classify_engine: "VllmEngine") -> None:
    """16 candidates of 40 tokens each to prompts of 400: whole blocks of the prompt, for all but its first candidate."""
    draw = random.Random(7)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(1, CLASSIFIER_VOCABULARY) for _ in range(count)]

    requests = []
    for number in range(10):
        shared = tokens(400)
        candidates = tuple(Prompt(shared + tokens(40), (index,)) for index in range(16))
        responses = tuple(RenderedResponse(f"candidate[{index}]") for index in range(16))
        requests.append(RenderedRequest(f"{number}", responses, candidates))
    family = families()["attributes"]
    scores = list(chain.from_iterable(HeadScorer(family, family.card_weights(), classify_engine).score_block(requests)))
    assert sum(score.prompt_tokens or 0 for score in scores) == 10 * 16 * 440
    block = classify_engine._engine.vllm_config.cache_config.block_size
    assert sum(score.cached_tokens or 0 for score in scores) == 10 * 15 * (400 // block * block)


def test_verdict_log_probabilities_are_those_of_transformers(judge_engine: "VllmEngine", judge: Path) -> None:
    prompt, verdicts = [72, 105, 33], [(7,), (89, 78), (), (300, 5, 200, 89)]
    tokens, rows = greedy(judge, prompt, 6)
    samplings = [Sampling(max_tokens=6, verdict_ids=ids) for ids in verdicts]
    samples = ask_all(judge_engine, (judge_engine.generate(prompt, sampling) for sampling in samplings))
    for ids, (sample,) in zip(verdicts, samples, strict=True):
        assert list(sample.token_ids) == tokens
        assert len(sample.logprobs) == (6 if ids else 0)
        for position, row in enumerate(sample.logprobs):
            assert row.keys() == {*ids, tokens[position]}
            for token, value in row.items():
                assert value == pytest.approx(float(rows[position, token]), abs=1e-3)


def test_prompts_with_seeds_dont_end_the_engine_when_there_are_many(judge_engine: "VllmEngine") -> None:
    """Read in pieces, as vLLM would read some of them on a CPU to fill its batches, they would."""
    samplings = [Sampling(max_tokens=2, temperature=1.0, seed=seed) for seed in range(64)]
    requests = (judge_engine.generate([seed % 200 + 1] * 400, sampling) for seed, sampling in enumerate(samplings))
    assert len(ask_all(judge_engine, requests)) == 64


def test_a_seed_holds_in_any_company(judge_engine: "VllmEngine") -> None:
    seeded = Sampling(max_tokens=20, temperature=1.0, seed=5)
    company = [Sampling(max_tokens=20, temperature=1.0, seed=seed) for seed in range(100, 106)]
    (alone,) = ask(judge_engine, judge_engine.generate([9, 9], seeded))
    samples = ask_all(judge_engine, (judge_engine.generate([9, 9], sampling) for sampling in (*company, seeded)))
    texts = [sample.text for (sample,) in samples]
    assert texts[-1] == alone.text
    assert len(set(texts)) == len(texts)


def test_text_is_the_tokens_text(judge_engine: "VllmEngine") -> None:
    from tests.support.engines import byte_tokenizer

    (sample,) = ask(judge_engine, judge_engine.generate([9, 9, 9], Sampling(max_tokens=16)))
    ids = [token for token in sample.token_ids if token < EOS]
    assert sample.text == byte_tokenizer().decode(ids)


def test_a_schema_binds_the_text(judge_engine: "VllmEngine") -> None:
    properties = {"verdict": {"enum": ["A", "B"]}, "sure": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    sampling = Sampling(max_tokens=200, temperature=1.0, seed=1, schema=json.dumps(schema))
    (sample,) = ask(judge_engine, judge_engine.generate([1, 2], sampling))
    answer = json.loads(sample.text)
    assert answer.keys() == {*properties}
    assert answer["verdict"] in {"A", "B"}
    assert isinstance(answer["sure"], bool)


def test_a_schema_or_a_verdict_that_is_none_is_refused(judge_engine: "VllmEngine") -> None:
    with pytest.raises(EngineError):
        ask(judge_engine, judge_engine.generate([1], Sampling(max_tokens=9, schema="{")))
    with pytest.raises(EngineError, match="vocab"):
        ask(judge_engine, judge_engine.generate([1], Sampling(max_tokens=1, verdict_ids=(100_000,))))
    ask(judge_engine, judge_engine.health())


def test_the_names_in_vllms_source_are_those_of_its_dataclass() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    source = _installed_source()
    assert source is not None
    assert fields_in(source.read_text(encoding="utf-8")).keys() == {field.name for field in fields(AsyncEngineArgs)}


def test_an_engine_argument_is_refused_before_vllm_is_imported() -> None:
    check_installed(EngineSettings(engine_args={"max_num_seqs": 3}))
    check_installed(EngineSettings(engine="fake", engine_args={"latency_s": 3}))
    with pytest.raises(SettingsError, match="'max_num_seq', which vLLM doesn't know"):
        check_installed(EngineSettings(engine_args={"max_num_seq": 3}))
    with pytest.raises(SettingsError, match="'latency', and the fake engine takes at, die_after, latency_s"):
        check_installed(EngineSettings(engine="fake", engine_args={"latency": 1}))
    for name in OURS:
        with pytest.raises(SettingsError, match=name):
            check_arguments({name: None}, {*OURS, "other"})


def test_a_wrong_value_is_named_before_an_engine_starts() -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("vllm", {"max_num_seqs": "many"}, "max_num_seqs = 'many' must be a whole number or null"),
        ("vllm", {"gpu_memory_utilization": "0,9"}, "gpu_memory_utilization = '0,9' must be a number"),
        ("vllm", {"enforce_eager": 1}, "enforce_eager = 1 must be true or false"),
        ("vllm", {"max_num_seqs": True}, "max_num_seqs = True must be a whole number"),
        ("fake", {"latency_s": "slow"}, "latency_s = 'slow' must be a number"),
    ]
    for engine, arguments, message in cases:
        with pytest.raises(SettingsError, match=message):
            check_installed(EngineSettings(engine=engine, engine_args=arguments))
    right = {"max_num_seqs": None, "gpu_memory_utilization": 1, "enforce_eager": True, "quantization": "fp8", "seed": 0}
    check_installed(EngineSettings(engine_args=right))


def test_the_fake_engine_takes_what_is_named() -> None:
    assert list(inspect.signature(_fake_engine).parameters)[2:] == list(FAKE_ARGUMENTS)


@pytest.mark.parametrize(
    ("cpus", "workers", "shares"),
    [([0, 1], 2, "0|1"), ([0, 1, 4, 5], 2, "0,1|4,5"), ([0, 1, 2], 2, "0|1,2"), ([3], 2, "3|3"), ([0, 1, 2], 1, "0,1,2")],
)
def test_workers_on_cpus_share_them_out(cpus: list[int], workers: int, shares: str) -> None:
    assert cpu_shares(cpus, workers) == shares


@pytest.mark.parametrize(("workers", "of_the_user", "expected"), [(1, None, "0,1,5"), (2, None, "0|1,5"), (2, "3", "3")])
def test_an_engine_has_all_cpus_of_its_process_or_those_that_the_user_says(
    monkeypatch: pytest.MonkeyPatch, workers: int, of_the_user: str | None, expected: str
) -> None:
    from actors.engine import vllm_engine

    name = "VLLM_CPU_OMP_THREADS_BIND"
    monkeypatch.delenv(name)
    if of_the_user is not None:
        monkeypatch.setenv(name, of_the_user)
    monkeypatch.setattr("actors.engine.vllm_engine.current_platform.is_cpu", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    with vllm_engine._variables(workers, deterministic=False):
        assert os.environ[name] == expected
    assert os.environ.get(name) == of_the_user


def test_a_deterministic_engine_takes_one_prompt_at_a_time_on_a_cpu() -> None:
    arguments = engine_arguments(Task.CLASSIFY, EngineSettings(deterministic=True), on_cpu=True)
    assert (arguments["max_num_seqs"], arguments["enable_prefix_caching"]) == (1, False)
    settings = EngineSettings(deterministic=True, engine_args={"max_num_seqs": 8})
    with pytest.raises(SettingsError, match="can't hold 'max_num_seqs': a deterministic engine on a CPU sets it itself"):
        engine_arguments(Task.CLASSIFY, settings, on_cpu=True)
    assert engine_arguments(Task.CLASSIFY, settings, on_cpu=False)["max_num_seqs"] == 8


@pytest.mark.parametrize(
    ("deterministic", "on_cpu", "variable"), [(True, False, "1"), (False, False, "0"), (True, True, None)]
)
def test_processes_of_a_deterministic_engine_on_a_card_import_vllm_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, deterministic: bool, on_cpu: bool, variable: str | None
) -> None:
    """A fork of the server would have modules that were imported without it."""
    from vllm.v1.engine import utils as core_processes

    from actors.engine import vllm_engine

    monkeypatch.setattr("actors.engine.vllm_engine.current_platform.is_cpu", lambda: on_cpu)
    context = core_processes.get_mp_context
    with vllm_engine._variables(1, deterministic):
        assert os.environ.get("VLLM_BATCH_INVARIANT") == variable
        method = core_processes.get_mp_context().get_start_method()
        assert (method == "spawn") == (variable == "1")
    assert "VLLM_BATCH_INVARIANT" not in os.environ
    assert core_processes.get_mp_context is context


def test_a_deterministic_engine_gives_a_prompt_the_same_bytes_beside_others(classifier: Path) -> None:
    engine = start_vllm(classifier, Task.CLASSIFY, deterministic=True)
    try:
        alone = [ask(engine, engine.pool(ids)).values for ids in prompts()]
        assert [pooled.values for pooled in ask_all(engine, map(engine.pool, prompts()))] == alone
        assert engine._engine.vllm_config.scheduler_config.max_num_seqs == 1
    finally:
        close_vllm(engine)


def test_the_users_arguments_win_over_the_platforms() -> None:
    ours = engine_arguments(Task.CLASSIFY, EngineSettings(tensor_parallel=2), on_cpu=True)
    assert ours.items() >= {"distributed_executor_backend": "mp", "enforce_eager": True, "trust_remote_code": False}.items()
    chosen = {"distributed_executor_backend": "ray", "enforce_eager": False, "trust_remote_code": True}
    settings = EngineSettings(tensor_parallel=2, engine_args=chosen)
    assert engine_arguments(Task.CLASSIFY, settings, on_cpu=True).items() >= chosen.items()


def test_a_pipeline_on_cpu_is_not_eager() -> None:
    arguments = engine_arguments(Task.GENERATE, EngineSettings(pipeline_parallel=2), on_cpu=True)
    assert "enforce_eager" not in arguments
    assert arguments["compilation_config"] == {"mode": 2, "backend": "eager"}
    assert "compilation_config" not in engine_arguments(Task.GENERATE, EngineSettings(), on_cpu=False)


def test_the_first_error_of_all_processes_is_the_last_word() -> None:
    folder = EngineFolder({"version": 1, "handlers": {}, "loggers": {"vllm": {"handlers": []}}})
    assert folder.read_error() is None
    log = (
        "Something failed.\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in load\n'
        "ValueError: the cause\n"
        "\n"
        "Traceback (most recent call last):\n"
        "RuntimeError: a consequence\n"
    )
    with folder.in_use(sockets=False):
        config = json.loads(Path(os.environ["VLLM_LOGGING_CONFIG_PATH"]).read_text())
        assert "VLLM_RPC_BASE_PATH" not in os.environ, "vLLM would send it to other nodes, where the folder isn't"
    assert "VLLM_LOGGING_CONFIG_PATH" not in os.environ
    Path(config["handlers"]["last_words"]["filename"]).write_text(log)
    assert folder.read_error() == "ValueError: the cause"
    folder.delete()
    assert folder.read_error() is None


def test_what_ends_a_start_is_told_in_the_words_of_vllm_or_of_its_processes(classifier: Path, tmp_path: Path) -> None:
    message = refusal(classifier, Task.CLASSIFY, engine_args={"gpu_memory_utilisation": 0.5})
    assert message.index("'gpu_memory_utilisation'") < message.index("'gpu_memory_utilization'")
    assert f"can't start {tmp_path / 'nothing'}: " in refusal(tmp_path / "nothing", Task.CLASSIFY)
    # The weights are read in another process, which the parent only sees ending.
    (tmp_path / "config.json").write_bytes((classifier / "config.json").read_bytes())
    assert "Cannot find any model weights" in refusal(tmp_path, Task.CLASSIFY)


Start = Callable[..., "VllmEngine"]


class Core:
    """In the place of an engine core and vLLM: what it is asked, it answers when the step that it is at has ended."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self.engine_core = self

    async def get_supported_tasks_async(self) -> None:
        await asyncio.sleep(self._step_s)


@pytest.mark.parametrize(
    ("is_cold", "step_s", "dies"),
    [(True, 300, False), (False, 300, True), (True, 1e5, True), (False, 20, False)],
    ids=["a first step that compiles", "a hung step", "a hung first step", "a slow step"],
)
def test_a_core_that_answers_nothing_is_dead_later_before_its_first_answer(is_cold: bool, step_s: float, dies: bool) -> None:
    from actors.engine.vllm_engine import VllmEngine

    async def outlives() -> bool:
        engine: Any = object.__new__(VllmEngine)
        engine._admission, engine._probe, engine._is_cold = Admission(1, 60.0), None, is_cold
        engine._engine, engine._folder = Core(step_s), EngineFolder({"handlers": {}, "loggers": {"vllm": {"handlers": []}}})
        try:
            for _ in range(1000):
                await engine.health()
        except EngineDead:
            return False
        return True

    with asyncio.Runner(loop_factory=Clock) as runner:
        assert runner.run(outlives()) is not dies


class Card:
    """What vLLM asks of an H100."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: False

    def get_device_total_memory(self) -> int:
        return 80 * 2**30

    def get_device_name(self) -> str:
        return "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(("online", "tokens"), [(False, 16_384), (True, 8192)])
def test_a_card_reads_as_many_prompts_and_tokens_in_a_step_as_vllm_has_it_do(
    online: bool, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    from actors.engine import vllm_engine

    if arg_utils.current_platform.is_cpu():
        assert vllm_engine._usage_context(online) is UsageContext.ENGINE_CONTEXT
    for module in (arg_utils, vllm_engine):
        monkeypatch.setattr(module, "current_platform", Card())
    most_tokens, most_prompts = arg_utils.EngineArgs.get_batch_defaults(1)
    context = vllm_engine._usage_context(online)
    assert (most_tokens[context], most_prompts[context]) == (tokens, 1024)


def test_an_adapter_in_float32_is_refused_on_a_card_with_what_to_do() -> None:
    """vLLM's kernels assert there, without a message: seen on an H200."""
    with pytest.raises(SettingsError, match="runs in float32: --set dtype=bfloat16"):
        check_adapter_precision("torch.float32", on_cpu=False)
    check_adapter_precision("torch.float32", on_cpu=True)
    check_adapter_precision("torch.bfloat16", on_cpu=False)


@pytest.mark.usefixtures("classify_engine")
def test_float32_is_float32_in_the_attention_of_a_card() -> None:
    """Triton's default is TF32. An engine's processes read the variable when they compile."""
    from actors.engine import fork_server

    assert fork_server.call(lambda: os.environ.get("TRITON_F32_DEFAULT")) == "ieee"


def test_as_many_requests_are_inside_as_vllm_works_on(classify_engine: "VllmEngine") -> None:
    assert classify_engine._admission._free == classify_engine._engine.vllm_config.scheduler_config.max_num_seqs


@pytest.fixture
def start(classifier: Path, judge: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts engines that won't live long. However they end, they leave neither sockets nor logs."""
    started: list[VllmEngine] = []

    def start_one(task: Task, **settings: Any) -> "VllmEngine":
        started.append(start_vllm(classifier if task is Task.CLASSIFY else judge, task, **settings))
        assert any(path.is_socket() for path in Path(temporary).rglob("*"))
        return started[-1]

    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as temporary:  # a short name
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        yield start_one
        for engine in started:
            close_vllm(engine)
        assert not [path for path in Path(temporary).rglob("*") if path.is_socket() or path.name == "errors.log"]


def assert_gone(engine: "VllmEngine", pids: Sequence[int]) -> None:
    """Every call fails at once, and so after it is closed, twice; no process is left."""
    began = time.monotonic()
    with pytest.raises(EngineDead):
        ask(engine, engine.pool([1]))
    with pytest.raises(EngineDead):
        ask(engine, engine.health())
    assert time.monotonic() - began < 1
    engine.close()
    engine.close()
    with pytest.raises(EngineDead):
        engine.submit(engine.pool([1]))
    until(lambda: not any(map(running, pids)))


def core_of(engine: "VllmEngine") -> int:
    """The id of its engine core's process, below which its workers are."""
    (core,) = engine._processes
    return int(core.pid)


def children(pid: int) -> list[int]:
    """The worker processes below an engine core. It has others, for a moment."""
    return [child.pid for child in psutil.Process(pid).children() if child.name().startswith("VLLM::Worker")]


def test_death_before_the_first_request(start: Start) -> None:
    engine = start(Task.CLASSIFY)
    core = core_of(engine)
    os.kill(core, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(EngineDead, match="the engine is gone"):
        ask(engine, engine.pool([1, 2, 3]))
    assert time.monotonic() - began < 5
    assert_gone(engine, [core])


@pytest.mark.parametrize(
    ("victim", "tensor_parallel"), [("engine core", 1), pytest.param("worker", 2, marks=pytest.mark.long)]
)
def test_death_with_requests_inside(start: Start, victim: str, tensor_parallel: int) -> None:
    engine = start(Task.GENERATE, max_in_flight=2, tensor_parallel=tensor_parallel)
    core = core_of(engine)
    workers = children(core)
    futures = [engine.submit(engine.generate([n], ENDLESS)) for n in range(4)]
    until(lambda: engine._engine.output_processor.get_num_unfinished_requests() == 2)
    os.kill(core if victim == "engine core" else workers[-1], signal.SIGKILL)
    for request in futures:
        with pytest.raises(EngineDead):
            request.result(30)
    assert_gone(engine, [core, *workers])


def test_an_engine_core_told_to_end_does_not_answer_for_its_requests(start: Start) -> None:
    """vLLM answers what it holds with nothing, which mustn't pass for the model's words."""
    engine = start(Task.GENERATE)
    core = core_of(engine)
    futures = [engine.submit(engine.generate([n], ENDLESS)) for n in range(2)]
    until(lambda: engine._engine.output_processor.get_num_unfinished_requests() == 2)
    os.kill(core, signal.SIGTERM)
    for request in futures:
        with pytest.raises(EngineDead):
            request.result(30)
    assert_gone(engine, [core])


@pytest.mark.long  # waits for time-outs, and kills an engine
def test_a_slow_request_times_out_and_a_hung_engine_is_dead(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(Task.GENERATE, request_timeout_s=2.0)
    core = core_of(engine)
    workers = children(core)
    too_much = Sampling(max_tokens=ENDLESS.max_tokens, n=200, temperature=1.0, seed=1)
    with pytest.raises(EngineTimeout, match="longer than 2 s"):
        ask(engine, engine.generate([1], too_much))
    until(lambda: engine._engine.output_processor.get_num_unfinished_requests() == 0)
    ask(engine, engine.health())
    ask(engine, engine.generate([1], Sampling(max_tokens=1)))  # until then it might be compiling
    monkeypatch.setattr("actors.engine.vllm_engine.PROBE_TIMEOUT_S", 1.0)
    monkeypatch.setattr("actors.engine.vllm_engine.SHUTDOWN_TIMEOUT_S", 1.0)
    os.kill(core, signal.SIGSTOP)
    with pytest.raises(EngineDead, match="answered nothing"):
        ask(engine, engine.generate([1], Sampling(max_tokens=1)))
    assert_gone(engine, [core, *workers])
