"""A run that goes on lists its parts twice before its first row: of a million parts, a listing is a thousand requests.

Once to delete what a dead writer left half written, which a store doesn't need, and once to know what is done. Whether there
is any part at all is told by the first one.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.errors import RunStopped
from pipelines.data.storage.local_files import LocalFolder
from pipelines.run.sampling.sample_prompts import sample
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.score_corpus import Run, consume, score
from pipelines.settings.options import build
from pipelines.settings.run_settings import SampleSettings
from pipelines.workflows.run_logging.logged_progress import observers_of
from tests.support.corpora import lines, rows, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")


class Listings:
    """How often the parts were listed beyond the first before each pass began to score; the first pass stops the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before_rows: list[int] = []
        self._counts = Counter[str]()
        list_entries = LocalFolder.entries

        def entries(folder: LocalFolder) -> Iterator[Any]:
            for number, entry in enumerate(list_entries(folder)):
                self._counts[Path(folder.path).name] += number == 1
                yield entry

        monkeypatch.setattr(LocalFolder, "entries", entries)
        monkeypatch.setattr(score_corpus, "consume", self._consume)

    def _consume(self, run: Run, *arguments: Any) -> None:
        self.before_rows.append(self._counts["parts"])
        consume(run, *arguments)
        if len(self.before_rows) == 1:
            min(Path(run.parts.folder, "parts").iterdir()).unlink()
            raise RunStopped("before the last row")

    def restart(self) -> None:
        self._counts.clear()


def test_score_lists_its_parts_twice_before_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listings, corpus = Listings(monkeypatch), write(tmp_path / "c.jsonl", lines(rows(20)))
    run_settings = settings(corpus, tmp_path / "out", part_rows=5)
    with pytest.raises(RunStopped):
        score(run_settings, observers=observers_of(run_settings))
    listings.restart()
    assert score(run_settings, observers=observers_of(run_settings)).rows == 20
    assert listings.before_rows[1] == 2


def test_sample_lists_its_parts_twice_before_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [{"messages": [{"role": "user", "content": f"What is {number} + 1?"}]} for number in range(8)]
    listings, corpus = Listings(monkeypatch), write(tmp_path / "c.jsonl", lines(prompts))
    flat = {"policy": "tiny-genrm", "model": "tiny-attributes", "engine": "fake", "policy_max_tokens": 16, "n": 2}
    flat |= {"inputs": (str(corpus),), "output": str(tmp_path / "out"), "part_rows": 2}
    run_settings = build(SampleSettings, flat)
    with pytest.raises(RunStopped):
        sample(run_settings, observers=observers_of(run_settings))
    listings.restart()
    assert sample(run_settings, observers=observers_of(run_settings)).prompts == 8
    assert listings.before_rows[1] == 2
