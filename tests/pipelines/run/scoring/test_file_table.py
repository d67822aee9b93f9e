"""What actors know of a run's files: it is right, and it isn't held once more by each of them."""

import pickle
from pathlib import Path

import pyarrow as pa
import ray

from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.scoring.score_corpus import Run, open_run, share_files, step_settings
from tests.support.corpora import settings

FILES = 3000


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
    assert [file.index for file in many.manifest.files] == list(range(FILES))
    assert table.names.to_pylist() == [file.name for file in many.manifest.files]
    assert table.small_extents.to_pylist() == [file.size for file in many.manifest.files]
    before = pa.total_allocated_bytes()
    again = [ray.get(share_files(many)) for _ in range(5)]
    assert len(again[-1].names) == FILES
    assert pa.total_allocated_bytes() - before < FILES, "they are Ray's shared memory, not copies of it"
