"""RM-R1 of the instruct kind: the same question and verdict as the distilled one's, with instructions in a system turn.

The instructions are word for word its authors' (Apache-2.0); the model was trained to answer in their structure.
"""

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.known_model import KnownModel
from actors.models.rm_r1 import RmR1, both
from actors.records import Message, Role

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


class RmR1Instruct(RmR1):
    """The models that write a solution or a rubric before they answer."""

    name = "rm-r1-instruct"
    summary = "solves or sets up a rubric, then names the better of two responses (RM-R1, instruct)"
    asked = "its authors' system turn, and one user turn with both responses, in both orders; generation prompt"
    read_at = "[[A]] or [[B]] in the last <answer>, if no other one names the other"
    opens_reasoning = False
    models = (KnownModel("gaotang/RM-R1-Qwen2.5-Instruct-*", "7, 14 and 32 billion", card="arXiv 2505.02387"),)

    def text(self, question: Question, template: ChatTemplate) -> str:
        turns = (Message(Role.SYSTEM, SYSTEM_TURN), Message(Role.USER, both(question)))
        return template(turns, generation_prompt=True)


FAMILY = RmR1Instruct()
