"""The self-test of a model before its first row: is this checkpoint, on this engine, read as its authors read it?

`Renderer` checks the tokenizer and the template when it is created. The rest needs the engine: the head has as many outputs
as the family reads, they are raw and finite, each token has its own, and conversations with a known reward get that reward.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from actors.contracts.family import PRINCIPLE, REFERENCE, Family
from actors.contracts.judge import Judge
from actors.contracts.known_model import Golden
from actors.endpoint.endpoint_engine import EndpointEngine
from actors.engine.protocol import Engine, Task, activation
from actors.errors import ModelError
from actors.launch.start_engine import Report
from actors.records import Message, Reason, Response, Role, ScoreRequest, Status
from actors.rendering.choose_renderer import AnyRenderer, renderer_of
from actors.reward_model import RewardModel
from actors.scorers.alignment import logprobs_are_their_tokens, rows_are_their_tokens
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import AS_PUBLISHED, JudgeSettings, RenderSettings
from actors.settings.verifier import AS_GIVEN
from actors.timeline import mark

# Of two lengths, so that prompts that are in the engine together aren't alike: rows of the wrong request would show.
_PROBES = tuple(
    ScoreRequest((Message(Role.USER, question),), (Response("probe", answer),), ("correctness",))
    for question, answer in (("What is 2 + 3?", "5"), ("Name a colour.", "Blue is a colour, and so is green."))
)
_SAME = 1e-3  # outputs that differ by less are equal


def self_test(  # noqa: PLR0912  a branch for each kind of engine
    model: RewardModel,
    engine: Engine,
    passed: Callable[[str], None] = lambda check: None,
    *,
    report: Report = lambda step: None,
    must_read: bool = False,
    warned: Callable[[str], None] = lambda doubt: None,
) -> None:
    """Check a model on its engine; `passed` is called with the text of each passed check. Raises `ModelError` if one fails.

    With `must_read` it also fails if no question was short enough to be asked, or none of the answers could be read.
    `warned` is called with the text of a question to which a judge preferred no right answer: nothing says that it must.
    """
    mark("self-test")
    if isinstance(engine, EndpointEngine):
        report(f"asking {model.model}")
        _test_endpoint(model, engine, passed, warned, must_read=must_read)
        return
    published = model.family.knows(model.known_as)
    # Checked before, but now with the weights: of a hub model only the small files may have been here then.
    has_weights = model.task is not Task.VERIFY
    settings = RenderSettings(max_model_len=model.max_model_len) if has_weights else RenderSettings()
    if has_weights:
        model.family.check(model.checkpoint, published)
        report(f"reading the tokenizer of {model.model}")  # seconds: Gemma 3's has 262,144 tokens
    renderer = renderer_of(model, settings)
    report(f"testing {model.model}")
    if has_weights:
        passed("tokenizer and template: every role's text is kept, special tokens are single tokens, one beginning")
    # Empty if `max_model_len` is shorter than these few words.
    questions = [replace(probe, fields=_fields_of(model.family)) for probe in _PROBES]
    probes = renderer.render(questions) if model.task.pools else []
    if prompts := [list(prompt.ids) for request in probes for prompt in request.prompts]:
        for check in (_check_head, _check_raw):
            passed(check(model, engine, prompts))
        if model.task.every_position:
            passed(rows_are_their_tokens(model, engine, max(prompts, key=len)))
    if model.verdict_ids:
        judge_prompts = [prompt.ids for request in renderer.render(questions) for prompt in request.prompts]
        if judge_prompts:
            passed(logprobs_are_their_tokens(model, engine, judge_prompts))
    tests: list[_TestResult] = []
    if model.task.writes and not (published and published.golden):
        tests.append(_try_question(model, engine, renderer))
        if must_read and not tests[0].read:
            raise ModelError(f"self-test of {model.model}: nothing could be read: {tests[0].text}")
        (passed if tests[0].is_plausible else warned)(tests[0].text)
    if published and published.golden:
        # Golden rewards are the authors' numbers: with a user's weights or votes they would be others.
        card_model = _as_published(model)
        as_published = renderer if card_model == model else renderer_of(card_model, settings)
        for number, golden in enumerate(published.golden, 1):
            tests.append(_check_golden(card_model, engine, as_published, golden, number))
            passed(tests[-1].text)
    elif not has_weights:
        warned(f"{model.model} has no golden: nothing was compared")
    if must_read and has_weights and not (prompts or any(test.read for test in tests)):
        raise ModelError(
            f"self-test of {model.model}: nothing could be asked: prompts may have {model.max_model_len} tokens, and every "
            "question of the test is longer"
        )


def _test_endpoint(
    model: RewardModel,
    engine: EndpointEngine,
    passed: Callable[[str], None],
    warned: Callable[[str], None],
    *,
    must_read: bool,
) -> None:
    """See whether an endpoint answers, and if it `must_read` also what a judge says of a question, which costs something."""
    engine.preflight()
    passed(f"{model.model} answers")
    if must_read and isinstance(model.family, Judge):
        test = _try_question(model, engine, renderer_of(model, RenderSettings()))
        (passed if test.is_plausible else warned)(test.text)


class _TestResult(NamedTuple):
    """The result of a question as text, whether a reward was read, and whether the rewards make sense."""

    text: str
    read: bool
    is_plausible: bool = True


def _try_question(model: RewardModel, engine: Engine, renderer: AnyRenderer) -> _TestResult:
    """A judge's rewards for a right and a wrong answer, without a known reward: the user sees whether they make sense."""
    context, right, wrong = (Message(Role.USER, "What is 2 + 3?"),), Response("right", "5"), Response("wrong", "6")
    family = model.family
    principles = (family.example_field(PRINCIPLE, "correctness"),) if family.takes_principles else ()
    request = ScoreRequest(context, (right, wrong), principles, fields=_fields_of(family))
    # With its texts, which say more than a missing reward: a judge whose template is wrong mostly writes something else.
    (scores,) = scorer_of(model.tracing, engine).score_block(renderer.render([request]))
    rewards = [score.reward for score in scores if score.reward is not None]
    verdicts = (f"{score.reason}" if score.reward is None else f"{score.reward:g}" for score in scores)
    wrote = list(dict.fromkeys(repr(score.trace[-1].text) for score in scores if score.trace))
    is_plausible = len(rewards) == len(scores) and rewards[0] > rewards[1]
    texts = f"; it wrote {' and '.join(wrote[: 1 if is_plausible else 2])}" if wrote else ""
    text = f"asked about 2 + 3, it gave {' to 5 and '.join(verdicts)} to 6{texts}"
    if rewards and not is_plausible:
        text += ". That is no better for the right answer: unless it was asked for something else, it can't tell them apart"
    return _TestResult(text, bool(rewards), is_plausible)


def _fields_of(family: Family) -> Mapping[str, str]:
    # For a question whose answer is 5.
    words = {name: "5" if name == REFERENCE else "correctness" for name in family.field_names}
    return {name: family.example_field(name, word) for name, word in words.items()}


def _as_published(model: RewardModel) -> RewardModel:
    """The model without the user's weights and settings: read as by its authors, and a judge with a single vote."""
    published = replace(model, read=AS_PUBLISHED, judge=JudgeSettings(rubric=model.judge.rubric), verifier=AS_GIVEN)
    return replace(published, weights=published.family.card_weights())


def _check_head(model: RewardModel, engine: Engine, prompts: Sequence[Sequence[int]]) -> str:
    for values in _pool_each(engine, prompts, activated=False):
        if len(values) != model.labels or not all(map(math.isfinite, values)):
            raise ModelError(
                f"self-test of {model.model}: the head's outputs should be {model.labels} finite numbers, and are {values}"
            )
    return f"head: {model.labels} finite output{'s' * (model.labels != 1)}"


def _check_raw(model: RewardModel, engine: Engine, prompts: Sequence[Sequence[int]]) -> str:
    """Check that outputs are raw: an activation that is requested must change them as the activation does."""
    # A head of ours is applied to hidden states, and vLLM's pooler of embeddings scales these to length one by default.
    if model.task is Task.EMBED:
        states, units = (list(_pool_each(engine, prompts, activated=way)) for way in (False, True))
        if any(map(_are_equal, states, units)):
            raise ModelError(
                f"self-test of {model.model}: the engine normalises its hidden states to length one, and the head takes "
                "them as they are"
            )
        return "outputs: raw, without an activation"
    activate = _default_activation(model.checkpoint.config)
    if activate is None:
        return "outputs: asked for without an activation; the one that config.json names isn't known here, so not compared"
    raw, activated = (list(_pool_each(engine, prompts, activated=way)) for way in (False, True))
    expected = list(map(activate, raw))
    if not all(map(_are_equal, expected, activated)):
        raise ModelError(
            f"self-test of {model.model}: the outputs aren't raw logits: {raw} would be {expected} after an activation, and "
            f"the engine makes {activated} of them"
        )
    return "outputs: raw, without an activation"


def _are_equal(values: Sequence[float], others: Sequence[float]) -> bool:
    return all(abs(value - other) <= _SAME for value, other in zip(values, others, strict=True))


def _default_activation(config: Mapping[str, Any]) -> Callable[[Sequence[float]], Sequence[float]] | None:
    """The activation that vLLM applies by default to the outputs of a model with this config.json; None if not known here.

    By the same keys, in the same order, as vLLM's `get_act_fn` (vllm/model_executor/layers/pooler/activations.py).
    """
    problem = config.get("problem_type")
    named = (config.get("sentence_transformers") or {}).get(
        "activation_fn", config.get("sbert_ce_default_activation_function")
    )
    if problem == "regression":
        return tuple
    if problem == "multi_label_classification":
        return lambda values: [activation((value,))[0] for value in values]
    # vLLM chooses between the two by the number of labels, whichever of them is named.
    if problem == "single_label_classification" or named is None or named.endswith((".Sigmoid", ".Softmax")):
        return activation
    return tuple if named.endswith(".Identity") else None


def _check_golden(model: RewardModel, engine: Engine, renderer: AnyRenderer, golden: Golden, number: int) -> _TestResult:
    (scores,) = scorer_of(model, engine).score_block(renderer.render([golden.request]))
    if any(score.reason is Reason.TOO_LONG for score in scores):
        return _TestResult(f"conversation {number}: longer than {model.max_model_len} tokens, so it wasn't asked", False)
    name = golden.output or "reward"
    numbers = [score.scores.get(golden.output) if golden.output else score.reward for score in scores]
    for score, value, reward in zip(scores, numbers, golden.rewards, strict=True):
        if score.status is not Status.SCORED or value is None or abs(value - reward) > golden.tolerance:
            outcome = value if score.status is Status.SCORED else f"{score.status}: {score.reason}"
            raise ModelError(
                f"self-test of {model.model}: conversation {number} should have the {name} {reward:g} (give or take "
                f"{golden.tolerance:g}), and has {outcome}"
            )
    actual, expected = (
        " and ".join(f"{reward:{form}}" for reward in rewards) for rewards, form in ((numbers, ".4f"), (golden.rewards, "g"))
    )
    expected = f"{expected} (give or take {golden.tolerance:g})"
    return _TestResult(f"conversation {number}: {name} {actual}, published or measured as {expected}", True)


def _pool_each(engine: Engine, prompts: Sequence[Sequence[int]], *, activated: bool) -> Iterator[tuple[float, ...]]:
    for ids in prompts:
        yield engine.submit(engine.pool(ids, activated=activated)).result().values
