"""Verifiers: what they take for the answer, and that nothing which can't be compared has a number."""

import json
import random
import re
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from actors.contracts.verifier import READER, Verifier
from actors.errors import ModelError, Rejected, SettingsError
from actors.launch.start_engine import start_engine
from actors.records import Message, Reason, Response, Role, ScoreRequest
from actors.reward_model import families, resolve_model
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from actors.settings.verifier import VERIFIERS, VerifierSettings
from pipelines.folders.run_folder.examples import Example
from pipelines.settings.options import validate

NO, BAD = Reason.NO_ANSWER, Reason.BAD_REFERENCE


def outcome(name: str, response: str, reference: str | None = None, /, **settings: Any) -> float | Reason | None:
    verifier = families()[name]
    assert isinstance(verifier, Verifier)
    verifier = verifier.with_verifier_settings(VerifierSettings(**settings))
    fields = {} if reference is None else {"reference": reference}
    request = ScoreRequest((Message(Role.USER, "?"),), (Response("final", response),), fields=fields)
    try:
        score = verifier.verify(verifier.texts(request, 0))
    except Rejected as rejected:
        return rejected.reason
    return score.reason or score.reward


@pytest.mark.parametrize(
    ("name", "settings", "examples"),
    [
        ("exact-match", {"any_of": True}, 2),
        ("exact-match", {"answer_pattern": "is (.+)", "unparsed": 0}, 2),
        ("regex", {"answer_regex": "x"}, 2),
        ("grader", {"grader": {"type": "string_check", "input": "a", "reference": "b", "operation": "eq", "name": "g"}}, 0),
    ],
)
def test_a_self_test_reads_its_examples_without_the_settings_of_a_run(
    name: str, settings: dict[str, Any], examples: int
) -> None:
    model = resolve_model(ModelSettings(model=name, verifier=VerifierSettings(**settings)), RenderSettings())
    passed, doubts = list[str](), list[str]()
    with closing(start_engine(model, EngineSettings(engine="none"))) as engine:
        self_test(model, engine, passed.append, warned=doubts.append)
    assert len(passed) == examples
    assert doubts == ([] if examples else [f"{name} has no golden: nothing was compared"])


def test_the_names_in_the_settings_are_the_families() -> None:
    assert {name for name, family in families().items() if isinstance(family, Verifier)} == VERIFIERS


@pytest.mark.parametrize(
    ("response", "reference", "settings", "expected"),
    [
        ("42\n", "42", {}, 1),
        ("The answer is 42.", "42", {}, 0),
        ("The answer is 42.", "42", {"answer_pattern": r"answer is (\d+)"}, 1),
        ("It was 7, so the answer is 41, no: the answer is 42.", "42", {"answer_pattern": r"answer is (\d+)"}, 1),
        ("no number", "42", {"answer_pattern": r"answer is (\d+)"}, NO),
        ("no number", "42", {"answer_pattern": r"answer is (\d+)", "unparsed": 0}, 0),
        ("72", "She sold 48 + 24.\n#### 72", {"reference_pattern": "#### (.+)"}, 1),
        ("72", "no mark", {"reference_pattern": "#### (.+)", "unparsed": 0}, BAD),
        ("forty-two", '["42", "forty-two"]', {}, BAD),
        ("forty-two", '["42", "forty-two"]', {"any_of": True}, 1),
        ("43", '["42", "forty-two"]', {"any_of": True}, 0),
        ("[1, 2]", "[1, 2]", {}, 1),
        ("42", "[42, 43]", {"any_of": True}, 1),
        ("1.50", '["x", 1.50]', {"any_of": True}, 1),
        ("42", "[]", {"any_of": True}, BAD),
        ("42", "[[42], 43]", {"any_of": True}, BAD),
        ("y", '["", "x"]', {"any_of": True}, Reason.NO_REFERENCE),
        ("y", "#### ", {"reference_pattern": "####(.*)"}, Reason.NO_REFERENCE),
        ("42", " ", {}, Reason.NO_REFERENCE),
        ("42", None, {"unparsed": 0}, Reason.NO_REFERENCE),
    ],
)
def test_exact_match(response: str, reference: str | None, settings: dict[str, Any], expected: Any) -> None:
    assert outcome("exact-match", response, reference, **settings) == expected


@pytest.mark.parametrize(
    ("response", "reference", "expected"),
    [
        ("**Light  Blue.**", "light blue", 1),
        ("“Zürich”", "zürich", 1),
        ("1.5", "15", 0),
        ("-5", "5", 0),
        ("50%", "50", 0),
        (".5", "5", 0),
        ("(.5)", "(.5)", 1),
        ("5!", "5", 0),
        ("2⁵", "25", 0),
        ("①", "1", 0),
        ("−５.", "-5", 1),
        ("...", "blue", NO),
        ("blue", "...", BAD),
    ],
)
def test_a_normalised_match_leaves_out_nothing_that_changes_a_number(response: str, reference: str, expected: Any) -> None:
    assert outcome("normalised-match", response, reference) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("B", 1),
        ("**(B)**", 1),
        ("B. Paris, of course", 1),
        ("A good answer is B", 1),
        ("The answer is A good one, I think.", NO),
        ("The answer is A because it is red.", 0),
        ("The answer is B because it is blue.", 1),
        ("The answer is A. No, wait: the answer is B.", 1),
        (r"Not (A), so \boxed{\text{B}}", 1),
        ("The answer is A or B", NO),
        ("The answer is not B", NO),
        ("Banana", NO),
        ("Both A and B are possible.", NO),
        ("**Answer:** option B", 1),
        ("Answer: B Paris", 1),
        ("A. 3\nB. 4\nC. 5\nThe answer is 4", NO),
        ("A) wrong B) right", NO),
        ("I don't think the answer is B", NO),
        ("It is false that the answer is B. I choose C", NO),
        ("The wrong answer is B; C is right", NO),
        ("Incorrect answer: B. Correct answer (C)", NO),
        ("The correct option is (B) and the incorrect option is (A)", NO),
        ("Answer: B is incorrect, C is right", NO),
        ("The answer is B... no wait, the answer is c", NO),
        (r"The answer is A... no wait, the answer is $\text{B}$", 1),
        (r"\boxed{B, C}", NO),
        (r"\boxed{B \text{ or } C}", NO),
        (r"\boxed{I don't know}", NO),
        (r"\boxed{A dog}", NO),
        (r"\boxed{E = mc^2}", NO),
        (r"\boxed{\text{(B) } 42}", 1),
        (r"The answer is \(B\).", 1),
        ("Answer: B or maybe C", NO),
        ("Answer: B; C", NO),
        ("The answer is B plus C", NO),
        ("The answer is B.C.", NO),
        ("The answer is B++", NO),
        ("The answer is B-glucose", NO),
    ],
)
def test_a_letter_counts_where_it_is_stated_as_the_answer(response: str, expected: Any) -> None:
    assert outcome("multiple-choice", response, "(B)") == expected
    assert outcome("multiple-choice", response, "B) Paris") == expected


def test_a_reference_that_is_no_choice_is_a_fault_of_the_row() -> None:
    assert outcome("multiple-choice", "B", "Paris", unparsed=0) == BAD
    assert outcome("multiple-choice", "B", "B. subtilis") == BAD
    assert outcome("multiple-choice", "B", "E", choices="ABCD") == BAD
    assert outcome("multiple-choice", "B", "Paris", answer_pattern="([0-9])", unparsed=0) == BAD


@pytest.mark.parametrize(
    ("response", "reference", "expected"),
    [
        ("The answer is 42.", "42", 1),
        ("$2\\pi$", "2\\pi", 1),
        ("2", "2\\pi", 0),
        ("$x^2+1$", "x^2+1", 1),
        ("$(0, 1)$", "[0, 1]", 0),
        ("50%", "0.5", 1),
        ("It is 1,234", "Half of it.\n#### 1,234", 1),
        (r"\boxed{3} or \boxed{4}", "4", 0),
        ("I don't know", "3", NO),
        ("3", "foo bar", BAD),
        ("0.001", "1e-3", BAD),
        ("12", "12 apples", 1),
        ("12", r"12\text{ cm}", 1),
        ("The answer is 2.5e6", "2.5", NO),
        ("3 million", "3", NO),
        ("After 1e-3 s it is $5$", "5", 1),
        ("3 1/2", "1", NO),
        ("3.5", "3 1/2", BAD),
        ("6", "5 or 6", BAD),
        ("7", "Alice has 3 apples on day 7", BAD),
        ("2001", "12 May 2001", BAD),
        ("2021", "2024-01-02", BAD),
        ("2\\sqrt{3}", "2\\sqrt{3}", 1),
        ("2\\sqrt{3}", "2", 0),
        ("5!", "5!", 1),
        ("3,4", "3,4", 1),
        ("3:45", "3:45", 1),
        ("y=2x+1", "y=2x+1", 1),
        ("12 cm", "12 cm", 1),
        ("2", "2 x", 0),
        ("A: 42", "42", 1),
        ("答案是 42", "42", 1),
        ("5", r"\boxed{1/0}", BAD),
    ],
)
def test_mathematical_answers(response: str, reference: str, expected: Any) -> None:
    pytest.importorskip("math_verify")
    assert outcome("math-equal", response, reference) == expected


def test_mathematical_answers_are_judged_as_math_verify_judges_them() -> None:
    math_verify = pytest.importorskip("math_verify")
    draw = random.Random(7)
    forms = (
        "{a}",
        "$\\frac{{{a}}}{{{b}}}$", "$\\sqrt{{{a}}}$", "$x^{a} + {b}$", "${a}\\pi$", "$({a}, {b})$", "$\\{{{a}, {b}\\}}$",
        "\\boxed{{{a}.5}}", "${a}\\%$", "$x = {a}$", "$\\begin{{pmatrix}} {a} \\\\ {b} \\end{{pmatrix}}$", "{a},000",
    )  # fmt: skip
    frames = ("{}", "So the answer is {}.", "First 17, then\n{}", "{} is what I get")
    rewards: list[Any] = []
    for _ in range(200):
        form, other = draw.choice(forms), draw.choice(forms)
        a, b = draw.randint(1, 4), draw.randint(1, 4)
        reference = form.format(a=a, b=b)
        response = draw.choice(frames).format((form if draw.random() < 0.7 else other).format(a=draw.choice((a, b)), b=b))
        expected = math_verify.verify(math_verify.parse(reference), math_verify.parse(response))
        rewards.append(outcome("math-equal", response, reference))
        assert rewards[-1] == float(expected), (reference, response)
    assert 50 < sum(rewards) < 150, "both outcomes are there"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ('{"a": 1}', 1),
        ('```json\n{"a": 1}\n```', 1),
        ('{"a": "1"}', 0),
        ('{"a": 1} as you wished', NO),
        ("NaN", NO),
    ],
)
def test_json_by_a_schema_of_the_run_or_of_the_row(response: str, expected: Any, tmp_path: Any) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    assert outcome("json-schema", response, answer_schema=str(file)) == expected
    assert outcome("json-schema", response, json.dumps(SCHEMA)) == expected


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"type": 7}',
        '{"patternProperties": {"a": {}}}',
        '{"pattern": "(?=a)"}',
        '{"$ref": "http://127.0.0.1:9/schema.json"}',  # nothing is fetched
        '{"properties": {"a": {"$ref": "#/$defs/Typo"}}}',
        '{"$ref": "#"}',
        '{"$schema": "https://example.org/own"}',
    ],
)
def test_a_rows_schema_that_cant_be_used_is_a_fault_of_the_row(schema: str) -> None:
    assert outcome("json-schema", '{"a": 1}', schema) == BAD


def test_a_schema_is_read_by_its_draft() -> None:
    schema = '{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}, "pattern": "^a"}'
    assert outcome("json-schema", '{"a": 1}', schema) == 0
    assert outcome("json-schema", '"b"', schema) == 0


def test_a_pattern_of_the_run_or_of_the_row() -> None:
    assert outcome("regex", "order 66", r"^order \d+$") == 1
    assert outcome("regex", "order x", answer_regex=r"\d") == 0
    assert outcome("regex", "aa", "(a)\\1") == BAD
    assert outcome("regex", "a" * 10_000 + "b", "(a+)+$") == 0


def test_similarity_is_that_of_the_letters() -> None:
    assert outcome("text-similarity", "abcd", "abed") == 0.75


def test_a_setting_for_another_verifier_or_for_models_with_weights_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"verifier.choices: exact-match doesn't take it; it takes answer_pattern, any_of"
    ):
        outcome("exact-match", "a", "a", choices="AB")
    with pytest.raises(ValueError, match="at least 1 character"):
        VerifierSettings(answer_regex="")
    for settings, message in (
        ({"judge": {"votes": 3}}, "votes: for judges that write, and exact-match is none"),
        ({"revision": "main"}, "revision: exact-match has no weights"),
        ({"weights": {"score": 2}}, "weights: exact-match has one number"),
    ):
        with pytest.raises(SettingsError, match=message):
            resolve_model(validate(ModelSettings, {"model": "exact-match", **settings}), RenderSettings())
    with pytest.raises(SettingsError, match=r"verifier.unparsed: for verifiers, and tiny-scalar is a model with weights"):
        resolve_model(validate(ModelSettings, {"model": "tiny-scalar", "verifier": {"unparsed": 0}}), RenderSettings())


def test_the_versions_and_settings_that_decide_the_numbers_are_in_the_identity() -> None:
    settings = ModelSettings(model="text-similarity", verifier=VerifierSettings(unparsed=0.5))
    identity = resolve_model(settings, RenderSettings()).identity_on(EngineSettings(engine="none"))
    assert identity["rapidfuzz"]
    assert identity["verifier"] == {"reader": READER, "unparsed": 0.5}


def test_a_library_that_isnt_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(
        ModelError, match=r'math-equal needs math-verify, which isn\'t installed: pip install "assay\[math\]"'
    ):
        resolve_model(ModelSettings(model="math-equal"), RenderSettings())


class Raising(Verifier):
    """A plug-in's, which returns or raises what it is asked about."""

    name = "raising"
    summary = "raises"

    def compare(self, answer: str, reference: str) -> Any:
        values: dict[str, Any] = {"none": None, "text": "0.5", "pair": (1.0, "why"), "right": True}
        return values[answer]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("x", "KeyError: 'x'"),
        ("none", "TypeError: .*NoneType"),
        ("text", "TypeError: .*str"),
        ("pair", "TypeError: .*tuple"),
    ],
)
def test_what_a_verifier_raises_is_said(answer: str, says: str) -> None:
    score = Raising().verify((answer, "reference"))
    assert (score.reason, score.reward) == (Reason.ENGINE_REFUSED, None)
    assert re.fullmatch(f"raising raised {says}.*", score.detail)
    assert Example.of("c:0", "final", score, with_text=False).detail == score.detail
    assert Raising().verify(("right", "reference")).reward == 1.0
