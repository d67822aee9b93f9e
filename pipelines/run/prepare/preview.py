"""The sampled rows, read exactly as the run will read them, and what is wrong with them: told before the engines start."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from actors.contracts.family import CRITERIA, OF_ROW, PRINCIPLE, REFERENCE
from actors.contracts.judge import Judge
from actors.errors import SettingsError, SourceError
from actors.records import ScoreRequest
from actors.text.reasoning import count_reasoning
from actors.text.tool_calls import size_of
from pipelines.data.formats import (
    RowRequests,
    RowShape,
    check_column,
    count_calls_without_tools,
    explain_detection,
    find_unread,
    note_repeated_prompts,
    with_fields,
)
from pipelines.folders.scored_corpus.unscored import ADVICE, SAY_REASONING
from pipelines.run.prepare.score_requests import Preparation, renderer

# The share of responses of a sample that must be judgeable for a run to start: with fewer, the settings don't fit the rows.
_LEAST_JUDGED = 0.1
_MOST_CHARACTERS, _MOST_PROMPTS = 4 * 2**20, 4000  # of the prompts that are rendered: about a second's work
_MAX_REASONS = 5  # in a message; the most frequent ones


class Preview(NamedTuple):
    """Sampled rows, how they are read, and their requests: one entry for each row."""

    row_shape: RowShape
    rows: Sequence[object]
    row_requests: Sequence[RowRequests]

    @property
    def requests(self) -> list[ScoreRequest]:
        return [request for row in self.row_requests for request in row.requests]

    @property
    def looked(self) -> str:
        return f"{len(self.rows):,} rows looked at"

    def explain(self) -> str:
        """The evidence for the rows' shape, as sentences for the user."""
        is_written = self.row_shape.written_out
        written = "Conversations in them that are written out as one text are taken apart" if is_written else ""
        unread = self._unread()
        beside = f"Not read, though it may belong to a conversation: {', '.join(map(ascii, unread))}" if unread else ""
        calling = count_calls_without_tools(self.row_requests)
        tools = f"{calling:,} rows call tools and name none: they are judged without `tools`" if calling else ""
        evidence = explain_detection(self.row_shape.shape, self.rows)
        return ". ".join(filter(None, (evidence, written, beside, tools, note_repeated_prompts(self.row_requests))))

    def _unread(self) -> list[str]:
        """Fields that hold turns, passages or responses by their names, and nothing that is read elsewhere."""
        rows = zip(self.rows, self.row_requests, strict=True)
        shape = self.row_shape.shape
        return sorted({name for row, read in rows if isinstance(row, dict) for name in find_unread(shape, row, read)})


def fill_fields(preview: Preview, model: str, names: Sequence[str], needed: Sequence[str] = ()) -> Preview:
    """The preview with the fields that a model reads, each from the column that is named for it, or else its default.

    Raises `SettingsError` for a column that the model wouldn't read, or a needed one that isn't there.
    """
    columns = dict(preview.row_shape.columns)
    if unread := sorted(columns.keys() - {*names, PRINCIPLE}):
        what_it_reads = f"it reads {', '.join(names)}" if names else "it reads none"
        raise SettingsError(
            f"--field {unread[0]}={columns[unread[0]]}: {model} reads no field of that name, and would ignore it; "
            f"{what_it_reads}"
        )
    own_columns = preview.row_shape.own_columns
    judged = () if own_columns is None else (own_columns.prompt, *own_columns.responses, *own_columns.conversations)
    for name in names:
        is_named = name in columns
        column = columns[name] if is_named else _default_column(name)
        # A response column that happens to be called `reference` would be shown to the model as the right answer.
        if not is_named and column in judged:
            if name in needed:
                raise SettingsError(f"{name} is what is judged: name another column for it with --field {name}=COLUMN")
            continue
        columns[name] = column
        if (is_named or name in needed) and preview.rows:
            check_column(preview.rows, columns[name])
    columns_read = tuple(columns.items())
    filled = [
        with_fields(requests, row, columns_read) for requests, row in zip(preview.row_requests, preview.rows, strict=True)
    ]
    return preview._replace(row_shape=replace(preview.row_shape, columns=columns_read), row_requests=filled)


def _default_column(name: str) -> str:
    """The column of a field that nobody has named: `reference`, and `a.b` of `row.a.b`."""
    if name in (REFERENCE, CRITERIA):
        return name
    if name.startswith(OF_ROW):
        return name.removeprefix(OF_ROW)
    raise SettingsError(
        f"the rubric's prompt has {{{{ {name} }}}}, which is no variable of Assay's: to fill it from a column of the rows "
        f"give --field {name}=COLUMN, or write {{{{ row.COLUMN }}}}"
    )


def check_preview(preview: Preview, preparation: Preparation) -> str:
    """A sentence on the sampled responses that can't be judged; empty if all can.

    Raises a `UserError` if the model would take no notice of a setting or column, if the settings don't say how to treat
    what the rows hold, or if under a tenth of the responses can be judged.
    """
    _check_principles(preview, preparation)
    _check_references(preview)
    _check_reasoning(preview, preparation)
    if not preview.row_shape.unanswered:
        _check_comparable(preview, preparation)
    return _check_judgeable(preview, preparation)


def _check_references(preview: Preview) -> None:
    # A row's reference answers its last turn: every earlier one would be wrong by it, without a word.
    if preview.row_shape.turns == "all" and any(REFERENCE in request.fields for request in preview.requests):
        raise SettingsError(
            "--set corpus.turns=all judges every turn of a conversation, and the reference of its row is that of the last: "
            "leave out corpus.turns, or give a model or rubric that reads no reference"
        )


def _check_comparable(preview: Preview, preparation: Preparation) -> None:
    family = preparation.model.family
    if not isinstance(family, Judge) or min(family.counts) == 1 or not preview.rows:
        return
    # One is enough: a row with a single response is rejected by itself, and a whole corpus of them is a mistake.
    if not any(len(request.responses) > 1 for request in preview.requests):
        raise SettingsError(
            f"{preparation.model.model} compares the responses of a row, and none of the {preview.looked} has two; "
            "--response-column takes a list of them"
        )


def _check_reasoning(preview: Preview, preparation: Preparation) -> None:
    if preparation.model.reasoning_by(preparation.render) is not None:
        return
    if count := count_reasoning(preview.requests):
        responses = sum(len(request.responses) for request in preview.requests)
        raise SettingsError(
            f"{count} of the {responses} responses in the {preview.looked} hold reasoning (<think>...</think>, "
            f"reasoning_content or the like), in themselves or in turns before them. {SAY_REASONING}"
        )


def _check_principles(preview: Preview, preparation: Preparation) -> None:
    column, model = dict(preview.row_shape.columns).get(PRINCIPLE), preparation.model
    if column is not None and not model.family.takes_principles:
        raise SettingsError(
            f"--field principle={column}: {model.model} wouldn't read it, because "
            + ("read.principles are given too" if model.read.principles else "it judges by no principle")
        )
    if not preview.rows:
        return
    if column is not None:
        check_column(preview.rows, column)
    if model.family.needs_principles and not any(request.principles for request in preview.requests):
        raise SettingsError(
            f"{model.model} judges responses by a principle, and none of the {preview.looked} has one; give "
            "--set principles.NAME=TEXT, such as principles.accuracy='accuracy of information', or --field principle=COLUMN"
        )


def _check_judgeable(preview: Preview, preparation: Preparation) -> str:
    # Prompts without responses aren't rendered here, so that all of them can be looked at.
    rows = preview.row_requests if preview.row_shape.unanswered else _affordable(preview.row_requests, preparation)
    rejections = [(rejected.reason, rejected.detail) for row in rows for rejected in row.rejected]
    if not preview.row_shape.unanswered:
        requests = [request for row in rows for request in row.requests]
        for request in renderer(preparation.model, preparation.render).render(requests):
            rejections += [(each.reason, each.detail) for each in request.responses if each.reason is not None]
    reasons = Counter(reason for reason, _ in rejections)
    details = dict(reversed(rejections))  # of each reason the first
    responses = sum(len(row.names) for row in rows)
    if not reasons:
        return ""
    judgeable = responses - reasons.total()
    named = reasons.most_common(_MAX_REASONS)
    counts = ", ".join(f"{count} {reason}" for reason, count in named)
    if judgeable >= _LEAST_JUDGED * responses:
        noun = "response" if reasons.total() == 1 else "responses"
        return f"Of the {len(rows):,} rows looked at, {reasons.total():,} {noun} can't be judged: {counts}"
    shown = "".join(f"\n  {reason}: {details[reason]}" for reason, _ in named if details.get(reason))
    advice = "".join(f"\n  {ADVICE[reason]}" for reason, _ in named if reason in ADVICE)
    raise SourceError(
        f"only {judgeable:,} of the {responses:,} responses in the {len(rows):,} rows looked at could be judged: {counts}."
        f"{shown and f' The first of each:{shown}'}{advice and f'{chr(10)}What helps:{advice}'}"
    )


def _affordable(rows: Sequence[RowRequests], preparation: Preparation) -> Sequence[RowRequests]:
    """Every n-th row, so that rendering them takes about a second: a judge may compare each response with each other."""
    family = preparation.model.family
    prompts = characters = 0
    for row in rows:
        for request in row.requests:
            count = family.question_count(request)
            prompts += count
            # Each question repeats the context. Responses count once, though a judge that compares shows them more often.
            characters += count * sum(map(size_of, request.context))
            characters += sum(map(size_of, request.responses))
    # Evenly spaced over the sample, whose rows are from several places of the corpus.
    return rows[:: 1 + int(max(prompts / _MOST_PROMPTS, characters / _MOST_CHARACTERS))]
