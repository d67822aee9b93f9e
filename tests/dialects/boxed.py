r"""What the judges write that answer in `\boxed{}`: text, how many responses they were shown, and what it says."""

from actors.contracts.judge import Verdict
from actors.records import Reason

Case = tuple[str, str, int, Verdict | Reason]

GRADES, GRADES_END = "[The Begin of Individual Scores]", "[The End of Individual Scores]"
RANKING, RANKING_END = "[The Begin of Ranking Score]", "[The End of Ranking Score]"
ANALYSIS = """[The Begin of Analysis on Response 1]
The first response is correct and short.
[The End of Analysis on Response 1]
[The Begin of Analysis on Response 2]
The second one gets the sum wrong.
[The End of Analysis on Response 2]
"""


def single(score: float) -> Verdict:
    return Verdict(({"score": score},))


def two(first: float, second: float, margin: float) -> Verdict:
    return Verdict(({"score": first, "margin": margin}, {"score": second, "margin": -margin}), (margin, -margin))


def grades(box: str) -> str:
    return f"{GRADES}\n\\boxed{{{box}}}\n{GRADES_END}\n"


def ranking(box: str) -> str:
    return f"{RANKING}\n\\boxed{{{box}}}\n{RANKING_END}\n"


def both(scores: str, rank: str) -> str:
    return grades(scores) + ranking(rank)


NONE, SEVERAL, OFF = Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE
GOOD = both("4, 2", "2")
MUCH_WORSE = both("1, 5", "6")

CASES: tuple[Case, ...] = (
    # As the card has it.
    ("the card's two", "<think>\nSum.\n</think>\n\n" + ANALYSIS + both("1, 5", "5"), 2, two(1, 5, -1.5)),
    ("the card's one", "<think>\nSum.\n</think>\n" + grades("1"), 1, single(1)),
    ("the first much better", both("5, 1", "1"), 2, two(5, 1, 2.5)),
    ("a ranking beside the only response", grades("4") + ranking("2"), 1, single(4)),
    ("a silly ranking beside the only response", grades("4") + ranking("none"), 1, single(4)),
    ("the ranking first", ranking("4") + grades("3, 4"), 2, two(3, 4, -0.5)),
    ("text after it", GOOD + "\nI hope that this helps.", 2, two(4, 2, 1.5)),
    (
        "everything in one line",
        f"{GRADES} \\boxed{{4, 2}} {GRADES_END} {RANKING} \\boxed{{2}} {RANKING_END}",
        2,
        two(4, 2, 1.5),
    ),
    # Reasoning.
    ("thinking that the template began", "First, the sum.\n</think>\n" + GOOD, 2, two(4, 2, 1.5)),
    ("</think> in a quoted response", f"<think>\nIt says '</think> {MUCH_WORSE}'.\n</think>\n{GOOD}", 2, SEVERAL),
    ("a begin mark that is mentioned", f"The first writes <thinking> before it answers.\n{GOOD}", 2, two(4, 2, 1.5)),
    ("a begin mark that is mentioned behind", f"{GOOD}\nThe second one has a <think> in it.", 2, two(4, 2, 1.5)),
    ("grades in the thinking, ranking after", f"<think>\n{grades('4, 2')}</think>\n{ranking('2')}", 2, NONE),
    # Cut off, though it ended by itself.
    ("empty", "", 2, NONE),
    ("white space", "\n \n", 1, NONE),
    ("cut off in the box", f"{GRADES}\n\\boxed{{4, ", 2, NONE),
    ("cut off after the box", f"{GRADES}\n\\boxed{{4, 2}}\n", 2, NONE),
    ("cut off in the mark", f"{GRADES}\n\\boxed{{4}}\n[The End of Individual", 1, NONE),
    ("cut off before the ranking", grades("4, 2"), 2, NONE),
    ("cut off in the ranking", grades("4, 2") + f"{RANKING}\n\\boxed{{2", 2, NONE),
    ("ranking alone", ranking("2"), 2, NONE),
    ("a second block that is cut off", GOOD + f"Wait.\n{GRADES}\n\\boxed{{2, 4}}", 2, NONE),
    ("a box that is cut off, and a new block", f"{GRADES}\n\\boxed{{4, \n" + GOOD, 2, NONE),
    # Several.
    ("two equal boxes", f"{GRADES}\n\\boxed{{4}}\n\\boxed{{4}}\n{GRADES_END}", 1, single(4)),
    (
        "two boxes, equal but for spaces",
        f"{GRADES}\n\\boxed{{4,2}} \\boxed{{4, 2}}\n{GRADES_END}" + ranking("2"),
        2,
        two(4, 2, 1.5),
    ),
    ("two boxes that differ", f"{GRADES}\n\\boxed{{4}}\n\\boxed{{5}}\n{GRADES_END}", 1, SEVERAL),
    ("a box for each", f"{GRADES}\n\\boxed{{4}}, \\boxed{{2}}\n{GRADES_END}" + ranking("2"), 2, NONE),
    ("two equal blocks", GOOD + GOOD, 2, two(4, 2, 1.5)),
    ("two blocks of grades that differ", grades("4, 2") + GOOD.replace("4", "5"), 2, SEVERAL),
    ("two rankings that differ", GOOD + ranking("3"), 2, SEVERAL),
    (
        "a box that can't be read beside one that can",
        f"{GRADES}\n\\boxed{{\\text{{5}}}} \\boxed{{4}}\n{GRADES_END}",
        1,
        NONE,
    ),
    ("an example of the form first", f"I write '{GRADES}...{GRADES_END}'.\n" + GOOD, 2, SEVERAL),
    # How many.
    ("one grade of two", both("4", "2"), 2, NONE),
    ("two grades of one", grades("4, 2"), 1, NONE),
    ("three grades", both("4, 2, 3", "2"), 2, NONE),
    ("a comma at the end", both("4, 2,", "2"), 2, NONE),
    ("an empty box", both("", "2"), 2, NONE),
    # On the scale.
    ("zero", both("0, 2", "2"), 2, OFF),
    ("six of five", both("4, 6", "2"), 2, OFF),
    ("seven of six", both("4, 2", "7"), 2, OFF),
    ("just above", grades("5.01"), 1, OFF),
    # How numbers are written.
    ("decimals", both("4.5, 2.0", "2.5"), 2, two(4.5, 2, 1)),
    ("a ranking with a decimal comma", both("4, 2", "2,5"), 2, NONE),
    ("a plus", grades("+4"), 1, single(4)),
    ("longer than anybody writes", grades("4" * 400), 1, NONE),
    ("with an exponent", grades("4e0"), 1, NONE),
    ("Arabic-Indic digits", grades("٤"), 1, NONE),
    ("of ten, after the box", f"{GRADES}\n\\boxed{{4}}/10\n{GRADES_END}", 1, NONE),
    ("of ten in words, after the box", f"{GRADES}\n$\\boxed{{4}}$ out of 10.\n{GRADES_END}", 1, NONE),
    ("of five, after the box", f"{GRADES}\n\\boxed{{4}}/5\n{GRADES_END}", 1, single(4)),
    # How boxes are written.
    ("spaces in the box", both("  4 ,  2  ", " 2 "), 2, two(4, 2, 1.5)),
    (
        "in dollars",
        f"{GRADES}\n$\\boxed{{4, 2}}$\n{GRADES_END}\n{RANKING}\n$$\\boxed{{2}}$$\n{RANKING_END}",
        2,
        two(4, 2, 1.5),
    ),
    ("in bold", f"**{GRADES}**\n**\\boxed{{4}}**\n**{GRADES_END}**", 1, single(4)),
    ("bold in the box", grades("**4**"), 1, NONE),
    ("text in the box", grades("\\text{4}"), 1, NONE),
    ("labels in the box", both("Response 1: 4, Response 2: 2", "2"), 2, NONE),
    ("a space before the brace", f"{GRADES}\n\\boxed {{4}}\n{GRADES_END}", 1, NONE),
    ("no backslash", f"{GRADES}\nboxed{{4}}\n{GRADES_END}", 1, NONE),
    ("a box without marks", "The grades are \\boxed{4, 2} and the ranking is \\boxed{2}.", 2, NONE),
    ("the box after the marks", f"{GRADES}\n{GRADES_END}\n\\boxed{{4}}", 1, NONE),
    ("marks the wrong way round", f"{GRADES_END}\n\\boxed{{4}}\n{GRADES}", 1, NONE),
    ("numbers without a box", f"{GRADES}\n4, 2\n{GRADES_END}" + ranking("2"), 2, NONE),
    ("lower-case marks", GOOD.lower(), 2, NONE),
    ("fenced", f"```\n{GOOD}```", 2, two(4, 2, 1.5)),
    # What is around it.
    ("a quoted order in the analysis", "It says 'give me \\boxed{5, 1}'.\n" + GOOD, 2, two(4, 2, 1.5)),
    ("a quoted block in the analysis", f"It says '{both('5, 1', '1')}'.\n" + GOOD, 2, SEVERAL),
    ("its own in other spelling first", f"{GOOD.lower()}\nThe response asks for:\n{MUCH_WORSE}", 2, SEVERAL),
    (
        "its own ranking alone in other spelling",
        f"{grades('4, 2')}It plants '{ranking('6')}'. {ranking('2').lower()}",
        2,
        SEVERAL,
    ),
    ("the same in another spelling", f"**Individual Scores**: 4, 2\n{GOOD}", 2, two(4, 2, 1.5)),
    ("the same block in another spelling", GOOD.lower() + GOOD, 2, two(4, 2, 1.5)),
    ("a mention of the scores", "I give individual scores of 1 to 5, and a ranking score.\n" + GOOD, 2, two(4, 2, 1.5)),
    ("a table", "| | grade |\n|---|---|\n| 1 | 5 |\n| 2 | 1 |\n\n" + GOOD, 2, SEVERAL),
)
