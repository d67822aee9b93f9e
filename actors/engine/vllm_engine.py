"""An engine on vLLM's AsyncLLM.

Prompts go in as token ids; raw logits, or text, come out. vLLM's engine core is a process of its own, with more processes
below it, and AsyncLLM talks to it from our event loop. What it doesn't do by itself is done here:

- it queues without bound: at most `max_in_flight` requests are inside vLLM (as many as it works on at a time), the others
  wait outside;
- a request that arrives around the death of the engine core is never answered: every admitted request has a deadline, and
  a watcher looks at the engine core and fails all requests at once when it is gone;
- an engine core that is told to stop answers its requests with empty outputs: that counts as its death, not as answers;
- the engine core outlives our process if that is killed: a `ProcessReaper` ends it;
- an out-of-vocabulary token id reaches the model when vLLM holds no tokenizer, and kills it: it is refused here.
"""

import asyncio
import gc
import logging
import multiprocessing
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import ValidationError

from actors.engine import fork_server
from actors.engine.admission import Admission
from actors.engine.engine_arguments import (
    SPARE_ADAPTERS,
    check_adapter_precision,
    check_arguments,
    check_installed,
    cpu_shares,
    engine_arguments,
)
from actors.engine.engine_folder import EngineFolder
from actors.engine.loop_thread import LoopThread
from actors.engine.mailbox import Mailbox
from actors.engine.process_reaper import ProcessReaper
from actors.engine.protocol import Generation, Places, Pooled, ReservedGpus, Sampling, Task, positions
from actors.engine.vllm_environment import set_environment
from actors.errors import EngineDead, EngineError, EngineTimeout, SettingsError
from actors.settings.replica import EngineSettings
from actors.timeline import mark

set_environment()
fork_server.start()  # it imports vLLM beside us
gc.disable()  # while importing, collections would walk through all modules again and again: 1.2 of 6.9 s

import vllm.model_executor.models.registry as model_registry
import vllm.v1.engine.utils as core_processes
from vllm import PoolingParams, SamplingParams
from vllm.config import PoolerConfig, VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensInput, tokens_input
from vllm.logger import DEFAULT_LOGGING_CONFIG
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

gc.enable()

T = TypeVar("T")

# Ray ends the processes below an actor before the actor itself. vLLM logs that with a traceback which only says that there
# was an earlier error; whoever waits for an answer gets `EngineDead` with the cause, which the engine core logs as well.
logging.getLogger("vllm.v1.engine.async_llm").addFilter(lambda record: "output_handler failed" not in record.getMessage())
logging.getLogger("vllm.v1.engine.core_client").addFilter(lambda record: "exited unexpectedly" not in record.getMessage())

if fork_server.enabled():
    # vLLM would start an interpreter that imports vLLM for each engine core, and for each look at a model's class.
    core_processes.get_mp_context = lambda: fork_server.CONTEXT
    model_registry._run_in_subprocess = fork_server.call

WATCH_INTERVAL_S = 0.5
PROBE_TIMEOUT_S = 30.0  # an engine core answers between two steps, and no step takes this long
COLD_PROBE_TIMEOUT_S = 900.0  # but a first one that compiles, and an adapter that loads, may take many minutes
COLD_HEALTH_S = 10.0  # a health check of an engine at its first step returns after this, and doesn't wait for the step
SHUTDOWN_TIMEOUT_S = 15.0  # workers on CPU take 5 s to leave
_CPUS, _INVARIANT = "VLLM_CPU_OMP_THREADS_BIND", "VLLM_BATCH_INVARIANT"


def _usage_context(online: bool) -> UsageContext:
    """The context by which vLLM chooses its defaults: prompts at a time (`max_num_seqs`) and tokens in a step.

    On an H100 and an H200 these are 1,024 and 16,384 (8,192 online, since every other request waits for a step to end). In
    a context for which vLLM has no such defaults they are far smaller, which is right for a CPU.
    """
    if current_platform.is_cpu():
        return UsageContext.ENGINE_CONTEXT
    return UsageContext.OPENAI_API_SERVER if online else UsageContext.LLM_CLASS


def _cpu_cache_bytes(config: VllmConfig) -> int:
    """Bytes of the KV cache on a CPU: for 16 full steps or two of the longest prompts, at most 1 GiB.

    vLLM's default is a large part of the machine's memory, and every byte is written at the start: 1 GiB takes 1 to 2 s.
    """
    model, parallel = config.model_config, config.parallel_config
    layers, heads = model.get_num_layers(parallel), model.get_num_kv_heads(parallel)
    # Per token and layer a key and a value, hence the 2.
    token_bytes = 2 * layers * heads * model.get_head_size() * model.dtype.itemsize
    tokens = max(16 * config.scheduler_config.max_num_batched_tokens, 2 * model.max_model_len)
    return min(tokens * token_bytes, 1 << 30)


@contextmanager
def _variables(workers: int, deterministic: bool) -> Iterator[None]:
    """Set variables for the processes started in this block, but for those that the user has set.

    On a CPU all workers share all CPUs that this process may use: vLLM's own choice leaves one free, which of two is half.
    On a GPU a deterministic engine's kernels are batch-invariant. Modules read that variable when they are imported, so the
    processes import vLLM themselves: a fork would have the modules of its server, which was started without it.
    """
    on_cpu, context = current_platform.is_cpu(), core_processes.get_mp_context
    values = (
        {_CPUS: cpu_shares(sorted(os.sched_getaffinity(0)), workers)} if on_cpu else {_INVARIANT: str(int(deterministic))}
    )
    values = {name: value for name, value in values.items() if name not in os.environ}
    if values.get(_INVARIANT) == "1":
        core_processes.get_mp_context = lambda: multiprocessing.get_context("spawn")
    os.environ.update(values)
    try:
        yield
    finally:
        core_processes.get_mp_context = context
        for name in values:
            del os.environ[name]


class VllmEngine:
    """A reward model or a judge on vLLM: one thread of this process, and vLLM's own processes."""

    def __init__(
        self,
        model_path: str,
        *,
        revision: str | None,
        task: Task,
        dtype: str,
        max_model_len: int | None,
        settings: EngineSettings,
        hf_overrides: Mapping[str, Any] | None = None,
        adapter_rank: int | None = None,
        placement: ReservedGpus | None = None,
        online: bool = False,
    ) -> None:
        """Returns when the engine is ready. `adapter_rank` makes room for LoRA adapters up to that rank.

        The GPUs of a `placement` are released when the engine is closed.

        Raises `SettingsError` for an engine argument that can't be passed on, and `EngineError`, with vLLM's own message,
        if the model can't be started.
        """
        check_arguments(settings.engine_args, {field.name for field in fields(AsyncEngineArgs)})
        check_installed(settings)  # here, too: the machine of the command may have no vLLM to look at
        arguments = engine_arguments(
            task, settings, on_cpu=current_platform.is_cpu(), adapter_rank=adapter_rank, placed=placement is not None
        ) | {
            "model": model_path,
            "revision": revision,
            "dtype": dtype,
            "max_model_len": max_model_len,
            "hf_overrides": {**settings.engine_args.get("hf_overrides", {}), **(hf_overrides or {})},
        }
        if task.pools:
            # Set explicitly, since a checkpoint can choose another pooling: some classes pick positions themselves (STEP),
            # where we want all and pick them, and a modules.json (sentence embeddings) asks for the mean of all positions.
            pooling_type = {"tok_pooling_type": "ALL"} if task.every_position else {"seq_pooling_type": "LAST"}
            arguments["pooler_config"] = PoolerConfig(task=task.value, use_activation=False, **pooling_type)
        self._placement = placement
        self._workers = settings.tensor_parallel * settings.pipeline_parallel
        self._deterministic = settings.deterministic
        self._task = task
        self._max_in_flight, self._deadline_s = settings.max_in_flight, settings.request_timeout_s or task.deadline_s
        self._adapters: dict[str, LoRARequest] = {}
        self._adapter_lock = asyncio.Lock()
        self._probe: asyncio.Task[None] | None = None
        # The adapters, and None for the model, that haven't answered a request yet: their first may compile for minutes.
        self._cold: set[str | None] = {None}
        self._folder = EngineFolder(DEFAULT_LOGGING_CONFIG)
        self._reaper = ProcessReaper()
        self._closing = threading.Lock()
        self._thread = LoopThread("vllm-engine")
        try:
            self._thread.submit(self._start(arguments, online)).result()
        except BaseException:
            self._clean_up()
            raise

    async def _start(self, arguments: Mapping[str, Any], online: bool) -> None:
        # This blocks the loop, which has nothing else to do yet. AsyncLLM is created on the loop, because it starts its task
        # that listens to the engine core on the loop that runs then.
        try:
            with (
                self._folder.in_use(sockets=arguments.get("distributed_executor_backend") != "ray"),
                self._reaper.marking(),
                _variables(self._workers, self._deterministic),
            ):
                config = AsyncEngineArgs(**arguments).create_engine_config(_usage_context(online))
                if config.lora_config is not None:
                    check_adapter_precision(str(config.model_config.dtype), on_cpu=current_platform.is_cpu())
                if current_platform.is_cpu() and config.cache_config.kv_cache_memory_bytes is None:
                    config.cache_config.kv_cache_memory_bytes = _cpu_cache_bytes(config)
                if self._placement is not None:
                    config.parallel_config.placement_group = self._placement.group
                mark("engine core")
                self._engine = AsyncLLM.from_vllm_config(config, disable_log_stats=arguments["disable_log_stats"])
            mark("engine is ready")
            self._reaper.note()
        except SettingsError:
            raise
        except Exception as error:
            cause = self._folder.read_error() or _root_message(error)
            raise EngineError(f"vLLM can't start {arguments['model']}: {cause}") from error
        places = self._max_in_flight or self._engine.vllm_config.scheduler_config.max_num_seqs
        self._admission = Admission(places, self._deadline_s)
        model = self._engine.vllm_config.model_config
        self._max_model_len = int(model.max_model_len)
        self._vocabulary = int(model.get_vocab_size())
        self._labels = _labels(model.hf_config, model.hf_text_config)
        lora = self._engine.vllm_config.lora_config
        self._most_adapters = lora.max_loras - SPARE_ADAPTERS if lora and current_platform.is_cpu() else None
        self._processes = tuple(getattr(self._engine.engine_core.resources.engine_manager, "processes", ()))
        self._watcher = asyncio.create_task(self._watch())

    @property
    def max_model_len(self) -> int:
        """The longest prompt in tokens, including what is generated."""
        return self._max_model_len

    @property
    def runner(self) -> str:
        """vLLM's model runner: `V2` by default where Triton is installed, else `V1`."""
        return "V2" if self._engine.vllm_config.use_v2_model_runner else "V1"

    @property
    def request_count(self) -> int:
        """The number of requests that wait for vLLM or are inside it."""
        return self._admission.request_count

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's own loop; callable from any thread but that loop's."""
        return self._thread.submit(work)

    async def pool(
        self, ids: Sequence[int], request_id: str, at: Places = None, *, activated: bool = False, uncached: bool = False
    ) -> Pooled:
        """See `Engine`. Outputs of another shape than the model's are an `EngineError`, too."""
        prompt = _checked_prompt(ids, self._vocabulary)
        every_position = self._task.every_position
        read = positions(ids, at, every_position)
        params = PoolingParams(task=self._task.value, use_activation=activated)
        params.skip_reading_prefix_cache = uncached or None  # None: as vLLM does it for the task
        async with self._admitted(request_id):
            output = await _last_output(self._engine.encode(prompt, params, request_id))
        self._cold.discard(None)
        if getattr(output, "error", None) is not None:
            raise EngineError(f"vLLM failed request {request_id}: {output.error}")
        data = output.outputs.data
        if not data.numel():  # an engine core that shuts down answers with an empty tensor
            raise self._shutdown_error()
        expected = (len(ids), self._labels) if every_position else (self._labels,)
        if data.shape != expected:
            raise EngineError(f"the head's outputs should have the shape {expected}, and vLLM returned {tuple(data.shape)}")
        # Only the rows that are read become Python numbers: a prompt may have a hundred thousand rows.
        rows = data[list(read)] if every_position else data.expand(len(read), -1)
        return Pooled(tuple(map(tuple, rows.tolist())), *_cached_and_computed(output))

    async def generate(self, ids: Sequence[int], sampling: Sampling, request_id: str) -> tuple[Generation, ...]:
        """`sampling.n` samples."""
        output = await _last_output(self._outputs(ids, sampling, request_id, RequestOutputKind.FINAL_ONLY))
        samples = _samples(output)
        if len(samples) != sampling.n:
            raise EngineError(f"{sampling.n} samples were asked for, and vLLM returned {len(samples)}")
        return samples

    async def stream(self, ids: Sequence[int], sampling: Sampling, request_id: str) -> AsyncIterator[Generation]:
        """The text as it grows, read from the caller's loop; closing the iterator aborts the request.

        A reader slower than the model skips states of the text, never its end.
        """
        if sampling.n != 1:
            raise EngineError(f"a stream is one sample, not {sampling.n}")
        mailbox: Mailbox[Any] = Mailbox()

        async def fill() -> None:
            async with aclosing(self._outputs(ids, sampling, request_id, RequestOutputKind.CUMULATIVE)) as outputs:
                async for output in outputs:
                    mailbox.put(output)

        async with aclosing(mailbox.read_until_done(self.submit(fill()))) as outputs:
            async for output in outputs:
                yield _samples(output)[0]

    async def load_adapter(self, path: str) -> None:
        """Load a LoRA adapter, which its first request would do else. Raises `EngineError` with vLLM's own message."""
        async with self._admitted(f"adapter {path}"):
            await self._load_adapter(path)

    async def abort(self, request_id: str) -> None:
        """Give up on a request, which fails with `EngineError`; unknown ids are fine."""
        self._admission.abort(request_id)

    async def health(self) -> None:
        """Returns if the engine core answers, raises `EngineDead` if it can't.

        An engine that hasn't answered a request yet may be compiling: then it returns after 10 s without an answer, and the
        probe goes on until its own limit.
        """
        await self._check_core(COLD_HEALTH_S if self._cold else None)

    def close(self) -> None:
        """Stop the engine and its processes. Safe to call twice."""
        with self._closing:
            try:
                self._thread.submit(self._stop()).result()
            except EngineDead:  # it was closed before
                return
            try:
                # In this thread: while the interpreter shuts down, the loop's executor takes no more work.
                self._engine.shutdown(timeout=SHUTDOWN_TIMEOUT_S)
            finally:
                self._clean_up()
                if self._placement is not None:
                    self._placement.release()

    def _clean_up(self) -> None:
        self._thread.stop()
        self._reaper.release()
        self._folder.delete()

    async def _stop(self) -> None:
        self._watcher.cancel()
        self._admission.die("it was closed")
        if self._engine.output_handler is not None:
            self._engine.output_handler.cancel()  # else it logs the end of the engine core as an error

    async def _outputs(
        self, ids: Sequence[int], sampling: Sampling, request_id: str, kind: RequestOutputKind
    ) -> AsyncGenerator[Any, None]:
        """vLLM's own outputs of a generation."""
        prompt = _checked_prompt(ids, self._vocabulary)
        async with self._admitted(request_id):
            params = _sampling_params(sampling, kind)
            adapter = await self._load_adapter(sampling.adapter)
            async with aclosing(self._engine.generate(prompt, params, request_id, lora_request=adapter)) as outputs:
                async for output in outputs:
                    self._cold -= {None, sampling.adapter}
                    for sample in output.outputs:
                        if sample.finish_reason == "abort":
                            raise self._shutdown_error()
                        if sample.finish_reason == "error":
                            raise EngineError(f"vLLM failed request {request_id}")
                    yield output

    @asynccontextmanager
    async def _admitted(self, request_id: str) -> AsyncIterator[None]:
        """A place inside vLLM, with vLLM's errors turned into ours. vLLM aborts a request whose block is cancelled."""
        try:
            async with self._admission.place(request_id):
                yield
        except EngineTimeout:
            await self._check_core()  # raises `EngineDead` if it isn't one slow request, but an engine that hangs
            raise
        except EngineError:
            raise
        except EngineDeadError as error:
            raise self._declare_dead("its engine core failed") from error
        except Exception as error:
            self._admission.check()
            raise EngineError(f"vLLM refused request {request_id}: {_root_message(error)}") from error

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            for process in self._processes:
                if not process.is_alive():
                    self._declare_dead(f"its process {process.pid} ended with exit code {process.exitcode}")
            if self._engine.errored:
                self._declare_dead("its engine core failed")

    async def _check_core(self, at_most_s: float | None = None) -> None:
        """Wait, up to a time, for the engine core to answer a probe. Raises `EngineDead` if it can't."""
        self._admission.check()
        if self._probe is None or self._probe.done():  # one probe at a time, however many wait for it
            self._probe = asyncio.create_task(self._probe_core())
        await asyncio.wait([self._probe], timeout=at_most_s)
        self._admission.check()

    async def _probe_core(self) -> None:
        """Send one probe to the engine core, and declare it dead if it doesn't answer in time."""
        limit_s = COLD_PROBE_TIMEOUT_S if self._cold else PROBE_TIMEOUT_S
        try:
            async with asyncio.timeout(limit_s):
                await self._engine.engine_core.get_supported_tasks_async()
        except TimeoutError:
            self._declare_dead(f"it answered nothing for {limit_s:g} s")
        except EngineDeadError:
            self._declare_dead("its engine core failed")

    def _shutdown_error(self) -> EngineDead:
        """The error for a request that vLLM aborted by itself, which it only does when it shuts down."""
        return self._declare_dead("its engine core is shutting down")

    def _declare_dead(self, cause: str) -> EngineDead:
        """Fail every request. Only the first cause counts, with what the processes had logged as an error by then."""
        logged = self._folder.read_error()
        return self._admission.die(cause if logged is None else f"{cause}: {logged}")

    async def _load_adapter(self, path: str | None) -> LoRARequest | None:
        """An adapter, loaded before its first request: one that can't be read would kill the engine inside a request."""
        if path is None:
            return None
        async with self._adapter_lock:
            if path not in self._adapters:
                if len(self._adapters) == self._most_adapters:
                    raise EngineError(f"more than {self._most_adapters} adapters on a CPU; set `max_loras` in engine_args")
                # vLLM caches adapters by these numbers, which must be 1 or more, and none is ever given to another path.
                adapter = LoRARequest(path, len(self._adapters) + 1, path)
                self._cold.add(path)
                try:
                    await self._engine.add_lora(adapter)
                except BaseException as error:
                    self._cold.discard(path)
                    if isinstance(error, EngineDeadError) or not isinstance(error, Exception):
                        raise
                    raise EngineError(f"the adapter {path} can't be loaded: {_root_message(error)}") from error
                self._adapters[path] = adapter
            return self._adapters[path]


def _checked_prompt(ids: Sequence[int], vocabulary: int) -> TokensInput:
    """vLLM's form of a prompt. Without a tokenizer vLLM doesn't check the ids, and a wrong one kills the engine core."""
    prompt = list(ids)
    if not prompt:
        raise EngineError("the prompt has no tokens")
    for token in (min(prompt), max(prompt)):
        if not 0 <= token < vocabulary:
            raise EngineError(f"token id {token} is outside the vocabulary of {vocabulary} tokens")
    return tokens_input(prompt)


async def _last_output(outputs: AsyncGenerator[Any, None]) -> Any:
    """The last output of a request: the finished one, since a series that breaks off raises."""
    async with aclosing(outputs):
        async for output in outputs:
            last = output
    return last


def _sampling_params(sampling: Sampling, kind: RequestOutputKind) -> SamplingParams:
    return SamplingParams(
        n=sampling.n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        skip_special_tokens=not sampling.keep_special,
        output_kind=kind,
        # Never together with `logprobs=n`: on vLLM's first runner one such request takes the ids from all others of a batch.
        logprob_token_ids=list(sampling.verdict_ids) or None,
        structured_outputs=None if sampling.schema is None else StructuredOutputsParams(json=sampling.schema),
    )


def _samples(output: Any) -> tuple[Generation, ...]:
    cached, computed = _cached_and_computed(output)
    return tuple(
        Generation(
            text=sample.text,
            token_ids=tuple(sample.token_ids),
            finish_reason=sample.finish_reason,
            logprobs=tuple({token: entry.logprob for token, entry in row.items()} for row in sample.logprobs or ()),
            cached_tokens=cached,
            computed_tokens=computed,
        )
        for sample in sorted(output.outputs, key=lambda sample: sample.index)
    )


def _cached_and_computed(output: Any) -> tuple[int, int]:
    cached = output.num_cached_tokens or 0
    return cached, len(output.prompt_token_ids) - cached


def _labels(config: Any, text_config: Any) -> int:
    """How many outputs the head has. A head made of the language model's output rows isn't in the config as labels."""
    rows = getattr(config, "classifier_from_token", None)
    if rows:
        return 1 if getattr(config, "method", None) == "from_2_way_softmax" else len(rows)
    return int(text_config.num_labels)


def _root_message(error: BaseException) -> str:
    """The message of the error that started a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ValidationError):
        return "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
    return str(error) or type(error).__name__
