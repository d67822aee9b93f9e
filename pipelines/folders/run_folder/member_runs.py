"""The members' runs in the folder of an ensemble, and the check that they are still those that it was combined from.

combined/
  manifest.json  parts/  ends/     a scored corpus like any other
  models/first/  models/second/    the scored corpus of each member
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.folders.run_folder.part import Part

FOLDER = "models"
CASCADE = "cascade"  # the key of a cascade's bounds in its identity; its members scored some of the rows only
MEMBERS = "members"  # the key of the members' notes in an ensemble's identity


def folder_of(output: str, name: str) -> str:
    """The folder of a member's scored corpus."""
    return storage.folder(output).sub(FOLDER).sub(name).path


def member_note(manifest: Manifest, entries: Sequence[tuple[Part, Entry]]) -> dict[str, Any]:
    """A member's entry in the ensemble's identity: enough to notice that the member's run or parts have changed."""
    # With sizes: a retry may replace a part under the same name.
    sizes = [(entry.name, entry.size) for _, entry in entries]
    return {"identity": dict(manifest.identity), "run": _run(manifest), "parts": _sha256(sizes)}


def member_work(folder: str, manifest: Manifest) -> dict[str, Any]:
    """The time in seconds and the GPU-hours of all members together, as in a summary's `work`.

    Empty where a member's folder isn't there any more; a sum is None where one of its numbers is.
    """
    manifests = [read_manifest(folder_of(folder, name)) for name in manifest.identity[MEMBERS]]
    works = [work for member in manifests if member is not None and (work := (member.summary or {}).get("work"))]
    # A sum over some of the members would look like the cost of all.
    if len(works) < len(manifests):
        return {}
    by_name = {name: [work.get(name) for work in works] for name in ("seconds", "gpu_hours")}
    return {name: None if None in numbers else sum(numbers) for name, numbers in by_name.items()}


def is_fake(manifest: Manifest) -> bool:
    """Whether the fake engine made the numbers of a scored folder, or those of any member of an ensemble.

    Results that are made of such rewards say so, and no trainer's format takes them without being told to.
    """
    identities = [member["identity"] for member in manifest.identity.get(MEMBERS, {}).values()]
    return any(identity.get("engine") == "fake" for identity in (manifest.identity, *identities))


def check_fresh(folder: str, manifest: Manifest) -> None:
    """Raise `SourceError` if a member's run isn't the one that the folder's corpus was combined from.

    A member's folder may be deleted: the combined corpus is complete without it.
    """
    for name, note in manifest.identity.get(MEMBERS, {}).items():
        now = read_manifest(folder_of(folder, name)) if note["run"] else None
        if now is not None and _run(now) != note["run"]:
            raise SourceError(
                f"{folder} was made of what {name} had scored, and {folder_of(folder, name)} holds other rewards now; "
                "the same command combines them anew"
            )


def _run(manifest: Manifest) -> str:
    # Without the paths: a corpus may be moved, or its folder be mounted elsewhere.
    files = [[file.index, file.name, file.kind.value, file.size, file.fingerprint, file.extent] for file in manifest.files]
    return _sha256([manifest.identity, files, len(manifest.retries)])  # a retry replaces parts of the same run


def _sha256(document: Any) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}"
