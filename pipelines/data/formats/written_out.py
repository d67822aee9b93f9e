"""Conversations written out as one text, where the turns of a conversation are expected.

Datasets that were made for one model have prompts in its chat template, or as a transcript: judged as the words of a single
user's turn, their reward would mean nothing. Whether a corpus is written so is decided for all of its rows, from a sample:
a single person may well quote a template.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from actors.errors import Rejected, SourceError
from actors.records import Message, Reason, Role, ScoreRequest
from actors.text.reasoning import is_only_marks, opened_by
from pipelines.data.formats.chat_templates import NEMO_ROWS, TEMPLATES, TRANSCRIPTS, ParsedPrompt, PolicyTemplate
from pipelines.data.formats.content import (
    content_key,
    is_message,
    refuse_answered,
    role_of,
    split_system,
    text,
    with_opening_system,
)
from pipelines.data.formats.media import text_of_turn
from pipelines.data.formats.rows import RowRequests, Unjudgeable
from pipelines.data.formats.values import describe

# NeMo's rows come before the template of its models, which would cut a line break off the system turn.
FORMS = tuple(dict.fromkeys((NEMO_ROWS, *TEMPLATES.values(), *TRANSCRIPTS.values())))
# Beginnings of texts in forms that aren't taken apart: of Alpaca, of Vicuna 1.1, of Llama 3 without its tokens, and of
# DeepSeek-R1-Zero, whose first sentence others have as a system prompt.
_OTHERS = re.compile(
    r"\s*(?:Below is an instruction that describes a task|A chat between a curious |### Instruction:|system\n\n"
    r"|A conversation between User and Assistant\..*\bAssistant:)",
    re.DOTALL,
)
# Beginnings of templates that aren't taken apart: tokens with a role in the last one or behind it (`<|start|>system` of
# gpt-oss, `<|turn>user` of Gemma 4, `<|START_OF_TURN_TOKEN|><|USER_TOKEN|>` of Cohere; also of Llama 4, Granite, Kimi and
# Apertus), and those of GLM, Ling, Nemotron Nano, MiniMax, OpenChat and LongCat.
_OTHER_TEMPLATES = re.compile(
    r"\s*(?:<s>|<bos>|<BOS_TOKEN>)?(?:(?:<[|｜][^<>\s]{1,40}>)*?<[|｜](?:[^<>\s]{1,40}>)?(?:system|developer|user)"
    r"|\[gMASK\]|<role>(?:SYSTEM|HUMAN)</role>|<SPECIAL_10>System|\]~!b\[|GPT4 Correct User:|\[Round 0\] USER:)",
    re.IGNORECASE,
)
# How Python prints a message or a list of them, as pandas writes lists into CSV files.
_PRINTED = re.compile(
    r"\s*\[?\{(?=.*'(?:role|from)': ')(?=.*'(?:content|value)': )'(?:role|from|content|value)': ", re.DOTALL
)
# The shares of a sample's texts from which they are no quotations any more: of templates' marks, and of transcripts and
# JSON, which people write, too.
_MANY, _MOSTLY = 0.1, 0.5
# What ends a turn. The longest first, as one of them may end with another one.
_ENDS = tuple(sorted({end for template in TEMPLATES.values() for end in template.ends}, key=len, reverse=True))


def is_written_in_a_form(text: str) -> bool:
    """Whether a text begins in one of the forms that are known, whether the rest of it matches or not."""
    return any(template.begins(text) for template in FORMS)


def _parse(text: str) -> tuple[PolicyTemplate | None, ParsedPrompt | None]:
    # The form that a text begins in, and its turns; None for them if it doesn't go on so.
    parsed = [(template, template.split(text)) for template in FORMS if template.begins(text)]
    return next(((form, turns) for form, turns in parsed if turns is not None), parsed[0] if parsed else (None, None))


def take_apart(row: RowRequests) -> RowRequests:
    """The requests of a row with its written-out prompt as turns, and its responses without what ends a turn.

    A prompt that can't be taken apart rejects its responses, and so does a response that goes on with further turns.
    """
    requests: list[ScoreRequest] = []
    rejected = list(row.rejected)
    for request in row.requests:
        prompt = _single_text(request)
        try:
            context, form, opening = (request.context, None, "") if prompt is None else _turns_of(request.context, prompt)
        except Rejected as error:
            rejected += [Unjudgeable(response.name, error.reason, error.detail) for response in request.responses]
            continue
        responses = []
        for response in request.responses:
            try:
                responses.append(replace(response, content=_bare(response.content, prompt, form, opening)))
            except Rejected as error:
                rejected.append(Unjudgeable(response.name, error.reason, error.detail))
        if responses:
            requests.append(replace(request, context=context, responses=tuple(responses)))
    return replace(row, requests=tuple(requests), rejected=tuple(rejected))


def split(text: str) -> ParsedPrompt:
    """The turns of a whole conversation, and its last one as the response.

    Raises `Rejected`: written_out if it can't be taken apart, empty_content if its last turn is empty, and content_not_text
    for a picture or a sound in any.
    """
    _, turns = _parse(text.removesuffix("\n"))  # NeMo's end token may be missing, and the line break before it isn't
    if turns is None:
        raise Rejected(Reason.WRITTEN_OUT, describe(text))
    if not turns.response.strip():
        raise Rejected(Reason.EMPTY_CONTENT, "a conversation that ends where the assistant begins")
    text_of_turn("\n".join((*(turn.content for turn in turns.context), turns.response)))  # an empty turn is its own fault
    return turns


def _single_text(request: ScoreRequest) -> str | None:
    # The text of the only turn, a user's, before the responses; None if there are several.
    _, spoken = split_system(request.context)
    return spoken[0].content if len(spoken) == 1 and spoken[0].role is Role.USER else None


def _turns_of(context: tuple[Message, ...], prompt: str) -> tuple[tuple[Message, ...], PolicyTemplate | None, str]:
    # The context with its prompt as turns, their form, and the marks of reasoning that the template has put before the
    # response, as Qwen3's and DeepSeek-R1's do; unchanged if the prompt is plain text.
    form, parsed = _parse(prompt)
    if form is None and not _is_dressed(prompt):
        return context, None, ""
    begun = parsed.response.strip() if parsed else ""
    opening = prompt[prompt.rindex(begun) :] if begun else ""
    if parsed is None or not is_only_marks(opening) or not split_system(parsed.context)[1]:
        raise Rejected(Reason.WRITTEN_OUT, f"a prompt without turns up to where the assistant begins: {describe(prompt)}")
    turns = tuple(Message(turn.role, text_of_turn(turn.content)) for turn in parsed.context)
    system, _ = split_system(context)
    return refuse_answered(with_opening_system(system and system.content, turns)), form, opening


def _bare(response: str, prompt: str | None, form: PolicyTemplate | None, opening: str) -> str:
    # A response behind its `opening`, without the prompt that it repeats, as generators put it there, and without the end of
    # its turn.
    if not response:  # a policy's, which isn't there yet
        return response
    if form is None:
        while response.rstrip().endswith(_ENDS):
            response = next(response.rstrip().removesuffix(end) for end in _ENDS if response.rstrip().endswith(end))
        return text(response)
    remaining = form.without_end(response.removeprefix(prompt or ""))
    if form.tokens.search(remaining):
        raise Rejected(Reason.WRITTEN_OUT, "a response that goes on with further turns")
    answer = text_of_turn(remaining.strip() if form.trims else remaining)
    # A server may have put the marks before the response again.
    return answer if answer.lstrip().startswith(opening.strip()) else opening + answer


def is_written_out(rows: Sequence[RowRequests]) -> bool:
    """Whether the prompts or responses of a sample are written out, so that all rows are to be taken apart.

    Raises `SourceError` where many are, in a form that can't be taken apart.
    """
    requests = [request for row in rows for request in row.requests]
    prompts = [prompt for request in requests if (prompt := _single_text(request)) is not None]
    responses = [response.content for request in requests for response in request.responses if response.content]
    for texts, what, is_such, state, advice in (
        (prompts, "prompts", _is_json_list, "are JSON in a text", "write the list itself into the rows"),
        (responses, "responses", _is_json_turns, "are JSON in a text", "write the turns themselves into the rows"),
        (prompts, "prompts", _is_printed, "are lists as Python prints them", _PRINTED_ADVICE),
        (responses, "responses", _is_printed, "are messages as Python prints them", _PRINTED_ADVICE),
        (_without_prompts(requests), "responses", _begins_dressed, "are conversations written out as one text", _ADVICE),
    ):
        such = list(filter(is_such, texts))
        if _are_many(such, texts, _MOSTLY):
            raise _refusal(such, texts, what, state, advice)
    dressed = list(filter(_is_dressed, prompts))
    are_dressed = _are_many(list(filter(_has_marks, prompts)), prompts, _MANY) or _are_many(dressed, prompts, _MOSTLY)
    if are_dressed and not any(map(_can_be_split, dressed)):
        state = "are conversations written out as one text, in a form that can't be taken apart"
        raise _refusal(dressed, prompts, "prompts", state, _ADVICE)
    return are_dressed or _are_many(list(filter(_ends_dressed, responses)), responses, _MOSTLY)


def _are_many(such: Sequence[str], texts: Sequence[str], share: float) -> bool:
    return bool(such) and len(such) >= share * len(texts)


def _refusal(such: Sequence[str], texts: Sequence[str], what: str, state: str, advice: str) -> SourceError:
    count = f"{len(such)} of the {len(texts)} {what} looked at"
    return SourceError(f"{count} {state}, such as {describe(such[0])}. They would be judged as plain words: {advice}")


def note_repeated_prompts(rows: Sequence[RowRequests]) -> str:
    """A sentence on responses that begin with their whole prompt, if most do; else empty."""
    answered = [
        (prompt, response.content)
        for row in rows
        for request in row.requests
        for response in request.responses
        if response.content and (prompt := _single_text(request)) is not None
    ]
    repeating = sum(prompt != response and response.startswith(prompt) for prompt, response in answered)
    if not repeating or repeating < _MOSTLY * len(answered):
        return ""
    return (
        f"{repeating} of the {len(answered)} responses begin with their whole prompt, and are judged with it: if a "
        "generator put it there (return_full_text), cut it off first"
    )


# What to do about texts in a form that isn't known.
_ADVICE = "write them as lists of {role, content}, and name the field with --prompt-column or --conversation-column"
_PRINTED_ADVICE = "write the lists themselves into the rows, of JSON Lines or Parquet, which keep them"


def _without_prompts(requests: Sequence[ScoreRequest]) -> list[str]:
    # A prompt that a response repeats is cut off where it is written out (`_bare`).
    return [
        response.content
        for request in requests
        for response in request.responses
        if response.content and not response.content.startswith(_single_text(request) or "\0")
    ]


def _has_marks(prompt: str) -> bool:
    # Whether a prompt begins in a chat template, or ends with the mark of reasoning that a template writes: all that is
    # visible of DeepSeek-R1's distilled models' where it was decoded without its special tokens.
    is_known = any(template.begins(prompt) for template in TEMPLATES.values())
    return is_known or _OTHER_TEMPLATES.match(prompt) is not None or bool(opened_by(prompt))


def _is_dressed(prompt: str) -> bool:
    return _begins_dressed(prompt) or bool(opened_by(prompt))


def _ends_dressed(response: str) -> bool:
    return response.rstrip().endswith(_ENDS) and response.strip() not in _ENDS


def _begins_dressed(text: str) -> bool:
    return is_written_in_a_form(text) or any(form.match(text) for form in (_OTHERS, _OTHER_TEMPLATES))


def _can_be_split(prompt: str) -> bool:
    try:
        _, form, _ = _turns_of((Message(Role.USER, prompt),), prompt)
    except Rejected as rejected:
        return rejected.reason is Reason.CONTENT_NOT_TEXT  # a picture's place: its row is rejected, the others are read
    return form is not None


def _json(text: str) -> object:
    # The list or object that a text is in JSON; None if it is neither.
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_json_list(prompt: str) -> bool:
    value = _json(prompt)
    is_list = isinstance(value, list) and bool(value) and all(isinstance(item, str | dict) for item in value)
    return is_list or _is_json_turns(prompt)


def _is_json_turns(response: str) -> bool:
    value = _json(response)
    if isinstance(value, dict):
        return role_of(value) is not None and content_key(value) in value
    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def _is_printed(text: str) -> bool:
    return _PRINTED.match(text) is not None
