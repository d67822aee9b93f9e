"""All shapes by name, which one a file has, and how a row of it is read.

A shape is found by standing in `SHAPES` or `PROMPT_SHAPES` of a module in `shapes/`, or of a plug-in's module that an entry
point in `assay.shapes` names.
"""

import difflib
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from actors.errors import Rejected, SettingsError, SourceError
from actors.extensions import Extensions
from actors.records import Reason
from pipelines.data.formats.calls import tools_of
from pipelines.data.formats.content import content_key, is_conversation
from pipelines.data.formats.media import find_unshown
from pipelines.data.formats.rows import CANDIDATE, Row, RowRequests, Shape, Unjudgeable
from pipelines.data.formats.stored_turns import decode_conversations
from pipelines.data.formats.values import describe, is_blank, is_nan, keys_seen

# Shapes of rows whose responses are judged, by name; and of rows whose prompt a policy answers.
SHAPES = Extensions("assay.shapes", "pipelines.data.formats.shapes", "SHAPES", Shape)
PROMPT_SHAPES = Extensions("assay.shapes", "pipelines.data.formats.shapes", "PROMPT_SHAPES", Shape)

Turns = Literal["final", "all", "final-answer"]
Result = TypeVar("Result")

# Version of the row reader, part of a run's identity: increase it whenever a row yields another request, or earlier runs
# would be resumed with other numbers. In a mixed corpus a row also does where another shape recognises it; a new shape alone
# is noticed by its name (`identity`).
ROW_READER = 12
PROMPT_READER = 10  # the same of the reader of prompts

# Maximum share of recognised rows that may have another shape than the file's. Those are rejected row by row.
STRAY = 0.1

_WARNED = set[str]()  # shapes of plug-ins that raised: they may on every row
_MOST_HELD = 4  # fields in a message
_TRIED_KEYS = 20  # of the first row, for a misspelt one
_LEAST_ALIKE = 0.8  # of a key with the one that was meant, by difflib: `message` and `messages` have 0.93


def requests(shape: Shape, row: object, turns: Turns = "final") -> RowRequests:
    """The requests of a row. Never raises for the content of a row: a bad row yields a rejected response.

    With turns="all" each assistant turn of a conversation is judged, not the last one only; a shape that doesn't
    hold conversations raises `SettingsError`, so check `shape.read_turns` before the run. With "final-answer" the last turn
    is judged if it calls no tool.
    """
    read = shape.read_turns if turns == "all" else shape.read
    if read is None:
        conversational = ", ".join(name for name, candidate in SHAPES.items() if candidate.read_turns)
        raise SettingsError(f"turns='all' needs rows that hold a conversation ({conversational}), these are {shape.name!r}")
    if isinstance(row, Rejected):
        return RowRequests.broken(row.reason, row.detail)
    if not isinstance(row, dict):
        return RowRequests.broken(Reason.NOT_AN_OBJECT, describe(row))
    try:
        row_requests = _call(shape, read, decode_conversations(_without_nan(row)))  # pandas writes NaN for null
        unshown = find_unshown(row)
    except Rejected as error:
        return RowRequests.broken(error.reason, error.detail)
    if unshown is not None:
        return row_requests.refused(unshown.reason, unshown.detail)
    try:
        row_requests = row_requests if "tools" in shape.reads else _with_tools(row_requests, tools_of(row))
    except Rejected as error:
        return row_requests.refused(error.reason, error.detail)
    return _answers_alone(row_requests) if turns == "final-answer" else row_requests


def _call(shape: Shape, function: Callable[[Row], Result], row: Row) -> Result:
    # The only place where the code of a plug-in's shape is called: an error of it rejects the row. One of ours is our fault.
    try:
        return function(row)
    except Rejected:
        raise
    except Exception as error:
        plugin = SHAPES.plugin_of(shape.name) or PROMPT_SHAPES.plugin_of(shape.name)
        if plugin is None:
            raise
        text = f"the shape {shape.name} of {plugin} raised {type(error).__name__}: {error}"
        raise Rejected(Reason.SHAPE_FAILED, text) from error


def fits(shape: Shape, row: Row) -> bool:
    """Whether a row was meant to have a shape. A plug-in that raises fits no such row: it is tried on everybody's rows."""
    try:
        return _call(shape, shape.looks_like, row)
    except Rejected as rejected:
        if shape.name not in _WARNED:
            logging.getLogger(__name__).warning("%s; it fits no such row", rejected.detail)
        _WARNED.add(shape.name)
        return False


def _with_tools(row: RowRequests, tools: tuple[str, ...]) -> RowRequests:
    """The requests with the tools that the row has beside its turns. Raises `Rejected` for a prompt that needs tools."""
    if row.names == (CANDIDATE,) and (tools or any(turn.calls for request in row.requests for turn in request.context)):
        raise Rejected(Reason.TOOL_CALL, "a prompt with tools, whose calls nobody would answer")
    if not tools:  # nearly every row: to copy its requests would take a tenth of an export's time
        return row
    return replace(row, requests=tuple(replace(request, tools=tools) for request in row.requests))


def _answers_alone(row: RowRequests) -> RowRequests:
    calling = [response.name for request in row.requests for response in request.responses if response.calls]
    answers = (
        replace(request, responses=tuple(response for response in request.responses if not response.calls))
        for request in row.requests
    )
    refused = (Unjudgeable(name, Reason.NO_FINAL_ASSISTANT, "the last turn calls a tool") for name in calling)
    requests = tuple(request for request in answers if request.responses)
    return replace(row, requests=requests, rejected=(*row.rejected, *refused))


def _without_nan(row: Row) -> Row:
    if not any(map(is_nan, row.values())):
        return row
    return {name: None if is_nan(value) else value for name, value in row.items()}


# Names of fields that hold a response beside another one: chosen, rejected_response, responses, output_2, completion_b ...
_RESPONSE_NAME = re.compile(
    r"(?:(?:.+_)?(?:chosen|reject(?:ed)?|(?:dis|non_)?preferred)"
    r"(?:_(?:response|answer|output|completion|message|conversation|text)s?)?"
    r"|(?:response|completion|generation|candidate|output)s?)(?:_?(?:\d+|[a-e]))?"
    r"|(?:messages|conversations?)_?(?:\d+|[a-e])",
    re.IGNORECASE,
)
# Names of fields that hold what a prompt is about: earlier turns, a text, the options of a question (MMLU, GPQA), or a
# picture's address.
_CONTEXTS = frozenset(
    ("history", "context", "contexts", "passage", "input", "documents", "choices", "options", "image", "video", "audio")
)


class Recognised(NamedTuple):
    """The shapes that a row was meant to have, and the row as they read it.

    `unread` are fields with a response or turns that the row's only shape, `nearest`, would pass over: then the row has no
    shape.
    """

    row: Row
    shapes: Sequence[Shape]
    unread: Sequence[str] = ()
    nearest: str = ""


def recognise(row: object, available: Mapping[str, Shape]) -> Recognised:
    """The shapes of a row without its fields that are null; of the whole row, if it has none then.

    In Parquet every row has the columns of all others, and a null there is a field that the row doesn't have.
    """
    if not isinstance(row, dict):
        return Recognised({}, ())
    plain = decode_conversations(_without_nan(row))
    for fields in ({name: value for name, value in plain.items() if value is not None}, plain):
        if meant := [shape for shape in available.values() if fits(shape, fields)]:
            return _choose_among(meant, fields)
    return Recognised(row, ())


def _choose_among(meant: Sequence[Shape], row: Row) -> Recognised:
    """Of the shapes that a row seems to have, those that read all of its responses.

    Of a row with a pair, a conversation beside it repeats one side (ultrafeedback_binarized).
    """
    unread = {shape.name: _unread(shape, row) for shape in meant}
    if not any(unread.values()):  # nearly every row; the others' requests are needed to tell repeated texts
        return Recognised(row, meant)
    read = {shape.name: requests(shape, row) for shape in meant}
    fitting = [shape for shape in meant if len(read[shape.name].names) > 1] or meant
    lost = {
        name
        for shape in fitting
        for name in unread[shape.name]
        if _must_be_read(name, row[name], read[shape.name]) and not _repeats(row[name], read[shape.name])
    }
    if not lost or len(fitting) > 1:
        return Recognised(row, fitting)
    return Recognised(row, (), sorted(lost), fitting[0].name)


def _must_be_read(name: str, value: object, read: RowRequests) -> bool:
    """Whether what a field holds would change what is judged, or is a response to be judged itself."""
    if not _RESPONSE_NAME.fullmatch(name):
        # A text may be anything, so that it is only named to the user; turns before the prompt are its context.
        return is_conversation(value) or (isinstance(value, list) and any(isinstance(pair, list) for pair in value))
    if read.names == (CANDIDATE,):
        return False  # a policy answers anew
    # Beside a pair, a list holds the candidates that the pair was made of (Magpie DPO); beside one response it holds others.
    return len(read.names) == 1 or not isinstance(value, list) or is_conversation(value)


def _repeats(value: object, read: RowRequests) -> bool:
    # Whether a field holds a text that the conversation has, too, as Magpie's rows have the last response once more.
    turns = [turn.content for request in read.requests for turn in request.context]
    responses = [response.content for request in read.requests for response in request.responses]
    last = value[-1] if isinstance(value, list) and is_conversation(value) else value
    content = last.get(content_key(last)) if isinstance(last, dict) else last
    return isinstance(content, str) and content.strip() in map(str.strip, (*turns, *responses))


def _unread(shape: Shape, row: Row) -> list[str]:
    # The fields that hold turns, passages or responses by their names, and that a shape doesn't read.
    unread = (name for name, value in row.items() if name not in shape.reads and isinstance(value, str | list | dict))
    named = (name for name in unread if _RESPONSE_NAME.fullmatch(name) or name.lower() in _CONTEXTS)
    return [name for name in named if not is_blank(row[name])]


def find_unread(shape: Shape, row: Row, read: RowRequests) -> list[str]:
    """The fields that may belong to a conversation by their names, and hold what a row's requests don't.

    Beside a prompt for a policy, responses don't count: the policy answers anew.
    """
    is_prompt = read.names == (CANDIDATE,)
    return [
        name
        for name in _unread(shape, row)
        if not (is_prompt and _RESPONSE_NAME.fullmatch(name)) and not _repeats(row[name], read)
    ]


def check_known(rows: Sequence[object], recognised: Sequence[Recognised], available: Mapping[str, Shape]) -> None:
    """Raise `SourceError` unless at least half of the rows has a shape.

    The message says what was seen, and what each shape needs.
    """
    fitting = sum(bool(fit.shapes) for fit in recognised)
    if not fitting or 2 * fitting < len(rows):
        raise SourceError(_no_shape_message(rows, recognised, available))


def detect(rows: Sequence[object], available: Mapping[str, Shape] = SHAPES) -> Shape:
    """The one shape of a sample of rows, of those of scored rows or of `available`, or `SourceError`.

    Rows with any shape must be at least half of the sample: a few broken rows don't matter, but a file of another kind isn't
    read for the sake of a few fitting rows. Of those rows the shape must fit at least nine in ten, and no other shape more
    than one in ten: otherwise the file is a mixture, or holds its responses twice, and the user must choose.
    """
    all_recognised = [recognise(row, available) for row in rows]
    check_known(rows, all_recognised, available)
    fits = [fit.shapes for fit in all_recognised]  # of a broken row none; of one that two shapes read, both
    recognised = sum(map(bool, fits))
    votes = Counter(shape.name for row_shapes in fits for shape in row_shapes).most_common()
    rivals = [name for name, count in votes[1:] if count > STRAY * recognised]
    if rivals or votes[0][1] < (1 - STRAY) * recognised:
        counts = ", ".join(f"{name} ({count} of {len(rows)} rows)" for name, count in votes)
        # `mixed` rejects rows with several shapes, so it is no advice where they are many.
        ambiguous = sum(len(row_shapes) > 1 for row_shapes in fits) > STRAY * recognised
        or_mixed = "" if ambiguous else ", or read each row in its own shape with --format mixed"
        raise SourceError(f"these rows have more than one shape: {counts}. Choose one with --format NAME{or_mixed}")
    return available[votes[0][0]]


def _unreadable(rows: Sequence[object]) -> str:
    # A sentence on the rows of a sample that couldn't be parsed, which stand in it as the error; empty if all could.
    errors = [row for row in rows if isinstance(row, Rejected)]
    if not errors:
        return ""
    return f"{len(errors)} of the {len(rows)} rows looked at can't be read as JSON objects, the first one: {errors[0]}. "


def _no_shape_message(rows: Sequence[object], recognised: Sequence[Recognised], available: Mapping[str, Shape]) -> str:
    unreadable, fitting = _unreadable(rows), sum(bool(fit.shapes) for fit in recognised)
    if not any(isinstance(row, dict) for row in rows) and unreadable:
        return f"{unreadable}Is each line of the file one JSON object, and the name's ending that of its format?"
    unread = Counter((fit.nearest, name) for fit in recognised for name in fit.unread).most_common()
    if unread:
        (nearest, name), count = unread[0]
        return (
            f"{count} of the {len(rows)} rows looked at hold another response, or turns, under {name!r}, which their shape "
            f"{nearest} doesn't read. Name the fields of all responses with --response-column, and that of what they answer "
            f"with --prompt-column; or, to judge what the shape reads alone, choose it with --format {nearest}"
        )
    needs = "".join(f"\n  {shape.name}: {shape.needs}" for shape in available.values())
    columns = "--prompt-column and --response-column, a whole conversation with --conversation-column"
    return (
        f"no known shape fits these rows ({fitting} of the {len(rows)} looked at have one). {unreadable}"
        f"Keys seen: {keys_seen(rows)}. {_misfits(rows, available)}{_ask_near(rows, available)}Name the fields "
        f"with {columns if available is SHAPES else '--prompt-column'}, or choose with --format NAME. "
        f"Shapes, and what they need:{needs}"
    )


def _misfits(rows: Sequence[object], available: Mapping[str, Shape]) -> str:
    """A sentence on what the first row holds under keys that shapes read; empty if it has none of them.

    Where two keys may be the prompt, neither is taken for it.
    """
    row: dict[str, object] = next((row for row in rows if isinstance(row, dict)), {})
    keys_read = {key for shape in available.values() for key in shape.reads}
    held = [f"{key!r} holds {describe(row[key])}" for key in row if key in keys_read]
    return f"Of these, shapes know some, and in the first row {'; '.join(held[:_MOST_HELD])}. " if held else ""


def _ask_near(rows: Sequence[object], available: Mapping[str, Shape]) -> str:
    """A question about the misspelt keys of the first row, which with the right ones would have a shape; else empty."""
    row: dict[str, object] = next((row for row in rows if isinstance(row, dict)), {})
    keys_read = {key for shape in available.values() for key in shape.reads}
    unknown = [key for key in list(row)[:_TRIED_KEYS] if key not in keys_read]
    near = {key: difflib.get_close_matches(key.lower(), keys_read - row.keys(), n=1, cutoff=_LEAST_ALIKE) for key in unknown}
    meant = {key: names[0] for key, names in near.items() if names}
    if len({*meant.values()}) < len(meant):  # `messages_a` and `messages_b` (search-arena) are two sides, no typing error
        return ""
    renamed: dict[str, object] = {meant.get(key, key): value for key, value in row.items()}
    # A name that is near is no help by itself: `contents` is near `context`, and Gemini's turns are no conversation here.
    shape = next((shape for shape in available.values() if meant and fits(shape, renamed)), None)
    names = [f"{name!r} by {key[:40]!a}" for key, name in meant.items() if shape is not None and name in shape.reads]
    return f"Did you mean {', '.join(names)} ({shape.name}: {shape.needs})? " if shape is not None and names else ""
