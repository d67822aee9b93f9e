"""Pictures and sounds beside the text of a row, or in it, which no model here is shown."""

import re

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.content import text
from pipelines.data.formats.rows import Row
from pipelines.data.formats.values import is_blank

_MEDIA = ("image", "video", "audio")  # also in the plural: fields of LLaVA, LLaMA-Factory and ms-swift
_UNSHOWN = frozenset({*_MEDIA, *(f"{medium}s" for medium in _MEDIA)})
_FILES = ("bytes", "path", "array")  # what Datasets has of a picture or a sound
# What chat templates write where a picture, a video or a sound was shown: of Qwen2-VL to Qwen3-VL, Qwen2-Audio and the Omni
# models (`<|vision_start|>`, `<|image_pad|>`, `<|AUDIO|>`), Llama 3.2 (`<|image|>`), Phi-3.5 and Phi-4 (`<|image_1|>`), of
# Gemma 3 and 3n, InternVL, Pixtral, where [IMG]...[/IMG] is a forum's picture, and Voxtral. LLaVA's `<image>` may be XML.
_MARK = re.compile(
    r"<\|(?i:vision|image|video|audio)(?:_(?:start|end|pad|bos|eos|\d{1,3}))?\|>"
    r"|<(?:start_of_image|image_soft_token|audio_soft_token|IMG_CONTEXT)>|\[IMG\](?![^\[\s]*\[/IMG\])|\[BEGIN_AUDIO\]"
)


def find_unshown(row: Row) -> Rejected | None:
    """What a row holds beside its text that a judge wouldn't be shown: pictures, or sound; None if nothing."""
    if _UNSHOWN.isdisjoint(row):  # nearly every row, and every row is looked at
        return None
    for medium in _MEDIA:
        value = row.get(medium)
        # The object that Datasets makes of a file, as in RLAIF-V, is one that its model was shown. A text may be a thumbnail
        # of the row; with a placeholder in a text it is a part of the conversation.
        is_file = isinstance(value, dict) and not all(is_blank(value.get(key)) for key in _FILES)
        if is_file or _holds_any(row.get(f"{medium}s")) or (not is_blank(value) and f"<{medium}>" in repr(row)):
            return Rejected(Reason.CONTENT_NOT_TEXT, f"{medium}s beside the text")
    return None


def text_of_turn(content: str) -> str:
    """The text of a turn of a conversation that is written out as one text.

    Raises `Rejected` as `text` does, and as `content_not_text` for the mark of a picture, a video or a sound: to a reward
    model with another tokenizer it would be words, and with the same one a control token.
    """
    if mark := _MARK.search(content):
        raise Rejected(Reason.CONTENT_NOT_TEXT, f"{mark[0]} in a conversation that is written out as one text")
    return text(content)


def _holds_any(value: object) -> bool:
    return not all(map(is_blank, value)) if isinstance(value, list) else isinstance(value, dict) and bool(value)
