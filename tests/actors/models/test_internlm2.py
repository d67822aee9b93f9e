"""InternLM2's value at an appended token: its own class in vLLM, none in transformers, no code of the checkpoint's."""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.errors import ModelError
from actors.records import Reason, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from tests.support.contract import Contract
from tests.support.models import assistant, ids_of, reason_of, renderer, request, user
from tests.support.tiny_references import Reference, reference

MODEL, REWARD_TOKEN = "tiny-internlm2", 5


@cache
def outputs() -> Reference:
    return reference("internlm2")


class TestTinyInternLM2(Contract):
    model = MODEL

    def ids(self, score_request: ScoreRequest) -> Sequence[list[int]]:
        (ids,) = super().ids(score_request)
        return [[*ids, REWARD_TOKEN]]

    def outputs(self, ids: Any) -> Any:
        return outputs()(ids)


def test_a_response_cant_bring_the_reward_token() -> None:
    (rendered,) = renderer(MODEL).render([request(user("What is 3 + 4?"), to="7<|reward|>")])
    assert reason_of(rendered) is Reason.CONTROL_TOKEN


def test_the_reward_token_counts_as_part_of_the_prompt() -> None:
    item = request(user("What is 3 + 4?"), to="7")
    (whole,) = renderer(MODEL).render([item])
    length = len(whole.prompts[0].ids)
    assert whole.prompts[0].ids[-1] == REWARD_TOKEN
    (fits,) = renderer(MODEL, max_model_len=length).render([item])
    assert fits == whole
    (cut,) = renderer(MODEL, max_model_len=length - 1).render([item])
    assert reason_of(cut) is Reason.TOO_LONG


WRITES_IT = "{% if not add_generation_prompt %}<|reward|>{% endif %}"


def test_a_reward_token_that_the_template_has_written_is_not_appended_again(tmp_path: Path) -> None:
    item = request(user("What is 3 + 4?"), to="7")
    assert ids_of(renderer(templated(tmp_path, WRITES_IT)).render([item])[0]) == ids_of(renderer(MODEL).render([item])[0])


@pytest.mark.parametrize("ending", [WRITES_IT + "{{ '\\n' }}", WRITES_IT * 2])
def test_a_template_that_writes_the_reward_token_elsewhere_is_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(ModelError, match=r"where the reward is read must stand once in a prompt, at its end.*<\|reward\|>"):
        renderer(templated(tmp_path, ending))


def test_a_conversation_that_the_template_gives_two_reward_tokens_is_rejected(tmp_path: Path) -> None:
    item = renderer(
        templated(tmp_path, "{% for m in messages %}{% if m.role == 'assistant' %}<|reward|>{% endif %}{% endfor %}")
    )
    talk = request(user("Hello"), assistant("Hi"), user("What is 3 + 4?"), to="7")
    assert [reason_of(entry) for entry in item.render([talk, request(user("What is 3 + 4?"), to="7")])] == [
        Reason.TEMPLATE_REFUSED, None
    ]  # fmt: skip


def test_a_prompt_that_somebody_else_has_rendered_is_read_at_the_reward_token_too() -> None:
    item = renderer(MODEL)
    ids = ids_of(item.render([request(user("What is 3 + 4?"), to="7")])[0])
    assert ids_of(item.from_rendered(ids)) == ids_of(item.from_rendered(ids[:-1])) == ids
    assert reason_of(item.from_rendered([*ids[:-1], REWARD_TOKEN, 7])) is Reason.TEMPLATE_REFUSED


@pytest.mark.parametrize(
    ("change", "message"),
    [({"reward_token_id": None}, "has no reward_token_id"), ({"bias": True}, "has biases in its layers")],
)
def test_a_config_that_doesnt_tell_or_isnt_what_vllm_runs_is_refused(
    tmp_path: Path, change: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        resolve_model(ModelSettings(model=str(changed(tmp_path, change))), RenderSettings())


def test_a_tokenizer_that_needs_code_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, {})
    (folder / "tokenizer.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "InternLM2Tokenizer", "auto_map": {"AutoTokenizer": ["code.InternLM2Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = resolve_model(ModelSettings(model=str(folder)), RenderSettings())
    with pytest.raises(ModelError, match=r"the tokenizer in .* can't be loaded, and no code of a checkpoint's own is run"):
        Renderer(model, RenderSettings())


def templated(folder: Path, ending: str) -> Path:
    """The built-in model whose template writes something more at the end."""
    copy = changed(folder, {})
    template = copy / "chat_template.jinja"
    template.write_text(template.read_text().rstrip("\n") + ending)
    return copy


def changed(folder: Path, change: Mapping[str, Any]) -> Path:
    """The built-in model with another config."""
    copy = folder / MODEL
    shutil.copytree(BUILT_IN / "internlm2", copy)
    config = json.loads((copy / "config.json").read_text()) | change
    (copy / "config.json").write_text(json.dumps(config))
    return copy
