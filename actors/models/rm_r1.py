"""RM-R1, distilled from DeepSeek's reasoning, names the better of two responses after reasoning about them.

The prompt is one user turn and no system turn, word for word its authors' (Apache-2.0). The verdict is in the last
`<answer>`, with no words after it, and a text whose answers differ has none (their code refuses `[[A]]` and `[[B]]` also in
prose). They show each pair in one random order; here both orders are judged, and a judge that contradicts itself counts as
a tie.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Unreadable
from actors.records import Message, Reason, Role
from actors.verdicts.numbers import plain
from actors.verdicts.parsing import the_only
from actors.verdicts.statements import check_agrees, choice

_TASK = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI Chatbots to the Client "
    "question displayed below. \n\n"
)
_FORMAT = (
    "\n\nOutput your final verdict at last by strictly following this format: '<answer>[[A]]</answer>' if Chatbot A is "
    "better, or '<answer>[[B]]</answer>' if Chatbot B is better."
)
_WINNER = re.compile(r"<answer>\s*\[\[([AB])\]\]")
# A verdict in a tag in any spelling.
_TAGS = re.compile(
    r"<\s*(?:\w+_)?answer\b[^<>]*>(?:([^<]*+)<\s*[/\\]\s*(?:\w+_)?answer|\W*([AB])\b)|<verdict>([^<]*)", re.IGNORECASE
)
# What a text may end with: the letter, the end of the tag, maybe twice, and signs. The quantifier gives nothing back, so
# that a tail of a thousand signs takes linear time.
_ANSWER = re.compile(r"\s*\[\[[AB]\]\]\s*</answer>(?:</answer>|[\W_])*+")
NAMES = ("A", "B")


# Word for word the authors' (Apache-2.0): the instruct models were trained to answer in its structure.
SYSTEM_TURN = """\
Please act as an impartial judge and evaluate the quality of the responses provided by two AI Chatbots to the \
Client's question displayed below.

First, classify the task into one of two categories: <type>Reasoning</type> or <type>Chat</type>.
- Use <type>Reasoning</type> for tasks that involve math, coding, or require domain knowledge, multi-step inference, \
logical deduction, or combining information to reach a conclusion.
- Use <type>Chat</type> for tasks that involve open-ended or factual conversation, stylistic rewrites, safety \
questions, or general helpfulness requests without deep reasoning.

If the task is Reasoning:
1. Solve the Client's question yourself and present your final answer within <solution>...</solution> tags.
2. Evaluate the two Chatbot responses based on correctness, completeness, and reasoning quality, referencing your own \
solution.
3. Include your evaluation inside <eval>...</eval> tags, quoting or summarizing the Chatbots using the following tags:
   - <quote_A>...</quote_A> for direct quotes from Chatbot A
   - <summary_A>...</summary_A> for paraphrases of Chatbot A
   - <quote_B>...</quote_B> for direct quotes from Chatbot B
   - <summary_B>...</summary_B> for paraphrases of Chatbot B
4. End with your final judgment in the format: <answer>[[A]]</answer> or <answer>[[B]]</answer>

If the task is Chat:
1. Generate evaluation criteria (rubric) tailored to the Client's question and context, enclosed in \
<rubric>...</rubric> tags.
2. Assign weights to each rubric item based on their relative importance.
3. Inside <rubric>, include a <justify>...</justify> section explaining why you chose those rubric criteria and \
weights.
4. Compare both Chatbot responses according to the rubric.
5. Provide your evaluation inside <eval>...</eval> tags, using <quote_A>, <summary_A>, <quote_B>, and <summary_B> as \
described above.
6. End with your final judgment in the format: <answer>[[A]]</answer> or <answer>[[B]]</answer>

Important Notes:
- Be objective and base your evaluation only on the content of the responses.
- Do not let response order, length, or Chatbot names affect your judgment.
- Follow the response format strictly depending on the task type.

Your output must follow one of the two formats below:

For Reasoning:
<type>Reasoning</type>

<solution> your own solution for the problem </solution>

<eval>
  include direct comparisons supported by <quote_A>...</quote_A> or <summary_A>...</summary_A>, and \
<quote_B>...</quote_B>, or <summary_B>...</summary_B>
</eval>

<answer>[[A/B]]</answer>

For Chat:
<type>Chat</type>

<rubric>
  detailed rubric items
  <justify> justification for the rubric </justify>
</rubric>

<eval>
  include direct comparisons supported by <quote_A>...</quote_A> or <summary_A>...</summary_A>, and \
<quote_B>...</quote_B>, or <summary_B>...</summary_B> tags
</eval>

<answer>[[A/B]]</answer>"""


def _both(question: Question) -> str:
    """Both responses under a single question, or each at the end of a copy of a longer conversation."""
    if len(question.context) == 1:
        (message,) = question.context
        blocks = (
            f"[The Start of Chatbot {name}'s Response]\n{response}\n[The End of Chatbot {name}'s Response]"
            for name, response in zip(NAMES, question.responses, strict=True)
        )
        return "\n\n".join((f"[Client Question]\n{message.content}", *blocks))
    return "\n\n".join(
        f"[The Start of the Conversation between Chatbot {name} and the Client]\n"
        f"{_lines((*question.context, Message(Role.ASSISTANT, response)), name)}\n"
        f"[The End of the Conversation between Chatbot {name} and the Client]"
        for name, response in zip(NAMES, question.responses, strict=True)
    )


def _lines(turns: Sequence[Message], name: str) -> str:
    return "\n".join(f"{'User' if turn.role is Role.USER else f'Chatbot {name}'}: {turn.content}" for turn in turns)


class RmR1(Judge):
    """The distilled models, which reason before they answer."""

    name = "rm-r1"
    summary = "reasons, then names the better of two responses (RM-R1, distilled)"
    source = "RM-R1-UIUC/RM-R1, eval/RM-Bench/rewardbench/generative.py"
    prompt_form = "one user turn with its authors' text and both responses, in both orders; generation prompt"
    read_at = "[[A]] or [[B]] in the last <answer> after </think>, if no other one names the other"
    range = "1 for the better, 0 for the other, 0.5 each where the orders contradict each other"
    gives = ("win",)
    roles = frozenset({Role.USER, Role.ASSISTANT})
    order_matters = True
    shows = Shows.TWO
    card_votes = 2  # one in each order
    card = Sampling(max_tokens=50000)
    opens_reasoning = True
    delimiters = (
        "[Client Question]",
        *(
            f"[The {edge} of {what}"
            for edge in ("Start", "End")
            for what in ("Chatbot A", "Chatbot B", "the Conversation between")
        ),
        *(f"<answer>[[{name}]]" for name in NAMES),
    )
    probes_delimiters = False
    models: ClassVar[tuple[KnownModel, ...]] = (
        KnownModel.built_in("tiny-rm-r1", (Golden.answers("What is 3 + 4?", {"7": 1.0, "9": 0.0}, 0.1),)),
        KnownModel("gaotang/RM-R1-DeepSeek-Distilled-*", "7, 14 and 32 billion", "its card's", card="arXiv 2505.02387"),
    )

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template((Message(Role.USER, f"{_TASK}{_both(question)}{_FORMAT}"),), generation_prompt=True)

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        _, tag, tail = generation.text.rpartition("<answer>")
        winner = the_only(_WINNER.findall(generation.text))
        if not tag or not _ANSWER.fullmatch(tail):
            raise Unreadable(Reason.NO_VERDICT)
        # Its own answer may be spelled otherwise, and this one quoted.
        tags = ("".join(groups) for groups in _TAGS.findall(plain(generation.text)))
        letters = [re.sub(r"chatbot|boxed|[\W_]", "", tag, flags=re.IGNORECASE).upper() for tag in tags]
        return won(_WINNER.sub("READ", generation.text), the_only([winner, *letters]) == NAMES[0])


class RmR1Instruct(RmR1):
    """The models that write a solution or a rubric before they answer."""

    name = "rm-r1-instruct"
    summary = "solves or sets up a rubric, then names the better of two responses (RM-R1, instruct)"
    prompt_form = "its authors' system turn, and one user turn with both responses, in both orders; generation prompt"
    read_at = "[[A]] or [[B]] in the last <answer>, if no other one names the other"
    opens_reasoning = False
    models = (KnownModel("gaotang/RM-R1-Qwen2.5-Instruct-*", "7, 14 and 32 billion", card="arXiv 2505.02387"),)

    def text(self, question: Question, template: ChatTemplate) -> str:
        turns = (Message(Role.SYSTEM, SYSTEM_TURN), Message(Role.USER, _both(question)))
        return template(turns, generation_prompt=True)


def won(rest: str, first: bool, labels: str = "") -> Verdict:
    """The verdict with 1 for the better of two responses. Raises `Unreadable` if the rest of the text states another."""
    merits = (1.0, 0.0) if first else (0.0, 1.0)
    check_agrees(rest, [choice(labels, merits[0], {})], merits)
    return Verdict(tuple({"win": merit} for merit in merits), merits)


FAMILY = (RmR1(), RmR1Instruct())
