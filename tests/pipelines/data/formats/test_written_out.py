"""Conversations written out as one text are taken apart into turns where a corpus has many of them, or refused."""

import json
from typing import Any

import pytest

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.formats import RowShape, detect, is_written_out, note_repeated_prompts
from pipelines.data.formats.chat_templates import split_by_any
from tests.support.parsed_rows import contexts, judged, refused, reply, user

CHATML = "<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
HUMAN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: What is 3 + 4?\n\nAssistant:"
TALK = [("user", "Hi"), ("assistant", "Hello"), ("user", "What is 3 + 4?")]
ASKED = [("user", "What is 3 + 4?")]
LINES = "How do I list?\nSystem: Linux\nHuman: hi\nAssistant: ho\nThanks"
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
    ("system\n\nuser\nWhat is 3 + 4?\nassistant\n", ASKED),
    # Lines of a turn that begin with a speaker's name, where Anthropic's empty line is the mark (HH-RLHF, Nectar).
    (f"\n\nHuman: {LINES}\n\nAssistant: ", [("user", LINES)]),
    (
        f"\n\nHuman: Hi\n\nAssistant: {LINES}\n\nHuman: Go on\n\nAssistant:",
        [("user", "Hi"), ("assistant", LINES), ("user", "Go on")],
    ),
]
# What a template writes where the assistant begins: of Qwen3 with and without thinking, of DeepSeek-R1, and decoded.
OPENED = [
    (CHATML + "<think>\n", "hm\n</think>\n\n7<|im_end|>", "<think>\nhm\n</think>\n\n7"),
    (CHATML + "<think>\n\n</think>\n\n", "7", "<think>\n\n</think>\n\n7"),
    (CHATML + "<think>\n", "<think>\nhm\n</think>\n\n7", "<think>\nhm\n</think>\n\n7"),
    (CHATML + "<think>\n", CHATML + "<think>\nhm</think>7", "<think>\nhm</think>7"),
    ("<｜begin▁of▁sentence｜><｜User｜>What is 3 + 4?<｜Assistant｜><think>\n", "hm</think>7", "<think>\nhm</think>7"),
    ("<｜begin▁of▁sentence｜><｜User｜>What is 3 + 4?<｜Assistant｜></think>", "7", "</think>7"),
    ("user\nWhat is 3 + 4?\nassistant\n<think>\n", "hm</think>7", "<think>\nhm</think>7"),
]  # fmt: skip


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


@pytest.mark.parametrize(("prompt", "response", "whole"), OPENED)
def test_a_response_begins_with_the_reasoning_that_its_prompt_has_begun(prompt: str, response: str, whole: str) -> None:
    row = {"prompt": prompt, "response": response}
    assert look([row])
    assert judged(read(row)) == {"final": whole}
    assert contexts(read(row))[0][-1:] == ASKED
    by_prompt = split_by_any(prompt + response, prompt)
    assert by_prompt is None or by_prompt.response == whole or response.startswith((CHATML, "<think>"))


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
        (CHATML + "<think>\nSo", "7", Reason.WRITTEN_OUT),
        (CHATML + "<think>\n<|im_end|>", "7", Reason.WRITTEN_OUT),
        ("<|start|>user<|message|>q<|end|><|start|>assistant", "7", Reason.WRITTEN_OUT),
        ("What is 3 + 4?<think>\n", "hm</think>7", Reason.WRITTEN_OUT),
        ("Human:\nAssistant:", "7", Reason.EMPTY_CONTENT),
        (CHATML, "<|im_end|>", Reason.EMPTY_CONTENT),
        (CHATML.replace("What is 3 + 4?", " "), "7", Reason.EMPTY_CONTENT),
    ]
    for prompt, response, reason in cases:
        assert refused(read({"prompt": prompt, "response": response})) == {"final": reason}


# Where published templates write a picture, a video or a sound.
SHOWN = [
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>q<|im_end|>\n<|im_start|>assistant\n",  # Qwen-VL
    "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>q<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nAudio 1: <|audio_bos|><|AUDIO|><|audio_eos|>\nq<|im_end|>\n<|im_start|>assistant\n",  # Qwen2-Audio
    "<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|>q<|im_end|>\n<|im_start|>assistant\n",  # Qwen3-Omni
    "<|im_start|>user\n<IMG_CONTEXT>\nq<|im_end|>\n<|im_start|>assistant\n",  # InternVL3
    "<|start_header_id|>user<|end_header_id|>\n\n<|image|>q<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "<start_of_turn>user\n<start_of_image>q<end_of_turn>\n<start_of_turn>model\n",  # Gemma 3
    "<start_of_turn>user\n<audio_soft_token>q<end_of_turn>\n<start_of_turn>model\n",  # Gemma 3n
    "<|user|>\n<|image_1|>\nq<|end|>\n<|assistant|>\n",  # Phi-3.5
    "<s>[INST]q[IMG][IMG][IMG_BREAK][IMG][IMG_END][/INST]",  # Pixtral
    "<s>[INST][BEGIN_AUDIO][AUDIO]q[/INST]",  # Voxtral
]


@pytest.mark.parametrize("prompt", SHOWN)
def test_a_picture_or_a_sound_in_a_template_isnt_words(prompt: str) -> None:
    row = {"prompt": prompt, "response": "7"}
    assert refused(read(row)) == {"final": Reason.CONTENT_NOT_TEXT}
    whole = RowShape("written-out").requests({"text": f"{prompt}7"})
    assert refused(whole) == {"final": Reason.CONTENT_NOT_TEXT}
    # A corpus that is all pictures is told by its rows, and not refused as one in a form that isn't known.
    assert look([row] * 3)


def test_words_in_a_template_that_only_look_like_a_picture_stay_words() -> None:
    for words in ("[IMG]https://a.example/b.png[/IMG]", "<image>q</image>", "<|images|>", "a vision_start token", "<img>"):
        for prompt in (CHATML.replace("What is 3 + 4?", words), f"<s>[INST] {words} [/INST]"):
            assert contexts(read({"prompt": prompt, "response": "7"}))[0][-1] == ("user", words)


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
        {"prompt": "Show me a message.", "response": json.dumps(reply("Hi"))},
    ]
    for row in rows:
        assert not look([row, *[PLAIN] * 3])


@pytest.mark.parametrize(
    ("share", "prompt", "are"), [(1, CHATML, True), (1, HUMAN, False), (6, HUMAN, True)], ids=["template", "few", "most"]
)
def test_a_tenth_of_templates_and_half_of_transcripts_are_no_quotations(share: int, prompt: str, are: bool) -> None:
    rows = [{"prompt": prompt, "response": "7"}] * share + [PLAIN] * (10 - share)
    assert look(rows) is are


def test_words_that_almost_look_like_a_template_or_a_message_stay_words() -> None:
    rows: list[dict[str, Any]] = [
        {
            "prompt": "A conversation between User and Assistant. The user asks, and you answer. What is 3 + 4?",
            "response": "7",
        },
        {"prompt": "<|image_1|>\nWhat is shown?", "response": "A cat."},
        {"prompt": "<role>You are a clerk.</role> What is 3 + 4?", "response": "7"},
        {"prompt": "Name a job as JSON.", "response": '{"role": "clerk", "content": "files"}'},
        {"prompt": "As JSON.", "response": '{"role": "user"}'},
        {"prompt": "Python?", "response": "{'role': 'clerk'}"},
    ]
    for row in rows:
        assert not look([row] * 3)


def test_what_would_be_judged_as_plain_words_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"prompt": '["What is 3 + 4?", "And?"]', "response": "7"}, r"3 of the 3 prompts looked at are JSON in a text"),
        ({"prompt": json.dumps([user("q")]), "response": "7"}, r"3 of the 3 prompts looked at are JSON in a text"),
        ({"prompt": "q", "response": json.dumps([reply("a")])}, r"3 of the 3 responses looked at are JSON in a text"),
        ({"prompt": "q", "response": CHATML + "7"}, r"3 of the 3 responses .* written out as one text"),
        ({"prompt": "Below is an instruction that describes a task. x", "response": "7"}, r"in a form that can't be taken"),
        ({"prompt": "A chat between a curious user and you. USER: q ASSISTANT:", "response": "7"}, "can't be taken apart"),
        ({"prompt": CHATML + "and", "response": "7"}, "can't be taken apart"),
        ({"prompt": json.dumps(user("q")), "response": "7"}, r"3 of the 3 prompts looked at are JSON in a text"),
        ({"prompt": "q", "response": json.dumps(reply("a"))}, r"3 of the 3 responses looked at are JSON in a text"),
        ({"prompt": "q", "response": str(reply("a"))}, r"3 of the 3 responses looked at are messages as Python prints them"),
        ({"prompt": "q", "response": str([reply("a")])}, r"3 of the 3 responses looked at are messages as Python"),
        ({"prompt": str([user("q")]), "response": "7"}, r"3 of the 3 prompts looked at are lists as Python prints them"),
        # Without a comma, as NumPy prints its arrays.
        ({"prompt": f"[{user('q')}\n {reply('a')}\n {user('r')}]", "response": "7"}, r"3 prompts looked at are lists as"),
        ({"prompt": "What is 3 + 4?<think>\n", "response": "hm</think>7"}, "can't be taken apart"),
        (
            {"prompt": "A conversation between User and Assistant. It ends. User: q. Assistant:", "response": "7"},
            "taken apart",
        ),
    ]
    for row, says in cases:
        with pytest.raises(SourceError, match=says):
            look([row] * 3)


@pytest.mark.parametrize(
    "prompt",
    [
        "<|start|>system<|message|>You are ChatGPT.<|end|><|start|>user<|message|>q<|end|><|start|>assistant",
        "<|start|>developer<|message|># Instructions<|end|><|start|>user<|message|>q<|end|><|start|>assistant",
        "<bos><|turn>user\nq<turn|>\n<|turn>model\n",
        "[gMASK]<sop><|user|>\nq<|assistant|>\n",
        "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>q<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<|begin_of_text|><|header_start|>user<|header_end|>\n\nq<|eot|><|header_start|>assistant<|header_end|>\n\n",
        "<|start_of_role|>user<|end_of_role|>q<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        "<|im_user|>user<|im_middle|>q<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<s><|system_start|>Be kind.<|system_end|><|user_start|>q<|user_end|><|assistant_start|>",
        "<role>HUMAN</role>q<role>ASSISTANT</role>",
        "<SPECIAL_10>System\n\n<SPECIAL_11>User\nq\n<SPECIAL_11>Assistant\n<think>\n",
        "]~!b[]~b]system\nBe kind.[e~[\n]~b]user\nq[e~[\n]~b]ai\n<think>\n",
        "<s>GPT4 Correct User: q<|end_of_turn|>GPT4 Correct Assistant:",
        "[Round 0] USER:q /think_on ASSISTANT:<longcat_think>\n",
    ],
)
def test_a_template_that_isnt_known_is_no_plain_words(prompt: str) -> None:
    row = {"prompt": prompt, "response": "7"}
    with pytest.raises(SourceError, match="can't be taken apart"):
        look([row] + [PLAIN] * 9)
    # Beside prompts that can be taken apart, it is a single row's fault.
    assert look([row, {"prompt": CHATML, "response": "7"}])
    assert refused(read(row)) == {"final": Reason.WRITTEN_OUT}


def test_a_whole_conversation_in_a_text_has_its_last_turn_judged() -> None:
    wholes: list[str] = [HUMAN + " 7", CHATML + "7<|im_end|>", "### Human: q### Assistant: 7", f"{HUMAN} {LINES}"]
    for name in ("text", "chosen"):
        for whole in wholes:
            row = {"text": whole} if name == "text" else {"chosen": whole, "rejected": whole}
            assert detect([row]).name == "written-out"
            assert set(judged(RowShape("written-out").requests(row)).values()) == {LINES if LINES in whole else "7"}


def test_responses_that_repeat_their_prompt_are_counted() -> None:
    rows = [
        RowShape("prompt-response").requests({"prompt": "Answer:", "response": f"Answer: {index}"}) for index in range(3)
    ]
    assert note_repeated_prompts(rows).startswith("3 of the 3 responses begin with their whole prompt")
    assert note_repeated_prompts([RowShape("prompt-response").requests(PLAIN)] * 3) == ""
