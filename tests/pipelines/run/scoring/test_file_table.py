"""What actors know of a run's files: it is right, and it isn't held once more by each of them."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
import ray

from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.scoring.file_table import ByFile
from pipelines.run.scoring.score_corpus import Run, open_run, share_files, step_settings
from tests.support.corpora import settings

FILES = 3000


def test_values_are_found_by_the_index_of_their_file() -> None:
    values = ByFile.of({4: "d", 1: "a"}, pa.large_string())
    assert dict(values) == {1: "a", 4: "d"}
    assert len(values) == 2
    assert [values.get(index) for index in range(-1, 7)] == [None, None, "a", None, None, "d", None, None]
    with pytest.raises(KeyError):
        values[-1]  # of an array it would be the last one
    assert dict(ByFile.of({}, pa.int64())) == {}


def _opened(folder: Path, files: int) -> Run:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number:040d}.jsonl").write_text(f'{{"prompt": "p", "response": "{number}"}}\n')
    choices = settings(folder, folder.with_name(f"{folder.name}-scored"))
    planned = resolve(choices)
    return open_run(choices, planned, manifest_of(planned, choices))


def test_what_each_actor_gets_doesnt_grow_with_the_files(tmp_path: Path, local_ray: None) -> None:
    few, many = _opened(tmp_path / "few", 10), _opened(tmp_path / "many", FILES)
    assert abs(len(pickle.dumps(step_settings(many))) - len(pickle.dumps(step_settings(few)))) < 100
    table = ray.get(share_files(many))
    assert dict(table.names) == {file.index: file.name for file in many.manifest.files}
    assert dict(table.small_extents) == {file.index: file.size for file in many.manifest.files}
    before = pa.total_allocated_bytes()
    again = [ray.get(share_files(many)) for _ in range(5)]
    assert len(again[-1].names) == FILES
    assert pa.total_allocated_bytes() - before < FILES, "they are Ray's shared memory, not copies of it"
