"""The pages of what goes in and what comes out of it: shapes of rows, benchmarks, and trainers' formats."""

import inspect
import sys
from collections.abc import Iterator, Mapping

from docs.generate.markdown import Page, anchored, code, document, heading, table, text
from pipelines.data.formats import MIXED, PROMPT_SHAPES, SHAPES, Shape, formats
from pipelines.results.evaluation.benchmark import Benchmark
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.exports.trainer_format import ResponseFormat, TrainerFormat
from pipelines.results.exports.trainer_messages import Refusal
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS

REFUSALS: Mapping[Refusal, str] = {
    Refusal.TOOL_TURN: "a turn of a tool, which the format has no place for",
    Refusal.TOOL_CALL: "a tool call, or tools, which the format has no place for",
    Refusal.LATER_SYSTEM_TURN: "a second system turn, or one that doesn't come first",
    Refusal.NOT_ALTERNATING: "turns of user and assistant that don't alternate",
    Refusal.NOT_ONE_TURN: "anything but one turn of the user's before the response",
    Refusal.NO_USER_TURN: "no turn of a user",
    Refusal.NO_QUESTION: "the turn before the response is the system's or the assistant's",
    Refusal.CONTROL_TOKEN: "text that holds one of the control tokens that the trainer writes itself",
    Refusal.MISSING_SCORE: "a named score that the format needs is missing",
    Refusal.AFTER_UNKEPT_TURN: "a judged turn before it isn't kept, and the trainer would train on that turn, too",
}


def pages() -> Iterator[Page]:
    """A page each of the shapes, the benchmarks and the formats."""
    yield Page("input-shapes.md", _shapes())
    yield Page("benchmarks.md", _benchmarks())
    yield Page("trainer-formats.md", _formats())


def _shapes() -> str:
    rows = [(f"[{code(name)}](#{anchored(name)})", text(shape.about), text(shape.needs)) for name, shape in SHAPES.items()]
    prompts = [(code(name), text(shape.about), text(shape.needs)) for name, shape in PROMPT_SHAPES.items()]
    return document(
        "# Input shapes",
        "How a row holds a context and its responses. The shape of a corpus is found by looking at its first rows, or named "
        "with `--format`; rows of any other shape are read by `--prompt-column` and `--response-column`.",
        table(("shape", "what it is", "rows have"), rows),
        *(_shape(shape) for shape in SHAPES.values()),
        heading(2, "Shapes of prompts", "prompts"),
        "What `assay sample` and `assay refine` answer:",
        table(("shape", "what it is", "rows have"), prompts),
        heading(2, code(MIXED), MIXED),
        f"`--format {MIXED}`, for either kind: {text(formats()[MIXED].about)}. In Parquet a null is a field that "
        "the row doesn't have. With `turns: all`, every assistant turn of the rows that are a conversation is "
        "judged, and the responses of the others. A row of no shape is `rejected: missing_field`, one of several "
        "`rejected: two_shapes`. The column `shape` names each row's, and the summary counts them.",
    )


def _shape(shape: Shape) -> str:
    turns = "every assistant turn with `turns: all`" if shape.read_turns else "its responses as they are; no `turns: all`"
    return document(
        heading(2, code(shape.name), anchored(shape.name)),
        f"{_capital(text(shape.about))}. Judged: {turns}.",
        f"```text\n{shape.layout}\n```",
    ).rstrip()


def _benchmarks() -> str:
    known = benchmarks().values()
    rows = [
        (
            f"[{code(benchmark.name)}](#{anchored(benchmark.name)})",
            text(benchmark.title),
            ", ".join(map(code, benchmark.shapes)),
        )
        for benchmark in known
    ]
    return document(
        "# Benchmarks",
        "`assay evaluate SCORED --as NAME` grades a scored corpus by its authors' rules. Without `--as`, the benchmark is "
        "found by the rows' shape and fields.",
        table(("benchmark", "what it is", "shapes"), rows),
        *(_benchmark(benchmark) for benchmark in known),
    )


def _benchmark(benchmark: Benchmark) -> str:
    rules = inspect.cleandoc(sys.modules[_module_of(benchmark)].__doc__ or "").partition("\n")[2].strip()
    subsets = [(code(name), f"{count:,}") for name, count in benchmark.expected.items()]
    return document(
        heading(2, code(benchmark.name), anchored(benchmark.name)),
        f"{_capital(text(benchmark.title))}.",
        text(rules),
        f"Source: {text(benchmark.source)}.",
        *([table(("subset", "items in the published file"), subsets)] if subsets else []),
    ).rstrip()


def _module_of(benchmark: Benchmark) -> str:
    return f"{benchmarks.__module__}.{benchmark.name.replace('-', '_')}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _formats() -> str:
    pairs = [_format(made) for made in PAIR_FORMATS.values()]
    responses = [(*_format(made), _needs(made)) for made in RESPONSE_FORMATS.values()]
    return document(
        "# Trainer formats",
        "What is made of a scored corpus for training, in each trainer's exact shape.",
        heading(2, "Pairs", "pairs"),
        "`assay pairs SCORED OUTPUT --for NAME`:",
        table(("format", "what it is", "source"), pairs),
        heading(2, "Responses", "responses"),
        "`assay export SCORED OUTPUT --for NAME`:",
        table(("format", "what it is", "source", "needs"), responses),
        heading(2, "What is left out", "refusals"),
        "A conversation that a format can't hold is left out, and counted by its reason. It is never changed until it fits.",
        table(("reason", "what it says"), ((code(reason), text(meaning)) for reason, meaning in REFUSALS.items())),
    )


def _format(made: TrainerFormat) -> tuple[str, str, str]:
    return code(made.name), text(made.about), text(made.source)


def _needs(made: ResponseFormat) -> str:
    scores = [f"the scores {', '.join(map(code, made.needs_scores))}"] if made.needs_scores else []
    return "; ".join([*(["`--threshold`"] if made.needs_threshold else []), *scores])
