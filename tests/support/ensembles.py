"""Ensembles without scoring: writes members' runs with a test's rewards, and computes the expected results with numpy."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from actors.records import Reading, Reason, Score
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.settings.run_settings import Combine, CombineSettings
from pipelines.workflows.ensembles.score_ensemble import combine
from tests.support.corpora import RUN

COLUMNS = Columns(pa.schema([("n", pa.int64())]), ("reward",), "", reserved=("suspect",))


class Response(NamedTuple):
    """A response: its prompt, and its score by each member."""

    prompt: str
    scores: tuple[Score, ...]


Row = Sequence[Response]


def scored(*rewards: float) -> tuple[Score, ...]:
    """Scores of members that all give a reward."""
    return tuple(Score.scored(Reading(reward, {"reward": reward}), 7 + index) for index, reward in enumerate(rewards))


def to_prompt(prompt: str, *rewards: tuple[float, ...]) -> list[Row]:
    """A row for each response to a prompt, by its rewards."""
    return [[Response(prompt, scored(*row_rewards))] for row_rewards in rewards]


def member(output: str | Path, name: str, rows: Sequence[Row], at: int, part_rows: int, files: Sequence[int] = ()) -> None:
    """Write the run of the member at position `at`: its parts, and `files` by their numbers of rows."""
    parts = Parts(folder_of(str(output), name), RUN)
    parts.create()
    first, input_files = 0, []
    for file, count in enumerate(files or [len(rows)]):
        file_rows = rows[first : first + count]
        for start in range(0, count, part_rows):
            _commit(parts, file, start, file_rows[start : start + part_rows], first, at)
        input_files.append(
            InputFile(file, f"f{file}", f"/f{file}", FileKind.PARQUET, count, f"sha256-of-ends:{file}", count)
        )
        first += count
    identity = {"model": f"model {name}", "prefix": "", "rows": repr(rows)}
    Manifest(identity, tuple(input_files), COLUMNS, {}, run=RUN).write(parts.folder)


def _commit(parts: Parts, file: int, start: int, rows: Sequence[Row], before: int, at: int) -> None:
    ours = [
        (f"f{file}:{start + place}", f"r[{number}]", response.prompt, response.scores[at])
        for place, row in enumerate(rows)
        for number, response in enumerate(row)
    ]
    places = [before + start + place for place, row in enumerate(rows) for _ in row]
    carried = pa.table({"n": pa.array(places, pa.int64())})
    counts = Counts.of(len(rows), [score for *_, score in ours])
    parts.commit(Part(file, Range(start, start + len(rows)), counts), COLUMNS.table(carried, ours), {})


def members(output: str | Path, rows: Sequence[Row], names: Sequence[str], files: Sequence[int] = ()) -> None:
    """Write the runs of all members, each with another size of parts."""
    for index, name in enumerate(names):
        member(output, name, rows, index, part_rows=10 - 3 * index, files=files)


def combined(output: str | Path, names: Sequence[str], **options: Any) -> Any:
    """Combine the members' runs; returns the summary, with their agreement."""
    return combine(str(output), tuple(names), CombineSettings(**options), {})


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Every part below, with its inode and time: what was written again would differ."""
    parts = folder.rglob("parts/*.parquet")
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in parts}


def some_rows(count: int, seed: int, members: int) -> list[Row]:
    """Rows of up to three responses to few prompts: some are rejected, or fail, with some members; many are equal."""
    luck = random.Random(seed)

    def score(at: int) -> Score:
        kind = luck.random()
        if kind < 0.06:
            return Score.rejected(luck.choice([Reason.TOO_LONG, Reason.CONTROL_TOKEN]))
        if kind < 0.12:
            return Score.failed(Reason.NOT_FINITE, 5)
        reward = luck.gauss(10.0**at, 10.0**at) if luck.random() < 0.8 else 1.5
        return Score(scored(0.0)[0].status, None, reward, {"reward": reward}, luck.randrange(9), luck.random() < 0.1)

    prompts = [f"prompt {luck.randrange(max(1, count // 4))}" for _ in range(count)]
    return [
        [Response(prompt, tuple(score(index) for index in range(members))) for _ in range(luck.randrange(4))]
        for prompt in prompts
    ]


def z_scores(values: Sequence[float]) -> list[float]:
    """(value - mean) / sample standard deviation; NaN for a single value, or if all are equal."""
    if len(values) < 2 or max(values) - min(values) <= 1e-5:
        return [math.nan] * len(values)
    return list((np.array(values) - np.mean(values)) / np.std(values, ddof=1))


def expected(
    rows: Sequence[Row], names: Sequence[str], combine: Combine, suspect_reward: float, suspect_disagreement: float
) -> list[dict[str, Any]]:
    """The expected row of each response: status, reason, reward, scores, prompt_tokens, truncated, suspect."""
    responses = [response for row in rows for response in row]
    z: dict[int, list[float]] = {}
    z_of_u: dict[int, float] = {}
    for prompt in {response.prompt for response in responses}:
        positions = [
            position
            for position, (of, scores) in enumerate(responses)
            if of == prompt and all(member_score.reward is not None for member_score in scores)
        ]
        by_member = [
            z_scores([_reward(responses[position].scores[place]) for position in positions]) for place in range(len(names))
        ]
        z |= {position: [column[number] for column in by_member] for number, position in enumerate(positions)}
        z_of_u |= dict(zip(positions, z_scores([float(np.std(z[position], ddof=1)) for position in positions]), strict=True))
    outcomes = []
    for index, response in enumerate(responses):
        bad = [score for score in response.scores if score.reward is None]
        token_counts = [score.prompt_tokens for score in response.scores if score.prompt_tokens is not None]
        row: dict[str, Any] = {
            "status": bad[0].status.value if bad else "scored",
            "reason": bad[0].reason and bad[0].reason.value if bad else None,
            "reward": None,
            "scores": None,
            "prompt_tokens": sum(token_counts) if token_counts else None,
            "truncated": any(score.truncated for score in response.scores),
            "suspect": None,
        }
        if not bad:
            raw = [_reward(score) for score in response.scores]
            scores = dict(zip(names, raw, strict=True)) | _statistics(raw, "")
            scores |= {f"z_{name}": value for name, value in zip(names, z[index], strict=True)} | _statistics(z[index], "z_")
            scores |= {"disagreement": float(np.std(z[index], ddof=1)), "z_disagreement": z_of_u[index]}
            if not math.isnan(scores["z_mean"]):
                row["suspect"] = bool(scores["z_mean"] > suspect_reward and z_of_u[index] > suspect_disagreement)
            reward = scores[combine.value.replace("-", "_")]
            if math.isnan(reward):
                row |= {"status": "rejected", "reason": "no_baseline"}
            else:
                row |= {"reward": reward, "scores": scores}
        outcomes.append(row)
    return outcomes


def _statistics(values: Sequence[float], start: str) -> dict[str, float]:
    if any(map(math.isnan, values)):
        return {f"{start}{name}": math.nan for name in ("mean", "min", "spread")}
    spread = max(values) - min(values)
    return {f"{start}mean": sum(values) / len(values), f"{start}min": min(values), f"{start}spread": spread}


def _reward(score: Score) -> float:
    assert score.reward is not None
    return score.reward
