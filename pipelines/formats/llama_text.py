"""Parses Llama 3's chat template, where a dataset has a prompt written out in it, back into turns."""

import re

from actors.errors import Rejected
from actors.records import Message, Reason
from pipelines.formats.content import conversation

_HEADER = re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n")
_END = "<|eot_id|>"
_TOKEN = re.compile(r"<\|(?:begin_of_text|start_header_id|end_header_id|eot_id)\|>")


def is_template(text: str) -> bool:
    """Whether the text holds any token of the template."""
    return _TOKEN.search(text) is not None


def split_prompt(prompt: str) -> tuple[Message, ...]:
    """The turns of a prompt, which must follow the template from its start to the assistant's header at its end."""
    prefix, *pieces = _HEADER.split(prompt.removeprefix("<|begin_of_text|>"))
    *turns, last = zip(pieces[::2], pieces[1::2], strict=True) if pieces else [("", "")]
    if prefix.strip() or last[0] != "assistant" or last[1].strip():
        raise Rejected(Reason.NO_FINAL_ASSISTANT, "a prompt that doesn't end with the assistant's header")
    return conversation([{"role": role, "content": without_end(content)} for role, content in turns])


def without_end(text: str) -> str:
    """A turn, without its end token. Raises `Rejected` if it holds other tokens of the template."""
    return _without_tokens(text.removesuffix(_END))


def _without_tokens(text: str) -> str:
    if is_template(text):
        raise Rejected(Reason.CONTROL_TOKEN, "a token of Llama's template where none belongs")
    return text
