"""The reference, generated from the code: a module for each page or group of pages, of pure functions from code to Markdown.

`python -m docs.generate` writes them into `docs/reference/`, which isn't kept in the repository (`make docs`).
"""

from collections.abc import Iterator

from docs.generate import (
    command_line,
    data_formats,
    exit_codes,
    http_routes,
    json_outputs,
    outcomes,
    python_api,
    reward_models,
    scored_corpus,
)
from docs.generate.markdown import Page

_MODULES = (
    command_line,
    python_api,
    http_routes,
    reward_models,
    data_formats,
    scored_corpus,
    outcomes,
    json_outputs,
    exit_codes,
)


def pages() -> Iterator[Page]:
    """All pages of the reference."""
    for module in _MODULES:
        yield from module.pages()
