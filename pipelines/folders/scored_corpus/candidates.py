"""Vocabulary of the commands that read a scored corpus: candidates, and preference pairs of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from actors.records import Message, Role, ToolCall
from actors.text.tool_calls import write_turn
from pipelines.folders.run_folder.json_lines import encode

SAME_REWARD = 1e-5  # rewards that differ by at most this are equal: smaller differences come from the composition of a batch


class LabelAgreement(StrEnum):
    """Whether a pair agrees with the corpus' label, which calls one of its responses `chosen`."""

    AGREES = "agree"
    DISAGREES = "disagree"
    UNLABELLED = "unlabelled"


class Side(StrEnum):
    """The label of a response, which is in its name: `chosen`, `rejected[2]`."""

    CHOSEN = "chosen"
    REJECTED = "rejected"


_SIDES = {side.value: side for side in Side}


def labelled(name: str) -> Side | None:
    """The label in the name of a response; None if there is none.

    Both `rejected` and `rejected[2]` are labelled: a row may have several worse responses.
    """
    return _SIDES.get(name.partition("[")[0])


class Content(NamedTuple):
    """What a response says, and what comes along from its row.

    `context` are the turns before it. `answer` is the judged text if reasoning was stripped from `text`, else None. `fields`
    are the input row's own fields, and `judged_before` the places in `context` of the turns that were judged by themselves,
    as responses of the same row. `left` are the row's own fields that don't come along, with the reasons. `calls` are the
    response's, and `tools` those that it could call.
    """

    context: tuple[Message, ...]
    text: str
    answer: str | None = None
    fields: Mapping[str, Any] = {}
    judged_before: tuple[int, ...] = ()
    left: Mapping[str, "LeftField"] = {}
    calls: tuple[ToolCall, ...] = ()
    tools: tuple[str, ...] = ()


class LeftField(StrEnum):
    """Why an own field of an input row doesn't come along."""

    TAKEN = "the name is reserved"
    NO_JSON = "JSON has no such value"
    DIFFERS = "the rows of a pair differ in it"


def count_left(rows: Iterable[Mapping[str, LeftField]]) -> dict[str, int]:
    """How many rows are without an own field, by its name and the reason."""
    counts: dict[str, int] = {}  # a `Counter` takes four times as long to make, and this is done for each prompt
    for dropped in rows:
        for name, reason in dropped.items():
            field = f"{name}: {reason}"
            counts[field] = counts.get(field, 0) + 1
    return counts


class Candidate(NamedTuple):
    """A scored response: its reward, and its content, which is read from its row when it is asked for.

    `row` and `name` identify it: a row of the corpus, and `final`, `chosen`, `turn[3]` or `candidate[5]` in it. Equal
    `prompt_hash`es mean equal prompts. `read` gives the same content each time; it raises `SourceError` if the row isn't
    what was scored. Of the candidates of a prompt most are left out by their rewards alone, and parsing a row takes longer
    than all else that is done with it.
    """

    row: str
    name: str
    prompt_hash: str
    reward: float
    scores: Mapping[str, float]
    read: Callable[[], Content]

    @property
    def context(self) -> tuple[Message, ...]:
        return self.read().context

    @property
    def text(self) -> str:
        return self.read().text

    @property
    def turn(self) -> Message:
        content = self.read()
        return Message(Role.ASSISTANT, content.text, content.calls)

    @property
    def tools(self) -> tuple[str, ...]:
        return self.read().tools

    @property
    def uses_tools(self) -> bool:
        return bool(self.tools) or any(turn.calls for turn in (*self.context, self.turn))

    @property
    def judged_before(self) -> tuple[int, ...]:
        return self.read().judged_before

    @property
    def judged_text(self) -> str:
        # With the calls, and without white space around it: candidates are compared by it.
        answer = self.read().answer
        return (write_turn(self.turn) if answer is None else answer).strip()


class LeftOut(StrEnum):
    """Why a response isn't a candidate."""

    UNSCORED = "without a reward"
    UNMET = "outside --where"


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two candidates for one prompt, the better and the worse one, with different rewards and different judged texts."""

    chosen: Candidate
    rejected: Candidate

    @property
    def margin(self) -> float:
        return self.chosen.reward - self.rejected.reward

    @property
    def own_fields(self) -> tuple[Mapping[str, Any], Mapping[str, LeftField]]:
        # Of two input rows, only fields that are equal in both: else a pair would carry one row's label beside the other's
        # text.
        chosen, rejected = self.chosen.read(), self.rejected.read()
        if self.chosen.row == self.rejected.row:
            return chosen.fields, chosen.left
        # As text: in Python, 1 is True and 1.0.
        equal = {
            name: value
            for name, value in chosen.fields.items()
            if name in rejected.fields and encode({name: value}) == encode({name: rejected.fields[name]})
        }
        differing = {name: LeftField.DIFFERS for name in (*chosen.fields, *rejected.fields) if name not in equal}
        return equal, {**differing, **rejected.left, **chosen.left}

    @property
    def agreement(self) -> LabelAgreement:
        """Whether the pair agrees with the labels.

        A label says that a response was better than the others of its row. Of two rows with one prompt, a pair that prefers
        a response labelled as worse to one labelled as better contradicts the labels, and no pair is confirmed by them.
        """
        chosen, rejected = labelled(self.chosen.name), labelled(self.rejected.name)
        if chosen is None or rejected is None or chosen is rejected:
            return LabelAgreement.UNLABELLED
        if chosen is Side.REJECTED:
            return LabelAgreement.DISAGREES
        return LabelAgreement.AGREES if self.chosen.row == self.rejected.row else LabelAgreement.UNLABELLED

    @property
    def label_margin(self) -> float | None:
        """The margin in the direction of the row's label: negative if they disagree; None without a label or of two rows.

        Of two rows, a pair can only disagree: their margins would make the mean of a corpus look worse than its labels are.
        """
        if self.chosen.row != self.rejected.row:
            return None
        margins = {LabelAgreement.AGREES: self.margin, LabelAgreement.DISAGREES: -self.margin}
        return margins.get(self.agreement)
