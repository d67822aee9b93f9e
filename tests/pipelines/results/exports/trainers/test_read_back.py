"""Rows for trainers, read back by Assay's own readers: the same contexts, the same texts, the same side; and real rows."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.models.attributes import ATTRIBUTES, SYSTEM_TURN
from actors.records import Message, Role
from pipelines.data.formats import SHAPES, RowShape, parse, requests
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.trainer_format import Labels
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.results.exports.trainers.nemo_attributes import ORDER
from tests.support.candidates import saying, with_content

Side = tuple[tuple[Message, ...], str]
"""A context and the response to it."""

READERS = {
    **dict.fromkeys(["trl", "trl-implicit", "trl-reward", "openrlhf", "openrlhf-iter-dpo", "open-instruct"], "preference"),
    "nemo-rl": "nemo-rl",
    **dict.fromkeys(["nemo-aligner-dpo", "nemo-aligner-rpo", "nemo-aligner-kto"], "nemo-preference"),
    **dict.fromkeys(["nemo-aligner-rm", "steerlm-regression"], "written-out"),
    "steerlm": "steerlm",
    "llama-factory": "sharegpt-preference",
    "llama-factory-kto": "sharegpt",
    "kto": "prompt-completion",
    "sft-turns": "prompt-completion",
    "sft": "messages",
}
NUMBERS: dict[str, tuple[str, ...]] = {
    "trl": ("margin", "score_chosen", "score_rejected"),
    "trl-implicit": ("margin", "score_chosen", "score_rejected"),
    "trl-reward": ("margin",),
    "openrlhf": ("margin",),
    "openrlhf-iter-dpo": ("chosen_reward", "rejected_reward"),
    "nemo-aligner-rpo": ("chosen_reward", "rejected_reward"),
    "open-instruct": ("chosen_score", "rejected_score"),
}
"""What a format says of the rewards."""
MEANT: dict[str, Callable[[PreferencePair], Any]] = {
    "margin": lambda pair: pair.chosen.reward - pair.rejected.reward,
    **dict.fromkeys(["score_chosen", "chosen_reward"], lambda pair: pair.chosen.reward),
    **dict.fromkeys(["score_rejected", "rejected_reward"], lambda pair: pair.rejected.reward),
    "chosen_score": lambda pair: {"reward": pair.chosen.reward},
    "rejected_score": lambda pair: {"reward": pair.rejected.reward},
}
KTO_LABELS = {"kto": "label", "nemo-aligner-kto": "preference", "llama-factory-kto": "kto_tag"}


def read_sides(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Side]:
    """What Assay's reader finds in the rows, after JSON: the chosen side, or rank 0, before the other."""
    shape = SHAPES[READERS[name]]
    for row in rows:
        read = parse(json.dumps(row).encode())
        assert isinstance(read, dict)
        assert shape.looks_like(read)
        is_written_out = shape.name == "nemo-preference" and isinstance(read["prompt"], str)
        question = RowShape(shape.name, written_out=is_written_out).requests(read)
        assert not question.rejected
        result = {
            response.name: (request.context, response.content)
            for request in question.requests
            for response in request.responses
        }
        yield from (result[side] for side in sorted(result))


def meant(name: str, candidate: Candidate) -> Side:
    """What the reader should find: NeMo's attribute formats have its own system turn where there was none."""
    context = candidate.context
    if name.startswith("steerlm") and context[0].role is not Role.SYSTEM:
        context = (Message(Role.SYSTEM, SYSTEM_TURN), *context)
    return context, candidate.text


def faithful_pair(name: str, pair: PreferencePair, rows: Sequence[Mapping[str, Any]]) -> None:
    """Assert that the rows say what the pair is."""
    assert list(read_sides(name, rows)) == [meant(name, pair.chosen), meant(name, pair.rejected)]
    for key in NUMBERS.get(name, ()):
        assert rows[0][key] == MEANT[key](pair)


def faithful_response(name: str, candidate: Candidate, rows: Sequence[Mapping[str, Any]], labels: Labels) -> None:
    """Assert that the one row says what the response is, and how it was judged."""
    assert list(read_sides(name, rows)) == [meant(name, candidate)]
    (row,) = rows
    assert labels.threshold is not None
    desirable = candidate.reward >= labels.threshold
    if name in KTO_LABELS:
        assert row[KTO_LABELS[name]] == (desirable if name != "nemo-aligner-kto" else "chosen" if desirable else "rejected")
    if name == "steerlm-regression":
        assert row["label"] == [candidate.scores.get(attribute, -100.0) for attribute in ORDER]
    if name == "steerlm":
        pieces = dict(part.split(":") for part in row["conversations"][-1]["label"].split(","))
        assert list(pieces) == [attribute for attribute in ORDER if attribute in candidate.scores]
        assert all(abs(int(value) - min(4.0, max(0.0, candidate.scores[key]))) <= 0.5 for key, value in pieces.items())


# --- whatever is said ----------------------------------------------------------------------------------------------

TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
    | st.sampled_from(["\na\n", " a", "a\n\n", "<|im_end|>", "User\n", '{"a": 1}', "<think>", "{}", "System\n\nx"])
).filter(lambda text: bool(text.strip()) and "<extra_id_" not in text)
NUMBER = st.floats(-50, 50)


def conversation(roles: Sequence[Role]) -> st.SearchStrategy[tuple[Message, ...]]:
    return st.tuples(*(st.builds(Message, st.just(role), TEXTS) for role in roles))


ALTERNATING = st.tuples(st.booleans(), st.integers(0, 3)).map(
    lambda drawn: [Role.SYSTEM] * drawn[0] + [Role.USER, Role.ASSISTANT] * drawn[1] + [Role.USER]
)
FREE = st.lists(st.sampled_from(list(Role)), max_size=5).map(lambda roles: [*roles, Role.USER])
CONTEXTS = (ALTERNATING | FREE | st.just([Role.USER])).flatmap(conversation)
SCORES = st.fixed_dictionaries(dict.fromkeys(ATTRIBUTES, NUMBER), optional=dict.fromkeys(["quality", "humor"], NUMBER))


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    return saying(draw(CONTEXTS), draw(TEXTS), draw(NUMBER), draw(SCORES))


@st.composite
def pairs(draw: st.DrawFn) -> PreferencePair:
    item, text, reward = draw(candidates()), draw(TEXTS), draw(NUMBER)
    better, worse = sorted(
        [item, with_content(item, text=text)._replace(reward=reward)], key=lambda candidate: -candidate.reward
    )
    return PreferencePair(better, worse)


@given(pair=pairs())
def test_pairs_come_back_as_they_were(pair: PreferencePair) -> None:
    held = [made for made in PAIR_FORMATS.values() if made.refuse(pair) is None]
    assert len(held) >= 4, "what messages can say, no format of messages may refuse"
    for made in held:
        faithful_pair(made.name, pair, list(made.rows(pair)))


@given(candidate=candidates(), labels=NUMBER.map(Labels))
def test_responses_come_back_as_they_were(candidate: Candidate, labels: Labels) -> None:
    held = [made for made in RESPONSE_FORMATS.values() if made.check(candidate) is None]
    assert "sft" in {made.name for made in held}
    for made in held:
        faithful_response(made.name, candidate, list(made.rows([candidate], labels)), labels)


@given(turns=ALTERNATING.flatmap(conversation), last=TEXTS, judged=st.sets(st.integers(0, 3)), scores=SCORES)
def test_the_judged_turns_of_a_conversation_come_back(
    turns: tuple[Message, ...], last: str, judged: set[int], scores: dict[str, float]
) -> None:
    talk = (*turns, Message(Role.ASSISTANT, last))
    places = [index for index, turn in enumerate(talk) if turn.role is Role.ASSISTANT]
    chosen = [places[index] for index in sorted(judged | {len(places) - 1}) if index < len(places)]
    rated = [saying(talk[:index], talk[index].content, 1.0, scores, name=f"turn[{index}]") for index in chosen]
    (row,) = RESPONSE_FORMATS["steerlm"].rows(rated, Labels())
    row_requests = requests(SHAPES["steerlm"], row)
    outside = talk[0].role is Role.SYSTEM
    assert row_requests.names == tuple(f"turn[{index - outside}]" for index in chosen)
    result = [(request.context, response.content) for request in row_requests.requests for response in request.responses]
    assert result == [meant("steerlm", item) for item in rated]
    assert [context for context, _ in result] == [
        context
        for context, _ in read_sides(
            "steerlm-regression", list(RESPONSE_FORMATS["steerlm-regression"].rows(rated, Labels()))
        )
    ]


# --- real rows -----------------------------------------------------------------------------------------------------


def real(path: Path, shape: str) -> Iterator[tuple[dict[str, Any], list[Candidate]]]:
    """Rows of public data, and their responses; the first has the highest reward."""
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    for row in rows:
        question = RowShape(shape, written_out=shape == "nemo-preference").requests(row)
        result = [
            (response.name, request.context, response.content)
            for request in question.requests
            for response in request.responses
        ]
        yield (
            row,
            [saying(context, text, -float(index), row="", name=name) for index, (name, context, text) in enumerate(result)],
        )


def test_nemo_aligners_own_preferences_come_out_alike(shared_data: Path) -> None:
    count = 0
    for row, (chosen, rejected) in real(shared_data / "formats/nemo-aligner_dummy-dpo.jsonl", "nemo-preference"):
        pair = PreferencePair(chosen, rejected)
        (made,) = PAIR_FORMATS["nemo-aligner-dpo"].rows(pair)
        assert list(made) == list(row)
        faithful_pair("nemo-aligner-dpo", pair, [made])
        lines = list(PAIR_FORMATS["nemo-aligner-rm"].rows(pair))
        sides = ("chosen_response", "rejected_response")
        assert lines == [{"text": row["prompt"] + row[side]} for side in sides]
        kto = list(RESPONSE_FORMATS["nemo-aligner-kto"].rows([chosen, rejected], Labels(0.0)))
        assert kto == [
            {"prompt": row["prompt"], "response": row[side], "preference": side.removesuffix("_response")} for side in sides
        ]
        count += 1
    assert count == 100


def test_nemo_aligners_own_regression_rows_come_out_alike(shared_data: Path) -> None:
    count = 0
    for row, (item,) in real(shared_data / "formats/nemo-aligner_test-rm.jsonl", "written-out"):
        scores = {name: value for name, value in zip(ORDER, row["label"], strict=True) if value != -100.0}
        rated = item._replace(scores=scores)
        (made,) = RESPONSE_FORMATS["steerlm-regression"].rows([rated], Labels())
        assert json.dumps(made) == json.dumps(row)
        (talk,) = RESPONSE_FORMATS["steerlm"].rows([rated], Labels())
        assert (talk["system"], list(talk)) == (SYSTEM_TURN, ["conversations", "system", "mask", "type"])
        assert talk["conversations"][-1]["label"] == ",".join(f"{name}:{int(value)}" for name, value in scores.items())
        count += 1
    assert count == 8


def test_llama_factorys_own_rows_come_out_alike(shared_data: Path) -> None:
    with_system = 0
    for row, (chosen, rejected) in real(shared_data / "formats/sharegpt_ranking_40.json", "sharegpt-preference"):
        pair = PreferencePair(chosen, rejected)
        assert PAIR_FORMATS["llama-factory"].refuse(pair) is None
        (made,) = PAIR_FORMATS["llama-factory"].rows(pair)
        assert json.dumps(made) == json.dumps(row)
        with_system += made["conversations"][0]["from"] == "system"
    assert with_system == 9
