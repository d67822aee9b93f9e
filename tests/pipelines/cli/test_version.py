"""`assay --version`: what is installed, at once."""

import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from click.testing import CliRunner

from pipelines.cli.app import cli
from tests.conftest import REPOSITORY
from tests.support.commands import assay

HEAVY = {"ray", "vllm", "torch", "transformers", "pyarrow", "numpy", "duckdb", "fastapi"}


def test_the_command_tells_the_version_of_the_package() -> None:
    done = assay("--version")
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert (done.returncode, done.stdout, done.stderr) == (0, f"assay {declared}\n", "")


def test_it_loads_nothing_heavy_for_it() -> None:
    program = (
        "import sys\nfrom pipelines.cli.app import cli\ncli(['--version'], standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    version, loaded = done.stdout.splitlines()
    assert version.startswith("assay ")
    assert not HEAVY & set(loaded.split())


def test_a_checkout_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    message = CliRunner().invoke(cli, ["--version"])
    assert (message.exit_code, message.output) == (0, "assay from a checkout that isn't installed\n")
