"""The page of what `--json` prints: the type of each command's document, with the words that its source has for it.

Most are the commands' summaries. A document that is put together by hand has its type here; a test compares all of them with
what the commands print.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, NamedTuple, NotRequired

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from docs.generate.markdown import Page, anchored, code, document, heading, paragraphs, table, text
from docs.generate.scored_corpus import SUMMARY
from pipelines.cli.plain_console import JSON_VERSION, JSON_VERSION_KEY
from pipelines.cli.result_status import ResultStatus
from pipelines.cli.status import RunStatus
from pipelines.folders.run_folder.examples import Example
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.results.certificates.certificate import Certificate
from pipelines.results.comparison.results import Differences
from pipelines.results.evaluation.gate import BaselineComparison
from pipelines.results.evaluation.results import Results
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.filtering.filter_step import FilterSummary
from pipelines.results.filtering.label_sample import DrawnLabels
from pipelines.results.html_report.build import WrittenReport
from pipelines.results.hub.upload import Upload
from pipelines.run.sampling.refine_prompts import RefineSummary
from pipelines.run.sampling.sample_prompts import SampleSummary
from pipelines.workflows.cascades.score_cascade import CascadeFigures
from pipelines.workflows.ensembles.z_scores import EnsembleAgreement
from pipelines.workflows.rescoring.verify_folder import VerifySummary

Schema = dict[str, Any]


def _object(kind: Any, also: Mapping[str, Any] | None = None, maybe: Sequence[str] = (), without: Sequence[str] = ()) -> Any:
    """The JSON object of the fields of a class: with some more, of which some `maybe` aren't there, `without` others."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(kind)} | dict(also or {})
    hints = {name: NotRequired[hint] if name in maybe else hint for name, hint in fields.items() if name not in without}
    make: Any = TypedDict
    made = make(kind.__name__, hints)
    made.__doc__ = kind.__doc__
    made.source = kind
    return made


class Checked(TypedDict):
    """A model's self-test, for a report of a fault."""

    model: str
    versions: dict[str, str | None]
    python: str
    platform: str
    checks: list[str]
    """The checks that passed."""
    warnings: list[str]
    """What passed and is still likely wrong, such as a judge that prefers a wrong answer."""
    error: str | None
    """What the check that didn't pass says; the exit code is that of the error."""


class Explained(TypedDict):
    """What is known of a model, in words."""

    model: str
    family: str
    what_it_is: str
    prompt_form: str
    read: str
    range: str
    order_of_responses: str
    trained_on: str
    licence: str
    limits: str
    """What else its card restricts, such as commercial use or a system turn."""
    source: str
    reward: str
    judgements: NotRequired[str]
    """Of a judge."""
    architecture: NotRequired[str]
    """This and the next three: where the model's files are on this machine."""
    outputs_of_the_head: NotRequired[list[str]]
    """Of a reward head."""
    longest_prompt: NotRequired[int]
    precision: NotRequired[str]


class RowCounts(TypedDict):
    """Input rows, and their responses by status."""

    rows: int
    scored: int
    rejected: int
    failed: int


class Retried(TypedDict):
    """The responses of a folder that were scored again."""

    retried: dict[str, int]
    """By the reason that they had."""
    now: dict[str, int]
    """By the outcome that they have."""
    before: RowCounts
    """Of the whole folder."""
    after: RowCounts


class Compared(TypedDict):
    """Evaluations beside those of a baseline."""

    comparisons: list[BaselineComparison]


class PlannedLayout(TypedDict):
    """How the GPUs of an engine share a model."""

    tensor_parallel: int
    pipeline_parallel: int
    gpus: int
    arithmetic: str
    """What a GPU holds, as text."""
    options: NotRequired[str]
    """The options of `score` for it, without a corpus."""


class PlannedFile(TypedDict):
    """An input file."""

    name: str
    size: int
    fingerprint: str


class Speed(TypedDict):
    """Tokens a second that an engine reads and writes, and where the figure is from."""

    read: float
    written: float | None
    source: str
    low: float
    """The true speed is expected between so many times these figures, and `high` times."""
    high: float


class Interval(TypedDict):
    """A number with its 95 % interval; all three are equal if it is exact."""

    value: float
    low: float
    high: float


class Usage(TypedDict):
    """Prompt tokens that a policy and a judge read, and those that came from a prefix cache; in this session alone."""

    policy: int
    policy_cached: int
    judge: int
    judge_cached: int
    retries: int
    """How often an endpoint was asked again."""


class PlannedRun(TypedDict):
    """What a run will take. What isn't known is null."""

    model: str
    identity: dict[str, Any]
    """What decides the numbers, as in the manifest of a scored corpus."""
    files: list[PlannedFile]
    left_out: list[str]
    """Files in the input's folders that aren't read."""
    looked: dict[str, Any]
    """How many rows were looked at, and whether the totals are `exact`."""
    tokens: Interval
    """Prompt tokens, as `prompt_tokens` of a scored corpus."""
    rows: Interval
    responses: Interval
    read_tokens: Interval
    """Tokens of all forward passes."""
    prompts: Interval
    """Requests to an engine."""
    rejected: Interval
    truncated: Interval
    reasons: dict[str, float]
    """Responses that will have no reward, by reason."""
    lengths: dict[str, int]
    """Quantiles of a response's prompt tokens, and the `longest`."""
    max_model_len: int
    context: int
    precision: str
    part_rows: int
    parts: Interval
    layout: PlannedLayout | None
    gpus: int
    engines: int
    speed: Speed | None
    start_s: float | None
    """How many seconds an engine takes to start."""
    written_tokens: Interval | None
    """What a judge will write."""
    work_s: Interval | None
    """Seconds of all engines working beside each other."""
    gpu_hours: Interval | None
    cost: Interval | None
    """In the currency of `gpu_price`, which is for a GPU and hour."""
    least_s: Interval | None
    """A lower bound: all tokens at the card's peak."""
    least_source: str | None
    gpu_price: float | None
    assumptions: list[str]


class Output(NamedTuple):
    """What commands print in a case (`when`; empty: always)."""

    commands: tuple[str, ...]
    when: str
    document: Any
    more: tuple[str, ...] = ()
    """The keys that it has beside those of `score`."""


_WORDS: Mapping[type, Mapping[str, str]] = {
    FilterSummary: {
        "rows": "Input rows that were read.",
        "responses": "Their responses.",
        "kept": "Responses that are kept.",
        "kept_rows": "Input rows with at least one kept response.",
        "not_kept": "How many of each reason: `condition`, `no_value`, a selection's, or why there is no reward.",
        "selection": "What --top-fraction, --quantile or --top-k came to; null without them.",
    },
    ExportSummary: {
        "groups": "Prompts or rows with a candidate.",
        "candidates": "Responses that were read.",
        "unscored": "Responses without a reward, which aren't candidates.",
        "rows": "Rows that were written.",
        "left": "What wasn't made, by reason.",
    },
    Example: {
        "outcome": "A reason, or `scored`.",
        "row": "As in the parts.",
        "response": "Its name in the row.",
        "detail": "What was wrong, or what a judge wrote, cut to its ends; may be empty.",
        "reward": "What was read of a judge's text.",
    },
    RunStatus: {
        "share": "How much of the input is done, from 0 to 1.",
        "last_part_ago": "Seconds since the last part was written.",
        "responses_per_s": "The speed over the newest parts.",
        "eta": "Seconds to go at that speed.",
    },
    ResultStatus: {
        "command": "The command that made the result.",
        "description": "Its settings, in words.",
        "source_state": "What became of the scored corpus since; null of an evaluation.",
    },
    VerifySummary: {
        "bad": "The problem of each bad part, by its name.",
        "strays": "Other files among the parts.",
        "gaps": "What is missing of the input, in words.",
    },
    Results: {
        "paired": "Every two models on the items that both have a grade for.",
        "assay_results": "The version of `results.json`, which holds the same.",
        "settings": "Those of the command.",
    },
    Differences: {
        "moves": "The responses that moved most.",
        "examples": "Some responses of each kind that the counts speak of.",
        "assay_diff": "The version of `diff.json`, which holds the same.",
    },
}
"""Of fields that the source says nothing of below them."""

_PROMISES = """\
- Keys may be added without a new version, and so may reasons, states and other names that are values: pass over what you
  don't know.
- The version rises, with an entry in the changelog, when a key goes, is renamed, or gets another type or meaning.
- The [exit code](exit-codes.md) says whether the command succeeded. With 2 and 3 there is no output (but of `check`), and
  the message is on standard error. With 4 and 5 the object comes before the message: of `score` where nothing was scored, of
  `verify`, `diff`, `certify` and `evaluate --against`.
- `run` prints the object of each step on a line of its own, in their order, and `status --watch` prints one for each look.
- `assay schema` prints the JSON Schema of recipes. [HTTP](http.md) has the bodies of the endpoint, and
  [Scored corpus](scored-corpus.md) the columns of the parts."""


@functools.cache
def outputs() -> Sequence[Output]:
    """The documents of all commands that have `--json`, but for `run`, which prints those of its steps."""
    hub = {"hub": Upload}
    kept = _object(FilterSummary, hub, maybe=("made_up", "left_fields", "mixed", "several", "hub"))
    maybe = ("made_up", "left_fields", "mixed", "taken", "labels")
    export = _object(ExportSummary, hub, maybe=(*maybe, "hub"), without=("row_types",))
    scored = _object(Summary)
    writers = {
        kind.section: _object(kind, {"usage": Usage}, maybe=("causes",), without=("scored",))
        for kind in (SampleSummary, RefineSummary)
    }
    ensemble = {"agreement": EnsembleAgreement, "members": GenericAlias(dict, (str, scored))}
    cascade = {"cascade": CascadeFigures, "members": GenericAlias(dict, (str, scored))}
    return (
        Output(("score",), "", scored),
        Output(("ensemble",), "", _object(Summary, ensemble), ("agreement", "members")),
        Output(("cascade",), "", _object(Summary, cascade), ("cascade", "members")),
        Output(("label-sample",), "", _object(DrawnLabels)),
        Output(("sample",), "", _object(Summary, {"sampling": writers["sampling"]}), ("sampling",)),
        Output(("refine",), "", _object(Summary, {"refining": writers["refining"]}), ("refining",)),
        Output(("filter",), "", kept),
        Output(("choose", "pairs", "export"), "", export),
        Output(("upload",), "", _object(Upload)),
        Output(("report",), "", _object(WrittenReport)),
        Output(("diff",), "", _object(Differences, {"assay_diff": int})),
        Output(("status",), "of a run", _object(RunStatus)),
        Output(("status",), "of another command's result", _object(ResultStatus)),
        Output(("verify",), "", _object(VerifySummary)),
        Output(("retry",), "", Retried),
        Output(("evaluate",), "", _object(Results, {"assay_results": int, "settings": dict[str, Any]})),
        Output(("evaluate",), "with `--against`", Compared),
        Output(("certify",), "", _object(Certificate)),
        Output(("plan",), "of a corpus", PlannedRun),
        Output(("plan",), "of a model alone", PlannedLayout),
        Output(("check",), "", Checked),
        Output(("models explain",), "", Explained),
    )


def schemas(command: str) -> list[Schema]:
    """The JSON Schema of each document that a command may print: these keys and no others."""
    return [_schema(output.document) for output in outputs() if command in output.commands]


def pages() -> Iterator[Page]:
    """The page."""
    types: dict[str, Schema] = {}
    sections = [block for output in outputs() for block in _section(output, types)]
    yield Page(
        "json-outputs.md",
        document(
            "# JSON outputs",
            "With `--json` a command prints one line to standard output, a JSON object; progress and messages are on "
            f"standard error. Every object begins with {code(JSON_VERSION_KEY)}, the version of the form that this page "
            f"describes: {JSON_VERSION}.",
            _PROMISES,
            *sections,
            heading(2, "Types", "types"),
            *(
                block
                for name, schema in sorted(types.items())
                for block in (heading(3, name, f"type-{anchored(name)}"), *_fields(schema))
            ),
        ),
    )


class _Documented(GenerateJsonSchema):
    """Classes as objects of exactly their fields, each with the words that stand below it in the source."""

    def dataclass_schema(self, schema: Any) -> Schema:
        return _documented(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: Any) -> Schema:
        return _documented(super().typed_dict_schema(schema), getattr(schema["cls"], "source", schema["cls"]))

    def field_is_required(self, field: Any, total: bool) -> bool:
        return bool(field.get("required", total)) if field["type"] == "typed-dict-field" else True


def _documented(schema: Schema, kind: type) -> Schema:
    words = SUMMARY if kind is Summary else {**_field_docstrings(kind), **_WORDS.get(kind, {})}
    for name, field in schema["properties"].items():
        field["description"] = words.get(name, "")
    return {**schema, "additionalProperties": False, "description": inspect.cleandoc(kind.__doc__ or "")}


def _field_docstrings(kind: type) -> dict[str, str]:
    """The docstrings that stand below the fields of a class and of those that it extends."""
    words: dict[str, str] = {}
    for each in reversed(
        [each for each in kind.__mro__ if each.__module__.split(".")[0] in ("actors", "docs", "pipelines")]
    ):
        (source,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(source, ast.ClassDef)
        for field, below in itertools.pairwise(source.body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                words[ast.unparse(field.target)] = str(below.value.value)
    return words


def _schema(kind: Any) -> Schema:
    schema = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Documented)
    schema["properties"] = {JSON_VERSION_KEY: {"const": JSON_VERSION}, **schema["properties"]}
    schema["required"] = [JSON_VERSION_KEY, *schema["required"]]
    return schema


def _section(output: Output, types: dict[str, Schema]) -> Iterator[str]:
    schema = _schema(output.document)
    for name, kind in schema.get("$defs", {}).items():
        assert types.setdefault(name, kind) == kind, f"two types are called {name}"
    title = ", ".join(code(f"assay {command}") for command in output.commands) + (output.when and f" {output.when}")
    yield heading(2, title, anchored(f"{'-'.join(output.commands)} {output.when}"))
    if output.more:
        yield "All keys of [`assay score`](#score), and:"
        schema = schema | {"description": "", "properties": {name: schema["properties"][name] for name in output.more}}
    yield from _fields(schema)


def _fields(schema: Schema) -> Iterator[str]:
    yield paragraphs(_of_json(schema.get("description", "")))
    if "properties" not in schema:
        yield _type(schema)
        return
    rows = [
        (
            code(name),
            _type(field),
            "yes" if name in schema.get("required", ()) else "",
            text(_of_json(field.get("description", ""))),
        )
        for name, field in schema["properties"].items()
        if name != JSON_VERSION_KEY
    ]
    yield table(("key", "type", "always", "what it is"), rows)


def _of_json(words: str) -> str:
    """Words about a value of Python's, about JSON's."""
    return re.sub(r"\bNone\b", "null", words)


def _type(schema: Schema) -> str:
    """A type in words, with links to those that have a section."""
    match schema:
        case {"$ref": str(place)}:
            name = place.rsplit("/", 1)[-1]
            return f"[{name}](#type-{anchored(name)})"
        case {"anyOf": kinds}:
            return " or ".join(map(_type, kinds))
        case {"enum": values}:
            return ", ".join(map(code, values))
        case {"type": "array", "prefixItems": kinds}:
            return f"list of {len(kinds)}: {', '.join(map(_type, kinds))}"
        case {"type": "array"}:
            return f"list of {_type(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(kind)}:
            return f"map of {_type(kind)}"
        case {"type": "object"}:
            return "object"
        case _:
            return str(schema.get("type", "any"))
