"""Pages as files in a folder, which holds nothing else afterwards."""

from collections.abc import Iterable
from pathlib import Path

from docs.generate.markdown import Page


def write(pages: Iterable[Page], folder: Path) -> None:
    """Write the pages, and delete those of an earlier time. A page that is as it was keeps its time of change."""
    written = {folder / page.path: page.markdown for page in pages}
    for path, markdown in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text("utf-8") != markdown:
            path.write_text(markdown, "utf-8")
    for path in folder.rglob("*.md"):
        if path not in written:
            path.unlink()
