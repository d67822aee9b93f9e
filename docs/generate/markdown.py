"""Markdown out of what the code says of itself: text that may hold anything, tables, and pages."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_CODE = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\*_\[\]{}|#~])")


class Page(NamedTuple):
    """A page of the reference: its path below `docs/reference/`, and its Markdown."""

    path: str
    markdown: str


def text(words: str) -> str:
    """Words as the code has them, on one line: what stands in backticks stays code, and nothing else is markup."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(part if at % 2 else _plain(part) for at, part in enumerate(parts))


def code(words: object) -> str:
    """Words as code, whatever they hold. Empty words stay empty: there is no code of no characters."""
    shown = " ".join(str(words).split())
    fence = "``" if "`" in shown else "`"
    inner = f" {shown} " if "`" in shown else shown
    return f"{fence}{inner}{fence}" if shown else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already. A table without rows is no table: empty."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(header), _line(["---"] * len(header)), *lines]) if lines else ""


def heading(level: int, words: str, anchor: str) -> str:
    """A heading with an anchor that links may count on."""
    return f"{'#' * level} {words} {{ #{anchor} }}"


def anchored(name: str) -> str:
    """An anchor for a name: what may stand in one, and a dash for everything else."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def document(*blocks: str) -> str:
    """Blocks with an empty line between them; empty ones are left out."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def paragraphs(docstring: str | None) -> str:
    """A docstring as Markdown: its paragraphs, and what is indented in it as it stands."""
    blocks = re.split(r"\n\s*\n", (docstring or "").strip("\n"))
    return "\n\n".join(f"```text\n{_undented(block)}\n```" if block.startswith("    ") else text(block) for block in blocks)


def _plain(words: str) -> str:
    return _SPECIAL.sub(r"\\\1", words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _undented(block: str) -> str:
    lines = block.split("\n")
    least = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[least:] for line in lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
