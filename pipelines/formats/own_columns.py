"""A shape defined by the user: which fields of a row hold the prompt, the response and the system prompt."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from actors.errors import Rejected, SourceError
from actors.records import Message, Reason, Role
from pipelines.formats.content import (
    SYSTEMS,
    answer,
    is_message,
    question,
    refuse_answered,
    reply,
    with_opening_system,
    with_row_system,
)
from pipelines.formats.prompts import open_end, prompt_request
from pipelines.formats.registry import keys_seen
from pipelines.formats.rows import ONLY_RESPONSE, Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape

NO_SYSTEM = ""
"""The value of `OwnColumns.system` for rows without a system prompt, whose field `system` is something else."""

_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d{1,9}\])*")
_FIELD_END = re.compile(r"[.\[]")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """Names of fields, or JSON paths such as `choices[0].message.content`. A field of exactly that name takes precedence."""

    prompt: str
    response: str | tuple[str, ...] | None
    """With several fields, each response has its field's name. None for rows with only a prompt."""
    system: str | None = None
    """None: a row's `system` or `system_prompt` is read, unless that field is named for something else. "": none is read."""

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> Self:
        """The inverse of `recorded`."""
        response = recorded["response"]
        several = tuple(response) if isinstance(response, list) else response
        return cls(recorded["prompt"], several, recorded["system"])

    def recorded(self) -> dict[str, Any]:
        """The value for the manifest, in JSON types."""
        response = list(self.response) if isinstance(self.response, tuple) else self.response
        return {"prompt": self.prompt, "response": response, "system": self.system}

    @property
    def responses(self) -> tuple[str, ...]:
        """The fields with responses."""
        return (self.response,) if isinstance(self.response, str) else self.response or ()

    @property
    def fields(self) -> set[str]:
        """The top-level fields of a row that are named, or that a path begins with."""
        paths = [path for path in (self.prompt, *self.responses, self.system) if path is not None]
        return {name for path in paths for name in (path, _first_field(path))}

    def shape(self) -> Shape:
        """The shape that these columns make, named `columns`."""
        if self.response is None:
            return Shape(
                "columns",
                "a prompt in the column that you named",
                f"`{self.prompt}`",
                self._has_prompt,
                self._read_prompt,
                reads=tuple(sorted(self.fields)),
            )
        return Shape(
            "columns",
            "a prompt and its response, or responses, in the columns that you named",
            f"`{self.prompt}` and {', '.join(f'`{path}`' for path in self.responses)}",
            self._looks_like,
            self._read,
            reads=tuple(sorted(self.fields)),
        )

    def check(self, rows: Sequence[object]) -> None:
        """Raise `SourceError` if none of the rows has one of the columns, which must be a typing error."""
        system = (self.system,) if self.system else ()
        for path in (self.prompt, *self.responses, *system):
            if rows:
                check_column(rows, path)

    def _has_prompt(self, row: Row) -> bool:
        return _has(row, self.prompt)

    def _read_prompt(self, row: Row) -> RowRequests:
        def read_context() -> tuple[Message, ...]:
            prompt = _value_at(row, self.prompt)
            return self._context(row, open_end(prompt) if isinstance(prompt, list) else prompt)

        return prompt_request(read_context)

    def _looks_like(self, row: Row) -> bool:
        return _has(row, self.prompt) and any(_has(row, path) for path in self.responses)

    def _read(self, row: Row) -> RowRequests:
        """The response as `final`, those of a list as `response[0]`, `response[1]`, ...; of several fields, named by them.

        A list of turns that aren't all the assistant's is a single response, with the turns before it.

        Raises `Rejected` if the only field is missing, or if two fields give responses of the same name.
        """
        if isinstance(self.response, str):
            value = _value_at(row, self.response)
            list_readers = {
                f"response[{i}]": partial(self._exchange, row, response) for i, response in enumerate(_response_list(value))
            }
            return gather(list_readers or {ONLY_RESPONSE: partial(self._exchange, row, value)})
        readers: dict[str, Callable[[], Exchange]] = {}
        for path in self.responses:
            list_readers = {
                f"{path}[{i}]": partial(self._exchange, row, response)
                for i, response in enumerate(_response_list_at(row, path))
            }
            path_readers = list_readers or {path: partial(self._exchange_at, row, path)}
            if readers.keys() & path_readers.keys():
                raise Rejected(Reason.WRONG_TYPE, path)
            readers |= path_readers
        return gather(readers)

    def _exchange_at(self, row: Row, path: str) -> Exchange:
        return self._exchange(row, _value_at(row, path))

    def _exchange(self, row: Row, response: object) -> Exchange:
        context = self._context(row, _value_at(row, self.prompt))
        return reply(context, response) if _is_multi_turn(response) else Exchange(refuse_answered(context), answer(response))

    def _context(self, row: Row, prompt: object) -> tuple[Message, ...]:
        turns = question(prompt)
        if self.system is None:
            return with_row_system({name: value for name, value in row.items() if name not in self.fields}, turns)
        if self.system == NO_SYSTEM:
            return turns
        # A row without a system prompt is one that had none; a column that no row has is refused by `check`.
        return with_opening_system(_value_at(row, self.system) if _has(row, self.system) else None, turns)


def check_column(rows: Sequence[object], path: str) -> None:
    """Raise `SourceError` if none of the rows has this field."""
    if not any(isinstance(row, dict) and _has(row, path) for row in rows):
        raise SourceError(f"none of the {len(rows)} rows looked at has {path!r}. Keys seen: {keys_seen(rows)}")


def with_principles(requests: RowRequests, row: object, path: str) -> RowRequests:
    """The requests with the principles in a field of the row: a principle or rubric, or a list of them.

    Without the field, or with null in it, the requests are unchanged. Any other value rejects the row's responses.
    """
    if not isinstance(row, Mapping) or not _has(row, path) or (value := _value_at(row, path)) is None:
        return requests
    principles = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(principle, str) and principle.strip() for principle in principles):
        return requests.refused(Reason.WRONG_TYPE)
    return replace(requests, requests=tuple(replace(request, principles=principles) for request in requests.requests))


def without_principles(row: object, path: str, kept_fields: Collection[str]) -> object:
    """The row without its field of principles, if that would also be read as a system prompt and isn't in `kept_fields`."""
    if not isinstance(row, Mapping):
        return row
    name = path if path in row else _first_field(path)
    if name not in SYSTEMS or name in kept_fields:
        return row
    return {key: value for key, value in row.items() if key != name}


def _first_field(path: str) -> str:
    return _FIELD_END.split(path)[0]


def _response_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) and not _is_multi_turn(value) else ()


def _is_multi_turn(value: object) -> bool:
    """Whether a list of messages is one response of several turns. If all are the assistant's, each is a response."""
    if not isinstance(value, list) or not all(map(is_message, value)):
        return False
    return any(turn["role"] != Role.ASSISTANT.value for turn in value)


def _response_list_at(row: Row, path: str) -> Sequence[object]:
    return _response_list(_value_at(row, path)) if _has(row, path) else ()


def _has(row: Row, path: str) -> bool:
    try:
        _value_at(row, path)
    except Rejected:
        return False
    return True


def _value_at(row: Row, path: str) -> object:
    """The value at a name or path. Raises `Rejected` if a step of the path is missing."""
    if path in row:
        return row[path]
    if not _PATH.fullmatch(path):
        raise Rejected(Reason.MISSING_FIELD, path)
    value: object = row
    for index, key in _STEP.findall(path):
        if index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key and isinstance(value, Mapping) and key in value:
            value = value[key]
        else:
            raise Rejected(Reason.MISSING_FIELD, path)
    return value
