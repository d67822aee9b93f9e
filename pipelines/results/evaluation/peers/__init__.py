"""The result files of benchmarks' own codes: one benchmark a file, which defines `PEER_FORMAT`, found by being here."""

from collections.abc import Mapping

from actors.extensions import modules_in
from pipelines.results.evaluation.peer_format import PeerFormat

PEER_FORMATS: Mapping[str, PeerFormat] = {
    module.PEER_FORMAT.benchmark: module.PEER_FORMAT for module in modules_in(__name__, __path__)
}
"""The formats by the benchmark's name."""
