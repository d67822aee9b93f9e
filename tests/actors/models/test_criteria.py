"""The judge by criteria of each row: how they are read, what the reward is, and that the engine keeps to the form."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Engine
from actors.errors import Rejected
from actors.models.criteria import Criterion, read_criteria, reward_of
from actors.records import Message, Reason, Response, Role, Score, ScoreRequest, Status
from actors.rendering.renderer import Renderer
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import RenderSettings
from tests.support.judge_contract import RIGHT, JudgeContract, Judged
from tests.support.judges import judge_folder, judge_model
from tiny_models.dialects import verdict_word

CRITERIA = [
    {"name": "right", "text": "The answer is right.", "weight": 3},
    {"name": "rude", "text": "It is rude.", "weight": -1},
    {"text": "It is short.", "choices": ["no", "partly", "yes"]},
]
ALL_GIVEN = {"right": "yes", "rude": "no", "c3": "partly"}


def verifiers_rubric() -> ModuleType:
    """The module of verifiers that has its rubric judge, without the clients and sandboxes that the package imports."""
    spec = importlib.util.find_spec("verifiers")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    stubs: dict[str, dict[str, Any]] = {
        "verifiers.v1.configs.judge": {"JudgeConfig": BaseModel},
        "verifiers.v1.judge": {"Judge": _Generic, "JudgeView": str, "judge_question": None, "judge_response": None},
        "verifiers.v1.task": {"TaskData": object},
        "verifiers.v1.trace": {"Trace": object},
        "verifiers.v1.types": {"ID": str},
    }
    packages = ("verifiers", "verifiers.v1", "verifiers.v1.configs")
    with pytest.MonkeyPatch.context() as patch:
        for name in packages:
            patch.setitem(sys.modules, name, ModuleType(name))
        for name, members in stubs.items():
            module = ModuleType(name)
            module.__dict__.update(members)
            patch.setitem(sys.modules, name, module)
        file = Path(folder) / "v1" / "judges" / "rubric.py"
        rubric = importlib.util.spec_from_file_location("verifiers_rubric", file)
        assert rubric is not None
        assert rubric.loader is not None
        module = importlib.util.module_from_spec(rubric)
        patch.setitem(sys.modules, "verifiers_rubric", module)
        rubric.loader.exec_module(module)
    return module


class _Generic:
    def __class_getitem__(cls, item: object) -> type:
        return cls


def test_the_reward_is_that_of_verifiers_for_its_weights(tmp_path: Path) -> None:
    rubric, random = verifiers_rubric(), Random(1)
    for _ in range(100):
        listed: list[dict[str, Any]] = [
            {
                "name": f"n{number}",
                "text": "?",
                "weight": random.choice((0.0, 0.5, 1.0, 7.0)),
                "choices": [f"w{rank}" for rank in range(random.randint(2, 5))],
            }
            for number in range(random.randint(1, 6))
        ]
        listed[0]["weight"] = 2.0
        (file := tmp_path / "rubric.json").write_text(json.dumps(listed))
        words = {item["name"]: random.choice(item["choices"]) for item in listed}
        judge = rubric.RubricJudge()
        judge.config, judge.reward_name = SimpleNamespace(path=file, weights={}, max_criteria=None), "judge"

        async def grade(task: Any, trace: Any, batch: Any, words: Mapping[str, str] = words) -> Any:
            verdicts = [rubric.CriterionVerdict(name=name, reason="", verdict=word) for name, word in words.items()]
            return rubric.score_verdicts(verdicts, batch, "the")

        judge.grade_batch = grade
        theirs = asyncio.run(judge.score(None, SimpleNamespace(record_metric=lambda name, value: None)))
        criteria = read_criteria(json.dumps(listed))
        values = {item.name: item.choices.index(words[item.name]) / (len(item.choices) - 1) for item in criteria}
        assert reward_of(criteria, values) == pytest.approx(theirs, abs=1e-12)


def test_negative_weights_take_away_and_gates_must_be_passed() -> None:
    right, rude, safe = Criterion("right", "?", 3.0), Criterion("rude", "?", -2.0), Criterion("safe", "?", gate=True)
    for criteria, values, reward in (
        ((right, rude), {"right": 1.0, "rude": 0.0}, 1.0),
        ((right, rude), {"right": 1.0, "rude": 1.0}, 1 / 3),
        ((right, rude), {"right": 0.0, "rude": 1.0}, 0.0),  # and not -2/3
        ((right, safe), {"right": 1.0, "safe": 0.5}, 0.0),
        ((right, safe), {"right": 0.0, "safe": 1.0}, 0.25),
    ):
        assert reward_of(criteria, values) == pytest.approx(reward)


def test_rewards_of_decimal_weights_are_decimals() -> None:
    """Binary sums come to 0.7999999999999999 and 0.30000000000000004: below a filter's 0.8, and no tie with 0.3."""
    for weights, met, reward in (
        ((0.7, 0.1, 0.2), "ab", 0.8),
        ((0.7, 0.1, 0.2), "ac", 0.9),
        ((0.1, 0.2, 0.3, 0.4), "ab", 0.3),
    ):
        criteria = [Criterion(name, "?", weight) for name, weight in zip("abcd", weights, strict=False)]
        assert reward_of(criteria, {criterion.name: float(criterion.name in met) for criterion in criteria}) == reward


def test_criteria_of_public_data_sets_are_read() -> None:
    healthbench = [
        {"criterion": "Names the dose", "points": 5, "tags": []},
        {"criterion": "Guesses", "points": -3, "tags": []},
    ]
    assert [(item.name, item.text, item.weight) for item in read_criteria(json.dumps(healthbench))] == [
        ("c1", "Names the dose", 5.0),
        ("c2", "Guesses", -3.0),
    ]
    gym = {"criteria": [{"criterion": "Has a table", "score": 2, "rubric_item_id": "7f", "required": None, "date": "2026"}]}
    assert read_criteria(json.dumps(gym)) == (Criterion("c1", "Has a table", 2.0),)
    evolving = [{"title": "Dose", "description": "Names it", "weight": 1, "names": [], "point": 2}]
    assert read_criteria(json.dumps(evolving)) == (Criterion("Dose", "Names it", 1.0),)
    assert read_criteria(json.dumps(["It is right."])) == (Criterion("c1", "It is right."),)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([], "a list of 1 to 100"),
        ("right", "a list of 1 to 100"),
        ([{"weight": 1}], "criterion 1 has no `text`"),
        ([{"text": "a", "weight": "3"}], "its weight must be a number"),
        ([{"text": "a", "weight": 10**400}], "its weight must be a number, at most 1,000,000"),
        ([{"text": "a", "choices": []}], "two or more different words"),
        ([{"text": "a", "weight": -1}], "no criterion has a weight above 0"),
        ([{"text": "a", "name": "x"}, {"text": "b", "name": "x"}], "the same name"),
        ([{"text": "a", "name": "score"}], "called 'score', as an output of Assay is"),
        ([{"text": "a", "choices": ["yes"]}], "two or more different words"),
        ([{"text": "a", "gate": "yes"}], "gate must be true or false"),
        ([7], "criterion 1 is neither a text nor an object"),
        ([{"text": "a", "wieght": 5}], "criterion 1 has the key 'wieght', and no `weight`; write it so"),
        ([{"text": "a"}, {"text": "b", "Gate": True}], "criterion 2 has the key 'Gate', and no `gate`"),
        ([{"text": "a", "point": 5}], "the key 'point', and no `points`"),
        ([{"text": "a", "choice": ["bad", "good"]}], "the key 'choice', and no `choices`"),
        ([{"discription": "a", "weight": 5}], "the key 'discription', and no `description`"),
    ],
)
def test_what_is_wrong_with_criteria_is_said(listed: object, message: str) -> None:
    with pytest.raises(Rejected, match=message) as refused:
        read_criteria(json.dumps(listed))
    assert refused.value.reason is Reason.WRONG_TYPE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judge_folder(tmp_path_factory.mktemp("criteria") / "judge")


Reply = Callable[[str], str]


def request(criteria: object = CRITERIA, **fields: str) -> ScoreRequest:
    context = (Message(Role.USER, "What is 3 + 4?"),)
    return ScoreRequest(context, (Response("final", "7"),), fields={"criteria": json.dumps(criteria), **fields})


def scored(folder: Path, reply: Reply, **settings: Any) -> tuple[Score, list[str]]:
    """The score by an engine that answers a prompt's text with `reply`, and the prompts' texts."""
    model = judge_model(folder, "criteria", **settings)
    renderer = Renderer(model, RenderSettings())
    decode = renderer.tokenizer.pretrained.decode
    rendered = renderer.render([request(reference="seven")])
    with closing(FakeEngine(0, 9999, reply=lambda ids, sampling, number: reply(decode(ids)))) as engine:
        ((score,),) = scorer_of(model, engine).score_block(rendered)
    return score, [decode(prompt.ids) for prompt in rendered[0].prompts]


def answer(words: Mapping[str, str]) -> str:
    return json.dumps({name: {"reason": "so", "verdict": word} for name, word in words.items()})


def test_all_at_once_and_each_by_itself_come_to_the_same(folder: Path) -> None:
    def answer_what_is_there(prompt: str) -> str:
        return answer({name: word for name, word in ALL_GIVEN.items() if f"- {name}: " in prompt})

    at_once, (prompt,) = scored(folder, answer_what_is_there)
    assert "An answer that is known to be good:\nseven\n" in prompt
    assert "- c3: It is short. (no, partly, yes)" in prompt
    by_itself, prompts = scored(folder, answer_what_is_there, criteria_calls="each")
    assert [sum(f"- {name}: " in text for name in ALL_GIVEN) for text in prompts] == [1, 1, 1]
    for score in (at_once, by_itself):
        assert score.reward == score.scores["score"] == pytest.approx((3 * 1 - 1 * 0 + 0.5) / (3 + 1))
        assert {name: score.scores[name] for name in ALL_GIVEN} == {"right": 1.0, "rude": 0.0, "c3": 0.5}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (answer({"right": "yes", "rude": "no"}), Reason.NO_VERDICT),
        (answer({**ALL_GIVEN, "c3": "maybe"}), Reason.NO_VERDICT),
        (json.dumps({**ALL_GIVEN}), Reason.NO_VERDICT),
        ("All is well.", Reason.NO_VERDICT),
        (answer(ALL_GIVEN) + " " + answer({**ALL_GIVEN, "rude": "yes"}), Reason.TWO_VERDICTS),
    ],
)
def test_a_criterion_without_a_verdict_leaves_no_reward(folder: Path, text: str, reason: Reason) -> None:
    score, _ = scored(folder, lambda prompt: text)
    assert (score.status, score.reason, score.reward) == (Status.FAILED, reason, None)


def test_of_criteria_by_themselves_each_must_have_a_verdict(folder: Path) -> None:
    score, _ = scored(
        folder, lambda prompt: "?" if "- c3: " in prompt else answer({"right": "yes", "rude": "no"}), criteria_calls="each"
    )
    assert (score.status, score.reason) == (Status.FAILED, Reason.NO_VERDICT)


class TestTinyCriteria(JudgeContract):
    model = "tiny-criteria"
    dialect = "criteria"

    def right(self, result: Judged) -> Iterator[bool]:
        """For each criterion, whether its value is that of the right word."""
        ((answer,), (score,)) = result.judgement.case.answers, result.scores
        for item in result.judgement.fields["criteria"]:
            words = item.get("choices", ("no", "yes"))
            yield score.scores.get(item["name"]) == words.index(verdict_word(answer, item["text"])) / (len(words) - 1)

    def test_reading_what_it_thought_would_be_noticed(self, judged: list[Judged]) -> None:
        """It can't think: what the engine holds it to begins with its first token, and has a reason before each verdict."""
        assert all(score.trace[0].text.startswith("{") for result in judged for score in result.scores)

    def test_each_by_itself_is_judged_as_all_at_once(self, engine: Engine, judged: list[Judged]) -> None:
        at_once = judged[:60]
        by_itself = self.ask(engine, [result.judgement for result in at_once], criteria_calls="each")
        assert {len(result.rendered.prompts) for result in by_itself} == {1, 2, 3}
        same = [result.scores[0].reward == other.scores[0].reward for result, other in zip(at_once, by_itself, strict=True)]
        assert sum(same) / len(same) >= RIGHT

    def test_it_is_held_to_names_and_words(self, engine: Engine) -> None:
        names = [
            {"name": 'with "quotes" and é', "text": "Is it right?", "gate": True},
            {"text": "?", "choices": ["bad", "ok", "good"]},
        ]
        rendered = Renderer(self.resolved(), RenderSettings()).render([request(), request(names)])
        scores = scorer_of(self.resolved(), engine).score_block(rendered)
        for (score,), listed in zip(scores, (CRITERIA, names), strict=True):
            (written,) = score.trace
            criteria = read_criteria(json.dumps(listed))
            verdicts = json.loads(written.text)
            assert [*verdicts] == [criterion.name for criterion in criteria]
            values = {
                criterion.name: criterion.choices.index(verdicts[criterion.name]["verdict"]) / (len(criterion.choices) - 1)
                for criterion in criteria
            }
            assert {name: score.scores[name] for name in values} == values
            assert score.reward == pytest.approx(reward_of(criteria, values))
        assert asdict(criteria[0])["gate"] is True
