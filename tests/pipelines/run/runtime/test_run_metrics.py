"""What a batch run exports for Prometheus: read from the port of Ray's agent, as Prometheus reads it."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.support.corpora import chat, lines, rows, write

SCRIPT = """
import json, re, sys, time, urllib.request
import ray
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.runtime.session import ray_session
from pipelines.run.scoring.score_corpus import score
from tests.support.corpora import settings
from pathlib import Path

corpus, output = map(Path, sys.argv[1:])
with ray_session():
    summary = score(settings(corpus, output, part_rows=5))
    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    deadline, text, parts = time.monotonic() + 90, "", len(Parts(str(output)).listing())
    while time.monotonic() < deadline:
        if sum(map(float, re.findall(r"^ray_assay_run_parts_total{.*} (.*)$", text, re.MULTILINE))) >= parts:
            break
        time.sleep(0.2)
        try:
            text = urllib.request.urlopen(address, timeout=5).read().decode()
        except OSError:
            continue
    print(json.dumps({"text": text, "summary": summary.as_json()}))
"""


def total(text: str, name: str, **tags: str) -> float:
    """The sum of a metric over all samples that have the tags."""
    samples = re.findall(rf"^ray_{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return sum(
        float(value)
        for labels, value in samples
        if all(f'{tag}="{wanted}"' in labels.split(",") for tag, wanted in tags.items())
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The text of the agent's port after a small run, and the run's summary."""
    folder = tmp_path_factory.mktemp("metrics")
    corpus = write(folder / "c.jsonl", lines([*rows(20), chat("What?", " "), {"messages": []}]))
    quick = {"RAY_enable_metrics_collection": "1", "RAY_metrics_report_interval_ms": "500"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(corpus), str(folder / "out")],
        cwd=REPOSITORY,
        env={**os.environ, **quick},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_the_agents_port_has_what_the_summary_counts(exported: Any) -> None:
    text, summary = exported["text"], exported["summary"]
    assert summary["rejected"] == 2
    assert total(text, "assay_run_responses_total", model="tiny-attributes", status="scored") == summary["scored"] == 20
    for reason, count in summary["reasons"].items():
        assert total(text, "assay_run_responses_total", status="rejected", reason=reason) == count
    assert total(text, "assay_run_rows_total") == summary["rows"]
    assert total(text, "assay_run_tokens_total", kind="prompt") == summary["prompt_tokens"]
    assert total(text, "assay_run_parts_total") == total(text, "assay_run_part_seconds_count") >= 4
    busy, parts = total(text, "assay_run_busy_seconds_total"), total(text, "assay_run_part_seconds_sum")
    assert 0 < busy <= parts + 1e-6
    assert total(text, "assay_run_parts_under_way") == 0


@pytest.mark.long
def test_no_tag_grows_with_the_corpus(exported: Any) -> None:
    labels = set(re.findall(r'(\w+)="', "".join(re.findall(r"^ray_assay_run_\w+\{(.*)\}", exported["text"], re.MULTILINE))))
    of_ray = {"Component", "NodeAddress", "SessionName", "Version", "WorkerId", "le"}
    of_ray |= {"otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
    assert labels - of_ray <= {"model", "status", "reason", "kind"}
