"""NeMo Curator's judges in YAML, as a recipe: for each a rubric, a filter, and the next judge on what was kept.

After `LLMJudgeWorkflow` of Curator 1.4.0 (nemo_curator/eval/llm_judge/workflow.py). Any key that isn't here is refused.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field, StrictFloat, StrictInt, StrictStr

from actors.errors import SettingsError
from actors.settings.base import Settings
from pipelines.data import storage
from pipelines.settings.assignments import assign, read_assignments
from pipelines.settings.options import leaves, validate
from pipelines.settings.run_settings import ScoreSettings

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_Parameter = Literal["temperature", "top_p", "max_tokens", "timeout", "max_parallel_requests"]
_Value = StrictInt | StrictFloat | StrictStr


class _Dynamo(Settings):
    num_replicas: int = 1
    mode: Literal["aggregated"] = "aggregated"
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)


class _Model(Settings):
    alias: str
    model: str
    served_model_name: str | None = None  # what Dynamo calls it, which nothing here needs
    dynamo_model: _Dynamo = _Dynamo()
    inference_parameters: dict[_Parameter, StrictInt | StrictFloat | None] = Field(default_factory=dict)


class _Score(Settings):
    name: _Name
    description: str
    options: dict[StrictInt, str] | dict[StrictStr, str] = Field(min_length=2)

    @property
    def words(self) -> list[str]:
        # A scored corpus holds numbers, so of options that are words its column has the place of the word, from 0.
        return [option for option in self.options if isinstance(option, str)]

    def read(self, judge: str) -> str:
        # An item of a mapping of Jinja: the option that a judge gave. A prompt has the column as text, hence `int`.
        number = f"row['{judge}_scores']['{self.name}']|int"
        return (
            f"'{self.name}': {{'score': {self.words}[{number}]}}" if self.words else f"'{self.name}': {{'score': {number}}}"
        )


class _Judge(Settings):
    name: _Name
    model_alias: str | None = None
    prompt_path: str
    system_prompt_path: str | None = None
    scores: tuple[_Score, ...] = Field(min_length=1)
    with_trace: Literal["none", "last_message"] = "none"
    extract_reasoning_content: Literal[False] = False


class _Filter(Settings):
    judge: str
    score: str
    operator: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in"]
    value: _Value | list[_Value]


class _Stage(Settings):
    name: str = ""
    judges: tuple[_Judge, ...] = ()
    filters: tuple[_Filter, ...] = ()


class _Execution(Settings):
    stages: tuple[_Stage, ...]


class _File(Settings):
    models: tuple[_Model, ...] = Field(min_length=1)
    execution: _Execution
    filters: tuple[_Filter, ...] = ()


_SQL = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "in", "not_in": "not in"}
_OURS = {"tensor_parallel_size": "tensor_parallel", "pipeline_parallel_size": "pipeline_parallel", "dtype": "dtype"}
# Jinja's tests and filters by which a text comes out as the value would that it is the JSON of.
_OF_TEXT = {
    *("string", "defined", "undefined", "none", "trim", "lower", "upper", "replace", "default", "d", "e", "escape"),
    *("int", "float"),
}
_OF_TYPES = (nodes.For, nodes.If, nodes.CondExpr, nodes.Not, nodes.And, nodes.Test, nodes.Filter, nodes.Compare)
_SHAPE = ("prompt_column", "response_column", "conversation_column", "format")


def curator_recipe(document: object, path: str, assignments: Sequence[str]) -> Mapping[str, Any]:
    """The document of a recipe. Of the assignments, `inputs` and `output` are of the whole, all others of each judge's run.

    OUTPUT/judges/NAME has what a judge gave, OUTPUT/kept/NAME the rows that go on, OUTPUT/rest/NAME others with a reason.
    Raises `SettingsError` for what Assay can't do as Curator does it.
    """
    file = validate(_File, document)
    options = {item.place[1:]: item.value for item in read_assignments(assignments, [*leaves(ScoreSettings, ("score",))])}
    inputs, output = options.pop(("corpus", "inputs"), None), options.pop(("output",), None)
    if inputs is None or output is None:
        raise SettingsError("Curator's file names no rows: give --set inputs=ROWS and --set output=FOLDER")
    # One after another, also those of one stage: each filter comes right after its judge, and later judges read fewer rows.
    judges = [judge for stage in file.execution.stages for judge in stage.judges]
    for names in ([judge.name for judge in judges], *([score.name for score in judge.scores] for judge in judges)):
        if len({*names}) < max(len(names), 1):
            raise SettingsError(f"judges, and scores of a judge, need different names: {', '.join(names) or 'none'}")
    conditions = _conditions([*file.execution.stages, _Stage(filters=file.filters)])
    columns_of_row: Mapping[str, Any] = {}
    steps = list[dict[str, Any]]()
    for position, judge in enumerate(judges):
        rubric, columns = _rubric(judge, judges[:position], path)
        if not steps and not any(place[-1] in _SHAPE for place in options):
            columns_of_row = dict.fromkeys(_SHAPE[:2], columns[0])
        run: Any = {**_run(judge, file.models, rubric), **columns_of_row, "inputs": inputs}
        run |= {"output": f"{output}/judges/{judge.name}", "field": {f"row.{column}": column for column in columns}}
        for place, value in options.items():
            run = assign(ScoreSettings, run, place, value)
        inputs = f"{output}/kept/{judge.name}"
        where = " and ".join(conditions.get(judge.name) or [f"{judge.name}_status = 'scored'"])
        kept = {"scored": run["output"], "output": inputs, "rest": f"{output}/rest/{judge.name}", "where": where}
        steps.append({"score": run, "filter": kept})
    return {**steps[0], "then": steps[1:]}


def _run(judge: _Judge, models: Sequence[_Model], rubric: Mapping[str, Any]) -> dict[str, Any]:
    aliases = {model.alias: model for model in models}
    if (alias := judge.model_alias or models[0].alias) not in aliases:
        raise SettingsError(f"{judge.name}: model_alias {alias} is none of {', '.join(aliases)}")
    model, inference = aliases[alias], aliases[alias].inference_parameters
    arguments, answer = {**model.dynamo_model.engine_kwargs}, inference.get("max_tokens") or 4096
    context = arguments.pop("max_model_len", None)  # of prompt and answer, and Assay's is of the prompt
    return {
        "prefix": f"{judge.name}_",
        "model": model.model,
        "rubric": {**rubric, "max_tokens": answer},
        "temperature": inference.get("temperature"),
        "top_p": inference.get("top_p"),
        "trace": judge.with_trace != "none",
        "max_model_len": context - answer if isinstance(context, int) else context,
        "request_timeout_s": inference.get("timeout"),
        "max_in_flight": inference.get("max_parallel_requests"),
        "replicas": model.dynamo_model.num_replicas,
        **{setting: arguments.pop(name) for name, setting in _OURS.items() if name in arguments},
        "engine_args": arguments,
    }


def _conditions(stages: Sequence[_Stage]) -> dict[str, list[str]]:
    # SQL conditions by the judge whose scores they are of. A kept row meets all, so each is put right after its judge.
    conditions = dict[str, list[str]]()
    scores = dict[tuple[str, str], _Score]()
    for stage in stages:
        scores |= {(judge.name, score.name): score for judge in stage.judges for score in judge.scores}
        for item in stage.filters:
            place, is_list = f"the filter on {item.judge}.{item.score}", isinstance(item.value, list)
            if (score := scores.get((item.judge, item.score))) is None:
                raise SettingsError(f"{place}: no judge before it gives this score")
            values = item.value if isinstance(item.value, list) else [item.value]
            if is_list != item.operator.endswith("in") or (score.words and item.operator[0] in "gl"):
                raise SettingsError(f"{place}: in and not_in take a list, words eq, ne, in or not_in: not {item.operator}")
            if not values or any(value not in score.words if score.words else isinstance(value, str) for value in values):
                raise SettingsError(f"{place}: {item.value!r} isn't of its options, {', '.join(map(repr, score.options))}")
            shown = ", ".join(str(score.words.index(value) if isinstance(value, str) else value) for value in values)
            condition = f"{item.judge}_scores.{item.score} {_SQL[item.operator]} {f'({shown})' if is_list else shown}"
            conditions.setdefault(item.judge, []).append(condition)
    return conditions


def _rubric(judge: _Judge, before: Sequence[_Judge], path: str) -> tuple[dict[str, Any], list[str]]:
    # NeMo Data Designer asks for structured output with a reasoning before each option; so does the schema here.
    properties = dict[str, Any]()
    lines = ["Answer with one JSON object. For each score it has a short reasoning, then one of the score's options:"]
    for score in judge.scores:
        properties |= {f"{score.name}_reasoning": {"type": "string"}, score.name: {"enum": [*score.options]}}
        lines.append(f"\n{score.name}_reasoning, {score.name}: {score.description}")
        lines += [f"- {json.dumps(option, ensure_ascii=False)}: {meaning}" for option, meaning in score.options.items()]
    texts = {"prompt": judge.prompt_path, "system": judge.system_prompt_path}
    templates = {name: _template(os.path.join(os.path.dirname(path), file), before) for name, file in texts.items() if file}
    columns = [*dict.fromkeys(column for _, columns in templates.values() for column in columns)]
    if not columns:
        raise SettingsError(f"{judge.prompt_path} shows no column of the row, so nothing would be judged")
    rubric: dict[str, Any] = {name: text for name, (text, _) in templates.items()}
    instructions = json.dumps("\n".join(lines), ensure_ascii=False)  # a literal of Jinja, too
    rubric |= {"shows": "row", "prompt": f"{rubric['prompt']}\n\n{{{{ {instructions} }}}}"}
    rubric["json_schema"] = {"type": "object", "properties": properties, "required": [*properties]}
    words = {score.name: {word: place for place, word in enumerate(score.words)} for score in judge.scores if score.words}
    return {**rubric, "words": words}, columns


def _shown(value: object) -> object:
    if value is None or isinstance(value, Mapping):
        raise TypeError("it would show null, or all that a judge gave; of a judge there is NAME.SCORE.score")
    return value


_JINJA = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=_shown)


def _mistake(text: str, values: Mapping[str, Any]) -> str:  # why it can't be rendered with these values; empty if it can
    try:
        _JINJA.from_string(text).render(values)
    except Exception as error:  # noqa: BLE001  whatever an expression of the user's raises
        return str(error) or type(error).__name__
    return ""


def _template(path: str, before: Sequence[_Judge]) -> tuple[str, list[str]]:
    """A template of Curator's, in which names stand for a rubric's `row.NAME`, and the columns that it shows, in its order.

    Columns are texts in a rubric. Raises `SettingsError` for a template to which another type of value matters.
    """
    try:
        with storage.open_read(path) as stream:
            text = stream.read().decode().removesuffix("\n")  # as Jinja does by default
        tree = _JINJA.parse(text)
    except (OSError, UnicodeDecodeError, TemplateSyntaxError) as error:
        raise SettingsError(f"the prompt {path} can't be read: {error}") from error
    undeclared = meta.find_undeclared_variables(tree) - _JINJA.globals.keys()
    names = dict.fromkeys(node.name for node in tree.find_all(nodes.Name) if node.name in undeclared)
    judges = {judge.name: judge.scores for judge in before if judge.name in names}
    columns = [name for name in names if name not in judges]
    values: dict[str, Any] = dict.fromkeys(columns, "")
    for name, scores in judges.items():
        values[name] = {score.name: {"score": next(iter(score.options))} for score in scores}
    if mistake := _mistake(text, values):
        raise SettingsError(f"the prompt {path} can't be shown as Curator shows it: {mistake}")
    for node in tree.find_all(_OF_TYPES):
        constants = [item.value for item in node.find_all(nodes.Const)] if isinstance(node, nodes.Compare) else [None]
        if getattr(node, "name", "") in _OF_TEXT or all(isinstance(value, str) for value in constants):
            continue
        for part in node.iter_child_nodes(only=("iter", "test", "node", "left", "right", "expr")):
            if isinstance(part, nodes.Name) and part.name in columns:
                raise SettingsError(f"{path}, line {node.lineno}: {part.name} is text, also of a list, a number or false")
    # Null where the template provides for it; else a row that lacks the column is rejected, and no judge reads "None".
    provides = {name: not _mistake(text, {**values, name: None}) for name in columns}
    sources = {name: f"row['{name}']{'|default(none)' if optional else ''}" for name, optional in provides.items()}
    for name, scores in judges.items():
        sources[name] = f"{{{', '.join(score.read(name) for score in scores)}}}"
    return "".join(f"{{% set {name} = {source} %}}" for name, source in sources.items()) + text, columns
