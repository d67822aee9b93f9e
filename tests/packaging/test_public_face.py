"""`import assay` is quick, and every name that a type checker sees is there when it is asked for."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import assay
import assay.plugins

HEAVY = {"duckdb", "pyarrow", "pydantic", "ray", "torch", "transformers", "vllm"}


def test_importing_it_brings_nothing_heavy() -> None:
    script = "import sys, assay, assay.plugins; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", [assay, assay.plugins], ids=lambda module: module.__name__)
def test_every_name_is_there_and_is_typed(module: ModuleType) -> None:
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    typed = {
        alias.asname
        for block in tree.body
        if isinstance(block, ast.If)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert typed == set(dir(module))
    assert [name for name in dir(module) if getattr(module, name) is None] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'scoer'"):
        _ = assay.scoer  # type: ignore[attr-defined]
