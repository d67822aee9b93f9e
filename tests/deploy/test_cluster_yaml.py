"""`cluster.yaml` by Ray's own schema, and what it must say."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
    return document


def test_ray_takes_it(config: dict[str, Any]) -> None:
    validate_config(prepare_config(copy.deepcopy(config)))


def test_ray_would_refuse_a_slip_of_the_pen(config: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="max_worker"):
        validate_config(prepare_config({**config, "max_worker": 2}))


def test_the_head_runs_no_tasks_and_workers_are_as_many_as_may_be(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    head = types.pop(config["head_node_type"])
    assert head["resources"] == {"CPU": 0, "GPU": 0}
    assert sum(item["max_workers"] for item in types.values()) == config["max_workers"]
    assert all(item["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"} for item in types.values())


def test_nothing_is_open(config: dict[str, Any]) -> None:
    starts = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    started = [command for command in starts if "ray start" in command]
    assert len(started) == 2
    assert all(". ~/.profile" in command and "--object-spilling-directory=" in command for command in started)
    assert any("RAY_AUTH_MODE=token" in command for command in config["setup_commands"])
    assert "--dashboard-host=127.0.0.1" in started[0]
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "SecurityGroup" not in json.dumps(config), "Ray's own group lets nobody in but ssh"


def test_every_flag_of_ray_start_is_one(config: dict[str, Any]) -> None:
    shown = subprocess.run([sys.executable, "-m", "ray.scripts.scripts", "start", "--help"], capture_output=True, text=True,
                           check=True).stdout  # fmt: skip
    starts = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    flags = {word.partition("=")[0] for command in starts for word in command.split() if word.startswith("--")}
    assert {flag for flag in flags if flag not in shown} == set()


def test_a_node_installs_the_images_versions_and_again_when_the_checkout_changes(
    config: dict[str, Any], tmp_path: Path
) -> None:
    checkout, bin_ = tmp_path / "assay", tmp_path / "venv" / "bin"
    for folder in (*(checkout / name for name in ("actors", "assay", "deploy", "pipelines", "tiny_models")), bin_):
        folder.mkdir(parents=True)
        (folder / "code.py").write_text("1")
    for name in ("pyproject.toml", "requirements-cpu.txt"):
        shutil.copy(REPOSITORY / name, checkout)
    pip, log = bin_ / "pip", tmp_path / "log"
    pip.write_text('#!/bin/sh\necho "$@" >> ~/log\nmkdir -p build; date > build/x\ntest ! -e ~/broken\n')
    pip.chmod(0o755)
    (bin_ / "ray").touch(0o755)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("")
    (tmp_path / ".profile").write_text("")

    def set_up() -> tuple[int, list[str]]:
        log.write_text("")
        done = [
            subprocess.run(["bash", "-c", setup_command], env={**os.environ, "HOME": str(tmp_path)}, check=False)
            for setup_command in config["setup_commands"]
        ]
        return max(item.returncode for item in done), log.read_text().splitlines()

    installed = f"install -q --constraint {tmp_path}/constraints.txt {checkout}[gpu,s3]"
    (tmp_path / "broken").touch()
    assert set_up() == (1, [installed])
    (tmp_path / "broken").unlink()
    assert set_up() == (0, [installed])
    assert set_up() == (0, [])
    (checkout / "actors" / "code.pyc").write_text("made by Python")
    assert set_up() == (0, [])
    for name in ("actors", "assay"):
        (checkout / name / "code.py").write_text("2")
        assert set_up() == (0, [installed])
    constraints = (tmp_path / "constraints.txt").read_text()
    assert "ray==" in constraints
    image = re.search(r"--extended-regexp '(.+)' requirements", (REPOSITORY / "deploy" / "Dockerfile").read_text())
    assert image is not None
    assert not re.search(image[1], constraints, re.MULTILINE)
    assert f"'{image[1]}'" in "".join(config["setup_commands"])
