"""What commands say at their end: counts, reasons, and quantiles to choose a threshold by, as lines of text and tables."""

import itertools
import shlex
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from actors.records import Reason, Reasoning
from actors.text.counted import counts_text
from pipelines.cli.plain_console import Report
from pipelines.data.corpus.find_corpus import left_out_message
from pipelines.folders.run_folder.columns import FROM_STORE, KEPT, REASONED, SUSPECT
from pipelines.folders.scored_corpus.candidates import LabelAgreement
from pipelines.folders.scored_corpus.cascade_lines import cascade_lines
from pipelines.folders.scored_corpus.summary import QUANTILES, Summary, quantile_title
from pipelines.folders.scored_corpus.unscored import unscored_lines
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.filtering.filter_corpus import FilterSummary
from pipelines.run.sampling.refine_prompts import RefineSummary
from pipelines.run.sampling.sample_prompts import SampleSummary
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import (
    CascadeSettings,
    EnsembleSettings,
    JudgingSettings,
    MembersSettings,
    RunSettings,
    SampleSettings,
    ScoreSettings,
)
from pipelines.workflows.cascades.score_cascade import CascadeSummary
from pipelines.workflows.ensembles.score_ensemble import EnsembleSummary

MADE_UP = "These numbers are made up: --engine fake is for trying a pipeline out"
_MOST_CAUSES = 5
_REASONED = {Reasoning.STRIP: "the final answers were judged", Reasoning.KEEP: "it was judged with them"}
_COUNTS = {
    "rows": "input rows",
    "responses": "responses",
    "scored": "scored",
    "rejected": "rejected",
    "failed": "failed",
    "truncated": "truncated",
    "prompt_tokens": "prompt tokens",
}


def scored_report(summary: Summary, settings: ScoreSettings) -> Report:
    """A scored corpus."""
    yield from _summary_report(summary, settings.render.reasoning)
    if summary.repeats:
        choose = f"assay choose {shlex.quote(settings.output.rstrip('/'))} OUTPUT --strategy all --set distinct=1"
        yield (
            f"Repeats: {summary.repeats:,} of {summary.responses:,} responses have the text of an earlier response to an "
            f"equal prompt, and each counts here. `{choose}` leaves them out"
        )
    if summary.work.get("cached_tokens"):
        computed, cached = summary.work["computed_tokens"], summary.work["cached_tokens"]
        yield f"Prompt tokens: {_token_shares(computed + cached, cached)}"
    if summary.endpoint:
        spent = summary.endpoint
        # Without prices the cost is 0, which would read as free.
        prices = settings.model.endpoint.input_price is not None
        yield (
            f"Endpoint: {spent['requests']:,} requests, {spent['prompt_tokens']:,} prompt tokens and "
            f"{spent['written_tokens']:,} written" + (f", for at most {spent['cost']:,.4g}" if prices else "")
        )
        # Rewards before and after such a change may not be comparable.
        if len(spent["fingerprints"]) > 1:
            yield f"Its engine has changed meanwhile: it named {len(spent['fingerprints'])} system_fingerprints"
    yield from _place_report(settings)


def ensemble_report(summary: EnsembleSummary, settings: EnsembleSettings) -> Report:
    """An ensemble: the combined corpus, and how far its members agree."""
    yield from _summary_report(summary.combined)
    agreement, combination = summary.agreement, settings.combination
    if Reason.NO_BASELINE in summary.combined.reasons:
        yield (
            "no_baseline: fewer than two different responses to the prompt, so there is nothing to make z-scores of. "
            "--combine mean or min does without, and no model runs again"
        )
    for pair in agreement.pairs:
        if pair.same_best is not None:
            # `z` in a format: a rounded zero has no sign.
            correlation = "" if pair.correlation is None else f"; their z-scores correlate by {pair.correlation:z.2f}"
            yield (
                f"{pair.first} and {pair.second} have the same best response to {pair.same_best:.1%} of "
                f"{agreement.compared:,} prompts{correlation}"
            )
    yield (
        f"Suspect: {summary.combined.flags.get(SUSPECT, 0):,} responses, above {combination.suspect_reward:g} in z_mean and "
        f"{combination.suspect_disagreement:g} in z_disagreement"
    )
    yield from _place_report(settings)


def cascade_report(summary: CascadeSummary, settings: CascadeSettings) -> Report:
    """A cascade: the decided corpus, what each model did for it, and the errors that a second slice shows."""
    yield from _summary_report(summary.combined)
    yield from (f"{title}: {text}" for title, text in cascade_lines(summary.cascade))
    kept, output = summary.combined.flags.get(KEPT, 0), shlex.quote(settings.output)
    yield f"Kept: {kept:,} responses; `assay filter {output} OUTPUT --where {KEPT}` writes their rows"
    yield from _place_report(settings)


def is_made_up(run: RunSettings) -> bool:
    """Whether rewards of a run, or of a member of it, are made up by the fake engine."""
    engines = [model.engine or run.engine for model in run.models] if isinstance(run, MembersSettings) else [run.engine]
    return any(engine.engine == "fake" for engine in engines)


def _place_report(run: JudgingSettings | MembersSettings) -> Report:
    if is_made_up(run):
        yield MADE_UP
    yield f"Scored corpus: {run.output.rstrip('/')}/parts/*.parquet, and manifest.json beside it"


def _summary_report(summary: Summary, reasoning: Reasoning | None = None) -> Report:
    counts = Table(box=SIMPLE_HEAD)
    numbers = [f"{getattr(summary, name):,}" for name in _COUNTS]
    for title, number in zip(_COUNTS.values(), numbers, strict=True):  # on a narrow terminal titles wrap, not numbers
        counts.add_column(title, justify="right", min_width=len(number))
    counts.add_row(*numbers)
    yield counts
    yield from _row_lines(summary, reasoning or Reasoning.STRIP)
    yield from _judge_lines(summary)
    if summary.quantiles:
        quantiles = Table(box=None, padding=(0, 1, 0, 0))  # the names and seven numbers fit into 80 columns
        quantiles.add_column("quantile", no_wrap=True)
        for share in QUANTILES:
            quantiles.add_column(quantile_title(share), justify="right")
        for name, values in summary.quantiles.items():
            quantiles.add_row(name, *(f"{value:z.3f}" for value in values))
        yield quantiles


def _row_lines(summary: Summary, reasoning: Reasoning) -> Report:
    if not summary.rows:
        yield "The input has no rows: there was nothing to score"
    if summary.left_out:
        yield left_out_message(summary.left_out)
    if summary.shapes:
        unknown = summary.rows - sum(summary.shapes.values())
        yield f"Rows by shape: {counts_text(summary.shapes)}" + (f"; {unknown:,} have none, or two" if unknown else "")
    if summary.reasons:
        yield f"Without a reward: {counts_text(summary.reasons)}"
    if summary.scored:  # else the error that the command ends with has them
        yield from unscored_lines(summary.reasons, summary.examples)
    if reasoned := summary.flags.get(REASONED):
        yield (
            f"Reasoning: {reasoned:,} responses hold some, or turns before them do (column {REASONED}); "
            f"{_REASONED[reasoning]}"
        )
    if FROM_STORE in summary.flags:
        yield f"{summary.flags[FROM_STORE]:,} of {summary.responses:,} responses came from the store"


def _judge_lines(summary: Summary) -> Report:
    if pairs := summary.labels.get("pairs"):
        agree, against, equal, unpaired = (summary.labels[name] for name in ("agree", "disagree", "equal", "left_out"))
        yield (
            f"Labels: of {pairs:,} pairs of chosen and rejected, {agree:,} ({agree / pairs:.1%}) have their rewards in this "
            f"order, {against:,} the other way round, {equal:,} equal ones"
            + (f"; {unpaired:,} prompts have a reward of no more than one of the two" if unpaired else "")
        )
    if summary.completion_tokens:
        yield f"The judge generated {summary.completion_tokens:,} tokens"
    if pairs := summary.orders.get("pairs"):
        decided, first = summary.orders["decided"], summary.orders["first"]
        yield (
            f"Position bias: of {pairs:,} pairs judged in both orders, the order alone decided {decided:,} "
            f"({decided / pairs:.1%}), {first:,} of them for the response shown first"
        )


def sampled_report(summary: SampleSummary, settings: SampleSettings) -> Report:
    """A sampled corpus."""
    yield from _summary_report(summary.scored, settings.render.reasoning)
    # Draws that a stop rule spared, of -n for each prompt.
    saved = summary.possible - summary.drawn
    fewer = f", {saved:,} ({saved / summary.possible:.0%}) fewer than {settings.draw.n} each" if saved else ""
    yield f"{summary.drawn:,} candidates of {summary.tokens:,} tokens for {summary.prompts:,} prompts{fewer}"
    if summary.mean_reward is not None and summary.mean_best is not None:
        yield f"Mean reward {summary.mean_reward:z.3f}, of the best of each prompt {summary.mean_best:z.3f}"
    yield from _writers_report(summary, settings)


def refined_report(summary: RefineSummary, settings: RefineSettings) -> Report:
    """A refined corpus."""
    yield from _summary_report(summary.scored, settings.render.reasoning)
    yield f"{summary.drafts:,} drafts and {summary.edits:,} edits for {summary.prompts:,} prompts"
    rewards = {
        "drafts": summary.mean_draft,
        "edits": summary.mean_edit,
        "the best draft of each prompt": summary.mean_best_draft,
        "the best text": summary.mean_best,
    }
    means = ", ".join(f"of {what} {mean:z.3f}" for what, mean in rewards.items() if mean is not None)
    yield f"Mean reward {means}" if means else "Nothing has a reward"
    yield from _writers_report(summary, settings)


def _token_shares(total: int, cached: int) -> str:
    return f"{total - cached:,} computed, {cached:,} ({cached / total:.0%}) cached"


def _writers_report(summary: SampleSummary | RefineSummary, settings: SampleSettings | RefineSettings) -> Report:
    usage = summary.usage
    for cause, count in itertools.islice(summary.causes.items(), _MOST_CAUSES):
        yield f"The endpoint gave no candidate, this time {count:,} times: it {cause}"
    prompt_tokens = {"policy": (usage.policy, usage.policy_cached), "judge": (usage.judge, usage.judge_cached)}
    for model, (total, cached) in prompt_tokens.items():
        if total:
            yield f"Prompt tokens of the {model}, this time: {_token_shares(total, cached)}"
    if usage.retries:
        yield f"The endpoint was asked again {usage.retries:,} times, this time"
    yield from _place_report(settings)


def export_report(output: str, summary: ExportSummary) -> Report:
    """The rows that `choose`, `pairs` or `export` made."""
    yield f"{summary.rows:,} rows of {summary.candidates:,} scored responses in {summary.groups:,} groups"
    if not summary.rows:
        yield "There are no rows, so `datasets.load_dataset` finds no file in the folder"
    if summary.taken:
        yield f"Taken: {summary.taken}"
    left_out = {"without a reward": summary.unscored, **summary.left}
    if any(left_out.values()):
        yield "Left: " + counts_text({why: count for why, count in left_out.items() if count})
    agree, against = (summary.labels.get(outcome, 0) for outcome in (LabelAgreement.AGREES, LabelAgreement.DISAGREES))
    if agree or against:
        yield (
            f"Labels: {agree:,} pairs are as the corpus' own chosen and rejected, {against:,} are the other way round "
            "(--set labels=agree leaves these out)"
        )
    yield from _field_report(summary)
    if summary.made_up:
        yield MADE_UP
    yield f"Written to {output}"


def kept_report(summary: FilterSummary, settings: FilterSettings) -> Report:
    """What a filter kept."""
    share = summary.kept / summary.responses if summary.responses else 0.0
    yield f"Kept {summary.kept:,} of {summary.responses:,} responses ({share:.1%})"
    if summary.not_kept:
        yield f"Not kept: {counts_text(summary.not_kept)}"
    selection = summary.selection or {}
    if "boundary" in selection:
        by, candidates, boundary = selection["by"], selection["candidates"], selection["boundary"]
        yield f"Chosen by {by} from {candidates:,} candidates; the cut is at {boundary:.6g}"
    if (equal := selection.get("equal", 0)) > (kept := selection.get("equal_kept", 0)):
        yield f"Of the {equal:,} right on it, {kept:,} are kept, chosen by a hash of which they are"
    if labels := selection.get("labels"):
        yield from _label_report(labels)
    if summary.made_up:
        yield MADE_UP
    if settings.output is None:
        return
    if not summary.kept:
        yield "Nothing is kept, so `datasets.load_dataset` finds no file in the folder"
    lines = summary.kept if settings.fields else summary.kept_rows
    # Whole rows come again for each kept response, or once with `fields: false`; both matter only if they hold several.
    if settings.rows == "rows" and summary.several and summary.kept and (settings.fields or summary.not_kept):
        yield (
            f"{lines:,} rows written: {summary.kept_rows:,} input rows, each whole with all its responses; --rows responses "
            "writes the kept responses alone"
        )
    yield from _field_report(summary)
    yield f"Kept {settings.rows}: {settings.output}"


def _label_report(labels: Mapping[str, Any]) -> Report:
    aims = " and ".join(f"a {name} of at least {labels[name]:g}" for name in ("precision", "recall") if labels[name])
    yield f"With confidence {labels['confidence']:g}, what is kept has {aims}, if {labels['assumes']}"
    yield (
        f"Of {labels['labels']:,} labels {labels['kept']:,} are of kept responses, {labels['kept_true']:,} of these true; "
        f"{labels['true']:,} are true in all"
        + (f". {labels['unmatched']:,} more are of responses that aren't chosen among" if labels["unmatched"] else "")
    )


def _field_report(summary: ExportSummary | FilterSummary) -> Report:
    if summary.left_fields:
        counts = "; ".join(f"{count:,} without {reason}" for reason, count in summary.left_fields.items())
        yield f"Rows without a field of the input: {counts}"
    if summary.mixed:
        yield (
            "Fields of the input have values of several types, as they were: `datasets.load_dataset` may refuse them, and "
            "`--set fields=false` leaves them out"
        )
