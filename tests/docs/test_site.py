"""The site: it builds in strict mode, and whoever reads it asks nobody else for anything."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import generate
from docs.generate.write import write
from tests.conftest import REPOSITORY

if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
    if os.environ.get("CI") == "true":
        pytest.fail("mkdocs and mkdocs-material are to be installed here: requirements-dev.txt has them", pytrace=False)
    pytest.skip("mkdocs and mkdocs-material aren't installed: `make setup` does", allow_module_level=True)


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the site is made of, beside the checkout that others may be building in."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copy(REPOSITORY / "mkdocs.yml", folder)
    shutil.copytree(REPOSITORY / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference", "__pycache__"))
    write(generate.pages(), folder / "docs" / "reference")
    yield folder
    shutil.rmtree(folder)


def test_the_site_builds_in_strict_mode_and_loads_nothing_from_elsewhere(checkout: Path) -> None:
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(checkout / "site").as_posix(): path.read_text() for path in checkout.glob("site/**/*.html")}
    assert "reference/command-line/score.html" in pages
    assert not [name for name in pages if name.startswith("generate")]
    loaded = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//")
    assert not {name: pieces for name, page in pages.items() if (pieces := loaded.findall(page))}
    assert "class=mermaid" not in "".join(pages.values()).replace('"', "")


def test_dead_links_and_forgotten_pages_fail_the_build(checkout: Path) -> None:
    docs = checkout / "docs"
    with (docs / "quickstart.md").open("a") as page:
        page.write("\n[gone](nowhere.md), [moved](reference/outcomes.md#nowhere)\n")
    (docs / "forgotten.md").write_text("# A page that the navigation leaves out\n")
    done = build(checkout)
    assert done.returncode != 0
    assert "Aborted with 3 warnings in strict mode" in done.stdout
    assert all(fault in done.stderr for fault in ("nowhere.md", "#nowhere", "forgotten.md"))
