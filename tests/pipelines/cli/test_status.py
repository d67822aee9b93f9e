"""How far a run is, by its folder."""

import os
from pathlib import Path

import pytest

from actors.errors import SourceError
from pipelines.cli.status import status
from pipelines.scored_corpus.parts import Parts
from tests.support.selections import corpus


def test_a_run_that_works_on_tells_its_rate_and_what_is_left(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [1.0] * 200)
    parts = Parts(folder).listing()
    for at, part in enumerate(parts):
        path = tmp_path / "parts" / part.name
        os.utime(path, (1000 + 10 * at, 1000 + 10 * at))
        if at >= 15:
            path.unlink()
    found = status(folder)
    assert (found.complete, found.parts, found.rows) == (False, 15, 150)
    assert found.share == pytest.approx(0.75)
    assert found.responses_per_s == pytest.approx(1.0)  # ten every ten seconds
    assert found.eta == pytest.approx(50.0)
    assert found.last_part_ago is not None
    assert found.last_part_ago > 1e9


def test_a_run_with_nothing_done_tells_nothing_of_time(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [1.0] * 20)
    for part in Parts(folder).listing():
        (tmp_path / "parts" / part.name).unlink()
    found = status(folder)
    assert (found.complete, found.share, found.last_part_ago, found.responses_per_s, found.eta) == (
        False,
        0,
        None,
        None,
        None,
    )


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is an empty folder, and `status` reads a scored corpus"):
        status(str(tmp_path))
