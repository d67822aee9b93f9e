"""Results that a person reads at a prompt or in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any


class Readable:
    """A mixin for dataclasses: `print` and notebooks show the fields that hold something, line by line."""

    def __str__(self) -> str:
        return "\n".join(f"{name:<20}  {text}" for name, text in _lines(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def _lines(value: Any) -> Iterator[tuple[str, str]]:
    for name, content in ((field.name.replace("_", " "), getattr(value, field.name)) for field in fields(value)):
        if is_dataclass(content):
            yield from _lines(content)
        elif isinstance(content, Mapping) and any(map(is_dataclass, content.values())):
            yield from ((f"{key}: {title}", text) for key, each in content.items() for title, text in _lines(each))
        elif text := _text(content):
            yield name, text


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items() if _text(each))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return "" if value is None else str(value)
