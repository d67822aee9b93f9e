"""Writes scored corpora without scoring, for tests of filters and choices."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from actors.records import Reading, Reason, Score
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from tests.support.corpora import RUN

COLUMNS = Columns(pa.schema([("n", pa.int64())]), ("reward",), "")


def corpus(folder: Path, rewards: Sequence[float | None], prompts: Sequence[str] | None = None, part_rows: int = 10) -> str:
    """A scored Parquet corpus of one response per row, in parts; null is a rejected one."""
    parts = Parts(str(folder), RUN)
    parts.create()
    total = len(rewards)
    for start in range(0, total, part_rows):
        chunk = rewards[start : start + part_rows]
        scores = [_score(reward) for reward in chunk]
        names = prompts[start : start + part_rows] if prompts else [str(index) for index in range(start, start + len(chunk))]
        rows = [(f"c:{start + index}", "final", names[index], score) for index, score in enumerate(scores)]
        carried = pa.table({"n": pa.array(range(start, start + len(chunk)), pa.int64())})
        part = Part(0, Range(start, start + len(chunk)), Counts.of(len(chunk), scores))
        parts.commit(part, COLUMNS.table(carried, rows), {})
    close(folder, total)
    return str(folder)


def close(folder: Path, total: int) -> None:
    """Write the manifest of a scored folder."""
    file = InputFile(0, "c", "/c", FileKind.PARQUET, 1, "sha256-of-ends:0", total)
    Manifest({"model": "m", "prefix": ""}, (file,), COLUMNS, {}, run=RUN).write(str(folder))


def _score(reward: float | None) -> Score:
    return Score.rejected(Reason.TOO_LONG) if reward is None else Score.scored(Reading(reward, {"reward": reward}), 7)


def numbers(folder: Path) -> list[int]:
    values: list[int] = []
    for path in sorted(folder.glob("*.parquet")):
        values += pq.read_table(path).column("n").to_pylist()
    return values


def grades(count: int, seed: int) -> list[float | None]:
    """A judge's grades from 1 to 5: nearly all are ties. Some responses were rejected."""
    luck = random.Random(seed)
    return [None if luck.random() < 0.05 else float(luck.randint(1, 5)) for _ in range(count)]


def prompts_of(count: int, seed: int) -> list[str]:
    luck = random.Random(seed)
    return [f"prompt {luck.randrange(count // 4)}" for _ in range(count)]
