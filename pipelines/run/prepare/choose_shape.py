"""How the rows of a corpus are read: as the settings say, or else as a sample of them shows."""

from collections.abc import Sequence
from dataclasses import replace

from actors.errors import SettingsError
from pipelines.data.formats import (
    MIXED,
    PROMPT_SHAPES,
    SHAPES,
    OwnColumns,
    RowShape,
    Shape,
    check_mixed,
    detect,
    formats,
    is_written_out,
    prompt_formats,
    take_apart,
)
from pipelines.data.formats.row_shape import plugins_of
from pipelines.run.prepare.preview import Preview
from pipelines.settings.run_settings import RowSettings, Turns


def preview_of(rows: RowSettings, sample: Sequence[object], *, unanswered: bool = False) -> Preview:
    """A sample, read as the settings say or as it shows itself. Raises a `UserError` if no shape fits."""
    own_columns = own_columns_of(rows, unanswered=unanswered)
    shape = shape_of(rows, own_columns, sample, unanswered=unanswered)
    columns, plugins = tuple(rows.columns.items()), plugins_of(shape.name, unanswered)
    row_shape = RowShape(shape.name, rows.turns.value, own_columns, columns, unanswered, plugins=plugins)
    requests = [row_shape.requests(row) for row in sample]
    # Decided once for the corpus, and part of its identity: row by row, a text that quotes a dialogue would be taken apart.
    if is_written_out(requests):
        row_shape, requests = replace(row_shape, written_out=True), list(map(take_apart, requests))
    return Preview(row_shape, sample, requests)


def own_columns_of(rows: RowSettings, *, unanswered: bool = False) -> OwnColumns | None:
    """The user's own columns, if the settings name any.

    Raises `SettingsError` if they name only prompt or response, or columns that say the same twice.
    """
    prompt, responses, conversations = rows.prompt_column, rows.response_column or (), rows.conversation_column or ()
    if unanswered and responses:
        raise SettingsError("--response-column names candidates that are there, so it doesn't go with --policy")
    if prompt is None and not responses and not conversations and rows.system_column is None:
        return None
    if conversations and (prompt is not None or responses):
        raise SettingsError(
            f"--conversation-column {conversations[0]} holds prompt and response, so it doesn't go with --prompt-column and "
            "--response-column"
        )
    if not conversations and (prompt is None or not (responses or unanswered)):
        raise SettingsError("--prompt-column and --response-column go together: a response is judged for its prompt")
    if rows.format is not None:
        raise SettingsError(f"--format {rows.format} says where prompt and response are, so it doesn't go with columns")
    if unanswered:
        if len(conversations) > 1:
            raise SettingsError("--conversation-column names one conversation where a policy is to answer")
        return OwnColumns(conversations[0] if conversations else prompt, None, rows.system_column)
    # One column may hold a list of responses, so that its name alone isn't the same as a tuple of one.
    response = responses if len(responses) > 1 else next(iter(responses), None)
    return OwnColumns(prompt, response, rows.system_column, conversations)


def shape_of(
    rows: RowSettings, own_columns: OwnColumns | None, sample: Sequence[object], *, unanswered: bool = False
) -> Shape:
    """The shape of the rows: the named one, or else detected from a sample.

    Raises a `UserError` if there is none, or the settings name one that isn't for these rows.
    """
    shapes, offered = (PROMPT_SHAPES, prompt_formats()) if unanswered else (SHAPES, formats())
    if rows.format is not None and rows.format not in offered:
        raise SettingsError(f"--format {rows.format} is no shape that Assay knows here; it knows {', '.join(offered)}")
    if rows.format == MIXED and sample:
        check_mixed(sample, shapes)
    if own_columns is not None:
        own_columns.check(sample)
        shape = own_columns.shape()
    elif rows.format is not None:
        shape = offered[rows.format]
    elif sample:
        shape = detect(sample, shapes)
    else:
        shape = shapes["messages"]  # an empty corpus fits every shape
    if rows.turns is Turns.ALL and shape.read_turns is None:
        raise SettingsError(f"--set turns=all is for rows that hold a conversation, and these are {shape.name}")
    return shape
