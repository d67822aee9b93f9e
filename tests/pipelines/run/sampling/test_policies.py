"""How many engines a policy and its judge get of a cluster's GPUs."""

from typing import Any

import pytest

from pipelines.run.sampling import policies
from pipelines.settings.options import build
from pipelines.settings.run_settings import SampleSettings

JUDGE, POLICY = 2, 1  # GPUs of an engine


def settings_of(options: dict[str, Any]) -> SampleSettings:
    layout = {"tensor_parallel": JUDGE, "policy_tensor_parallel": POLICY}
    flat = {
        "inputs": ("c.jsonl",),
        "output": "out",
        "policy": "tiny-policy",
        "model": "tiny-attributes",
        **layout,
        **options,
    }
    return build(SampleSettings, flat)


@pytest.mark.parametrize(
    ("there", "writers", "judged", "options", "expected"),
    [
        pytest.param(16, 1, True, {}, (12, 2), id="a quarter is the judge's"),
        pytest.param(16, 3, True, {}, (4, 2), id="three writers share the rest"),
        pytest.param(16, 0, True, {}, (1, 8), id="all are the judge's"),
        pytest.param(16, 1, False, {}, (16, 1), id="all are the policy's"),
        pytest.param(16, 1, True, {"replicas": 5, "policy_replicas": 3}, (3, 5), id="as asked"),
        pytest.param(16, 1, True, {"replicas": 40, "policy_replicas": 40}, (2, 7), id="no more than there is room for"),
        pytest.param(4, 1, False, {"policy_replicas": 4}, (4, 1), id="in turns the judge has none yet"),
        pytest.param(4, 1, True, {"replicas": 3, "policy_replicas": 9, "autoscaled": True}, (9, 3), id="nodes are to come"),
        pytest.param(1, 1, True, {}, (1, 1), id="one of each, for which is waited"),
        pytest.param(16, 1, True, {"policy": "http://127.0.0.1:1/v1"}, (1, 8), id="an endpoint"),
    ],
)
def test_engines_of_a_policy_and_a_judge(
    there: int,
    writers: int,
    judged: bool,
    options: dict[str, Any],
    expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies, "cluster_gpus", lambda: there)
    monkeypatch.setattr(policies, "engine_gpus", lambda engine: engine.tensor_parallel)
    assert policies.sizes(settings_of(options), writers, with_judge=judged) == expected


@pytest.mark.parametrize("options", [{}, {"autoscaled": True}, {"policy": "http://127.0.0.1:1/v1"}])
def test_room_for_both_side_by_side(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "cluster_gpus", lambda: 2)
    monkeypatch.setattr(policies, "engine_gpus", lambda engine: engine.tensor_parallel)
    lacking = "" if options else "the policy (1 GPUs) and the judge (2) side by side, and the cluster has 2 GPUs"
    assert policies.lacking_room(settings_of(options)) == lacking
