"""Reads tool calls and tools, in OpenAI's forms and in ShareGPT's.

What can't be read whole is `Rejected` as `tool_call`, with what was wrong: nobody must be judged by a part of a call.
"""

import json
from collections.abc import Iterable, Mapping

from actors.errors import Rejected
from actors.records import Reason, Role, ScoreRequest, ToolCall
from pipelines.data.formats.lines import parse_json
from pipelines.data.formats.rows import Row, RowRequests
from pipelines.data.formats.values import describe, is_blank

# ShareGPT's names of an assistant that calls tools in its turn, whose text is the calls as JSON.
CALLERS = ("function_call", "tool_call")
# The fields of calls in a message: OpenAI's, its older one, and that of OLMo and Dolci, whose Python syntax is refused.
_CALLS = ("tool_calls", "function_call", "function_calls")
# The fields of tools: `tools_json` in nemotron-agentic-v1 as cleaned for training, `available_tools` in Toucan.
_TOOLS = ("tools", "functions", "tools_json", "available_tools")
# Those of SmolTalk2 in `chat_template_kwargs`, as texts that its template writes out.
_WRITTEN_TOOLS = ("xml_tools", "python_tools")
# The fields of calls and tools that a message may have; in Parquet all messages have them, most of them null.
FIELDS = frozenset((*_CALLS, *_TOOLS))
# The most calls in a turn (OpenAI's bound of parallel ones), and characters of a call's arguments, which are looked for in
# each prompt.
_MOST_CALLS, _MOST_ARGUMENTS = 128, 2**18


def calls_of(turn: Mapping[str, object], role: Role, *, from_text: object = None) -> tuple[ToolCall, ...]:
    """The calls in a message; `from_text` is its text if that holds them.

    Raises `Rejected` also for calls of others than the assistant, and for tools in the message.
    """
    if from_text is None and not any(map(turn.get, FIELDS)):
        return ()  # nearly every turn
    if tools_of(turn):
        raise _refusal(f"tools in a message of the {role}; the row's `tools` are expected, beside its messages")
    fields = {key: turn[key] for key in _CALLS if not is_blank(turn.get(key))}
    fields |= {} if from_text is None else {"value": from_text}
    if fields and role is not Role.ASSISTANT:
        raise _refusal(f"calls in {' and in '.join(fields)} of a message of the {role}; only the assistant calls tools")
    if len(fields) > 1:
        raise _refusal(f"calls in {' and in '.join(fields)}")
    values = [_from_json(value, key) if isinstance(value, str) else _without_null(value) for key, value in fields.items()]
    calls = [call for value in values for call in (value if isinstance(value, list) else [value])]
    # verifiers saves each call as a JSON text of its own.
    calls = [_from_json(call, "a call") if isinstance(call, str) else call for call in calls]
    if len(calls) > _MOST_CALLS:
        raise _refusal(f"{len(calls)} calls in a turn; at most {_MOST_CALLS}")
    return tuple(map(_call, calls))


def tools_of(row: Row) -> tuple[str, ...]:
    """The tools of a row, each as the JSON text of OpenAI's form; empty where its fields of that name hold other things.

    Other things are texts that aren't JSON's, and lists of them. Raises `Rejected` for what can't be read, and for two
    fields with different tools.
    """
    inner = row.get("input")  # of OpenAI's preference files, beside the messages
    places = (row, inner) if isinstance(inner, Mapping) else (row,)
    fields = [tools for place in places for key in _TOOLS if key in place and (tools := _tools(place[key]))]
    arguments = row.get("chat_template_kwargs")
    if isinstance(arguments, Mapping):
        fields += [_written_tools(key, arguments[key]) for key in _WRITTEN_TOOLS if not is_blank(arguments.get(key))]
    if len(set(fields)) > 1:
        raise _refusal(f"{len(fields)} fields with different tools, {' or '.join(_TOOLS)}; one is expected")
    return fields[0] if fields else ()


def _written_tools(key: str, value: object) -> tuple[str, ...]:
    if tools := _tools(value):
        return tools
    raise _refusal(f"{key} that are {describe(value)}; the JSON text of each tool is expected, or a field `tools`")


def count_calls_without_tools(rows: Iterable[RowRequests]) -> int:
    """How many rows have calls of tools in what is judged or before it, and no tools."""
    return sum(any(map(_lacks_tools, row.requests)) for row in rows)


def _lacks_tools(request: ScoreRequest) -> bool:
    calls = (*(turn.calls for turn in request.context), *(response.calls for response in request.responses))
    return not request.tools and any(calls)


def _tools(value: object) -> tuple[str, ...]:
    listed = _opened_tools(value)
    if isinstance(listed, dict) and _without_null(listed):
        raise _refusal(f"tools that are {describe(listed)}; a list is expected, or the JSON text of one")
    tools = list(map(_opened_tools, listed)) if isinstance(listed, list) else []
    return tuple(map(read_tool, tools)) if any(isinstance(tool, dict) for tool in tools) else ()


def _opened_tools(value: object) -> object:
    return _from_json(value, "tools") if isinstance(value, str) and value.lstrip().startswith(("[", "{")) else value


def read_tool(value: object) -> str:
    """A tool in the form of chat completions or of OpenAI's Responses, or its function alone: the JSON text of the first.

    Without members that are null, and of Responses without `strict`, which no model is shown.
    """
    value = _without_null(value)
    _, function = _named(value, "a tool")
    if function is not value:
        return _written(value, "a tool")
    if "type" in function:  # of Responses, whose order isn't that of chat completions
        keys = dict.fromkeys(("name", "description", "parameters", *function))
        function = {key: function[key] for key in keys if key in function and key not in ("type", "strict")}
    return _written({"type": "function", "function": function}, "a tool")


def _call(value: object) -> ToolCall:
    name, function = _named(value, "a call")
    number = value.get("id") if isinstance(value, dict) else None
    if not (isinstance(number, str) or is_blank(number)):
        raise _refusal(f"a call of {name!a} whose id is {describe(number)}; a text is expected")
    arguments, what = function.get("arguments"), f"arguments of {name[:40]!a}"
    parsed = _from_json(arguments, what) if isinstance(arguments, str) else arguments
    if not isinstance(parsed, dict):
        raise _refusal(f"{what} that are {describe(parsed)}; an object is expected, or the JSON text of one")
    written = _written(parsed, what)
    if len(written) > _MOST_ARGUMENTS:
        raise _refusal(f"{what} of {len(written):,} characters; at most {_MOST_ARGUMENTS:,}")
    _written([name, number, parsed], what)  # raises: an escape in any of them may be half a surrogate pair
    return ToolCall(name, written, number if isinstance(number, str) and number.strip() else None)


def _named(value: object, what: str) -> tuple[str, Mapping[str, object]]:
    """The name of a function, and OpenAI's object that has it, which may stand alone or under `function`."""
    # `type` may be missing, as in OpenAI's older form; of another type, such as `custom`, nobody here knows the arguments.
    function = value.get("function", value) if isinstance(value, dict) else value
    kind = value.get("type") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or kind not in ("function", None) or not isinstance(name, str) or not name.strip():
        raise _refusal(f"{what} that is {describe(value if kind is None else kind)}; a function by its name is expected")
    return name, function


def _from_json(text: str, what: str) -> object:
    try:
        return parse_json(text)
    except Rejected as error:
        raise _refusal(f"{what} that aren't JSON: {error.detail or error.reason}") from None


def _written(value: object, what: str) -> str:
    try:
        # One spelling for all files, so that equal calls are equal prompts, whatever white space and escapes a file has.
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE, what) from None
    except (TypeError, ValueError):
        raise _refusal(f"{what} with a value that JSON doesn't have") from None
    return written


def _without_null(value: object) -> object:
    # Without members that are null: in Parquet every object has the keys of all others. TRL leaves them out, too.
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    return list(map(_without_null, value)) if isinstance(value, list) else value


def _refusal(detail: str) -> Rejected:
    return Rejected(Reason.TOOL_CALL, detail)
