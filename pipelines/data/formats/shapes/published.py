"""Rows of data sets and benchmarks with a prompt in one field and its responses in others."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason
from pipelines.data.formats.content import conversation, entries, field, has_all, is_conversation, question, text
from pipelines.data.formats.declare import Responses, Values, answers, in_fields, in_list, value_of
from pipelines.data.formats.extra_ids import embedded
from pipelines.data.formats.rows import Row, RowRequests, Shape
from pipelines.data.formats.shapes.answers import holds, is_rated

_SIDES = ("chosen", "rejected")
# The responses of a row of HelpSteer3, by its part.
_SETS: tuple[tuple[str, ...], ...] = (
    ("response1", "response2"),  # preference, feedback
    ("original_response", "edited_response"),  # edit
    ("original_response", "good_edited_response", "bad_edited_response"),  # edit_quality
)


def _is_helpsteer3(row: Row) -> bool:
    return is_conversation(row.get("context")) and any(has_all(row, *keys) for keys in (*_SETS, ("response", "principle")))


def _helpsteer3_responses(row: Row) -> Values:
    # The responses by their keys; the one that is judged by a principle is `final`.
    if not any(key in row for keys in _SETS for key in keys):
        return in_fields({}, single="response").of(row)
    # Without a complete set, the one with the most keys counts: its missing responses are rejected instead of lost.
    sets = [keys for keys in _SETS if has_all(row, *keys)]
    sets = sets or [max(_SETS, key=lambda keys: sum(key in row for key in keys))]
    names = dict.fromkeys(key for keys in _SETS for key in keys if key in row or keys in sets)
    return in_fields({key: key for key in names}).of(row)


def _with_principle(shape: Shape) -> Shape:
    def read(row: Row) -> RowRequests:
        row_requests = shape.read(row)
        if any(key in row for keys in _SETS for key in keys):
            return row_requests
        principles = (text(field(row, "principle")),)
        requests = tuple(replace(request, principles=principles) for request in row_requests.requests)
        return replace(row_requests, requests=requests)

    return replace(shape, read=read)


def _several(side: object) -> bool:
    return isinstance(side, list) and bool(side) and not any(isinstance(item, dict) for item in side)


def _is_rm_bench(row: Row) -> bool:
    sides = [row.get(side) for side in _SIDES]  # lists of turns would be a preference pair
    return row.get("prompt") is not None and any(map(_several, sides)) and not any(map(is_conversation, sides))


def _rm_bench_responses(row: Row) -> Values:
    # A side that isn't a list, or is empty, is a response by its own name: it must not vanish.
    values: dict[str, Callable[[], object]] = {}
    for side in _SIDES:
        several = isinstance(row.get(side), list) and bool(row[side])
        values |= (in_list(side) if several else in_fields({side: side})).of(row)
    return values


_BEST, _LOSERS = "bon_best", "loser_list"


def _is_rmb(row: Row) -> bool:
    has_sides = has_all(row, "chosen", "reject") or has_all(row, _BEST, _LOSERS)
    return is_conversation(row.get("conversation_input")) and has_sides


def _rmb_responses(row: Row) -> Values:
    sides: dict[str, object] = {}
    if _LOSERS in row:
        losers = enumerate(entries(row[_LOSERS]))
        sides = {"chosen[0]": row.get(_BEST), **{f"rejected[{index}]": loser for index, loser in losers}}
    if not sides or "chosen" in row or "reject" in row:
        sides |= {"chosen": row.get("chosen"), "rejected": row.get("reject")}
    return {name: partial(_rmb_answer, side) for name, side in sides.items()}


def _rmb_answer(side: object) -> object:
    if side is None:  # in Parquet a row without this side has the column all the same
        raise Rejected(Reason.MISSING_FIELD, "a side without a response")
    return value_of(side, "answer")


def _embedded_turns(prompt: object) -> tuple[Message, ...]:
    # In 29 % of HelpSteer2 the prompt holds the turns before it, in NeMo's template.
    return question(prompt) if isinstance(prompt, list) else conversation(embedded(text(prompt)))


def _is_processbench(row: Row) -> bool:
    steps = row.get("steps")
    return isinstance(row.get("problem"), str) and isinstance(steps, list) and all(isinstance(step, str) for step in steps)


def _solution(steps: object) -> str:
    """The steps as one response, in which blank lines part them.

    A blank line inside a step would part it, too, and every later step would be compared with another one's label: it is
    left out.
    """
    return text("\n\n".join(map(_step, entries(steps))))


def _step(step: object) -> str:
    if not isinstance(step, str):
        raise Rejected(Reason.WRONG_TYPE, "a step that isn't text")
    if not (lines := [line for line in step.split("\n") if line.strip()]):
        raise Rejected(Reason.EMPTY_CONTENT, "a step without text")
    return "\n".join(lines)


SHAPES = (
    answers(
        "helpsteer2",
        about="a prompt and a rated response, or two compared ones (HelpSteer, HelpSteer2)",
        needs=(
            "`prompt`, with `response` and the five attributes from `helpfulness` to `verbosity`, or `response_1`, "
            "`response_2`"
        ),
        layout=(
            '{"prompt": str, "response": str, "helpfulness": int, ...four more}, the last ones lists in `disagreements`\n'
            '{"prompt": str, "response_1": str, "response_2": str, "preference_strength": int, ...}, below 0 where the '
            "first is better"
        ),
        looks_like=lambda row: (
            isinstance(row.get("prompt"), str) and (has_all(row, "response_1", "response_2") or is_rated(row))
        ),
        prompt="prompt",
        turns=_embedded_turns,
        responses=in_fields({key: key for key in ("response_1", "response_2")}, single="response"),
    ),
    _with_principle(
        answers(
            "helpsteer3",
            about="a conversation and the responses to it: compared, edited, or judged by a principle (HelpSteer3)",
            needs=(
                "`context`, a list of messages, with `response1` and `response2`, `original_response` and its edits, or "
                "`response` and `principle`"
            ),
            layout=(
                '{"context": messages, "response1": str, "response2": str, "overall_preference": int, ...}, below 0 where '
                "the first is better\n"
                '{"context": messages, "original_response": str, "edited_response": str, ...}, or "good_edited_response" '
                'and "bad_edited_response"\n'
                '{"context": messages, "response": str, "principle": str, ...}'
            ),
            looks_like=_is_helpsteer3,
            prompt="context",
            responses=Responses(("response", *dict.fromkeys(key for keys in _SETS for key in keys)), _helpsteer3_responses),
        )
    ),
    answers(  # `custom_system_prompt` isn't shown: it isn't the user's, and all completions answer the one instruction
        "ultrafeedback",
        about="an instruction and several models' responses to it (UltraFeedback)",
        needs="`instruction`, and `completions`, a list of {model, response}",
        layout='{"instruction": str, "completions": [{"model": str, "response": str, ...}, ...], ...}',
        looks_like=lambda row: isinstance(row.get("instruction"), str) and holds(row.get("completions"), "response"),
        prompt="instruction",
        responses=in_list("completions", "response"),
    ),
    answers(
        "judgebench",
        about="JudgeBench: a question with responses A and B",
        needs="`question`, `response_A` and `response_B`",
        layout='{"question": str, "response_A": str, "response_B": str, "label": "A>B" | "B>A", ...}',
        looks_like=lambda row: has_all(row, "question", "response_A", "response_B"),
        prompt="question",
        responses=in_fields({"A": "response_A", "B": "response_B"}),
    ),
    answers(
        "rm-bench",
        about="several chosen and several rejected responses to one prompt (RM-Bench, RewardBench 2)",
        needs="`prompt`, text or messages, and `chosen` and `rejected`, lists of text",
        layout=(
            '{"prompt": str | messages, "chosen": [str, ...], "rejected": [str, ...]}\n\n'
            "RM-Bench has three of each, in order of style; RewardBench 2 has lists of any length. Either side may also\n"
            "be one string, but not both: that is a preference pair."
        ),
        looks_like=_is_rm_bench,
        prompt="prompt",
        responses=Responses(_SIDES, _rm_bench_responses),
        text=text,
    ),
    answers(
        "rmb",
        about="a conversation with a chosen and a rejected response, or with the best of several and the others (RMB)",
        needs="`conversation_input`, a list of messages, with `chosen` and `reject`, or with `bon_best` and `loser_list`",
        layout=(
            '{"conversation_input": messages, "chosen": {"llm_name", "answer"}, "reject": the same, ...}\n'
            '{"conversation_input": messages, "bon_best": {"llm_name", "answer"}, "loser_list": [the same, ...], ...}'
        ),
        looks_like=_is_rmb,
        prompt="conversation_input",
        responses=Responses(("chosen", "reject", _BEST, _LOSERS), _rmb_responses),
    ),
    answers(  # with an `instruction` the input would only be a part of the question
        "llmbar",
        about="an input and two outputs to it (LLMBar)",
        needs="`input`, text, and `output_1` and `output_2`",
        layout='{"input": str, "output_1": str, "output_2": str, "label": 1 | 2}, the number of the better one',
        looks_like=lambda row: (
            isinstance(row.get("input"), str) and has_all(row, "output_1", "output_2") and row.get("instruction") is None
        ),
        prompt="input",
        responses=in_fields({key: key for key in ("output_1", "output_2")}),
    ),
    answers(
        "processbench",
        about="a problem and the steps of its solution (ProcessBench)",
        needs="`problem`, text, and `steps`, a list of text",
        layout='{"problem": str, "steps": [str, ...], "label": int, ...}, the first step that is wrong',
        looks_like=_is_processbench,
        prompt="problem",
        responses=in_fields({}, single="steps"),
        text=_solution,
    ),
)
