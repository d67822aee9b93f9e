"""What clusters name by its old place is still found there, for one release."""

import subprocess
import sys

from deploy import proxy
from deploy.ray_serve.proxy import limit_heads
from tests.conftest import REPOSITORY


def test_the_callback_of_proxies_is_found_where_environments_name_it() -> None:
    assert proxy.limit_heads is limit_heads


def test_the_watcher_of_spot_nodes_is_found_where_clusters_start_it() -> None:
    command = [sys.executable, str(REPOSITORY / "deploy" / "spot.py"), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "--metadata" in shown
