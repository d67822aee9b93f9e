"""The page of outcomes: every status and every reason, what it says, and what to do about it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from actors.records import Reason, Status
from docs.generate.markdown import Page, code, document, heading, table, text


class Meaning(NamedTuple):
    """What a reason says: the status that it comes with, what happened, and what helps, if anything does."""

    status: Status
    says: str
    helps: str = ""


STATUSES: Mapping[Status, str] = {
    Status.SCORED: "there is a reward, read as the model's authors read it, and no reason",
    Status.REJECTED: "the response can't be judged as it is, and the model wasn't asked; the reason says why",
    Status.FAILED: "the model, or the policy, was asked and gave nothing that could be used; the reason says what",
}

_REJECTED, _FAILED = Status.REJECTED, Status.FAILED

REASONS: Mapping[Reason, Meaning] = {
    Reason.NOT_UTF8: Meaning(_REJECTED, "the record isn't UTF-8", "write the file in UTF-8"),
    Reason.BROKEN_JSON: Meaning(_REJECTED, "the record isn't JSON"),
    Reason.NOT_AN_OBJECT: Meaning(_REJECTED, "the record is JSON, and no object"),
    Reason.TOO_DEEP: Meaning(_REJECTED, "the record has too many lists and objects within each other"),
    Reason.RECORD_TOO_LARGE: Meaning(
        _REJECTED, "the record is longer than is read, or has too many turns", "`corpus.max_record_bytes`"
    ),
    Reason.LONE_SURROGATE: Meaning(_REJECTED, "a text holds half of a surrogate pair, which is no character"),
    Reason.MISSING_FIELD: Meaning(
        _REJECTED, "a field that the shape needs isn't there; of a mixed corpus also, that no shape fits the row"
    ),
    Reason.WRONG_TYPE: Meaning(
        _REJECTED, "a field holds another kind of value than the shape has there; or the prompt is answered already"
    ),
    Reason.SHAPE_FAILED: Meaning(_REJECTED, "a plug-in's shape raised an error on the row", "the plug-in's authors"),
    Reason.TWO_SHAPES: Meaning(
        _REJECTED, "more than one shape fits the row of a mixed corpus, and they read other responses", "`--format NAME`"
    ),
    Reason.NO_MESSAGES: Meaning(_REJECTED, "the conversation is empty, or nothing stands before the response"),
    Reason.UNKNOWN_ROLE: Meaning(_REJECTED, "a turn is of a role that isn't known"),
    Reason.TWO_SYSTEM_PROMPTS: Meaning(
        _REJECTED,
        "two system prompts that differ: nobody can tell which of them the model was given",
        "`corpus.system_column` says which field it is, or that none is",
    ),
    Reason.TOOL_CALL: Meaning(_REJECTED, "a tool or its call that can't be read whole, or that no prompt shows"),
    Reason.CONTEXT_GAP: Meaning(
        _REJECTED,
        "of a trajectory: a part of what the agent was shown before this turn isn't in the file, such as an output, or "
        "a summary that took the place of earlier turns",
    ),
    Reason.NO_FINAL_ASSISTANT: Meaning(
        _REJECTED, "the conversation doesn't end with the assistant, so there is no response", "`corpus.turns: all`"
    ),
    Reason.COLUMN_COLLISION: Meaning(_REJECTED, "a field of the row has the name of a column of Assay's", "`prefix`"),
    Reason.CONTENT_NOT_TEXT: Meaning(_REJECTED, "a turn holds something else than text, such as an image"),
    Reason.WRITTEN_OUT: Meaning(
        _REJECTED,
        "a conversation is written out as one text, as a template or a transcript does, and can't be taken apart",
        "write it as a list of {role, content}",
    ),
    Reason.EMPTY_CONTENT: Meaning(_REJECTED, "a turn, or the response, has no text"),
    Reason.CONTROL_TOKEN: Meaning(
        _REJECTED,
        "a text holds a control token of the template, or a delimiter of the judge's prompt, so it could end its own turn",
    ),
    Reason.ROLE_NOT_IN_TEMPLATE: Meaning(
        _REJECTED, "the model's template has no place for a turn: its role, or a system turn that isn't the first"
    ),
    Reason.TEMPLATE_REFUSED: Meaning(_REJECTED, "the model's template refuses the conversation, or changes its text"),
    Reason.TOO_LONG: Meaning(
        _REJECTED,
        "the prompt is longer than the model takes, or was trained on",
        "`render.too_long: trim-turns` drops the oldest whole turns; `render.max_model_len`",
    ),
    Reason.REASONING: Meaning(
        _REJECTED,
        "it holds reasoning, and nobody said what becomes of it; or the reasoning never ended, so there is no answer",
        "`render.reasoning`: `strip` or `keep`",
    ),
    Reason.UNKNOWN_TOKEN: Meaning(
        _REJECTED, "a token id of a client's own, and the model has none of that number; online only"
    ),
    Reason.TOO_MANY_PROMPTS: Meaning(
        _REJECTED, "its responses, principles and orders come to more prompts than one row may ask"
    ),
    Reason.NO_PRINCIPLE: Meaning(
        _REJECTED,
        "the model judges by a principle or rubric, and there is none, or none of its form",
        "`read.principles`, `--field principle=COLUMN`",
    ),
    Reason.NO_REFERENCE: Meaning(
        _REJECTED, "the model compares with a reference, and the row has none, or a blank one", "`--reference-column`"
    ),
    Reason.BAD_REFERENCE: Meaning(
        _REJECTED, "the reference can't be read, or is a list of texts", "`verifier.any_of`, `verifier.reference_pattern`"
    ),
    Reason.NO_OPPONENT: Meaning(
        _REJECTED, "a judge that only compares, and no other response that it can be compared with, or none that is left"
    ),
    Reason.NOT_FINITE: Meaning(_FAILED, "the model gave a NaN or an infinity", "another `model.dtype`"),
    Reason.ENGINE_REFUSED: Meaning(_FAILED, "the engine refused the prompt, or a verifier's code raised an error"),
    Reason.ENGINE_TIMEOUT: Meaning(_FAILED, "the engine didn't answer in time", "`--set engine.request_timeout_s`"),
    Reason.ENGINE_KILLER: Meaning(
        _FAILED, "the row kills engines: found by scoring suspects alone, and written to `engine_killers/`"
    ),
    Reason.NO_ANSWER: Meaning(
        _FAILED, "a verifier finds no answer in the response", "`verifier.answer_pattern`; `--unparsed 0` makes it 0"
    ),
    Reason.CUT_OFF: Meaning(_FAILED, "the judge hadn't ended when its tokens did", "`judge.max_tokens`"),
    Reason.NO_VERDICT: Meaning(_FAILED, "the judge's text has no verdict where it should be", "`judge.reask`"),
    Reason.TWO_VERDICTS: Meaning(_FAILED, "the judge's text has several verdicts that differ", "`judge.reask`"),
    Reason.OUT_OF_RANGE: Meaning(_FAILED, "the judge's verdict isn't on its scale", "`judge.reask`"),
    Reason.UNFINISHED: Meaning(
        _REJECTED, "a candidate that hadn't ended when its tokens did: no judge sees it", "`policy.policy_max_tokens`"
    ),
    Reason.UNJUDGED: Meaning(_REJECTED, "a candidate whose turn to be judged comes when all are drawn (`in_turns`)"),
    Reason.ENDPOINT_FAILED: Meaning(
        _FAILED,
        "the endpoint (of a policy, or of `--endpoint`) breaks on this prompt each time, or never takes it, and "
        "answers others",
        "`assay retry`",
    ),
    Reason.ENDPOINT_REFUSED: Meaning(
        _FAILED, "the endpoint (of a policy, or of `--endpoint`) refuses this prompt each time, and answers others"
    ),
    Reason.NO_BASELINE: Meaning(
        _REJECTED,
        "of an ensemble: too few different responses to the prompt to make z-scores of",
        "`--combine mean` or `min`",
    ),
}


def pages() -> Iterator[Page]:
    """The page. Raises `KeyError` for a status or a reason that nothing is said of here."""
    statuses = ((code(status.value), text(STATUSES[status])) for status in Status)
    yield Page(
        "outcomes.md",
        document(
            "# Statuses and reasons",
            "Every response has a status. A number is a reward only if it was read as the model's authors read it; all else "
            "is a status with a reason, and the rest of the corpus comes out whole.",
            table(("status", "what it says"), statuses),
            heading(2, "Rejected", "rejected"),
            _reasons(_REJECTED),
            heading(2, "Failed", "failed"),
            _reasons(_FAILED),
            "A prompt that such an endpoint calls too long is `failed: too_long`, and a response that was in no "
            "comparison that could be read, `failed: no_opponent`. Of an ensemble, a response has the status and reason of "
            "the first model that gave it no reward. Online these are the `code` of an error, or stand beside the responses "
            "of `POST /v1/rewards`.",
        ),
    )


def _reasons(status: Status) -> str:
    meanings = ((reason, REASONS[reason]) for reason in Reason)
    rows = (
        (code(reason.value), text(meaning.says), text(meaning.helps))
        for reason, meaning in meanings
        if meaning.status is status
    )
    return table(("reason", "what it says", "what helps"), rows)
