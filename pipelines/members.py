"""The models of an ensemble: what each is called, what it is told, and what its run was when the ensemble was made of it.

combined/
  manifest.json  parts/  ends/     a scored corpus like any other
  models/first/  models/second/    what each model scored: scored corpora of their own
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import OutputError, SettingsError, SourceError
from actors.settings import Dtype, ModelSettings
from pipelines import planning, storage
from pipelines.columns import SUSPECT
from pipelines.manifest import Manifest, read_manifest
from pipelines.parts import Part
from pipelines.reopening import earlier_run
from pipelines.settings import EnsembleSettings, MemberSettings, ScoreSettings
from pipelines.sources import InputFile
from pipelines.storage import Entry

FOLDER = "models"
MEMBERS = "members"
"""Where the manifest of an ensemble tells of its members, in its identity."""

KEPT_FREE = (SUSPECT,)
_OF_ALL = ("mean", "min", "spread", "z_mean", "z_min", "z_spread", "disagreement", "z_disagreement")


@dataclass(frozen=True)
class Member:
    """A model of an ensemble, and the run that scores with it."""

    name: str
    settings: ScoreSettings

    def check(self) -> planning.Plan:
        """Settle its run, and see that it can begin or go on. Raises a `UserError` for whatever is wrong."""
        plan = planning.plan(self.settings, KEPT_FREE)
        manifest = Manifest.of(plan, self.settings)
        earlier = earlier_run(storage.absolute(self.settings.output), manifest, overwrite=False)
        if earlier is not None and earlier.columns.reserved != KEPT_FREE:
            raise OutputError(f"{self.settings.output} was scored by itself and not for an ensemble; move it away")
        if earlier is not None:
            try:
                earlier.check(manifest)
            except OutputError as error:
                raise OutputError(f"{self.settings.output}: {error}") from error
        return plan

    def files_after(self, plan: planning.Plan) -> tuple[InputFile, ...]:
        """What its run will be of, once what is given is taken in."""
        earlier = read_manifest(self.settings.output)
        if earlier is None:
            return plan.files
        return earlier.with_appended(plan.files, plan.preparation.columns.carried.names).files


def check_together(files: Mapping[str, Sequence[InputFile]]) -> None:
    """Raise `OutputError` if members will be of different files, by name: a session may have ended between two of them."""
    known = {name: {(file.name, file.size, file.fingerprint): file.path for file in own} for name, own in files.items()}
    for name, own in known.items():
        for other, its in known.items():
            if more := sorted(path for key, path in its.items() if key not in own):
                raise OutputError(
                    f"{name} has yet to take in what {other} has: {', '.join(more[:20])}. Give it with --append, too, as it "
                    "was given then; or, if it was there from the beginning, go on without --append first"
                )


def outputs(names: Sequence[str]) -> tuple[str, ...]:
    """What `scores` holds: the rewards of the members, what becomes of them together, and the same of their z-scores."""
    return (*names, *_OF_ALL[:3], *(f"z_{name}" for name in names), *_OF_ALL[3:])


def members(settings: EnsembleSettings) -> list[Member]:
    """The members in their order. Raises `SettingsError` if two are one, or a name is taken."""
    for at, model in enumerate(settings.models):
        if any(model.model_copy(update={"name": other.name}) == other for other in settings.models[:at]):
            raise SettingsError(f"{model.model} is given twice with the same settings, and would only agree with itself")
    names = _names(settings.models)
    return [Member(name, _score_settings(settings, name, model)) for name, model in zip(names, settings.models, strict=True)]


def _score_settings(settings: EnsembleSettings, name: str, member: MemberSettings) -> ScoreSettings:
    model = ModelSettings(**{field: getattr(member, field) for field in ModelSettings.model_fields})
    if model.dtype is Dtype.AUTO:
        model = model.model_copy(update={"dtype": settings.dtype})
    return ScoreSettings(
        corpus=settings.corpus,
        output=folder_of(settings.output, name),
        model=model,
        render=settings.render,
        engine=member.engine or settings.engine,
        work=settings.work,
        prefix=settings.prefix,
        append=settings.append,
    )


def folder_of(output: str, name: str) -> str:
    """Where a member's own scored corpus is."""
    return storage.folder(output).sub(FOLDER).sub(name).path


def _names(models: Sequence[MemberSettings]) -> list[str]:
    """A name for each: legal as a folder and in SQL, where case doesn't count, and the same for the same models."""
    taken = set(_OF_ALL)
    given: dict[int, str] = {}
    for at, model in enumerate(models):
        if model.name is not None:
            if _fields(model.name) & taken:
                raise SettingsError(f"a model can't be called {model.name!r}: `scores` has a field of that name already")
            given[at] = model.name
            taken |= _fields(model.name)
    for at, model in enumerate(models):
        if at not in given:
            given[at] = next(name for name in _candidates(model.model) if not _fields(name) & taken)
            taken |= _fields(given[at])
    return [given[at] for at in range(len(models))]


def _fields(name: str) -> set[str]:
    return {name.lower(), f"z_{name}".lower()}


def _candidates(model: str) -> Iterable[str]:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", model.rstrip("/").rsplit("/", 1)[-1]).strip("_") or "model"
    name = plain if not plain[0].isdigit() else f"m_{plain}"
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def made_of(manifest: Manifest, entries: Sequence[tuple[Part, Entry]]) -> dict[str, Any]:
    """What an ensemble notes of a member's run that it is made of: enough to know when that run has become another one."""
    sizes = [(entry.name, entry.size) for _, entry in entries]
    return {"identity": dict(manifest.identity), "run": _run(manifest), "parts": _sha256(sizes)}


def made_up(manifest: Manifest) -> bool:
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
