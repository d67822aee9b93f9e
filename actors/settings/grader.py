"""OpenAI's graders, as a rubric for a judge of the user's own, or checked for the verifier `grader`, which asks no model.

Their form is that of `openai.types.graders` (openai 3.52). What we can't do as they do is refused by its name.
"""

import ast
import contextlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from actors.settings.plain_yaml import read_mapping
from actors.settings.presets import preset_path

OUTPUT = "sample.output_text"
"""What a grader calls the response."""
OPERATIONS = ("eq", "ne", "like", "ilike")
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min, "max": max, "abs": abs, "floor": math.floor, "ceil": math.ceil, "exp": math.exp, "sqrt": math.sqrt,
    "log": math.log,
}  # fmt: skip
# `math.pow` and not `**`, which makes a complex number of a negative one and a fraction.
_OPERATORS: Mapping[type, Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: math.pow,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_FREE = ("string_check", "text_similarity", "multi")
GRADERS = frozenset({"score_model", "label_model", "python", "endpoint", *_FREE})
# What a grader of each type may hold beside `type` and `name`. `model` and `pass_threshold` decide no number of ours.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "score_model": ("input", "range", "sampling_params", "model", "pass_threshold"),
    "label_model": ("input", "labels", "passing_labels", "model"),
    "string_check": ("input", "operation", "reference"),
    "text_similarity": ("input", "reference", "evaluation_metric", "pass_threshold"),
    "multi": ("graders", "calculate_output"),
}
# `max_completions_tokens` is OpenAI's spelling.
_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_completions_tokens": "max_tokens"}
_PLACE = re.compile(r"{{\s*([\w.]+)\s*}}")


def pieces(template: str) -> Iterator[tuple[str, str]]:
    """A grader's template as texts, each with the name of the place behind it: `item.answer`; the last one has none.

    Raises `ValueError` for a place that no row has, and for what Jinja would read in another way.
    """
    parts = _PLACE.split(template)
    # Filters, calls and indices are no places, and would come out as text.
    if unread := re.search(r"{{.*?(?:}}|$)", "\n".join(parts[::2])):
        raise ValueError(f"{unread[0]} isn't of the form {{{{ item.NAME }}}}, NAME of letters, digits and _")
    for text, name in zip(parts[::2], [*parts[1::2], ""], strict=True):
        if name and name != OUTPUT and not name.startswith("item."):
            raise ValueError(f"{{{{ {name} }}}}: there are {{{{ item.NAME }}}} and {{{{ {OUTPUT} }}}}")
        yield text, name


def field_name(name: str) -> str:
    """What a rubric, or the fields of a request, call a place of a grader."""
    return "response" if name == OUTPUT else f"row.{name.removeprefix('item.')}"


def read_rubric(value: Any) -> Any:
    """The rubric in a file, or a `preset:NAME`; of a score_model or label_model, the rubric that asks the same.

    Raises `ValueError`.
    """
    rubric = read_mapping(preset_path(value), "rubric")
    is_grader = isinstance(rubric, Mapping) and rubric.get("type") in GRADERS
    return _checked(_rubric_of, rubric) if is_grader else rubric


def read_grader(value: Any) -> Any:
    """The grader in a file, for the verifier `grader`. Raises `ValueError` for one that asks a model."""
    grader = read_mapping(value, "grader")
    return _checked(_check_free, grader) if isinstance(grader, Mapping) else grader


def _checked(read: Callable[[Mapping[str, Any]], dict[str, Any]], grader: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return read(grader)
    except (AttributeError, KeyError, TypeError) as error:  # a text where an object should be, and the like
        raise ValueError(f"it isn't laid out as a {grader.get('type', '')} grader is: {error!r}") from error


def _rubric_of(grader: Mapping[str, Any]) -> dict[str, Any]:
    kind = grader["type"]
    if kind in ("string_check", "text_similarity"):
        raise ValueError(f"a {kind} asks no model: give --model grader --set verifier.grader=FILE in place of --rubric FILE")
    if kind == "multi":
        raise ValueError(
            "a multi grader isn't one prompt: if none of its graders asks a model, give --model grader --set "
            "verifier.grader=FILE; else each is a rubric of its own, and `assay ensemble` combines several judges"
        )
    _check_fields(grader)
    system, prompt = _turns(grader.get("input"))
    sampling = grader.get("sampling_params") or {}
    if refused := sorted(sampling.keys() - _SAMPLING.keys()):
        hint = "; judge.seed is the seed of a run" if "seed" in refused else ""
        raise ValueError(f"sampling_params.{refused[0]} can't be given to a judge here{hint}")
    drawn = {_SAMPLING[name]: value for name, value in sampling.items() if value is not None}
    rubric = {"prompt": prompt, **({} if system is None else {"system": system}), **drawn}
    if kind == "label_model":
        labels, passing = grader.get("labels") or [], grader.get("passing_labels") or []
        if unknown := [label for label in passing if label not in labels]:
            raise ValueError(f"passing_labels holds {unknown[0]!r}, which isn't among the labels {', '.join(labels)}")
        grades = {label: float(label in passing) for label in labels}
        return {**rubric, "words": {"label": grades}, "json_schema": _answer("label", {"type": "string", "enum": [*labels]})}
    low, high = grader.get("range") or (0, 1)
    return {**rubric, "low": low, "high": high, "json_schema": _answer("score", {"type": "number"})}


def _check_free(grader: Mapping[str, Any]) -> dict[str, Any]:
    kind = grader.get("type")
    if kind in ("score_model", "label_model"):
        raise ValueError(
            f"a {kind} asks a model: give --rubric FILE and --model JUDGE; several of them, or with others, are an "
            "`assay ensemble`"
        )
    _check_fields(grader)
    if missing := [name for name in _FIELDS[str(kind)] if name != "pass_threshold" and name not in grader]:
        raise ValueError(f"the {kind} has no {missing[0]}")
    if kind == "multi":
        members = {name: _check_free(member) for name, member in _by_name(grader["graders"]).items()}
        if any(member["type"] == "multi" for member in members.values()):
            raise ValueError("a multi grader can't hold another one")
        with contextlib.suppress(ArithmeticError):  # by these values alone
            calculate(grader["calculate_output"], dict.fromkeys(members, 1.0))
        return {**grader, "graders": members}
    for template in (grader["input"], grader["reference"]):
        list(pieces(template))
    for name, values in (("operation", OPERATIONS), ("evaluation_metric", ("fuzzy_match",))):
        if name in grader and grader[name] not in values:
            raise ValueError(f"{name} {grader[name]!r} isn't computed here: there is {', '.join(values)}")
    return dict(grader)


def calculate(formula: str, values: Mapping[str, float]) -> float:
    """`calculate_output` by the values of its graders. Raises `ArithmeticError`, and `ValueError` for no such formula.

    The formula is parsed and never evaluated by Python: names, numbers and the functions of `_FUNCTIONS` are all that it
    may hold.
    """
    try:
        # In OpenAI's formulas ^ is a power; Python would read an exclusive or.
        return _value_of(ast.parse(formula.replace("^", "**"), mode="eval").body, values)
    except SyntaxError as error:
        raise ValueError(f"calculate_output {formula!r} is no formula: {error.msg}") from error


def _value_of(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(int() | float() as number):
            return float(number)
        case ast.Name(name) if name in values:
            return values[name]
        case ast.UnaryOp(sign, operand) if type(sign) in _OPERATORS:
            function, operands = _OPERATORS[type(sign)], [operand]
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATORS:
            function, operands = _OPERATORS[type(operation)], [left, right]
        case ast.Call(ast.Name(name), operands, []) if name in _FUNCTIONS:
            function = _FUNCTIONS[name]
        case _:
            raise ValueError(
                f"calculate_output can't hold {ast.unparse(node)!r}: numbers, {', '.join(values)}, + - * / ^ and "
                f"{', '.join(_FUNCTIONS)}"
            )
    numbers = [_value_of(operand, values) for operand in operands]
    try:
        return float(function(*numbers))
    except ValueError as error:  # such as the root of a negative number
        raise ArithmeticError(str(error)) from error


def _by_name(graders: Mapping[str, Any]) -> Mapping[str, Any]:
    return {graders["name"]: graders} if isinstance(graders.get("type"), str) else graders


def _check_fields(grader: Mapping[str, Any]) -> None:
    kind = str(grader.get("type", ""))
    if kind not in _FIELDS:
        raise ValueError(f"a grader of type {kind!r} can't be run here: there are {', '.join(_FIELDS)}")
    if unknown := sorted(grader.keys() - {"type", "name", *_FIELDS[kind]}):
        raise ValueError(f"the {kind} holds {unknown[0]!r}, which isn't known here: there are {', '.join(_FIELDS[kind])}")


def _turns(turns: Any) -> tuple[str | None, str]:
    # System turn and user's turn as Jinja. Raises `ValueError` for any other turns.
    turns = [turns] if isinstance(turns, Mapping) else turns or []
    # `developer` is OpenAI's newer name of the system turn, which most models' templates don't know.
    roles = ["system" if turn["role"] == "developer" else turn["role"] for turn in turns]
    if roles not in (["user"], ["system"], ["system", "user"]):
        raise ValueError(f"input has turns of {', '.join(roles) or 'nobody'}: a judge gets one of user, after one of system")
    *system, prompt = [_as_jinja(_content(turn["content"])) for turn in turns]
    return (system[0] if system else None), prompt


def _content(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("input holds content that is no text")
    return "".join(texts)


def _as_jinja(template: str) -> str:
    # A grader's template as a rubric's: all that isn't a place of a row is text, whatever Jinja would make of it.
    return "".join(_literal(text) + (f"{{{{ {field_name(name)} }}}}" if name else "") for text, name in pieces(template))


def _literal(text: str) -> str:
    # As a string inside of Jinja where it has Jinja's marks: they are text to OpenAI.
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if "{{" in text or "{%" in text or "{#" in text else text


def _answer(name: str, kind: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"reasoning": {"type": "string"}, name: kind}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
