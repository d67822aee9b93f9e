"""Conversations written out as one text are taken apart into turns where a corpus has many of them, or refused."""

import json
from typing import Any

import pytest

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.formats import RowShape, detect, is_written_out, note_repeated_prompts
from tests.support.parsed_rows import contexts, judged, refused, reply, user

CHATML = "<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
HUMAN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: What is 3 + 4?\n\nAssistant:"
TALK = [("user", "Hi"), ("assistant", "Hello"), ("user", "What is 3 + 4?")]
ASKED = [("user", "What is 3 + 4?")]
PROMPTS: list[tuple[str, list[tuple[str, str]]]] = [
    (CHATML, [("system", "Be nice."), *ASKED]),
    (HUMAN, TALK),
    (HUMAN.strip(), TALK),
    (HUMAN.replace("\n\n", "\n"), TALK),
    (HUMAN + " ", TALK),
    ("### Human: Hi### Assistant: Hello### Human: What is 3 + 4?### Assistant:", TALK),
    ("USER: Hi ASSISTANT: Hello</s>USER: What is 3 + 4? ASSISTANT:", TALK),
    ("<|prompter|>What is 3 + 4?<|endoftext|><|assistant|>", ASKED),
    ("<|user|>\nWhat is 3 + 4?</s>\n<|assistant|>\n", ASKED),
    ("<s>[INST] Hi [/INST] Hello </s><s>[INST] What is 3 + 4? [/INST]", TALK),
    ("<start_of_turn>user\nWhat is 3 + 4?<end_of_turn>\n<start_of_turn>model\n", ASKED),
    # As trainers dump what was decoded without special tokens.
    ("system\nBe nice.\nuser\nWhat is 3 + 4?\nassistant\n", [("system", "Be nice."), *ASKED]),
    ("user\nWhat is 3 + 4?\nmodel\n", ASKED),
]


def read(row: dict[str, Any], name: str = "prompt-response") -> Any:
    return RowShape(name, written_out=True).requests(row)


def look(rows: list[dict[str, Any]], name: str = "prompt-response") -> bool:
    """Whether a sample of rows is found to be written out."""
    return is_written_out([RowShape(name).requests(row) for row in rows])


def test_a_prompt_is_taken_apart() -> None:
    for prompt, turns in PROMPTS:
        request = read({"prompt": prompt, "response": "7"})
        assert (contexts(request), judged(request)) == ([turns], {"final": "7"})
        assert look([{"prompt": prompt, "response": "7"}])


@pytest.mark.parametrize(
    ("prompt", "response"),
    [(CHATML, "7<|im_end|>"), (CHATML, "7<|im_end|>\n"), (HUMAN, " 7"), (HUMAN, HUMAN + " 7"), (CHATML, CHATML + "7")],
)
def test_a_response_loses_its_end_and_the_prompt_that_it_repeats(prompt: str, response: str) -> None:
    assert judged(read({"prompt": prompt, "response": response})) == {"final": "7"}


def test_what_cant_be_taken_apart_has_a_reason() -> None:
    cases: list[tuple[str, str, Reason]] = [
        (CHATML.removesuffix("<|im_start|>assistant\n"), "7", Reason.WRITTEN_OUT),
        (CHATML + "So", "7", Reason.WRITTEN_OUT),
        (CHATML.replace("user", "critic"), "7", Reason.WRITTEN_OUT),
        (CHATML, "7<|im_end|>\n<|im_start|>user\nSure?", Reason.WRITTEN_OUT),
        (HUMAN, " 7\n\nHuman: Sure?", Reason.WRITTEN_OUT),
        (CHATML, "<|im_end|>", Reason.EMPTY_CONTENT),
        (CHATML.replace("What is 3 + 4?", " "), "7", Reason.EMPTY_CONTENT),
    ]
    for prompt, response, reason in cases:
        assert refused(read({"prompt": prompt, "response": response})) == {"final": reason}


def test_a_system_prompt_beside_a_written_out_prompt_must_be_the_same() -> None:
    row = {"prompt": CHATML, "response": "7"}
    assert contexts(read(row | {"system": "Be nice."})) == [[("system", "Be nice."), *ASKED]]
    assert refused(read(row | {"system": "Be terse."})) == {"final": Reason.TWO_SYSTEM_PROMPTS}


PLAIN = {"prompt": "What is 3 + 4?", "response": "7"}


def test_a_person_may_quote_a_template_or_a_transcript() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": f"Why does this fail?\n```\n{CHATML}```", "response": "It doesn't."},
        {"prompt": "Human: Fall Flat is a game.", "response": "It is."},
        {"prompt": "List them as JSON.", "response": '["cat", "dog"]'},
        {"prompt": "What does <|im_end|> do?", "response": "It ends a turn."},
        {"prompt": "Which token?", "response": "<|im_end|>"},
        {"prompt": [user("Hi"), reply(HUMAN), user("Why?")], "response": "7"},
    ]
    for row in rows:
        assert not look([row, *[PLAIN] * 3])


@pytest.mark.parametrize(
    ("share", "prompt", "are"), [(1, CHATML, True), (1, HUMAN, False), (6, HUMAN, True)], ids=["template", "few", "most"]
)
def test_a_tenth_of_templates_and_half_of_transcripts_are_no_quotations(share: int, prompt: str, are: bool) -> None:
    rows = [{"prompt": prompt, "response": "7"}] * share + [PLAIN] * (10 - share)
    assert look(rows) is are


def test_what_would_be_judged_as_plain_words_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"prompt": '["What is 3 + 4?", "And?"]', "response": "7"}, r"3 of the 3 prompts looked at are JSON in a text"),
        ({"prompt": json.dumps([user("q")]), "response": "7"}, r"3 of the 3 prompts looked at are JSON in a text"),
        ({"prompt": "q", "response": json.dumps([reply("a")])}, r"3 of the 3 responses looked at are JSON in a text"),
        ({"prompt": "q", "response": CHATML + "7"}, r"3 of the 3 responses .* written out as one text"),
        ({"prompt": "Below is an instruction that describes a task. x", "response": "7"}, r"in a form that can't be taken"),
        ({"prompt": "A chat between a curious user and you. USER: q ASSISTANT:", "response": "7"}, "can't be taken apart"),
        ({"prompt": CHATML + "and", "response": "7"}, "can't be taken apart"),
    ]
    for row, says in cases:
        with pytest.raises(SourceError, match=says):
            look([row] * 3)


def test_a_whole_conversation_in_a_text_has_its_last_turn_judged() -> None:
    wholes: list[str] = [HUMAN + " 7", CHATML + "7<|im_end|>", "### Human: q### Assistant: 7"]
    for name in ("text", "chosen"):
        for whole in wholes:
            row = {"text": whole} if name == "text" else {"chosen": whole, "rejected": whole}
            assert detect([row]).name == "written-out"
            assert set(judged(RowShape("written-out").requests(row)).values()) == {"7"}


def test_responses_that_repeat_their_prompt_are_counted() -> None:
    rows = [
        RowShape("prompt-response").requests({"prompt": "Answer:", "response": f"Answer: {index}"}) for index in range(3)
    ]
    assert note_repeated_prompts(rows).startswith("3 of the 3 responses begin with their whole prompt")
    assert note_repeated_prompts([RowShape("prompt-response").requests(PLAIN)] * 3) == ""
