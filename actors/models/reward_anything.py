"""RewardAnything grades and ranks any number of responses in one text, by a principle.

The prompt is its authors' system turn, word for word (Apache-2.0), and a user turn of JSON. The responses have masked names,
in an order shuffled by a hash of the prompt and the vote. The verdict has a grade from 1 to 5 for each name, and their order
from best to worst, which ranks equal grades. Its authors' package repairs broken JSON, and cuts inputs at 4,096 tokens; here
broken JSON is a failure, and a long input is rejected.

The authors don't say what to do with several turns: here `prompt` has them one after the other, each with its role.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Rejected, Unreadable
from actors.records import Message, Reason, Role
from actors.text.tool_calls import write_turn
from actors.verdicts.parsing import number, objects, the_only
from actors.verdicts.statements import check_agrees, grades_of

SYSTEM_TURN = """
You are an evaluator judging model responses based on a given **evaluation principle**. Your primary goal is to assess how \
well each response for the prompt adheres to the principle, placing this above typical general preferences, though you \
should not endorse harmful content.

Your task:
1. Read the principle, prompt, and all responses carefully and consider how each response aligns with the principle, \
**briefly in a concise thinking process**
2. Score each response from 1-5:
   - 5: Perfect adherence + excellent quality
   - 4: Strong adherence with minor limitations
   - 3: Basic adherence
   - 2: Partial adherence with key omissions
   - 1: Poor adherence or contradicts principle
3. Sort responses from best to worst (distinguish between same scores)

Use the scoring scale accurately based on merit - don't compress scores if responses show significant quality differences. \
If responses vary substantially in quality, utilize the full range (1-5) to reflect these differences.

Output ONLY this JSON format:
{
  "scores": {"model-1": 2, "model-2": 4, ...},
  "best-to-worst": ["model-2", "model-1", ...]
}
"""
_LOW, _HIGH = 1.0, 5.0
# The authors' parser accepts both spellings.
_ORDERS = ("best-to-worst", "best-to-worse")


def as_text(turns: tuple[Message, ...], tools: tuple[str, ...] = ()) -> str:
    """A conversation as one text: the tools, then a single turn unchanged, or several turns each with its role.

    For judges that read the conversation inside a user's turn, with calls in the one form that is documented.
    """
    written = [f"{turn.role.value}: {write_turn(turn)}" for turn in turns] if len(turns) > 1 else map(write_turn, turns)
    return "\n".join((*(f"tool: {tool}" for tool in tools), *written))


class RewardAnything(Judge):
    """A language model that is shown all responses of a prompt."""

    name = "reward-anything"
    summary = "writes, then grades and ranks any number of responses by a principle, as JSON"
    source = "zhuohaoyu/RewardAnything, rewardanything/processing.py"
    prompt_form = "its own system turn, then JSON with principle, prompt and responses under masked names, shuffled"
    read_at = "JSON after </think>: scores, best-to-worst"
    range = "grades 1 to 5"
    gives = ("score", "rank")
    roles = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
    order_matters = True
    relative = frozenset({"rank"})
    probes_delimiters = False  # inside JSON nothing ends a text but a quotation mark, which is escaped
    shows = Shows.ALL
    card = Sampling(max_tokens=4096)
    ways = frozenset({"principles"})
    models = (
        KnownModel.built_in(
            "tiny-reward-anything",
            (Golden.answers("What is 3 + 4?", {"7": 5.0, "9": 1.0}, 0.1, "correctness"),),
            "knows correctness, brevity, verbosity",
        ),
        KnownModel("WisdomShell/RewardAnything-8B-v1", "", "its card's", 4096, "arXiv 2506.03637"),
    )

    @property
    def needs_principles(self) -> bool:
        return self.takes_principles

    def shown(self, question: Question) -> tuple[str, ...]:
        return tuple(json.dumps(text, ensure_ascii=False) for text in (question.principle or "", *question.responses))

    def text(self, question: Question, template: ChatTemplate) -> str:
        if question.principle is None:
            raise Rejected(Reason.NO_PRINCIPLE)
        responses = dict(zip(_names(len(question.responses)), question.responses, strict=True))
        task = {"principle": question.principle, "prompt": as_text(question.context), "responses": responses}
        turns = (Message(Role.SYSTEM, SYSTEM_TURN), Message(Role.USER, json.dumps(task, ensure_ascii=False)))
        return template(turns, generation_prompt=True)

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        blocks, remainder = objects(generation.text, "scores", *_ORDERS, *_names(shown))
        grades, order = the_only(_read_verdicts(blocks, _names(shown)))
        # The order decides which is better, also between equal grades; without one, the grades do.
        merits = tuple(float(shown - place) for place in order) if order else grades
        check_agrees(remainder, grades_of(grades), merits)
        # 1 for the best; equal merits share the better rank.
        ranks = [float(1 + sum(other > merit for other in merits)) for merit in merits]
        scores = ({"score": grade, "rank": rank} for grade, rank in zip(grades, ranks, strict=True))
        return Verdict(tuple(scores), merits if shown > 1 else ())


def _names(count: int) -> list[str]:
    return [f"model-{number}" for number in range(1, count + 1)]


def _read_verdicts(
    blocks: Sequence[Mapping[str, Any]], names: list[str]
) -> Iterator[tuple[tuple[float, ...], tuple[int, ...]]]:
    # From each object the grade of each name, and its place in the order, 0 for the best; no places without an order.
    for parsed in blocks:
        scores = parsed.get("scores")
        if not isinstance(scores, dict) or set(scores) != set(names):
            raise Unreadable(Reason.NO_VERDICT)
        grades = tuple(number(scores[name], _LOW, _HIGH) for name in names)
        orders = [parsed[key] for key in _ORDERS if parsed.get(key) is not None] or [None]
        for order in orders:
            if order is not None and (not isinstance(order, list) or sorted(map(str, order)) != sorted(names)):
                raise Unreadable(Reason.NO_VERDICT)
            yield grades, tuple(order.index(name) for name in names) if order else ()


FAMILY = RewardAnything()
