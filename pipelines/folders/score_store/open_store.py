"""Opens the part of a store that belongs to one identity: once in the driver, and with it in every scoring process."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.errors import OutputError, SettingsError
from actors.launch.start_engine import Report
from actors.scorers.head_scorer import ScoreBlock, ScoreRequests
from pipelines.data import storage
from pipelines.data.storage import Folder, error_text
from pipelines.folders.score_store.online_scores import OnlineStoredScores
from pipelines.folders.score_store.stored_scores import StoredScores

_LOG = logging.getLogger(__name__)

_VERSION = "v1"  # of keys, entries and segments: another form gets another folder, and neither reads the other's
_IDENTITY = "identity.yaml"  # JSON is YAML; a file .json in a corpus' folder would be read as rows


@dataclass(frozen=True)
class OpenStore:
    """The folder of an identity in a store. Small and picklable: in a worker it puts `StoredScores` around a scorer."""

    folder: Folder
    identity: str  # the digest of the identity, which is also the folder's name
    compares: bool  # see `Family.compares`

    def __call__(self, score_block: ScoreBlock, report: Report) -> StoredScores:
        return StoredScores(self.folder, self.identity, score_block, report, compares=self.compares)

    def online(self, score: ScoreRequests) -> OnlineStoredScores:
        return OnlineStoredScores(self.folder, self.identity, score, _LOG.warning, compares=self.compares)


def open_store(path: str, identity: Mapping[str, Any], *, compares: bool, apart_from: str | None = None) -> OpenStore:
    """Open, or begin, the folder of an identity. `apart_from` is the folder that the run fills.

    Raises `SettingsError` if one of both is in the other, and `OutputError` if the store can't be written.
    """
    if apart_from is not None and storage.overlap(path, apart_from):
        raise SettingsError(
            f"--store {path} and the output {apart_from} overlap; a store is a folder of its own, for many runs"
        )
    content = json.dumps(identity, indent=2, sort_keys=True) + "\n"
    # 128 bits: no two identities share a folder by chance.
    digest = hashlib.sha256(content.encode()).hexdigest()[:32]
    folder = storage.folder(path).sub(_VERSION).sub(digest)
    try:
        folder.make()
        folder.create(_IDENTITY, content.encode())
    except OSError as error:
        raise OutputError(f"--store {path} can't be written: {error_text(error)}") from error
    return OpenStore(folder, digest, compares)
