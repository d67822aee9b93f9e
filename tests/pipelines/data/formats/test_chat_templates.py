"""What chat templates write comes back as the messages that they were given, and as nothing else."""

import sys
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actors.records import Message, Role
from pipelines.data.formats.chat_templates import TEMPLATES, split_by_any
from tests.support.models import assistant, system, tool, user

Turns = Sequence[Message]
DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"


def chatml(turns: Turns) -> str:
    return "".join(f"<|im_start|>{turn.role.value}\n{turn.content}<|im_end|>\n" for turn in turns)


def llama_3(turns: Turns) -> str:
    parts = [
        f"<|start_header_id|>{'ipython' if turn.role is Role.TOOL else turn.role.value}<|end_header_id|>\n\n"
        f"{turn.content.strip()}<|eot_id|>"
        for turn in turns
    ]
    return "<|begin_of_text|>" + "".join(parts)


def llama_3_1(turns: Turns) -> str:
    """It always has a system turn, with dates in it."""
    words, others = (turns[0].content.strip(), turns[1:]) if turns[0].role is Role.SYSTEM else ("", turns)
    text = llama_3(others).removeprefix("<|begin_of_text|>")
    return f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{DATES}{words}<|eot_id|>{text}"


def llama_2(turns: Turns) -> str:
    text, opening = "", ""
    for turn in turns:
        match turn.role:
            case Role.SYSTEM:
                opening = f"<<SYS>>\n{turn.content.strip()}\n<</SYS>>\n\n"
            case Role.USER:
                text += f"<s>[INST] {opening}{turn.content.strip()} [/INST]"
                opening = ""
            case _:
                text += f" {turn.content.strip()} </s>"
    return text


def mistral(turns: Turns) -> str:
    """Its first one."""
    return "<s>" + "".join(
        f"[INST] {turn.content} [/INST]" if turn.role is Role.USER else f"{turn.content}</s> " for turn in turns
    )


def mistral_v3(turns: Turns) -> str:
    return "<s>" + "".join(
        f"[INST] {turn.content}[/INST]" if turn.role is Role.USER else f" {turn.content}</s>" for turn in turns
    )


def mistral_v7(turns: Turns) -> str:
    marks = {
        Role.SYSTEM: ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        Role.USER: ("[INST]", "[/INST]"),
        Role.ASSISTANT: ("", "</s>"),
    }
    return "<s>" + "".join(turn.content.join(marks[Role(turn.role)]) for turn in turns)


def gemma(turns: Turns) -> str:
    names = {Role.USER: "user", Role.ASSISTANT: "model"}
    parts = [f"<start_of_turn>{names[Role(turn.role)]}\n{turn.content.strip()}<end_of_turn>\n" for turn in turns]
    return "<bos>" + "".join(parts)


def nemotron(turns: Turns) -> str:
    """The policies' one, with two line breaks after the system turn, which is always there."""
    words, others = (turns[0].content, turns[1:]) if turns[0].role is Role.SYSTEM else ("", turns)
    names = {Role.USER: "User", Role.ASSISTANT: "Assistant"}
    text = f"<extra_id_0>System\n{words}\n"
    if words:
        text += "\n"
    return text + "".join(f"<extra_id_1>{names[Role(turn.role)]}\n{turn.content}\n" for turn in others)


def phi_3(turns: Turns) -> str:
    return "".join(f"<|{turn.role.value}|>\n{turn.content}<|end|>\n" for turn in turns) + "<|endoftext|>"


def deepseek(turns: Turns) -> str:
    marks = {
        Role.SYSTEM: ("", ""),
        Role.USER: ("<｜User｜>", ""),
        Role.ASSISTANT: ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    }
    return "<｜begin▁of▁sentence｜>" + "".join(turn.content.join(marks[Role(turn.role)]) for turn in turns)


# What it writes, under which name it is found, which roles it has, and what opens the assistant's turn.
RENDERERS: dict[str, tuple[Callable[[Turns], str], str, set[Role], str]] = {
    "chatml": (chatml, "chatml", set(Role), "<|im_start|>assistant\n"),
    "llama-3": (llama_3, "llama-3", set(Role), "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "llama-3.1": (llama_3_1, "llama-3", set(Role), "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "llama-2": (llama_2, "llama-2", {Role.SYSTEM}, ""),
    "mistral": (mistral, "mistral", set(), ""),
    "mistral-v3": (mistral_v3, "mistral", set(), ""),
    "mistral-v7": (mistral_v7, "mistral", {Role.SYSTEM}, ""),
    "gemma": (gemma, "gemma", set(), "<start_of_turn>model\n"),
    "nemotron": (nemotron, "nemotron", {Role.SYSTEM}, "<extra_id_1>Assistant\n"),
    "phi-3": (phi_3, "phi-3", {Role.SYSTEM}, "<|assistant|>\n"),
    "deepseek": (deepseek, "deepseek", {Role.SYSTEM}, "<｜Assistant｜>"),
}
every_template = pytest.mark.parametrize("name", RENDERERS)

# Also what almost looks like a template, and reasoning.
PIECES = st.sampled_from(
    ["What is 3 + 4?", "\n", " ", "<think>", "</think>", "\n\n", "<|", "|>", "[", "<s", "user\n", "<", ">", "｜", "<<SYS>>",
     "System", "é", "🙂", "assistant", "Today Date: now", "A:", "<div>", "<extra_id_"]
)  # fmt: skip
# Some templates trim what is said, so white space around it is nothing that could come back.
TEXTS = st.lists(PIECES | st.text(max_size=8), min_size=1, max_size=6).map("".join).map(str.strip).filter(bool)


@st.composite
def conversations(draw: st.DrawFn, roles: set[Role]) -> list[Message]:
    """A system turn perhaps, then a user and an assistant by turns, with tools between them where there are some."""
    turns = [system(draw(TEXTS))] if Role.SYSTEM in roles and draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        turns.append(user(draw(TEXTS)))
        if Role.TOOL in roles and draw(st.booleans()):
            turns += [assistant(draw(TEXTS)), tool(draw(TEXTS))]
        turns.append(assistant(draw(TEXTS)))
    assume(not any(template.tokens.search(turn.content) for turn in turns for template in TEMPLATES.values()))
    assume(not any(turn.content.startswith("<<SYS>>") for turn in turns))  # a system turn, as llama-2 has it
    return turns


@every_template
@given(data=st.data())
def test_what_a_template_writes_comes_back(name: str, data: st.DataObject) -> None:
    render, found_as, roles, _ = RENDERERS[name]
    turns = data.draw(conversations(roles))
    text = render(turns)
    talk = TEMPLATES[found_as].split(text)
    assert talk is not None
    # NeMo's template ends a turn with a line break, and may end there: then it is the response's.
    assert (*talk.context, assistant(talk.response.removesuffix("\n"))) == tuple(turns)
    assert split_by_any(text) == talk


@every_template
@given(data=st.data())
def test_a_response_may_be_cut_off_or_padded(name: str, data: st.DataObject) -> None:
    render, found_as, roles, _ = RENDERERS[name]
    turns = data.draw(conversations(roles))
    template = TEMPLATES[found_as]
    response = turns[-1].content
    prompt, _, _ = render([*turns[:-1], assistant("@@@")]).rpartition("@@@")
    for end in ("", *template.ends, *(end * 3 for end in template.ends), *(f"{end}\n" for end in template.ends)):
        for names in (None, prompt.rstrip(" ") if template.trims else prompt):
            talk = template.split(prompt + response + end, names)
            assert talk is not None
            assert (*talk.context, assistant(talk.response)) == tuple(turns)


@pytest.mark.parametrize(("name", "opening"), [(name, renderer[3]) for name, renderer in RENDERERS.items() if renderer[3]])
@given(data=st.data())
def test_a_policy_cannot_make_turns_up(name: str, opening: str, data: st.DataObject) -> None:
    render, found_as, roles, _ = RENDERERS[name]
    context = data.draw(conversations(roles))[:-1]
    forged = data.draw(conversations({Role.SYSTEM} & roles))
    prompt = render(context).removesuffix("<|endoftext|>") + opening
    response = data.draw(TEXTS) + render(forged)
    response += "|"  # so that no token is its end
    talk = TEMPLATES[found_as].split(prompt + response, prompt)
    assert talk is not None
    assert talk.context == tuple(context)
    assert talk.response == response
    assert split_by_any(prompt + response, prompt) == talk


@given(data=st.data())
def test_two_templates_never_split_the_same_text_of_one_of_them(data: st.DataObject) -> None:
    render, inner = (RENDERERS[data.draw(st.sampled_from(sorted(RENDERERS)))][0] for _ in range(2))
    quoted = inner(data.draw(conversations(set())))  # somebody asks about another template
    text = render([user(quoted), assistant(data.draw(TEXTS))])
    assert sum(template.split(text) is not None for template in set(TEMPLATES.values())) <= 1


def test_what_is_no_template_is_not_split() -> None:
    for text in (
        "",
        "hello",
        "<|im_start|>user\nhi<|im_end|>\n",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant",
        "<|im_start|>stranger\nhi<|im_end|>\n<|im_start|>assistant\nyes",
        "so <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes",
        "<|im_start|>user\nhi<|im_start|>assistant\nyes",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\nand more",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|endoftext|>and more<|im_end|>",
        "<|start_header_id|>user<|end_header_id|>\n\nhi<|im_end|><|im_start|>assistant\nyes",
        "[INST] hi",
        "[INST] hi [INST] yes [/INST] no",
        "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n[/INST] yes</s>",  # whose user says nothing, between two places
        "<extra_id_0>System\n\n<extra_id_1>User\nhi<extra_id_1>Assistant\nyes",
        "<|user|>\nQ</s>\n<|assistant|>\nA</s>",  # Zephyr's
        "<｜begin▁of▁sentence｜>just text",
        "User: hi\n\nAssistant: yes",
    ):
        assert all(template.split(text) is None for template in TEMPLATES.values())
        assert split_by_any(text) is None


def test_a_default_system_turn_stays_and_dates_alone_do_not() -> None:
    qwen = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    talk = split_by_any(chatml([system(qwen), user("hi"), assistant("yes")]))
    assert talk is not None
    assert talk.context == (system(qwen), user("hi"))
    talk = split_by_any(llama_3_1([user("hi"), assistant("yes")]))
    assert talk is not None
    assert talk.context == (user("hi"),)
    talk = split_by_any(llama_3_1([system("Be kind."), user("hi"), assistant("yes")]))
    assert talk is not None
    assert talk.context == (system("Be kind."), user("hi"))


def test_reasoning_that_a_template_begins_is_part_of_the_response() -> None:
    prompt = "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜><think>\n"
    talk = split_by_any(prompt + "hm</think>yes<｜end▁of▁sentence｜>", prompt)
    assert talk is not None
    assert talk == ((user("hi"),), "<think>\nhm</think>yes")
    assert split_by_any(prompt + "hm</think>yes<｜end▁of▁sentence｜>") == talk


def test_a_prompt_that_ends_elsewhere_is_no_reason_to_guess() -> None:
    turn, response = "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>assistant\nyes<|im_end|>"
    for prompt in (turn, turn + response):
        assert split_by_any(prompt + response, prompt) is None
    for other in ("", "hi", None):  # which the text doesn't begin with
        assert split_by_any(turn + response, other) == ((user("hi"),), "yes")


def test_spaces_that_decoding_puts_in_do_no_harm() -> None:
    for text in (
        "<s> [INST] hi [/INST] yes </s>",
        "<|user|> hi<|end|><|assistant|> yes<|end|>",
        "<|endoftext|><|endoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes",
    ):
        assert split_by_any(text) == ((user("hi"),), "yes")
    text = "<s> [INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nhi [/INST] yes </s><s> [INST] so? [/INST] no</s>"
    assert split_by_any(text) == ((system("Be kind."), user("hi"), assistant("yes"), user("so?")), "no")


def test_endless_tokens_take_no_endless_time() -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    talk = split_by_any(prompt + "<|im_end|>" * 50_000 + "." + "<|im_end|>\n" * 50_000, prompt)
    assert talk is not None
    assert talk.response == "<|im_end|>" * 50_000 + "."


# What a text may cost.


def calls(work: Callable[[], object]) -> int:
    """How many calls some work makes: none for what a pattern does by itself. Ends it at a hundred thousand."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1
        if count > 100_000:
            raise OverflowError

    sys.setprofile(counted)
    try:
        work()
    except OverflowError:
        pass
    finally:
        sys.setprofile(None)
    return count


ENDINGS = [(name, end) for name, template in TEMPLATES.items() for end in template.ends]


@pytest.mark.parametrize(("name", "end"), ENDINGS)
def test_a_text_of_endings_alone_is_taken_off_at_once(name: str, end: str) -> None:
    template = TEMPLATES[name]
    few, many = (calls(lambda count=count: template._content_end("7" + end * count)) for count in (10, 10_000))  # type: ignore[misc]
    assert many <= few
    assert template._content_end("7" + end * 10_000) == 1
    assert calls(lambda: split_by_any(end * 10_000)) < 1_000
    assert calls(lambda: split_by_any(f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n7{end * 10_000}")) < 1_000


def one_by_one(text: str, ends: Sequence[str]) -> int:
    """Where a text ends without its endings, the longest that is there being taken off first."""
    names = sorted((end + space for end in ends for space in ("", " ", "\n")), key=len, reverse=True)
    while ending := next((end for end in names if text.endswith(end)), ""):
        text = text.removesuffix(ending)
    return len(text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_endings_are_taken_off_as_if_one_by_one(name: str) -> None:
    ends = TEMPLATES[name].ends
    piece = st.sampled_from([*ends, *(end[1:] for end in ends), *(end[:-1] for end in ends), " ", "\n", "7"])

    @given(st.lists(piece, max_size=8).map("".join))
    def check(text: str) -> None:
        assert TEMPLATES[name]._content_end(text) == one_by_one(text, ends)

    check()


def test_a_long_beginning_is_read_in_little_memory() -> None:
    tracemalloc.start()
    try:
        assert split_by_any("<s>" * 200_000) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
