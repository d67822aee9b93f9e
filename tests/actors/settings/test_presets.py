"""Judges by name: the prompt of each word for word, and texts that its authors' parser takes or refuses."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from actors.engine.protocol import Generation
from actors.errors import SettingsError, Unreadable
from actors.models.rubric import Rubric
from actors.records import Message, Reason
from actors.reward_model import families
from actors.settings.presets import presets
from actors.settings.replica import JudgeSettings
from pipelines.settings.options import validate
from tests.conftest import REPOSITORY
from tests.support.judges import judge_folder, judge_model, rendered, request
from tests.support.models import assistant, user
from tests.support.pages import DOCS

QUESTION = user("What is 3 + 4?")
LONGER = (user("Hi"), assistant("Hello"), QUESTION)
FOLDER = REPOSITORY / "actors" / "settings" / "published_rubrics"
NONE, SEVERAL, OFF = Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE

PROMPTS = [
    ("prometheus2", (QUESTION,), "47981f6cc34e8c11"),
    ("prometheus2-reference", (QUESTION,), "1737753d163a43ee"),
    ("prometheus2-relative", (QUESTION,), "d18617f96dad46e4"),
    ("prometheus2-relative-reference", (QUESTION,), "ae27c09c4037cc58"),
    ("reward-bench", (QUESTION,), "a39a41e587993feb"),
    ("reward-bench", LONGER, "035637c037d86340"),
    ("arena-hard", (QUESTION,), "cbe1d9ca8d48222f"),
    ("compassjudger2", (QUESTION,), "f09d5d497c1c6cce"),
]
"""The first digits of the SHA-256 of the system's turn, a null and the user's turn, as the authors' code makes them of these
texts: prometheus-eval 0.1.20, rewardbench 0.1.4, Arena-Hard's configuration and CompassJudger's README."""

GRADES: Sequence[tuple[str, float | Reason]] = [
    ("The response is right. [RESULT] 4", 4),
    ("Right, though wordy. [RESULT] (5)", 5),
    ("So the score is 3 out of 5. [RESULT] 3", 3),
    ("Fine. [SCORE] 2", 2),
    ("Good. Score: 4/5", 4),
    ("Feedback: poor. Result: [1]", 1),
    ("[RESULT] 4\n\n", 4),
    ("The response is right. [RESULT] 4 because it adds up", NONE),
    ("The response deserves a 4", NONE),
    ("[RESULT] 4.5", NONE),
    ("[RESULT] four", NONE),
    ("[RESULT] 7", OFF),
    ("[RESULT] 0", OFF),
    ("The answer says [RESULT] 5. That is a trick. [RESULT] 1", SEVERAL),
    ("<think>Perhaps [RESULT] 2</think>It adds up. [RESULT] 5", 5),
]
SIDES: Sequence[tuple[str, float | Reason]] = [
    ("Response A adds up. [RESULT] A", 1.0),
    ("The second is clearer. [RESULT] B", 0.0),
    ("The second is clearer. [Result: B]", 0.0),
    ("It adds up.\nResult: a", 1.0),
    ("[RESULT] C", NONE),
    ("[RESULT] A or B", NONE),
    ("B adds up", NONE),
    ("[RESULT] A\n[RESULT] B", SEVERAL),
]
PLAIN: Sequence[tuple[str, float | Reason]] = [
    ("A adds up.\n[[A]]", 1.0),
    ('My verdict: "[[B]]"', 0.0),
    ("[[C]]", NONE),
    ("[A]", NONE),
    ("[[A]] would be wrong, so [[B]]", SEVERAL),
    ("<think>[[A]]?</think>[[B]]", 0.0),
]
LABELS: Sequence[tuple[str, float | Reason]] = [
    ("My final verdict is: [[A>>B]]", 1.0),
    ("My final verdict is: [[A>B]]", 1.0),
    ("My final verdict is tie: [[A=B]]", 0.5),
    ("My final verdict is: [[B>A]]", 0.0),
    ("My final verdict is: [[B>>A]]", 0.0),
    ("My final verdict is: [[A<<B]]", 0.0),
    ("[[A>A]]", NONE),
    ("[[A]]", NONE),
    ("I lean to [[A>B]]. No: [[B>A]]", SEVERAL),
]
CHOICES: Sequence[tuple[str, float | Reason]] = [
    ('{\n  "Choice": "Model A"\n}', 1.0),
    ('Model B is right.\n```json\n{"Choice": "Model B"}\n```', 0.0),
    ('{"Choice": "[Model A or Model B]"}', NONE),
    ('{"Choice": "Model C"}', NONE),
    ('{"Choice": "Tie"}', NONE),
    ('{"Choice": "Model A"} and {"Choice": "Model B"}', SEVERAL),
]
TEXTS = {
    "prometheus2": GRADES,
    "prometheus2-reference": GRADES,
    "prometheus2-relative": SIDES,
    "prometheus2-relative-reference": SIDES,
    "reward-bench": PLAIN,
    "arena-hard": LABELS,
    "compassjudger2": CHOICES,
}


def judge(name: str | Mapping[str, object]) -> Rubric:
    """The judge of a preset; or of a reader of two responses."""
    family = families()["rubric"]
    assert isinstance(family, Rubric)
    two = {"shows": "two", "prompt": "{{ response_1 }} {{ response_2 }}"}
    rubric = f"preset:{name}" if isinstance(name, str) else {**two, **name}
    return family.with_settings(JudgeSettings.model_validate({"rubric": rubric}))


def read(name: str | Mapping[str, object], text: str) -> float | Reason:
    """The first response's output, or why there is none."""
    try:
        verdict = judge(name).verdict(Generation(text, (), "stop", (), 0, 0), 2 if judge(name).together else 1)
    except Unreadable as unread:
        return unread.reason
    (output,) = verdict.scores[0].values()
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judge_folder(tmp_path_factory.mktemp("presets") / "judge", max_position_embeddings=8192)


@pytest.mark.parametrize(("name", "context", "digest"), PROMPTS, ids=[f"{name}-{len(turns)}" for name, turns, _ in PROMPTS])
def test_a_judge_is_asked_word_for_word_as_its_authors_ask(
    folder: Path, name: str, context: tuple[Message, ...], digest: str
) -> None:
    alone = judge(name).rubric.shows == "one"
    fields = {"reference": "seven"} if "reference" in judge(name).field_names else {}
    score_request = replace(request(*context, to=("7",) if alone else ("7", "9")), fields=fields)
    result, (text, *_) = rendered(judge_model(folder, rubric=f"preset:{name}"), score_request)
    assert result.prompts[0].response_positions == ((0,) if alone else (0, 1))
    turns = dict(re.findall(r"<\|start\|>(\w+)\n\n(.*?)<\|end\|>", text, re.DOTALL))
    assert hashlib.sha256(f"{turns.get('system', '')}\0{turns['user']}".encode()).hexdigest()[:16] == digest


def test_criteria_of_ones_own_take_the_place_of_the_authors(folder: Path) -> None:
    score_request = request(QUESTION, to=("7",), principles=("[Is it brief?]\nScore 1: no.",))
    _, (text,) = rendered(judge_model(folder, rubric="preset:prometheus2"), score_request)
    assert "###Score Rubrics:\n[Is it brief?]\nScore 1: no.\n\n###Feedback: <|end|>" in text
    assert "relevant and useful" not in text


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_is_read_as_by_its_authors_or_not_at_all(name: str) -> None:
    assert {text: read(name, text) for text, _ in TEXTS[name]} == dict(TEXTS[name])


def test_the_readers_that_the_guide_gives_for_other_judges_read_these() -> None:
    rows = re.findall(r"\| `(pattern: .*)` \|$", (DOCS / "guides" / "judges-and-ensembles.md").read_text(), re.MULTILINE)
    fare, deepseek_grm = (yaml.safe_load(row.replace("`, `", "\n")) for row in rows)
    assert read(fare, "Explanation: the first adds up. Verdict: [A]") == 1.0
    assert read(fare, "Explanation: the second adds up.\nVerdict: [B]") == 0.0
    assert read(fare, "Verdict: [A or B]") == NONE
    text = "Specific Criteria: accuracy, 70 %.\nAnalysis: the second is right.\nScores: \\boxed{3, 8}"
    assert read(deepseek_grm, text) == 3.0
    assert read(deepseek_grm, text.replace("8", "11")) == OFF
    assert read(deepseek_grm, text.replace("3, 8", "x, x")) == NONE


def test_every_preset_is_listed_tried_and_has_a_source() -> None:
    assert set(presets()) == set(TEXTS) == {name for name, *_ in PROMPTS}
    for name, summary in presets().items():
        settings = validate(JudgeSettings, {"rubric": f"preset:{name}"})
        assert settings.rubric is not None
        assert summary
        assert "\n# Source: " in FOLDER.joinpath(f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", ["fare", "", "../published_rubrics/arena-hard"])
def test_an_unknown_name_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(SettingsError, match=r"the rubric 'preset:.*' isn't there: preset:NAME takes arena-hard, compass"):
        validate(JudgeSettings, {"rubric": f"preset:{name}"})
