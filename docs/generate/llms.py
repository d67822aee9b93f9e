"""mkdocs' hook: `llms.txt` lists the pages with a sentence each, `llms-full.txt` holds them all, for programs that read."""

import re
from pathlib import Path
from typing import Any

_ORDER: list[str] = []
_TEXTS: dict[str, tuple[str, str]] = {}


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the order in which a person reads the pages."""
    _ORDER[:] = [page.url for page in nav.pages]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Keep a page's title and text."""
    _TEXTS[page.url] = (page.title or page.url, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Write both files beside the home page."""
    site = Path(config["site_dir"])
    pages = [(url, *_TEXTS[url]) for url in _ORDER]
    lines = [f"- [{title}]({url}): {_first_sentence(text)}" for url, title, text in pages]
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n"
    (site / "llms.txt").write_text(f"{head}\nAll pages as one text: llms-full.txt\n\n## Pages\n\n" + "\n".join(lines) + "\n")
    full = "\n\n".join(f"<!-- {url} -->\n\n{text.strip()}" for url, _, text in pages)
    (site / "llms-full.txt").write_text(f"{head}\n{full}\n")


def _first_sentence(markdown: str) -> str:
    """The first sentence of a page's text, without links and emphasis."""
    paragraphs = [block for block in re.split(r"\n\s*\n", markdown) if block[:1] not in tuple("#|-`<!")]
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)|[*`]", r"\1", " ".join((paragraphs or [""])[0].split()))
    return re.split(r"(?<=[.:!?]) ", text, maxsplit=1)[0]
