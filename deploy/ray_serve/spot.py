"""Leaves a spot instance in good order: when its cloud says that it will be taken, its Ray node gets no more work.

Runs beside Ray on AWS's spot workers, where `cluster.yaml` starts it: `python deploy/ray_serve/spot.py`. What is under way
has what is left of the two minutes; whatever isn't committed by then is done again elsewhere.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import click

_EVERY_S = 5.0  # as AWS asks
_TIMEOUT_S = 2.0
_NOTICE = "/latest/meta-data/spot/instance-action"


@click.command()
@click.option("--metadata", default="http://169.254.169.254", show_default=True, help="the instance metadata service")
@click.option("--address", default=None, help="of Ray; the one that runs here if not given")
@click.option("--node-id", default=None, help="of the node that is left; the one that runs here if not given")
@click.option("--every", default=_EVERY_S, show_default=True, help="seconds between two looks")
def main(metadata: str, address: str | None, node_id: str | None, every: float) -> None:
    """Wait for the notice that this instance is taken, and have its Ray node drained."""
    while (taken_at := notice(metadata)) is None:
        time.sleep(every)
    left = max(1, round((taken_at - datetime.now(UTC)).total_seconds()))
    command = [str(Path(sys.executable).parent / "ray"), "drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    command += ["--reason-message", "the spot instance is taken", "--deadline-remaining-seconds", str(left)]
    command += ["--address", address] if address is not None else []
    command += ["--node-id", node_id] if node_id is not None else []
    sys.exit(subprocess.run(command, check=False).returncode)


def notice(metadata: str) -> datetime | None:
    """When the instance will be taken; None as long as nobody says so, or nobody can be asked."""
    try:
        token = _ask(f"{metadata}/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        told = json.loads(_ask(f"{metadata}{_NOTICE}", "GET", {"X-aws-ec2-metadata-token": token.decode()}))
        return datetime.fromisoformat(told["time"])
    except urllib.error.HTTPError as error:
        if error.code != 404:  # which is how AWS says that there is none
            click.echo(f"{error.url}: {error}", err=True)
    except (OSError, ValueError, KeyError) as error:
        click.echo(f"{metadata}: {error}", err=True)
    return None


def _ask(url: str, method: str, headers: dict[str, str]) -> bytes:
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read()
        return content


if __name__ == "__main__":
    main()
