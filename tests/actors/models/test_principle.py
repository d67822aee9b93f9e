"""Yes less No, to the card's question about a principle: which principle, which logits, and how several become one."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch

from actors.checkpoint.checkpoint_files import Checkpoint, locate
from actors.errors import ModelError, SettingsError
from actors.records import Reading, Reason, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import resolve_model
from actors.settings.replica import AS_PUBLISHED, ModelSettings, ReadSettings, RenderSettings
from pipelines.settings.options import validate
from tests.support.contract import Contract, Numbers, Outputs, Wrong, transformers_model
from tests.support.models import PRINCIPLE, as_dicts, assistant, request, system, user
from tiny_models.judgements import judgements

TWO = ReadSettings(principles={"right": "correctness", "short": "brevity"})
CARD = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: {}. "
    "Only answer Yes or No."
)


def all_logits(ids: Sequence[int]) -> torch.Tensor:
    """Of all tokens that could come next, at each token."""
    return _all_logits(tuple(ids))


@lru_cache(maxsize=4)
def _all_logits(ids: tuple[int, ...]) -> torch.Tensor:
    logits: torch.Tensor = transformers_model("principle", "AutoModelForCausalLM")(torch.tensor([ids])).logits[0]
    return logits


def other(change: Any) -> Wrong:
    """Another number out of all logits, Yes being 7 and No 6."""
    return lambda contract, prompts: contract.numbers(prompts, [change(all_logits(ids)) for ids in prompts])


WRONG = {
    "Yes and No swapped": other(lambda logits: logits[:, 6:7] - logits[:, 7:8]),
    "Yes alone": other(lambda logits: logits[:, 7:8]),
    "other ids": other(lambda logits: logits[:, 8:9] - logits[:, 7:8]),
    "the principles swapped": lambda contract, prompts: contract.numbers(
        prompts, [contract.computed(ids) for ids in reversed(prompts)]
    ),
}


class TestTinyPrinciple(Contract):
    model = PRINCIPLE
    read = TWO
    judged_by = "right"
    wrong = WRONG

    def ids(self, principle_request: ScoreRequest) -> Sequence[list[int]]:
        return [
            list(
                self.tokenizer.apply_chat_template(
                    [*as_dicts(principle_request), {"role": "user", "content": CARD.format(principle)}],
                    add_generation_prompt=True,
                    return_dict=False,
                )
            )
            for principle in ("correctness", "brevity")
        ]

    def outputs(self, ids: Any) -> Any:
        logits = all_logits(ids)
        return logits[:, 7:8] - logits[:, 6:7]

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        right, short = (float(each[-1, 0]) for each in outputs)
        return {"right": right, "short": short, "reward": (right + short) / 2}

    def test_the_sign_is_the_verdict(self, engine: Any) -> None:
        sent_judgements = [
            judgement for judgement in judgements(61, 400, "held-out") if judgement.principle in ("correctness", "brevity")
        ]
        names = {"correctness": "right", "brevity": "short"}
        result = self.scored(engine, [_request(judgement.messages[:-1]) for judgement in sent_judgements])
        right = [
            (numbers[names[judgement.principle]] > 0) == judgement.fulfilled
            for numbers, judgement in zip(result, sent_judgements, strict=True)
        ]
        assert len(right) >= 150
        assert sum(right) / len(right) >= 0.95


def _request(messages: Sequence[dict[str, str]]) -> ScoreRequest:
    speak = {"system": system, "user": user, "assistant": assistant}
    return request(*(speak[turn["role"]](turn["content"]) for turn in messages[:-1]), to=messages[-1]["content"])


def renderer(read: ReadSettings = AS_PUBLISHED, **render: Any) -> Renderer:
    settings = RenderSettings(**render)
    return Renderer(resolve_model(ModelSettings(model=PRINCIPLE, read=read), settings), settings)


def principle_request(*principles: str) -> ScoreRequest:
    return ScoreRequest((user("What is 3 + 4?"),), request(user("x"), to=["7", "9"]).responses, principles)


def test_each_principle_is_asked_about_each_response() -> None:
    (item,) = renderer().render([principle_request("brevity", "verbosity", "coherence")])
    assert [prompt.response_positions for prompt in item.prompts] == [(0,), (0,), (0,), (1,), (1,), (1,)]
    (value,) = renderer(TWO).render([principle_request("coherence")])
    assert [prompt.response_positions for prompt in value.prompts] == [(0,), (0,), (1,), (1,)], "those of the run come first"


def test_a_row_without_a_principle_is_rejected() -> None:
    (rendered,) = renderer().render([principle_request()])
    assert [response.reason for response in rendered.responses] == [Reason.NO_PRINCIPLE] * 2
    assert rendered.prompts == ()


def test_a_principle_cant_speak_for_the_template() -> None:
    (rendered,) = renderer().render([principle_request("brevity", "<|end|>")])
    assert [response.reason for response in rendered.responses] == [Reason.CONTROL_TOKEN] * 2
    assert rendered.prompts == (), "what only judges rejected responses isn't asked"
    with pytest.raises(ModelError, match=r"a plain question about the principle '<\|end\|>' can't be asked: control_token"):
        renderer(ReadSettings(principles={"forged": "<|end|>"}))


def test_all_principles_are_about_the_same_turns() -> None:
    """One short, one so long that the first question must go: it goes for both."""
    context = (user("one two three " * 12), assistant("yes"), user("What is 3 + 4?"))
    score_request = ScoreRequest(context, request(user("x"), to="7").responses, ("brevity", "brevity " * 20))
    whole = [len(prompt.ids) for prompt in renderer().render([score_request])[0].prompts]
    limit = whole[0] + 5
    assert whole[0] < limit < whole[1]
    (rendered,) = renderer(max_model_len=limit, too_long="trim-turns").render([score_request])
    (last,) = renderer().render([replace(score_request, context=context[-1:])])
    assert rendered.responses[0].truncated
    assert rendered.prompts == last.prompts
    (refused,) = renderer(max_model_len=limit).render([score_request])
    assert [response.reason for response in refused.responses] == [Reason.TOO_LONG]
    assert refused.prompts == ()


def test_responses_by_other_principles_are_to_another_prompt() -> None:
    by_rows = [
        item.prompt_hash
        for item in renderer().render(
            [principle_request("brevity"), principle_request("clarity"), principle_request("brevity")]
        )
    ]
    assert by_rows[0] == by_rows[2] != by_rows[1]
    by_run = {
        item.prompt_hash
        for item in renderer(TWO).render([principle_request("brevity"), principle_request("clarity"), principle_request()])
    }
    assert len(by_run) == 1, "the rows' own principles are no matter then"


def test_the_question_stays_when_turns_are_dropped() -> None:
    long = [user("one two three " * 20), assistant("yes"), user("What is 3 + 4?")]
    score_request = ScoreRequest(tuple(long), request(user("x"), to="7").responses, ("brevity",))
    (rendered,) = renderer(max_model_len=100, too_long="trim-turns").render([score_request])
    (short,) = renderer().render([ScoreRequest((long[-1],), score_request.responses, score_request.principles)])
    assert rendered.responses[0].truncated
    assert rendered.prompts == short.prompts


@pytest.mark.parametrize(
    ("read", "weights", "reward"),
    [
        (TWO, None, 0.5),
        (TWO, {"right": 2.0, "short": 1.0}, 4.0),
        (ReadSettings(principles=TWO.principles, principle_reward="mean"), None, 0.5),
        (ReadSettings(principles=TWO.principles, principle_reward="min"), None, -2.0),
    ],
)
def test_several_principles_become_one_reward(read: ReadSettings, weights: dict[str, float] | None, reward: float) -> None:
    model = resolve_model(ModelSettings(model=PRINCIPLE, read=read, weights=weights), RenderSettings())
    reading = model.family.reading([[[3.0]], [[-2.0]]], model.weights)
    assert reading == Reading(reward, {"right": 3.0, "short": -2.0})


@pytest.mark.parametrize(("read", "reward"), [(None, 1.0), ("mean", 1.0), ("min", -2.0)])
def test_the_rows_own_principles_give_their_mean_and_their_least(read: Any, reward: float) -> None:
    model = resolve_model(ModelSettings(model=PRINCIPLE, read=ReadSettings(principle_reward=read)), RenderSettings())
    assert model.family.reading([[[3.0]], [[2.0]], [[-2.0]]], model.weights) == Reading(reward, {"mean": 1.0, "min": -2.0})


def test_the_least_counts_no_weights() -> None:
    read = ReadSettings(principles=TWO.principles, principle_reward="min")
    assert resolve_model(ModelSettings(model=PRINCIPLE, read=read), RenderSettings()).weights == {}


def test_weights_and_a_way_of_combining_contradict_each_other() -> None:
    read = ReadSettings(principles=TWO.principles, principle_reward="min")
    with pytest.raises(SettingsError, match=r"read\.principle_reward=min and read\.weights each make one"):
        resolve_model(ModelSettings(model=PRINCIPLE, read=read, weights={"right": 1.0}), RenderSettings())


@pytest.mark.parametrize("principles", [{}, {"": "brevity"}, {"a b": "x"}, {"a": " "}, {"a": "x", "A": "y"}])
def test_principles_have_names_that_sql_can_hold_and_words(principles: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"principles"):
        validate(ReadSettings, {"principles": principles})


def test_the_published_ids_are_those_of_the_published_checkpoint_alone() -> None:
    names = resolve_model(ModelSettings(model=PRINCIPLE), RenderSettings()).family.knows(
        "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle"
    )
    assert names is not None
    assert names.token_ids == {"Yes": 9642, "No": 2822}
    family = resolve_model(ModelSettings(model=PRINCIPLE), RenderSettings()).family
    checkpoint = Checkpoint.find(locate(PRINCIPLE), None)
    family.check(checkpoint)
    with pytest.raises(ModelError, match=r"is read by .*9642.*, and the tokenizer in .* has \{'No': 6, 'Yes': 7\}"):
        family.check(checkpoint, names)


def test_ids_beyond_the_first_share_of_the_vocabulary_are_refused() -> None:
    family = resolve_model(ModelSettings(model=PRINCIPLE), RenderSettings()).family
    checkpoint = Checkpoint.find(locate(PRINCIPLE), None)
    family.check(checkpoint, tensor_parallel=2)
    with pytest.raises(
        ModelError, match=r"token 'No', id 6, .*--tensor-parallel 160 .* ids below 6 .*a smaller --tensor-parallel"
    ):
        family.check(checkpoint, tensor_parallel=160)
