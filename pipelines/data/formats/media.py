"""Pictures and sounds beside the text of a row, which no model here is shown."""

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.rows import Row
from pipelines.data.formats.values import is_blank

_MEDIA = ("image", "video", "audio")  # also in the plural: fields of LLaVA, LLaMA-Factory and ms-swift
_UNSHOWN = frozenset({*_MEDIA, *(f"{medium}s" for medium in _MEDIA)})
_FILES = ("bytes", "path", "array")  # what Datasets has of a picture or a sound


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


def _holds_any(value: object) -> bool:
    return not all(map(is_blank, value)) if isinstance(value, list) else isinstance(value, dict) and bool(value)
