"""Parses a text in which a conversation is written out, by a chat template or as a transcript, back into messages.

A text is read turn by turn from its beginning: a header, content, and the token that ends the turn. A text that doesn't
match exactly isn't parsed. Content that holds a token of the template would be ambiguous (one turn or two) and isn't parsed
either, with one exception: where the prompt is known, the response is all that follows it, including turns the policy has
invented.

Each template begins with a token that no other begins with, so a text is never parsed by two of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from actors.records import Message, Role


class ParsedPrompt(NamedTuple):
    """The turns before the response, and the response, which is empty in a prompt that nobody has answered."""

    context: tuple[Message, ...]
    response: str


class TurnMarks(NamedTuple):
    """How a role's turn begins and ends. Either may have no width: a position between what stands before and after it."""

    role: Role
    header: re.Pattern[str]
    end: re.Pattern[str]


@dataclass(frozen=True)
class PolicyTemplate:
    """The marks of a chat template, as clients' tokenizers write it out."""

    begin: re.Pattern[str]  # what stands before the first turn: the beginning-of-text token, and padding on the left
    turns: tuple[TurnMarks, ...]
    tokens: re.Pattern[str]  # any token of the template; content ends at the first one
    ends: tuple[str, ...]  # what may follow the response: end tokens, and padding on the right
    trims: bool = False  # whether white space around content is the template's, not the speaker's
    preamble: re.Pattern[str] = re.compile(r"(?!)")  # what the template adds to a system turn by itself; here nothing

    def split(self, query: str, prompt: str | None = None) -> ParsedPrompt | None:
        """The messages of a text that ends with a response; None if it doesn't match this template.

        If the text begins with `prompt`, only the prompt is parsed, and all that follows it is the response.
        """
        has_prompt = bool(prompt) and query.startswith(prompt or "")
        text = prompt if has_prompt and prompt else query
        beginning = self.begin.match(text)
        if beginning is None or self._match_header(text, beginning.end()) is None:
            return None
        # Content that stops here or later is the response. A prompt's own end isn't trimmed: it ends with an open header.
        response_end = len(text) if has_prompt else self._content_end(text)
        position, turns = beginning.end(), list[Message]()
        while (match := self._match_header(text, position)) is not None:
            turn, start = match
            token = self.tokens.search(text, start)
            stop = len(text) if token is None else token.start()
            # An assistant's turn with nothing but end tokens and padding after it is the response; earlier ones are context.
            if turn.role is Role.ASSISTANT and stop >= response_end:
                return self._build_result(turns, text[start:] + query[len(text) :])
            end = turn.end.match(text, stop)
            if end is None:  # the token that stopped the content isn't the one that ends this role's turn
                return None
            if end.end() == position:  # header, content and end all have no width: the loop would never advance
                return None
            turns.append(Message(turn.role, text[start:stop]))
            position = end.end()
        return None

    def begins(self, text: str) -> bool:
        """Whether a text begins as one in this template does, whether the rest of it matches or not.

        By this a corpus is told to be written out, so that a text that breaks off is rejected instead of judged as words.
        """
        beginning = self.begin.match(text)
        if beginning is None:
            return False
        token = self.tokens.match(text, beginning.end())
        is_header = token is not None and token[0] not in self.ends  # of a role that isn't known, too
        return is_header or self._match_header(text, beginning.end()) is not None

    def without_end(self, response: str) -> str:
        return response[: self._content_end(response)]

    def _match_header(self, text: str, position: int) -> tuple[TurnMarks, int] | None:
        for turn in self.turns:  # in order: where two headers match, as in Llama 2's system turn, the first one counts
            if header := turn.header.match(text, position):
                return turn, header.end()
        return None

    def _build_result(self, turns: list[Message], rest: str) -> ParsedPrompt:
        # Templates add empty system turns, which no conversation of messages has.
        messages = [Message(turn.role, self._content(turn)) for turn in turns]
        context = tuple(message for message in messages if message.role is not Role.SYSTEM or message.content.strip())
        response = rest[: self._content_end(rest)]
        return ParsedPrompt(context, response.strip() if self.trims else response)

    def _content(self, turn: Message) -> str:
        content = self.preamble.sub("", turn.content, count=1) if turn.role is Role.SYSTEM else turn.content
        return content.strip() if self.trims else content

    def _content_end(self, text: str) -> int:
        # The position after which there are only end tokens and padding.
        if not text.endswith(self._endings):  # most texts: str.endswith is far cheaper than reversing them
            return len(text)
        ending = self._reversed_endings.match(text[::-1])
        return len(text) - (ending.end() if ending else 0)

    @cached_property
    def _endings(self) -> tuple[str, ...]:
        # With what a decoder or a line-based tool puts after a token. The longest first: one of them may end with another.
        return tuple(sorted((end + space for end in self.ends if end for space in ("", " ", "\n")), key=len, reverse=True))

    @cached_property
    def _reversed_endings(self) -> re.Pattern[str]:
        """Matches all endings in a row, in a reversed text.

        Searching forwards for `(?:ending)+$` is quadratic in the number of padding tokens. Atomic and possessive, so it
        never backtracks: a client chooses the text.
        """
        return re.compile(f"(?>{'|'.join(re.escape(end[::-1]) for end in self._endings)})*+")


def _turns(header: str, names: Mapping[str, Role], end: str) -> tuple[TurnMarks, ...]:
    return tuple(TurnMarks(role, re.compile(header.format(name)), re.compile(end)) for name, role in names.items())


def _turn(role: Role, header: str, end: str) -> TurnMarks:
    return TurnMarks(role, re.compile(header), re.compile(end))


_SPEAKERS = {role.value: role for role in Role}

# Of Qwen, Yi and many others. A text may begin with the token of Llama or Mistral, from whose models some were trained.
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
    # Llama 3.1's template writes both dates into every system turn, which no user or file has said.
    preamble=re.compile(r"\ACutting Knowledge Date: [^\n]*\nToday Date: [^\n]*(?:\n\n?|\Z)"),
)
# One template for both: Llama 2's differs from Mistral's in the system turn alone, and without one a text fits both.
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
    preamble=re.compile(r"\n\Z"),
)
_PHI_3 = PolicyTemplate(
    begin=re.compile(r"(?:<s>|<\|endoftext\|>)*+\s?"),
    # Its tokenizer drops the line break after a header, and decoding puts a space in its place.
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

# By the names that clients give in `from_template`.
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
# NeMo-Aligner's rows, whose system turns are written as they are, and which have no padding.
NEMO_ROWS = replace(_NEMOTRON, preamble=re.compile(r"(?!)"), ends=tuple(end for end in _NEMOTRON.ends if "extra_id" in end))


def _transcript(user: str, assistant: str, before: str, system: str = "(?!)", begin: str = r"\s*") -> PolicyTemplate:
    # Speakers' names with a colon or the like, each at the start of the text or where `before` matches.
    speakers = {Role.SYSTEM: system, Role.USER: user, Role.ASSISTANT: assistant}
    mark = rf"(?:{before})(?:{user}|{assistant}|{system})"
    return PolicyTemplate(
        begin=re.compile(rf"{begin}(?={user}|{system})"),
        # A header takes none of the white space behind it, where the mark of the next turn begins if this one is empty.
        turns=tuple(_turn(role, rf"(?:{before})?{name}", rf"(?={mark})") for role, name in speakers.items()),
        tokens=re.compile(mark),
        ends=("</s>", "<|endoftext|>"),
        trims=True,
    )


# By how they look. They are less certain than templates: a speaker may quote such a line.
TRANSCRIPTS: Mapping[str, PolicyTemplate] = {
    # Anthropic's, of HH-RLHF and Nectar: an empty line before either name, and no system turn. Their dialogues, code and
    # letters have lines that begin with a name, which are no turns.
    "\n\nHuman: ... \n\nAssistant:": _transcript("Human:", "Assistant:", r"\n\n", begin=r"\n\n"),
    "Human: ... Assistant:": _transcript("Human:", "Assistant:", r"\s*\n\s*", "System:", begin=r"(?!\n\nHuman:)\s*"),
    "### Human: ... ### Assistant:": _transcript("### Human:", "### Assistant:", r"\s*", "### System:"),  # Guanaco
    "User: ... Assistant:": _transcript("User:", "Assistant:", r"\s*\n\s*", "System:"),
    "USER: ... ASSISTANT:": _transcript("USER:", "ASSISTANT:", r"\s+|</s>", "SYSTEM:"),  # Vicuna
    "<human>: ... <bot>:": _transcript("<human>:", "<bot>:", r"\s*"),
    # A chat template's text, decoded without its special tokens, as trainers dump it.
    "user ... assistant": _transcript(r"user\n", r"(?:assistant|model)(?:\n|\Z)", r"\n", r"system\n"),
    "<|user|> ... </s>": _transcript(r"<\|user\|>", r"<\|assistant\|>", r"</s>\s*", r"<\|system\|>"),  # Zephyr
    "<|prompter|> ... <|assistant|>": _transcript(r"<\|prompter\|>", r"<\|assistant\|>", r"<\|endoftext\|>\s*"),
}


def split_by_any(query: str, prompt: str | None = None) -> ParsedPrompt | None:
    """The messages of a text by the only template that it matches; None if none does, or several do.

    For clients that don't say which template their policy has.
    """
    templates = dict.fromkeys(TEMPLATES.values())  # Llama 2 and Mistral are one object, which may not count twice
    parsed = [messages for template in templates if (messages := template.split(query, prompt)) is not None]
    return parsed[0] if len(parsed) == 1 else None
