"""Conversations, model folders for the core's tests, and the built-in models on vLLM.

Everything heavy is imported where it is used.
"""

import json
import math
import shutil
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.protocol import Engine
from actors.launch.start_engine import start_engine
from actors.records import Message, Reason, RenderedRequest, Response, Role, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings

SCALAR, ATTRIBUTES, FIRST_LOGIT, PRINCIPLE = "tiny-scalar", "tiny-attributes", "tiny-first-logit", "tiny-principle"

ONE_PART = EngineSettings()

SCALAR_CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForSequenceClassification"],
    "model_type": "llama",
    "id2label": {"0": "LABEL_0"},
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
ATTRIBUTES_CONFIG: Mapping[str, Any] = {
    **SCALAR_CONFIG,
    "architectures": ["NemotronForSequenceClassification"],
    "model_type": "nemotron",
    "id2label": {str(label): f"LABEL_{label}" for label in range(9)},
}
SCALAR_WEIGHTS = {"model.embed_tokens.weight": 40_000, "score.weight": 8}
ATTRIBUTES_WEIGHTS = {"model.embed_tokens.weight": 40_000, "score.bias": 9, "score.weight": 40_000}
LANGUAGE_MODEL_WEIGHTS = {"model.embed_tokens.weight": 40_000, "lm_head.weight": 40_000}
"""Names and how many float32 numbers: the head's weights are so large that its bias isn't near the end of the file."""


def system(content: str) -> Message:
    return Message(Role.SYSTEM, content)


def user(content: str) -> Message:
    return Message(Role.USER, content)


def assistant(content: str) -> Message:
    return Message(Role.ASSISTANT, content)


def tool(content: str) -> Message:
    return Message(Role.TOOL, content)


def request(*context: Message, to: str | Sequence[str] = "Fine.") -> ScoreRequest:
    """A request to judge one response, or several, to a context."""
    texts = [to] if isinstance(to, str) else to
    return ScoreRequest(context, tuple(Response(f"r[{index}]", text) for index, text in enumerate(texts)))


def as_dicts(request: ScoreRequest) -> list[dict[str, str]]:
    """The conversation of a request with one response, as chat templates take it."""
    (response,) = request.responses
    turns = (*request.context, assistant(response.content))
    return [{"role": turn.role.value, "content": turn.content} for turn in turns]


def from_dicts(context: Sequence[Mapping[str, str]], response: str) -> ScoreRequest:
    """A request of a conversation in the form of chat templates."""
    return request(*(Message(Role(turn["role"]), turn["content"]) for turn in context), to=response)


def reward_model(model: str | Path, every_turn: bool = False, **render: Any) -> RewardModel:
    return resolve_model(ModelSettings(model=str(model)), RenderSettings(**render), every_turn)


def renderer(model: str | Path = SCALAR, **render: Any) -> Renderer:
    return Renderer(reward_model(model, **render), RenderSettings(**render))


def ids_of(rendered: RenderedRequest) -> list[int]:
    """The one prompt of a request with one response, which wasn't rejected."""
    assert [response.reason for response in rendered.responses] == [None]
    (prompt,) = rendered.prompts
    assert prompt.response_positions == (0,)
    return list(prompt.ids)


def reason_of(rendered: RenderedRequest) -> Reason | None:
    """Why the one response of a request was rejected."""
    (response,) = rendered.responses
    assert (response.reason is None) == bool(rendered.prompts)
    return response.reason


def write_model(
    folder: Path,
    *,
    config: Mapping[str, Any] = SCALAR_CONFIG,
    weights: Mapping[str, int] = SCALAR_WEIGHTS,
    template: str | None = None,
    tokenizer: Any = None,
) -> Path:
    """A model folder that can be resolved and rendered for; its weights are zeros. The tokenizer is tiny-scalar's."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    write_weights(folder / "model.safetensors", weights)
    if tokenizer is None:
        for file in BUILT_IN.joinpath("scalar").glob("*"):
            if file.name.startswith(("tokenizer", "chat_template")):
                shutil.copy(file, folder)
    else:
        tokenizer.save_pretrained(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def write_weights(file: Path, shapes: Mapping[str, int | tuple[int, ...]]) -> None:
    """A safetensors file of zeros."""
    header, end = {}, 0
    for name, shape in shapes.items():
        sizes = (shape,) if isinstance(shape, int) else shape
        size = 4 * math.prod(sizes)
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(end))


def built_in_engine(model: str, every_turn: bool = False, **engine_args: Any) -> AbstractContextManager[Engine]:
    """A built-in model on vLLM."""
    return engine_of(reward_model(model, every_turn), EngineSettings(engine_args=engine_args))


@contextmanager
def engine_of(model: RewardModel, settings: EngineSettings = ONE_PART) -> Iterator[Engine]:
    """A model on vLLM."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what vLLM's modules warn of while they are imported isn't our tests' business
        engine = start_engine(model, settings)
    try:
        yield engine
    finally:
        engine.close()
