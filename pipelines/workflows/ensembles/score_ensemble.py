"""The ensemble job: score a corpus with several models, and combine their results into one scored corpus.

1. Resolve the run of every member before the first one starts, and open the output folder.
2. Score the corpus with each member in turn (`score_corpus`), into a folder of its own; complete members are skipped.
   Members of one model and engine, such as two rubrics, follow each other on the same engines (`shared_engines`).
3. Join the members' responses (`align`), and combine their rewards (`z_scores`).
4. Write the missing parts of the combined corpus, and sum them up (`combined_corpus`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from duckdb import DuckDBPyConnection

from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder.columns import SUSPECT, Columns
from pipelines.folders.run_folder.manifest import Manifest, provenance
from pipelines.folders.run_folder.member_runs import MEMBERS, member_note
from pipelines.folders.scored_corpus.databases import spilling
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.prepare import resolve_run
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import CombineSettings, EnsembleSettings
from pipelines.workflows.ensembles.align import align_members
from pipelines.workflows.ensembles.combined_corpus import Made, combine_runs, open_member, read_earlier
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

_MEMORY = "2GB"  # of the database in which the members' rewards are compared; what is over it spills into TMPDIR
_AGREEMENT = "agreement"
# The combined results of a response, in the order in which a scored corpus has them.
_COMBINED = ("reward", "scores", "status", "reason", "tokens", "truncated", "suspect")


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


def ensemble(settings: EnsembleSettings, progress: Progress | None = None) -> EnsembleSummary:
    """Score a corpus with several models and combine their results, or resume an interrupted run.

    Raises a `UserError` if the run can't start, `RunStopped` if it ended early and can be resumed, and `AuditError` if the
    members don't hold the same responses, or the output doesn't add up to the input.
    """
    progress = progress or Progress()
    all_members = members(settings)
    with lease(settings.output, progress.noted, settings.work.storage_patience_s):
        summaries: dict[str, Summary] = {}
        for group in by_engine(_open(settings, all_members)):
            shared = shared_engines(with_vllm=group[0].settings.engine.is_vllm) if len(group) > 1 else nullcontext()
            with shared as start_pipeline:
                for number, (name, run, _) in enumerate(group, len(summaries) + 1):
                    progress.member(name, run.model.model, number, len(all_members))
                    summaries[name] = score_corpus.score(run, progress, KEPT_FREE, observers_of(run), start_pipeline)
        # In the order of the settings again: members of one engine were asked one after another.
        summaries = {member.name: summaries[member.name] for member in all_members}
        versions = {member.name: provenance(member.settings) for member in all_members}
        summary, agreement = combine(settings.output, tuple(summaries), settings.combination, versions, progress)
    left_out = next(iter(summaries.values())).left_out
    return EnsembleSummary(replace(summary, left_out=left_out), agreement, summaries)


def _open(settings: EnsembleSettings, all_members: Sequence[Member]) -> list[CheckedMember]:
    """Create or reopen the output folder. Raises a `UserError` if it is unusable, or the run of any member can't start."""
    folder = storage.absolute(settings.output)
    earlier = read_earlier(folder, settings.overwrite, "an ensemble")
    # All members before the first runs: else an error of the last one would show after days of the others' runs.
    checked = [member.check() for member in all_members]
    check_first(checked)
    # Members that haven't run have no identity yet; `_fixed_identity` compares only the models.
    unmade = {member.name: {"identity": {"model": member.settings.model.model}, "run": None} for member in all_members}
    columns = [plan.preparation.columns for _, plan, _ in checked]
    manifest = _manifest(checked[0].plan.files, columns, unmade, settings.combination, {})
    if earlier is None:
        manifest.started().write(folder)  # before any member runs: it marks the folder as an ensemble's
    else:
        replace(earlier, identity=_fixed_identity(earlier)).check(replace(manifest, identity=_fixed_identity(manifest)))
    write_recipe(folder, ensemble=settings)
    return checked


def columns_ahead(settings: EnsembleSettings) -> Columns:
    """The columns that an ensemble's combined corpus will have, before it runs: a recipe's next step is checked by them.

    Raises a `UserError` if a member's run can't be resolved.
    """
    all_members = members(settings)
    columns = [resolve_run.resolve(member.settings, KEPT_FREE).preparation.columns for member in all_members]
    return _combined_columns(columns, [member.name for member in all_members])


def _combined_columns(members: Sequence[Columns], names: Sequence[str]) -> Columns:
    first = members[0]  # whose rows the combined corpus takes
    return Columns(
        first.carried,
        score_fields(names),
        first.prefix,
        flags=(SUSPECT,),
        text=first.text,
        mixed=first.mixed,
        # Combined numbers are comparable only within a row if those of any member are.
        within_row=any(columns.within_row for columns in members),
    )


def _manifest(
    files: Sequence[InputFile],
    columns: Sequence[Columns],
    notes: Mapping[str, Mapping[str, Any]],
    combination: CombineSettings,
    versions: Mapping[str, Any],
) -> Manifest:
    """The manifest of the combined corpus; `columns` are the members', and `notes` describe them by name (`member_note`)."""
    identity = {
        "model": f"ensemble of {', '.join(str(member['identity']['model']) for member in notes.values())}",
        **combination.model_dump(mode="json"),
        "prefix": columns[0].prefix,
        MEMBERS: notes,
    }
    # Through JSON, so that it is equal to one that is read: a tuple isn't equal to a list.
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
    progress: Progress | None = None,
) -> tuple[Summary, EnsembleAgreement]:
    """Combine complete members into the folder that contains them, or resume that. Raises as `ensemble` does.

    `names` are the members' in their order, and `versions` what made each of them, for the manifest.
    """
    folder = storage.absolute(output)
    runs = [open_member(folder, name, "ensemble") for name in names]
    first = runs[0].manifest
    notes = {run.name: member_note(run.manifest, run.entries) for run in runs}
    manifest = _manifest(first.files, [run.manifest.columns for run in runs], notes, combination, versions)

    @contextmanager
    def compute() -> Iterator[tuple[DuckDBPyConnection, dict[str, Any]]]:
        with spilling("ensemble", _MEMORY, "the rewards can't be compared") as connection:
            # All parts, not the missing ones alone: baselines depend on all responses to a prompt, wherever they are.
            align_members(connection, runs)
            agreement = Baselines(connection, names).compute(combination, manifest.columns.outputs)
            yield connection, asdict(agreement)

    made = Made("ensemble", _AGREEMENT, _COMBINED, compute)
    summary, agreement = combine_runs(folder, runs[0], manifest, made, progress)
    return summary, EnsembleAgreement.of_json(dict(agreement))
