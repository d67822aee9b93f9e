"""What ships beside the endpoint's code: serve.yaml, the dashboard, and the policy that travels to Serve's controller."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray import cloudpickle
from ray.serve.schema import ServeDeploySchema

from actors.errors import SettingsError
from deploy.metrics.prometheus import merged
from deploy.ray_serve import autoscaling
from deploy.settings import EndpointSettings
from pipelines.settings.options import validate
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"


def test_serve_yaml_is_what_serve_and_we_take() -> None:
    written = yaml.safe_load((DEPLOY / "serve.yaml").read_text())
    schema = ServeDeploySchema.model_validate(written)
    # Serve passes over what it doesn't know: so every key must come out again.
    names = schema.model_dump(exclude_unset=True, mode="json")
    assert _keys(written) <= _keys(names)
    (application,) = schema.applications
    settings = validate(EndpointSettings, application.args)
    assert application.import_path == "deploy.app:app"
    assert not settings.access.open
    assert application.runtime_env["env_vars"]["RAY_AUTH_MODE"] == "token"


def _keys(value: Any, place: str = "") -> set[str]:
    if isinstance(value, dict):
        return {place} | {key for name, item in value.items() for key in _keys(item, f"{place}.{name}")}
    if isinstance(value, list):
        return {key for item in value for key in _keys(item, f"{place}[]")}
    return {place}


@pytest.mark.parametrize(
    ("dashboard", "measuring"),
    [
        ("endpoint", ["deploy/metrics/counters.py", "actors/workers/serve_actor.py"]),
        ("runs", ["pipelines/run/runtime/run_metrics.py"]),
    ],
)
def test_a_dashboard_shows_what_is_measured(dashboard: str, measuring: list[str]) -> None:
    code = "".join((REPOSITORY / file).read_text() for file in measuring)
    measured = set(re.findall(r'"(assay_\w+)"', code))
    board = (DEPLOY / "dashboards" / f"{dashboard}.json").read_text()
    assert json.loads(board)["panels"]
    shown = {re.sub(r"_bucket$", "", name) for name in re.findall(r"ray_(assay_\w+)", board)}
    assert shown == measured


def test_the_guide_lists_the_metrics_of_runs() -> None:
    measured = set(re.findall(r'"(assay_run_\w+)"', (REPOSITORY / "pipelines/run/runtime/run_metrics.py").read_text()))
    listed = re.findall(r"^\| `ray_(assay_run_\w+)", (REPOSITORY / "docs/guides/clusters.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(measured)


@pytest.mark.parametrize(
    ("requests", "tokens", "wanted"),
    [(0, {}, 0), (64, {}, 1), (200, {}, 3.125), (1, {"a": 5000, "b": 3000}, 8), (0, None, 0)],
)
def test_replicas_follow_requests_and_tokens(requests: float, tokens: dict[str, float] | None, wanted: float) -> None:
    context = SimpleNamespace(total_num_requests=requests, aggregated_metrics=None if tokens is None else {"tokens": tokens})
    assert autoscaling.LoadPolicy(target_requests=64, target_tokens=1000)(context)[0] == wanted


def test_the_policy_travels_to_a_process_without_our_code() -> None:
    pickles: Any = cloudpickle
    pickles.register_pickle_by_value(autoscaling)
    try:
        sent = pickles.dumps(autoscaling.LoadPolicy)
    finally:
        pickles.unregister_pickle_by_value(autoscaling)
    there = (
        "import pickle, sys, types; sys.modules['deploy'] = None; policy = pickle.load(sys.stdin.buffer); "
        "print(policy(64, 1000)(types.SimpleNamespace(total_num_requests=128, aggregated_metrics={}))[0])"
    )
    done = subprocess.run([sys.executable, "-c", there], input=sent, capture_output=True, check=True, timeout=120)
    assert done.stdout.strip() == b"2.0"


def test_metrics_of_several_nodes_become_one_text() -> None:
    text = '# HELP ray_assay_x about\n# TYPE ray_assay_x counter\nray_assay_x{node="a"} 1\nprocess_cpu 3\n'
    other = text.replace('"a"} 1', '"b"} 2') + "# HELP ray_serve_y about\n# TYPE ray_serve_y gauge\nray_serve_y 1\n"
    assert merged([text, "", other]).splitlines() == [
        "# HELP ray_assay_x about",
        "# TYPE ray_assay_x counter",
        'ray_assay_x{node="a"} 1',
        'ray_assay_x{node="b"} 2',
        "# HELP ray_serve_y about",
        "# TYPE ray_serve_y gauge",
        "ray_serve_y 1",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": []}, "models"),
        ({"models": ["tiny-scalar", "tiny-scalar"]}, "two models are called tiny-scalar"),
        ({"models": [{"model": "tiny-scalar", "names": ["a"]}, {"model": "tiny-attributes", "names": ["a"]}]}, "called a"),
        ({"models": ["tiny-scalar"], "limit": {}}, "limit"),
        ({"models": [{"model": "tiny-scalar", "scaling": {"max_replicas": 0}}]}, "max_replicas"),
    ],
)
def test_settings_that_cant_be_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        validate(EndpointSettings, settings)


def test_a_folder_is_served_under_a_short_name_and_its_path() -> None:
    models = validate(EndpointSettings, {"models": ["/runs/a/final", {"model": "/runs/b/final"}, "./rm"]}).models
    assert [model.names for model in models] == [("a/final", "/runs/a/final"), ("b/final", "/runs/b/final"), ("rm", "./rm")]


def test_one_model_may_be_given_by_its_id() -> None:
    assert validate(EndpointSettings, {"models": "tiny-scalar"}).models[0].names == ("tiny-scalar",)
