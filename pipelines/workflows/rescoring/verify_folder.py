"""`verify`: checks all parts of a scored folder, and scores a sample of its rows again to compare.

1. Read every part: checksums, footer, run, range, rows and counts (`scored_corpus.part_checks`); audit those that are good.
2. With --repair, delete the bad ones of this run, under the folder's lease: their ranges are work for the next `score`.
   Files that aren't parts are moved away.
3. If all is well, draw a sample of input rows, score them now, and compare statuses, rewards and scores.
"""

import contextlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from actors.records import Status
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.storage.lease import lease, ticket
from pipelines.folders.run_folder.columns import REASON, RESPONSE, REWARD, ROW, SCORES, STATUS, STEPS, VOTES
from pipelines.folders.run_folder.member_runs import is_fake
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table
from pipelines.folders.scored_corpus.part_checks import check_parts
from pipelines.folders.scored_corpus.part_files import CheckedPart
from pipelines.folders.scored_corpus.scored_folder import read_manifest_with_parts
from pipelines.run.prepare.score_requests import Outcome
from pipelines.run.runtime.progress import ForwardingProgress, Progress
from pipelines.run.runtime.session import ray_session
from pipelines.run.scoring.score_corpus import Run, consume
from pipelines.run.scoring.score_step import StepSettings
from pipelines.settings.rescore_settings import VerifySettings
from pipelines.workflows.rescoring.part_rows import PartWork, Redraws, prepare_requests, read_redraws
from pipelines.workflows.rescoring.reopen import ReopenedRun, reopen
from pipelines.workflows.rescoring.rescore_step import rescoring_flow

_MOST_NAMED = 5  # numbers in a message


@dataclass(frozen=True)
class SampleComparison:
    """A sample that was scored again: the largest `difference` of any number (reward, scores, steps, votes), which is `at`.

    `compared` are the responses that were scored both times, and `mean_difference` is of their rewards; `lost` are numbers
    of these that are there once only, and `flips` the responses with another status, then and now.
    """

    rows: int
    responses: int
    compared: int
    difference: float
    mean_difference: float
    at: str | None
    lost: Sequence[str]
    flips: Sequence[Mapping[str, Any]]
    is_made_up: bool = False


@dataclass(frozen=True)
class VerifySummary(Readable):
    """What `verify` found. `dropped` are the names of parts that --repair deleted.

    `bad` are problems of parts by their names, `strays` the names of files among them that aren't parts, and `gaps` says
    what of the input no part covers, None if nothing. `sample` is None where no row was scored again.
    """

    parts: int
    bytes: int
    bad: Mapping[str, str]
    strays: Sequence[str]
    gaps: str | None
    dropped: Sequence[str] = ()
    sample: SampleComparison | None = field(default=None)

    @property
    def is_sound(self) -> bool:
        return not self.bad and self.gaps is None and not self.strays

    def gate_failures(self, max_difference: float | None) -> list[str]:
        """What of the sample --max-difference doesn't let pass: a sentence for each."""
        if max_difference is None:
            return []
        if self.sample is None:
            return ["no row was scored again, and --max-difference is of rows that are"]
        failures = []
        if not self.sample.compared:
            failures.append(f"none of {self.sample.responses:,} responses has a reward both times: nothing was compared")
        if self.sample.difference > max_difference:
            failures.append(f"{self.sample.at} differs by {self.sample.difference:.3g}, more than {max_difference:g}")
        if lost := self.sample.lost:
            failures.append(f"{len(lost):,} numbers are there once only: {', '.join(lost[:_MOST_NAMED])}")
        # A response that had failed may well have a reward now: that is what `retry` is for.
        if flips := [flip for flip in self.sample.flips if flip["before"] != Status.FAILED]:
            failures.append(f"{len(flips):,} responses that were scored or rejected have another status now")
        return failures


def verify(settings: VerifySettings, progress: Progress | None = None) -> VerifySummary:
    """Check a scored folder. Raises a `UserError` if it can't be checked, or its rows can't be scored again as they were."""
    progress = progress or Progress()
    folder = storage.absolute(settings.scored)
    manifest = read_manifest_with_parts(folder, "verify")
    # Before the parts are read, which may take long: the settings may not be those of the run.
    opened = reopen(folder, manifest, settings.engines) if settings.sample else None
    with lease(folder, progress.noted) if settings.repair else contextlib.nullcontext():
        parts = Parts(folder, manifest.run, ticket(folder) if settings.repair else None)
        if settings.repair:
            parts.set_strays_aside(progress.noted)
        checked = check_parts(parts, manifest)
        dropped = _drop(parts, checked.bad) if settings.repair else []
    summary = VerifySummary(
        parts=len(checked.parts),
        bytes=sum(part.size for part in checked.parts),
        bad={part.part.name: part.problem for part in checked.parts if part.problem is not None},
        strays=checked.strays,
        gaps=checked.gaps,
        dropped=dropped,
    )
    if opened is None or not summary.is_sound:
        return summary
    sample = _compare(opened, [part.part for part in checked.parts], settings, progress)
    return replace(summary, sample=sample)


def _drop(parts: Parts, bad: Sequence[CheckedPart]) -> list[str]:
    for checked in bad:
        if parts.ticket is not None:
            parts.ticket.check()  # before each, since another run may have taken the folder while parts were read
        parts.parts_folder.delete(checked.part.name)
    return [checked.part.name for checked in bad]


def sample_rows(parts: Sequence[Part], count: int, seed: int) -> dict[Part, tuple[int, ...]]:
    """Draw input rows, each as likely as any other: the indices of rows in their parts. All rows if there are no more."""
    total = sum(part.counts.rows for part in parts)
    numbers = sorted(Random(seed).sample(range(total), min(count, total)))
    ends = list(itertools.accumulate(part.counts.rows for part in parts))
    rows_by_part: dict[Part, tuple[int, ...]] = {}
    index = 0
    for number in numbers:
        while number >= ends[index]:  # the numbers ascend, so that no part is looked at twice
            index += 1
        part = parts[index]
        rows_by_part[part] = (*rows_by_part.get(part, ()), number - ends[index] + part.counts.rows)
    return rows_by_part


class _Comparisons(ForwardingProgress):
    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.responses: dict[tuple[str, str], dict[str, Any]] = {}

    def part_done(self, part: Mapping[str, Any]) -> None:
        for response in json.loads(part["compared"]):
            # By its key: a part that a restarted worker compared again counts once.
            self.responses[response["row"], response["response"]] = response


def _compare(opened: ReopenedRun, parts: Sequence[Part], settings: VerifySettings, progress: Progress) -> SampleComparison:
    rows_by_part, comparisons = sample_rows(parts, settings.sample, settings.seed), _Comparisons(progress)
    if rows_by_part:
        run = opened.run(Run)
        comparing = Comparing({part.name: rows for part, rows in rows_by_part.items()})
        with (
            ray_session(with_vllm=run.settings.engine.is_vllm),
            rescoring_flow(run, list(rows_by_part), comparing, progress.noted) as flow,
        ):
            consume(run, flow, comparisons)
    return _sample(sum(map(len, rows_by_part.values())), list(comparisons.responses.values()), is_fake(opened.manifest))


def _sample(rows: int, responses: Sequence[Mapping[str, Any]], is_made_up: bool) -> SampleComparison:
    differences = {
        f"{name} of {response['row']} ({response['response']})": difference
        for response in responses
        for name, difference in response["differences"].items()
    }
    measured = {name: difference for name, difference in differences.items() if difference is not None}
    rewards = [difference for name, difference in measured.items() if name.startswith(f"{REWARD} of ")]
    flips = [response for response in responses if response["before"] != response["now"]]
    return SampleComparison(
        rows,
        len(responses),
        len(rewards),
        max(measured.values(), default=0.0),
        sum(rewards) / max(len(rewards), 1),
        max(measured, key=measured.__getitem__, default=None),
        [name for name in differences if name not in measured],
        [{name: value for name, value in flip.items() if name != "differences"} for flip in flips],
        is_made_up,
    )


@dataclass(frozen=True)
class Comparing:
    """Scores rows of parts again and compares; writes nothing. `rows` are indices of rows by the name of their part."""

    # With the run's notes, a batch that is answered would be read again, and its numbers be compared with themselves.
    uses_notes: ClassVar[bool] = False

    rows: Mapping[str, tuple[int, ...]]

    def select(self, settings: StepSettings, part: Part) -> PartWork:
        table = read_table(settings.parts.path(part))
        names, redraws = self._sampled_names(settings, part, table), read_redraws(table)
        requests = prepare_requests(part, table, names, settings.preparation)
        return PartWork(part, tuple(work.with_redraw(redraws.get(work.id, Redraws()).kept) for work in requests))

    def finish(
        self, settings: StepSettings, work: PartWork, outcomes: Sequence[Sequence[Outcome]], runner: str
    ) -> dict[str, Any]:
        table, prefix = read_table(settings.parts.path(work.part)), settings.preparation.columns.prefix
        names = self._sampled_names(settings, work.part, table)
        now = {
            (request.row, outcome.response): outcome
            for request, results in zip(work.requests, outcomes, strict=True)
            for outcome in results
        }
        columns = [name for name in _COMPARED if prefix + name in settings.preparation.columns.ours.names]
        before = table.select([prefix + name for name in columns]).rename_columns(columns)
        responses = [response for response in before.to_pylist() if response[ROW] in names]
        compared = [_compare_response(response, now.get((response[ROW], response[RESPONSE]))) for response in responses]
        # No counts: the driver ends a run in which too much fails, and here nothing is written.
        return {**work.part._replace(counts=Counts()).report(), "compared": json.dumps(compared)}

    def _sampled_names(self, settings: StepSettings, part: Part, table: pa.Table) -> dict[str, set[str]]:
        prefix = settings.preparation.columns.prefix
        names: dict[str, set[str]] = {}
        for row, name in zip(*(table.column(prefix + column).to_pylist() for column in (ROW, RESPONSE)), strict=True):
            names.setdefault(row, set()).add(name)
        sampled_rows = set(self.rows[part.name])
        return {row: responses for index, (row, responses) in enumerate(names.items()) if index in sampled_rows}


_COMPARED = [ROW, RESPONSE, STATUS, REASON, REWARD, SCORES, STEPS, VOTES]


def _compare_response(before: Mapping[str, Any], now: Outcome | None) -> dict[str, Any]:
    """A response then and now. Without an outcome it was rejected before it was rendered."""
    status = Status.REJECTED.value if now is None else now.score.status.value
    reason = None if now is None or now.score.reason is None else now.score.reason.value
    differences = {}
    # Only where both have a reward: a status that has changed is told as such, and not as the loss of its numbers.
    if now is not None and now.score.reward is not None and before[REWARD] is not None:
        score = now.score
        lists = {name: getattr(score, name) for name in (STEPS, VOTES) if name in before}
        new = _numbers({REWARD: score.reward, SCORES: score.scores, **lists})
        old = _numbers(before)
        differences = {name: abs(old[name] - new[name]) if name in old and name in new else None for name in {**old, **new}}
    return {
        "row": before[ROW],
        "response": before[RESPONSE],
        "before": before[STATUS],
        "before_reason": before[REASON],
        "now": status,
        "now_reason": reason,
        "differences": differences,
    }


def _numbers(response: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a response that has a reward, by name; what is null or NaN, which differs from nothing, is none."""
    scores = {f"{SCORES}.{name}": value for name, value in response[SCORES].items()}
    listed = {f"{name}[{index}]": value for name in (STEPS, VOTES) for index, value in enumerate(response.get(name) or ())}
    numbers = {REWARD: response[REWARD], **scores, **listed}
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
