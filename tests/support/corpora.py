"""Corpora made for tests, and how tests run the main job."""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.runtime.progress import Progress
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings

RUN = "0a1b2c3d4e5f6071"
"""The name of a run, for parts that tests commit themselves."""


def chat(question: str, answer: str, **more: Any) -> dict[str, Any]:
    """A conversation of two turns, as a JSON row."""
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], **more}


def rows(count: int) -> list[dict[str, Any]]:
    """Different conversations."""
    return [chat(f"What is {number} + 1?", f"It is {number + 1}.", id=number) for number in range(count)]


def lines(objects: Iterable[object]) -> bytes:
    """As JSONL."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in objects)


def write(path: Path, data: bytes) -> Path:
    """Write a corpus; compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


def find(inputs: Sequence[str], first_index: int = 0) -> list[InputFile]:
    """The files behind paths, globs and folders, without what is left out."""
    return find_corpus(inputs, first_index).files


def damaged_parquet(path: Path, rows: Sequence[Mapping[str, Any]], damage: slice, group: int = 0) -> InputFile:
    """A Parquet file with ten rows in a row group, of which one has zeros in a slice of its first page's bytes."""
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=10, compression="zstd", use_dictionary=False)
    start = pq.read_metadata(path).row_group(group).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    place = slice(start + damage.start, start + damage.stop)
    content[place] = bytes(damage.stop - damage.start)
    path.write_bytes(content)
    return find([str(path)])[0]


def settings(inputs: Path | Sequence[Path], output: Path, **options: Any) -> ScoreSettings:
    """Settings of a run on the fake engine, unless told otherwise."""
    paths = (inputs,) if isinstance(inputs, Path) else inputs
    flat = {"model": "tiny-attributes", "engine": "fake", **options}
    return build(ScoreSettings, {"inputs": tuple(map(str, paths)), "output": str(output), **flat})


def scored(output: Path) -> list[dict[str, Any]]:
    """All rows of a scored folder, in the order of the input."""
    parts = Parts(str(output))
    tables = [pq.read_table(Path(parts.folder, "parts") / part.name) for part in parts.listing()]
    return [row for table in tables for row in table.to_pylist()]


def outcome_of(output: Path) -> list[tuple[str | None, str | None]]:
    """Status and reason of every response, in the order of the input."""
    return [(row["status"], row["reason"]) for row in scored(output)]


class Notes(Progress):
    """What a person is told of a run."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def noted(self, text: str) -> None:
        """See `pipelines.run.runtime.progress.Progress`."""
        self.all.append(text)

    @property
    def losses(self) -> list[str]:
        """All but what any run may say: steps of engines' starts, what is kept, faults of an endpoint, an end."""
        usual = (
            "candidates are kept ",
            "importing ",
            "loading ",
            "reading the tokenizer ",
            "testing ",
            "waiting for Ray ",
            "Ray has started no worker ",
            "the endpoint http",
            "the first engine is ready",
            "nothing is left ",
        )
        return [note for note in self.all if not note.startswith(usual)]
