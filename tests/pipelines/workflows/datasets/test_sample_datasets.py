"""Generate, score, filter and pair as steps over Ray Datasets: the same rows as through folders."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.data import Dataset

from actors.errors import SettingsError, SourceError
from assay import choose, export, filter, pairs, read_scored, sample, score
from pipelines.workflows.datasets.blocks import reader_of
from tests.support.candidates import rows_in
from tests.support.corpora import lines, write

pytestmark = pytest.mark.usefixtures("local_ray")

PROMPTS, N = 20, 4
JUDGED: dict[str, Any] = {"policy": "tiny-genrm", "judge": "tiny-attributes", "engine": "fake"}
MODELS: dict[str, Any] = {**JUDGED, "policy_max_tokens": 64, "n": N}
FEW: dict[str, Any] = {"partitions": 2}
"""What belongs together is brought together by few tasks."""


def prompts(count: int = PROMPTS) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": f"What is {number} + 1?"}], "id": number} for number in range(count)]


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without what Arrow fills in, in any order."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.fixture(scope="module")
def drawn_dataset(local_ray: None) -> Dataset:
    """Candidates in memory; `sample`'s own dataset is still known to be theirs."""
    return sample(ray.data.from_items(prompts()), **MODELS, policy_system="Be brief.")


@pytest.fixture(scope="module")
def held(drawn_dataset: Dataset) -> list[dict[str, Any]]:
    return list(drawn_dataset.take_all())


@pytest.fixture(scope="module")
def in_memory(drawn_dataset: Dataset, held: list[dict[str, Any]]) -> Dataset:
    return ray.data.from_items(held)


@pytest.fixture(scope="module")
def folder(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same through a folder, whose rows have other names, and so other seeds."""
    place = tmp_path_factory.mktemp("sampled")
    sample(str(write(place / "p.jsonl", lines(prompts()))), str(place / "out"), **MODELS, part_rows=5)
    return place / "out"


def test_every_prompt_has_its_candidates_each_with_a_reward(drawn_dataset: Dataset, held: list[dict[str, Any]]) -> None:
    assert len(held) == N * PROMPTS
    assert sorted({row["id"] for row in held}) == list(range(PROMPTS))
    assert {row["response_name"] for row in held} == {f"candidate[{index}]" for index in range(N)}
    assert all(row["status"] == "scored" and row["candidate"] for row in held)
    assert len({row["candidate"] for row in held}) > PROMPTS
    assert set(held[0]) == {"messages", "id", *drawn_dataset.schema().names}


def test_the_same_dataset_again_draws_the_same(held: list[dict[str, Any]]) -> None:
    again = sample(ray.data.from_items(prompts()).repartition(3), **MODELS, policy_system="Be brief.", batch_rows=3)
    assert plain(list(again.take_all())) == plain(held)


def test_a_candidates_reward_is_what_scoring_its_conversation_gives(held: list[dict[str, Any]]) -> None:
    message = [
        {"messages": [{"role": "system", "content": "Be brief."}, *row["messages"], _answer(row["candidate"])]}
        for row in held[:20]
    ]
    result = score(ray.data.from_items(message), model="tiny-attributes", engine="fake").take_all()
    rewards = {row["messages"][-1]["content"] + row["messages"][1]["content"]: row["reward"] for row in result}
    assert [rewards[row["candidate"] + row["messages"][0]["content"]] for row in held[:20]] == [
        row["reward"] for row in held[:20]
    ]


def _answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_policy_may_be_adaptive_and_a_row_may_be_none() -> None:
    rows = [*prompts(4), {"messages": [], "id": 9}]
    result = sample(ray.data.from_items(rows), **MODELS, enough=-99.0).take_all()
    assert sorted((row["id"], row["response_name"], row["status"]) for row in result) == [
        *((number, "candidate[0]", "scored") for number in range(4)),
        (9, "candidate", "rejected"),
    ]


@pytest.mark.long
@pytest.mark.parametrize("per", ["row", "prompt"])
def test_pairs_and_choices_of_a_dataset_are_those_of_its_folder(folder: Path, tmp_path: Path, per: str) -> None:
    read, where = read_scored(str(folder)), "reward > -1"
    pairs(str(folder), str(tmp_path / "pairs"), "trl", per=per, where=where, fake_ok=True)
    assert plain(list(pairs(read, "trl", per=per, where=where, fake_ok=True, **FEW).take_all())) == plain(
        rows_in(tmp_path / "pairs")
    )
    choose(str(folder), str(tmp_path / "best"), "top-k", k=2, per=per)
    result = [{**row, "scores": dict(row["scores"])} for row in choose(read, "top-k", k=2, per=per, **FEW).take_all()]
    assert plain(result) == plain(rows_in(tmp_path / "best"))


def test_exports_of_a_dataset_are_those_of_its_folder(folder: Path, tmp_path: Path) -> None:
    export(str(folder), str(tmp_path / "kto"), "kto", threshold=0.0, fake_ok=True)
    assert plain(list(export(read_scored(str(folder)), "kto", threshold=0.0, fake_ok=True, **FEW).take_all())) == plain(
        rows_in(tmp_path / "kto")
    )


def test_a_whole_pipeline_of_ours(drawn_dataset: Dataset, held: list[dict[str, Any]]) -> None:
    """Generate, score, filter and pair: one lazy dataset."""
    result = pairs(filter(drawn_dataset, "reward > -1"), "trl-implicit", per="row", fake_ok=True, **FEW).take_all()
    good: dict[int, set[str]] = {}
    for row in held:
        if row["reward"] > -1:
            good.setdefault(row["id"], set()).add(row["candidate"])
    assert 0 < len(result) <= sum(len(item) > 1 for item in good.values())
    for row in result:
        system, question, answer = row["chosen"]
        assert (system["role"], system["content"]) == ("system", "Be brief.")
        number = int(question["content"].split()[2])
        assert {answer["content"], row["rejected"][-1]["content"]} <= good[number]


def test_a_scored_dataset_too() -> None:
    rows = [{"prompt": f"What is {index}?", "chosen": f"{index}", "rejected": f"{index + 1}"} for index in range(30)]
    made_up = score(ray.data.from_items(rows), model="tiny-attributes", engine="fake")
    with pytest.raises(SettingsError, match="this dataset are made up, by --engine fake"):
        pairs(made_up, "openrlhf")
    result = pairs(made_up, "openrlhf", fake_ok=True, **FEW).take_all()
    assert 0 < len(result) <= 30


@pytest.mark.parametrize(
    ("judge", "options", "stripped"),
    [
        ("tiny-attributes", {}, False),
        ("tiny-attributes", {"reasoning": "keep"}, False),
        ("tiny-attributes", {"reasoning": "strip"}, True),
        ("tiny-genrm-json", {}, True),
    ],
)
def test_whether_reasoning_was_stripped_is_known_of_a_dataset(judge: str, options: dict[str, Any], stripped: bool) -> None:
    rows = ray.data.from_items([{"prompt": "q", "chosen": "a", "rejected": "b"}])
    drawn_dataset = sample(ray.data.from_items(prompts(2)), **{**MODELS, "judge": judge, **options})
    for dataset in (score(rows, model=judge, engine="fake", **options), drawn_dataset):
        reader = reader_of(dataset)
        assert reader is not None
        assert reader.stripped is stripped


@pytest.mark.long
def test_margins_by_label_are_there_whichever_pair_of_a_prompt_comes_first() -> None:
    """Of two rows with one prompt, responses of both make pairs, too, which have no label."""
    rows = [{"prompt": f"What is {index % 6}?", "chosen": f"{index}", "rejected": f"-{index}"} for index in range(12)]
    made_up = score(ray.data.from_items(rows), model="tiny-attributes", engine="fake")
    result = pairs(made_up, "trl", per="prompt", pairs="all", fake_ok=True, **FEW).take_all()
    assert len(result) == 6 * 6
    labelled = [row for row in result if row.get("label_margin") is not None]
    numbers = [{row[side][0]["content"].strip("-") for side in ("chosen", "rejected")} for row in labelled]
    assert sorted(numbers, key=str) == sorted(({f"{index}"} for index in range(12)), key=str)


@pytest.mark.long
def test_after_a_step_of_ones_own_it_is_told_of_which(drawn_dataset: Dataset, in_memory: Dataset) -> None:
    with pytest.raises(SourceError, match="give of=DATASET, the one that it was made of"):
        pairs(in_memory, "trl")
    longer = in_memory.map(lambda row: {**row, "words": len(row["candidate"].split())})
    assert pairs(longer, "trl", of=drawn_dataset, where="words > 1", fake_ok=True, **FEW).count() > 0


def test_among_equals_the_first_counts_whatever_comes_first() -> None:
    """Ray brings the rows of a group in any order."""
    rows = [{"messages": [{"role": "user", "content": "q"}], "id": 0}]
    drawn_dataset = sample(ray.data.from_items(rows), **{**MODELS, "n": 12})
    table = pa.Table.from_pylist(drawn_dataset.take_all())
    equal = table.set_column(table.column_names.index("reward"), "reward", pa.array([1.0] * 12))
    for order in (range(12), range(11, -1, -1)):
        shuffled = ray.data.from_arrow(equal.take(pa.array(list(order))))
        (best,) = choose(shuffled, "best", of=drawn_dataset, **FEW).take_all()
        assert best["response_name"] == "candidate[0]"
        names = [row["response_name"] for row in choose(shuffled, "top-k", of=drawn_dataset, k=12, **FEW).take_all()]
        assert names == [f"candidate[{index}]" for index in range(12)]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda data: pairs(data, "nobody"), "--for nobody is no format"),
        (lambda data: pairs(data, "trl", overwrite=True), "overwrite: a dataset is no folder"),
        (lambda data: export(data, "kto"), "give --threshold"),
        (lambda data: choose(data, "majority", voters=("nobody",)), "needs the scores nobody"),
    ],
)
def test_what_cant_be_made_is_told_at_once(drawn_dataset: Dataset, made: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        made(drawn_dataset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy_temperature": 0}, "draws the same text each time"),
        ({"judge": "tiny-reward-anything", "principles": {"a": "accuracy"}, "n": 1}, "compares candidates with each other"),
        ({"response_column": "x", "prompt_column": "messages"}, "--response-column names candidates that are there"),
    ],
)
def test_what_cant_be_sampled_is_told_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        sample(ray.data.from_items(prompts(2)), **{**MODELS, **options})
