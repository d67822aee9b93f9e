"""What commands do for each part grows no faster than the parts.

Counted are the calls of Python in this process, not seconds: a sum over all parts for each of them took hours of 100,000.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.status import status
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.folders.run_folder.manifest import files_mark, read_manifest
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus import part_checks, part_files, summary
from pipelines.folders.scored_corpus.databases import connect
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.results.exports import export_commands
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.rescore_settings import VerifySettings
from pipelines.workflows.rescoring.verify_folder import verify
from tests.support.candidates import scored_corpus
from tests.support.corpora import lines, rows, settings, write

SIZES = (20, 90, 160)
"""Parts, of one row each, in equal steps: few enough that all tasks run in this process."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Path]:
    """Scored folders by their number of parts."""
    folders_by_size = {}
    for count in SIZES:
        place = tmp_path_factory.mktemp(f"parts-{count}")
        corpus = write(place / "c.jsonl", lines(rows(count)))
        scored_corpus(settings(corpus, place / "out", part_rows=1, unit_bytes=1))
        folders_by_size[count] = place
        assert len(Parts(str(place / "out")).listing()) == count
    return folders_by_size


def count_calls(function: Callable[[], Any]) -> int:
    """The calls of Python and C functions in this thread."""
    count = 0

    def hook(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    earlier = sys.getprofile()
    sys.setprofile(hook)
    try:
        function()
    finally:
        sys.setprofile(earlier)
    return count


def _list_and_prove(scored: str, output: str) -> None:
    parts, corpus = Parts(scored), open_scored(scored, "filter")
    state = parts.repair(corpus.manifest.files, print)
    counts = state.audit()
    with pytest.MonkeyPatch.context() as patch:  # or DuckDB's threads call our code, whose calls aren't counted
        patch.setattr(summary, "connect", functools.partial(connect, threads=1))
        summary.summarise(parts, corpus.manifest.columns, counts)
    state.mark()


COMMANDS: dict[str, Callable[[str, str], Any]] = {
    "list and prove": _list_and_prove,
    "status": lambda scored, output: status(scored),
    "verify": lambda scored, output: verify(build(VerifySettings, {"scored": scored, "sample": 0})),
    "keep": lambda scored, output: keep(FilterSettings(scored=scored, output=output, where="reward > 0")),
    "keep rows": lambda scored, output: keep(
        FilterSettings(scored=scored, output=output, where="reward > 0", rows="responses")
    ),
    "fraction": lambda scored, output: keep(FilterSettings(scored=scored, output=output, top_fraction=0.5)),
    "best": lambda scored, output: keep(FilterSettings(scored=scored, output=output, top_k=1)),
    "choose": lambda scored, output: export_commands.choose(ChooseSettings(scored=scored, output=output, strategy="best")),
    "pairs": lambda scored, output: export_commands.make_pairs(PairSettings(scored=scored, output=output, fake_ok=True)),
    "export": lambda scored, output: export_commands.export(
        ExportSettings(scored=scored, output=output, trainer="sft", fake_ok=True)
    ),
}


# `keep` is part of `keep rows`, and the best are found as a fraction is.
NAMES = [pytest.param(name, marks=[pytest.mark.long] if name in ("keep", "best") else []) for name in COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_calls_grow_no_faster_than_parts(folders: Mapping[int, Path], name: str) -> None:
    command, places = COMMANDS[name], folders.values()
    command(str(next(iter(places)) / "out"), str(next(iter(places)) / f"warm {name}"))  # imports, and what is looked up once
    few, more, many = (
        count_calls(lambda place=place: command(str(place / "out"), str(place / name)))  # type: ignore[misc]
        for place in places
    )
    # The second step over the first: what is the same for any number of parts is in neither.
    assert many - more <= 1.1 * (more - few)


def test_parts_are_checked_against_the_files_without_going_through_all_of_them_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by itself, as threads do it. Of 25,000 parts and 100,000 files it took hours."""
    sources = [write(tmp_path / "in" / f"{number}.jsonl", lines(rows(1))) for number in range(40)]
    folder = scored_corpus(settings(sources, tmp_path / "out"))
    recorded = read_manifest(folder)
    assert recorded is not None
    marks: list[int] = []
    extents: list[Any] = []
    pieces = Part.pieces

    def count_mark(files: Sequence[InputFile]) -> str:
        marks.append(len(files))
        return files_mark(files)

    def count_pieces(part: Part, extents_by_index: Any) -> Any:
        extents.append(extents_by_index)
        return pieces(part, extents_by_index)

    monkeypatch.setattr(part_checks, "files_mark", count_mark)
    with monkeypatch.context() as patch:
        patch.setattr(Part, "pieces", count_pieces)
        patch.setattr(part_checks, "audit", lambda *arguments: None)  # it asks all parts for their pieces, too
        checked = part_checks.check_parts(Parts(folder, recorded.run), recorded)
    assert (len(checked.parts), checked.bad) == (40, [])
    assert len(extents) == 40
    assert all(given is extents[0] for given in extents)
    assert set(marks) == {40}
    assert len(marks) <= part_files._THREADS  # which may all begin with it at once
