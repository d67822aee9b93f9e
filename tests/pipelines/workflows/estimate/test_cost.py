"""What tokens cost: by whose speed, on how many GPUs, and what is said where nothing is known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actors.capacity.layout import Layout
from actors.capacity.sizes import SIZES
from actors.errors import SettingsError
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import JudgeSettings, ModelSettings, RenderSettings
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.settings.estimate_settings import BillSettings, CardSettings
from pipelines.settings.run_settings import ReplicaSettings
from pipelines.workflows.estimate.cost import CostBasis, CostEstimate, estimate_cost
from pipelines.workflows.estimate.intervals import Estimate
from tests.support.corpora import RUN

TOKENS = {
    "tokens": Estimate(1e9, 0.9e9, 1.2e9),
    "read_tokens": Estimate(0.5e9, 0.4e9, 0.6e9),
    "prompts": Estimate(1000, 900, 1100),
    "responses": Estimate(500, 500, 500),
}
LAYOUT = Layout(8, 2)
CARD, POOL = CardSettings(), ReplicaSettings()
LARGE = SIZES["nvidia/Nemotron-4-340B-Reward"]
IDENTITY = {"model": "m", "revision": None, "weights": "w", "dtype": "bfloat16", "turns": "final"}
MADE_WITH = {"tensor_parallel": 8, "pipeline_parallel": 2}


@pytest.fixture(scope="module")
def head() -> RewardModel:
    return replace(resolve_model(ModelSettings(model="tiny-attributes"), RenderSettings()), dtype="bfloat16")


@pytest.fixture(scope="module")
def judge() -> RewardModel:
    return resolve_model(ModelSettings(model="tiny-genrm", judge=JudgeSettings(max_tokens=400)), RenderSettings())


def billed(
    model: RewardModel,
    layout: Layout | None = LAYOUT,
    known: bool = True,
    card: CardSettings = CARD,
    pool: ReplicaSettings = POOL,
    **settings: Any,
) -> CostEstimate:
    ground = CostBasis(model, IDENTITY, card, layout, LARGE if known else None, pool)
    return estimate_cost(TOKENS, ground, BillSettings(**settings))


def test_the_bounds_of_the_tokens_go_through_to_the_price(head: RewardModel) -> None:
    bill = billed(head, tokens_per_s=10_000, gpus=40, gpu_price=2.0)
    assert (bill.engines, bill.gpus) == (2, 32)  # eight are left over, and idle
    assert bill.work_s == Estimate(50_000, 45_000, 60_000)
    assert bill.gpu_hours is not None
    assert bill.gpu_hours.value == pytest.approx(50_000 * 32 / 3600)
    assert bill.cost is not None
    assert bill.cost.high == pytest.approx(60_000 * 32 / 3600 * 2)
    assert any("2 are 2 times as fast" in assumption for assumption in bill.assumptions)


def test_the_engines_are_those_that_the_run_has(head: RewardModel) -> None:
    cases: list[tuple[dict[str, int], int | None, int]] = [
        ({"replicas": 8}, None, 8),
        ({"replicas": 2}, 40, 2),
        ({"replicas": 1}, 40, 1),  # the others are idle in the run as well
        ({"max_replicas": 8}, None, 8),
        ({"max_replicas": 8, "min_replicas": 2}, 40, 2),
        ({"max_replicas": 1}, 40, 1),
    ]
    for pool, gpus, engines in cases:
        planned = billed(head, pool=ReplicaSettings(**pool), gpus=gpus, tokens_per_s=10_000, gpu_price=1.0)
        assert (planned.engines, planned.gpus) == (engines, 16 * engines)
        assert planned.work_s is not None
        assert planned.work_s.value == pytest.approx(1e9 / 10_000 / engines)
        most = pool.get("max_replicas")
        named = f"the pool has {engines} engines from its start to its end (--max-replicas {most})"
        assert (named in planned.assumptions) == (most is not None)


@pytest.mark.parametrize("pool", [{"replicas": 3}, {"min_replicas": 3, "max_replicas": 8}])
def test_gpus_that_dont_hold_the_engines_are_refused(head: RewardModel, pool: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=r"--gpus 40: 3 engines take 48 \(TP 8 x PP 2\)"):
        billed(head, pool=ReplicaSettings(**pool), gpus=40)


def test_an_expected_speed_is_of_forward_passes_and_of_all_gpus_of_an_engine(head: RewardModel) -> None:
    bill = billed(head)
    assert bill.speed is not None
    assert bill.work_s is not None
    assert bill.speed.read == pytest.approx(0.5 * 989.4e12 / (2 * 341e9) * 16)
    assert bill.work_s.value == pytest.approx(0.5e9 / bill.speed.read)
    assert bill.work_s.low == pytest.approx(0.4e9 / (bill.speed.read * 0.65 / 0.5))
    assert bill.work_s.high == pytest.approx(0.6e9 / (bill.speed.read * 0.3 / 0.5))
    assert bill.least_s is not None
    assert bill.least_s.value == pytest.approx(2 * 341e9 * 0.5e9 / (16 * 989.4e12))
    assert bill.least_s.value < bill.work_s.value
    assert bill.cost is None


def test_the_precision_that_the_model_runs_in_decides_its_speed_and_its_bound(head: RewardModel) -> None:
    single = replace(head, dtype="float32")
    assert billed(replace(head, dtype="float16")) == billed(head)
    exact = billed(single, gpus=16)
    assert (exact.speed, exact.work_s) == (None, None), "nothing is expected of float32"
    assert exact.least_s is not None
    assert exact.least_s.value == pytest.approx(2 * 341e9 * 0.5e9 / (16 * 66.9e12))
    assert billed(single, card=CardSettings(precision="bfloat16")) == billed(head)
    quick, usual = billed(single, card=CardSettings(precision="fp8")), billed(head)
    assert quick.speed is not None
    assert usual.speed is not None
    assert quick.speed.read == pytest.approx(2 * usual.speed.read * 0.43 / 0.5, rel=0.001)


def test_where_nothing_is_known_there_is_no_time(head: RewardModel) -> None:
    bill = billed(head, layout=None, known=False)
    assert (bill.speed, bill.work_s, bill.gpu_hours, bill.cost, bill.least_s) == (None,) * 5
    assert json.loads(json.dumps(bill.as_json()))["work_s"] is None


def test_a_judge_writes_between_a_token_and_all_that_it_may(judge: RewardModel) -> None:
    bill = billed(judge, tokens_per_s=10_000, written_per_s=100)
    assert bill.written == Estimate(1000 * 200, 900, 1100 * 400)
    assert bill.work_s is not None
    assert bill.work_s.value == pytest.approx(1e9 / 10_000 + 200_000 / 100)
    assert bill.work_s.high == pytest.approx(1.2e9 / 10_000 + 440_000 / 100)
    assert "half of the 400 tokens" in bill.assumptions[0]
    assert "no retries of answers without a verdict" in bill.assumptions[1]
    message = billed(judge, answer_tokens=150)
    assert message.written == Estimate(150_000, 135_000, 165_000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": 15}, r"--gpus 15: an engine takes 16 \(TP 8 x PP 2\)"),
        ({"written_per_s": 5}, "bill.written_per_s is of judges, and goes with --tokens-per-s"),
        ({"like": "nowhere"}, "--like nowhere holds no run that is complete"),
    ],
)
def test_what_cant_be_billed(head: RewardModel, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        billed(head, **settings)


def test_a_judge_needs_both_speeds_and_answers_that_fit(judge: RewardModel) -> None:
    with pytest.raises(SettingsError, match="how fast it writes, goes with it"):
        billed(judge, tokens_per_s=5)
    with pytest.raises(SettingsError, match="an answer has 400 at most"):
        billed(judge, answer_tokens=500)


WORK = {"seconds": 120.0, "starting": 20.0, "start": 10.0, "engines": 2, "gpu_hours": 1.0, "why": None}


def earlier(folder: Path, identity: dict[str, Any], made_with: dict[str, Any] = MADE_WITH, **summary: Any) -> str:
    """A manifest, as far as it is looked at."""
    folder.mkdir()
    numbers = {"responses": 100, "prompt_tokens": 50_000, "completion_tokens": 700, "work": WORK, **summary}
    recorded = {"prefix": "", "engine": "vllm", **IDENTITY, **identity}
    Manifest(recorded, (), Columns(pa.schema([]), (), ""), made_with, numbers, RUN).write(str(folder))
    return str(folder)


def test_a_run_of_ones_own_says_how_fast_it_is(tmp_path: Path, head: RewardModel, judge: RewardModel) -> None:
    folder = earlier(tmp_path / "run", {})
    bill = billed(head, like=folder)
    assert bill.speed is not None
    assert bill.speed.read == 50_000 / 100 / 2
    assert bill.speed.start_s == 10  # two sessions
    assert bill.speed.source == f"measured in {folder}: 50,000 tokens in 100 s by 2 engines"
    assert bill.work_s is not None
    assert bill.work_s.value == pytest.approx(1e9 / 250)
    written = billed(judge, like=folder).written
    assert written == Estimate(3500, 3500, 3500)  # seven for each response


@pytest.mark.parametrize(
    ("identity", "summary", "message"),
    [
        ({"weights": "others"}, {}, "is of another run:\n  weights: 'others' there, 'w' now"),
        ({"turns": "all"}, {}, "is of another run:\n  turns: 'all' there, 'final' now"),
        ({"engine": "fake"}, {}, "was a rehearsal with --engine fake"),
        ({}, {"work": None}, "its engines' working time wasn't recorded"),
        ({}, {"work": WORK | {"seconds": None, "why": "a session was killed"}}, "a session was killed; give --tokens-per-s"),
        ({}, {"work": WORK | {"engines": None}}, "wasn't recorded"),
        ({}, {"work": WORK | {"starting": None}}, "wasn't recorded"),
        ({}, {"prompt_tokens": 0}, "read no tokens"),
        ({}, {"flags": {"from_store": 1}}, "1 of its responses came from a store"),
    ],
)
def test_a_run_that_doesnt_say_it(
    tmp_path: Path, head: RewardModel, identity: dict[str, Any], summary: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        billed(head, like=earlier(tmp_path / "run", identity, **summary))


def test_a_run_whose_engines_were_laid_out_otherwise_doesnt_say_how_fast_it_is(tmp_path: Path, judge: RewardModel) -> None:
    folder = earlier(tmp_path / "run", {}, made_with={"tensor_parallel": 4, "pipeline_parallel": 1})
    message = r"engines of 4 x 1 GPUs, and here one takes 8 x 2: give --tensor-parallel 4 --set pipeline_parallel=1"
    with pytest.raises(SettingsError, match=message):
        billed(judge, like=folder)
    with pytest.raises(SettingsError, match=r"engines of 4 x 1 GPUs, and here one takes 1 x 1"):
        billed(judge, layout=None, like=folder)
    assert billed(judge, tokens_per_s=10_000, written_per_s=100, like=folder).written == Estimate(3500, 3500, 3500)
    with pytest.raises(SettingsError, match="doesn't tell how many GPUs"):
        billed(judge, like=earlier(tmp_path / "old", {}, made_with={}))


def test_the_speed_of_a_run_on_cpus_is_no_gpus(tmp_path: Path, head: RewardModel) -> None:
    cpus = {"tensor_parallel": 1, "pipeline_parallel": 1}
    folder = earlier(tmp_path / "run", {}, made_with=cpus, work=WORK | {"gpu_hours": 0.0})
    with pytest.raises(SettingsError, match=r"ran on CPUs, whose speed says nothing of a GPU's: add --gpu none, or"):
        billed(head, layout=Layout(1), like=folder)
    none = CardSettings(gpu="none")
    bill = billed(head, layout=None, card=none, like=folder)
    assert bill.work_s is not None
    assert bill.work_s.value == pytest.approx(1e9 / 250)
    assert (bill.gpus, bill.gpu_hours, bill.cost, bill.least_s) == (0, None, None, None), "there are no GPU-hours on CPUs"
    with pytest.raises(SettingsError, match="ran on GPUs, whose speed says nothing of CPUs"):
        billed(head, layout=None, card=none, like=earlier(tmp_path / "gpus", {}, made_with=cpus))
    with pytest.raises(SettingsError, match="--gpu none plans engines on CPUs, which have no --gpus"):
        billed(head, layout=None, card=none, gpus=4)
