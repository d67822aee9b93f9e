"""The cascade job: decide what the last model's filter keeps, with as few rows for that model as the allowed error lets.

1. Resolve the run of every model before the first one starts, and open the output folder.
2. Score the corpus with the first model. For each model but the last: draw a random slice of the rows that reached it, score
   that with the last one, find the band of rewards that stays open (`bands`), and score the rows in it with the next model.
3. Score the rows that are open still with the last model, and with them a second slice, which estimates the errors again.
4. Make one corpus of the runs: each row has the rewards of the last model that scored it (`combined_corpus`).

Each model's run is an ordinary one, in a folder of its own. A resumed cascade computes slices and bands again, from the same
rewards and seeds, and so asks the models for the same rows; what they have scored stays.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from actors.errors import RunStopped, SettingsError
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder.columns import KEPT, ROW, STAGE, Columns
from pipelines.folders.run_folder.manifest import Manifest, provenance
from pipelines.folders.run_folder.member_runs import CASCADE, MEMBERS, member_note
from pipelines.folders.scored_corpus.databases import spilling
from pipelines.folders.scored_corpus.expressions import Condition
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.results.filtering.cuts import interval, possible_cuts
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring import score_corpus
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import BoundSettings, CascadeSettings
from pipelines.workflows.cascades.bands import Allowed, Band, calibrate
from pipelines.workflows.cascades.stage_rows import FOLDER, StageRows
from pipelines.workflows.ensembles.align import MemberRun
from pipelines.workflows.ensembles.combined_corpus import Made, combine_runs, open_member, read_earlier
from pipelines.workflows.ensembles.members import Member, members
from pipelines.workflows.run_logging.logged_progress import observers_of

__all__ = ["CascadeFigures", "CascadeSummary", "cascade"]

_KEPT_FREE = (KEPT, STAGE)
_DECIDED = ("reward", "scores", "status", "reason", "tokens", "truncated", KEPT, STAGE)
_MEMORY = "2GB"  # of DuckDB, which holds a table of each model and joins them; it spills what is over
_MOST_SLICE = 0.25  # of what reaches a model, its slice: more would save less than it costs


@dataclass(frozen=True)
class StageFigures:
    """What a model of a cascade did: the rows that it scored, and by which slice which band of its rewards stays open.

    Of the slice's `sample` responses the last model keeps `wanted`. An edge is None where nothing is settled on that side;
    `why` says so where the slice was too small. The last model has no band.
    """

    name: str
    rows: int
    sample: int = 0
    wanted: int = 0
    low: float | None = None
    high: float | None = None
    why: str = ""


@dataclass(frozen=True)
class CheckFigures:
    """Errors estimated by a second slice, which had no part in the calibration, before the last model's word on its rows.

    Of `responses` drawn `kept` are kept, `wrong` of them against the last model; that model keeps `wanted`, `lost` of which
    aren't kept. Intervals are exact (Clopper-Pearson), two-sided, at the confidence that was asked for.
    """

    responses: int
    kept: int
    wrong: int
    error: tuple[float, float]
    wanted: int
    lost: int
    miss: tuple[float, float]


@dataclass(frozen=True)
class CascadeFigures:
    """The bounds of a cascade as they were asked for, what each model did for them, and what a second slice says."""

    where: str
    error: float
    miss: float
    confidence: float
    rows: int
    stages: Sequence[StageFigures]
    check: CheckFigures | None = None


@dataclass(frozen=True)
class CascadeSummary(Readable):
    """The summaries of the corpus as decided and of each model's run, by name, and the cascade's figures."""

    combined: Summary
    cascade: Mapping[str, Any]
    members: Mapping[str, Summary]

    def as_json(self) -> dict[str, Any]:
        """For `--json`: the summary of the decided corpus as that of `score`, with the figures and the models added."""
        summaries = {name: summary.as_json() for name, summary in self.members.items()}
        return {**self.combined.as_json(), CASCADE: dict(self.cascade), MEMBERS: summaries}


def cascade(settings: CascadeSettings, progress: Progress | None = None) -> CascadeSummary:
    """Run a cascade, or resume one that was interrupted.

    Raises a `UserError` if a run can't start, `RunStopped` if one ended early and can be resumed, and `AuditError` if the
    models hold other rows than they should.
    """
    progress = progress or Progress()
    stages = _stages(settings)
    folder = storage.absolute(settings.output)
    with lease(settings.output, progress.noted, settings.work.storage_patience_s):
        _open(settings, folder, stages)
        run = _Scoring(settings, stages, progress)
        first = run.score(0)
        with spilling("cascade", _MEMORY, "the rows can't be chosen") as connection:
            rows = StageRows(connection, folder, first)
            rows.load(0, first)
            for stage in range(1, len(stages)):
                rows.begin(stage)
            figures = _settle(run, rows, settings.bound)
            summary, about = _combine(settings, folder, run, rows, figures)
    return CascadeSummary(replace(summary, left_out=run.summaries[first.name].left_out), about, run.summaries)


def _stages(settings: CascadeSettings) -> list[Member]:
    """The models. A limit is of the input of the first: all others get rows that are chosen among these."""
    first, *later = members(settings, _KEPT_FREE)
    for number, stage in enumerate(later):
        corpus = stage.settings.corpus.model_copy(update={"limit": None})
        appending = stage.settings.model_copy(update={"corpus": corpus, "append": True})
        later[number] = stage._replace(settings=appending)
    return [first, *later]


@dataclass
class _Scoring:
    """Scores rows with the models of a cascade, each into the folder of its run."""

    settings: CascadeSettings
    stages: Sequence[Member]
    progress: Progress
    summaries: dict[str, Summary] = field(default_factory=dict)
    runs: dict[str, MemberRun] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.stages) - 1

    def score(self, stage: int, files: Sequence[str] = ()) -> MemberRun:
        """The run of a model, complete with these files of rows added; of the first model that of the whole corpus."""
        member = self.stages[stage]
        self.progress.member(member.name, member.settings.model.model, stage + 1, len(self.stages))
        settings = member.settings
        if stage:
            settings = settings.model_copy(update={"corpus": self._rows(settings.corpus, files)})
        summary = score_corpus.score(settings, self.progress, _KEPT_FREE, observers_of(settings))
        self.summaries[member.name] = summary
        self.runs[member.name] = open_member(self.settings.output, member.name, CASCADE)
        return self.runs[member.name]

    def _rows(self, corpus: Any, files: Sequence[str]) -> Any:
        """The input of a model after the first: rows of the corpus, which are read as the first model read them."""
        identity = self.runs[self.stages[0].name].manifest.identity
        shape = corpus.format if identity["own_columns"] else identity["shape"]
        return corpus.model_copy(update={"inputs": tuple(files), "format": shape})


def _open(settings: CascadeSettings, folder: str, stages: Sequence[Member]) -> None:
    """Create or reopen the output folder.

    Raises a `UserError` if it is unusable, or the run of any model can't start: before the first has cost anything.
    """
    earlier = read_earlier(folder, settings.overwrite, "a cascade")
    if earlier is None:
        storage.folder(folder).sub(FOLDER).delete_all()  # those of a cascade that was deleted: nothing reads them
    columns = _checked_columns(settings, stages)
    manifest = _manifest((), columns, _unmade(stages), settings.bound, {})
    if earlier is None:
        manifest.started().write(folder)  # before any model runs: it marks the folder as a cascade's
    else:
        replace(earlier, identity=_fixed_identity(earlier)).check(replace(manifest, identity=_fixed_identity(manifest)))
    write_recipe(folder, cascade=settings)


def columns_ahead(settings: CascadeSettings) -> Columns:
    """The columns that a cascade's corpus will have, for the later steps of a recipe.

    Raises a `UserError` if the run of a model can't be resolved.
    """
    return _checked_columns(settings, _stages(settings))


def _checked_columns(settings: CascadeSettings, stages: Sequence[Member]) -> Columns:
    """The columns of the corpus. Raises a `UserError` if a model's run can't start, or the last has no such condition."""
    columns = [stage.check().plan.preparation.columns for stage in stages]
    for stage, of_stage in zip(stages, columns, strict=True):
        if of_stage.within_row:
            raise SettingsError(
                f"{stage.name} compares the responses of a row with each other, and a cascade needs rewards that can be "
                "compared between rows: --set judge.mode=... of a model that can judge each response by itself"
            )
    readable = columns[-1].ours_first
    # The rows of a later model are named by the files that are written for it, and not as in the corpus.
    Condition.check(settings.bound.where, readable.remove(readable.get_field_index(columns[-1].prefix + ROW)))
    return _decided_columns(columns[0], [stage.name for stage in stages])


def _decided_columns(first: Columns, names: Sequence[str]) -> Columns:
    return Columns(
        first.carried,
        tuple(names),
        first.prefix,
        flags=(KEPT,),
        text=first.text,
        mixed=first.mixed,
        within_row=True,
        staged=True,
    )


def _manifest(
    files: Any, columns: Columns, notes: Mapping[str, Mapping[str, Any]], bound: BoundSettings, versions: Mapping[str, Any]
) -> Manifest:
    models = ", ".join(str(note["identity"]["model"]) for note in notes.values())
    identity = {
        "model": f"cascade of {models}",
        CASCADE: bound.model_dump(mode="json", exclude={"plan_only"}),
        "prefix": columns.prefix,
        MEMBERS: notes,
    }
    return Manifest(identity, tuple(files), columns, versions)


def _unmade(stages: Sequence[Member]) -> dict[str, Mapping[str, Any]]:
    # Of a model without a run, as all have at first, and one that no row reaches to the end.
    return {stage.name: {"identity": {"model": stage.settings.model.model}, "run": None} for stage in stages}


def _fixed_identity(manifest: Manifest) -> dict[str, Any]:
    # The part that can't change in a folder. Of a model only which one: its own folder checks the rest.
    models = {name: member["identity"]["model"] for name, member in manifest.identity.get(MEMBERS, {}).items()}
    return {**manifest.identity, MEMBERS: models}


def _settle(run: _Scoring, rows: StageRows, bound: BoundSettings) -> CascadeFigures:
    """Score what each model leaves open with the next, and estimate the errors again."""
    last, allowed = run.last, Allowed.of(bound, run.last)
    last_name = run.stages[last].name
    bands: list[Band] = []
    stages: list[StageFigures] = []
    for stage in range(last):
        band, figures = _calibrate(run, rows, stage, bound, allowed)
        bands.append(band)
        stages.append(figures)
        rows.keep_open(stage, band)
        is_open = _describe_open(run, rows, stage)
        run.progress.noted(is_open)
        if bound.plan_only:
            raise RunStopped(f"{is_open}; without `plan_only` they are scored")
        if stage + 1 < last:
            query = f"from open{stage} select row_id where row_id not in (select row_id from ids{last})"
            if files := rows.write(stage + 1, run.stages[stage + 1].name, "open", query):
                rows.load(stage + 1, run.score(stage + 1, files))
    # Half of a slice: it estimates, and shows nothing. Rows that the last model has seen by a slice had a part in the bands.
    checked = (bound.sample or allowed.sample) // 2
    unseen = f"row_id not in (select row_id from ids{last}) and {rows.can_go_on}"
    rows.draw("checked", 0, min(checked, int(rows.count("s0") * _MOST_SLICE)), f"{bound.sample_seed} check", unseen)
    query = f"select row_id from open{last - 1} union select row_id from checked"
    if files := rows.write(last, last_name, "open", query):
        rows.load(last, run.score(last, files), bound.where)
    for stage in range(1, last + 1):
        rows.check_whole(stage, run.runs.get(run.stages[stage].name))
    return CascadeFigures(
        bound.where,
        bound.error,
        bound.miss,
        bound.confidence,
        rows.count("s0", "distinct row_id"),
        [*stages, StageFigures(last_name, rows.count(f"s{last}", "distinct row_id"))],
        _check(rows, bands, bound),
    )


def _calibrate(
    run: _Scoring, rows: StageRows, stage: int, bound: BoundSettings, allowed: Allowed
) -> tuple[Band, StageFigures]:
    """The band of a model, by a random slice of what reached it; everything is open where that is too small."""
    last, name, reached = run.last, run.stages[stage].name, rows.count(f"s{stage}", "distinct row_id")
    size = min(bound.sample or allowed.sample, int(rows.count(f"s{stage}") * _MOST_SLICE))
    rows.draw(f"slice{stage}", stage, size, str(bound.sample_seed), rows.can_go_on)
    drawn = rows.count(f"slice{stage}")
    if drawn < allowed.fewest:
        why = f"a slice of {drawn:,} responses is too small: {allowed.fewest:,} that are kept show the bound at the least"
        return Band(), StageFigures(name, reached, why=why)
    if files := rows.write(last, run.stages[last].name, f"slice{stage}", f"select row_id from slice{stage}"):
        rows.load(last, run.score(last, files), bound.where)
    rewards, wanted = rows.slice_of(f"slice{stage}", stage, last)
    kept = int(wanted.sum())
    why = ""
    if kept < allowed.fewest:
        why = f"{kept:,} responses of the slice are kept, and {allowed.fewest:,} show the bound at the least"
    band = calibrate(rewards, wanted, possible_cuts(rows.connection, f"s{stage}", "reward"), allowed)
    low, high = (edge if math.isfinite(edge) else None for edge in band)
    return band, StageFigures(name, reached, drawn, kept, low, high, why)


def _describe_open(run: _Scoring, rows: StageRows, stage: int) -> str:
    is_open, reached = rows.count(f"open{stage}"), rows.count(f"s{stage}", "distinct row_id")
    name, following = (run.stages[number].name for number in (stage, stage + 1))
    return f"{name} leaves {is_open:,} of {reached:,} rows ({is_open / max(1, reached):.1%}) open for {following}"


def _check(rows: StageRows, bands: Sequence[Band], bound: BoundSettings) -> CheckFigures | None:
    drawn, kept, wrong, wanted, lost = rows.count_errors("checked", bands)
    if not drawn or not any(math.isfinite(edge) for band in bands for edge in band):
        return None
    error, miss = (interval(*counts, bound.confidence) for counts in ((wrong, kept), (lost, wanted)))
    return CheckFigures(drawn, kept, wrong, error, wanted, lost, miss)


def _combine(
    settings: CascadeSettings, folder: str, run: _Scoring, rows: StageRows, figures: CascadeFigures
) -> tuple[Summary, Mapping[str, Any]]:
    """Make the decided corpus; or take that which is there, if it is of the same runs."""
    names = [stage.name for stage in run.stages]
    notes = _unmade(run.stages) | {name: member_note(member.manifest, member.entries) for name, member in run.runs.items()}
    first = rows.first.manifest
    versions = {stage.name: provenance(stage.settings) for stage in run.stages}
    manifest = _manifest(first.files, _decided_columns(first.columns, names), notes, settings.bound, versions)

    def compute() -> Any:
        rows.decide(names, [stage.high for stage in figures.stages[:-1]])
        return nullcontext((rows.connection, json.loads(json.dumps(asdict(figures)))))  # as the manifest holds them

    return combine_runs(folder, rows.first, manifest, Made(CASCADE, CASCADE, _DECIDED, compute), run.progress)
