"""The table of planted defects (`make bench ARGS=mutants`) goes with the code: each is where it says, and so is its test."""

import re

import pytest

from bench._defects import DEFECTS, Defect
from tests.conftest import REPOSITORY

EACH = pytest.mark.parametrize("defect", DEFECTS, ids=[one.name for one in DEFECTS])


def test_no_defect_is_there_twice() -> None:
    assert len({one.name for one in DEFECTS}) == len(DEFECTS)
    assert len({(one.file, one.text, one.instead) for one in DEFECTS}) == len(DEFECTS)


@EACH
def test_a_defect_is_in_one_place_and_leaves_a_module(defect: Defect) -> None:
    sound = (REPOSITORY / defect.file).read_text()
    assert sound.count(defect.text) == 1, f"{defect.file} has another text now: say in the table what is planted there"
    planted = sound.replace(defect.text, defect.instead)
    assert planted != sound
    compile(planted, defect.file, "exec")


@EACH
def test_a_defects_test_is_there(defect: Defect) -> None:
    file, *names = defect.test.split("::")
    written = (REPOSITORY / file).read_text()
    assert names, "a whole file is more than the cheapest test"
    assert all(re.search(rf"^ *(?:class|def) {name}\b", written, re.MULTILINE) for name in names), defect.test


@EACH
def test_make_test_runs_a_defects_test(defect: Defect) -> None:
    file, *names = defect.test.split("::")
    written = (REPOSITORY / file).read_text()
    assert not re.search(r"^pytestmark = pytest\.mark\.(?:long|chaos)", written, re.MULTILINE), defect.test
    for name in names:
        # From the blank line before: a decorator may take several lines.
        decorators = re.search(rf"((?:^.+\n)*)^ *(?:class|def) {name}\b", written, re.MULTILINE)
        assert decorators is not None, defect.test
        assert not re.search(r"mark\.(?:long|chaos)", decorators[1]), f"{defect.test} is not in `make test`"
