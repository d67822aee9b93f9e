"""R3 rates by a rubric: two responses against each other, one from 1 to 5, or one as true or false.

The prompt is one user turn of task, input, responses, rubric and the form of the answer, word for word its authors'
(Apache-2.0). The rubric comes with the run (`principles`) or with the row. Its lines begin with their label: `1:` to `5:`,
`Response 1:` and `Response 2:`, or `true:` and `false:`; text before them is the task. Without a rubric, two responses are
compared by the one that its authors used for RM-Bench.

The verdict is `score` in the object after the reasoning. Its authors take the first `"score": ...` anywhere, which may be in
the reasoning; here a broken object is searched as well, but only after the reasoning, and all scores must be equal.
"""

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

from actors.contracts.family import PRINCIPLE, ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Rejected, Unreadable
from actors.models.reward_anything import as_text
from actors.models.rm_r1 import won
from actors.records import Message, Reason, Role
from actors.verdicts.parsing import number, objects, the_only
from actors.verdicts.statements import SCORE, TRUTHS, Claim, check_agrees, grade

_RATE = "Your task is to rate the response to the given query."


class _Kind(NamedTuple):
    """The parts of one of the three prompts (`rating`)."""

    shows: Shows
    labels: tuple[str, ...]
    opening: str
    explanation: str
    score: str
    rubric: str
    """The default, if neither run nor row has one; empty if the authors have none."""


_RESPONSES = ("Response 1", "Response 2")
_KINDS = {
    "pairwise": _Kind(
        Shows.TWO,
        _RESPONSES,
        "two responses",
        "Explanation of why one response is preferred over the other",
        "Final selection between 'Response 1' or 'Response 2'",
        "Your task is to select the response that is the most helpful, factually accurate, and relevant to the given query."
        "\nResponse 1: Response 1 is the preferred choice over Response 2.\n"
        "Response 2: Response 2 is the preferred choice over Response 1.",
    ),
    "pointwise": _Kind(
        Shows.ONE,
        ("1", "2", "3", "4", "5"),
        "response",
        "Explanation of why the response received a particular score",
        "Score assigned to the response based on the rubric between 1 to 5",
        "",
    ),
    "binary": _Kind(
        Shows.ONE,
        ("true", "false"),
        "response",
        "Explanation of why the answer is true or false",
        "Final boolean answer between true or false",
        f"{_RATE}\n"
        "true: The answer correctly corresponds to the given input.\n"
        "false: The answer does not correctly correspond to the given input.",
    ),
}
# At the beginning of a line, with a colon: in prose "1" and "true" stand often.
_LABELLED = re.compile(r"^([1-5]|true|false|Response [12]): ", re.MULTILINE)
# In a broken object. "score": 4,5 is no 4: a comma with a digit behind it may be a decimal comma.
_SCORE = re.compile(
    r'"score"\s*:(?:\s*(?P<quote>"?)(?P<score>Response [12]|true|false|[0-9]+(?:\.[0-9]+)?)(?P=quote)'
    r"\s*(?:,(?!\s*[0-9])|\}))?"
)


_GOLDEN = (Golden.answers("What is 3 + 4?", {"7": 1.0, "9": 0.0}, 0.1),)


class R3(Judge):
    """A language model that rates by rubrics, merged or with its LoRA adapter."""

    name = "r3"
    summary = "writes, then rates one response, or compares two, by a rubric, as JSON"
    source = "rubricreward/r3, src/dataset_gen/rubrics_gen/prompts.py and evaluation_schema.py"
    prompt_form = "one user turn with task, input, one response or two, rubric and form of the answer; generation prompt"
    read_at = "`score` in the JSON after </think>"
    range = "1 for the better and 0 for the other; 1 to 5; or 1 for true and 0 for false, by `rating`"
    roles = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
    order_matters = True
    card = Sampling(max_tokens=8192, temperature=0.6, top_p=0.95, top_k=20)
    ways = frozenset({"principles", "rating"})
    control_texts = ("### OUTPUT FORMAT",)  # in capitals alone: `### Output Format` stands in many a user's prompt
    delimiters = ("### RESPONSE 1", "### RESPONSE 2", "### EVALUATION RUBRIC")
    probes_delimiters = False
    models = (
        KnownModel.built_in("tiny-r3", _GOLDEN),
        KnownModel.built_in(
            "tiny-r3-lora",
            _GOLDEN,
            "for --model tiny-genrm-principle --set adapter=tiny-r3-lora: the same as an adapter",
        ),
        KnownModel("rubricreward/R3-*", "whole models; the LoRA in a name is how it was trained", card="arXiv 2505.13388"),
    )

    @property
    def _kind(self) -> _Kind:
        return _KINDS[self.way.rating]

    @property
    def shows(self) -> Shows:
        return self._kind.shows

    @property
    def card_votes(self) -> int:
        # 2 for pairs, one in each order: the answer names one of the two, and can't say that they are equal.
        return 2 if self.shows is Shows.TWO else 1

    @property
    def needs_principles(self) -> bool:
        return self.takes_principles and not self._kind.rubric

    def text_outputs(self) -> tuple[str, ...]:
        return ("win",) if self.shows is Shows.TWO else ("score",)

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return {"win": (0.0, 1.0), "score": (1.0, 5.0) if self.way.rating == "pointwise" else (0.0, 1.0)}

    def shown(self, question: Question) -> tuple[str, ...]:
        return tuple(map(str.strip, question.responses))

    def blank(self, question: Question, word: str) -> Question:
        # Without the row's texts, but with the rubric: it is ours, or was already checked for control tokens.
        return replace(super().blank(question, word), fields=question.fields)

    def example_field(self, name: str, word: str) -> str:
        return "\n".join(f"{label}: {word}" for label in self._kind.labels) if name == PRINCIPLE else word

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template((Message(Role.USER, self._write_prompt(question)),), generation_prompt=True)

    def _write_prompt(self, question: Question) -> str:
        kind = self._kind
        task, rubric = self.rubric(question.principle or kind.rubric)
        headings = [f"RESPONSE {position}" for position in (1, 2)] if kind.shows is Shows.TWO else ["RESPONSE"]
        sections = {
            "TASK": task,
            "INPUT": as_text(question.context),
            **dict(zip(headings, question.responses, strict=True)),
            "EVALUATION RUBRIC": rubric,
            "OUTPUT FORMAT": "Return a JSON response in the following format:\n\n"
            + json.dumps({"explanation": kind.explanation, "score": kind.score}, indent=2),
        }
        return (
            f"Evaluate the response based on the given task, input, {kind.opening}, and evaluation rubric.  \n"
            "Provide a fair and detailed assessment following the rubric.\n\n"
            + "".join(f"### {heading}\n{content}\n\n" for heading, content in sections.items())
            + "### EVALUATION"
        )

    def rubric(self, text: str) -> tuple[str, str]:
        """The task, and the rubric's lines. Raises `Rejected` unless it has exactly the labels of `rating`."""
        first = _LABELLED.search(text)
        if first is None or sorted(_LABELLED.findall(text)) != sorted(self._kind.labels):
            lines = ", ".join(f"`{label}: ...`" for label in self._kind.labels)
            raise Rejected(Reason.NO_PRINCIPLE, f"a rubric for rating {self.way.rating} has the lines {lines}")
        return text[: first.start()].strip() or _RATE, text[first.start() :].strip()

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        scores, remainder = _read_scores(generation.text)
        score = the_only(scores)
        if self.shows is Shows.TWO:
            if score not in _RESPONSES:
                raise Unreadable(Reason.NO_VERDICT)
            return won(remainder, score == _RESPONSES[0], "score")
        if self.way.rating == "binary":
            if score not in ("true", "false"):
                raise Unreadable(Reason.NO_VERDICT)
            check_agrees(remainder, [Claim(f"{SCORE}|answer|it", score == "true", TRUTHS, alone=True)])
            return Verdict(({"score": float(score == "true")},))
        rating = number(score, 1, 5)
        check_agrees(remainder, [grade("", rating)])
        return Verdict(({"score": rating},))


def _read_scores(answer: str) -> tuple[list[Hashable], str]:
    # Each `score`, in whole objects and in broken ones, and the rest of the text; None for one that can't be read.
    blocks, remainder = objects(answer, "score")
    scores = [str(score).lower() if isinstance(score, bool) else score for score in (block["score"] for block in blocks)]
    values = [score if isinstance(score, str | int | float) else None for score in scores]
    return [*values, *(match["score"] for match in _SCORE.finditer(remainder))], remainder


FAMILY = R3()
