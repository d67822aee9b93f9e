"""What a policy's chat template has written, taken apart into messages again.

A text is read turn by turn from its beginning: a header, what is said, and the token that ends it. What isn't exactly that
isn't taken apart. Nothing that is said may hold a token of the template, or it could be two turns or one: but where the
prompt is known, the response is all that follows it, and a turn that the policy has made up stays text of the response.

Each template begins with a token that no other begins with, so a text is never taken apart by two of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from actors.records import Message, Role


class ParsedPrompt(NamedTuple):
    """What was said before, and the response, which may be empty."""

    context: tuple[Message, ...]
    response: str


class TurnMarks(NamedTuple):
    """How the turn of somebody begins and ends. Either may be nothing but a place, between what stands before and after."""

    role: Role
    header: re.Pattern[str]
    end: re.Pattern[str]


@dataclass(frozen=True)
class PolicyTemplate:
    """A chat template as others' programs have written it out."""

    begin: re.Pattern[str]
    """What stands before the first turn: a token for the beginning of a text, padding on the left."""
    turns: tuple[TurnMarks, ...]
    tokens: re.Pattern[str]
    """Whatever ends what is said."""
    ends: tuple[str, ...]
    """What may follow the last response: tokens for its end, padding on the right."""
    trims: bool = False
    """Whether white space around what is said is the template's, not the speaker's."""
    own: re.Pattern[str] = re.compile(r"(?!)")
    """What it writes by itself into a system turn."""

    def split(self, query: str, prompt: str | None = None) -> ParsedPrompt | None:
        """The messages of a text that ends with a response; None if it isn't in this template.

        With the prompt, if the text begins with it, the response is the rest, whatever stands in it.
        """
        known = bool(prompt) and query.startswith(prompt or "")
        text = prompt if known and prompt else query
        begun = self.begin.match(text)
        if begun is None or self._turn(text, begun.end()) is None:
            return None
        last = len(text) if known else self._last(text)
        at, said = begun.end(), list[Message]()
        while (found := self._turn(text, at)) is not None:
            turn, opened = found
            token = self.tokens.search(text, opened)
            stop = len(text) if token is None else token.start()
            if turn.role is Role.ASSISTANT and stop >= last:
                return self._talk(said, text[opened:] + query[len(text) :])
            ended = turn.end.match(text, stop)
            if ended is None:
                return None
            if ended.end() == at:  # a turn of nothing, after which the same one would begin again
                return None
            said.append(Message(turn.role, text[opened:stop]))
            at = ended.end()
        return None

    def _turn(self, text: str, at: int) -> tuple[TurnMarks, int] | None:
        for turn in self.turns:
            if header := turn.header.match(text, at):
                return turn, header.end()
        return None

    def _talk(self, said: list[Message], rest: str) -> ParsedPrompt:
        spoken = [Message(one.role, self._spoken(one)) for one in said]
        context = tuple(one for one in spoken if one.role is not Role.SYSTEM or one.content.strip())
        response = rest[: self._last(rest)]
        return ParsedPrompt(context, response.strip() if self.trims else response)

    def _spoken(self, message: Message) -> str:
        content = self.own.sub("", message.content, count=1) if message.role is Role.SYSTEM else message.content
        return content.strip() if self.trims else content

    def _last(self, text: str) -> int:
        """Where what follows the last response begins."""
        if not text.endswith(self._endings):
            return len(text)
        ended = self._backwards.match(text[::-1])
        return len(text) - (ended.end() if ended else 0)

    @cached_property
    def _endings(self) -> tuple[str, ...]:
        """The longest first."""
        return tuple(sorted((end + space for end in self.ends if end for space in ("", " ", "\n")), key=len, reverse=True))

    @cached_property
    def _backwards(self) -> re.Pattern[str]:
        """As many of the endings as there are, in a text that is read from its end; what was taken once stays taken."""
        return re.compile(f"(?>{'|'.join(re.escape(end[::-1]) for end in self._endings)})*+")


def _turns(header: str, names: Mapping[str, Role], end: str) -> tuple[TurnMarks, ...]:
    """Turns that differ in the name of the speaker alone."""
    return tuple(TurnMarks(role, re.compile(header.format(name)), re.compile(end)) for name, role in names.items())


def _turn(role: Role, header: str, end: str) -> TurnMarks:
    return TurnMarks(role, re.compile(header), re.compile(end))


_SPEAKERS = {role.value: role for role in Role}

_CHATML = PolicyTemplate(
    begin=re.compile(r"(?:<s>|<\|begin_of_text\|>|<\|endoftext\|>)*+"),
    turns=_turns(r"<\|im_start\|>{}\n", _SPEAKERS, r"<\|im_end\|>\n?"),
    tokens=re.compile(r"<\|(?:im_start|im_end|endoftext)\|>"),
    ends=("<|im_end|>", "<|endoftext|>"),
)
_LLAMA_3 = PolicyTemplate(
    begin=re.compile(r"(?:<\|(?:begin_of_text|end_of_text|eot_id|finetune_right_pad_id)\|>)*+"),
    turns=_turns(
        r"<\|start_header_id\|>{}<\|end_header_id\|>\n\n", {**_SPEAKERS, "ipython": Role.TOOL}, r"<\|(?:eot_id|eom_id)\|>"
    ),
    tokens=re.compile(
        r"<\|(?:begin_of_text|end_of_text|start_header_id|end_header_id|eot_id|eom_id|finetune_right_pad_id)\|>"
    ),
    ends=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"),
    own=re.compile(r"\ACutting Knowledge Date: [^\n]*\nToday Date: [^\n]*(?:\n\n?|\Z)"),
)
# Llama 2's differs from Mistral's in the system turn alone, and one question without it is the same in both.
_INST = PolicyTemplate(
    begin=re.compile(r"(?:<s>|</s>|<unk>)*+\s*"),
    turns=(
        _turn(Role.SYSTEM, r"\[SYSTEM_PROMPT\]", r"\[/SYSTEM_PROMPT\]"),
        _turn(Role.SYSTEM, r"\[INST\]\s*<<SYS>>\n", r"\n<</SYS>>\n\n"),
        _turn(Role.USER, r"\[INST\]|(?<=\n<</SYS>>\n\n)", r"(?=\[/INST\])"),
        _turn(Role.ASSISTANT, r"\[/INST\]", r"</s>\s*(?:<s>\s*)?"),
    ),
    tokens=re.compile(r"\[/?INST\]|\[/?SYSTEM_PROMPT\]|\n<</SYS>>\n\n|</s>"),
    ends=("</s>", "<unk>", "<pad>"),
    trims=True,
)
_GEMMA = PolicyTemplate(
    begin=re.compile(r"(?:<bos>|<pad>)*+"),
    turns=_turns(r"<start_of_turn>{}\n", {"user": Role.USER, "model": Role.ASSISTANT}, r"<end_of_turn>\n?"),
    tokens=re.compile(r"<(?:start_of_turn|end_of_turn|bos|eos|pad)>"),
    ends=("<end_of_turn>", "<eos>", "<pad>"),
)
_NEMOTRON = PolicyTemplate(
    begin=re.compile(r"(?:<s>|</s>|<pad>)*+"),
    turns=(
        _turn(Role.SYSTEM, r"<extra_id_0>System\n", r"\n?"),
        *_turns(r"<extra_id_1>{}\n", {"User": Role.USER, "Assistant": Role.ASSISTANT}, r"\n"),
    ),
    tokens=re.compile(r"\n?<extra_id_\d+>"),
    ends=("<extra_id_1>", "<extra_id_2>", "\n<extra_id_1>", "\n<extra_id_2>", "</s>", "<pad>"),
    own=re.compile(r"\n\Z"),
)
_PHI_3 = PolicyTemplate(
    begin=re.compile(r"(?:<s>|<\|endoftext\|>)*+\s?"),
    # Its tokenizer drops the line break after a header, and decoding puts a space there.
    turns=_turns(
        r"<\|{}\|>[ \n]?",
        {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT},
        r"<\|end\|>[ \n]?",
    ),
    tokens=re.compile(r"<\|(?:system|user|assistant|end|endoftext)\|>"),
    ends=("<|end|>", "<|endoftext|>"),
)
_BEGIN, _USER, _ASSISTANT, _END, _PAD = (
    f"<｜{name}｜>" for name in ("begin▁of▁sentence", "User", "Assistant", "end▁of▁sentence", "▁pad▁")
)
_DEEPSEEK = PolicyTemplate(  # since V2.5
    begin=re.compile(f"(?:{_END}|{_PAD})*+(?:{_BEGIN}|(?={_USER}))"),
    turns=(
        _turn(Role.SYSTEM, f"(?<={_BEGIN})(?!{_USER})", f"(?={_USER})"),
        _turn(Role.USER, _USER, f"(?={_ASSISTANT})"),
        _turn(Role.ASSISTANT, _ASSISTANT, _END),
    ),
    tokens=re.compile("|".join((_BEGIN, _USER, _ASSISTANT, _END, _PAD))),
    ends=(_END, _PAD),
)

TEMPLATES: Mapping[str, PolicyTemplate] = {
    "chatml": _CHATML,
    "llama-3": _LLAMA_3,
    "llama-2": _INST,
    "mistral": _INST,
    "gemma": _GEMMA,
    "nemotron": _NEMOTRON,
    "phi-3": _PHI_3,
    "deepseek": _DEEPSEEK,
}
"""By the names that clients give."""


def split_by_any(query: str, prompt: str | None = None) -> ParsedPrompt | None:
    """By the only template that a text is in."""
    talks = [talk for template in dict.fromkeys(TEMPLATES.values()) if (talk := template.split(query, prompt)) is not None]
    return talks[0] if len(talks) == 1 else None
