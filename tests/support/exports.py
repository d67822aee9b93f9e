"""Runs `choose`, `pairs` and `export` on scored corpora of a few rows, and reads what they wrote."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.data.formats import RowShape
from pipelines.results.exports import export_commands, export_job
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.run.runtime.workers import workers
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from tests.support.candidates import Given, drawn_corpus, judged_corpus, prompts, rows_in

SIX: tuple[list[Given], ...] = ([1.0, 3.0, 2.0], [None, 1.0, 2.0], [None, None], [0.5])
"""Rewards of the candidates of four prompts: six candidates are scored."""


def choose(folder: str, output: Path, **settings: Any) -> ExportSummary:
    return export_commands.choose(ChooseSettings(scored=folder, output=str(output), **settings))


def pair(folder: str, output: Path, **settings: Any) -> ExportSummary:
    return export_commands.make_pairs(PairSettings(scored=folder, output=str(output), **{"fake_ok": True, **settings}))


def export(folder: str, output: Path, trainer: str, **settings: Any) -> ExportSummary:
    flat = {"fake_ok": True, **settings}
    return export_commands.export(ExportSettings(scored=folder, output=str(output), trainer=trainer, **flat))


def document(folder: Path, kind: str = "choose") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{kind}.json").read_text())
    return content


def write_candidates(folder: Path, *rewards: Sequence[Given], **how: Any) -> str:
    """Candidates of different prompts, of these rewards; each says where it comes from."""
    rows = [{"prompt": f"p{at}"} for at in range(len(rewards))]
    return drawn_corpus(folder, rows, numbered_texts(rewards), prompts(), **how)


def numbered_texts(rewards: Sequence[Sequence[Given]]) -> list[list[tuple[str, Given]]]:
    """Texts that say where they come from (row, place), with what they came to."""
    return [
        [(f"{row}.{place}", reward) for place, reward in enumerate(row_rewards)] for row, row_rewards in enumerate(rewards)
    ]


def answered(folder: Path, *responses: tuple[str, str, Given], **how: Any) -> str:
    """A corpus of one response per row: its prompt, its text, and what it came to."""
    rows = [{"prompt": prompt, "response": text} for prompt, text, _ in responses]
    return judged_corpus(folder, rows, [[reward] for *_, reward in responses], RowShape("prompt-response"), **how)


def texts(folder: Path) -> list[str]:
    """Those of what was chosen."""
    return [row["messages"][-1]["content"] for row in rows_in(folder)]


def couples(folder: Path) -> list[tuple[str, str]]:
    """The texts of the sides of each pair in TRL's rows."""
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows_in(folder)]


def parts_of(folder: str) -> list[Path]:
    """The files of the parts of a scored corpus."""
    return sorted(Path(folder, "parts").iterdir())


def cut_up(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Make several pieces of a corpus, in this process."""
    monkeypatch.setattr(export_job, "workers", lambda tasks: workers(1))
    monkeypatch.setattr(export_job, "_BYTES", sum(path.stat().st_size for path in parts_of(folder)) // 3)
