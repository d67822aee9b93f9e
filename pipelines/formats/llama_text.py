"""Llama 3's chat template where a dataset has a prompt written out in it, taken apart into turns again."""

import re

from actors.errors import Rejected
from actors.records import Message, Reason
from pipelines.formats.content import conversation

_HEADER = re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n")
_END = "<|eot_id|>"
_TOKEN = re.compile(r"<\|(?:begin_of_text|start_header_id|end_header_id|eot_id)\|>")


def is_template(text: str) -> bool:
    """Whether the text has any token of the template."""
    return _TOKEN.search(text) is not None


def split_prompt(prompt: str) -> tuple[Message, ...]:
    """The turns of a prompt that is in the template from its beginning to the header of the answer."""
    before, *found = _HEADER.split(prompt.removeprefix("<|begin_of_text|>"))
    *turns, last = zip(found[::2], found[1::2], strict=True) if found else [("", "")]
    if before.strip() or last[0] != "assistant" or last[1].strip():
        raise Rejected(Reason.NO_FINAL_ASSISTANT, "a prompt that doesn't end with the assistant's header")
    return conversation([{"role": role, "content": without_end(content)} for role, content in turns])


def without_end(text: str) -> str:
    """A turn, without the token that ends it."""
    return _clean(text.removesuffix(_END))


def _clean(text: str) -> str:
    if is_template(text):
        raise Rejected(Reason.CONTROL_TOKEN, "a token of Llama's template where none belongs")
    return text
