"""What the folder of an ensemble holds of its members' runs, and whether they are still those that it was made of.

combined/
  manifest.json  parts/  ends/     a scored corpus like any other
  models/first/  models/second/    what each model scored: scored corpora of their own
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from actors.errors import SourceError
from pipelines import storage
from pipelines.scored_corpus.manifest import Manifest, read_manifest
from pipelines.scored_corpus.parts import Part
from pipelines.storage import Entry

FOLDER = "models"
MEMBERS = "members"
"""Where the manifest of an ensemble has what it notes of its members, in its identity."""


def folder_of(output: str, name: str) -> str:
    """Where a member's own scored corpus is."""
    return storage.folder(output).sub(FOLDER).sub(name).path


def member_note(manifest: Manifest, entries: Sequence[tuple[Part, Entry]]) -> dict[str, Any]:
    """What an ensemble notes of a member's run that it is made of: enough to know when that run has become another one."""
    sizes = [(entry.name, entry.size) for _, entry in entries]
    return {"identity": dict(manifest.identity), "run": _run(manifest), "parts": _sha256(sizes)}


def is_fake(manifest: Manifest) -> bool:
    """Whether a scored folder's numbers are the fake engine's; or some of them, in an ensemble."""
    noted = [member["identity"] for member in manifest.identity.get(MEMBERS, {}).values()]
    return any(identity.get("engine") == "fake" for identity in (manifest.identity, *noted))


def check_fresh(folder: str, manifest: Manifest) -> None:
    """Raise `SourceError` if a member's run isn't the one any more that the corpus in the folder was made of.

    Members that aren't there any more are no matter: what was made of them is whole without them.
    """
    for name, noted in manifest.identity.get(MEMBERS, {}).items():
        now = read_manifest(folder_of(folder, name)) if noted["run"] else None
        if now is not None and _run(now) != noted["run"]:
            raise SourceError(
                f"{folder} was made of what {name} had scored, and {folder_of(folder, name)} holds another run now; "
                "the same `ensemble` command combines them anew"
            )


def _run(manifest: Manifest) -> str:
    # Without the path: a corpus may be moved, and a folder mounted elsewhere.
    files = [[file.index, file.name, file.kind.value, file.size, file.fingerprint, file.extent] for file in manifest.files]
    return _sha256([manifest.identity, files])


def _sha256(document: Any) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}"
