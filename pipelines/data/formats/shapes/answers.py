"""Rows with a prompt in one field and its responses in others, as people and trainers write them."""

from actors.records import Message
from pipelines.data.formats.content import (
    conversation,
    entries,
    field,
    has_all,
    is_conversation,
    is_message,
    is_text_or_turns,
)
from pipelines.data.formats.declare import Responses, Values, answers, in_fields, in_list
from pipelines.data.formats.rows import Row
from pipelines.data.formats.shapes.responses import are_items

_ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
# Fields of other shapes with what is judged: `responses` beside one of these is something else that such a row carries.
_OTHER_RESPONSES = (
    *("response", "response_1", "response_2", "completion", "output", "messages", "conversations"),
    *("chosen", "rejected", "chosen_response", "rejected_response"),
)


def is_rated(row: Row) -> bool:
    """Whether this is HelpSteer's: a response with all five attributes, beside which `prompt` holds turns, too."""
    return has_all(row, "response", *_ATTRIBUTES)


def _is_kto(row: Row) -> bool:  # NeMo-Aligner's: one response, and which side it is
    return "response" in row and row.get("preference") in ("chosen", "rejected")


def _is_prompt_response(row: Row) -> bool:
    response = row.get("response")
    plain = is_text_or_turns(row.get("prompt")) and (isinstance(response, str) or is_message(response))
    return plain and not is_rated(row) and not _is_kto(row)


def _is_prompt_responses(row: Row) -> bool:
    responses = row.get("responses")
    several = isinstance(responses, list) and any(isinstance(response, str) for response in responses)
    return is_text_or_turns(row.get("prompt")) and several and all(row.get(key) is None for key in _OTHER_RESPONSES)


def _is_response(value: object) -> bool:
    return is_text_or_turns(value) or is_message(value)


def holds(value: object, key: str) -> bool:
    """Whether a value is a list in which at least one object has the key."""
    return isinstance(value, list) and any(isinstance(element, dict) and key in element for element in value)


def _ranked(row: Row) -> Values:
    # Two responses of a row can't have one name, so equal or missing ranks are no names.
    completions = in_list("completions", "completion").of(row)
    elements = entries(field(row, "completions"))
    ranks = [element.get("rank") if isinstance(element, dict) else None for element in elements]
    if all(type(rank) is int for rank in ranks) and len(set(ranks)) == len(ranks):
        return {f"rank[{rank}]": value for rank, value in zip(ranks, completions.values(), strict=True)}
    return completions


def _openai_turns(given: object) -> tuple[Message, ...]:
    return conversation(given.get("messages") if isinstance(given, dict) else given)


SHAPES = (
    answers(
        "prompt-response",
        about="a prompt and one response to it, with an optional system prompt",
        needs="`prompt`, text or messages, and `response`, text or a message; `system` is optional",
        layout='{"prompt": str | messages, "response": str | message, "system"?: str}',
        looks_like=_is_prompt_response,
        prompt="prompt",
        responses=in_fields({}, single="response"),
    ),
    answers(
        "prompt-responses",
        about="a prompt and a list of responses to it, with an optional system prompt",
        needs="`prompt`, text or messages, and `responses`, a list of text; `system` is optional",
        layout='{"prompt": str | messages, "responses": [str, ...], "system"?: str}',
        looks_like=_is_prompt_responses,
        prompt="prompt",
        responses=in_list("responses"),
    ),
    answers(
        "prompt-completion",
        about="a prompt and one completion of it (TRL's rows for KTO and for fine-tuning)",
        needs="`prompt` and `completion`, text or messages",
        layout='{"prompt": str | messages, "completion": str | messages, "label"?: bool}',
        looks_like=lambda row: is_text_or_turns(row.get("prompt")) and _is_response(row.get("completion")),
        prompt="prompt",
        responses=in_fields({}, single="completion"),
        may_be_turns=True,
    ),
    answers(  # with an `instruction` the input would only be a part of the question
        "input-output",
        about="an input and one output to it (Nemotron's post-training data, OpenRLHF)",
        needs="`input`, text or messages, and `output`; `system_prompt` is optional",
        layout='{"input": str | messages, "output": str | message | messages, "system_prompt"?: str}',
        looks_like=lambda row: (
            is_text_or_turns(row.get("input"))
            and _is_response(row.get("output"))
            and not are_items(row.get("output"))
            and row.get("instruction") is None
        ),
        prompt="input",
        responses=in_fields({}, single="output"),
        may_be_turns=True,
    ),
    answers(
        "openai-preference",
        about="messages and a preferred and another output (OpenAI's preference files)",
        needs="`input`, with `messages`, and `preferred_output` and `non_preferred_output`, lists of messages",
        layout='{"input": {"messages": [turn, ...]}, "preferred_output": [turn, ...], "non_preferred_output": [turn, ...]}',
        looks_like=lambda row: (
            isinstance(inner := row.get("input"), dict)
            and is_conversation(inner.get("messages"))
            and has_all(row, "preferred_output", "non_preferred_output")
        ),
        prompt="input",
        turns=_openai_turns,
        responses=in_fields({"chosen": "preferred_output", "rejected": "non_preferred_output"}),
        may_be_turns=True,
    ),
    answers(
        "nemo-preference",
        about="NeMo-Aligner's rows for DPO and RPO (two responses) and for KTO (one)",
        needs="`prompt`, with `chosen_response` and `rejected_response`, or with `response` and `preference`",
        layout=(
            '{"prompt": str | messages, "chosen_response": str | message, "rejected_response": the same}\n'
            '{"prompt": str | messages, "response": str | message, "preference": "chosen" | "rejected"}\n\n'
            "Strings are written out in NeMo's template: a prompt ends with the assistant's header, a response with\n"
            '"\\n<extra_id_1>".'
        ),
        looks_like=lambda row: (
            row.get("prompt") is not None and (has_all(row, "chosen_response", "rejected_response") or _is_kto(row))
        ),
        prompt="prompt",
        responses=in_fields({"chosen": "chosen_response", "rejected": "rejected_response"}, single="response"),
    ),
    answers(
        "nemo-rl",
        about="ranked completions of a conversation (NeMo-RL)",
        needs="`context`, a list of messages, and `completions`, a list of {rank, completion}",
        layout='{"context": messages, "completions": [{"rank": 0, "completion": messages}, ...]}',
        looks_like=lambda row: is_conversation(row.get("context")) and holds(row.get("completions"), "completion"),
        prompt="context",
        responses=Responses(("completions",), _ranked),
        may_be_turns=True,
    ),
)
