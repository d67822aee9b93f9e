"""What becomes of several models' rewards, against the same formulas by numpy; and members that don't go together."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import AuditError, RunStopped, SourceError
from actors.records import Reason, Score
from pipelines.cli.status import status
from pipelines.data.storage import open_read
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.folders.run_folder.parts import Parts
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.runtime.progress import Progress
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.run_settings import Combine, CombineSettings
from pipelines.workflows.ensembles import combined_corpus, score_ensemble
from pipelines.workflows.ensembles.score_ensemble import combine
from pipelines.workflows.ensembles.z_scores import responses_needed
from tests.support import corpora
from tests.support.ensembles import (
    Response,
    Row,
    combined,
    expected,
    member,
    members,
    scored,
    some_rows,
    to_prompt,
    written,
    z_scores,
)
from tests.support.object_store import BUCKET

NAMES = ("small", "large", "third")
AB = ("a", "b")
ROW: Row = to_prompt("p", (0.0, 1.0))[0]


def same(actual: Any, wanted: Any) -> None:
    """Equal, numbers to 1e-9, and null exactly where it is NaN."""
    if isinstance(wanted, dict):
        assert actual.keys() >= wanted.keys()
        for name, value in wanted.items():
            same(actual[name], value)
    elif isinstance(wanted, float):
        assert actual == (None if math.isnan(wanted) else pytest.approx(wanted, rel=1e-9, abs=1e-9))
    else:
        assert actual == wanted


def check(output: Path, rows: Sequence[Row], names: tuple[str, ...], **options: Any) -> list[dict[str, Any]]:
    """Combine, and compare every number of every response; gives what came out."""
    combined(output, names, **options)
    result = corpora.scored(output)
    settings = CombineSettings(**options)
    wanted = expected(rows, names, settings.combine, settings.suspect_reward, settings.suspect_disagreement)
    assert len(result) == len(wanted)
    for item, other in zip(result, wanted, strict=True):
        same(item, other)
        assert item["scores"] is None or item["scores"].keys() == other["scores"].keys()
    places = [(index, f"r[{number}]") for index, row in enumerate(rows) for number, _ in enumerate(row)]
    assert [(row["n"], row["response_name"]) for row in result] == places
    return result


@pytest.mark.parametrize("how", Combine)
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.long), 3])
def test_every_number_is_what_numpy_makes_of_it(tmp_path: Path, how: Combine, count: int) -> None:
    rows = some_rows(200, seed=count, members=count)
    members(tmp_path, rows, NAMES[:count], files=[90, 0, 110])
    actual_rows = check(tmp_path, rows, NAMES[:count], combine=how, suspect_reward=0.2, suspect_disagreement=1.3)
    reasons = {row["reason"] for row in actual_rows}
    assert reasons >= {None, "too_long", "not_finite"}
    assert ("no_baseline" in reasons) == how.value.startswith("z-")
    assert {row["suspect"] for row in actual_rows} == {True, False, None}


def test_a_prompt_with_one_response_has_no_z_scores(tmp_path: Path) -> None:
    rows = [*to_prompt("alone", (1.0, 2.0)), *to_prompt("both", (1.0, 2.0), (3.0, 1.0))]
    members(tmp_path, rows, AB)
    alone, *both = check(tmp_path, rows, AB)
    assert (alone["status"], alone["reason"], alone["reward"], alone["scores"]) == ("rejected", "no_baseline", None, None)
    assert [row["reward"] for row in both] == [0.0, 0.0]  # each is the better one of one member
    alone, *_ = check(tmp_path, rows, AB, combine="mean")
    assert (alone["status"], alone["reward"], alone["suspect"]) == ("scored", 1.5, None)
    assert {name: value for name, value in alone["scores"].items() if value is not None} == {
        "a": 1.0, "b": 2.0, "mean": 1.5, "min": 1.0, "spread": 1.0,
    }  # fmt: skip


def test_members_that_disagree_on_two_responses_make_them_equal(tmp_path: Path) -> None:
    """Of two responses the z-scores are 0.7071 and -0.7071, whatever the rewards' last bits are."""
    draw = np.random.default_rng(7)
    pairs = [[float(reward) for reward in draw.normal(size=2).astype(np.float32)] for _ in range(200)]
    rows = [
        row
        for number, ((low, high), (worse, better)) in enumerate(itertools.pairwise(map(sorted, pairs)))
        for row in to_prompt(f"p{number}", (low, better), (high, worse))
    ]
    members(tmp_path, rows, AB)
    assert {row["reward"] for row in check(tmp_path, rows, AB)} == {0.0}
    assert len({row["reward"] for row in check(tmp_path, rows, AB, combine="z-min")}) == 1


def test_a_member_that_gives_all_the_same_reward_has_no_z_scores(tmp_path: Path) -> None:
    noise = 4.8e-7  # what another batch order moves
    rows = to_prompt("p", (1.0, 2.0), (2.0, 2.0 + noise), (3.0, 2.0))
    members(tmp_path, rows, AB)
    actual_rows = check(tmp_path, rows, AB, combine="min")
    assert [row["scores"]["z_a"] for row in actual_rows] == [-1.0, 0.0, 1.0]
    assert [row["scores"]["z_b"] for row in actual_rows] == [None] * 3
    assert [row["scores"]["z_mean"] for row in actual_rows] == [None] * 3


def test_a_response_that_a_member_didnt_score_is_in_no_baseline(tmp_path: Path) -> None:
    refused, failed = Score.rejected(Reason.CONTROL_TOKEN), Score.failed(Reason.NOT_FINITE, 3)
    item, another = scored(100.0)[0], scored(-100.0)[0]
    odd = [[Response("p", (item, refused))], [Response("p", (failed, refused))], [Response("p", (failed, another))]]
    rows = [*to_prompt("p", (1.0, 4.0), (2.0, 7.0), (6.0, 5.0)), *odd]
    members(tmp_path, rows, AB)
    actual_rows = check(tmp_path, rows, AB)
    assert [row["reason"] for row in actual_rows[3:]] == ["control_token", "not_finite", "not_finite"]
    assert [row["status"] for row in actual_rows[3:]] == ["rejected", "failed", "failed"]
    z = [z_scores([1.0, 2.0, 6.0]), z_scores([4.0, 7.0, 5.0])]
    assert [row["reward"] for row in actual_rows[:3]] == pytest.approx([(a + b) / 2 for a, b in zip(*z, strict=True)])


# --- suspects ------------------------------------------------------------------------------------------------------

ALIKE = [(index / 10, index / 10) for index in range(11)]
"""Both members order these responses alike."""


@pytest.mark.parametrize(("odd", "is_suspect"), [((1.92, 0.6), True), ((-0.92, 0.4), False)])
def test_what_one_model_likes_alone_is_suspect_and_what_it_dislikes_isnt(
    tmp_path: Path, odd: tuple[float, float], is_suspect: bool
) -> None:
    rows = to_prompt("p", *ALIKE, odd)
    members(tmp_path, rows, AB)
    actual_rows = check(tmp_path, rows, AB)
    assert [row["suspect"] for row in actual_rows] == [False] * 11 + [is_suspect]
    assert actual_rows[11]["scores"]["z_disagreement"] > 1.96
    assert [row["suspect"] for row in check(tmp_path, rows, AB, suspect_reward=1.5)] == [False] * 12
    assert [row["suspect"] for row in check(tmp_path, rows, AB, suspect_disagreement=3.0)] == [False] * 12


def test_members_in_perfect_agreement_suspect_nothing(tmp_path: Path) -> None:
    rows = to_prompt("p", *((index * index / 7, index * index * 0.3 + 0.7) for index in range(12)))
    members(tmp_path, rows, AB)
    actual_rows = check(tmp_path, rows, AB, suspect_disagreement=0.0)
    assert [(row["suspect"], row["scores"]["z_disagreement"]) for row in actual_rows] == [(False, None)] * 12


def greatest_z(count: int) -> float:
    """Of so many numbers, the greatest z-score that there can be: one is away from all others, which are equal."""
    values = np.array([1.0] + [0.0] * (count - 1))
    return float((values[0] - values.mean()) / values.std(ddof=1))


def test_the_fewest_responses_for_a_z_score() -> None:
    for z in (0.0, 0.5, 0.75, 1.0, 1.5, 1.96, 2.0, 2.58, 3.0, 7.3, 100.0):
        count = responses_needed(z)
        assert greatest_z(count) > z
        assert count == 2 or greatest_z(count - 1) <= z + 1e-12


# --- agreement -----------------------------------------------------------------------------------------------------


def test_how_far_members_agree(tmp_path: Path) -> None:
    prompts = {
        "agree": [(1.0, 5.0), (2.0, 6.0), (3.0, 7.5)],
        "apart": [(1.0, 9.0), (3.0, 8.0), (0.0, 1.0)],
        "a tie": [(4.0 + 1e-7, 1.0), (4.0, 2.0), (1.0, 0.0)],
        "alone": [(1.0, 1.0)],
        "no matter": [(1.0, 1.0), (1.0, 2.0)],
    }
    rows = [row for prompt, rewards in prompts.items() for row in to_prompt(prompt, *rewards)]
    members(tmp_path, rows, AB)
    _, agreement = combined(tmp_path, AB)
    assert (agreement.prompts, agreement.compared, agreement.needed, agreement.too_few) == (5, 3, 6, 5)
    (pair,) = agreement.pairs
    assert (pair.first, pair.second, pair.same_best) == ("a", "b", pytest.approx(2 / 3))
    z = [
        [z_score for prompt in list(prompts)[:3] for z_score in z_scores([item[index] for item in prompts[prompt]])]
        for index in (0, 1)
    ]
    assert pair.correlation == pytest.approx(np.corrcoef(z)[0, 1])


def test_the_summary_counts_what_came_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(150, seed=5, members=2)
    members(tmp_path, rows, AB)
    summary, agreement = combined(tmp_path, AB, suspect_disagreement=1.0)
    result = corpora.scored(tmp_path)
    assert summary.rows == 150
    assert summary.responses == len(result) == summary.scored + summary.rejected + summary.failed
    assert summary.scored == sum(row["reward"] is not None for row in result)
    assert summary.flags == {"suspect": sum(row["suspect"] is True for row in result)}
    assert summary.flags["suspect"] > 0
    monkeypatch.setattr(score_ensemble, "align_members", None)  # nothing is compared again
    assert combined(tmp_path, AB, suspect_disagreement=1.0) == (summary, agreement)
    assert status(str(tmp_path)).complete


@pytest.mark.parametrize("rows", [[], [[]] * 5, [[Response("p", (Score.rejected(Reason.TOO_LONG),) * 2)]] * 3])
def test_a_corpus_without_a_reward_is_combined_too(tmp_path: Path, rows: list[Row]) -> None:
    members(tmp_path, rows, AB)
    summary, agreement = combined(tmp_path, AB)
    assert (summary.rows, summary.scored, agreement.prompts) == (len(rows), 0, 0)
    assert summary.quantiles == {}
    assert combined(tmp_path, AB) == (summary, agreement)


def test_a_baseline_is_of_responses_to_which_all_members_were_shown_the_same(tmp_path: Path) -> None:
    """A verifier's prompts differ by the rows' references, those of a head don't."""
    rewards = [(1.0, 5.0), (2.0, 1.0), (4.0, 2.0), (0.0, 3.0)]
    member(tmp_path, "a", to_prompt("p", *rewards), 0, part_rows=4)
    member(tmp_path, "b", [*to_prompt("p", *rewards[:2]), *to_prompt("q", *rewards[2:])], 1, part_rows=4)
    combined(tmp_path, AB)
    z_of_a = [row["scores"]["z_a"] for row in corpora.scored(tmp_path)]
    assert z_of_a == pytest.approx([*z_scores([1.0, 2.0]), *z_scores([4.0, 0.0])])


# --- members that don't go together --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "files", "message"),
    [
        ({3: [*ROW, *ROW]}, (), r"don't hold the same responses: of a 10, b 11 responses, all of them have 10"),
        ({9: []}, (), r"don't hold the same responses: of a 10, b 9 responses, all of them have 9"),
        ({3: [*ROW, *ROW], 9: []}, (), r"the same responses: of a 10, b 10 responses, all of them have 9"),
        ({}, (4, 6), "the members weren't made of the same files: b of others than a"),
    ],
)
def test_a_member_with_other_responses_is_refused(
    tmp_path: Path, change: dict[int, Row], files: tuple[int, ...], message: str
) -> None:
    rows = [change.get(index, ROW) for index in range(10)]
    member(tmp_path, "a", [ROW] * 10, 0, part_rows=4)
    member(tmp_path, "b", rows, 1, part_rows=3, files=files)
    with pytest.raises(AuditError, match=message):
        combined(tmp_path, AB)
    assert Parts(str(tmp_path)).listing() == []


def test_a_member_that_isnt_complete_is_refused(tmp_path: Path) -> None:
    members(tmp_path, some_rows(40, 1, 2), AB)
    lost = Parts(folder_of(str(tmp_path), "b"))
    lost.parts_folder.delete(lost.listing()[2].name)
    with pytest.raises(SourceError, match=r"models/b isn't complete"):
        combined(tmp_path, AB)


def test_a_damaged_part_of_a_member_is_named(tmp_path: Path) -> None:
    members(tmp_path, some_rows(40, 1, 2), AB)
    part = sorted((tmp_path / "models" / "b" / "parts").iterdir())[2]
    content = part.read_bytes()
    part.write_bytes(content[:200] + b"\0" * 20 + content[220:])
    with pytest.raises(SourceError, match=rf"models/b/parts/{part.name} "):
        combined(tmp_path, AB)


def test_rows_that_couldnt_be_read_are_the_same_row(tmp_path: Path) -> None:
    broken: Any = Response(None, (Score.rejected(Reason.BROKEN_JSON),) * 2)  # type: ignore[arg-type]
    members(tmp_path, [*to_prompt("p", (0.0, 1.0), (1.0, 3.0)), [broken]], AB)
    assert combined(tmp_path, AB)[0].rejected == 1


# --- what is there already -----------------------------------------------------------------------------------------


class StoppedAfter(Progress):
    """Ctrl-C when so many tasks have written their parts."""

    def __init__(self, tasks: int) -> None:
        self._left = tasks

    def combined(self, done: int, count: int) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, pa.Table]:
    """The parts by their names without the run."""
    return {path.stem.rpartition("-")[0]: pq.read_table(path) for path in (folder / "parts").glob("*.parquet")}


@pytest.mark.usefixtures("local_ray")
def test_a_combination_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(100, seed=9, members=2)
    for name in ("calm", "stopped"):
        members(tmp_path / name, rows, AB)
    calm = combined(tmp_path / "calm", AB)
    monkeypatch.setattr(combined_corpus, "_GROUP_RESPONSES", 40)
    monkeypatch.setattr(combined_corpus, "_WAVE", 2)
    with pytest.raises(KeyboardInterrupt):
        combine(str(tmp_path / "stopped"), AB, CombineSettings(), {}, StoppedAfter(2))
    before = written(tmp_path / "stopped")
    assert 0 < len(Parts(str(tmp_path / "stopped")).listing()) < 10
    assert not status(str(tmp_path / "stopped")).complete
    assert combined(tmp_path / "stopped", AB) == calm
    after = written(tmp_path / "stopped")
    assert {name: after[name] for name in before} == before
    assert contents(tmp_path / "stopped") == contents(tmp_path / "calm")


def test_other_settings_combine_anew(tmp_path: Path) -> None:
    rows = some_rows(60, seed=3, members=2)
    members(tmp_path, rows, AB)
    check(tmp_path, rows, AB)
    before = written(tmp_path)
    check(tmp_path, rows, AB)
    assert written(tmp_path) == before
    check(tmp_path, rows, AB, combine="mean")
    check(tmp_path, rows, AB, combine="mean", suspect_disagreement=0.5)


def test_parts_of_other_settings_that_a_kill_left_are_not_taken(tmp_path: Path) -> None:
    rows = some_rows(60, seed=3, members=2)
    members(tmp_path, rows, AB)
    combined(tmp_path, AB)
    for part in Parts(str(tmp_path)).listing()[::2]:  # as far as deleting them had come
        Parts(str(tmp_path)).parts_folder.delete(part.name)
    check(tmp_path, rows, AB, combine="min")


def test_a_member_that_scored_otherwise_since_is_not_filtered_but_combined_anew(tmp_path: Path) -> None:
    rows = some_rows(60, seed=3, members=2)
    members(tmp_path, rows, AB)
    check(tmp_path, rows, AB)
    Parts(folder_of(str(tmp_path), "b")).delete()
    other = [[Response(of.prompt, (of.scores[0], *scored(float(index)))) for of in row] for index, row in enumerate(rows)]
    member(tmp_path, "b", other, 1, part_rows=8)
    with pytest.raises(SourceError, match=r"made of what b had scored, and .*models/b holds other rewards now"):
        keep(FilterSettings(scored=str(tmp_path), where="reward > 0"))
    check(tmp_path, other, AB)
    assert keep(FilterSettings(scored=str(tmp_path), where="reward > 0")).kept > 0


def test_a_member_that_was_retried_since_is_not_filtered(tmp_path: Path) -> None:
    members(tmp_path, some_rows(60, seed=3, members=2), AB)
    combined(tmp_path, AB)
    folder = folder_of(str(tmp_path), "b")
    manifest = read_manifest(folder)
    assert manifest is not None
    replace(manifest, retries=({"session": "1"},)).write(folder)
    with pytest.raises(SourceError, match="models/b holds other rewards now"):
        keep(FilterSettings(scored=str(tmp_path), where="reward > 0"))


def test_parts_of_a_member_that_changed_alone_are_combined_anew(tmp_path: Path) -> None:
    rows = some_rows(60, seed=3, members=2)
    members(tmp_path, rows, AB)
    check(tmp_path, rows, AB)
    Parts(folder_of(str(tmp_path), "b")).delete()
    other = [[Response(of.prompt, (of.scores[0], *scored(float(index)))) for of in row] for index, row in enumerate(rows)]
    member(tmp_path, "b", other, 1, part_rows=7)
    manifest = read_manifest(folder_of(str(tmp_path), "b"))
    assert manifest is not None
    path = tmp_path / "models" / "b" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"identity": {**manifest.identity, "rows": repr(rows)}}))
    check(tmp_path, other, AB)


def test_the_combined_corpus_is_whole_without_its_members(tmp_path: Path) -> None:
    rows = some_rows(60, seed=3, members=2)
    members(tmp_path, rows, AB)
    combined(tmp_path, AB)
    (tmp_path / "models").rename(tmp_path.parent / "elsewhere")
    kept = keep(FilterSettings(scored=str(tmp_path), where="not suspect and reward > 0 and scores.z_min > -1"))
    assert 0 < kept.kept < kept.responses


def test_every_part_says_what_it_was_made_of(tmp_path: Path) -> None:
    members(tmp_path, some_rows(30, seed=3, members=2), AB)
    combined(tmp_path, AB)
    manifest = read_manifest(str(tmp_path))
    assert manifest is not None
    for path in (tmp_path / "parts").iterdir():
        assert json.loads(pq.read_schema(path).metadata[b"assay"])["identity"] == manifest.identity
    assert manifest.identity["members"]["a"]["identity"]["model"] == "model a"
    assert manifest.identity["combine"] == "z-mean"


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_ensemble, "_MEMORY", "1KB")
    members(tmp_path, some_rows(60, seed=3, members=2), AB)
    with pytest.raises(RunStopped, match=r"the rewards can't be compared in .*assay-ensemble-"):
        combined(tmp_path, AB)


def test_an_ensemble_in_an_object_store(s3: Any) -> None:
    rows = some_rows(40, seed=3, members=2)
    members(f"{BUCKET}/out", rows, AB)
    combined(f"{BUCKET}/out", AB)
    parts = Parts(f"{BUCKET}/out")
    tables = []
    for part in parts.listing():
        with open_read(parts.parts_folder.file(part.name)) as stream:
            tables.append(pq.read_table(stream))
    rewards = [row["reward"] for table in tables for row in table.to_pylist()]
    for reward, wanted in zip(rewards, expected(rows, AB, Combine.Z_MEAN, 0.0, 1.96), strict=True):
        same(reward, wanted["reward"])
