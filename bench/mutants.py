"""Does `make test` notice a defect? Plants the defects of `_defects` one at a time, and runs the test that should fail.

Works in a copy of the tracked files, where all these tests must pass first. A defect is noticed if its test fails; a test
that can't be collected or doesn't exist is a mistake in the table. Tests run as in `make test`: without `chaos` and `long`.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode

from bench._defects import DEFECTS, Defect

_REPOSITORY = Path(__file__).resolve().parent.parent
_HANGS_S = 300
"""Seconds after which a test counts as failed: some defects make one wait forever."""

_OUTCOMES = {0: "MISSED", 1: "noticed"}
_WRONG = "WRONG IN THE TABLE"
"""For all other exit codes of pytest."""


def main(arguments: Sequence[str]) -> None:
    """`mutants`, or `mutants WORD ...` for the defects that have one of the words in their names."""
    defects = [defect for defect in DEFECTS if not arguments or any(word in defect.name for word in arguments)]
    if not defects:
        sys.exit(f"no defect has {' or '.join(map(repr, arguments))} in its name")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "assay")
        _copy(copy)
        clean_run = _run(copy, dict.fromkeys(defect.test for defect in defects))
        if clean_run.returncode:
            sys.exit(f"{clean_run.stdout}\nwithout a defect these tests must pass, and they end with {clean_run.returncode}")
        print(f"without a defect their tests pass, in {time.monotonic() - start:.0f} s", flush=True)
        outcomes = [_plant(copy, defect) for defect in defects]
    noticed = outcomes.count(_OUTCOMES[1])
    print(f"{noticed} of {len(defects)} defects are noticed, in {(time.monotonic() - start) / 60:.1f} minutes")
    sys.exit(noticed != len(defects))


def _copy(copy: Path) -> None:
    """Copy the tracked files as they are in the work tree, and compile them."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if (file := _REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy / name)
    # Checked by hash: by time and size, a defect of equal length planted in the same second would run the old bytecode.
    for package in ("actors", "deploy", "pipelines", "tiny_models"):
        compileall.compile_dir(copy / package, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def _run(copy: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy. PYTHONPATH puts its modules before the installed ones, in Ray's workers as well."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", str(_HANGS_S), *tests]
    return subprocess.run(
        command, cwd=copy, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _plant(copy: Path, defect: Defect) -> str:
    """Plant a defect, run its test, and restore the file; returns the outcome."""
    file = copy / defect.file
    original, start = file.read_text(), time.monotonic()
    if original.count(defect.text) != 1:
        print(f"{_WRONG}: {defect.name}: {defect.text!r} isn't once in {defect.file}", flush=True)
        return _WRONG
    file.write_text(original.replace(defect.text, defect.instead))
    try:
        test_run = _run(copy, [defect.test])
    finally:
        file.write_text(original)
    outcome = _OUTCOMES.get(test_run.returncode, _WRONG)
    print(f"{outcome:8} {time.monotonic() - start:4.0f} s  {defect.name}  ({defect.test})", flush=True)
    if outcome == _WRONG:
        print(test_run.stdout, flush=True)
    return outcome
