"""The wheel alone scores, serves and shows its page; its size, and what the source distribution has."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from actors.settings.presets import presets
from tests.conftest import PLUGINS, REPOSITORY
from tests.support.endpoints import QUESTION, serving

MAX_MB = 6.2

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the source distribution, built of what git knows, beside which nothing lies."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPOSITORY, check=True, capture_output=True
    )
    for name in listed.stdout.decode().split("\0"):
        path = REPOSITORY / name
        if path.is_file():
            copy = source / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content. Beside it, dependencies are found as they are installed."""
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return target


def test_the_wheel_is_small_and_has_what_is_read_at_run_time(wheel: Path) -> None:
    assert wheel.stat().st_size <= MAX_MB * 1e6
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        *("assay", "actors", "pipelines", "deploy", "tiny_models"),
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    assert {"assay/py.typed", "actors/py.typed", "deploy/web/page/index.html", "tiny_models/scalar/model.safetensors"} <= {
        *names
    }
    assert {f"actors/settings/published_rubrics/{name}.yaml" for name in presets()} <= {*names}


def test_the_source_distribution_has_what_its_tests_need(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"Makefile", "requirements-cpu.txt", "tests/conftest.py", "tiny_models/principle/model.safetensors"} <= names
    assert not [name for name in names if name.endswith(".pyc") or name.startswith(".git/")]


@pytest.fixture(scope="module")
def environment(installed: Path) -> dict[str, str]:
    """That of commands which import the wheel's packages and not the repository's."""
    ours = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**ours, "PYTHONPATH": os.pathsep.join([str(installed), PLUGINS])}


def run(*command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_alone_scores_filters_and_reports(environment: dict[str, str], installed: Path, tmp_path: Path) -> None:
    def assay(*arguments: str) -> str:
        return run("assay", *arguments, folder=tmp_path, environment=environment)

    run("tiny_models.synthetic", "--rows", "40", "--out", "corpus.jsonl", folder=tmp_path, environment=environment)
    summary = json.loads(assay("score", "corpus.jsonl", "scored", "--model", "tiny-attributes", "--json"))
    assert summary["scored"] > 0
    assay("filter", "scored", "kept", "--where", "reward >= 0")
    assert any(path.stat().st_size for path in (tmp_path / "kept").glob("kept-*.jsonl"))
    assay("report", "scored", "--out", "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()


def test_the_wheel_alone_serves_and_shows_its_page(environment: dict[str, str], tmp_path: Path) -> None:
    with serving("--model", "tiny-scalar", log=tmp_path / "log", folder=tmp_path, **environment) as (address, _):
        body = {"conversations": [{"messages": QUESTION, "responses": ["7"]}]}
        response = httpx.post(f"{address}/v1/rewards", json=body, timeout=60).json()["data"][0]["responses"][0]
        page = httpx.get(address, timeout=60).text
    assert response["reward"] == pytest.approx(3.495, abs=0.2)  # as tiny-scalar's golden answer has it
    assert "app.js" in page
