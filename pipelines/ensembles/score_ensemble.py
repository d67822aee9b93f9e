"""The job of several models: a corpus in, what each of them scored, and one scored corpus that combines them.

1. Settle the run of every member before the first one begins, and open the output folder.
2. Score the corpus with each member in turn (`score_corpus`), into a folder of its own; a complete one isn't run again.
3. Read the members side by side (`align`), and compare their rewards among the responses to each prompt (`z_scores`).
4. Write the parts of the combined corpus that are missing (`combine_step`).
5. Audit the parts, sum them up, and close the manifest.

Steps 3 to 5 need no model. They are done again, from the start, whenever a member's run has become another one, or other
settings of the combination are given: the manifest notes what the parts were made of.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from actors.errors import AuditError, OutputError
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile
from pipelines.ensembles.align import MemberRun, align_members
from pipelines.ensembles.combine_step import CombineStep, write_parts
from pipelines.ensembles.members import KEPT_FREE, Member, check_same_files, members, outputs
from pipelines.ensembles.z_scores import Baselines, EnsembleAgreement, baselines, responses_needed
from pipelines.prepare import resolve_run
from pipelines.runtime.progress import EnsembleProgress, Silent
from pipelines.runtime.workers import workers
from pipelines.scored_corpus import earlier_run
from pipelines.scored_corpus.columns import SUSPECT, Columns
from pipelines.scored_corpus.manifest import BrokenManifest, Manifest, provenance, read_manifest
from pipelines.scored_corpus.member_runs import FOLDER, MEMBERS, folder_of, member_note
from pipelines.scored_corpus.part_files import drop_unreadable
from pipelines.scored_corpus.parts import Counts, Part, Parts, audit
from pipelines.scored_corpus.scored_folder import audit_parts, read_scored_manifest
from pipelines.scored_corpus.summary import Summary, summarise
from pipelines.scoring import score_corpus
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import CombineSettings, EnsembleSettings
from pipelines.storage import error_text
from pipelines.storage.lease import check_held, lease

__all__ = ["EnsembleSummary", "combine", "ensemble"]

_GROUP_BYTES = 64 * 2**20
_GROUP_RESPONSES = 2**17
_WAVE = 16
"""Groups of parts whose numbers are in memory at a time: up to about 200 MB, for two members."""

_AGREEMENT = "agreement"


@dataclass(frozen=True)
class EnsembleSummary:
    """What came of an ensemble: of the combined corpus, of each member by its name, and how far they agree."""

    combined: Summary
    agreement: EnsembleAgreement
    members: Mapping[str, Summary]

    def as_json(self) -> dict[str, Any]:
        """For `--json`: the combined corpus as `score` tells one, and the rest beside it."""
        own = {name: summary.as_json() for name, summary in self.members.items()}
        return {**self.combined.as_json(), _AGREEMENT: self.agreement.as_json(), MEMBERS: own}


def ensemble(settings: EnsembleSettings, progress: EnsembleProgress | None = None) -> EnsembleSummary:
    """Score a corpus with several models and combine what they say, or go on where an earlier run ended.

    Raises a `UserError` if the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if
    the members don't hold the same responses, or what was written doesn't add up to the input.
    """
    progress = progress or Silent()
    own = members(settings)
    with lease(settings.output):
        _open(settings, own)
        summaries = {}
        for number, member in enumerate(own, start=1):
            progress.member(member.name, member.settings.model.model, number, len(own))
            summaries[member.name] = score_corpus.score(member.settings, progress, KEPT_FREE)
        made = {member.name: provenance(member.settings) for member in own}
        summary, agreement = combine(settings.output, tuple(summaries), settings.combination, made, progress)
    left_out = next(iter(summaries.values())).left_out
    return EnsembleSummary(replace(summary, left_out=left_out), agreement, summaries)


def _open(settings: EnsembleSettings, own: Sequence[Member]) -> None:
    """Open the output folder, new or to go on with. Raises a `UserError` if it, or the run of any member, won't do."""
    folder = storage.absolute(settings.output)
    earlier = _earlier(folder, settings.overwrite)
    if earlier is not None and settings.overwrite:
        _delete(folder, earlier)
        earlier = None
    # All of them, now: what is wrong with the last one would else be told after the others had run for days.
    plans = [member.check() for member in own]
    if settings.append:
        check_same_files({member.name: member.files_after(plan) for member, plan in zip(own, plans, strict=True)})
    unmade = {member.name: {"identity": {"model": member.settings.model.model}, "run": None} for member in own}
    manifest = _manifest(
        plans[0].files, _of_all([plan.preparation.columns for plan in plans]), unmade, settings.combination, {}
    )
    if earlier is None:
        manifest.write(folder)  # before any member: without it, nobody could tell what the folder is
    else:
        replace(earlier, identity=_kept(earlier)).check(replace(manifest, identity=_kept(manifest)))
    write_recipe(folder, ensemble=settings)


def columns_ahead(settings: EnsembleSettings) -> Columns:
    """The columns of what an ensemble is going to make. Raises a `UserError` if its first member can't run."""
    own = members(settings)
    columns = [resolve_run.resolve(member.settings, KEPT_FREE).preparation.columns for member in own]
    return _combined(_of_all(columns), [member.name for member in own])


def _of_all(members: Sequence[Columns]) -> Columns:
    """The columns of the first member; numbers made of all compare no more than those of each do."""
    return replace(members[0], within_row=any(columns.within_row for columns in members))


def _combined(columns: Columns, names: Sequence[str]) -> Columns:
    return Columns(columns.carried, outputs(tuple(names)), columns.prefix, flags=(SUSPECT,), within_row=columns.within_row)


def _earlier(folder: str, overwrite: bool) -> Manifest | None:
    own = storage.folder(folder).sub(FOLDER)
    try:
        earlier = read_manifest(folder)
    except BrokenManifest:
        if own.is_empty():
            raise
        if overwrite:
            own.delete_all()
        return None  # the members know what they are, and are combined anew
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
    made: Mapping[str, Mapping[str, Any]],
    combination: CombineSettings,
    versions: Mapping[str, Any],
) -> Manifest:
    """The manifest of a corpus combined of members, each of which noted what it is (`member_note`)."""
    identity = {
        "model": f"ensemble of {', '.join(str(member['identity']['model']) for member in made.values())}",
        **combination.model_dump(mode="json"),
        "prefix": columns.prefix,
        MEMBERS: made,
    }
    return Manifest(json.loads(json.dumps(identity)), tuple(files), _combined(columns, tuple(made)), versions)


def _kept(manifest: Manifest) -> dict[str, Any]:
    """What must stay as it is in a folder. Of the members only which they are: their own folders know the rest."""
    own = {name: member["identity"]["model"] for name, member in manifest.identity.get(MEMBERS, {}).items()}
    return {"model": manifest.identity.get("model"), MEMBERS: own, "prefix": manifest.identity["prefix"]}


def combine(
    output: str,
    names: tuple[str, ...],
    combination: CombineSettings,
    versions: Mapping[str, Any],
    progress: EnsembleProgress | None = None,
) -> tuple[Summary, EnsembleAgreement]:
    """Combine members that are complete into the folder around them, or go on with that. Raises as `ensemble` does."""
    folder = storage.absolute(output)
    runs = [_member_run(folder, name) for name in names]
    manifest = _start(folder, runs, combination, versions)
    metadata = {"assay": json.dumps({"identity": manifest.identity, "made_with": versions})}
    step = CombineStep(runs[0].parts, Parts(folder, manifest.run), manifest.columns, names, combination, metadata)
    step.target.repair()
    missing = _missing(step, runs[0])
    if not missing and drop_unreadable(step.target, (progress or Silent()).noted):
        missing = _missing(step, runs[0])
    if missing or manifest.summary is None:
        agreement = _complete(step, runs, missing, progress or Silent())
    else:
        agreement = EnsembleAgreement.of_json(manifest.summary[_AGREEMENT])
    counts = audit(manifest.files, step.target.extents(manifest.files), step.target.listing())
    expected = sum((part.counts for part, _ in runs[0].entries), Counts())
    if (counts.rows, counts.responses) != (expected.rows, expected.responses):
        raise AuditError(f"the members hold {expected}, and the parts made of them {counts}")
    summary = summarise(step.target, manifest.columns, counts)
    replace(manifest, summary={**summary.as_json(), _AGREEMENT: agreement.as_json()}).write(folder)
    return summary, agreement


def _missing(step: CombineStep, first: MemberRun) -> list[tuple[Part, int]]:
    """The first member's parts of which none was made yet, each with its size."""
    done = {(part.file, part.range) for part in step.target.listing()}
    return [(part, entry.size) for part, entry in first.entries if (part.file, part.range) not in done]


def _member_run(output: str, name: str) -> MemberRun:
    folder = folder_of(output, name)
    manifest = read_scored_manifest(folder)
    return MemberRun(name, Parts(folder, manifest.run), manifest, audit_parts(folder, manifest, partial=False))


def _start(folder: str, runs: Sequence[MemberRun], combination: CombineSettings, versions: Mapping[str, Any]) -> Manifest:
    """The manifest of what is going to be combined. Before it is written, parts made of anything else are deleted."""
    first = runs[0].manifest
    made = {run.name: member_note(run.manifest, run.entries) for run in runs}
    manifest = _manifest(first.files, _of_all([run.manifest.columns for run in runs]), made, combination, versions)
    earlier = read_manifest(folder)
    if earlier is not None and earlier.identity == manifest.identity:
        manifest = replace(manifest, summary=earlier.summary, run=earlier.run)
    else:
        Parts(folder).delete()
        manifest = manifest.started()
        manifest.write(folder)
    parts = Parts(folder, manifest.run)
    parts.create()
    extents = runs[0].parts.extents(manifest.files)
    for file in manifest.files:
        extent = extents[file.index]
        if file.extent is None and extent is not None:
            parts.end_seen(file, extent)
    return manifest


def _complete(
    step: CombineStep, runs: Sequence[MemberRun], missing: Sequence[tuple[Part, int]], progress: EnsembleProgress
) -> EnsembleAgreement:
    """Write the missing parts, given with about what they are in bytes."""
    with baselines(step.members) as base:
        places, count = dict[Part, int](), 0
        for part, table in align_members(runs):
            places[part] = count
            count += table.num_rows
            base.add(table)
        agreement = base.settle(responses_needed(step.combination.suspect_disagreement))
        groups = list(_groups(missing))
        done, total = 0, sum(part.counts.responses for part, _ in missing)
        with workers(len(groups)) as hands:
            for at in range(0, len(groups), _WAVE):
                wave = [(step, group, _numbers(base, group, places)) for group in groups[at : at + _WAVE]]
                for written in hands.map(write_parts, wave):
                    check_held()
                    done += written
                    progress.combined(done, total)
    return agreement


def _numbers(base: Baselines, group: Sequence[Part], places: Mapping[Part, int]) -> pa.Table:
    return pa.concat_tables([base.numbers(places[part], part.counts.responses) for part in group])


def _groups(parts: Sequence[tuple[Part, int]]) -> Iterator[list[Part]]:
    """Parts together, up to a size: what a task writes."""
    group, size, responses = list[Part](), 0, 0
    for part, own in parts:
        if group and (size + own > _GROUP_BYTES or responses + part.counts.responses > _GROUP_RESPONSES):
            yield group
            group, size, responses = [], 0, 0
        group.append(part)
        size += own
        responses += part.counts.responses
    if group:
        yield group
