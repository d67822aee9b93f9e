"""The rows of each trainer's format, written out by hand, and what a format refuses to hold."""

import importlib
import json
import pickle
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from actors.errors import SettingsError
from actors.models.attributes import SYSTEM_TURN
from actors.records import Message, Role
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports import trainers
from pipelines.results.exports.trainer_format import Labels, TrainerFormat
from pipelines.results.exports.trainer_messages import Refusal
from pipelines.results.exports.trainers import FORMATS, PAIR_FORMATS, RESPONSE_FORMATS
from tests.support.candidates import saying

ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def turns(roles: str) -> tuple[Message, ...]:
    """A conversation of these roles, in which everybody says who they are and where: `u1`."""
    return tuple(Message(ROLES[role], f"{role}{index}") for index, role in enumerate(roles))


def response(text: str, context: str = "suau", reward: float = 1.0, **scores: float) -> Candidate:
    return saying(turns(context), text, reward, scores, row="0:1", prompt_hash="0123456789abcdef")


def pair(context: str = "suau", chosen: str = "good", rejected: str = "bad") -> PreferencePair:
    return PreferencePair(response(chosen, context, 2.5), response(rejected, context, 1.0))


def pair_rows(name: str, *pairs: PreferencePair) -> list[dict[str, Any]]:
    return [row for each in pairs for row in PAIR_FORMATS[name].rows(each)]


def response_rows(name: str, *given: Candidate, threshold: float | None = None) -> list[dict[str, Any]]:
    return list(RESPONSE_FORMATS[name].rows(given, Labels(threshold)))


def same(rows: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> None:
    """Equal to the byte as JSON, so in the order of their keys too."""
    assert [json.dumps(row) for row in rows] == [json.dumps(row) for row in expected]


PROMPT = [
    {"role": "system", "content": "s0"},
    {"role": "user", "content": "u1"},
    {"role": "assistant", "content": "a2"},
    {"role": "user", "content": "u3"},
]
GOOD, BAD = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}
HUMAN = [
    {"from": "system", "value": "s0"},
    {"from": "human", "value": "u1"},
    {"from": "gpt", "value": "a2"},
    {"from": "human", "value": "u3"},
]
TEXT = (
    "<extra_id_0>System\ns0\n<extra_id_1>User\nu1\n<extra_id_1>Assistant\na2\n<extra_id_1>User\nu3\n<extra_id_1>Assistant\n"
)

PAIRS: dict[str, list[dict[str, Any]]] = {
    "trl": [
        {"prompt": PROMPT, "chosen": [GOOD], "rejected": [BAD], "margin": 1.5, "score_chosen": 2.5, "score_rejected": 1.0}
    ],
    "trl-implicit": [
        {"chosen": [*PROMPT, GOOD], "rejected": [*PROMPT, BAD], "margin": 1.5, "score_chosen": 2.5, "score_rejected": 1.0}
    ],
    "trl-reward": [{"chosen": [*PROMPT, GOOD], "rejected": [*PROMPT, BAD], "margin": 1.5}],
    "openrlhf": [{"prompt": PROMPT, "chosen": [GOOD], "rejected": [BAD], "margin": 1.5}],
    "nemo-rl": [
        {"context": PROMPT, "completions": [{"rank": 0, "completion": [GOOD]}, {"rank": 1, "completion": [BAD]}]},
    ],
    "nemo-aligner-dpo": [{"prompt": PROMPT, "chosen_response": GOOD, "rejected_response": BAD}],
    "nemo-aligner-rpo": [
        {
            "prompt": PROMPT,
            "chosen_response": GOOD,
            "rejected_response": BAD,
            "chosen_reward": 2.5,
            "rejected_reward": 1.0,
        }
    ],
    "nemo-aligner-rm": [{"text": TEXT + "good\n<extra_id_1>"}, {"text": TEXT + "bad\n<extra_id_1>"}],
    "open-instruct": [
        {
            "chosen": [*PROMPT, GOOD],
            "rejected": [*PROMPT, BAD],
            "chosen_score": {"reward": 2.5},
            "rejected_score": {"reward": 1.0},
        }
    ],
    "llama-factory": [
        {"conversations": HUMAN, "chosen": {"from": "gpt", "value": "good"}, "rejected": {"from": "gpt", "value": "bad"}}
    ],
}


def test_a_pair_in_each_format() -> None:
    for name, rows in PAIRS.items():
        assert PAIR_FORMATS[name].refuse(pair()) is None
        same(pair_rows(name, pair()), rows)
    row = {"prompt": "u0", "chosen": "good", "chosen_reward": 2.5, "rejected": "bad", "rejected_reward": 1.0}
    same(pair_rows("openrlhf-iter-dpo", pair("u")), [row])
    assert {*PAIRS, "openrlhf-iter-dpo"} == {*PAIR_FORMATS}


def test_without_a_system_turn_nemos_preferences_have_an_empty_one() -> None:
    begin = "<extra_id_0>System\n\n<extra_id_1>User\nu0\n<extra_id_1>Assistant\n"
    same(pair_rows("nemo-aligner-rm", pair("u")), [{"text": f"{begin}{text}\n<extra_id_1>"} for text in ("good", "bad")])
    (row,) = response_rows("nemo-aligner-kto", response("good", "u"), threshold=0.0)
    assert row["prompt"] == begin
    (row,) = pair_rows("nemo-aligner-dpo", pair("u"))
    assert row["prompt"] == [{"role": "user", "content": "u0"}], "the trainer puts it there itself"


# --- single responses ----------------------------------------------------------------------------------------------

KTO: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "kto": (
        {"prompt": PROMPT, "completion": [GOOD], "label": True},
        {"prompt": PROMPT, "completion": [BAD], "label": False},
    ),
    "nemo-aligner-kto": (
        {"prompt": TEXT, "response": "good\n<extra_id_1>", "preference": "chosen"},
        {"prompt": TEXT, "response": "bad\n<extra_id_1>", "preference": "rejected"},
    ),
    "llama-factory-kto": (
        {"conversations": [*HUMAN, {"from": "gpt", "value": "good"}], "kto_tag": True},
        {"conversations": [*HUMAN, {"from": "gpt", "value": "bad"}], "kto_tag": False},
    ),
}


@pytest.mark.parametrize("name", KTO)
def test_a_reward_of_the_threshold_is_desirable(name: str) -> None:
    same(response_rows(name, response("good", reward=2.0), response("bad", reward=1.9), threshold=2.0), KTO[name])
    with pytest.raises(SettingsError, match="threshold"):
        response_rows(name, response("good"))


def test_fine_tuning_on_turns_has_a_row_for_each_with_what_was_before_it_as_the_prompt() -> None:
    first, last = response("a1", "u"), response("a3", "uau")
    assert response_rows("sft-turns", first, last) == [*response_rows("sft-turns", first), *response_rows("sft-turns", last)]
    same(response_rows("sft-turns", response("good")), [{"prompt": PROMPT, "completion": [GOOD]}])
    same(response_rows("sft", response("good")), [{"messages": [*PROMPT, GOOD]}])


def judged(context: str, text: str, **scores: float) -> Candidate:
    """A turn with scores: the five of HelpSteer are 3, 4, 4, 2 and 1, unless told otherwise."""
    helpsteer = {"helpfulness": 3.0, "correctness": 4.0, "coherence": 4.0, "complexity": 2.0, "verbosity": 1.0}
    return response(text, context, 1.0, **{**helpsteer, **scores})


LABEL = "helpfulness:3,correctness:4,coherence:4,complexity:2,verbosity:1"


def talk(*triples: tuple[str, str, str | None], system: str = "s0") -> dict[str, Any]:
    listed = [{"value": value, "from": name, "label": label} for name, value, label in triples]
    return {"conversations": listed, "system": system, "mask": "User", "type": "VALUE_TO_TEXT"}


def test_a_steerlm_row() -> None:
    same(
        response_rows("steerlm", judged("suau", "good")),
        [talk(("User", "u1", None), ("Assistant", "a2", None), ("User", "u3", None), ("Assistant", "good", LABEL))],
    )


def test_labels_are_rounded_as_attribute_annotate_does() -> None:
    for score, text in ((-7.0, "0"), (0.5, "0"), (1.5, "2"), (2.5, "2"), (3.49, "3"), (9.0, "4")):
        (row,) = response_rows("steerlm", judged("u", "a", helpfulness=score))
        assert row["conversations"][-1]["label"] == LABEL.replace("helpfulness:3", f"helpfulness:{text}")


def test_all_nine_attributes_are_in_nemos_order() -> None:
    (row,) = response_rows("steerlm", judged("u", "a", humor=0.0, creativity=1.0, toxicity=2.0, quality=4.0, length=9.0))
    assert row["conversations"][-1]["label"] == f"quality:4,toxicity:2,humor:0,creativity:1,{LABEL}"


def test_the_judged_turns_of_a_conversation_are_one_row() -> None:
    first, last = judged("u", "a1"), judged("uauau", "end", verbosity=4.0)
    rows = response_rows("steerlm", first, last)
    expected = talk(
        ("User", "u0", None), ("Assistant", "a1", LABEL), ("User", "u2", None), ("Assistant", "a3", None),
        ("User", "u4", None), ("Assistant", "end", LABEL.replace("verbosity:1", "verbosity:4")),
        system=SYSTEM_TURN,
    )  # fmt: skip
    same(rows, [expected])
    same(response_rows("sft", first, last), response_rows("sft", last))
    texts = [row["text"] for row in response_rows("steerlm-regression", first, last)]
    assert [text.count("<extra_id_1>") for text in texts] == [2, 6], "of a regression's rows each has a turn of its own"


@pytest.mark.parametrize("name", ["steerlm", "sft"])
def test_alternatives_are_rows_of_their_own(name: str) -> None:
    alternatives = [judged("u", "a"), judged("u", "b"), judged("uau", "c"), judged("uau", "a3")]
    assert len(response_rows(name, *alternatives)) == 4
    assert response_rows(name, *alternatives) == [
        row for alternative in alternatives for row in response_rows(name, alternative)
    ]


def test_a_regression_row_has_nine_numbers_as_the_model_gave_them() -> None:
    rated = judged("suau", "good", helpfulness=4.25, humor=-0.5)
    label = [-100.0, -100.0, -0.5, -100.0, 4.25, 4.0, 4.0, 2.0, 1.0]
    same(response_rows("steerlm-regression", rated), [{"text": TEXT + "good\n<extra_id_2>", "label": label}])


def test_without_a_system_turn_attributes_have_nemos_own() -> None:
    (row,) = response_rows("steerlm-regression", judged("u", "a"))
    begin = f"<extra_id_0>System\n{SYSTEM_TURN}\n<extra_id_1>User\nu0\n<extra_id_1>Assistant\na\n<extra_id_2>"
    assert row["text"] == begin
    (row,) = response_rows("steerlm", judged("u", "a"))
    assert row["system"] == SYSTEM_TURN


# --- what is refused -----------------------------------------------------------------------------------------------

ANY = {"trl-reward", "openrlhf", "nemo-rl", "open-instruct", "sft"}
"""Formats of messages alone: whether a model's template takes them is for the model to say."""
NEMO = {name for name in (*PAIR_FORMATS, *RESPONSE_FORMATS) if name.startswith(("nemo-aligner", "steerlm"))}
TRL = {"trl", "trl-implicit", "kto", "sft-turns"}
LLAMA = {"llama-factory", "llama-factory-kto"}
ONE = {"openrlhf-iter-dpo"}

REFUSED: list[tuple[str, dict[Refusal, set[str]]]] = [
    ("u", {}),
    ("su", {Refusal.NOT_ONE_TURN: ONE}),
    ("uau", {Refusal.NOT_ONE_TURN: ONE}),
    ("uatu", {Refusal.NOT_ONE_TURN: ONE, Refusal.TOOL_TURN: NEMO | LLAMA}),
    ("ut", {Refusal.NOT_ONE_TURN: ONE, Refusal.TOOL_TURN: NEMO | LLAMA}),
    ("ssu", {Refusal.NOT_ONE_TURN: ONE, Refusal.LATER_SYSTEM_TURN: NEMO | LLAMA}),
    ("usu", {Refusal.NOT_ONE_TURN: ONE, Refusal.LATER_SYSTEM_TURN: NEMO | LLAMA}),
    ("uu", {Refusal.NOT_ONE_TURN: ONE, Refusal.NOT_ALTERNATING: LLAMA}),
    ("au", {Refusal.NOT_ONE_TURN: ONE, Refusal.NOT_ALTERNATING: LLAMA}),
    ("ua", {Refusal.NOT_ONE_TURN: ONE, Refusal.NOT_ALTERNATING: LLAMA, Refusal.NO_QUESTION: TRL}),
    (
        "s",
        {
            Refusal.NOT_ONE_TURN: ONE,
            Refusal.NOT_ALTERNATING: LLAMA,
            Refusal.NO_QUESTION: TRL,
            Refusal.NO_USER_TURN: {"steerlm", "steerlm-regression"},
        },
    ),
]


def test_every_format_is_in_one_of_these_groups() -> None:
    groups = [ANY, NEMO, TRL, LLAMA, ONE]
    assert sorted(name for group in groups for name in group) == sorted([*PAIR_FORMATS, *RESPONSE_FORMATS])


def test_what_a_format_cant_hold_is_refused() -> None:
    for context, expected in REFUSED:
        reasons = {name: form.refuse(pair(context)) for name, form in PAIR_FORMATS.items()}
        reasons |= {name: form.check(judged(context, "a")) for name, form in RESPONSE_FORMATS.items()}
        assert {name: reason for name, reason in reasons.items() if reason} == {
            name: reason for reason, names in expected.items() for name in names
        }
    for name in ("steerlm", "steerlm-regression"):
        assert RESPONSE_FORMATS[name].check(response("a", "u", helpfulness=1.0)) == "missing_score"
        assert {"helpfulness", "verbosity"} < {*RESPONSE_FORMATS[name].needs_scores}


@pytest.mark.parametrize("token", ["<extra_id_0>", "<extra_id_1>", "<extra_id_17>"])
def test_a_token_of_nemos_template_is_refused_wherever_it_is(token: str) -> None:
    words, scores = f"x {token} y", judged("u", "").scores
    system, question = (Message(Role.SYSTEM, words), *turns("u")), (Message(Role.USER, words),)
    for context, texts in ((turns("u"), (words, "b")), (turns("u"), ("a", words)), (system, "ab"), (question, "ab")):
        chosen, rejected = (saying(context, text, 1.0, scores) for text in texts)
        for name in NEMO & PAIR_FORMATS.keys():
            assert PAIR_FORMATS[name].refuse(PreferencePair(chosen, rejected)) is Refusal.CONTROL_TOKEN
        for name in NEMO & RESPONSE_FORMATS.keys():
            assert Refusal.CONTROL_TOKEN in {RESPONSE_FORMATS[name].check(side) for side in (chosen, rejected)}
    near = saying((Message(Role.USER, "<extra_id> 1"),), "extra_id_1", 1.0, scores)
    assert {FORMATS[name].check(near) for name in NEMO} == {None}


# --- all of them ---------------------------------------------------------------------------------------------------


def test_every_file_holds_formats_and_no_two_have_one_name() -> None:
    modules = [
        importlib.import_module(f"{trainers.__name__}.{module.name}") for module in pkgutil.iter_modules(trainers.__path__)
    ]
    formats = [form for module in modules for form in module.FORMATS]
    assert sorted(form.name for form in formats) == sorted(trainers.FORMATS) == sorted([*PAIR_FORMATS, *RESPONSE_FORMATS])
    assert all(isinstance(form, TrainerFormat) and form.about and form.source for form in formats)


def test_formats_go_to_workers() -> None:
    for name, form in PAIR_FORMATS.items():
        assert list(pickle.loads(pickle.dumps(form)).rows(pair("u"))) == pair_rows(name, pair("u"))


def test_a_format_reserves_its_own_columns() -> None:
    rows = {name: pair_rows(name, pair("u")) for name in PAIR_FORMATS}
    rows |= {name: response_rows(name, judged("u", "a"), threshold=0.0) for name in RESPONSE_FORMATS}
    for name, form in trainers.FORMATS.items():
        assert {column for row in rows[name] for column in row} <= {*form.reserved}
    # By these, too, TRL tells what a row is.
    assert {"prompt", "completion", "label_margin", "text", "tools", "input_ids"} <= {*PAIR_FORMATS["trl-implicit"].reserved}
