"""The client's wheel installs alone, and works beside httpx without anything of Assay."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY
from tests.support.endpoints import application, listening, scorer

pytestmark = pytest.mark.long

SCRIPT = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + sys.argv[1:2]
from assay_client import Client
with Client(sys.argv[2]) as client:
    (reward,) = client.rewards([{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "responses": ["7"]}])
assert reward.require() != 0.0
import assay_client.slime, assay_client.verl  # the trainer's functions, which import nothing of it
assert not {"ray", "torch", "vllm", "pydantic", "actors", "assay", "pipelines", "deploy"} & sys.modules.keys()
print("scored")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, folder = tmp_path_factory.mktemp("source") / "client", tmp_path_factory.mktemp("dist")
    shutil.copytree(REPOSITORY / "client", source)  # the build writes beside its sources
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def needed(name: str) -> Iterator[str]:
    """A distribution and all that it needs."""
    yield name
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needed(requirement.name)


def test_the_wheel_works_beside_httpx_alone(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "assay_client",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    assert "assay_client/py.typed" in names
    licence = next(name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (REPOSITORY / "LICENSE").read_bytes()
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
    required = [Requirement(line.partition(": ")[2]) for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [each.name for each in required] == ["httpx"]
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for name in {*needed("httpx")}:
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                target = tmp_path / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    model = scorer("tiny-attributes")
    try:
        with listening(application([model])) as address:
            command = [sys.executable, "-I", "-S", "-c", SCRIPT, str(tmp_path), address]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        model.close()
    assert (done.stdout, done.returncode) == ("scored\n", 0), done.stderr
