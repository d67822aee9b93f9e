"""Shapes by declaration: what most of them have in common, so that a new one is an entry in a table.

`answers` makes the shape of rows with a prompt in one field and its responses in others, `conversations` those of rows
with a whole conversation in one field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason
from pipelines.data.formats.content import (
    answer,
    conversation,
    entries,
    field,
    final,
    in_field,
    is_conversation,
    open_end,
    question,
    read_field,
    refuse_answered,
    reply,
    systems,
    with_row_system,
)
from pipelines.data.formats.rows import ONLY_RESPONSE, Answer, Exchange, Row, RowRequests, Shape, gather, prompt_request
from pipelines.data.formats.turns import assistant_turns

# The responses of a row by name, each as a function that gives what the row holds, or raises `Rejected`: with a call for
# each, a bad response rejects itself alone.
Values = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Responses:
    """Where the responses of a row are: the fields that may hold them, and how a row's own are called.

    The only response of a row is in the first of the fields.
    """

    fields: tuple[str, ...]
    of: Callable[[Row], Values]


def in_fields(names: Mapping[str, str], single: str | None = None) -> Responses:
    """A field for each response, by the response's name; or the one field `single`, whose response is named `final`.

    Of a row that has both, all are read.
    """
    only = {} if single is None else {ONLY_RESPONSE: single}
    sides = frozenset(names.values())

    def of(row: Row) -> Values:
        fields = only  # with a side in the row, the other one is named, too, and rejected as missing
        if not only or not sides.isdisjoint(row):
            fields = {**(only if single in row else {}), **names}
        return {name: partial(field, row, key) for name, key in fields.items()}

    return Responses((*(() if single is None else (single,)), *names.values()), of)


def in_list(key: str, member: str | None = None) -> Responses:
    """A response in each element of a list, or under the key `member` of each: `KEY[0]`, `KEY[1]` ..."""

    def of(row: Row) -> Values:
        elements = enumerate(entries(field(row, key)))
        return {f"{key}[{index}]": partial(value_of, element, member) for index, element in elements}

    return Responses((key,), of)


def value_of(element: object, member: str | None) -> object:
    """A response by itself, or what an object has under the key `member`.

    Raises `Rejected` for what is no object, or lacks the key.
    """
    if member is None:
        return element
    if not isinstance(element, dict):
        raise Rejected(Reason.WRONG_TYPE, "a response that isn't an object")
    return field(element, member)


def answers(
    name: str,
    *,
    about: str,
    needs: str,
    layout: str,
    looks_like: Callable[[Row], bool],
    prompt: str,
    responses: Responses,
    turns: Callable[[object], tuple[Message, ...]] = question,
    text: Callable[[object], Answer] = answer,
    may_be_turns: bool = False,
) -> Shape:
    """A shape of rows with a prompt under a key, read by `turns`, and responses to it, read by `text`.

    With `may_be_turns` a response may also be several turns that end with the assistant's (`content.reply`).
    """

    def read(row: Row) -> RowRequests:
        return gather({name: partial(read_response, row, name, value) for name, value in responses.of(row).items()})

    def read_response(row: Row, name: str, value: Callable[[], object]) -> Exchange:
        context = with_row_system(row, read_field(row, prompt, turns))
        with in_field(responses.fields[0] if name == ONLY_RESPONSE else ""):
            return reply(context, value()) if may_be_turns else Exchange(refuse_answered(context), text(value()))

    return Shape(name, about, needs, looks_like, read, reads=(prompt, *responses.fields), layout=layout)


def conversations(
    name: str, *, key: str, about: str, turn: str, layout: str, is_other: Callable[[Row], bool] = lambda row: False
) -> tuple[Shape, Shape]:
    """Two shapes of rows with a conversation under a key: of those that are judged, and of prompts for a policy.

    In the first the last turn is judged, or each turn of the assistant's; in the second all before the assistant's last turn
    is to be answered. `is_other` tells the rows that have the key and are of another shape.
    """

    def looks_like(row: Row) -> bool:
        return is_conversation(row.get(key)) and not is_other(row)

    def read_last(row: Row) -> RowRequests:
        return gather({ONLY_RESPONSE: lambda: final(with_row_system(row, read_field(row, key, conversation)))})

    def read_turns(row: Row) -> RowRequests:
        return assistant_turns(read_field(row, key, entries), systems(row))

    def read_prompt(row: Row) -> RowRequests:
        return prompt_request(lambda: with_row_system(row, conversation(open_end(read_field(row, key, entries)))))

    needs = f"`{key}`, a list of {turn}"
    judged = Shape(
        name,
        f"{about}; its last turn, or each turn of the assistant's, is judged",
        needs,
        looks_like,
        read_last,
        read_turns,
        reads=(key,),
        layout=layout,
    )
    return judged, Shape(name, f"{about}, to be answered", needs, looks_like, read_prompt, reads=(key,))
