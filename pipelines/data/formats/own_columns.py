"""A shape defined by the user: which fields of a row hold the prompt, the response and the system prompt."""

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

from actors.contracts.family import REFERENCE
from actors.errors import Rejected, SourceError
from actors.records import JudgeRole, Message, Reason, Role
from pipelines.data.formats.calls import tools_of
from pipelines.data.formats.content import (
    SYSTEMS,
    answer,
    conversation,
    entries,
    final,
    in_field,
    is_message,
    open_end,
    question,
    refuse_answered,
    reply,
    role_of,
    systems,
    text,
    with_systems,
)
from pipelines.data.formats.rows import (
    CANDIDATE,
    ONLY_RESPONSE,
    Exchange,
    Row,
    RowRequests,
    Shape,
    gather,
    prompt_request,
)
from pipelines.data.formats.stored_turns import decode_turns
from pipelines.data.formats.turns import assistant_turns
from pipelines.data.formats.values import describe, is_blank, keys_seen

NO_SYSTEM = ""  # `OwnColumns.system` of rows without a system prompt, whose field `system` is something else
ALL_ELEMENTS = "[]"  # the step of a path that stands for each element of a list
# What may follow the first name of a path without `[]`. Nine digits are an index that no list has, and no slow number.
_REST = re.compile(r"(?:\.[^.\[\]]+|\[-?\d{1,9}\])+")
_STEP = re.compile(r"\[(-?\d+)\]|([^.\[\]]+)")

# Fields of requests by name, each with the column, or the path, that holds it. Pairs, as they are part of a run's identity.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """Names of fields, or JSON paths such as `choices[0].message.content`. A field of exactly that name takes precedence.

    In a path, `[-1]` is the last element of a list, and `[]` each of them, which are responses then.
    """

    prompt: str | None
    # With several fields, each response has its field's name. None for rows with only a prompt.
    response: str | tuple[str, ...] | None
    # None: a row's `system` or `system_prompt` is read, unless that field is named for something else. "": none is read.
    system: str | None = None
    # In place of prompt and response: fields with a whole conversation each, whose last turn is the response.
    conversations: tuple[str, ...] = ()

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> Self:
        columns: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()
        }
        return cls(**columns)

    def recorded(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def responses(self) -> tuple[str, ...]:
        return (self.response,) if isinstance(self.response, str) else self.response or ()

    @property
    def _paths(self) -> list[str]:
        system = (self.system,) if self.system != NO_SYSTEM else ()
        return [path for path in (self.prompt, *self.responses, *self.conversations, *system) if path is not None]

    @property
    def fields(self) -> set[str]:
        # The top-level fields of a row that are named, or that a path may begin with.
        return {name for path in self._paths for name in (path, _first_name(path))}

    def shape(self) -> Shape:
        paths: tuple[str, ...] = (self.prompt or "", *self.responses)
        about, read = "a prompt and its response, or responses, in the columns that you named", self._read
        if self.conversations:
            paths, about, read = self.conversations, "a conversation in each column that you named", self._read_conversations
        elif self.response is None:
            about, read = "a prompt in the column that you named", self._read_prompt
        return Shape(
            "columns",
            about,
            " and ".join(f"`{path}`" for path in paths),
            self._looks_like,
            partial(self._with_tools, read),
            partial(self._with_tools, self._read_turns) if self._conversation is not None else None,
            tuple(sorted(self.fields)),
        )

    def check(self, rows: Sequence[object]) -> None:
        """Raise `SourceError` if none of the rows has one of the columns, which must be a typing error."""
        for path in self._paths if rows else ():
            check_column(rows, path)

    @property
    def _conversation(self) -> str | None:
        # The only field with a conversation, of which it has one: its turns can be judged one by one. Else None.
        single = self.conversations[0] if len(self.conversations) == 1 else ALL_ELEMENTS
        return None if ALL_ELEMENTS in single else single

    def _read_prompt(self, row: Row) -> RowRequests:
        def read_context() -> tuple[Message, ...]:
            with in_field(self.prompt or ""):
                prompt = _value_at(row, self.prompt or "")
                return self._context(row, open_end(prompt) if isinstance(prompt, list) else prompt)

        return prompt_request(read_context)

    def _with_tools(self, read: Callable[[Row], RowRequests], row: Row) -> RowRequests:
        """The requests with the tools beside what a path leads to, as `request.tools` beside `request.messages`.

        Those of the row itself are put there for every shape.
        """
        row_requests = read(row)
        paths = [place for path in self.conversations for place in _places(row, path)] or [self.prompt or ""]
        places = [_beside(row, path) for path in paths]
        if not any(places):  # nearly every row
            return row_requests
        try:
            lists = {tools for tools in map(tools_of, (row, *places)) if tools}
        except Rejected as error:
            return row_requests.refused(error.reason, error.detail)
        if len(lists) > 1:
            return row_requests.refused(Reason.TOOL_CALL, f"different tools in the row and beside {paths[0]}")
        if lists and row_requests.names == (CANDIDATE,):
            return row_requests.refused(Reason.TOOL_CALL, "a prompt with tools, whose calls nobody would answer")
        tools = next(iter(lists), ())
        return replace(row_requests, requests=tuple(replace(request, tools=tools) for request in row_requests.requests))

    def _looks_like(self, row: Row) -> bool:
        judged = (*self.responses, *self.conversations)
        has_prompt = self.prompt is None or _has(row, self.prompt)
        return has_prompt and (not judged or any(_has(row, path) for path in judged))

    def _read_conversations(self, row: Row) -> RowRequests:
        if self._conversation is not None:
            return gather({ONLY_RESPONSE: partial(self._last_turn, row, self._conversation)})
        places = [place for path in self.conversations for place in _places(row, path)]
        return gather({place: partial(self._last_turn, row, place) for place in places})

    def _read_turns(self, row: Row) -> RowRequests:
        path = self._conversation or ""
        return assistant_turns(entries(decode_turns(_value_at(row, path))), self._systems(row, path))

    def _last_turn(self, row: Row, path: str) -> Exchange:
        with in_field(path):
            return final(with_systems(self._systems(row, path), conversation(decode_turns(_value_at(row, path)))))

    def _read(self, row: Row) -> RowRequests:
        """The response as `final`, those of a list as `response[0]`, `response[1]`, ...; of several fields, named by them.

        A list of turns that aren't all the assistant's is a single response, with the turns before it.

        Raises `Rejected` if the only field is missing, or if two fields give responses of the same name.
        """
        if isinstance(self.response, str):
            places = _response_places(row, self.response)
            if places == [self.response]:
                return gather({ONLY_RESPONSE: partial(self._exchange, row, self.response)})
            return gather({f"response[{i}]": partial(self._exchange, row, place) for i, place in enumerate(places)})
        readers: dict[str, Callable[[], Exchange]] = {}
        for path in self.responses:
            places = _response_places(row, path) if _has(row, path) else [path]
            if readers.keys() & set(places):
                raise Rejected(Reason.WRONG_TYPE, f"{path}: another field has responses of this name")
            readers |= {place: partial(self._exchange, row, place) for place in places}
        return gather(readers)

    def _exchange(self, row: Row, path: str) -> Exchange:
        response = _value_at(row, path)
        with in_field(self.prompt or ""):
            context = self._context(row, _value_at(row, self.prompt or ""))
        with in_field(path):
            is_turns = _is_multi_turn(response)
            return reply(context, response) if is_turns else Exchange(refuse_answered(context), answer(response))

    def _context(self, row: Row, prompt: object) -> tuple[Message, ...]:
        return with_systems(self._systems(row, self.prompt or ""), question(prompt))

    def _systems(self, row: Row, path: str) -> tuple[object, ...]:
        if self.system is None:
            place = path.rpartition(".")[0]
            beside = _beside(row, path)
            named = {path.removeprefix(f"{place}.") for path in self._paths}
            # A request of OpenAI's Responses has its system prompt there; elsewhere the name may mean the task.
            instructions = beside.get("instructions") if path.endswith(".input") else None
            return (*systems(row, self.fields), *systems(beside, named), instructions)
        # A row without a system prompt is one that had none; a column that no row has is refused by `check`.
        return (_value_at(row, self.system),) if self.system != NO_SYSTEM and _has(row, self.system) else ()


def check_column(rows: Sequence[object], path: str) -> None:
    """Raise `SourceError` if none of the rows has this field, which must be a typing error.

    The message names the field that was probably meant.
    """
    if not any(isinstance(row, dict) and _has(row, path) for row in rows):
        names = {str(name) for row in rows if isinstance(row, dict) for name in row}
        near = difflib.get_close_matches(path.lower(), {name.lower() for name in names}, n=1)
        meant = [name for name in sorted(names) if near and name.lower() == near[0]]
        question = f"Did you mean {meant[0]!r}? " if meant else ""
        raise SourceError(f"none of the {len(rows)} rows looked at has {path!r}. {question}Keys seen: {keys_seen(rows)}")


def with_fields(requests: RowRequests, row: object, columns: Columns) -> RowRequests:
    """The requests with texts that the row has beside its conversation: their fields, and under `principle` the principles.

    A field that the row lacks, or that is blank there, is left out. A value that can't be read rejects the row's responses.
    """
    if not isinstance(row, Mapping):
        return requests
    fields: dict[str, str] = {}
    principles: tuple[str, ...] | None = None
    try:
        for name, path in columns:
            values = [_value_at(row, place) for place in _places(row, path)] if _has(row, path) else []
            if name == JudgeRole.PRINCIPLE:  # several, where a model takes them in a list of its own
                principles = principles if values in ([], [None]) else _principles(values, path)
            elif not all(map(is_blank, values)):
                fields[name] = field_text(name, values[0] if len(values) == 1 else values, path)
    except Rejected as rejected:
        return requests.refused(rejected.reason, rejected.detail)
    return replace(
        requests,
        requests=tuple(
            replace(request, fields=fields, principles=request.principles if principles is None else principles)
            for request in requests.requests
        ),
    )


def _principles(values: list[object], path: str) -> tuple[str, ...]:
    listed = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if not all(isinstance(value, str) and value.strip() for value in listed):
        raise Rejected(Reason.WRONG_TYPE, f"{path} holds {describe(values[0])}")
    return tuple(map(str, listed))


def field_text(name: str, value: object, path: str) -> str:
    """The text of a field: a text as it is, and any other value as JSON: numbers, lists and objects.

    A list of references, all texts or numbers, is one of texts, and of a single one that text, as `["42"]` is in files of
    open-instruct: `[42]` as a text may be the right answer itself, and `[42]` as a list never is.
    """
    if name == REFERENCE and isinstance(value, list) and all(type(item) in (str, int, float) for item in value):
        listed = [item if isinstance(item, str) else field_text(name, item, path) for item in value]
        # Where several may be right, a single text that is a list itself would be taken apart; a blank one is no reference.
        value = listed[0] if len(listed) == 1 and listed[0].strip()[:1] not in ("", "[") else listed
    if isinstance(value, str):
        return text(value)
    try:
        return text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Rejected(Reason.WRONG_TYPE, f"{path} holds {describe(value)}: {error}") from None


def without_fields(row: object, columns: Columns, kept_fields: Collection[str]) -> object:
    """The row without those columns of fields that would also be read as a system prompt and aren't in `kept_fields`.

    A rubric in a column `system` would otherwise be the first turn of the conversation that it is about.
    """
    if not isinstance(row, Mapping):
        return row
    names = {path if path in row else _first_name(path) for _, path in columns}
    unread = (names & {*SYSTEMS}) - {*kept_fields}
    return {key: value for key, value in row.items() if key not in unread} if unread else row


def _first_name(path: str) -> str:  # `a` of `a.b[0]`
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _beside(row: Row, path: str) -> Row:
    """The object that holds what a path leads to; empty if that is the row itself."""
    place = path.rpartition(".")[0]
    if not place or path in row or not _leads_somewhere(row, place):
        return {}
    value = _value_at(row, place)
    return value if isinstance(value, Mapping) else {}


def _response_places(row: Row, path: str) -> list[str]:
    # The paths of the responses at a path: that of each element, if it holds a list of responses.
    if ALL_ELEMENTS in path:
        return _places(row, path)
    value = _value_at(row, path)
    several = isinstance(value, list) and bool(value) and not _is_multi_turn(value)
    return [f"{path}[{i}]" for i in range(len(value))] if several and isinstance(value, list) else [path]


def _is_multi_turn(value: object) -> bool:
    # Whether a list of messages is one response of several turns. If all are the assistant's, each is a response.
    if not isinstance(value, list) or not all(map(is_message, value)):
        return False
    return any(role_of(turn) is not Role.ASSISTANT for turn in value)


def _places(row: Row, path: str) -> list[str]:
    """The paths that a path with `[]` stands for in a row: at least one. Raises `Rejected` if it leads to no elements."""
    before, step, after = path.partition(ALL_ELEMENTS)  # the first `[]`; those after it are replaced one level deeper
    if not step or path in row:
        return [path]
    values = _value_at(row, before)
    if not isinstance(values, list) or not values:
        raise Rejected(Reason.WRONG_TYPE if values else Reason.EMPTY_CONTENT, f"{before} holds {describe(values)}")
    return [place for i in range(len(values)) for place in _places(row, f"{before}[{i}]{after}")]


def _has(row: Row, path: str) -> bool:
    try:
        return any(_leads_somewhere(row, place) for place in _places(row, path))
    except Rejected:
        return False


def _leads_somewhere(row: Row, path: str) -> bool:
    try:
        _value_at(row, path)
    except Rejected:
        return False
    return True


def _value_at(row: Row, path: str) -> object:
    """The value at a name or at a path without `[]`. Raises `Rejected` if a step of the path is missing."""
    if path in row:  # a flat export may have a column named `a.b`
        return row[path]
    first = _first_name(path)
    if first not in row or not _REST.fullmatch(path, len(first)):
        raise Rejected(Reason.MISSING_FIELD, path)
    value: object = row[first]
    for index, key in _STEP.findall(path, len(first)):
        if index and isinstance(value, list) and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        elif key and isinstance(value, Mapping) and key in value:
            value = value[key]
        else:
            raise Rejected(Reason.MISSING_FIELD, path)
    return value
