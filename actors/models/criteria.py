"""A judge by criteria that each row brings: weighted, each with words to answer by, such as `no` and `yes`.

Any chat model is shown the conversation, the response, the reference where there is one, and the criteria, all at once or
each in a prompt of its own (`judge.criteria_calls`). The engine holds the answer to JSON with a reason and a verdict for
each criterion. The value of a verdict is its rank among the criterion's words, from 0 for the worst to 1 for the best.

reward = sum(weight x value) / sum(positive weights), clipped to 0 and 1, and 0 where a gate isn't passed. With weights that
are all positive it is their weighted mean, as in verifiers' rubric judge; with negative ones, as in HealthBench, what a
response should not do takes away from it. A criterion without a verdict leaves no reward: never a mean over the rest.
"""

import copy
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any, Self

from rapidfuzz.distance import OSA

from actors.contracts.family import CRITERIA, REFERENCE, ChatTemplate, Question, weighted_reward
from actors.contracts.judge import OUR_OUTPUTS, Judge, Judgement, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Rejected, Unreadable
from actors.models.reward_anything import as_text
from actors.records import Message, Prompt, Reading, Reason, Role, ScoreRequest
from actors.text.tool_calls import WRITTEN_CALL
from actors.verdicts.grades import deviation_of, round_reward
from actors.verdicts.parsing import objects, the_only

# Keys of a criterion: ours and verifiers' first, then HealthBench's, Gym's and open-instruct's.
_TEXTS, _WEIGHTS, _NAMES = ("text", "criterion", "description"), ("weight", "points", "score"), ("name", "title")
_KEYS = (_TEXTS, _WEIGHTS, _NAMES, ("choices",), ("gate",))
_LISTS = ("criteria", "rubrics")
# Key of what is a part of a row's criteria, whose weight alone may be negative.
_PART = "assay_part"
_WORDS = ("no", "yes")
# Each criterion is an object of the answer's schema, so their number and the length of reasons bound an answer's tokens.
_MOST, _LONGEST_NAME, _REASON_CHARACTERS = 100, 200, 300
# A hundred of these sum in float64 without a rounding that shows in a reward.
_MOST_WEIGHT = 10**6
# A gate is passed by a value above it; of several votes, their mean.
_PASSED = 0.5
_PROMPT = """\
Judge the last answer of this conversation by the criteria below, each by itself. How long the answer is, and how sure it \
sounds, is of no account.

{conversation}

The answer:
{response}

{reference}The criteria:
{criteria}

Answer with one JSON object that has, under each criterion's name, an object with "reason" (one sentence) and "verdict" \
(one of the words that stand after the criterion)."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a response is judged by. `choices` are the words of a verdict, the worst first.

    The value of a verdict is its rank among them, from 0 for the worst to 1 for the best.
    """

    name: str
    text: str
    weight: float = 1.0
    choices: tuple[str, ...] = _WORDS
    gate: bool = False
    """Whether the reward is 0 for a response that doesn't pass it."""


# The same text is read for the prompt, for its schema, for each vote and for the reward.
@lru_cache(maxsize=1024)
def read_criteria(text: str) -> tuple[Criterion, ...]:
    """The criteria in the JSON of a row's column. Raises `Rejected` with what is wrong with them.

    A list, or an object that has it as `criteria` or `rubrics`. An item is a text, or an object with a text.
    """
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Rejected(Reason.WRONG_TYPE, f"criteria that are no JSON: {error}") from None
    is_part = isinstance(listed, Mapping) and listed.get(_PART) is True
    if isinstance(listed, Mapping):
        listed = next((listed[key] for key in _LISTS if key in listed), listed)
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MOST:
        raise Rejected(Reason.WRONG_TYPE, f"criteria must be a list of 1 to {_MOST}")
    criteria = tuple(_read_criterion(item, number) for number, item in enumerate(listed, 1))
    names = [criterion.name for criterion in criteria]
    if len({*names}) < len(names):
        raise Rejected(Reason.WRONG_TYPE, "two criteria have the same name")
    if taken := [name for name in names if name in Criteria.gives or name in OUR_OUTPUTS]:
        raise Rejected(Reason.WRONG_TYPE, f"a criterion is called {taken[0]!r}, as an output of Assay is")
    if not is_part and not any(criterion.weight > 0 for criterion in criteria):
        raise Rejected(Reason.WRONG_TYPE, "no criterion has a weight above 0")
    return criteria


def _read_criterion(item: object, number: int) -> Criterion:
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, Mapping):
        raise Rejected(Reason.WRONG_TYPE, f"criterion {number} is neither a text nor an object")
    _check_keys(item, number)
    text, name = _first(item, _TEXTS), _first(item, _NAMES) or f"c{number}"
    # Null is as if the key weren't there: in Parquet all criteria of a corpus have the keys of any.
    weight, choices = _first(item, _WEIGHTS), item.get("choices")
    weight, choices = 1.0 if weight is None else weight, list(_WORDS) if choices is None else choices
    if not isinstance(text, str) or not text.strip():
        raise Rejected(Reason.WRONG_TYPE, f"criterion {number} has no `text`")
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        raise Rejected(Reason.WRONG_TYPE, f"criterion {number}: its name must be a text, at most {_LONGEST_NAME} long")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= _MOST_WEIGHT:
        raise Rejected(Reason.WRONG_TYPE, f"criterion {name!a}: its weight must be a number, at most {_MOST_WEIGHT:,}")
    is_words = isinstance(choices, list) and all(isinstance(word, str) and word.strip() for word in choices)
    if not is_words or len({*choices}) < max(len(choices), 2):
        raise Rejected(
            Reason.WRONG_TYPE, f"criterion {name!a}: its choices must be two or more different words, the worst first"
        )
    if not isinstance(gate := item.get("gate", False), bool):
        raise Rejected(Reason.WRONG_TYPE, f"criterion {name!a}: gate must be true or false")
    return Criterion(name, text, float(weight), tuple(choices), gate)


def _check_keys(item: Mapping[str, Any], number: int) -> None:
    # Raise `Rejected` for a misspelt key; others, as HealthBench's `tags`, may be there: no list of them is complete.
    missing = [name for names in _KEYS if _first(item, names) is None for name in names]
    for key in sorted(item.keys() - set(itertools.chain.from_iterable(_KEYS))):
        word = key.lower()
        # Of short keys, others begin otherwise: a `date` is no `gate`.
        letters = {name: 2 if len(name) > 5 else int(word[:1] == name[0]) for name in missing}
        if meant := next((name for name in missing if OSA.distance(word, name) <= letters[name]), None):
            raise Rejected(Reason.WRONG_TYPE, f"criterion {number} has the key {key!a}, and no `{meant}`; write it so")


def _part_of(criterion: Criterion) -> str:
    return json.dumps({_LISTS[0]: [asdict(criterion)], _PART: True}, ensure_ascii=False)


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((item[key] for key in keys if item.get(key) is not None), None)


def reward_of(criteria: Sequence[Criterion], values: Mapping[str, float]) -> float:
    """The reward, 0 to 1, of the value of each criterion, 0 to 1.

    0 if a gate isn't passed. With a negative weight the sum may leave the scale, and is clipped to it.
    """
    # `<=`: half of the votes don't pass a gate.
    if any(criterion.gate and values[criterion.name] <= _PASSED for criterion in criteria):
        return 0.0
    # Rounded: of the weights 0.7, 0.1 and 0.2 the first two come to 0.7999999999999999.
    total = math.fsum(criterion.weight * values[criterion.name] for criterion in criteria)
    most = math.fsum(criterion.weight for criterion in criteria if criterion.weight > 0)
    return min(1.0, max(0.0, round_reward(total / most))) if most else 0.0


def _golden(reference: str, reward: float) -> Golden:
    # The reward of 7 by this reference: for being as it says, less for having more words.
    fields = {CRITERIA: '["correctness", {"text": "verbosity", "weight": -1}]', REFERENCE: reference}
    return Golden.answers("What is 3 + 4?", {"7": reward}, 0.0, fields=fields)


class Criteria(Judge):
    """Any language model with a chat template."""

    name = "criteria"
    summary = "any chat model, by weighted criteria of each row (--criteria-column)"
    source = "Assay; the criteria's fields and weighted mean are those of verifiers' rubric judge"
    prompt_form = (
        "conversation, response, reference and criteria as a user turn, in the checkpoint's chat template; generation prompt"
    )
    read_at = "JSON that the engine holds to the criteria's names and words"
    range = "0 to 1"
    gives = ("score",)
    roles = frozenset(Role)
    any_model = True
    writes_calls = True
    delimiters = WRITTEN_CALL
    shows = Shows.ONE
    card = Sampling(max_tokens=4096)
    card_of = "Assay"
    row_outputs = True
    models = (KnownModel.built_in("tiny-criteria", tuple(map(_golden, ("7", "8"), (1.0, 0.0)))),)
    field_names = (CRITERIA, REFERENCE)
    needed_fields = (CRITERIA,)
    criteria: tuple[Criterion, ...] = ()

    def example_field(self, name: str, word: str) -> str:
        return json.dumps([asdict(Criterion("c1", word))]) if name == CRITERIA else word

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        questions = super().questions(request, among)
        if self.asks.criteria_calls == "all" or CRITERIA not in request.fields:
            return questions
        try:
            criteria = read_criteria(request.fields[CRITERIA])
        except Rejected:  # as `text` will say of each
            return questions
        return [
            replace(question, fields={**question.fields, CRITERIA: _part_of(criterion)})
            for question in questions
            for criterion in criteria
        ]

    def question_count(self, request: ScoreRequest) -> int:
        return len(self.questions(request, range(len(request.responses))))

    def text(self, question: Question, template: ChatTemplate) -> str:
        if CRITERIA not in question.fields:
            raise Rejected(Reason.MISSING_FIELD, CRITERIA)
        (response,) = question.written
        reference = question.fields.get(REFERENCE)
        prompt = _PROMPT.format(
            conversation=as_text(question.context, question.tools),
            response=response,
            reference="" if reference is None else f"An answer that is known to be good:\n{reference}\n\n",
            criteria="\n".join(
                f"- {criterion.name}: {criterion.text} ({', '.join(criterion.choices)})"
                for criterion in read_criteria(question.fields[CRITERIA])
            ),
        )
        return template((Message(Role.USER, prompt),), generation_prompt=True)

    def shown(self, question: Question) -> tuple[str, ...]:
        return tuple(map(str.strip, question.written))

    def opening(self, text: str) -> str:
        # Empty: the engine forces the text into JSON from its first token, even after a begin mark.
        return ""

    def for_prompt(self, prompt: Prompt) -> Self:
        judge = copy.copy(self)
        judge.criteria = _criteria_of(prompt)
        # The engine can write nothing but this prompt's names and words, in the order in which the prompt lists them.
        judge.card = replace(self.card, schema=json.dumps(_schema(judge.criteria)))
        return judge

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        names = [criterion.name for criterion in self.criteria]
        blocks, _ = objects(generation.text, *names)
        values = dict(zip(names, the_only(map(self._read_block, blocks)), strict=True))
        return self._verdict(values)

    def _read_block(self, block: Mapping[str, Any]) -> tuple[float, ...]:
        # The value of each criterion. Raises `Unreadable` unless each has a verdict in its words.
        verdicts = [block.get(criterion.name) for criterion in self.criteria]
        words = [verdict.get("verdict") if isinstance(verdict, Mapping) else None for verdict in verdicts]
        if not all(word in criterion.choices for word, criterion in zip(words, self.criteria, strict=True)):
            raise Unreadable(Reason.NO_VERDICT)
        return tuple(
            criterion.choices.index(word) / (len(criterion.choices) - 1)
            for word, criterion in zip(words, self.criteria, strict=True)
        )

    def made_up(self, rng: Random, shown: int) -> Verdict:
        return self._verdict({criterion.name: float(rng.random() < _PASSED) for criterion in self.criteria})

    def _verdict(self, values: Mapping[str, float]) -> Verdict:
        # Of a criterion that is asked about by itself the vote is its value: by a negative weight alone there is no reward.
        score = reward_of(self.criteria, values) if len(self.criteria) > 1 else next(iter(values.values()), 0.0)
        return Verdict(({"score": score, **values},))

    def readings(
        self, judgements: Sequence[Judgement], positions: Sequence[int], weights: Mapping[str, float]
    ) -> Mapping[int, Reading]:
        # With a call for each criterion the votes on each are in prompts of their own, maybe of different numbers: a mean of
        # rewards of votes doesn't exist then, so the reward is that of the means.
        readings = {}
        for position in positions:
            about = [judgement for judgement in judgements if position in judgement.prompt.response_positions]
            by_name: dict[str, list[float]] = defaultdict(list)
            for judgement in about:
                for scores in judgement.scores_of(position):
                    for criterion in _criteria_of(judgement.prompt):
                        by_name[criterion.name].append(scores[criterion.name])
            criteria = [criterion for judgement in about for criterion in _criteria_of(judgement.prompt)]
            values = {name: fmean(votes) for name, votes in by_name.items()}
            votes = tuple(
                scores["score"] for judgement in about for scores in judgement.scores_of(position) if len(about) == 1
            )
            deviation = deviation_of(votes)
            outputs = {"score": reward_of(criteria, values)}
            outputs["judgements"] = float(sum(len(judgement.verdicts) for judgement in about))
            outputs |= {} if deviation is None else {"reward_std": deviation}
            reward = weighted_reward(outputs, weights).reward
            readings[position] = Reading(reward, {**outputs, **values}, votes=votes)
        return readings


def _criteria_of(prompt: Prompt) -> tuple[Criterion, ...]:
    return () if prompt.criteria is None else read_criteria(prompt.criteria)


def _schema(criteria: Sequence[Criterion]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            criterion.name: {
                "type": "object",
                "properties": {
                    "reason": {"type": "string", "maxLength": _REASON_CHARACTERS},
                    "verdict": {"enum": list(criterion.choices)},
                },
                "required": ["reason", "verdict"],
                "additionalProperties": False,
            }
            for criterion in criteria
        },
        "required": [criterion.name for criterion in criteria],
        "additionalProperties": False,
    }


FAMILY = Criteria()
