"""The members of an ensemble: the name, the settings and the resolved run of each model."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from actors.contracts.family import PRINCIPLE
from actors.errors import OutputError, SettingsError
from actors.launch.start_engine import engine_identity
from actors.reward_model import resolve_model
from actors.settings.endpoint import HERE
from actors.settings.replica import Dtype, EngineSettings, ModelSettings
from pipelines.data import storage
from pipelines.folders.run_folder.columns import SUSPECT
from pipelines.folders.run_folder.earlier_run import earlier_run
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of
from pipelines.settings.run_settings import CorpusSettings, MemberSettings, MembersSettings, ScoreSettings

KEPT_FREE = (SUSPECT,)  # columns that a member's run reserves, as only the combined corpus has them
# Of an endpoint, whatever the engines of the other members are.
_ONE_ENGINE = dict.fromkeys(("replicas", "max_replicas", "min_replicas"))
_COMBINED = ("mean", "min", "spread", "z_mean", "z_min", "z_spread", "disagreement", "z_disagreement")


class Member(NamedTuple):
    """A model of an ensemble, and the settings of its run."""

    name: str
    settings: ScoreSettings
    reserved: tuple[str, ...] = KEPT_FREE

    def check(self) -> "CheckedMember":
        """Resolve the run, and check that it can start or resume. Raises a `UserError` if it can't."""
        plan = resolve_run.resolve(self.settings, self.reserved)
        manifest = manifest_of(plan, self.settings)
        earlier = earlier_run(storage.absolute(self.settings.output), manifest, overwrite=False)
        if earlier is not None and earlier.columns.reserved != self.reserved:
            raise OutputError(
                f"{self.settings.output} was scored by itself and not for this run of several models; move it away"
            )
        if earlier is not None:
            try:
                earlier.check(manifest)
                earlier.check_versions(manifest.made_with, self.settings)
            except OutputError as error:
                raise OutputError(f"{self.settings.output}: {error}") from error
        # A complete one needs no engine, and where engines come and go with the work they are the run's alone.
        is_alone = self.settings.work.max_replicas is not None or (
            earlier is not None and earlier.summary is not None and not self.settings.append
        )
        return CheckedMember(self, plan, None if is_alone else engine_identity(plan.preparation.model, self.settings.engine))


class CheckedMember(NamedTuple):
    """A member whose run can start or resume, and the identity of the engine that it may share, if it may."""

    member: Member
    plan: resolve_run.ResolvedRun
    engine: str | None


def by_engine(checked: Sequence[CheckedMember]) -> list[list[Member]]:
    """The members in groups that can be asked on the same engines, in the order of their first members."""
    groups: dict[str, list[Member]] = defaultdict(list)
    for member, _, engine in checked:
        groups[engine or member.name].append(member)
    return list(groups.values())


def check_first(checked: Sequence[CheckedMember]) -> None:
    """Raise `SettingsError` unless the first member reads all that any reads of the rows beside the conversation.

    Its prompts group the responses of the combined corpus: rows with other references would be one prompt to it.
    """
    read = {member.name: {*dict(plan.preparation.row_shape.columns)} for member, plan, _ in checked}
    for member, plan, _ in checked:
        read[member.name] |= {PRINCIPLE} if plan.preparation.model.family.takes_principles else set()
    first = next(iter(read))
    for name, fields in read.items():
        if unread := sorted(fields - read[first]):
            raise SettingsError(
                f"{name} reads {unread[0]} of the rows, and {first} doesn't, by whose prompts responses are grouped: give "
                f"{name} as the first model"
            )


def score_fields(names: Sequence[str]) -> tuple[str, ...]:
    """The fields of `scores`: the members' rewards, their mean, min and spread; the same of z-scores; the disagreement."""
    return (*names, *_COMBINED[:3], *(f"z_{name}" for name in names), *_COMBINED[3:])


def members(settings: MembersSettings, reserved: tuple[str, ...] = KEPT_FREE) -> list[Member]:
    """The members in their order, whose runs keep the `reserved` names of columns free.

    Raises `SettingsError` if two have equal settings, or a name is in use.
    """
    for number, model in enumerate(settings.models):
        # Whatever the names: the same rewards twice agree with each other, and hide how far the other members are apart.
        if any(model.model_copy(update={"name": other.name}) == other for other in settings.models[:number]):
            raise SettingsError(f"{model.model} is given twice with the same settings, and would only agree with itself")
    names, read = _names(settings.models), set[str]()
    all_members = []
    for name, model in zip(names, settings.models, strict=True):
        corpus = _corpus_of(settings, model)
        read |= corpus.columns.keys()
        # The combined parts take the texts from the first member's, so the others needn't store them again.
        run = _score_settings(settings, name, model, corpus, text=settings.text and name == names[0])
        all_members.append(Member(name, run, reserved))
    if unread := sorted(settings.corpus.columns.keys() - read):
        raise SettingsError(
            f"--field {unread[0]}={settings.corpus.columns[unread[0]]}: none of the models reads such a field"
        )
    return all_members


def _score_settings(
    settings: MembersSettings, name: str, member: MemberSettings, corpus: CorpusSettings, *, text: bool
) -> ScoreSettings:
    model = ModelSettings(**{field: getattr(member, field) for field in ModelSettings.model_fields})
    if model.dtype is Dtype.AUTO and model.endpoint == HERE:
        model = model.model_copy(update={"dtype": settings.dtype})
    return ScoreSettings(
        corpus=corpus,
        output=folder_of(settings.output, name),
        model=model,
        render=settings.render,
        engine=member.engine or (settings.engine if model.endpoint == HERE else EngineSettings()),
        work=settings.work if model.endpoint == HERE else settings.work.model_copy(update=_ONE_ENGINE),
        prefix=settings.prefix,
        text=text,
        store=settings.store,
        append=settings.append,
        accept_versions=settings.accept_versions,
        log=settings.log,
    )


def _corpus_of(settings: MembersSettings, model: ModelSettings) -> CorpusSettings:
    """The input of a member, without the columns of fields that it doesn't read: they are for others."""
    columns = settings.corpus.columns
    if not columns:
        return settings.corpus  # without resolving the model, which reads its checkpoint
    family = resolve_model(model, settings.render).family
    names = {*family.field_names, *((PRINCIPLE,) if family.takes_principles else ())}
    kept = {name: column for name, column in columns.items() if name in names}
    # `columns` holds those of --reference-column and --criteria-column, too.
    return settings.corpus.model_copy(update={"field": kept, "reference_column": None, "criteria_column": None})


def _names(models: Sequence[MemberSettings]) -> list[str]:
    """A name per model, valid as a folder and as a field in SQL (case doesn't count). Equal models get equal names."""
    used = set(_COMBINED)
    names: dict[int, str] = {}
    # Names in the settings first: a generated one must not take a name that is given to a later model.
    for number, model in enumerate(models):
        if model.name is not None:
            if _fields(model.name) & used:
                raise SettingsError(f"a model can't be called {model.name!r}: `scores` has a field of that name already")
            names[number] = model.name
            used |= _fields(model.name)
    for number, model in enumerate(models):
        if number not in names:
            names[number] = next(name for name in _suggested_names(model.model) if not _fields(name) & used)
            used |= _fields(names[number])
    return [names[number] for number in range(len(models))]


def _fields(name: str) -> set[str]:
    return {name.lower(), f"z_{name}".lower()}


def _suggested_names(model: str) -> Iterable[str]:
    """Names made of a model's path or repository: `model`, `model_2`, `model_3` ... without end."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", model.rstrip("/").rsplit("/", 1)[-1]).strip("_") or "model"
    name = plain if not plain[0].isdigit() else f"m_{plain}"
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(2))
