"""Why responses have no reward, for a person: what was wrong with the first of each reason, and what helps."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from actors.records import Reason
from actors.text.visible import line
from pipelines.folders.run_folder.examples import Example, first_of_each, read_examples
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts, open_part

SAY_REASONING = (
    "Give --set render.reasoning=strip to judge the final answers, keep to judge all of it, or reject to leave these "
    "without a reward"
)
ADVICE: Mapping[Reason, str] = {
    Reason.NO_FINAL_ASSISTANT: "the response must be the last turn; name another one with --prompt-column and "
    "--response-column, judge each turn with --set corpus.turns=all, or let a policy answer with `assay sample`",
    Reason.MISSING_FIELD: "name the fields with --prompt-column and --response-column; a path such as answers[].text leads "
    "into lists and objects",
    Reason.WRONG_TYPE: "name the fields with --prompt-column and --response-column, or with --conversation-column one that "
    "holds a list of {role, content} or its JSON text; a[0] is an element of a list, a[] each",
    Reason.CONTROL_TOKEN: "the model would take such a mark for its template's; write it otherwise to have the text judged",
    Reason.TOO_LONG: "--set render.too_long=trim-turns drops the oldest turns, and --set render.max_model_len=... says "
    "what the model takes",
    Reason.REASONING: SAY_REASONING,
    Reason.NO_PRINCIPLE: "--set read.principles.NAME=TEXT or --field principle=COLUMN gives what the model "
    "judges by, in the form that its card has",
    Reason.COLUMN_COLLISION: "--set prefix=NAME gives Assay's columns other names",
    Reason.UNFINISHED: "--set policy.policy_max_tokens=... lets candidates be longer",
    Reason.CUT_OFF: "--set judge.max_tokens=... lets the judge write more",
    Reason.NO_VERDICT: "`assay check MODEL` shows what a judge writes, and what is read of it; a rubric's prompt "
    "must ask for what it reads",
}
# Reasons of which an example is what a judge wrote.
TEXT_REASONS = (Reason.CUT_OFF, Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE)
# Parts whose footers are read for examples, in a store a request each, and reasons that are shown.
_MOST_PARTS, _MOST_REASONS = 16, 5


def first_examples(parts: Parts) -> list[Example]:
    """The first examples of each outcome in the first parts that may have some. Raises as `part_examples`."""
    listed = (
        # The first part has a text that a judge was read in, although nothing failed there.
        part
        for number, part in enumerate(parts.listing())
        if number == 0 or part.counts.rejected + part.counts.failed
    )
    read = (part_examples(parts, part) for part in itertools.islice(listed, _MOST_PARTS))
    return first_of_each(itertools.chain.from_iterable(read))


def part_examples(parts: Parts, part: Part) -> list[Example]:
    """The examples in a part's footer. Raises `SourceError` if it can't be read."""
    with open_part(parts.path(part)) as parquet:
        return read_examples(parquet.metadata.metadata)


def unscored_lines(reasons: Iterable[str], examples: Sequence[Example]) -> list[str]:
    """Of some reasons, the most frequent first, what was wrong, each with the row and the response, and what helps."""
    lines: list[str] = []
    for reason in itertools.islice(reasons, _MOST_REASONS):
        details = {""}
        for example in examples:
            if example.outcome == reason and example.detail not in details:
                details.add(example.detail)
                what = f"the judge wrote {example.detail!r}" if reason in TEXT_REASONS else example.detail
                lines.append(line(f"  {reason}: {example.row} {example.response}: {what}"))
        if reason in ADVICE:
            lines.append(f"  {reason}: {ADVICE[Reason(reason)]}")
    return lines
