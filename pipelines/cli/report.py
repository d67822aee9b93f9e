"""The reports that commands print at their end: counts, reasons, and quantiles to choose a threshold by."""

import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from actors.records import Reason, Reasoning
from pipelines.cli.plain_console import plain_console
from pipelines.corpus.corpus_files import left_out_message
from pipelines.ensembles.score_ensemble import EnsembleSummary
from pipelines.exports.export_job import ExportSummary
from pipelines.exports.rpo_scale import NO_SIGNAL, SATURATED, TARGET
from pipelines.filtering.filter_corpus import KeepSummary
from pipelines.run_folder.columns import FROM_STORE, REASONED, SUSPECT
from pipelines.sampling.refine_prompts import RefineSummary
from pipelines.sampling.sample_prompts import SampleSummary
from pipelines.scored_corpus.candidates import LabelAgreement
from pipelines.scored_corpus.summary import QUANTILES, Summary
from pipelines.settings.run_settings import EnsembleSettings, FilterSettings, RefineSettings, SampleSettings, ScoreSettings

MADE_UP = "These numbers are made up: --engine fake is for trying a pipeline out"
_MOST_CAUSES = 5
_REASONED = {Reasoning.STRIP: "the final answers were judged", Reasoning.KEEP: "it was judged with them"}


def show_scored(summary: Summary, settings: ScoreSettings) -> None:
    """Print the closing tables of a scored corpus."""
    console = plain_console()
    _show_summary(console, summary, settings.render.reasoning)
    _show_repeats(console, summary, settings.output)
    if settings.engine.engine == "fake":
        console.print(MADE_UP)
    _show_place(console, settings.output)


def show_ensemble(summary: EnsembleSummary, settings: EnsembleSettings) -> None:
    """Print the closing tables of an ensemble: those of the combined corpus, and how far its members agree."""
    console = plain_console()
    _show_summary(console, summary.combined)
    for name, member in summary.members.items():
        if FROM_STORE in member.flags:
            console.print(f"{name}: {_from_store(member)}")
    agreement = summary.agreement
    if Reason.NO_BASELINE in summary.combined.reasons:
        console.print(
            "no_baseline: fewer than two different responses to the prompt, so there is nothing to make z-scores of. "
            "--combine mean or min does without, and no model runs again",
            soft_wrap=True,
        )
    for pair in agreement.pairs:
        if pair.same_best is not None:
            correlation = "" if pair.correlation is None else f"; their z-scores correlate by {pair.correlation:z.2f}"
            console.print(
                f"{pair.first} and {pair.second} have the same best response to {pair.same_best:.1%} of "
                f"{agreement.compared:,} prompts{correlation}",
                soft_wrap=True,
            )
    combination = settings.combination
    console.print(
        f"Suspect: {summary.combined.flags.get(SUSPECT, 0):,} responses, above {combination.suspect_reward:g} in z_mean and "
        f"{combination.suspect_disagreement:g} in z_disagreement",
        soft_wrap=True,
    )
    if agreement.too_few:
        console.print(
            f"{agreement.too_few:,} of {agreement.prompts:,} prompts have fewer than the {agreement.needed} responses "
            "among which one can be suspect",
            soft_wrap=True,
        )
    if any((model.engine or settings.engine).engine == "fake" for model in settings.models):
        console.print(MADE_UP)
    _show_place(console, settings.output)


def _show_repeats(console: Console, summary: Summary, output: str) -> None:
    """Say how many responses are there again, which is rarely meant, and what leaves them out."""
    if not summary.repeats:
        return
    console.print(
        f"Repeats: {summary.repeats:,} of {summary.responses:,} responses have the text of an earlier response to an equal "
        f"prompt, and each counts here. `assay choose {shlex.quote(output.rstrip('/'))} OUTPUT --keep all --distinct 1` "
        "leaves them out",
        soft_wrap=True,
    )


def _from_store(summary: Summary) -> str:
    return f"{summary.flags[FROM_STORE]:,} of {summary.responses:,} responses came from the store"


def _show_place(console: Console, output: str) -> None:
    console.print(f"Scored corpus: {output.rstrip('/')}/parts/*.parquet, and manifest.json beside it", soft_wrap=True)


def _show_summary(console: Console, summary: Summary, reasoning: Reasoning | None = None) -> None:
    counts = Table(box=SIMPLE_HEAD)
    names = ("input rows", "responses", "scored", "rejected", "failed", "truncated", "prompt tokens")
    numbers = (summary.rows, summary.responses, summary.scored, summary.rejected, summary.failed, summary.truncated)
    shown = [f"{number:,}" for number in (*numbers, summary.prompt_tokens)]
    for name, number in zip(names, shown, strict=True):  # on a narrow terminal names wrap, and no number is cut
        counts.add_column(name, justify="right", min_width=len(number))
    counts.add_row(*shown)
    console.print(counts, crop=False)
    for line in _input_lines(summary):
        console.print(line, soft_wrap=True)
    if summary.shapes:
        by_shape = ", ".join(f"{count:,} {name}" for name, count in summary.shapes.items())
        unknown = summary.rows - sum(summary.shapes.values())
        console.print(f"Rows by shape: {by_shape}" + (f"; {unknown:,} have none, or two" if unknown else ""), soft_wrap=True)
    if summary.reasons:
        console.print("Without a reward: " + ", ".join(f"{count:,} {reason}" for reason, count in summary.reasons.items()))
    if reasoned := summary.flags.get(REASONED):
        console.print(
            f"Reasoning: {reasoned:,} responses hold some, or turns before them do (column {REASONED}); "
            f"{_REASONED[reasoning or Reasoning.STRIP]}",
            soft_wrap=True,
        )
    if FROM_STORE in summary.flags:
        console.print(_from_store(summary))
    if pairs := summary.labels.get("pairs"):
        agree, against, equal, left = (summary.labels[name] for name in ("agree", "disagree", "equal", "left_out"))
        console.print(
            f"Labels: of {pairs:,} pairs of chosen and rejected, {agree:,} ({agree / pairs:.1%}) have their rewards in this "
            f"order, {against:,} the other way round, {equal:,} equal ones"
            + (f"; {left:,} prompts have a reward of no more than one of the two" if left else ""),
            soft_wrap=True,
        )
    if summary.completion_tokens:
        console.print(f"The judge generated {summary.completion_tokens:,} tokens")
    if pairs := summary.orders.get("pairs"):
        decided, first = summary.orders["decided"], summary.orders["first"]
        console.print(
            f"Position bias: of {pairs:,} pairs judged in both orders, the order alone decided {decided:,} "
            f"({decided / pairs:.1%}), {first:,} of them for the response shown first",
            soft_wrap=True,
        )
    if summary.quantiles:
        quantiles = Table(box=None, padding=(0, 1, 0, 0))  # the names and seven numbers fit into 80 columns
        quantiles.add_column("quantile", no_wrap=True)
        for quantile in QUANTILES:
            quantiles.add_column({0.0: "min", 0.5: "median", 1.0: "max"}.get(quantile, f"{quantile:.0%}"), justify="right")
        for name, values in summary.quantiles.items():
            quantiles.add_row(name, *(f"{value:z.3f}" for value in values))
        console.print(quantiles)


def _input_lines(summary: Summary) -> Iterator[str]:
    """Lines about an input without rows, and about files that are left out."""
    if not summary.rows:
        yield "The input has no rows: there was nothing to score"
    if summary.left_out:
        yield left_out_message(summary.left_out)


def show_sampled(summary: SampleSummary, settings: SampleSettings) -> None:
    """Print the closing tables of a sampled corpus."""
    console = plain_console()
    _show_summary(console, summary.scored, settings.render.reasoning)
    saved = summary.possible - summary.drawn
    fewer = f", {saved:,} ({saved / summary.possible:.0%}) fewer than {settings.draw.n} each" if saved else ""
    console.print(
        f"{summary.drawn:,} candidates of {summary.tokens:,} tokens for {summary.prompts:,} prompts{fewer}", soft_wrap=True
    )
    if summary.mean_reward is not None and summary.mean_best is not None:
        console.print(f"Mean reward {summary.mean_reward:z.3f}, of the best of each prompt {summary.mean_best:z.3f}")
    _show_end(console, summary, settings)


def show_refined(summary: RefineSummary, settings: RefineSettings) -> None:
    """Print the closing tables of a refined corpus."""
    console = plain_console()
    _show_summary(console, summary.scored, settings.render.reasoning)
    console.print(f"{summary.drafts:,} drafts and {summary.edits:,} edits for {summary.prompts:,} prompts")
    rewards = {
        "drafts": summary.mean_draft,
        "edits": summary.mean_edit,
        "the best draft of each prompt": summary.mean_best_draft,
        "the best text": summary.mean_best,
    }
    means = ", ".join(f"of {what} {mean:z.3f}" for what, mean in rewards.items() if mean is not None)
    console.print(f"Mean reward {means}" if means else "Nothing has a reward", soft_wrap=True)
    _show_end(console, summary, settings)


def _show_end(console: Console, summary: SampleSummary | RefineSummary, settings: SampleSettings | RefineSettings) -> None:
    usage = summary.usage
    for cause, count in itertools.islice(summary.causes.items(), _MOST_CAUSES):
        console.print(f"The endpoint gave no candidate, this time {count:,} times: it {cause}", soft_wrap=True)
    for name, total, cached in (
        ("policy", usage.policy, usage.policy_cached),
        ("judge", usage.judge, usage.judge_cached),
    ):
        if total:
            shares = f"{total - cached:,} computed, {cached:,} ({cached / total:.0%}) cached"
            console.print(f"Prompt tokens of the {name}, this time: {shares}", soft_wrap=True)
    if usage.retries:
        console.print(f"The endpoint was asked again {usage.retries:,} times, this time", soft_wrap=True)
    if settings.engine.engine == "fake":
        console.print(MADE_UP)
    _show_place(console, settings.output)


class Counted(NamedTuple):
    """How the rows of an export are counted: what `rows_each` of them are, what these are made of, and in what groups."""

    noun: str
    of: str = "candidates"
    grouped: str = "groups"
    rows_each: int = 1


def show_exported(output: str, summary: ExportSummary, counted: Counted, *, inside_run: bool = False) -> None:
    """Print the summary of an export. `inside_run`: it is that of --keep."""
    console = plain_console()
    in_rows = f", in {summary.rows:,} rows," if counted.rows_each > 1 else ""
    console.print(
        f"{summary.rows // counted.rows_each:,} {counted.noun}{in_rows} of {summary.candidates:,} scored {counted.of} in "
        f"{summary.groups:,} {counted.grouped}",
        soft_wrap=True,
    )
    if not summary.rows:
        console.print("There are no rows, so `datasets.load_dataset` finds no file in the folder", soft_wrap=True)
    if summary.taken:
        read_from = "Chosen from" if counted.noun == "candidates" else "Taken"
        console.print(f"{read_from}: {summary.taken}", soft_wrap=True)
    if inside_run:
        console.print(
            "Chosen row by row; `assay choose` compares the candidates of equal prompts in all rows", soft_wrap=True
        )
    left_out = {**({"without a reward": summary.unscored} if summary.unscored else {}), **summary.left}
    if any(left_out.values()):
        console.print("Left: " + ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count), soft_wrap=True)
    agree, against = (summary.labels.get(outcome, 0) for outcome in (LabelAgreement.AGREES, LabelAgreement.DISAGREES))
    if agree or against:
        console.print(
            f"Labels: {agree:,} pairs are as the corpus' own chosen and rejected, {against:,} are the other way round "
            "(--labels agree leaves these out)",
            soft_wrap=True,
        )
    for line in _field_lines(summary):
        console.print(line, soft_wrap=True)
    if summary.scale is not None:
        _show_scale(console, **summary.scale)
    if summary.made_up:
        console.print(MADE_UP)
    console.print(f"Written to {output}", soft_wrap=True)


def _show_scale(
    console: Console, *, pairs: int, quantiles: Sequence[float], saturated: float, no_signal: float, gt_reward_scale: float
) -> None:
    """What the margins mean to NeMo-Aligner's RPO; the setting has NeMo-Aligner's own name, to be copied as it is."""
    names = {0.0: "min", 0.5: "median", 1.0: "max"}
    margins = ", ".join(
        f"{names.get(place, f'{place:.0%}')} {margin:.3f}" for place, margin in zip(QUANTILES, quantiles, strict=True)
    )
    console.print(f"Margins of the {pairs:,} pairs: {margins}", soft_wrap=True)
    console.print(
        f"At a scale of 1, {saturated:.1%} of the pairs are surely told apart (probability above {SATURATED}), "
        f"{no_signal:.1%} are nearly ties (below {NO_SIGNAL})",
        soft_wrap=True,
    )
    console.print(f"gt_reward_scale: {gt_reward_scale:.4g} gives the median pair the probability {TARGET}", soft_wrap=True)


def show_kept(summary: KeepSummary, settings: FilterSettings) -> None:
    """Print what a filter kept."""
    console = plain_console()
    share = summary.kept / summary.responses if summary.responses else 0.0
    console.print(f"Kept {summary.kept:,} of {summary.responses:,} responses ({share:.1%})")
    if summary.not_kept:
        console.print("Not kept: " + ", ".join(f"{count:,} {why}" for why, count in summary.not_kept.items()))
    for line in _selection_lines(summary):
        console.print(line, soft_wrap=True)
    if summary.made_up:
        console.print(MADE_UP)
    if settings.output is not None:
        if not summary.kept:
            console.print("Nothing is kept, so `datasets.load_dataset` finds no file in the folder", soft_wrap=True)
        for line in _written_lines(summary, settings):
            console.print(line, soft_wrap=True)
        console.print(f"Kept {settings.rows}: {settings.output}", soft_wrap=True)


def _written_lines(summary: KeepSummary, settings: FilterSettings) -> Iterator[str]:
    """Lines about rows that hold more than the kept responses, and about fields that are left out."""
    lines = summary.kept if settings.fields else summary.kept_rows
    # Whole rows come again for each kept response, or once with `--no-fields`; both matter only if they hold several.
    if settings.rows == "rows" and summary.held > (summary.kept_rows if settings.fields else summary.kept):
        yield (
            f"{lines:,} rows written: {summary.kept_rows:,} input rows, each whole with all its responses; --rows responses "
            "writes the kept responses alone"
        )
    yield from _field_lines(summary)


def _field_lines(summary: ExportSummary | KeepSummary) -> Iterator[str]:
    """Lines about the input's own fields in what was written: which rows are without one, and what readers make of them."""
    if summary.left_fields:
        counts = "; ".join(f"{count:,} without {reason}" for reason, count in summary.left_fields.items())
        yield f"Rows without a field of the input: {counts}"
    if summary.mixed:
        yield (
            "Fields of the input have values of several types, as they were: `datasets.load_dataset` may refuse them, and "
            "`--no-fields` leaves them out"
        )


def _selection_lines(summary: KeepSummary) -> Iterator[str]:
    """Lines about a selection: the value of its cut, and how many of the rows with exactly that value were kept."""
    selection = summary.selection or {}
    if "boundary" in selection:
        by, candidates, boundary = selection["by"], selection["candidates"], selection["boundary"]
        yield f"Chosen by {by} from {candidates:,} candidates; the cut is at {boundary:.6g}"
    if (equal := selection.get("equal", 0)) > (kept := selection.get("equal_kept", 0)):
        yield f"Of the {equal:,} right on it, {kept:,} are kept, chosen by a hash of which they are"
