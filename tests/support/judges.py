"""Model folders for tests that render for judges: tiny-scalar's tokenizer, and a template that prints any role."""

from pathlib import Path
from typing import Any

from actors.records import Message, RenderedRequest, Response, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import JudgeSettings, ModelSettings, ReadSettings, RenderSettings
from tests.support.models import LANGUAGE_MODEL_WEIGHTS, SCALAR_CONFIG, write_model

ANY_ROLE = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start|>' ~ message.role ~ '\\n\\n' ~ message.content ~ '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n\\n' }}
{%- endif %}
"""
CONFIG = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}


def judge_folder(folder: Path, template: str = ANY_ROLE, **config: Any) -> Path:
    return write_model(folder, config={**CONFIG, **config}, weights=LANGUAGE_MODEL_WEIGHTS, template=template)


def judge_model(folder: Path | str, family: str | None = None, **settings: Any) -> RewardModel:
    """A judge with these `JudgeSettings`; `read` and `render` hold the other two kinds of settings."""
    read, render = settings.pop("read", {}), settings.pop("render", {})
    adapter = settings.pop("adapter", None)
    model_settings = ModelSettings(
        model=str(folder),
        family=family,
        read=ReadSettings(**read),
        judge=JudgeSettings(**settings),
        adapter=adapter,
    )
    return resolve_model(model_settings, RenderSettings(**render))


def rendered(model: RewardModel, request: ScoreRequest, **render: Any) -> tuple[RenderedRequest, list[str]]:
    """A rendered request, and the decoded texts of its prompts."""
    renderer = Renderer(model, RenderSettings(**render))
    (rendered_request,) = renderer.render([request])
    return rendered_request, [renderer.tokenizer.pretrained.decode(prompt.ids) for prompt in rendered_request.prompts]


def request(*context: Message, to: tuple[str, ...], principles: tuple[str, ...] = ()) -> ScoreRequest:
    return ScoreRequest(context, tuple(Response(name, text) for name, text in zip("ABCDEF", to, strict=False)), principles)
