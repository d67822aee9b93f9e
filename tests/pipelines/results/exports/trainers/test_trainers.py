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
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat
from pipelines.results.exports.trainer_messages import Refusal
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from tests.support.candidates import saying

ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def turns(roles: str) -> tuple[Message, ...]:
    """A conversation of these roles, in which everybody says who they are and where: `u1`."""
    return tuple(Message(ROLES[role], f"{role}{index}") for index, role in enumerate(roles))


def response(text: str, context: str = "suau", reward: float = 1.0, **scores: float) -> Candidate:
    return saying(turns(context), text, reward, scores, row="0:1", prompt_hash="0123456789abcdef")


def pair(context: str = "suau", chosen: str = "good", rejected: str = "bad") -> PreferencePair:
    return PreferencePair(response(chosen, context, 2.5), response(rejected, context, 1.0))


def pair_rows(name: str, *given: PreferencePair) -> list[dict[str, Any]]:
    return [row for item in given for row in PAIR_FORMATS[name].rows(item)]


def response_rows(name: str, *given: Candidate, threshold: float | None = None) -> list[dict[str, Any]]:
    return list(RESPONSE_FORMATS[name].rows(given, Labels(threshold)))


def same(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> None:
    """Equal to the byte as JSON, so in the order of their keys too."""
    assert [json.dumps(row) for row in found] == [json.dumps(row) for row in expected]


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
        assert PAIR_FORMATS[name].check(pair()) is None
        same(pair_rows(name, pair()), rows)


def test_openrlhfs_iterative_dpo_is_strings() -> None:
    row = {"prompt": "u0", "chosen": "good", "chosen_reward": 2.5, "rejected": "bad", "rejected_reward": 1.0}
    assert PAIR_FORMATS["openrlhf-iter-dpo"].check(pair("u")) is None
    same(pair_rows("openrlhf-iter-dpo", pair("u")), [row])


def test_without_a_system_turn_nemos_preferences_have_an_empty_one() -> None:
    begin = "<extra_id_0>System\n\n<extra_id_1>User\nu0\n<extra_id_1>Assistant\n"
    same(pair_rows("nemo-aligner-rm", pair("u")), [{"text": f"{begin}{text}\n<extra_id_1>"} for text in ("good", "bad")])
    (row,) = response_rows("nemo-aligner-kto", response("good", "u"), threshold=0.0)
    assert row["prompt"] == begin
    (row,) = pair_rows("nemo-aligner-dpo", pair("u"))
    assert row["prompt"] == [{"role": "user", "content": "u0"}], "the trainer puts it there itself"


def test_the_lines_of_a_pair_are_next_to_each_other() -> None:
    texts = [row["text"] for row in pair_rows("nemo-aligner-rm", pair("u"), pair("u", "better", "worse"))]
    assert [text.removesuffix("\n<extra_id_1>").rpartition("\n")[2] for text in texts] == ["good", "bad", "better", "worse"]


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


def test_what_needs_a_threshold_says_so() -> None:
    for name in RESPONSE_FORMATS:
        made = RESPONSE_FORMATS[name]
        rated = response("a", helpfulness=1.0, correctness=1.0, coherence=1.0, complexity=1.0, verbosity=1.0)
        if made.needs_threshold:
            with pytest.raises(SettingsError, match="threshold"):
                response_rows(name, rated)
        else:
            assert response_rows(name, rated)


def test_fine_tuning_takes_conversations() -> None:
    same(response_rows("sft", response("good")), [{"messages": [*PROMPT, GOOD]}])


def test_fine_tuning_on_turns_has_a_row_for_each_with_what_was_before_it_as_the_prompt() -> None:
    first, last = response("a1", "u"), response("a3", "uau")
    assert response_rows("sft-turns", first, last) == [*response_rows("sft-turns", first), *response_rows("sft-turns", last)]
    same(response_rows("sft-turns", response("good")), [{"prompt": PROMPT, "completion": [GOOD]}])


def judged(context: str, text: str, **scores: float) -> Candidate:
    """A turn with scores: the five of HelpSteer are 3, 4, 4, 2 and 1, unless told otherwise."""
    helpsteer = {"helpfulness": 3.0, "correctness": 4.0, "coherence": 4.0, "complexity": 2.0, "verbosity": 1.0}
    return response(text, context, 1.0, **{**helpsteer, **scores})


LABEL = "helpfulness:3,correctness:4,coherence:4,complexity:2,verbosity:1"


def talk(*said: tuple[str, str, str | None], system: str = "s0") -> dict[str, Any]:
    listed = [{"value": value, "from": name, "label": label} for name, value, label in said]
    return {"conversations": listed, "system": system, "mask": "User", "type": "VALUE_TO_TEXT"}


def test_a_steerlm_row() -> None:
    same(
        response_rows("steerlm", judged("suau", "good")),
        [talk(("User", "u1", None), ("Assistant", "a2", None), ("User", "u3", None), ("Assistant", "good", LABEL))],
    )


def test_labels_are_rounded_as_attribute_annotate_does() -> None:
    cases: list[tuple[float, str]] = [
        (-0.4, "0"),
        (-7.0, "0"),
        (0.49, "0"),
        (0.5, "0"),
        (1.5, "2"),
        (2.5, "2"),
        (3.5, "4"),
        (3.49, "3"),
        (4.6, "4"),
        (9.0, "4"),
    ]
    for score, text in cases:
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


def test_a_conversation_that_a_format_cant_hold_is_refused() -> None:
    for context, expected in REFUSED:
        result = {name: made.check(pair(context)) for name, made in PAIR_FORMATS.items()}
        result |= {name: made.check(judged(context, "a")) for name, made in RESPONSE_FORMATS.items()}
        assert {name: reason for name, reason in result.items() if reason} == {
            name: reason for reason, names in expected.items() for name in names
        }


def test_a_token_of_nemos_template_is_refused_wherever_it_is() -> None:
    for name in sorted(NEMO):
        for token in ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>", "<extra_id_17>"):
            words = f"x {token} y"
            request = [(Message(Role.SYSTEM, words), *turns("u")), (Message(Role.USER, words),)]
            contexts = [turns("u"), turns("u"), *request, (Message(Role.USER, "<extra_id> 1"),)]
            texts = [(words, "b"), ("a", words), ("a", "b"), ("a", "b"), ("a", "extra_id_1")]
            reasons = []
            for context, (good, bad) in zip(contexts, texts, strict=True):
                sides = [saying(context, text, reward, judged("u", "").scores) for text, reward in ((good, 2.0), (bad, 1.0))]
                if name in PAIR_FORMATS:
                    reasons.append(PAIR_FORMATS[name].check(PreferencePair(*sides)))
                else:
                    result = {RESPONSE_FORMATS[name].check(side) for side in sides}
                    reasons.append(next(iter(result - {None}), None))
            assert reasons == [Refusal.CONTROL_TOKEN] * 4 + [None]


@pytest.mark.parametrize("name", ["steerlm", "steerlm-regression"])
@pytest.mark.parametrize("missing", ["helpfulness", "verbosity"])
def test_a_response_without_the_five_attributes_is_refused(name: str, missing: str) -> None:
    scores = {score: value for score, value in judged("u", "a").scores.items() if score != missing}
    assert missing in RESPONSE_FORMATS[name].needs_scores
    assert RESPONSE_FORMATS[name].check(response("a", "u", **scores)) == "missing_score"


# --- all of them ---------------------------------------------------------------------------------------------------


def test_formats_are_known_by_their_names_and_say_where_they_are_from() -> None:
    pair_formats: list[PairFormat | ResponseFormat] = [*PAIR_FORMATS.values(), *RESPONSE_FORMATS.values()]
    assert [made.name for made in pair_formats] == [*PAIR_FORMATS, *RESPONSE_FORMATS]
    assert all(made.about and made.source for made in pair_formats)
    assert not PAIR_FORMATS.keys() & RESPONSE_FORMATS.keys()


def test_formats_go_to_workers() -> None:
    for name, made in PAIR_FORMATS.items():
        assert list(pickle.loads(pickle.dumps(made)).rows(pair("u"))) == pair_rows(name, pair("u"))


def test_every_file_holds_a_format_and_every_format_has_a_name_of_its_own() -> None:
    modules = [
        importlib.import_module(f"{trainers.__name__}.{module.name}") for module in pkgutil.iter_modules(trainers.__path__)
    ]
    formats = [made for module in modules for kind in ("PAIRS", "RESPONSES") for made in getattr(module, kind, ())]
    assert all(hasattr(module, "PAIRS") or hasattr(module, "RESPONSES") for module in modules)
    assert sorted([*PAIR_FORMATS, *RESPONSE_FORMATS]) == sorted(made.name for made in formats)
    assert len(modules) >= 7


# --- fields of the input that come along ---------------------------------------------------------------------------


def test_a_format_of_pairs_reserves_its_own_columns() -> None:
    for name in PAIR_FORMATS:
        assert {column for row in pair_rows(name, pair("u")) for column in row} <= {*PAIR_FORMATS[name].reserved}


def test_a_format_of_responses_reserves_its_own_columns() -> None:
    for name in RESPONSE_FORMATS:
        rows = response_rows(name, judged("u", "a"), threshold=0.0)
        assert {column for row in rows for column in row} <= {*RESPONSE_FORMATS[name].reserved}


def test_trl_reserves_what_tells_it_the_kind_of_a_row() -> None:
    assert {"prompt", "completion", "label_margin", "text", "tools", "input_ids"} <= {*PAIR_FORMATS["trl-implicit"].reserved}
