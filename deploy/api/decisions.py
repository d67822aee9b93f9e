"""SGLang's decisions: typed questions about an input, answered by the probabilities of a chat model's next token.

Any served generative model answers, in its own chat template. Each question is one prompt that begins with the input, so
that the prefix cache reads the input once for all of them; each possible answer is one token, and nothing else is generated.
`probabilities` are normalised over the answers (sum 1); `label_mass` is their sum before that, over all tokens: where it is
low, the model would rather have written something else. Fields, limits and refusals are SGLang's, the wording is ours.
"""

import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AfterValidator, Field, field_validator

from actors.records import Message, Reason, Role
from actors.scorers.online import Choice, Refused, Unfit
from deploy.errors import BadRequest, no_score_error
from deploy.models.service import ServedModel
from deploy.models.work import RequestWork, off_loop
from deploy.wire.bodies import Listed, RequestBody, Serving
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

PROMPT_FORMAT_VERSION = "assay-1"
"""Changes with the wording of a prompt, since the probabilities do."""

_UNFIT_TEXTS = {
    Unfit.NOT_ONE_TOKEN: "an answer isn't one token of this model where its answer begins, so it can't be read there",
    Unfit.IN_REASONING: "this model's chat template begins with a block of reasoning, so no answer can be read there",
}

Json = str | dict[str, Any] | list[Any]
"""A text, used as it is, or a value that goes into the prompt as JSON."""


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _not_blank(value: Json) -> Json:
    if not _as_text(value).strip():
        raise ValueError("must not be blank")
    return value


NonBlank = Annotated[Json, AfterValidator(_not_blank)]


@dataclass(frozen=True)
class Answers:
    """The possible answers: the client's names, the model's labels, their lines in the prompt, and its last sentence."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    lines: tuple[str, ...]
    instruction: str


def _encodable(value: str) -> str:
    """The value. Raises `ValueError` for a lone surrogate: JSON can escape it, but an answer in UTF-8 can't hold it."""
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must be text, and half a character is none")
    return value


class _Question(RequestBody):
    id: Annotated[str, AfterValidator(_not_blank), AfterValidator(_encodable)]
    question: NonBlank


class Option(RequestBody):
    """One possible answer of a `choice`."""

    name: str
    description: Json | None = None


class ChoiceQuestion(_Question):
    """Asks for one of several options."""

    type: Literal["choice"]
    options: Listed[Option] = Field(min_length=2, max_length=len(ascii_uppercase))

    @field_validator("options")
    @classmethod
    def _names_differ(cls, options: list[Option]) -> list[Option]:
        """Each option is a line of the prompt, and a key of the answer."""
        names = [option.name.strip().casefold() for option in options]
        if not all(names) or len(set(names)) < len(names):
            raise ValueError("options must have names, no two of which are the same")
        if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for option in options for character in option.name):
            raise ValueError("names of options must have no line breaks and no control characters")
        return options

    @property
    def answers(self) -> Answers:
        """A letter for each option."""
        labels = tuple(ascii_uppercase[: len(self.options)])
        lines = (_line(label, option.name, option.description) for label, option in zip(labels, self.options, strict=True))
        names = tuple(option.name for option in self.options)
        return Answers(names, labels, tuple(lines), "Reply with the letter of one option, and nothing else.")


class ScoreQuestion(_Question):
    """Asks for one of several levels, counted from 0."""

    type: Literal["score"]
    levels: Listed[NonBlank] = Field(min_length=2, max_length=10)

    @property
    def answers(self) -> Answers:
        """A digit for each level."""
        labels = tuple(map(str, range(len(self.levels))))
        lines = (_line(label, _as_text(level)) for label, level in zip(labels, self.levels, strict=True))
        return Answers(labels, labels, tuple(lines), "Reply with the number of one level, and nothing else.")


class YesNoQuestion(_Question):
    """Asks for yes or no."""

    type: Literal["yes_no"]
    yes: Json | None = None
    no: Json | None = None

    @property
    def answers(self) -> Answers:
        """The words yes and no."""
        meanings = {"yes": self.yes, "no": self.no}
        lines = tuple(_line(label, _as_text(text)) for label, text in meanings.items() if text is not None)
        return Answers(tuple(meanings), tuple(meanings), lines, "Reply with yes or no, and nothing else.")


Question = Annotated[ChoiceQuestion | ScoreQuestion | YesNoQuestion, Field(discriminator="type")]


class DecisionsRequest(RequestBody):
    """Questions about one input."""

    input: NonBlank
    questions: Listed[Question] = Field(min_length=1)
    model: str | None = Field(default=None, description="needed if there are several")
    temperature: float = Field(default=1.0, gt=0, description="divides log-probabilities before they become probabilities")
    chat_template_kwargs: dict[Literal["enable_thinking"], Literal[False]] = Field(default={}, description="never thinks")
    prompt_format_version: str | int | None = Field(default=None, description="refuse if it isn't the one that is served")
    return_prompt_token_ids: bool = False

    @field_validator("questions")
    @classmethod
    def _ids_differ(cls, questions: list[Question]) -> list[Question]:
        if len({question.id for question in questions}) < len(questions):
            raise ValueError("two questions have the same id")
        return questions

    @field_validator("prompt_format_version")
    @classmethod
    def _served(cls, version: str | int | None) -> str | int | None:
        if version not in (None, PROMPT_FORMAT_VERSION):
            raise ValueError(f"only {PROMPT_FORMAT_VERSION!r} is served here")
        return version


@router.post("/v1/decisions")
async def decisions(body: DecisionsRequest, service: Serving) -> dict[str, Any]:
    """Answer questions about an input, each with the probability of every answer. All of them, or an error."""
    served = service.find(body.model)
    served.check_count(len(body.questions))
    context = await off_loop(lambda: _as_text(body.input))
    work = await off_loop(lambda: _work(context, body.questions))
    # Each prompt holds the whole input, so prompts are made when their turn comes, not all at once.
    questions = [partial(_messages_and_labels, context, question) for question in body.questions]
    answers = await served.choose(questions, work)
    chosen = [_check_chosen(served, at, answer) for at, answer in enumerate(answers)]
    tokens = sum(len(choice.prompt_ids) for choice in chosen)
    return {
        "object": "decisions",
        "model": served.name,
        "prompt_format_version": PROMPT_FORMAT_VERSION,
        "answers": {
            question.id: _answer(question, choice, body) for question, choice in zip(body.questions, chosen, strict=True)
        },
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
    }


def prompt(context: Json, question: Question) -> str:
    """The prompt of a question about the input `context`, the only user turn."""
    lines = "".join(f"{line}\n" for line in question.answers.lines)
    return f"{_as_text(context)}\n\nQuestion: {_as_text(question.question)}\n{lines}\n{question.answers.instruction}"


def _line(label: str, name: str, description: Json | None = None) -> str:
    return f"{label}: {name}" if description is None else f"{label}: {name} ({_as_text(description)})"


def _work(context: str, questions: Sequence[Question]) -> RequestWork:
    """The work of all prompts, without making them: the input is in each."""
    return RequestWork(len(questions), sum(len(context) + len(prompt("", question)) for question in questions))


def _messages_and_labels(context: str, question: Question) -> tuple[Sequence[Message], Sequence[str]]:
    return [Message(Role.USER, prompt(context, question))], question.answers.labels


def _check_chosen(served: ServedModel, at: int, chosen: Choice | Refused | Unfit) -> Choice:
    """The choice; raises `ApiError` if the model couldn't make one."""
    if isinstance(chosen, Unfit):
        raise BadRequest(f"{served.name}, questions[{at}]: {_UNFIT_TEXTS[chosen]}", "questions", chosen)
    if isinstance(chosen, Refused):
        raise no_score_error(chosen.reason, f"questions[{at}]")
    if not all(map(math.isfinite, chosen.logprobs)):
        raise no_score_error(Reason.NOT_FINITE, f"questions[{at}]")
    return chosen


def _answer(question: Question, chosen: Choice, body: DecisionsRequest) -> dict[str, Any]:
    shares = _shares(chosen.logprobs, body.temperature)
    answers = question.answers
    answer: dict[str, Any] = {
        "type": question.type,
        "probabilities": dict(zip(answers.names, shares, strict=True)),
        # At most 1 but for rounding: log-probabilities are float32.
        "label_mass": min(1.0, math.fsum(map(math.exp, chosen.logprobs))),
    }
    if isinstance(question, ChoiceQuestion):
        answer["choice"] = answers.names[shares.index(max(shares))]
    if isinstance(question, ScoreQuestion):
        answer["score"] = math.fsum(level * share for level, share in enumerate(shares))
    if body.return_prompt_token_ids:
        answer |= {"prompt_token_ids": chosen.prompt_ids, "label_token_ids": chosen.label_ids}
    return answer


def _shares(logprobs: Sequence[float], temperature: float) -> Sequence[float]:
    """Softmax of the log-probabilities divided by the temperature."""
    highest = max(logprobs)  # subtracted first: at a low temperature, exp() of all of them could be 0
    powers = [math.exp((logprob - highest) / temperature) for logprob in logprobs]
    return [power / math.fsum(powers) for power in powers]
