"""OpenAI's graders: on a judge of one's own, or by code, and refused where they can't be what they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.engine.protocol import Generation
from actors.errors import Unreadable
from actors.models.rubric import Rubric
from actors.records import Message, Reason, Response, Role, ScoreRequest
from actors.reward_model import families
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from actors.settings.verifier import VerifierSettings

SCORE = {
    "type": "score_model",
    "name": "closeness",
    "model": "gpt-5",
    "input": [
        {"role": "developer", "content": "Grade {% strictly %}."},
        {"role": "user", "content": [{"type": "input_text", "text": "{{item.answer}} or {{ sample.output_text }}?"}]},
    ],
    "range": [1, 7],
    "sampling_params": {"temperature": 0.5, "top_p": 0.9, "max_completions_tokens": 99},
}
LABEL = {
    "type": "label_model",
    "name": "tone",
    "model": "gpt-5",
    "input": [{"role": "user", "content": "{{ sample.output_text }}"}],
    "labels": ["kind", "rude", "neither"],
    "passing_labels": ["kind", "neither"],
}
CHECK = {
    "type": "string_check",
    "name": "right",
    "input": "{{ sample.output_text }}",
    "operation": "eq",
    "reference": "{{ item.answer }}!",
}
ALIKE = {
    "type": "text_similarity",
    "name": "alike",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.other }}",
    "evaluation_metric": "fuzzy_match",
}
MULTI = {
    "type": "multi",
    "name": "both",
    "graders": {"right": CHECK, "alike": ALIKE},
    "calculate_output": "0.5 * right + max(alike, 0.25)^2",
}


def rubric(grader: dict[str, Any], folder: Path) -> Rubric:
    file = folder / "grader.json"
    file.write_text(json.dumps(grader))
    family = families()["rubric"]
    assert isinstance(family, Rubric)
    return family.with_settings(JudgeSettings.model_validate({"rubric": str(file)}))


def read(judge: Rubric, text: str) -> Any:
    return judge.verdict(Generation(text, (), "stop", (), 0, 1), 1)


def score(grader: dict[str, Any], response: str, **row: str) -> float | Reason | None:
    verifier: Any = families()["grader"]
    verifier = verifier.with_verifier_settings(VerifierSettings.model_validate({"grader": grader}))
    fields = {f"row.{name}": value for name, value in row.items()}
    assert set(fields) <= set(verifier.field_names)
    request = ScoreRequest((Message(Role.USER, "?"),), (Response("final", response),), fields=fields)
    result = verifier.verify(verifier.texts(request, 0))
    return result.reason or result.reward


def test_a_score_model_is_a_rubric_with_its_turns_range_and_sampling(tmp_path: Path) -> None:
    judge = rubric(SCORE, tmp_path)
    assert judge.field_names == ("row.answer",)
    assert judge.rubric.prompt == "{{ row.answer }} or {{ response }}?"
    assert "strictly" in str(judge.rubric.system)
    assert (judge.card.temperature, judge.card.top_p, judge.card.max_tokens) == (0.5, 0.9, 99)
    assert read(judge, '{"reasoning": "x", "score": 6.5}').scores == ({"score": 6.5},)
    with pytest.raises(Unreadable, match="out_of_range"):
        read(judge, '{"reasoning": "x", "score": 0.5}')
    low_and_high = rubric({name: value for name, value in SCORE.items() if name != "range"}, tmp_path).rubric
    assert (low_and_high.low, low_and_high.high) == (0, 1)


def test_text_that_jinja_would_run_is_shown_as_it_is(tmp_path: Path) -> None:
    from actors.models.rubric import _template  # the sandbox in which rubrics are rendered

    judge = rubric(SCORE, tmp_path)
    assert _template(str(judge.rubric.system)).render() == "Grade {% strictly %}."


def test_a_passing_label_is_1_and_another_0(tmp_path: Path) -> None:
    judge = rubric(LABEL, tmp_path)
    rewards = [read(judge, f'{{"reasoning": "x", "label": "{label}"}}').scores[0]["label"] for label in LABEL["labels"]]
    assert rewards == [1.0, 0.0, 1.0]
    assert judge.card_weights() == {"label": 1.0}
    with pytest.raises(Unreadable, match="no_verdict"):
        read(judge, '{"reasoning": "x", "label": "mixed"}')


def test_graders_without_a_model_are_computed() -> None:
    assert score(CHECK, "42!", answer="42") == 1
    assert score(CHECK, "42", answer="42") == 0
    assert score({**CHECK, "operation": "ilike"}, "It is ABC!", answer="abc") == 1
    assert score(ALIKE, "abcd", other="abed") == 0.75
    assert score(MULTI, "42!", answer="42", other="42!") == 1.5
    assert score(MULTI, "xyz", answer="42", other="abc") == 0.0625
    assert score({**MULTI, "calculate_output": "1 / right"}, "xyz", answer="42", other="abc") == Reason.NOT_FINITE
    assert score({**MULTI, "calculate_output": "log(right)"}, "xyz", answer="42", other="abc") == Reason.NOT_FINITE
    assert score({**MULTI, "calculate_output": "right*1e308*10"}, "42!", answer="42", other="") == Reason.NOT_FINITE


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ({**SCORE, "sampling_params": {"seed": 1}}, "sampling_params.seed can't be given to a judge here; judge.seed"),
        ({**SCORE, "sampling_params": {"reasoning_effort": "low"}}, "sampling_params.reasoning_effort can't be given"),
        ({**SCORE, "input": [{"role": "assistant", "content": "x"}]}, "input has turns of assistant"),
        (
            {**SCORE, "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input holds content that is no text",
        ),
        ({**SCORE, "input": [{"role": "user", "content": "{{ sample.output_json }}"}]}, "there are {{ item.NAME }} and"),
        ({**SCORE, "input": [{"role": "user", "content": "Good?"}]}, "no {{ response }}, which is judged"),
        ({**SCORE, "input": ["x"]}, "it isn't laid out as a score_model grader is"),
        ({**SCORE, "temperature": 1}, "the score_model holds 'temperature', which isn't known here"),
        ({**LABEL, "passing_labels": ["nice"]}, "passing_labels holds 'nice', which isn't among the labels kind"),
        (CHECK, "a string_check asks no model: give --model grader --set verifier.grader=FILE"),
        ({**MULTI, "graders": {"a": SCORE}}, "`assay ensemble` combines several judges"),
        ({"type": "python", "name": "p", "source": ""}, "a grader of type 'python' can't be run here"),
    ],
)
def test_what_a_judge_cant_be_asked_is_refused_by_name(grader: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "grader.json"
    file.write_text(json.dumps(grader))
    with pytest.raises(ValueError, match=r"\w") as raised:
        RubricSettings.model_validate(str(file))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        (SCORE, "a score_model asks a model: give --rubric FILE"),
        ({**MULTI, "graders": {"right": CHECK, "judge": SCORE}}, "`assay ensemble`"),
        ({**ALIKE, "evaluation_metric": "bleu"}, "evaluation_metric 'bleu' isn't computed here: there is fuzzy_match"),
        ({**CHECK, "operation": "matches"}, "operation 'matches' isn't computed here: there is eq, ne, like, ilike"),
        ({**CHECK, "reference": "{{ row.answer }}"}, "{{ row.answer }}: there are {{ item.NAME }}"),
        ({**CHECK, "reference": "{{ item['answer'] }}"}, "{{ item['answer'] }} isn't of the form"),
        ({**CHECK, "reference": "{{item.answer}} {{- item.x | trim }}"}, "{{- item.x | trim }} isn't of the form"),
        ({name: value for name, value in CHECK.items() if name != "reference"}, "the string_check has no reference"),
        ({**MULTI, "calculate_output": "right + wrong"}, "calculate_output can't hold 'wrong': numbers, right, alike"),
        ({**MULTI, "calculate_output": "right.__class__"}, "can't hold 'right.__class__'"),
        ({**MULTI, "calculate_output": "right("}, "is no formula"),
        ({**MULTI, "calculate_output": "right(1)"}, "calculate_output can't hold 'right(1)'"),
        ({"type": "python", "name": "p", "source": ""}, "a grader of type 'python' can't be run here"),
    ],
)
def test_what_code_cant_compute_is_refused_by_name(grader: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as raised:
        VerifierSettings.model_validate({"grader": grader})
    assert message in str(raised.value)
