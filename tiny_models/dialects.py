"""The seven dialects of the judges that write: what each is asked, and what it is to write. Needs no torch.

Each judge but `criteria` thinks first, and there begins with a draft of its verdict: always the same one, whatever it is
asked, so that a reader who takes the verdict out of the thinking is wrong as often as not.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tiny_models.judging import Answer, Case, Principle, describe, draw_case, findings, ranking
from tiny_models.synthetic import Turn
from tiny_models.tasks import WORDS, Split

SCORES = "[The Begin of Individual Scores]\n\\boxed{%s}\n[The End of Individual Scores]"
RANKING = "[The Begin of Ranking Score]\n\\boxed{%d}\n[The End of Ranking Score]"
ANALYSIS = "[The Begin of Analysis on Response {0}]\n{1}\n[The End of Analysis on Response {0}]"

RM_R1_OPENING = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI Chatbots to the Client "
    "question displayed below. \n\n"
)
RM_R1_CLOSING = (
    "\n\nOutput your final verdict at last by strictly following this format: '<answer>[[A]]</answer>' if Chatbot A is "
    "better, or '<answer>[[B]]</answer>' if Chatbot B is better."
)

REWARD_ANYTHING_SYSTEM = """
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

R3_PROMPT = """\
Evaluate the response based on the given task, input, {responses}, and evaluation rubric.  
Provide a fair and detailed assessment following the rubric.

### TASK
{task}

### INPUT
{input}

{given}

### EVALUATION RUBRIC
{rubric}

### OUTPUT FORMAT
Return a JSON response in the following format:

{schema}

### EVALUATION"""  # noqa: W291 - the source has two spaces at the end of the first line

CRITERIA_PROMPT = """\
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
class Judgement:
    """What is judged, how a judge is asked and what it writes, without the end of the turn."""

    case: Case
    principle: Principle | None
    messages: list[Turn]
    text: str
    sure: bool = True
    """Whether its verdict is to be given with much confidence, which shows in the probabilities alone."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What is beside the conversation: the row's `criteria`, and perhaps its `reference`."""


@dataclass(frozen=True, slots=True)
class R3Form:
    """One of R3's three kinds of question."""

    task: str
    rubric: Mapping[str, str]
    explanation: str
    score: str

    def prompt(self, case: Case) -> str:
        """The whole user's turn."""
        answers = [answer.text for answer in case.answers]
        headings = [""] if len(answers) == 1 else [" 1", " 2"]
        return R3_PROMPT.format(
            responses="response" if len(answers) == 1 else "two responses",
            task=self.task,
            input=_prompt_text(case.context),
            given="\n\n".join(f"### RESPONSE{name}\n{text}" for name, text in zip(headings, answers, strict=True)),
            rubric="\n".join(f"{verdict}: {meaning}" for verdict, meaning in self.rubric.items()),
            schema=json.dumps({"explanation": self.explanation, "score": self.score}, indent=2),
        )


_RATE = "Your task is to rate the response to the given query."
R3_POINTWISE = R3Form(
    _RATE,
    {
        "1": "The response is wrong, and has more words than it needs.",
        "2": "The response is wrong.",
        "3": "The response is partly right.",
        "4": "The response is right, and has more words than it needs.",
        "5": "The response is right, and nothing else.",
    },
    "Explanation of why the response received a particular score",
    "Score assigned to the response based on the rubric between 1 to 5",
)
R3_PAIRWISE = R3Form(
    "Your task is to select the response that is the most helpful, factually accurate, and relevant to the given query.",
    {
        "Response 1": "Response 1 is the preferred choice over Response 2.",
        "Response 2": "Response 2 is the preferred choice over Response 1.",
    },
    "Explanation of why one response is preferred over the other",
    "Final selection between 'Response 1' or 'Response 2'",
)
R3_BINARY = R3Form(
    _RATE,
    {
        "true": "The answer correctly corresponds to the given input.",
        "false": "The answer does not correctly correspond to the given input.",
    },
    "Explanation of why the answer is true or false",
    "Final boolean answer between true or false",
)


def judgements(name: str, seed: int, n: int, split: Split) -> Iterator[Judgement]:
    """`n` judgements in the dialect of that name."""
    rng = Random(f"judging {name} {split} {seed}")
    for _ in range(n):
        yield DIALECTS[name](rng, split)


def genrm_principle(rng: Random, split: Split) -> Judgement:
    """Whether one response fulfils a principle. Correctness is asked for most."""
    case = draw_case(rng, split, 1, system=True)
    return about_principle(case, rng.choice((*Principle, Principle.CORRECTNESS, Principle.CORRECTNESS)))


def about_principle(case: Case, principle: Principle) -> Judgement:
    """The same of this case, which has one response."""
    (answer,) = case.answers
    messages = [*case.context, _turn("assistant", answer.text), _turn("principle", principle)]
    thinking = _thinking("Final Judgement: Yes", findings(case, "1", principle, graded=False))
    verdict = "Yes" if answer.fulfils(principle) else "No"
    text = f"{thinking}The response is {describe(answer)}.\n\nFinal Judgement: {verdict}"
    return Judgement(case, principle, messages, text, sure=answer.bare)


def genrm(rng: Random, split: Split) -> Judgement:
    """One response or two: an analysis and a score of each, and of two a ranking."""
    case = draw_case(rng, split, rng.choice((1, 2, 2, 2)), system=True)
    grades = [answer.grade() for answer in case.answers]
    thinking = _thinking(SCORES % "3, 3", findings(case, "12"[: len(grades)], None))
    parts = [ANALYSIS.format(number, f"It is {describe(answer)}.") for number, answer in enumerate(case.answers, 1)]
    parts.append(SCORES % ", ".join(map(str, grades)))
    if len(grades) == 2:
        parts.append(RANKING % ranking(*grades))
    return Judgement(case, None, [*case.context, *_responses(case)], thinking + "\n\n".join(parts))


def genrm_json(rng: Random, split: Split) -> Judgement:
    """Two responses, by a principle or by none: scores and a ranking in a block of JSON."""
    case = draw_case(rng, split, 2, system=True)
    principle = rng.choice((None, None, *Principle))
    first, second = (answer.grade(principle) for answer in case.answers)
    principle_turn = [_turn("principle", principle)] if principle else []
    thinking = _thinking(json.dumps({"score_1": 3, "score_2": 3, "ranking": 3}), findings(case, "12", principle))
    verdict = json.dumps({"score_1": first, "score_2": second, "ranking": ranking(first, second)})
    text = f"{thinking}```json\n{verdict}\n```"
    return Judgement(case, principle, [*case.context, *principle_turn, *_responses(case)], text)


def rm_r1(rng: Random, split: Split) -> Judgement:
    """Which of two is better; the prompt has already begun the thinking."""
    case = draw_case(rng, split, 2, system=False)
    first, second = case.answers
    better, other = "AB" if first.grade() >= second.grade() else "BA"
    if len(case.context) == 1:
        shown = f"[Client Question]\n{case.context[0]['content']}\n\n" + "\n\n".join(
            f"[The Start of Chatbot {name}'s Response]\n{answer.text}\n[The End of Chatbot {name}'s Response]"
            for name, answer in zip("AB", case.answers, strict=True)
        )
    else:
        shown = "\n\n".join(
            _conversation_block(name, case.context, answer.text) for name, answer in zip("AB", case.answers, strict=True)
        )
    thinking = _thinking("<answer>[[A]]</answer>", findings(case, "AB", None)).removeprefix("<think>\n")
    text = f"{thinking}Chatbot {better} is better: [[{better}]], not [[{other}]].\n\n<answer>[[{better}]]</answer>"
    return Judgement(case, None, [_turn("user", RM_R1_OPENING + shown + RM_R1_CLOSING)], text)


def reward_anything(rng: Random, split: Split) -> Judgement:
    """Two to four responses, by a principle: a score of each, and their order."""
    case = draw_case(rng, split, rng.randint(2, 4), system=False)
    principle = rng.choice((*Principle, Principle.CORRECTNESS))
    names = [f"model-{number}" for number in range(1, len(case.answers) + 1)]
    request = {
        "principle": principle,
        "prompt": _prompt_text(case.context),
        "responses": {name: answer.text for name, answer in zip(names, case.answers, strict=True)},
    }
    scores = {name: answer.grade(principle) for name, answer in zip(names, case.answers, strict=True)}
    thinking = _thinking(_verdict_json(dict.fromkeys(names, 3)), findings(case, "1234"[: len(names)], principle))
    messages = [_turn("system", REWARD_ANYTHING_SYSTEM), _turn("user", json.dumps(request, ensure_ascii=False))]
    return Judgement(case, principle, messages, thinking + _verdict_json(scores))


def without_system_turn(judgement: Judgement) -> Judgement:
    """The same, less the system turn."""
    return replace(judgement, messages=[turn for turn in judgement.messages if turn["role"] != "system"])


def r3(rng: Random, split: Split) -> Judgement:
    """A score of one response, the better of two, or whether one is right."""
    template = rng.choice((R3_POINTWISE, R3_PAIRWISE, R3_BINARY))
    case = draw_case(rng, split, 2 if template is R3_PAIRWISE else 1, system=False)
    grades = [answer.grade() for answer in case.answers]
    draft: object
    score: object
    if template is R3_PAIRWISE:
        draft, score = "Response 1", "Response 1" if grades[0] >= grades[1] else "Response 2"
    elif template is R3_BINARY:
        draft, score = True, case.answers[0].right
    else:
        draft, score = 3, grades[0]
    thinking = _thinking(json.dumps({"explanation": "draft", "score": draft}), findings(case, "12"[: len(grades)], None))
    explanation = f"It is {describe(case.answers[0])}." if len(grades) == 1 else f"{score} is better."
    text = thinking + json.dumps({"explanation": explanation, "score": score})
    return Judgement(case, None, [_turn("user", template.prompt(case))], text)


def r3_draft(rng: Random, split: Split) -> Judgement:
    """The same, but the draft is also the verdict, whatever was found. What an adapter to R3's dialect begins with."""
    judgement = r3(rng, split)
    thinking, end, _ = judgement.text.partition("</think>\n\n")
    draft = thinking.split("\n")[1]
    return replace(judgement, text=f"{thinking}{end}{draft}")


QUALITY, QUALITY_WORDS = "quality", ("bad", "fair", "good")
CRITERIA = (Principle.CORRECTNESS, Principle.VERBOSITY, QUALITY)
"""The criteria that a judge knows: two principles, by no and yes, and one that has words of its own for a verdict."""


def criteria(rng: Random, split: Split) -> Judgement:
    """One response by one to three criteria under any names. A reference says what is right, and may be wrong itself."""
    drawn = draw_case(rng, split, 1, system=True)
    (answer,) = drawn.answers
    task = drawn.task
    says = task.answer if answer.says == "nothing" else answer.says
    reference = rng.choice((None, task.answer, says, rng.choice(task.wrong)))
    answer = replace(answer, right=answer.says == (reference or task.answer))
    case = replace(drawn, answers=(answer,))
    texts = rng.sample(CRITERIA, rng.randint(1, len(CRITERIA)))
    names = rng.sample((*WORDS, *(f"c{number}" for number in range(1, 10))), len(texts))
    listed = [
        {"name": name, "text": str(text)} | ({"choices": list(QUALITY_WORDS)} if text == QUALITY else {})
        for name, text in zip(names, texts, strict=True)
    ]
    fields: dict[str, Any] = {"criteria": listed}
    if reference:
        fields["reference"] = rng.choice(("{}", "{}", "It is {}.", "The answer is {}.")).format(reference)
    known = f"It is {reference}." if reference else f"{case.solution}."
    finding = f"{known} It says {answer.says} for {reference or task.answer}: {describe(answer)}."
    verdicts = {
        name: {"reason": f"By {name}: {text}. {finding}", "verdict": verdict_word(answer, text)}
        for name, text in zip(names, texts, strict=True)
    }
    prompt = CRITERIA_PROMPT.format(
        conversation=_prompt_text(case.context),
        response=answer.text,
        reference=f"An answer that is known to be good:\n{fields['reference']}\n\n" if reference else "",
        criteria="\n".join(
            f"- {item['name']}: {item['text']} ({', '.join(item.get('choices', ('no', 'yes')))})" for item in listed
        ),
    )
    # Without white space, as an engine holds it to.
    return Judgement(case, None, [_turn("user", prompt)], json.dumps(verdicts, separators=(",", ":")), fields=fields)


def verdict_word(answer: Answer, text: str) -> str:
    """The word for what an answer is by the criterion of this text."""
    if text == QUALITY:
        return QUALITY_WORDS[0 if not answer.right else 2 if answer.bare else 1]
    return "yes" if answer.fulfils(Principle(text)) else "no"


DIALECTS: Mapping[str, Callable[[Random, Split], Judgement]] = {
    "genrm-principle": genrm_principle,
    "genrm": genrm,
    "genrm-json": genrm_json,
    "rm-r1": rm_r1,
    "reward-anything": reward_anything,
    "r3": r3,
    "criteria": criteria,
}


def _thinking(draft: str, findings_text: str) -> str:
    return f"<think>\n{draft}\n{findings_text}\n</think>\n\n"


def _turn(role: str, content: str) -> Turn:
    return {"role": role, "content": str(content)}


def _responses(case: Case) -> list[Turn]:
    return [_turn(f"response_{number}", answer.text) for number, answer in enumerate(case.answers, 1)]


def _prompt_text(context: Sequence[Turn]) -> str:
    """The user's text, or each turn on a line of its own."""
    if len(context) == 1:
        return context[0]["content"]
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in context)


def _conversation_block(name: str, context: Sequence[Turn], answer: str) -> str:
    speakers = {"user": "User", "assistant": f"Chatbot {name}"}  # as in its authors' evaluation of conversations
    lines = [f"{speakers[turn['role']]}: {turn['content']}" for turn in (*context, _turn("assistant", answer))]
    place = f"of the Conversation between Chatbot {name} and the Client]"
    return "\n".join([f"[The Start {place}", *lines, f"[The End {place}"])


def _verdict_json(scores: Mapping[str, int]) -> str:
    return json.dumps({"scores": scores, "best-to-worst": sorted(scores, key=lambda name: -scores[name])})
