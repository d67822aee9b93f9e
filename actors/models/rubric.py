"""A judge that the user defines: any chat model, with a prompt in Jinja and a parser for the answer, in YAML alone.

`actors/settings/rubric.py` has the fields of a rubric. The prompt is rendered in a sandbox; texts of the conversation are
values of its variables, so Jinja inside them isn't run.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from jinja2 import StrictUndefined, Template, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from actors.contracts.family import PRINCIPLE, REFERENCE, ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Rejected, SettingsError, Unreadable
from actors.models.reward_anything import as_text
from actors.records import Message, Reason, Role
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import WINNER, RubricSettings, VerdictTokens
from actors.text.json_schema import meets
from actors.text.patterns import groups_of, linear
from actors.text.tool_calls import WRITTEN_CALL, write_turn
from actors.verdicts.parsing import number, objects, the_only
from actors.verdicts.statements import TRUTHS, Claim, check_agrees, choice, grade, grades_of, label, without
from actors.verdicts.verdict_token import difference
from actors.verdicts.whole_numbers import check_whole

# The most matches of a pattern in one text; with more it has no single verdict. Bounds the time on a repetitive text.
_MOST_MATCHES = 1000
# Of the first response, by who wins.
_MERITS = {"first": 1.0, "second": 0.0, "tie": 0.5}


class _Jinja(ImmutableSandboxedEnvironment):
    """Without the methods of mappings: `{{ row.items }}` is the column `items`."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


# A variable that isn't there is an error, and never an empty text; a line break at a prompt's end is part of the prompt.
_JINJA = _Jinja(undefined=StrictUndefined, keep_trailing_newline=True)


class Rubric(Judge):
    """Any language model with a chat template."""

    name = "rubric"
    summary = "any chat model, with a prompt and a reader of your own (--rubric FILE)"
    source = "the rubric itself"
    prompt_form = "the rubric's prompt as a user turn, in the checkpoint's chat template; generation prompt"
    read_at = "where the rubric says: a pattern, JSON by a schema, or a token's log-probability"
    range = "the rubric's"
    roles = frozenset(Role)
    writes_calls = True
    delimiters = WRITTEN_CALL
    any_model = True
    order_matters = True
    card = Sampling(max_tokens=4096)
    card_of = "Assay"
    models: ClassVar[tuple[KnownModel, ...]] = (
        KnownModel(
            "opencompass/CompassJudger-2-*",
            "7 and 32 billion; --rubric preset:compassjudger2",
            "Apache-2.0",
            card="open-compass/CompassJudger",
        ),
        KnownModel(
            "prometheus-eval/prometheus-7b-v2.0",
            "--rubric preset:prometheus2, and others of that name",
            card="arXiv 2405.01535",
        ),
        KnownModel(
            "Salesforce/FARE-*",
            "8 and 20 billion; its prompt is in its card, for a rubric of yours",
            "CC-BY-NC-4.0",
            card="arXiv 2510.17793",
            limits="not for commercial use",
        ),
    )
    ways = frozenset({"principles"})

    def with_settings(self, settings: JudgeSettings, verdict_ids: tuple[int, ...] = ()) -> "Rubric":
        if settings.rubric is None:
            raise SettingsError(
                "--family rubric needs --rubric FILE or preset:NAME, the prompt and the way to read its answers"
            )
        if self.way.principles and "principle" not in settings.rubric.variables:
            raise SettingsError(
                "read.principles: the rubric's prompt has no {{ principle }}, so nothing would be judged by them"
            )
        judge = super().with_settings(settings, verdict_ids)
        schema = settings.rubric.json_schema
        judge.card = Sampling(
            settings.rubric.max_tokens,
            temperature=settings.rubric.temperature,
            top_p=settings.rubric.top_p,
            schema=None if schema is None else json.dumps(schema),
        )
        return judge

    @property
    def rubric(self) -> RubricSettings:
        if self.asks.rubric is None:
            return _NO_RUBRIC
        return self.asks.rubric

    @property
    def shows(self) -> Shows:
        return Shows.TWO if self.rubric.shows == "two" else Shows.ONE

    @property
    def marks(self) -> tuple[str, ...]:
        tokens = self.rubric.verdict
        return () if tokens is None else (tokens.positive, tokens.negative)

    @property
    def field_names(self) -> tuple[str, ...]:
        return self.rubric.field_names

    @property
    def needed_fields(self) -> tuple[str, ...]:
        return tuple(name for name in self.field_names if _needs(self.rubric, name))

    @property
    def needs_principles(self) -> bool:
        return self.takes_principles and _needs(self.rubric, PRINCIPLE)

    @property
    def takes_principles(self) -> bool:
        return super().takes_principles and PRINCIPLE in self.rubric.variables

    def text_outputs(self) -> tuple[str, ...]:
        return self.rubric.outputs

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return {"win": (0.0, 1.0), **self.rubric.bounds}

    def card_weights(self) -> dict[str, float]:
        # The winner, if the rubric reads one; else the mean of its numbers, or without them of all.
        outputs, not_numbers = self.rubric.outputs, {*self.rubric.truths, *self.rubric.words}
        graded = [name for name in outputs if name == "win"] or [name for name in outputs if name not in not_numbers]
        return dict.fromkeys(graded or outputs, 1 / len(graded or outputs))

    def opening(self, text: str) -> str:
        # Empty with a schema: the engine forces the text into JSON from its first token, even after a begin mark.
        return "" if self.rubric.json_schema else super().opening(text)

    def shown(self, question: Question) -> tuple[str, ...]:
        return tuple(map(str.strip, question.written if self.rubric.shows != "row" else self._render(question)[:1]))

    def text(self, question: Question, template: ChatTemplate) -> str:
        prompt, *system = self._render(question)
        turns = (*(Message(Role.SYSTEM, text) for text in system), Message(Role.USER, prompt))
        return template(turns, generation_prompt=True)

    def _render(self, question: Question) -> list[str]:
        if question.principle is None and self.needs_principles:
            raise Rejected(Reason.NO_PRINCIPLE)
        if missing := [name for name in self.needed_fields if name not in question.fields]:
            reason = Reason.NO_REFERENCE if missing[0] == REFERENCE else Reason.MISSING_FIELD
            raise Rejected(reason, f"the rubric's {missing[0]}")
        places = {
            "conversation": as_text(question.context, question.tools),
            "turns": [{"role": turn.role.value, "content": write_turn(turn)} for turn in question.context],
            "tools": list(question.tools),
            **_nested(self.field_names, question.fields),
        }
        if self.shows is Shows.ONE:
            (places["response"],) = question.written
        else:
            places["response_1"], places["response_2"] = question.written
        try:
            texts = [text for text in (self.rubric.prompt, self.rubric.system) if text is not None]
            return [_template(text).render(places) for text in texts]
        except Exception as error:  # the sandbox's errors, and any that an expression of the user's raises
            raise Rejected(Reason.TEMPLATE_REFUSED, str(error)) from error

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        rubric = self.rubric
        if rubric.verdict is not None:
            return Verdict(({"score": difference(generation, rubric.verdict.after, self.marks, self.verdict_ids)},))
        answer = generation.text.rstrip("\n")  # `$` in a pattern is the end of the text
        values, labels, remainder = (_read_matches if rubric.pattern else _read_objects)(rubric, answer)
        verdict = self._verdict(values)
        check_agrees(remainder, list(_claims(rubric, values, labels)), verdict.merits)
        return verdict

    def _verdict(self, values: Mapping[str, float]) -> Verdict:
        if self.shows is Shows.ONE:
            return Verdict((values,))
        sides: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for output in self.rubric.outputs:
            if output == "win" and WINNER in values:
                pair = (values[WINNER], 1 - values[WINNER])
            else:
                pair = (values[f"{output}_1"], values[f"{output}_2"])
            for side, value in zip(sides, pair, strict=True):
                side[output] = value
        # Who wins decides, also between equal numbers or against them; without a winner the numbers' sum does.
        if WINNER in values:
            return Verdict(sides, (values[WINNER], 1 - values[WINNER]))
        return Verdict(sides, tuple(sum(side.values()) for side in sides))


# Until there are settings: families are listed, and their defaults shown, without any.
_NO_RUBRIC = RubricSettings(prompt="{{ response }}", verdict=VerdictTokens(after=":"))


# A template takes milliseconds to compile, and every question of a run renders the same one or two.
@lru_cache(maxsize=16)
def _template(text: str) -> Template:
    return _JINJA.from_string(text)


def _nested(names: Sequence[str], fields: Mapping[str, str]) -> dict[str, Any]:
    # Fields as variables of a template: `row.a` and `row.b` as the object `row`, which is there without them, too.
    variables: dict[str, Any] = {}
    for name in {*names, *fields}:
        *path, last = name.split(".")
        place = variables
        for step in path:
            place = place.setdefault(step, {})
        if name in fields:
            place[last] = fields[name]
    return variables


def _needs(rubric: RubricSettings, name: str) -> bool:
    # Whether rendering a prompt fails without a field; with `{% if reference is defined %}` it needn't.
    return _fails_without(name, (rubric.prompt, rubric.system or ""), tuple(sorted(rubric.variables)))


@lru_cache(maxsize=64)
def _fails_without(name: str, texts: tuple[str, ...], variables: tuple[str, ...]) -> bool:
    present = dict.fromkeys(variables, "")
    present.pop(name, None)
    places = {**_nested(variables, present), "turns": [{"role": "user", "content": ""}]}
    try:
        for text in texts:
            _template(text).render(places)
    except UndefinedError:
        return True
    except Exception:  # noqa: BLE001  a prompt that can't be rendered at all is rejected row by row
        return False
    return False


def _read_matches(rubric: RubricSettings, answer: str) -> tuple[Mapping[str, float], Mapping[str, str], str]:
    """What all matches of the pattern say, what the text calls it, and the text. Raises `Unreadable`."""
    places = groups_of(rubric.pattern or "") or {"score": 1}
    try:
        matches = list(itertools.islice(linear(rubric.pattern or "").finditer(answer), _MOST_MATCHES + 1))
    except UnicodeEncodeError:
        raise Unreadable(Reason.NO_VERDICT) from None
    if len(matches) > _MOST_MATCHES:
        raise Unreadable(Reason.TWO_VERDICTS)
    readings, labels, places_read = [], dict[str, str](), list[tuple[int, int]]()
    # Each match must say a whole verdict, and all the same one (`the_only`): the first or the last alone may be a quotation
    # of the response's.
    for match in matches:
        groups = {name: match[position] for name, position in places.items()}
        if any(text is None for text in groups.values()):
            raise Unreadable(Reason.NO_VERDICT)
        spans = {name: match.span(position) for name, position in places.items()}
        for name in spans.keys() - {WINNER}:
            check_whole(answer, spans[name], rubric.scale(name)[1], spans.values())
        readings.append(tuple((name, _convert(rubric, name, text)) for name, text in groups.items()))
        places_read += spans.values()
        begin = match.start()
        for name, (first, last) in spans.items():
            labels[name] = label(answer[begin:first].rpartition("\n")[2])
            begin = last
    return dict(the_only(readings)), labels, without(answer, places_read)


def _claims(rubric: RubricSettings, values: Mapping[str, float], labels: Mapping[str, str]) -> Iterator[Claim]:
    texts = {WINNER, *rubric.truths, *rubric.words}
    numbers = {name: value for name, value in values.items() if name not in texts}
    if WINNER in values:
        yield choice(labels[WINNER], values[WINNER], {word: _MERITS[side] for word, side in rubric.winners.items()})
    if rubric.shows == "two" and len(numbers) == 2:
        yield from grades_of([*numbers.values()], [labels[name] or name for name in numbers])
    elif len(numbers) == 1 == len(values):
        yield from (grade(labels[name], value) for name, value in numbers.items())
    else:
        yield from (Claim(labels[name], (value,)) for name, value in numbers.items() if labels[name])
        if len(numbers) > 1:
            yield Claim("", tuple(numbers.values()), alone=True)
    yield from (Claim(labels[name], bool(values[name]), TRUTHS) for name in rubric.truths & values.keys())


def _read_objects(rubric: RubricSettings, answer: str) -> tuple[Mapping[str, float], Mapping[str, str], str]:
    """What all JSON objects with one of the rubric's names say, their names, and the rest of the text.

    Raises `Unreadable` if one violates the schema: the engine forces answers into it, but not always the text before them.
    """
    readings = []
    blocks, remainder = objects(answer, *rubric.names)
    for parsed in blocks:
        if not meets(rubric.json_schema or {}, parsed):
            raise Unreadable(Reason.NO_VERDICT)
        readings.append(tuple((name, _convert(rubric, name, parsed.get(name))) for name in rubric.names))
    return dict(the_only(readings)), {name: label(name) for name in rubric.names}, remainder


def _convert(rubric: RubricSettings, name: str, value: object) -> float:
    if name == WINNER:
        if not isinstance(value, str) or value not in rubric.winners:
            raise Unreadable(Reason.NO_VERDICT)
        return _MERITS[rubric.winners[value]]
    if name in rubric.words:
        if not isinstance(value, str) or value not in rubric.words[name]:
            raise Unreadable(Reason.NO_VERDICT)
        return rubric.words[name][value]
    if isinstance(value, bool):
        return float(value)
    low, high = rubric.scale(name)
    if low is None or high is None:  # which the settings have checked
        raise Unreadable(Reason.OUT_OF_RANGE)
    return number(value, low, high)


FAMILY = Rubric()
