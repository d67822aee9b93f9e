"""`serve deploy deploy/serve.yaml` against a real head with Ray's token, for another engine and another port."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.support.endpoints import QUESTION, application, free_port, post, ray_head, rewards, scorer, wait

KEY = "a-key-of-more-than-sixteen"
TOKEN = "a-token-of-rays-" * 4
BODY = {"conversations": [{"messages": QUESTION, "responses": ["7", "9"]}]}
GUARDED = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "ASSAY_API_KEYS": KEY}


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    with ray_head(**GUARDED) as cluster:
        yield cluster


@pytest.mark.long
def test_the_file_that_ships_is_deployed(tmp_path: Path, dashboard: str) -> None:
    config: Any = yaml.safe_load((REPOSITORY / "deploy" / "serve.yaml").read_text())
    port = config["http_options"]["port"] = free_port()
    (model,) = config["applications"][0]["args"]["models"]
    model["engine"]["engine"] = "fake"
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))

    refused = serve_deploy(file, dashboard, RAY_AUTH_TOKEN="a-token-of-somebody-else" * 2)
    assert refused.returncode, "whoever reaches the dashboard runs code"
    done = serve_deploy(file, dashboard)
    assert done.returncode == 0, done.stdout + done.stderr

    address = f"http://127.0.0.1:{port}"
    wait(lambda: ready(address))
    assert httpx.post(f"{address}/v1/rewards", json=BODY, timeout=60).status_code == 401
    answer = httpx.post(f"{address}/v1/rewards", json=BODY, timeout=60, headers={"Authorization": f"Bearer {KEY}"})
    online_scorer = scorer(model["model"])
    assert rewards(answer) == rewards(post(application([online_scorer]), "/v1/rewards", BODY))
    online_scorer.close()


def serve_deploy(file: Path, dashboard: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "serve", "deploy", file],
        env=os.environ | GUARDED | {"RAY_DASHBOARD_ADDRESS": dashboard} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready", timeout=60).status_code == 200
    except httpx.TransportError:
        return False
