"""Selections over a whole scored corpus: the best fraction, a quantile, the best of each prompt; killed and gone on with."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.errors import SettingsError
from pipelines.results.filtering import filter_corpus, filter_step
from pipelines.results.filtering.filter_corpus import FilterSummary, keep
from pipelines.run.runtime.workers import workers
from pipelines.settings.filter_settings import FilterSettings
from tests.support.selections import corpus, grades, numbers, prompts_of


def select(folder: str, output: Path | None = None, **choice: Any) -> FilterSummary:
    return keep(FilterSettings(scored=folder, output=output and str(output), **choice))


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch, local_ray: None) -> None:
    """Three parts to a group, so that tasks run on Ray and meet in shuffles."""
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 3)


def test_the_best_fraction_is_exact_and_ties_are_told(tmp_path: Path, small_groups: None) -> None:
    rewards = grades(200, seed=1)
    scored = [reward for reward in rewards if reward is not None]
    summary = select(corpus(tmp_path / "in", rewards), tmp_path / "out", top_fraction=0.3)
    kept = numbers(tmp_path / "out")
    expected = int(0.3 * len(scored))
    assert (len(kept), summary.kept) == (expected, expected)
    assert sorted((rewards[index] or 0.0 for index in kept), reverse=True) == sorted(scored, reverse=True)[:expected]
    assert kept == sorted(kept), "rows stay in the order of the corpus"
    bar = sorted(scored, reverse=True)[expected - 1]
    above = sum(reward > bar for reward in scored)
    assert summary.selection == {
        "by": "reward", "candidates": len(scored), "kept": expected, "boundary": bar,
        "equal": scored.count(bar), "equal_kept": expected - above,
    }  # fmt: skip
    assert summary.not_kept == {"top_fraction": len(scored) - expected, "rejected: too_long": 200 - len(scored)}


def test_a_quantile_is_numpys(tmp_path: Path) -> None:
    rewards = np.random.default_rng(2).normal(size=101).tolist()
    summary = select(corpus(tmp_path / "in", rewards), tmp_path / "out", quantile=0.9)
    bar = np.quantile(rewards, 0.9)
    assert summary.selection is not None
    assert summary.selection["boundary"] == bar
    assert numbers(tmp_path / "out") == np.flatnonzero(np.asarray(rewards) >= bar).tolist()


def test_of_equals_the_same_are_kept_however_the_corpus_is_cut(tmp_path: Path, small_groups: None) -> None:
    rewards = grades(200, seed=3)
    for part_rows in (7, 50, 200):
        folder = tmp_path / str(part_rows)
        select(corpus(folder / "in", rewards, part_rows=part_rows), folder / "out", top_fraction=0.5)
    first, *recut = (numbers(tmp_path / str(part_rows) / "out") for part_rows in (7, 50, 200))
    assert all(kept == first for kept in recut)


def test_of_those_that_meet_the_condition_by_a_number_of_ones_own(tmp_path: Path) -> None:
    rewards = [float(index) for index in range(20)]
    summary = select(corpus(tmp_path / "in", rewards), tmp_path / "out", where="n < 10", by="0 - n", top_fraction=0.2)
    assert numbers(tmp_path / "out") == [0, 1]
    assert summary.not_kept == {"condition": 10, "top_fraction": 8}


def test_what_has_no_number_to_be_chosen_by_isnt_a_candidate(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in", [4.0, -1.0, 9.0, None])
    summary = select(folder, by="case when reward > 0 then sqrt(reward) when n = 1 then 'nan'::double end", top_fraction=1)
    assert summary.not_kept == {"no_value": 1, "rejected: too_long": 1}
    assert summary.kept == 2


@pytest.mark.parametrize("choice", [{"top_fraction": 0.5}, {"quantile": 0.5}, {"top_k": 1}])
def test_without_candidates_nothing_is_kept(tmp_path: Path, choice: dict[str, Any]) -> None:
    summary = select(corpus(tmp_path / "in", [None] * 3), tmp_path / "out", **choice)
    assert (summary.kept, summary.not_kept) == (0, {"rejected: too_long": 3})
    assert select(corpus(tmp_path / "empty", []), tmp_path / "none", **choice).responses == 0


@pytest.mark.parametrize(("k", "min_gap"), [(1, None), (3, None), (1, 1.0), (2, 0.0)])
def test_the_best_of_each_prompt_are_those_of_a_brute_force(
    tmp_path: Path, small_groups: None, k: int, min_gap: float | None
) -> None:
    rewards, prompts = grades(200, seed=4), prompts_of(200, seed=5)
    summary = select(corpus(tmp_path / "in", rewards, prompts), tmp_path / "out", top_k=k, min_gap=min_gap)
    groups: dict[str, list[tuple[float, int, int]]] = {}
    for index, (prompt, reward) in enumerate(zip(prompts, rewards, strict=True)):
        if reward is not None:
            groups.setdefault(prompt, []).append((reward, _tie(index), index))
    expected, close = [], 0
    for group in groups.values():
        best = sorted(group, reverse=True)
        if min_gap is not None and (len(best) == 1 or best[0][0] - best[1][0] < min_gap):
            close += len(best[:k])
        else:
            expected += [position for *_, position in best[:k]]
    assert numbers(tmp_path / "out") == sorted(expected)
    assert summary.not_kept.get("min_gap", 0) == close
    assert summary.selection == {"by": "reward", "top_k": k, "per": "prompt", "min_gap": min_gap}


def _tie(at: int) -> int:
    """As the documentation has it: the lower half of the MD5 of the row and the response's name."""
    return int.from_bytes(hashlib.md5(f"c:{at} final".encode()).digest()[8:], "little")


def test_the_best_of_each_row(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in", [1.0, 2.0, 3.0], ["same"] * 3)
    assert select(folder, top_k=1, per="row").kept == 3
    assert select(folder, top_k=1).kept == 1


@pytest.mark.parametrize("choice", [{"where": "reward > 2"}, {"top_fraction": 0.4}, {"top_k": 2}], ids=str)
def test_a_filter_that_was_killed_goes_on_with_what_isnt_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: dict[str, Any]
) -> None:
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 1)
    monkeypatch.setattr(filter_corpus, "_OUTPUT_BYTES", 1)
    monkeypatch.setattr(filter_corpus, "workers", lambda tasks: workers(1))
    folder = corpus(tmp_path / "in", grades(100, seed=6), prompts_of(100, seed=7))
    calm, out, rest = tmp_path / "calm", tmp_path / "out", tmp_path / "rest"
    whole = select(folder, calm, **choice)
    with monkeypatch.context() as patch:
        patch.setattr(filter_step, "_reasons", _dies_after(15))
        with pytest.raises(KeyboardInterrupt):
            select(folder, out, rest=str(rest), **choice)
    before = {path.name: path.stat().st_ino for path in out.glob("*.parquet")}
    assert before
    assert json.loads((out / "filter.json").read_text())["summary"] is None
    assert select(folder, out, rest=str(rest), **choice) == whole
    assert {path.name: path.stat().st_ino for path in out.glob("*.parquet") if path.name in before} == before
    assert numbers(out) == numbers(calm)
    assert sorted(numbers(out) + numbers(rest)) == list(range(100))
    assert sorted(os.listdir(out)) == sorted(os.listdir(calm)), "what was noted on the way is gone"


def _dies_after(calls: int) -> Any:
    remaining: Iterator[int] = iter(range(calls))
    find_reasons = filter_step._reasons

    def find_or_die(*arguments: Any) -> Any:
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return find_reasons(*arguments)

    return find_or_die


def test_another_filter_starts_anew_in_a_folder_that_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpus(tmp_path / "in", [float(index) for index in range(30)])
    with monkeypatch.context() as patch:
        patch.setattr(filter_step, "_reasons", _dies_after(2))
        with pytest.raises(KeyboardInterrupt):
            select(folder, tmp_path / "out", where="reward >= 0")
    select(folder, tmp_path / "out", where="reward >= 28")
    assert numbers(tmp_path / "out") == [28, 29]


def test_what_is_kept_of_little_comes_in_few_files(
    tmp_path: Path, small_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = corpus(tmp_path / "in", [float(index % 10) for index in range(400)])
    part = next((tmp_path / "in" / "parts").iterdir()).stat().st_size
    monkeypatch.setattr(filter_corpus, "_OUTPUT_BYTES", 5 * part)
    select(folder, tmp_path / "all", where="reward >= 0")
    select(folder, tmp_path / "few", where="reward >= 9")
    files = {name: len(list((tmp_path / name).glob("*.parquet"))) for name in ("all", "few")}
    assert files == {"all": 10, "few": 1}


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({}, "there is nothing to filter by: give --where, --top-fraction, --quantile, --top-k or --labels"),
        ({"top_fraction": 0.1, "top_k": 1}, "--top-fraction and --top-k don't go together"),
        ({"where": "true", "by": "reward"}, "--by is what --top-fraction, --quantile, --top-k and --labels choose by"),
        ({"top_fraction": 0.1, "per": "row"}, "--per goes with --top-k"),
        ({"where": "true", "min_gap": 1.0}, "--min-gap goes with --top-k"),
    ],
)
def test_settings_that_dont_go_together_are_told(tmp_path: Path, choice: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        select(str(tmp_path), **choice)
