"""README.md and the pages of docs/: their code blocks, the commands in these, their inline code, links and headings."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
GENERATED = DOCS / "reference"
"""Made of the code whenever the site is built."""
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SUBSTITUTION = re.compile(r"\$\([^)]*\)")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


class Block(NamedTuple):
    """A code block of a page, and its line there."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


class Shown(NamedTuple):
    """A command as its program gets it, and where it is shown."""

    place: str
    words: tuple[str, ...]


@cache
def pages() -> tuple[Path, ...]:
    """Those that somebody wrote."""
    return (REPOSITORY / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if GENERATED not in page.parents))


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(
        Block(page, text.count("\n", 0, fence.start()) + 1, fence[1], fence[2])
        for page in pages()
        for text in [page.read_text()]
        for fence in _FENCE.finditer(text)
    )


def commands() -> Iterator[Shown]:
    """Every line of a shell block, and of a session what stands after the prompt."""
    for block in blocks():
        if block.language not in ("sh", "console"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            typed = line if block.language == "sh" else line[2:] if line.startswith("$ ") else ""
            if words := words_of(typed):
                yield Shown(block.place, words)


def words_of(line: str) -> tuple[str, ...]:
    """Without comments, variables set for it, the file that its output goes to, and what sends it to the background."""
    words = shlex.split(_SUBSTITUTION.sub("X", line), comments=True)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    words = words[: words.index(">")] if ">" in words else words
    return tuple(word for word in words if word != "&")


def inline(page: Path) -> list[str]:
    """What stands between backticks, outside of blocks, on one line."""
    return [" ".join(span.split()) for span in _INLINE.findall(prose(page))]


def links(page: Path) -> list[str]:
    """Where links and pictures lead."""
    return _LINK.findall(_INLINE.sub("", prose(page)))


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: headings, as mkdocs makes them."""
    headings = re.findall(r"^#+ (.+?)(?: +\{ *#([\w-]+) *\})?$", prose(page), re.MULTILINE)
    return {anchor or _slug(heading) for heading, anchor in headings}


def _slug(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
