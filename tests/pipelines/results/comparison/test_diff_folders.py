"""Each statement of `diff`, against what was planted: a test for every way in which it could lie."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from actors.errors import ExpressionError, OutputError, SettingsError, SourceError
from pipelines.data import storage
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.results.comparison.diff_folders import diff
from pipelines.results.comparison.results import Differences, StatusChange
from pipelines.results.filtering import filter_corpus
from pipelines.settings.diff_settings import DiffSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.candidates import drawn_corpus, judged_corpus, prompts
from tests.support.corpora import chat
from tests.support.failures import rewrite
from tests.support.object_store import BUCKET

MESSAGES = RowShape("messages")


def corpus(folder: Path, rewards: Sequence[Any], texts: Sequence[str] = (), **how: Any) -> str:
    """A scored corpus; with `texts` it has them in a column, too, as it does unless it is scored with `text: false`."""
    words = texts or [f"answer {index}" for index in range(len(rewards))]
    rows = [chat(f"q {text}", text, id=index) for index, text in enumerate(words)]
    return judged_corpus(folder, rows, [[reward] for reward in rewards], MESSAGES, texts=texts, **how)


def compare(first: str, second: str, **more: Any) -> Differences:
    return diff(build(DiffSettings, {"first": first, "second": second, **more}))


def rewrite_manifest(folder: str, **changes: Any) -> str:
    manifest = read_manifest(folder)
    assert manifest is not None
    replace(manifest, **{name: change(getattr(manifest, name)) for name, change in changes.items()}).write(folder)
    return folder


def of_files(folder: str, *files: Mapping[str, Any]) -> str:
    """The corpus with other input files in its manifest."""
    return rewrite_manifest(folder, files=lambda given: tuple(replace(given[0], **file) for file in files))


def other_model(folder: str) -> str:
    return rewrite_manifest(folder, identity=lambda identity: {**identity, "model": "another"})


def replace_column(folder: str, name: str, change: Callable[[Any], Any]) -> None:
    """Change each value of a column of the parts."""
    for path in Path(folder, "parts").glob("*.parquet"):
        table = pq.read_table(path)
        values = [change(value) for value in table.column(name).to_pylist()]
        index = table.schema.get_field_index(name)
        rewrite(path, table.set_column(index, table.schema.field(name), [values]))


def counts_of(differences: Differences) -> tuple[str, int, int, int]:
    """How responses are matched; how many are in both, in the first and in the second only."""
    return differences.matched_by, differences.matched, differences.first.only, differences.second.only


def luck(count: int, seed: int, values: int) -> list[float]:
    """Rewards of few different values: nearly all are ties."""
    rng = random.Random(seed)
    return [float(rng.randrange(values)) for _ in range(count)]


# --- What is matched ------------------------------------------------------------------------------------------------


def test_a_folder_and_itself_do_not_differ(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "a", [1.0, 2.0, None, 4.0])
    gates = {"max_move": 0, "min_rank_correlation": 1, "max_kept_changes": 0}
    differences = compare(folder, folder, where="reward > 1", **gates)
    assert counts_of(differences) == ("row", 4, 0, 0)
    assert differences.changed_statuses == 0
    assert (differences.numbers[0].rank_correlation, differences.largest_move, differences.same_model) == (1.0, 0.0, True)
    assert differences.kept is not None
    assert (differences.kept.both, differences.kept.changes) == (2, 0)
    assert (differences.differs, differences.failures) == ([], [])


def test_other_parts_and_what_a_filter_kept_are_the_same_rows(tmp_path: Path) -> None:
    rewards = [float(index) for index in range(23)]
    first, second = corpus(tmp_path / "a", rewards, part_rows=5), corpus(tmp_path / "b", rewards, part_rows=7)
    assert counts_of(compare(first, second)) == ("row", 23, 0, 0)
    filter_corpus.keep(FilterSettings(scored=first, output=str(tmp_path / "k"), where="reward > 20"))
    assert counts_of(compare(str(tmp_path / "k"), second)) == ("row", 2, 0, 21)


def test_rows_of_a_changed_file_are_matched_by_content(tmp_path: Path) -> None:
    texts = [f"t{index}" for index in range(6)]
    first = corpus(tmp_path / "a", [float(index) for index in range(6)], texts)
    second = corpus(tmp_path / "b", [99.0, 0.0, 1.0, 2.0, 4.0, 5.0], ["new", *texts[:3], *texts[4:]])
    of_files(second, {"fingerprint": "sha256-of-ends:1"})
    differences = compare(first, second)
    assert (counts_of(differences), differences.largest_move) == (("content", 5, 1, 1), 0.0)
    (lost,) = differences.examples["only_in_first"]
    assert (lost["a_row"], lost["text"], lost["a_number"], lost["b_row"]) == ("c:3", "t3", 3.0, None)
    assert differences.examples["only_in_second"][0]["text"] == "new"


def test_a_file_by_another_name_is_the_same_file(tmp_path: Path) -> None:
    rewards: list[float | None] = [1.0, None, 3.0]
    first, second = corpus(tmp_path / "a", rewards), corpus(tmp_path / "b", rewards)
    of_files(second, {"name": "other/name: of.jsonl"})
    replace_column(second, "row", lambda row: row.replace("c:", "other/name: of.jsonl:"))
    assert counts_of(compare(first, second)) == ("row", 3, 0, 0)


def test_rows_of_another_file_in_the_same_place_are_not_the_same(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", [1.0, 2.0]), corpus(tmp_path / "b", [1.0, 2.0])
    shared = {"index": 1, "name": "shared", "fingerprint": "sha256-of-ends:7", "extent": 0}
    of_files(first, {"fingerprint": "sha256-of-ends:1"}, shared)
    of_files(second, {"fingerprint": "sha256-of-ends:2"}, shared)
    with pytest.raises(SourceError, match="no response is in both folders, by input file, place and response name"):
        compare(first, second)


def test_duplicates_are_matched_one_to_one_in_order(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0, 2.0, 3.0, 4.0], ["same", "same", "same", "x"])
    second = of_files(corpus(tmp_path / "b", [7.0, 1.0, 2.0], ["x", "same", "same"]), {"size": 7})
    differences = compare(first, second)
    assert (counts_of(differences), differences.duplicates) == (("content", 3, 1, 0), 2)
    assert sorted((move["a_number"], move["b_number"]) for move in differences.moves) == [(1.0, 1.0), (2.0, 2.0), (4.0, 7.0)]
    assert differences.examples["only_in_first"][0]["a_row"] == "c:2"


def test_candidates_of_one_name_with_other_texts_are_not_the_same(tmp_path: Path) -> None:
    rows = [{"prompt": "q"}]
    first = drawn_corpus(tmp_path / "a", rows, [[("one", 1.0), ("two", 2.0)]], prompts())
    second = drawn_corpus(tmp_path / "b", rows, [[("two", 5.0), ("three", 3.0)]], prompts())
    differences = compare(first, second)
    assert counts_of(differences) == ("content", 1, 1, 1)
    assert [(move["a_number"], move["b_number"], move["text"]) for move in differences.moves] == [(2.0, 5.0, "two")]


def test_folders_without_anything_in_common_are_refused(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0], ["x"])
    second = of_files(corpus(tmp_path / "b", [1.0], ["y"]), {"size": 7, "name": "d"})
    with pytest.raises(SourceError, match=r"no response is in both folders, by prompt and text.* was made of c and .* of d"):
        compare(first, second)
    without_texts = of_files(corpus(tmp_path / "c", [1.0]), {"size": 7})
    with pytest.raises(SettingsError, match="has no column 'response_text'"):
        compare(first, without_texts)


# --- What changed ---------------------------------------------------------------------------------------------------


def test_status_changes_are_counted_by_status_and_reason(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0, 2.0, None, 4.0, None])
    second = corpus(tmp_path / "b", [1.0, None, 3.0, None, None])
    differences = compare(first, second)
    changes = [(c.first, c.first_reason, c.second, c.second_reason, c.responses) for c in differences.status_changes]
    assert changes == [("scored", None, "rejected", "too_long", 2), ("rejected", "too_long", "scored", None, 1)]
    assert [row["a_row"] for row in differences.examples["status_changes"]] == ["c:1", "c:2", "c:3"]
    assert differences.numbers[0].responses == 1
    replace_column(second, "reason", lambda reason: reason and "control_token")
    assert StatusChange("rejected", "too_long", "rejected", "control_token", 1) in compare(first, second).status_changes


def mean_ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + (list(values).count(value) + 1) / 2 for value in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """By its definition: Pearson's correlation of ranks, of which equal numbers share the mean."""
    return float(np.corrcoef(mean_ranks(first), mean_ranks(second))[0, 1])


@pytest.mark.parametrize("values", [3, 1000])
def test_the_rank_correlation_is_spearmans_with_ties(tmp_path: Path, values: int) -> None:
    first = luck(400, 1, values)
    second = [reward + noise for reward, noise in zip(first, luck(400, 2, values), strict=True)]
    differences = compare(corpus(tmp_path / "a", first, part_rows=90), corpus(tmp_path / "b", second, part_rows=70))
    assert differences.numbers[0].rank_correlation == pytest.approx(spearman(first, second), abs=1e-13)


def test_what_has_no_rank_correlation_says_why(tmp_path: Path) -> None:
    ascending, equal = corpus(tmp_path / "a", [1.0, 2.0]), corpus(tmp_path / "b", [1.0, 1.0])
    assert compare(ascending, corpus(tmp_path / "c", [2.0, 1.0])).numbers[0].rank_correlation == -1.0
    differences = compare(ascending, equal, min_rank_correlation=-1)
    assert differences.numbers[0].rank_correlation is None
    assert differences.failures == [
        "reward has no rank correlation to hold against -1: one of the folders has a single value"
    ]
    for folder in (ascending, equal):
        rewrite_manifest(folder, columns=lambda columns: replace(columns, within_row=True))
    differences = compare(ascending, equal)
    assert "can't be compared" in (differences.numbers[0].why_not or "")
    assert (differences.unit, differences.largest_move) == ("value", 1.0)
    assert compare(ascending, other_model(equal)).unit is None


def test_moves_of_one_model_are_in_its_unit_the_largest_first(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", [1.0, 2.0, 3.0, 4.0]), corpus(tmp_path / "b", [1.5, 2.0, 0.0, 4.25])
    differences = compare(first, second, show=2)
    assert (differences.unit, differences.largest_move, differences.same_model) == ("value", 3.0, True)
    assert [(move["a_row"], move["move"], move["text"]) for move in differences.moves] == [
        ("c:2", -3.0, "answer 2"),
        ("c:0", 0.5, "answer 0"),
    ]
    assert [(move["a_position"], move["b_position"]) for move in differences.moves] == [(2, 4), (4, 3)]
    number = differences.numbers[0]
    assert (number.mean_difference, number.mean_absolute_difference, number.largest_difference) == (-0.5625, 0.9375, 3.0)
    assert compare(second, first).moves[0]["move"] == 3.0


def test_rewards_of_cascades_are_not_subtracted(tmp_path: Path) -> None:
    """The large model judged row 0 in the first folder, and row 1 in the second."""
    folders = corpus(tmp_path / "a", [101.0, 2.0, 103.0]), corpus(tmp_path / "b", [1.0, 102.0, 103.0])
    for folder in folders:
        rewrite_manifest(folder, columns=lambda columns: replace(columns, staged=True, within_row=True))
    differences = compare(*folders)
    assert (differences.unit, differences.same_model, differences.moves) == (None, False, [])
    assert differences.numbers[0].largest_difference is None


def test_two_models_are_compared_by_rank(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0, 2.0, 3.0, 4.0])
    second = other_model(corpus(tmp_path / "b", [100.0, 400.0, 300.0, 300.0]))
    differences = compare(first, second)
    assert (differences.unit, differences.same_model, differences.differs) == ("percentile", False, ["model"])
    assert differences.numbers[0].largest_difference is None
    # Ranks 1 2 3 4 and 1 4 2.5 2.5, of four: half a rank is 12.5 points.
    assert [(move["a_row"], move["move"]) for move in differences.moves] == [
        ("c:1", 50.0),
        ("c:3", -37.5),
        ("c:2", -12.5),
        ("c:0", 0),
    ]
    assert (differences.moves[1]["a_position"], differences.moves[1]["b_position"]) == (1.0, 2.5)
    assert (differences.moves[1]["a_percentile"], differences.moves[1]["b_percentile"]) == (87.5, 50.0)


def test_every_common_number_is_compared_and_gates_are_of_the_first(tmp_path: Path) -> None:
    rising = [{"reward": float(index), "x": float(index)} for index in range(4)]
    falling = [{"reward": float(index), "x": -float(index)} for index in range(4)]
    first = corpus(tmp_path / "a", rising, outputs=("reward", "x"))
    second = corpus(tmp_path / "b", falling, outputs=("x", "reward"), prefix="judge_")
    differences = compare(first, second)
    assert {number.name: number.rank_correlation for number in differences.numbers} == {
        "reward": 1.0,
        "scores.reward": 1.0,
        "scores.x": -1.0,
    }
    assert differences.largest_move == 0.0
    turned = compare(first, second, numbers=("scores.x",), min_rank_correlation=0)
    assert [number.name for number in turned.numbers] == ["scores.x"]
    assert turned.largest_move == 6.0
    assert turned.failures == ["the rank correlation of scores.x is -1.000000, less than 0"]
    with pytest.raises(SettingsError, match=r"--number scores.y: .* has reward, scores.reward, scores.x"):
        compare(first, second, numbers=("scores.y",))


# --- What a filter would keep ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        {"where": "id % 2 = 0", "top_fraction": 0.3},
        {"top_k": 1},
        {"where": "reward > 1"},
        {"quantile": 0.6, "by": "-reward"},
    ],
    ids=str,
)
def test_what_is_kept_is_what_filter_keeps(tmp_path: Path, choice: dict[str, Any]) -> None:
    folders, kept = [], []
    for seed, name in enumerate("ab"):
        rows = [chat(f"q{index // 4}", f"answer {index}", id=index) for index in range(120)]
        rewards = [[reward] for reward in luck(120, seed, 4)]
        folders.append(judged_corpus(tmp_path / name, rows, rewards, MESSAGES, part_rows=30, parquet=True))
        output = tmp_path / f"kept-{name}"
        filter_corpus.keep(FilterSettings(scored=folders[-1], output=str(output), format="parquet", **choice))
        tables = [pq.read_table(path) for path in output.glob("kept-*.parquet")]
        kept.append({row for table in tables for row in table.column("row").to_pylist()})
    differences = compare(*folders, show=200, **choice)
    assert differences.kept is not None
    first, second = kept
    counts = (differences.kept.both, differences.kept.first_only, differences.kept.second_only)
    assert counts == (len(first & second), len(first - second), len(second - first))
    assert {row["a_row"] for row in differences.examples["kept_in_first_only"]} == first - second
    assert {row["b_row"] for row in differences.examples["kept_in_second_only"]} == second - first


def test_a_filter_that_does_not_fit_is_the_users_mistake(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "a", [1.0, 2.0])
    with pytest.raises(ExpressionError, match="there is no column nonsense"):
        compare(folder, folder, where="nonsense > 1")


def test_a_response_that_is_kept_in_one_folder_only_counts_apart(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [5.0, 5.0], ["x", "y"])
    second = of_files(corpus(tmp_path / "b", [5.0, 5.0, 5.0], ["x", "z", "w"]), {"size": 7})
    kept = compare(first, second, where="reward > 1").kept
    assert kept is not None
    assert (kept.both, kept.changes, kept.first_unmatched, kept.second_unmatched) == (1, 0, 1, 2)
    with pytest.raises(SettingsError, match="--max-kept-changes goes with a filter"):
        compare(first, second, max_kept_changes=0)


# --- Gates ----------------------------------------------------------------------------------------------------------

GATES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"max_move": 2.0, "max_unmatched": 1},
        {"max_move": 1.99, "max_unmatched": 1},
        "the largest move is 2 (c:3, final), in units of the number, more than 1.99",
    ),
    (
        {"min_rank_correlation": 0.8, "max_unmatched": 1},
        {"min_rank_correlation": 0.81, "max_unmatched": 1},
        "the rank correlation of reward is 0.800000, less than 0.81",
    ),
    ({"max_status_changes": 1}, {"max_status_changes": 0}, "1 responses have another status or reason, more than 0"),
    (
        {"max_kept_changes": 2, "where": "reward > 3", "max_unmatched": 1},
        {"max_kept_changes": 1, "where": "reward > 3", "max_unmatched": 1},
        "2 responses would be kept in one and not in the other, more than 1",
    ),
]


@pytest.mark.parametrize(("passing", "failing", "why"), GATES, ids=lambda value: str(value)[:40])
def test_a_gate_lets_pass_what_it_says(tmp_path: Path, passing: Any, failing: Any, why: str) -> None:
    # Ranks of those scored in both: 1 2 3 4 and 1 2 4 3. c:0 isn't scored in the second.
    first = corpus(tmp_path / "a", [9.0, 1.0, 2.0, 3.0, 4.0])
    second = corpus(tmp_path / "b", [None, 1.0, 2.0, 5.0, 4.0])
    assert compare(first, second, **passing).failures == []
    assert compare(first, second, **failing).failures == [why]


@pytest.mark.parametrize(
    "gate", [{"max_move": 0}, {"min_rank_correlation": 0.999}, {"max_kept_changes": 9, "where": "reward > 99"}], ids=str
)
def test_a_number_that_is_gone_fails_any_gate_unless_allowed(tmp_path: Path, gate: dict[str, Any]) -> None:
    rewards = [float(index) for index in range(8)]
    whole, shorter = corpus(tmp_path / "a", rewards), corpus(tmp_path / "b", [*rewards[:5], None, None, None])
    for first, second in ((whole, shorter), (shorter, whole)):
        assert (compare(first, second).failures, compare(first, second).number_only) == ([], 3)
        assert compare(first, second, **gate).failures == ["3 responses have a number in one folder only, more than 0"]
        assert compare(first, second, **gate, max_unmatched=2).failures != []
        assert compare(first, second, **gate, max_unmatched=3).failures == []
        assert compare(first, second, **gate, max_status_changes=3).failures == [], "these are what it allows"


def test_any_number_that_is_compared_may_be_gone(tmp_path: Path) -> None:
    whole = [{"reward": float(index), "x": float(index)} for index in range(4)]
    first = corpus(tmp_path / "a", whole, outputs=("reward", "x"))
    second = corpus(tmp_path / "b", [{**whole[0], "x": None}, *whole[1:]], outputs=("reward", "x"))
    gone = ["1 responses have a number in one folder only, more than 0"]
    assert compare(first, second, max_move=0).failures == gone
    assert compare(first, second, max_status_changes=0).failures == gone, "its status is the same"
    assert compare(first, second, max_move=0, numbers=("reward",)).failures == [], "the others aren't compared"


def test_responses_in_one_folder_only_fail_any_gate_unless_allowed(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0, 2.0, 3.0], ["x", "y", "z"])
    second = of_files(corpus(tmp_path / "b", [1.0, None], ["x", "y"]), {"size": 7})
    assert compare(first, second).failures == []
    assert compare(first, second, max_move=1, max_unmatched=1).failures == [
        "1 responses are in one folder only and 1 responses have a number in one folder only, more than 1"
    ]
    assert compare(first, second, max_move=1, max_unmatched=2).failures == []
    (failure,) = compare(first, corpus(tmp_path / "c", [None] * 3), max_move=9, max_status_changes=3).failures
    assert failure.startswith("there are no moves to hold against 9")


# --- What is written ------------------------------------------------------------------------------------------------


def test_the_folder_has_the_document_and_every_move(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", luck(40, 1, 9)), corpus(tmp_path / "b", luck(40, 2, 9))
    differences = compare(first, second, output=str(tmp_path / "d"), show=3)
    document = json.loads((tmp_path / "d" / "diff.json").read_text())
    assert document == json.loads(json.dumps(differences.as_json()))
    assert (document["assay_diff"], len(document["moves"])) == (1, 3)
    moves = pq.read_table(tmp_path / "d" / "moves.parquet").to_pydict()
    sizes = np.abs(moves["move"])
    assert len(sizes) == 40
    assert (np.diff(sizes) <= 0).all()
    assert moves["a_row"][:3] == [move["a_row"] for move in differences.moves]
    compare(first, second, output=str(tmp_path / "d"))  # a result of its kind is replaced
    with pytest.raises(OutputError, match="isn't empty, and isn't a result of `assay diff`"):
        compare(first, second, output=first)


@pytest.mark.long
def test_folders_in_a_store_are_compared(tmp_path: Path, s3: Any) -> None:
    folders = [corpus(tmp_path / name, [1.0, reward]) for name, reward in (("a", 2.0), ("b", 3.0))]
    s3.put(folders[1], f"{BUCKET}/b", recursive=True)
    differences = compare(folders[0], f"{BUCKET}/b", output=f"{BUCKET}/d")
    assert (differences.matched, differences.largest_move) == (2, 1.0)
    assert json.loads(storage.folder(f"{BUCKET}/d").read("diff.json"))["matched"] == 2
