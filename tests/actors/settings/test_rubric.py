"""A judge of one's own: a prompt, a reader, and nothing that the conversation could make of either."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.contracts.judge import Judgement, Verdict
from actors.engine.protocol import Generation
from actors.errors import ModelError, SettingsError, Unreadable
from actors.models.rubric import Rubric
from actors.records import Prompt, Reason
from actors.reward_model import families
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from pipelines.settings.options import validate
from tests.support.judges import ANY_ROLE, judge_folder, judge_model, rendered, request
from tests.support.models import assistant, user

TWO = {"shows": "two", "pattern": "(?P<score_1>[0-9]) (?P<score_2>[0-9])"}
GRADE = {"prompt": "Rate {{ response }}", "pattern": "Rating: ([0-9]+)", "low": 1, "high": 10}
BETTER = {
    "shows": "two",
    "prompt": "{{ conversation }}\n1: {{ response_1 }}\n2: {{ response_2 }}",
    "pattern": r"\[\[(?P<winner>[ABC])\]\]",
    "winners": {"A": "first", "B": "second", "C": "tie"},
}
COMPARES = {"shows": "two", "prompt": BETTER["prompt"], "pattern": None, "winners": {"A": "first", "B": "second"}}
SCHEMA = {
    "type": "object",
    "properties": {"accuracy": {"type": "integer"}, "polite": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["accuracy", "polite"],
}
FIELDS = {"prompt": "{{ response }}", "json_schema": SCHEMA, "low": 0, "high": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judge_folder(tmp_path_factory.mktemp("rubrics") / "judge")


def judge(rubric: Mapping[str, Any]) -> Rubric:
    actual_rubric = families()["rubric"]
    assert isinstance(actual_rubric, Rubric)
    return actual_rubric.with_settings(JudgeSettings(rubric=RubricSettings(**rubric)))


def read(rubric: Mapping[str, Any], text: str) -> Any:
    actual_rubric = judge(rubric)
    return actual_rubric.verdict(Generation(text, (), "stop", (), 0, 1), 1 if actual_rubric.rubric.shows == "one" else 2)


def reason(rubric: Mapping[str, Any], text: str) -> Reason:
    with pytest.raises(Unreadable) as raised:
        read(rubric, text)
    return raised.value.reason


# What it may hold.


def test_what_a_rubric_lacks_is_told() -> None:
    cases: list[tuple[Mapping[str, Any], str]] = [
        ({"pattern": None}, "needs one of pattern, json_schema and verdict, and has none"),
        ({"json_schema": SCHEMA}, "and has pattern and json_schema"),
        ({"pattern": "("}, "not a valid regular expression"),
        ({"pattern": "Rating"}, r"needs a group around the verdict, such as \(\[0-9\]\+\)"),
        ({"prompt": "{{ response"}, "not a valid Jinja template: .* in line 1"),
        ({"prompt": "Rate it."}, r"the prompt has no \{\{ response \}\}, which is judged"),
        (
            {"prompt": "{{ response }}{{ row }}"},
            r"the prompt has \{\{ row \}\}.*there are conversation, turns, tools, response.*row.NAME for a column",
        ),
        ({"system": "{{ response_1 }}"}, r"the prompt has \{\{ response_1 \}\}, which isn't there where it shows one"),
        ({"prompt": "{{ response_1 }}", **TWO}, r"the prompt has no \{\{ response_2 \}\}"),
        ({"pattern": "(Score|Rating): ([0-9]+)"}, r"2 groups, and none says which .* \(\?P<score>\[0-9\]\+\)"),
        ({"low": None}, "score has no scale, and what isn't on it fails: give low and high"),
        ({"low": 10, "high": 1}, "score goes from 10 to 1: low must be less than high"),
        ({"shows": "two"}, "of two responses, a number is called like score_1 and score_2, not score"),
        ({"shows": "two", "pattern": "(?P<score_1>[0-9])"}, "score is there for one of the two responses alone"),
        (
            {**COMPARES, "json_schema": {"properties": {"winner": {"enum": ["A", "B", "tie"]}}}},
            "`winner` may be tie, and",
        ),
        (
            {**COMPARES, "pattern": "(?P<verdict>A|B)", "low": None},
            "what is read is verdict. Call the group or property that names the better response `winner`",
        ),
        ({"pattern": "(?P<winner>A|B)", "winners": {"A": "first"}}, r"`winner` is of two responses \(shows: two\)"),
        (
            {"pattern": None, "json_schema": {"properties": {"why": {"type": "string"}}}},
            "json_schema has no property",
        ),
        ({"shows": "two", "pattern": None, "verdict": {"after": ":"}}, "verdict reads an answer about one response"),
        (
            {"pattern": None, "json_schema": {"properties": {"a": {"type": "text"}}}},
            "not a valid JSON schema: 'text' is not",
        ),
        (
            {"pattern": "(?P<a_1>.)(?P<a_2>.)(?P<b_1>.)(?P<b_2>.)", "shows": "two"},
            "a and b don't say which response",
        ),
        (
            {"pattern": None, "verdict": {"after": ":", "positive": "1", "negative": "1"}},
            "positive and negative are both",
        ),
        ({"colour": "red"}, "colour isn't a setting"),
        ({"shows": "row", "prompt": "Rate it."}, r"the prompt has no \{\{ row.NAME \}\}, which is judged"),
        ({"shows": "row"}, r"has \{\{ response \}\}, which isn't there where it shows row"),
        ({"words": {"tone": {"kind": 1}}}, "what the words of tone count, and json_schema has no property tone"),
    ]
    for change, message in cases:
        with pytest.raises(SettingsError, match=message):
            validate(RubricSettings, {**GRADE, **change})


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{{ row['a.b'] }}", r"has \{\{ row \}\}"),
        ("{{ row.a[0] }}", r"has \{\{ row \}\}"),
        ("{% if row.a %}{{ row.a.b }}{% endif %}", "reads row.a as a text, and something inside of it"),
    ],
)
def test_what_isnt_read_of_a_row_by_a_name_is_refused(prompt: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        validate(RubricSettings, {**GRADE, "prompt": prompt + "{{ response }}"})


def test_the_fields_of_a_rubric_are_its_further_variables() -> None:
    prompt = "{% set mine = 1 %}{{ conversation }} {{ response }} {{ principle }} {{ reference | trim }} {{ row.a.b }}"
    system = "{% for turn in turns %}{{ turn.role }}{% endfor %}{% if row['a b'] is defined %}{{ key }}{% endif %}"
    rubric = RubricSettings(**GRADE | {"prompt": prompt, "system": system})
    assert rubric.field_names == ("key", "reference", "row.a b", "row.a.b")


def graded(low: int | None = None, high: int | None = None, **properties: Any) -> dict[str, Any]:
    """A rubric that reads JSON with these properties."""
    return {"prompt": "{{ response }}", "json_schema": {"properties": properties}, "low": low, "high": high}


def test_limits_of_a_schema_are_the_scale_of_their_number() -> None:
    rubric = graded(a={"type": "integer", "minimum": 1, "maximum": 5}, b={"enum": [0, 2, 10]})
    assert read(rubric, '{"a": 5, "b": 10}').scores == ({"a": 5.0, "b": 10.0},)
    assert reason(rubric, '{"a": 6, "b": 10}') is Reason.NO_VERDICT


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        (graded(0, 5, a={"type": "integer", "minimum": 1}), "low is 0, and json_schema says 1 of a: leave low out"),
        (
            graded(1, a={"type": "integer", "minimum": 1}),
            "a has no scale.* or in json_schema its minimum and maximum, or enum",
        ),
        (graded(a={"type": "integer", "minimum": 5, "maximum": 5}), "a goes from 5 to 5: low must be less than high"),
    ],
)
def test_a_scale_is_given_once(rubric: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        validate(RubricSettings, rubric)


def test_objects_of_a_schema_are_closed_where_it_doesnt_say() -> None:
    number, inner = {"type": "integer"}, {"type": "object", "properties": {"x": {"type": "string"}}}
    rubric = graded(1, 5, a=number, b={"type": "array", "items": inner}, c={**inner, "additionalProperties": True})
    rubric["json_schema"]["properties"]["d"] = {"allOf": [inner, {"properties": {"y": {}}}]}
    written = RubricSettings(**rubric).model_dump()["json_schema"]
    closed = {**inner, "additionalProperties": False}
    assert written == {
        "properties": {**rubric["json_schema"]["properties"], "b": {"type": "array", "items": closed}},
        "additionalProperties": False,
    }
    assert reason(graded(1, 5, a=number), '{"a": 3, "also": 1}') is Reason.NO_VERDICT
    assert json.loads(judge(graded(1, 5, a=number)).card.schema or "")["additionalProperties"] is False


def test_a_rubric_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("prompt: |\n  Rate {{ response }}\npattern: 'Rating: ([0-9]+)'\nlow: 1\nhigh: 10\n")
    assert validate(JudgeSettings, {"rubric": str(file)}).rubric == RubricSettings(
        **GRADE | {"prompt": "Rate {{ response }}\n"}
    )
    for name, text, message in (
        ("absent.yaml", None, "the rubric .*absent.yaml can't be read: .*No such file"),
        ("list.yaml", "- a", "isn't a mapping of settings"),
        ("broken.yaml", "a: [", "can't be read"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(SettingsError, match=message):
            validate(JudgeSettings, {"rubric": str(tmp_path / name)})


# How it is asked.


def test_the_prompt_is_a_user_turn_with_the_conversation_in_its_places(folder: Path) -> None:
    rubric = {
        **GRADE,
        "system": "You are strict about {{ principle }}.",
        "prompt": "{{ conversation }}|{{ turns[0].content }}|{{ response }}|{{ principle }}",
    }
    context = (user("Hi"), assistant("Hello"), user("What is 3 + 4?"))
    question = request(*context, to=("7",), principles=("brevity",))
    result, (text,) = rendered(judge_model(folder, rubric=rubric), question)
    assert [response.reason for response in result.responses] == [None]
    assert text == (
        "<s><|start|>system\n\nYou are strict about brevity.<|end|><|start|>user\n\n"
        "user: Hi\nassistant: Hello\nuser: What is 3 + 4?|Hi|7|brevity<|end|><|start|>assistant\n\n"
    )
    result, _ = rendered(judge_model(folder, rubric=rubric), request(*context, to=("7",)))
    assert [response.reason for response in result.responses] == [Reason.NO_PRINCIPLE]


def test_two_responses_are_asked_in_both_orders_if_there_are_two_votes(folder: Path) -> None:
    result, texts = rendered(judge_model(folder, rubric=BETTER, votes=2), request(user("Q"), to=("a", "b")))
    assert [prompt.response_positions for prompt in result.prompts] == [(0, 1), (1, 0)]
    assert "Q\n1: a\n2: b" in texts[0]
    assert "Q\n1: b\n2: a" in texts[1]


def test_jinja_in_a_response_is_text(folder: Path) -> None:
    text = "{{ 7 * 7 }}{% for x in range(9) %}x{% endfor %}"
    _, (prompt,) = rendered(judge_model(folder, rubric=GRADE), request(user("Q"), to=(text,)))
    assert text in prompt


def test_a_prompt_that_reaches_for_more_is_refused_at_once(folder: Path) -> None:
    prompt = "{{ response }}{{ response.__class__ }}"
    with pytest.raises(ModelError, match="a plain question can't be asked: template_refused"):
        rendered(judge_model(folder, rubric={**GRADE, "prompt": prompt}), request(user("Q"), to=("a",)))


def test_a_prompt_that_leaves_the_response_out_is_refused(folder: Path) -> None:
    hidden = {**GRADE, "prompt": "Rate it.{% if response == '' %}{{ response }}{% endif %}"}
    with pytest.raises(ModelError, match="the template leaves the response out"):
        rendered(judge_model(folder, rubric=hidden), request(user("Q"), to=("a",)))


def test_the_engine_holds_the_answer_to_the_schema(folder: Path) -> None:
    model = judge_model(folder, rubric=FIELDS)
    result, _ = rendered(model, request(user("Q"), to=("a",)))
    judge_of = model.family
    assert isinstance(judge_of, Rubric)
    assert '"accuracy"' in (judge_of.sampling(result.prompts[0], 0, 0, 10).schema or "")


def test_the_family_and_the_file_go_together(folder: Path) -> None:
    with pytest.raises(SettingsError, match="--family rubric needs --rubric FILE"):
        judge_model(folder, "rubric")
    with pytest.raises(SettingsError, match="--rubric is a prompt for any chat model, and --family genrm-boxed has"):
        judge_model(folder, "genrm-boxed", rubric=GRADE)


# How it is read.


def test_a_number_is_found_by_a_pattern() -> None:
    assert read(GRADE, "<think>Rating: 3</think> Rating: 7").scores == ({"score": 7.0},)
    assert reason(GRADE, "<think>Rating: 3</think> none") is Reason.NO_VERDICT
    assert reason(GRADE, "Rating: 7, or Rating: 8") is Reason.TWO_VERDICTS
    assert reason(GRADE, "Rating: 11") is Reason.OUT_OF_RANGE


def test_several_groups_are_several_outputs() -> None:
    rubric = {**GRADE, "pattern": "a=(?P<accuracy>[0-9]+) s=(?P<style>[0-9]+)?"}
    assert read(rubric, "a=3 s=9").scores == ({"accuracy": 3.0, "style": 9.0},)
    assert reason(rubric, "a=3 s=") is Reason.NO_VERDICT
    assert judge(rubric).card_weights() == {"accuracy": 0.5, "style": 0.5}


def test_equal_means_of_several_grades_are_equal_rewards() -> None:
    """Thirds summed one by one come to 3.9999999999999996 for some orders of the grades."""
    triples = [(5, 4, 3), (5, 2, 5), (5, 5, 2), (2, 5, 5), (4, 4, 4)]
    family = judge({**GRADE, "pattern": "(?P<a>[0-9]) (?P<b>[0-9]) (?P<c>[0-9])"})
    weights = family.card_weights()
    votes = [dict(zip("abc", map(float, triple), strict=True)) for triple in triples]
    assert {family.vote(scores, weights) for scores in votes} == {4.0}
    prompt = Prompt((1,), (0,))
    readings = [
        family.readings([Judgement(prompt, tuple(Verdict((scores,)) for scores in some))], [0], weights)[0].reward
        for some in (votes, votes[::-1], votes[1:2])
    ]
    assert readings == [4.0, 4.0, 4.0]


def test_the_winner_is_found_by_a_pattern() -> None:
    assert read(BETTER, "so [[A]]").merits == (1.0, 0.0)
    assert read(BETTER, "so [[B]]").scores == ({"win": 0.0}, {"win": 1.0})
    assert read(BETTER, "so [[C]]").merits == (0.5, 0.5)
    assert reason(BETTER, "[[A]] or [[B]]") is Reason.TWO_VERDICTS
    assert reason({**COMPARES, "pattern": "(?P<winner>[ABC])"}, "C") is Reason.NO_VERDICT, "`winners` doesn't say what C is"


def test_a_grade_for_each_of_two() -> None:
    rubric = {**BETTER, "pattern": r"(?P<score_1>[0-9]+)/(?P<score_2>[0-9]+)", "winners": {}, "low": 0, "high": 9}
    verdict = read(rubric, "7/2")
    assert verdict.scores == ({"score": 7.0}, {"score": 2.0})
    assert verdict.merits == (7.0, 2.0)


def test_fields_of_the_schema_are_outputs() -> None:
    assert read(FIELDS, '{"accuracy": 4, "polite": true, "why": "so"}').scores == ({"accuracy": 4.0, "polite": 1.0},)
    assert reason(FIELDS, '{"accuracy": "4", "polite": true}') is Reason.NO_VERDICT, "the schema wants a number"
    assert reason(FIELDS, '{"accuracy": 4}') is Reason.NO_VERDICT
    assert reason(FIELDS, '{"accuracy": 9, "polite": true}') is Reason.OUT_OF_RANGE


def test_what_is_true_or_false_has_no_scale() -> None:
    high = {**FIELDS, "low": 1}
    assert read(high, '{"accuracy": 4, "polite": false}').scores == ({"accuracy": 4.0, "polite": 0.0},)
    alone = {"prompt": "{{ response }}", "json_schema": {"properties": {"polite": {"type": "boolean"}}}}
    assert read(alone, '{"polite": false}').scores == ({"polite": 0.0},)
    assert judge(FIELDS).card_weights() == {"accuracy": 1.0}, "grades and truths aren't on one scale"
    assert judge(alone).card_weights() == {"polite": 1.0}


def test_names_that_are_taken_are_refused() -> None:
    taken = {**GRADE, "pattern": "a=(?P<judgements>[0-9]+)"}
    with pytest.raises(SettingsError, match="two outputs would be called 'judgements'"):
        judge(taken)
    with pytest.raises(SettingsError, match="two outputs would be called 'score'"):
        judge({**GRADE, "pattern": "a=(?P<score>[0-9]+) (?P<Score>[0-9]+)"})


def test_a_principle_may_be_optional(folder: Path) -> None:
    rubric = {**GRADE, "prompt": "{{ response }}{% if principle is defined %} by {{ principle }}{% endif %}"}
    model = judge_model(folder, rubric=rubric)
    _, (text,) = rendered(model, request(user("Q"), to=("a",)))
    assert "a<|end|>" in text
    _, (text,) = rendered(model, request(user("Q"), to=("a",), principles=("brevity",)))
    assert "a by brevity<|end|>" in text


def test_principles_that_a_prompt_has_no_place_for_are_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"the rubric's prompt has no \{\{ principle \}\}"):
        judge_model(folder, rubric=GRADE, read={"principles": {"short": "brevity"}})


def test_whatever_an_expression_comes_to_rejects_the_row_alone(folder: Path) -> None:
    rubric = {**GRADE, "prompt": "{{ response }} {{ 1 / (1 - (turns[0].content == 'zero')) }}"}
    model = judge_model(folder, rubric=rubric)
    assert rendered(model, request(user("Q"), to=("a",)))[0].responses[0].reason is None
    assert rendered(model, request(user("zero"), to=("a",)))[0].responses[0].reason is Reason.TEMPLATE_REFUSED


def test_an_answer_that_is_held_to_a_schema_is_no_reasoning(folder: Path) -> None:
    opens = judge_folder(folder.parent / "opens", ANY_ROLE.replace("assistant\\n\\n' }}", "assistant\\n\\n<think>\\n' }}"))
    question = request(user("Q"), to=("a",))
    assert rendered(judge_model(opens, rubric=FIELDS), question)[0].prompts[0].opening == ""
    assert rendered(judge_model(opens, rubric=GRADE), question)[0].prompts[0].opening == "<think>"
