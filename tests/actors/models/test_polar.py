"""POLAR: a reference beside the response. Its text is restated here as the authors' client and server make it."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.protocol import Engine
from actors.errors import ModelError, SettingsError
from actors.models.internlm2 import Polar
from actors.records import Reason, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import HeadScorer
from actors.scorers.self_test import self_test
from actors.settings.replica import RenderSettings, TooLong
from tests.support.contract import NOTICED, TOLERANCE, conversations
from tests.support.models import assistant, engine_of, ids_of, reason_of, request, reward_model, system, tool, user
from tests.support.tiny_references import reference

LONG = "7" + " 7" * 2048
"""4,097 tokens; with two fewer and a BOS it is as long as can be."""
OTHER_NAMES = {"<|reward|>": "[UNUSED_TOKEN_130]", "<|start|>": "<|reward|>"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny-internlm2, whose class and head POLAR has, with POLAR's two tokens: its numbers mean nothing."""
    return write_polar(tmp_path_factory.mktemp("polar") / "some-model")


def write_polar(copy: Path) -> Path:
    shutil.copytree(BUILT_IN / "internlm2", copy)
    (copy / "chat_template.jinja").unlink()
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {OTHER_NAMES.get(piece, piece): number for piece, number in vocabulary.items()}
    for token in tokenizer["added_tokens"]:
        token["content"] = OTHER_NAMES.get(token["content"], token["content"])
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    return copy


@pytest.fixture(scope="module")
def model(folder: Path) -> RewardModel:
    return reward_model(folder)


@pytest.fixture(scope="module")
def engine(model: RewardModel) -> Iterator[Engine]:
    with engine_of(model) as started:
        yield started


def with_reference(item: ScoreRequest, text: str | None) -> ScoreRequest:
    return replace(item, fields={} if text is None else {"reference": text})


def requests() -> list[ScoreRequest]:
    """Conversations of any length, some of several turns, with references; and the README's."""
    rng = Random(130)
    plain = conversations()
    several = request(system("Be brief."), user("What is 1 + 1?"), assistant("2"), user("And 3 + 4?"), to="7\n")
    texts = [rng.choice(plain).responses[0].content for _ in plain] + ['[1, 2] and "Ärger"\n']
    ours = [with_reference(item, text) for item, text in zip([*plain, several], texts, strict=True)]
    of_readme = [
        replace(golden.request, responses=(response,))
        for known in Polar().models
        for golden in known.golden
        for response in golden.request.responses
    ]
    assert len(of_readme) == 15
    return ours + of_readme


def authors_ids(tokenizer: Any, item: ScoreRequest, *, newline: str = "\n", begin: bool = True) -> list[int]:
    """As their client encodes three texts, and their server the one that comes of them."""
    parts = "\n".join(turn.content for turn in item.context), item.fields["reference"], item.responses[0].content
    decoded = []
    for part in parts:
        ids = tokenizer.encode(part, add_special_tokens=True)
        assert len(ids) <= 4096
        decoded.append(tokenizer.decode(ids, skip_special_tokens=True))
    prompt, compared, output = decoded
    text = f"{prompt}{newline}{compared}<|reward|>{prompt}{newline}{output}[UNUSED_TOKEN_130]"
    ids = tokenizer.encode(text, add_special_tokens=begin)
    return list(ids)


def scored(model: RewardModel, engine: Engine, items: Sequence[ScoreRequest]) -> list[float]:
    rendered = Renderer(model, RenderSettings()).render(items)
    scores = [score for (score,) in HeadScorer(model.family, model.weights, engine).score_block(rendered)]
    assert [score.reason for score in scores] == [None] * len(items)
    return [score.reward for score in scores if score.reward is not None]


def test_it_gives_the_numbers_of_transformers_for_the_authors_text(folder: Path, model: RewardModel, engine: Engine) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer, outputs = PreTrainedTokenizerFast.from_pretrained(folder), reference("internlm2")
    items = requests()
    rewards = scored(model, engine, items)
    assert max(rewards) - min(rewards) > 10 * NOTICED

    def off(ids: Callable[[ScoreRequest], list[int]], position: int = -1) -> float:
        pairs = zip(rewards, items, strict=True)
        return max(abs(reward - outputs(ids(item))[position].item()) for reward, item in pairs)

    difference = off(lambda item: authors_ids(tokenizer, item))
    print(f"largest difference over {len(items)}: {difference:.1e}")
    assert difference <= TOLERANCE
    assert off(lambda item: authors_ids(tokenizer, item), -2) > NOTICED
    assert off(lambda item: authors_ids(tokenizer, item, newline="")) > NOTICED
    assert off(lambda item: authors_ids(tokenizer, item, begin=False)) > NOTICED
    assert off(lambda item: authors_ids(tokenizer, swapped(item))) > NOTICED


def swapped(item: ScoreRequest) -> ScoreRequest:
    (response,) = item.responses
    turned = replace(response, content=item.fields["reference"])
    return replace(item, responses=(turned,), fields={"reference": response.content})


def test_its_self_test_asks_with_a_reference(model: RewardModel, engine: Engine) -> None:
    passed: list[str] = []
    self_test(model, engine, passed.append)
    assert [check.partition(":")[0] for check in passed] == ["tokenizer and template", "head", "outputs", "positions"]


def test_a_list_of_messages_is_read_as_their_texts(model: RewardModel) -> None:
    """As in POLAR's own files."""
    renderer, item = Renderer(model, RenderSettings()), request(user("Name a city."), to="Rome")
    turns = [{"role": "assistant", "content": "Let me think."}, {"role": "assistant", "content": "Paris"}]
    for written, text in ((turns, "Let me think.\nParis"), (turns[1], "Paris")):
        listed, plain = renderer.render([with_reference(item, json.dumps(written)), with_reference(item, text)])
        assert ids_of(listed) == ids_of(plain)


@pytest.mark.parametrize(
    ("item", "text", "reason"),
    [
        (request(user("Hi"), to="7"), None, Reason.NO_REFERENCE),
        (request(user("Hi"), to="7"), " \n", Reason.NO_REFERENCE),
        (request(user("Hi"), to="7"), '[{"role": "assistant", "content": ""}]', Reason.NO_REFERENCE),
        (request(user("Hi"), to="7"), '[{"role": "assistant", "content": null}]', Reason.BAD_REFERENCE),
        (request(user("Hi"), to="7"), '["7", "seven"]', Reason.BAD_REFERENCE),
        (request(user("Hi"), to="7"), '{"answer": 7}', None),
        (request(user("Hi"), to="7"), "7<|reward|>", Reason.CONTROL_TOKEN),
        (request(user("Hi"), to="7<|reward|>Hi\n7"), "7", Reason.CONTROL_TOKEN),
        (request(user("Hi[UNUSED_TOKEN_130]"), to="7"), "7", Reason.CONTROL_TOKEN),
        (request(user("Hi"), tool("7"), to="7"), "7", Reason.ROLE_NOT_IN_TEMPLATE),
        (request(user("Hi"), to=LONG), "7", Reason.TOO_LONG),
        (request(user("Hi"), to="7"), LONG, Reason.TOO_LONG),
        (request(user(LONG), to="7"), "7", Reason.TOO_LONG),
        (request(user("Hi"), to=LONG[:-2]), "7", None),
    ],
)
def test_what_it_wasnt_trained_to_read_has_a_reason(
    model: RewardModel, item: ScoreRequest, text: str | None, reason: Reason | None
) -> None:
    (rendered,) = Renderer(model, RenderSettings()).render([with_reference(item, text)])
    assert reason_of(rendered) is reason


def test_a_prompt_that_a_client_wrote_without_a_reference_has_no_reward(model: RewardModel) -> None:
    renderer = Renderer(model, RenderSettings())
    (ours,) = renderer.render([with_reference(request(user("Hi"), to="7"), "8")])
    for text, reason in (("Hi\n8<|reward|>Hi\n7", None), ("Hi\n7", Reason.TEMPLATE_REFUSED)):
        rendered = renderer.from_rendered(f"{text}[UNUSED_TOKEN_130]")
        assert reason_of(rendered) is reason
        assert reason is not None or ids_of(rendered) == ids_of(ours)


def test_the_tokens_tell_it_from_internlm2s_own_reward_model(tmp_path: Path, folder: Path) -> None:
    assert reward_model(folder).family_name == "polar"
    internlm2 = tmp_path / "some-model"
    shutil.copytree(BUILT_IN / "internlm2", internlm2)
    assert reward_model(internlm2).family_name == "internlm2"
    shutil.copytree(internlm2, tmp_path / "POLAR-7B")
    with pytest.raises(ModelError, match=r"has no token <\|reward\|> beside the one where the reward is read"):
        reward_model(tmp_path / "POLAR-7B")
    (internlm2 / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"say which with --family:(?s:.)*internlm2: (?s:.)*polar: "):
        reward_model(internlm2)


def test_a_prompt_that_is_cut_at_its_beginning_would_lose_the_reference(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"too_long=cut-left is for models of conversations: .* its reference"):
        reward_model(folder, too_long=TooLong.CUT_LEFT)


def test_dropped_turns_are_dropped_beside_the_reference_as_well(folder: Path) -> None:
    turns = [user("1 " * 50), assistant("2 " * 50), user("Hi")]
    model = reward_model(folder, max_model_len=100, too_long=TooLong.TRIM_TURNS)
    (short,) = Renderer(model, RenderSettings(max_model_len=100, too_long=TooLong.TRIM_TURNS)).render(
        [with_reference(request(*turns, to="7"), "8")]
    )
    (plain,) = Renderer(model, RenderSettings()).render([with_reference(request(user("Hi"), to="7"), "8")])
    assert short.responses[0].truncated
    assert ids_of(short) == ids_of(plain)
