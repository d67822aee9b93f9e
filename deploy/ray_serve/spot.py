"""Drains the Ray node of a spot instance once its cloud announces that the instance will be reclaimed.

Runs beside Ray on AWS's spot workers, where `cluster.yaml` starts it: `python deploy/ray_serve/spot.py`. AWS gives two
minutes' notice. Work under way has what is left of them; what isn't committed by then is done again on another node.
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

_EVERY_S = 5.0  # the interval that AWS recommends
_TIMEOUT_S = 2.0  # the service is on the same host, and answers in milliseconds
_NOTICE = "/latest/meta-data/spot/instance-action"


@click.command()
@click.option("--metadata", default="http://169.254.169.254", show_default=True, help="the instance metadata service")
@click.option("--address", default=None, help="address of Ray; the Ray of this machine if not given")
@click.option("--node-id", default=None, help="id of the node to drain; this machine's if not given")
@click.option("--every", default=_EVERY_S, show_default=True, help="seconds between two requests to the metadata service")
def main(metadata: str, address: str | None, node_id: str | None, every: float) -> None:
    """Wait for the notice that this instance is reclaimed, then drain its Ray node.

    Ends with the exit code of `ray drain-node`.
    """
    while (ends_at := notice(metadata)) is None:
        time.sleep(every)
    seconds_left = max(1, round((ends_at - datetime.now(UTC)).total_seconds()))  # 1 if the notice is read late
    command = [str(Path(sys.executable).parent / "ray"), "drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    command += ["--reason-message", "the spot instance is taken", "--deadline-remaining-seconds", str(seconds_left)]
    command += ["--address", address] if address is not None else []
    command += ["--node-id", node_id] if node_id is not None else []
    sys.exit(subprocess.run(command, check=False).returncode)


def notice(metadata: str) -> datetime | None:
    """When the instance ends; None if there is no notice, or the metadata service can't be read (written to stderr)."""
    try:
        # IMDSv2: a GET needs a token, which is fetched anew each time: 60 s outlive the next line.
        token = _ask(f"{metadata}/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        action = json.loads(_ask(f"{metadata}{_NOTICE}", "GET", {"X-aws-ec2-metadata-token": token.decode()}))
        return datetime.fromisoformat(action["time"])
    except urllib.error.HTTPError as error:
        if error.code != 404:  # AWS answers 404 as long as there is no notice
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
