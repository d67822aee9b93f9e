"""Reads tool calls and tools, in OpenAI's forms and in ShareGPT's.

What can't be read whole is `Rejected` as `tool_call`, with what was wrong: nobody must be judged by a part of a call.
"""

import json
from collections.abc import Mapping

from actors.errors import Rejected
from actors.records import Reason, ToolCall
from pipelines.data.formats.lines import parse_json
from pipelines.data.formats.rows import Row
from pipelines.data.formats.values import describe, is_blank

CALLERS = ("function_call", "tool_call")
"""ShareGPT's names of an assistant that calls tools in its turn, whose text is the calls as JSON."""
_CALLS = ("tool_calls", "function_call", "function_calls")
"""The fields of calls in a message: OpenAI's, OpenAI's older one, and that of OLMo and Dolci, of which only JSON is read."""
_TOOLS = ("tools", "functions")
_MOST_CALLS, _MOST_ARGUMENTS = 128, 2**18
"""The most calls in a turn (OpenAI's bound of parallel ones), and characters of a call's arguments."""


def calls_of(turn: Mapping[str, object], *, from_text: object = None) -> tuple[ToolCall, ...]:
    """The calls in an assistant's message; `from_text` is its text if that holds them."""
    fields = {key: turn[key] for key in _CALLS if not is_blank(turn.get(key))}
    fields |= {} if from_text is None else {"value": from_text}
    if len(fields) > 1:
        raise _refusal(f"calls in {' and in '.join(fields)}")
    for key, value in fields.items():
        listed = _from_json(value, key) if isinstance(value, str) else value
        calls = listed if isinstance(listed, list) else [listed]
        if len(calls) > _MOST_CALLS:
            raise _refusal(f"{len(calls)} calls in a turn; at most {_MOST_CALLS}")
        return tuple(map(_call, calls))
    return ()


def tools_of(row: Row) -> tuple[str, ...]:
    """The tools of a row, each as the JSON text of OpenAI's form; empty where its fields of that name hold other things."""
    given = row.get("input")  # of OpenAI's preference files, beside the messages
    places = (row, given) if isinstance(given, Mapping) else (row,)
    return next((tools for place in places for key in _TOOLS if (tools := read_tools(place.get(key)))), ())


def read_tools(value: object) -> tuple[str, ...]:
    """The tools in a list, or in the JSON text of one; empty for a value that was meant as something else."""
    listed = _opened(value, "[")
    tools = [_opened(tool, "{") for tool in listed] if isinstance(listed, list) else []
    return (
        tuple(map(read_tool, tools))
        if any(isinstance(tool, dict) and {"function", "name"} & tool.keys() for tool in tools)
        else ()
    )


def _opened(value: object, begin: str) -> object:
    """What a text holds if it is JSON that begins so. An object may come from Parquet, where a null is no member of it."""
    try:
        return parse_json(value) if isinstance(value, str) and value.lstrip().startswith(begin) else _without_null(value)
    except Rejected:
        return value


def read_tool(value: object) -> str:
    """A tool in OpenAI's form, or its function alone, as the JSON text of that form."""
    function = _function(value, "a tool")
    _name(function, "a tool")
    whole = value if isinstance(value, dict) and "function" in value else {"type": "function", "function": function}
    return _written(whole, "a tool")


def _call(value: object) -> ToolCall:
    function = _function(value, "a call")
    name, number = _name(function, "a call"), value.get("id") if isinstance(value, dict) else None
    if not (isinstance(number, str) or is_blank(number)):
        raise _refusal(f"a call of {name!a} whose id is {describe(number)}; a text is expected")
    arguments = function.get("arguments")
    what = f"arguments of {name[:40]!a}"
    if isinstance(arguments, str) and len(arguments) > _MOST_ARGUMENTS:
        raise _refusal(f"{what} of {len(arguments):,} characters; at most {_MOST_ARGUMENTS:,}")
    parsed = _from_json(arguments, what) if isinstance(arguments, str) else _without_null(arguments)
    if not isinstance(parsed, dict):
        raise _refusal(f"{what} that are {describe(parsed)}; an object is expected, or the JSON text of one")
    written = _written(parsed, what)
    if len(written) > _MOST_ARGUMENTS:
        raise _refusal(f"{what} of {len(written):,} characters; at most {_MOST_ARGUMENTS:,}")
    return ToolCall(name, arguments if isinstance(arguments, str) else written, number if isinstance(number, str) else None)


def _function(value: object, what: str) -> Mapping[str, object]:
    """OpenAI's object with the name, which may stand alone or under `function`."""
    function = value.get("function", value) if isinstance(value, dict) else value
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(function, dict) or kind not in ("function", None):
        raise _refusal(f"{what} that is {describe(value if kind is None else kind)}; a function by its name is expected")
    return function


def _name(function: Mapping[str, object], what: str) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise _refusal(f"{what} whose name is {describe(name)}; a text is expected")
    return _encodable(name)


def _from_json(text: str, what: str) -> object:
    try:
        return parse_json(text)
    except Rejected as error:
        raise _refusal(f"{what} that aren't JSON: {error.detail or error.reason}") from None


def _written(value: object, what: str) -> str:
    try:
        return _encodable(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        raise _refusal(f"{what} with a value that JSON doesn't have") from None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE, "in a tool call") from None
    return text


def _without_null(value: object) -> object:
    """Without members that are null: in Parquet every object has the keys of all others. TRL leaves them out, too."""
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    return list(map(_without_null, value)) if isinstance(value, list) else value


def _refusal(detail: str) -> Rejected:
    return Rejected(Reason.TOOL_CALL, detail)
