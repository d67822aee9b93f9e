"""The models of an ensemble: the name and the settings of each, and its run, settled."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from actors.errors import OutputError, SettingsError
from actors.settings.replica import Dtype, ModelSettings
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.scored_corpus.columns import SUSPECT
from pipelines.scored_corpus.earlier_run import earlier_run
from pipelines.scored_corpus.manifest import read_manifest
from pipelines.scored_corpus.member_runs import folder_of
from pipelines.settings.run_settings import EnsembleSettings, MemberSettings, ScoreSettings

KEPT_FREE = (SUSPECT,)
_OF_ALL = ("mean", "min", "spread", "z_mean", "z_min", "z_spread", "disagreement", "z_disagreement")


@dataclass(frozen=True)
class Member:
    """A model of an ensemble, and the run that scores with it."""

    name: str
    settings: ScoreSettings

    def check(self) -> resolve_run.ResolvedRun:
        """Settle its run, and see that it can begin or go on. Raises a `UserError` for whatever is wrong."""
        plan = resolve_run.resolve(self.settings, KEPT_FREE)
        manifest = manifest_of(plan, self.settings)
        earlier = earlier_run(storage.absolute(self.settings.output), manifest, overwrite=False)
        if earlier is not None and earlier.columns.reserved != KEPT_FREE:
            raise OutputError(f"{self.settings.output} was scored by itself and not for an ensemble; move it away")
        if earlier is not None:
            try:
                earlier.check(manifest)
            except OutputError as error:
                raise OutputError(f"{self.settings.output}: {error}") from error
        return plan

    def files_after(self, plan: resolve_run.ResolvedRun) -> tuple[InputFile, ...]:
        """What its run will be of, once what is given is taken in."""
        earlier = read_manifest(self.settings.output)
        if earlier is None:
            return plan.files
        return earlier.with_appended(plan.files, plan.preparation.columns.carried.names).files


def check_same_files(files: Mapping[str, Sequence[InputFile]]) -> None:
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
