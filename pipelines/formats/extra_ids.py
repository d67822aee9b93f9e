"""Parses NeMo's chat template, where a dataset has it written out in a text, back into turns.

<extra_id_0>System\\n{system}\\n<extra_id_1>User\\n{text}\\n<extra_id_1>Assistant\\n{text}\\n<extra_id_2>

Only this exact form is parsed. A template token that is left inside a content shows another form, and rejects the text.
"""

import re
from typing import NamedTuple

from actors.errors import Rejected
from actors.records import Reason

START = "<extra_id_0>System\n"
_HEADER = re.compile(r"\n<extra_id_1>(User|Assistant)\n")
_OPEN_END = "\n<extra_id_1>Assistant\n"
_END = re.compile(r"(?<!<extra_id_1>Assistant)\n(?:<extra_id_[12]>)?\Z")
_TOKEN = re.compile(r"<extra_id_\d+>")


class SystemAndTurns(NamedTuple):
    """A system prompt, which may be blank, and turns in OpenAI's form."""

    system: str
    turns: list[dict[str, str]]


def is_template(text: str) -> bool:
    """Whether the text holds any token of the template."""
    return _TOKEN.search(text) is not None


def split_conversation(text: str) -> SystemAndTurns:
    """A conversation. Its end token, and the line break before it, may be missing."""
    return _parse_template(_END.sub("", text))


def split_prompt(prompt: str) -> SystemAndTurns:
    """A prompt, which must end with the assistant's header."""
    if not prompt.endswith(_OPEN_END):
        raise Rejected(Reason.NO_FINAL_ASSISTANT, "a prompt that doesn't end with the assistant's header")
    return _parse_template(prompt.removesuffix(_OPEN_END))


def without_end(text: str) -> str:
    """A response, without its end token. Raises `Rejected` if it holds further turns."""
    return _without_tokens(text.removesuffix("\n<extra_id_1>"))


def embedded(prompt: str) -> list[dict[str, str]]:
    """The turns of a HelpSteer2 prompt: the user's first words are bare, and the others follow under their headers.

    They must alternate and end with the user. Any other prompt is a single turn, unchanged: tokens in it are the user's
    text, and the renderer decides about them.
    """
    speakers, contents = _split("\n<extra_id_1>User\n" + prompt)
    alternate = len(speakers) % 2 == 1 and all(name == ("User", "Assistant")[i % 2] for i, name in enumerate(speakers))
    if not alternate or any(map(is_template, contents)):
        speakers, contents = ["User"], [prompt]
    return _turns(speakers, contents)


def _parse_template(text: str) -> SystemAndTurns:
    if not text.startswith(START):
        raise Rejected(Reason.NO_MESSAGES, "text that doesn't begin as NeMo's template does")
    body = text.removeprefix(START)
    system = _HEADER.split(body, maxsplit=1)[0]
    speakers, contents = _split(body[len(system) :])
    return SystemAndTurns(_without_tokens(system), _turns(speakers, [_without_tokens(content) for content in contents]))


def _split(text: str) -> tuple[list[str], list[str]]:
    _, *pieces = _HEADER.split(text)
    return pieces[::2], pieces[1::2]


def _turns(speakers: list[str], contents: list[str]) -> list[dict[str, str]]:
    return [{"role": name.lower(), "content": content} for name, content in zip(speakers, contents, strict=True)]


def _without_tokens(text: str) -> str:
    if is_template(text):
        raise Rejected(Reason.CONTROL_TOKEN, "a token of NeMo's template where none belongs")
    return text
