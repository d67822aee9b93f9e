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
import itertools
import logging
import multiprocessing
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

from pydantic import ValidationError

from actors.checkpoint.checkpoint_files import Adapter
from actors.engine import fork_server
from actors.engine.admission import Admission
from actors.engine.engine_arguments import check_adapter_precision, check_installed, cpu_shares, engine_arguments
from actors.engine.engine_folder import EngineFolder
from actors.engine.process_reaper import ProcessReaper
from actors.engine.protocol import Engine, Generation, Places, Pooled, Sampling, StateHead, Task, check_ids, positions
from actors.engine.vllm_environment import set_environment, variables
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
COLD_PROBE_TIMEOUT_S = 900.0  # but a first one that compiles, or before it an adapter that loads, may take many minutes
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
    with variables(values):
        if os.environ.get(_INVARIANT) == "1":
            core_processes.get_mp_context = lambda: multiprocessing.get_context("spawn")
        try:
            yield
        finally:
            core_processes.get_mp_context = context


class VllmEngine(Engine):
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
        adapter: Adapter | None = None,
        head: StateHead | None = None,
        placement: Any = None,
        online: bool = False,
    ) -> None:
        """Returns when the engine is ready. A LoRA `adapter` is part of the model: all requests are computed with it.

        A `head` is applied to the model's hidden states; its tensors aren't loaded with the model's.
        A `placement` has GPUs as a placement group of Ray's, `group`, and a method `release`, which is called at the end.

        Raises `SettingsError` for an engine argument that can't be passed on, and `EngineError`, with vLLM's own message,
        if the model can't be started.
        """
        check_installed(settings)  # here, too: the machine of the command may have no vLLM to look at
        rank = None if adapter is None else adapter.rank
        arguments = engine_arguments(
            task,
            settings,
            on_cpu=current_platform.is_cpu(),
            adapter_rank=rank,
            placed=placement is not None,
            left_out=() if head is None else head.left_out,
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
        super().__init__()
        self._settings = settings
        self._placement = placement
        self._task = task
        self._head = head
        # vLLM caches adapters by a number, which must be 1 or more.
        self._lora = None if adapter is None else LoRARequest(str(adapter.folder), 1, str(adapter.folder))
        self._ids = map(str, itertools.count())
        self._probe: asyncio.Task[None] | None = None
        self._is_cold = True  # until the first answer, for which it may compile for minutes
        self._folder = EngineFolder(DEFAULT_LOGGING_CONFIG)
        self._reaper = ProcessReaper()
        self._closing = threading.Lock()
        try:
            self.submit(self._start(arguments, online)).result()
        except BaseException:  # a Ctrl-C as well: it would leave vLLM's processes, which hold the GPU
            self._clean_up()
            raise
        if self._lora is not None:
            # Here, where an error ends the run: at the first request it would be the reason of one row, and so of all.
            try:
                self.submit(self._load_adapter(self._lora)).result()
            except BaseException:
                self.close()  # and not by killing processes: vLLM would warn of a core that ended unexpectedly
                raise

    async def _start(self, arguments: Mapping[str, Any], online: bool) -> None:
        # This blocks the loop, which has nothing else to do yet. AsyncLLM is created on the loop, because it starts its task
        # that listens to the engine core on the loop that runs then.
        workers = self._settings.tensor_parallel * self._settings.pipeline_parallel
        try:
            with (
                self._folder.in_use(sockets=arguments.get("distributed_executor_backend") != "ray"),
                variables(self._reaper.variables),
                _variables(workers, self._settings.deterministic),
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
        places = self._settings.max_in_flight or self._engine.vllm_config.scheduler_config.max_num_seqs
        self._admission = Admission(places, self._settings.request_timeout_s or self._task.deadline_s)
        model = self._engine.vllm_config.model_config
        self.max_model_len = int(model.max_model_len)
        self.runner = "V2" if self._engine.vllm_config.use_v2_model_runner else "V1"
        self._vocabulary = int(model.get_vocab_size())
        # Read at every position, prompts take nothing from the cache; and clients are answered in the order of their coming.
        cache = self._engine.vllm_config.cache_config
        self._meets = bool(cache.enable_prefix_caching) and not self._task.every_position and not online
        self._processes = tuple(getattr(self._engine.engine_core.resources.engine_manager, "processes", ()))
        self._watcher = asyncio.create_task(self._watch())

    async def _load_adapter(self, lora: LoRARequest) -> None:
        # Load the adapter before its first request: one that can't be read would kill the engine inside a request.
        async with self._admitted():
            try:
                await self._engine.add_lora(lora)
            except EngineDeadError:
                raise
            except Exception as error:
                raise EngineError(f"the adapter {lora.path} can't be loaded: {_root_message(error)}") from error

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        every_position = self._task.every_position
        read = positions(ids, at, every_position)
        ends = (len(ids),) if self._head is None else self._head.ends(ids)
        async with self._admitted(context, len(ids)):
            # One after the other, in one place: the gate's prompt begins the whole one, which comes out of the prefix cache
            # then, and not behind all that wait.
            states = [await self._encode(ids[:end], activated, uncached) for end in ends]
        if self._head is not None:
            # In a thread: the largest heads are 0.3 GB of weights, and the loop's other prompts would wait for each.
            values = await asyncio.to_thread(self._head.outputs, *(state.outputs.data for state in states))
            computed = min(len(ids), sum(_cached_and_computed(state)[1] for state in states))
            return Pooled((values,) * len(read), len(ids) - computed, computed)
        (output,) = states
        data = output.outputs.data
        if every_position and len(data) != len(ids):
            raise EngineError(f"a prompt of {len(ids)} tokens should have as many outputs, and vLLM returned {len(data)}")
        # Only the rows that are read become Python numbers: a prompt may have a hundred thousand rows.
        rows = data[list(read)] if every_position else data.expand(len(read), -1)
        return Pooled(tuple(map(tuple, rows.tolist())), *_cached_and_computed(output))

    async def _encode(self, ids: Sequence[int], activated: bool, uncached: bool) -> Any:
        prompt = _checked_prompt(ids, self._vocabulary)
        params = PoolingParams(task=self._task.value, use_activation=activated)
        params.skip_reading_prefix_cache = uncached or None  # None: as vLLM does it for the task
        output = await _last_output(self._engine.encode(prompt, params, next(self._ids)))
        self._is_cold = False
        if getattr(output, "error", None) is not None:
            raise EngineError(f"vLLM failed a request: {output.error}")
        if not output.outputs.data.numel():  # an engine core that shuts down answers with an empty tensor
            raise self._shutdown_error()
        return output

    async def generate(self, ids: Sequence[int], sampling: Sampling, context: str = "") -> tuple[Generation, ...]:
        samples = _samples(await _last_output(self._outputs(ids, sampling, context)))
        if len(samples) != sampling.n:
            raise EngineError(f"{sampling.n} samples were asked for, and vLLM returned {len(samples)}")
        return samples

    async def health(self) -> None:
        """See `Engine`. An engine that hasn't answered a request yet may be compiling.

        Then it returns after 10 s without an answer, and the probe goes on until its own limit.
        """
        await self._check_core(COLD_HEALTH_S if self._is_cold else None)

    def close(self) -> None:
        with self._closing:
            try:
                self.submit(self._end()).result()
            except EngineDead:  # it was closed before
                return
            try:
                # In this thread: while the interpreter shuts down, the loop's executor takes no more work.
                self._engine.shutdown(timeout=SHUTDOWN_TIMEOUT_S)
            finally:
                self._clean_up()

    def _clean_up(self) -> None:
        self._thread.stop()
        self._reaper.release()
        self._folder.delete()
        if self._placement is not None:
            self._placement.release()

    async def _end(self) -> None:
        self._watcher.cancel()
        self._admission.die("it was closed")
        if self._engine.output_handler is not None:
            self._engine.output_handler.cancel()  # else it logs the end of the engine core as an error

    async def _outputs(self, ids: Sequence[int], sampling: Sampling, context: str) -> AsyncGenerator[Any, None]:
        prompt = _checked_prompt(ids, self._vocabulary)
        async with self._admitted(context, len(ids)):
            params = _sampling_params(sampling)
            outputs = self._engine.generate(prompt, params, next(self._ids), lora_request=self._lora)
            async with aclosing(outputs):
                async for output in outputs:
                    self._is_cold = False
                    for sample in output.outputs:
                        if sample.finish_reason == "abort":
                            raise self._shutdown_error()
                        if sample.finish_reason == "error":
                            raise EngineError("vLLM failed a request")
                    yield output

    @asynccontextmanager
    async def _admitted(self, context: str = "", length: int = 0) -> AsyncIterator[None]:
        # A place inside vLLM, with vLLM's errors turned into ours. vLLM aborts a request whose block is cancelled.
        try:
            async with self._admission.place(context if self._meets else "", length):
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
            raise EngineError(f"vLLM refused a request: {_root_message(error)}") from error

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            for process in self._processes:
                if not process.is_alive():
                    self._declare_dead(f"its process {process.pid} ended with exit code {process.exitcode}")
            if self._engine.errored:
                self._declare_dead("its engine core failed")

    async def _check_core(self, at_most_s: float | None = None) -> None:
        self._admission.check()
        if self._probe is None or self._probe.done():  # one probe at a time, however many wait for it
            self._probe = asyncio.create_task(self._probe_core())
        await asyncio.wait([self._probe], timeout=at_most_s)
        self._admission.check()

    async def _probe_core(self) -> None:
        limit_s = COLD_PROBE_TIMEOUT_S if self._is_cold else PROBE_TIMEOUT_S
        try:
            async with asyncio.timeout(limit_s):
                await self._engine.engine_core.get_supported_tasks_async()
        except TimeoutError:
            self._declare_dead(f"it answered nothing for {limit_s:g} s")
        except EngineDeadError:
            self._declare_dead("its engine core failed")

    def _shutdown_error(self) -> EngineDead:
        return self._declare_dead("its engine core is shutting down")

    def _declare_dead(self, cause: str) -> EngineDead:
        # Fail every request. Only the first cause counts, with what the processes had logged as an error by then.
        logged = self._folder.read_error()
        return self._admission.die(cause if logged is None else f"{cause}: {logged}")


def _checked_prompt(ids: Sequence[int], vocabulary: int) -> TokensInput:
    # Without a tokenizer vLLM doesn't check the ids, and one out of the vocabulary kills the engine core.
    check_ids(ids, vocabulary)
    return tokens_input(list(ids))


async def _last_output(outputs: AsyncGenerator[Any, None]) -> Any:
    # The last output of a request: the finished one, since a series that breaks off raises.
    async with aclosing(outputs):
        async for output in outputs:
            last = output
    return last


def _sampling_params(sampling: Sampling) -> SamplingParams:
    return SamplingParams(
        n=sampling.n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        skip_special_tokens=not sampling.keep_special,
        output_kind=RequestOutputKind.FINAL_ONLY,
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


def _root_message(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ValidationError):
        return "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
    return str(error) or type(error).__name__
