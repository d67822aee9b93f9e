"""Tiny random models and the engines on them, one of each kind for a file's tests: an engine takes a quarter of a minute.

A conftest imports the fixtures. Everything heavy is imported where it is used.
"""

import asyncio
import gc
import json
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Engine, Sampling, Task
from actors.errors import EngineError, SettingsError
from actors.settings.replica import EngineSettings

if TYPE_CHECKING:
    from actors.engine.vllm_engine import VllmEngine

T = TypeVar("T")

LABELS = 9
MAX_MODEL_LEN = 512
CLASSIFIER_VOCABULARY = 1000
EOS = 256
JUDGE_VOCABULARY = 320  # 256 bytes, the end of the text, and some that no text holds
BLOCK = 128  # tokens of a block of the prefix cache on CPU
SECONDS = 120.0  # the longest that a test waits for an engine


def write_classifier(folder: Path) -> None:
    """A random NemotronForSequenceClassification with a bias, which the class of transformers doesn't have."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import NemotronConfig, NemotronForSequenceClassification

    torch.manual_seed(0)
    config = NemotronConfig(
        vocab_size=CLASSIFIER_VOCABULARY,
        num_labels=LABELS,
        max_position_embeddings=MAX_MODEL_LEN,
        pad_token_id=0,
        initializer_range=0.1,
        **_sizes(),
    )
    NemotronForSequenceClassification(config).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["score.bias"] = torch.linspace(-2, 3, LABELS)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_judge(folder: Path) -> None:
    """A random causal language model of the Llama kind, whose tokens are bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=JUDGE_VOCABULARY,
        max_position_embeddings=MAX_MODEL_LEN,
        bos_token_id=None,
        eos_token_id=EOS,
        initializer_range=0.1,
        **_sizes(),
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def write_adapter(folder: Path) -> None:
    """A LoRA adapter for the judge, strong enough to change what it says."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(2)
    rank, hidden = 8, _sizes()["hidden_size"]
    folder.mkdir()
    weights = {}
    for layer in range(_sizes()["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(rank, hidden)
        weights[f"{name}.lora_B.weight"] = torch.randn(hidden, rank)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "target_modules": ["o_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def byte_tokenizer() -> Any:
    """One token for each byte, and one for the end."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def _sizes() -> dict[str, Any]:
    return {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
    }


def ask(engine: Engine, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the engine's loop and wait for it."""
    return engine.submit(work).result(SECONDS)


def ask_all(engine: Engine, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines on the engine's loop at the same time, and wait for all."""

    async def together() -> list[T]:
        return await asyncio.gather(*work)

    return ask(engine, together())


def request_count(engine: Any) -> int:
    """How many requests wait for an engine or are in it."""
    return int(engine._admission.request_count)


def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread makes the condition true; fails after 120 s."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it didn't come about"
        time.sleep(0.001)


def running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def start_vllm(folder: Path, task: Task, *, hf_overrides: Mapping[str, Any] | None = None, **settings: Any) -> "VllmEngine":
    """A tiny engine in float32. What vLLM's modules warn of while they are imported isn't our tests' business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from actors.engine.vllm_engine import VllmEngine

        return VllmEngine(
            str(folder),
            revision=None,
            task=task,
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
            settings=EngineSettings(**settings),
            hf_overrides=hf_overrides,
        )


def refusal(folder: Path, task: Task, **settings: Any) -> str:
    """The message of the error with which an engine refuses to start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM leaves a ZeroMQ context open
        try:
            close_vllm(start_vllm(folder, task, **settings))
        except (EngineError, SettingsError) as error:
            message = str(error)
        else:
            pytest.fail("the engine started")
        gc.collect()
    return message


def close_vllm(engine: "VllmEngine") -> None:
    """Close an engine, and the ZeroMQ context that vLLM forgets, which the garbage collector would warn of later."""
    engine.close()
    context = engine._engine.engine_core.resources.ctx
    if not context.closed:
        context.term()


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a nine-label reward model."""
    folder = tmp_path_factory.mktemp("classifier")
    write_classifier(folder)
    return folder


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a language model."""
    folder = tmp_path_factory.mktemp("judge")
    write_judge(folder)
    return folder


@pytest.fixture(scope="module")
def classify_engine(classifier: Path) -> Iterator["VllmEngine"]:
    """A nine-label reward model on vLLM."""
    engine = start_vllm(classifier, Task.CLASSIFY)
    yield engine
    close_vllm(engine)


@pytest.fixture(scope="module")
def judge_engine(judge: Path) -> Iterator["VllmEngine"]:
    """A language model on vLLM."""
    engine = start_vllm(judge, Task.GENERATE)
    yield engine
    close_vllm(engine)


@pytest.fixture
def fake_engine() -> Iterator[FakeEngine]:
    """The fake engine, with the sizes of the tiny models. Its texts are as long as allowed."""
    engine = FakeEngine(LABELS, MAX_MODEL_LEN, vocabulary=CLASSIFIER_VOCABULARY, latency_s=0.001, reply=_talk)
    yield engine
    engine.close()


def _talk(ids: Sequence[int], sampling: Sampling, number: int) -> str:
    sample = f" {sampling.seed}-{number}" if sampling.temperature else ""
    return f"prompt {sum(ids)}{sample} " + "and so on " * MAX_MODEL_LEN


@pytest.fixture(params=["fake", "vllm"])
def pooling_engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine that pools."""
    return request.getfixturevalue("fake_engine" if request.param == "fake" else "classify_engine")


@pytest.fixture(params=["fake", "vllm"])
def generating_engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine that generates."""
    return request.getfixturevalue("fake_engine" if request.param == "fake" else "judge_engine")
