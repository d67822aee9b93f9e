"""SGLang's decisions: typed questions about an input, answered by the probabilities of a chat model's next token.

Any generative model that is served answers, in its own chat template. Each question is one prompt, which begins with the
input, so that the engine reads it once for all of them; each possible answer is one token, and nothing else is generated.
`probabilities` are those of the answers among each other, `label_mass` what they have together among all tokens: where it is
low, the model would rather have said something else. Fields, limits and refusals are SGLang's, the wording is our own.
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
from deploy.api.bodies import Listed, RequestBody, Serving
from deploy.api.json_route import JsonRoute
from deploy.errors import BadRequest, no_score_error
from deploy.models.service import ServedModel
from deploy.models.work import RequestWork, off_loop

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

PROMPT_FORMAT_VERSION = "assay-1"
"""Goes up with the wording of a prompt: probabilities by another wording are others."""

_TOLD = {
    Unfit.NOT_ONE_TOKEN: "an answer isn't one token of this model where its answer begins, so it can't be read there",
    Unfit.IN_REASONING: "this model's chat template begins with a block of reasoning, so no answer can be read there",
}

Json = str | dict[str, Any] | list[Any]
"""A text as it is, or a value that is shown as JSON."""


def _written(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _not_blank(value: Json) -> Json:
    if not _written(value).strip():
        raise ValueError("must not be blank")
    return value


Told = Annotated[Json, AfterValidator(_not_blank)]


@dataclass(frozen=True)
class Answers:
    """What may be answered: names as the client knows them, labels as the model does, and how both are told to it."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    lines: tuple[str, ...]
    asked: str


def _sayable(value: str) -> str:
    """Half a character of UTF-16, which JSON can name and no answer can hold, isn't."""
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must be text, and half a character is none")
    return value


class _Question(RequestBody):
    id: Annotated[str, AfterValidator(_not_blank), AfterValidator(_sayable)]
    question: Told


class Option(RequestBody):
    """One of those that are chosen between."""

    name: str
    description: Json | None = None


class ChoiceQuestion(_Question):
    """Which option."""

    type: Literal["choice"]
    options: Listed[Option] = Field(min_length=2, max_length=len(ascii_uppercase))

    @field_validator("options")
    @classmethod
    def _tell_apart(cls, options: list[Option]) -> list[Option]:
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
    """Which level, from 0 up."""

    type: Literal["score"]
    levels: Listed[Told] = Field(min_length=2, max_length=10)

    @property
    def answers(self) -> Answers:
        """A digit for each level."""
        labels = tuple(map(str, range(len(self.levels))))
        lines = (_line(label, _written(level)) for label, level in zip(labels, self.levels, strict=True))
        return Answers(labels, labels, tuple(lines), "Reply with the number of one level, and nothing else.")


class YesNoQuestion(_Question):
    """Whether."""

    type: Literal["yes_no"]
    yes: Json | None = None
    no: Json | None = None

    @property
    def answers(self) -> Answers:
        """Both words."""
        meant = {"yes": self.yes, "no": self.no}
        lines = tuple(_line(label, _written(text)) for label, text in meant.items() if text is not None)
        return Answers(tuple(meant), tuple(meant), lines, "Reply with yes or no, and nothing else.")


Question = Annotated[ChoiceQuestion | ScoreQuestion | YesNoQuestion, Field(discriminator="type")]


class DecisionsRequest(RequestBody):
    """Questions about one input."""

    input: Told
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
    given = await off_loop(lambda: _written(body.input))
    work = await off_loop(lambda: _work(given, body.questions))
    questions = [partial(_asked, given, question) for question in body.questions]
    chosen = [_chosen(served, at, one) for at, one in enumerate(await served.choose(questions, work))]
    tokens = sum(len(one.prompt_ids) for one in chosen)
    return {
        "object": "decisions",
        "model": served.name,
        "prompt_format_version": PROMPT_FORMAT_VERSION,
        "answers": {asked.id: _answer(asked, one, body) for asked, one in zip(body.questions, chosen, strict=True)},
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
    }


def prompt(given: Json, question: Question) -> str:
    """What the model is asked, as its user's only turn."""
    lines = "".join(f"{line}\n" for line in question.answers.lines)
    return f"{_written(given)}\n\nQuestion: {_written(question.question)}\n{lines}\n{question.answers.asked}"


def _line(label: str, name: str, description: Json | None = None) -> str:
    return f"{label}: {name}" if description is None else f"{label}: {name} ({_written(description)})"


def _work(given: str, questions: Sequence[Question]) -> RequestWork:
    """The prompts before they are made: the input is in each of them."""
    return RequestWork(len(questions), sum(len(given) + len(prompt("", question)) for question in questions))


def _asked(given: str, question: Question) -> tuple[Sequence[Message], Sequence[str]]:
    return [Message(Role.USER, prompt(given, question))], question.answers.labels


def _chosen(served: ServedModel, at: int, chosen: Choice | Refused | Unfit) -> Choice:
    if isinstance(chosen, Unfit):
        raise BadRequest(f"{served.name}, questions[{at}]: {_TOLD[chosen]}", "questions", chosen)
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
    highest = max(logprobs)
    powers = [math.exp((one - highest) / temperature) for one in logprobs]
    return [power / math.fsum(powers) for power in powers]
