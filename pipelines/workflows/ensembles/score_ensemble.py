"""The ensemble job: score a corpus with several models, and combine their results into one scored corpus.

1. Resolve the run of every member before the first one starts, and open the output folder.
2. Score the corpus with each member in turn (`score_corpus`), into a folder of its own; complete members are skipped.
   Members of one model and engine, such as two rubrics, follow each other on the same engines (`shared_engines`).
3. Join the members' responses (`align`), and combine their rewards (`z_scores`).
4. Write the missing parts of the combined corpus (`combine_step`).
5. Audit and summarise the parts, and complete the manifest.

Steps 3 to 5 need no model. They start over when a member was scored anew or the settings of the combination changed: the
identity in the manifest contains both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from actors.errors import AuditError, OutputError
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import check_held, lease
from pipelines.folders.run_folder import earlier_run
from pipelines.folders.run_folder.columns import SUSPECT, Columns
from pipelines.folders.run_folder.dataset_card import write_scored_card
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import BrokenManifest, Manifest, provenance, read_manifest
from pipelines.folders.run_folder.member_runs import FOLDER, MEMBERS, folder_of, member_note
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.databases import spilling
from pipelines.folders.scored_corpus.part_files import drop_unreadable
from pipelines.folders.scored_corpus.scored_folder import audit_parts, read_scored_manifest
from pipelines.folders.scored_corpus.summary import Summary, summarise
from pipelines.run.prepare import resolve_run
from pipelines.run.runtime.progress import EnsembleProgress, NoProgress
from pipelines.run.runtime.workers import workers
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import CombineSettings, EnsembleSettings
from pipelines.workflows.ensembles.align import MemberRun, align_members
from pipelines.workflows.ensembles.combine_step import CombineStep, write_parts
from pipelines.workflows.ensembles.members import (
    KEPT_FREE,
    CheckedMember,
    Member,
    by_engine,
    check_first,
    members,
    score_fields,
)
from pipelines.workflows.ensembles.z_scores import Baselines, EnsembleAgreement
from pipelines.workflows.run_logging.logged_progress import observers_of

__all__ = ["EnsembleSummary", "combine", "ensemble"]

_GROUP_RESPONSES = 2**15
"""Responses of the parts that one task writes, at the most; more only if a single part has them."""
_WAVE = 32
"""Groups whose numbers are in memory at a time: up to about 200 MB, for two members."""
_MEMORY = "2GB"
"""Of the database in which the members' rewards are compared; what is over it spills into TMPDIR."""
_AGREEMENT = "agreement"


@dataclass(frozen=True)
class EnsembleSummary(Readable):
    """The summaries of the combined corpus and of each member, by name, and the members' agreement."""

    combined: Summary
    agreement: EnsembleAgreement
    members: Mapping[str, Summary]

    def as_json(self) -> dict[str, Any]:
        """For `--json`: the summary of the combined corpus as that of `score`, with agreement and members added."""
        summaries = {name: summary.as_json() for name, summary in self.members.items()}
        return {**self.combined.as_json(), _AGREEMENT: asdict(self.agreement), MEMBERS: summaries}


def ensemble(settings: EnsembleSettings, progress: EnsembleProgress | None = None) -> EnsembleSummary:
    """Score a corpus with several models and combine their results, or resume an interrupted run.

    Raises a `UserError` if the run can't start, `RunStopped` if it ended early and can be resumed, and `AuditError` if the
    members don't hold the same responses, or the output doesn't add up to the input.
    """
    progress = progress or NoProgress()
    all_members = members(settings)
    with lease(settings.output, progress.noted, settings.work.storage_patience_s):
        summaries: dict[str, Summary] = {}
        for group in by_engine(_open(settings, all_members)):
            shared = shared_engines(with_vllm=group[0].settings.engine.is_vllm) if len(group) > 1 else nullcontext()
            with shared as start_pipeline:
                for number, (name, run) in enumerate(group, len(summaries) + 1):
                    progress.member(name, run.model.model, number, len(all_members))
                    summaries[name] = score_corpus.score(run, progress, KEPT_FREE, observers_of(run), start_pipeline)
        summaries = {member.name: summaries[member.name] for member in all_members}
        versions = {member.name: provenance(member.settings) for member in all_members}
        summary, agreement = combine(settings.output, tuple(summaries), settings.combination, versions, progress)
    left_out = next(iter(summaries.values())).left_out
    return EnsembleSummary(replace(summary, left_out=left_out), agreement, summaries)


def _open(settings: EnsembleSettings, all_members: Sequence[Member]) -> list[CheckedMember]:
    """Create or reopen the output folder. Raises a `UserError` if it is unusable, or the run of any member can't start."""
    folder = storage.absolute(settings.output)
    earlier = _earlier(folder, settings.overwrite)
    if earlier is not None and (settings.overwrite or earlier_run.if_begun(folder, earlier) is None):
        _delete(folder, earlier)
        earlier = None
    # All members before the first runs: else an error of the last one would show after days of the others' runs.
    checked = [member.check() for member in all_members]
    check_first(checked)
    # Members that haven't run have no identity yet; `_fixed_identity` compares only the models.
    unmade = {member.name: {"identity": {"model": member.settings.model.model}, "run": None} for member in all_members}
    columns = _common_columns([plan.preparation.columns for _, plan, _ in checked])
    manifest = _manifest(checked[0].plan.files, columns, unmade, settings.combination, {})
    if earlier is None:
        manifest.started().write(folder)  # before any member runs: it marks the folder as an ensemble's
    else:
        replace(earlier, identity=_fixed_identity(earlier)).check(replace(manifest, identity=_fixed_identity(manifest)))
    write_recipe(folder, ensemble=settings)
    return checked


def columns_ahead(settings: EnsembleSettings) -> Columns:
    """The columns that an ensemble's combined corpus will have. Raises a `UserError` if a member's run can't be resolved."""
    all_members = members(settings)
    columns = [resolve_run.resolve(member.settings, KEPT_FREE).preparation.columns for member in all_members]
    return _combined_columns(_common_columns(columns), [member.name for member in all_members])


def _common_columns(members: Sequence[Columns]) -> Columns:
    """The columns of the first member; combined numbers are comparable only within a row if those of any member are."""
    return replace(members[0], within_row=any(columns.within_row for columns in members))


def _combined_columns(columns: Columns, names: Sequence[str]) -> Columns:
    return Columns(
        columns.carried,
        score_fields(tuple(names)),
        columns.prefix,
        flags=(SUSPECT,),
        text=columns.text,
        mixed=columns.mixed,
        within_row=columns.within_row,
    )


def _earlier(folder: str, overwrite: bool) -> Manifest | None:
    """The manifest of an earlier run in the folder. Raises `OutputError` if the folder holds something else."""
    member_folders = storage.folder(folder).sub(FOLDER)
    try:
        earlier = read_manifest(folder)
    except BrokenManifest:
        if member_folders.is_empty():
            raise
        if overwrite:
            member_folders.delete_all()
        return None  # nothing is lost with it: members have manifests of their own, and are combined anew
    if earlier is None and not earlier_run.is_unused(folder):
        raise OutputError(f"{folder} holds something else than an ensemble; give a new or an empty folder")
    return earlier


def _delete(folder: str, earlier: Manifest) -> None:
    Parts(folder).delete()
    try:
        for name in earlier.identity.get(MEMBERS, {}):
            storage.folder(folder_of(folder, name)).delete_all()
    except OSError as error:
        raise OutputError(f"the ensemble in {folder} can't be deleted: {error_text(error)}") from error


def _manifest(
    files: Sequence[InputFile],
    columns: Columns,
    notes: Mapping[str, Mapping[str, Any]],
    combination: CombineSettings,
    versions: Mapping[str, Any],
) -> Manifest:
    """The manifest of the combined corpus; `notes` describe the members, by name (`member_note`)."""
    identity = {
        "model": f"ensemble of {', '.join(str(member['identity']['model']) for member in notes.values())}",
        **combination.model_dump(mode="json"),
        "prefix": columns.prefix,
        MEMBERS: notes,
    }
    return Manifest(json.loads(json.dumps(identity)), tuple(files), _combined_columns(columns, tuple(notes)), versions)


def _fixed_identity(manifest: Manifest) -> dict[str, Any]:
    """The part of the identity that can't change in a folder. Of a member only its model: its own folder checks the rest."""
    models = {name: member["identity"]["model"] for name, member in manifest.identity.get(MEMBERS, {}).items()}
    return {"model": manifest.identity.get("model"), MEMBERS: models, "prefix": manifest.identity["prefix"]}


def combine(
    output: str,
    names: tuple[str, ...],
    combination: CombineSettings,
    versions: Mapping[str, Any],
    progress: EnsembleProgress | None = None,
) -> tuple[Summary, EnsembleAgreement]:
    """Combine complete members into the folder that contains them, or resume that. Raises as `ensemble` does."""
    folder = storage.absolute(output)
    runs = [_member_run(folder, name) for name in names]
    manifest = _start(folder, runs, combination, versions)
    write_scored_card(folder, "ensemble", manifest)
    metadata = {"assay": json.dumps({"identity": manifest.identity, "made_with": versions})}
    step = CombineStep(runs[0].parts, Parts(folder, manifest.run), manifest.columns, metadata)
    notify = (progress or NoProgress()).noted
    missing = _missing(step.target.repair(manifest.files, notify), runs[0])
    # Parts are re-read only if none is missing: a damaged part is dropped, and written again below.
    if not missing and drop_unreadable(step.target, notify):
        missing = _missing(step.target.state(manifest.files), runs[0])
    if missing or manifest.summary is None:
        agreement = _complete(step, runs, combination, missing, progress or NoProgress())
    else:
        agreement = EnsembleAgreement.of_json(manifest.summary[_AGREEMENT])
    counts = step.target.state(manifest.files).audit()
    expected = sum((part.counts for part, _ in runs[0].entries), Counts())
    if (counts.rows, counts.responses) != (expected.rows, expected.responses):
        raise AuditError(f"the members hold {expected}, and the parts made of them {counts}")
    step.target.set_strays_aside(notify)
    summary = summarise(step.target, manifest.columns, counts)
    replace(manifest, summary={**summary.as_json(), _AGREEMENT: asdict(agreement)}).write(folder)
    return summary, agreement


def _missing(state: FolderState, first: MemberRun) -> list[Part]:
    """The first member's parts that have no combined part yet."""
    combined = {part.place for part in state.parts}
    return [part for part, _ in first.entries if part.place not in combined]


def _member_run(output: str, name: str) -> MemberRun:
    folder = folder_of(output, name)
    manifest = read_scored_manifest(folder, "ensemble")
    return MemberRun(name, Parts(folder, manifest.run), manifest, audit_parts(folder, manifest, partial=False))


def _start(folder: str, runs: Sequence[MemberRun], combination: CombineSettings, versions: Mapping[str, Any]) -> Manifest:
    """Write the manifest of the combination, unless it is there. Parts of other members or settings are deleted first."""
    first = runs[0].manifest
    notes = {run.name: member_note(run.manifest, run.entries) for run in runs}
    manifest = _manifest(first.files, _common_columns([run.manifest.columns for run in runs]), notes, combination, versions)
    earlier = read_manifest(folder)
    if earlier is not None and earlier.identity == manifest.identity:
        manifest = replace(manifest, summary=earlier.summary, run=earlier.run)
    else:
        Parts(folder).delete()
        manifest = manifest.started()
        manifest.write(folder)
    parts = Parts(folder, manifest.run)
    parts.create()
    # Where a file ends is known from the first member's run, if the reader had to find it; `audit` needs it here, too.
    extents = runs[0].parts.extents(manifest.files)
    for file in manifest.files:
        extent = extents[file.index]
        if file.extent is None and extent is not None:
            parts.end_seen(file, extent)
    return manifest


def _complete(
    step: CombineStep,
    runs: Sequence[MemberRun],
    combination: CombineSettings,
    missing: Sequence[Part],
    progress: EnsembleProgress,
) -> EnsembleAgreement:
    """Compute the z-scores of all responses, and write the missing parts."""
    with spilling("ensemble", _MEMORY, "the rewards can't be compared") as connection:
        # All parts, not the missing ones alone: baselines depend on all responses to a prompt, wherever they are.
        places = align_members(connection, runs)
        base = Baselines(connection, tuple(run.name for run in runs))
        agreement = base.compute(combination, step.columns.outputs)
        groups = list(_groups(missing))
        combined, total = 0, sum(part.counts.responses for part in missing)
        with workers(len(groups)) as pool:
            for first in range(0, len(groups), _WAVE):
                wave = [(step, group, _numbers(base, group, places)) for group in groups[first : first + _WAVE]]
                for written in pool.map(write_parts, wave):
                    check_held()
                    combined += written
                    progress.combined(combined, total)
    return agreement


def _numbers(base: Baselines, group: Sequence[Part], places: Mapping[Part, int]) -> pa.Table:
    """The numbers of the responses in some parts; `places` are the indices of the parts' first responses."""
    return pa.concat_tables([base.numbers(places[part], part.counts.responses) for part in group])


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Groups of neighbouring parts: what one task writes."""
    group, responses = list[Part](), 0
    for part in parts:
        if group and responses + part.counts.responses > _GROUP_RESPONSES:
            yield group
            group, responses = [], 0
        group.append(part)
        responses += part.counts.responses
    if group:
        yield group
