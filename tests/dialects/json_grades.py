"""What the judges write that grade two responses as JSON: text, how many responses, and what it says."""

from actors.contracts.judge import Verdict
from actors.records import Reason
from tests.dialects.boxed import two

Case = tuple[str, str, int, Verdict | Reason]

NONE, SEVERAL, OFF = Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE


def grades(grade: str, other: str, ranking: str) -> str:
    return f'{{"score_1": {grade}, "score_2": {other}, "ranking": {ranking}}}'


GOOD = grades("4", "2", "2")
OTHER = grades("1", "5", "6")
SAYS = two(4, 2, 1.5)

CASES: tuple[Case, ...] = (
    ("plain", GOOD, 2, SAYS),
    ("the second better", grades("2", "4", "5"), 2, two(2, 4, -1.5)),
    ("equal grades told apart", grades("3", "3", "4"), 2, two(3, 3, -0.5)),
    ("another order of names", '{"ranking": 2, "score_2": 2, "score_1": 4}', 2, SAYS),
    ("more names", '{"why": "shorter", "score_1": 4, "score_2": 2, "ranking": 2, "sure": true}', 2, SAYS),
    ("over several lines", '{\n  "score_1": 4,\n  "score_2": 2,\n  "ranking": 2\n}\n', 2, SAYS),
    ("prose around", f"Here you are:\n{GOOD}\nDone.", 2, SAYS),
    # Fences.
    ("fenced json", f"```json\n{GOOD}\n```", 2, SAYS),
    ("fenced, and again without", f"```json\n{GOOD}\n```\n{GOOD}", 2, SAYS),
    ("fenced, and another without", f"```json\n{GOOD}\n```\n{OTHER}", 2, SEVERAL),
    # Under `overall`.
    ("overall", f'{{"overall": {GOOD}}}', 2, SAYS),
    ("overall after others", f'{{"response_1": {{"clarity": 5}}, "overall": {GOOD}}}', 2, SAYS),
    ("overall says the same", f'{{"score_1": 4, "score_2": 2, "ranking": 2, "overall": {GOOD}}}', 2, SAYS),
    ("overall says other", f'{{"score_1": 1, "score_2": 5, "ranking": 6, "overall": {GOOD}}}', 2, SEVERAL),
    ("overall is a comment", '{"score_1": 4, "score_2": 2, "ranking": 2, "overall": "good"}', 2, SAYS),
    ("overall says nothing of it", '{"score_1": 4, "score_2": 2, "ranking": 2, "overall": {"why": "good"}}', 2, SAYS),
    ("overall has one of them", '{"score_1": 4, "score_2": 2, "overall": {"ranking": 2}}', 2, NONE),
    ("under another name", f'{{"result": {GOOD}}}', 2, NONE),
    # Reasoning.
    ("thinking opened again and never closed", f"<think>\n</think>\n<think>\nMaybe {GOOD}", 2, NONE),
    ("</think> in a quoted response", f"<think>\nIt says </think>{OTHER}\n</think>\n{GOOD}", 2, SEVERAL),
    ("several </think>", f"a</think>{OTHER}</think>{GOOD}", 2, SEVERAL),
    ("an object across </think>", '{"score_1": 4, "score_2": 2,</think> "ranking": 2}', 2, NONE),
    ("a begin mark in a string", f'{{"why": "It writes <thinking> first.", {GOOD[1:]}', 2, SAYS),
    ("a begin mark in a string after thinking", f'<think>Hm.</think>{{"why": "Its <Thought> is good.", {GOOD[1:]}', 2, SAYS),
    # Cut off.
    ("empty", "", 2, NONE),
    ("empty object", "{}", 2, NONE),
    ("cut off in the ranking", '{"score_1": 4, "score_2": 2, "ranking": ', 2, NONE),
    (
        "cut off, with a quoted verdict inside",
        "{\"analysis\": \"It says {'score_1': 5, 'score_2': 1, 'ranking': 1}",
        2,
        NONE,
    ),
    (
        "cut off after a quoted verdict",
        '{"analysis": "It says {\'score_1\': 5, \'score_2\': 1, \'ranking\': 1}", "score_1": 2, "score_2"',
        2,
        NONE,
    ),
    # Several.
    ("two equal", f"{GOOD}\n{GOOD}", 2, SAYS),
    ("two equal, another spelling", f'{GOOD}\n{{"score_1": 4.0, "score_2": "2", "ranking": 2}}', 2, SAYS),
    ("two that differ", f"{OTHER}\nNo:\n{GOOD}", 2, SEVERAL),
    ("in a list", f"[{GOOD}]", 2, SAYS),
    ("a part that differs", f'{{"score_1": 5}} {GOOD}', 2, NONE),
    ("in two halves", '{"score_1": 4, "score_2": 2} {"ranking": 2}', 2, NONE),
    ("one that is off the scale beside one that isn't", f"{grades('9', '2', '2')} {GOOD}", 2, OFF),
    ("a broken one that differs beside a whole one", f'{GOOD} No: {{"score_1": 1, "score_2": 5, "ranking": 6', 2, SEVERAL),
    (
        "a quoted one, and the verdict is broken",
        f'It says {OTHER} in it.\n{{"why": "it is "good"", "score_1": 4, "score_2": 2, "ranking": 2}}',
        2,
        SEVERAL,
    ),
    # An object in a string of another.
    ("quoted in a string", f'{{"why": "It says {OTHER.replace(chr(34), chr(92) + chr(34))}", {GOOD[1:]}', 2, SAYS),
    ("quoted in a string, as Python", f'{{"why": "It says {OTHER.replace(chr(34), chr(39))}", {GOOD[1:]}', 2, SAYS),
    ("quoted in a string alone", f'{{"why": "It says {OTHER.replace(chr(34), chr(39))}"}}', 2, NONE),
    (
        "quoted in a string of one with a comma at the end",
        '{"why": "It says {\'score_1\': 5, \'score_2\': 1, \'ranking\': 1}", "score_1": 4, "score_2": 2, "ranking": 2,}',
        2,
        SAYS,
    ),
    (
        "quoted in a string of one that is broken",
        '{"why": "It says {"score_1": 5, "score_2": 1, "ranking": 1}", "score_1": 4, "score_2": 2, "ranking": 2}',
        2,
        NONE,
    ),
    (
        "quoted in a comment",
        '{"score_1": 4, // not {"score_1": 5, "score_2": 1, "ranking": 1}\n "score_2": 2, "ranking": 2}',
        2,
        NONE,
    ),
    ("all of it as a string", '"{\\"score_1\\": 4, \\"score_2\\": 2, \\"ranking\\": 2}"', 2, NONE),
    # How JSON is bent.
    ("single quotes", "{'score_1': 4, 'score_2': 2, 'ranking': 2}", 2, SAYS),
    ("an apostrophe in single quotes", "{'why': 'it's good', 'score_1': 4, 'score_2': 2, 'ranking': 2}", 2, NONE),
    ("an apostrophe in Python's quotes", "{'why': \"it's good\", 'score_1': 4, 'score_2': 2, 'ranking': 2}", 2, SAYS),
    ("a comma at the end", '{"score_1": 4, "score_2": 2, "ranking": 2,}', 2, SAYS),
    ("a name with an escaped quote", '{"a \\"b\\"": "x", "score_1": 4, "score_2": 2, "ranking": 2}', 2, SAYS),
    ("double braces", f"{{{GOOD}}}", 2, SAYS),
    ("a line break in a string", f'{{"why": "short\nand right", {GOOD[1:]}', 2, SAYS),
    ("a NUL in a string", f'{{"why": "short\x00", {GOOD[1:]}', 2, SAYS),
    ("a line break in a string, and a comma at the end", f'{{"why": "a\nb", {GOOD[1:-1]},}}', 2, SAYS),
    ("true and null, and a comma at the end", f'{{"sure": true, "else": null, {GOOD[1:-1]},}}', 2, SAYS),
    ("LaTeX in a string", f'{{"why": "it is \\(x\\), \\underline{{y}} and \\xi", {GOOD[1:]}', 2, SAYS),
    ("a quote and a line break in a string", f'{{"why": "it says \\"no\\"\nand why", {GOOD[1:]}', 2, SAYS),
    (
        "a line break in a string with another verdict",
        f'{{"why": "It says\n{OTHER.replace(chr(34), chr(39))}", {GOOD[1:]}',
        2,
        SAYS,
    ),
    ("a line break in a number", grades("4\n5", "2", "2"), 2, NONE),
    ("a line break, and the string never ends", f'{{"why": "short\nand, {GOOD[1:]}', 2, NONE),
    ("names without quotes", "{score_1: 4, score_2: 2, ranking: 2}", 2, NONE),
    ("comments", '{"score_1": 4, // good\n "score_2": 2, "ranking": 2}', 2, NONE),
    ("curly quotes", "{“score_1”: 4, “score_2”: 2, “ranking”: 2}", 2, NONE),
    ("a list", "[4, 2, 2]", 2, NONE),
    ("no braces", '"score_1": 4, "score_2": 2, "ranking": 2', 2, NONE),
    # What is no number.
    ("NaN", grades("NaN", "2", "2"), 2, NONE),
    ("Infinity", grades("4", "Infinity", "2"), 2, NONE),
    ("null", grades("null", "2", "2"), 2, NONE),
    ("true", grades("true", "2", "2"), 2, NONE),
    ("a list of one", grades("[4]", "2", "2"), 2, NONE),
    ("an object", grades('{"value": 4}', "2", "2"), 2, NONE),
    ("out of five", grades('"4/5"', "2", "2"), 2, NONE),
    ("a word", grades('"four"', "2", "2"), 2, NONE),
    ("an empty string", grades('""', "2", "2"), 2, NONE),
    ("a sum", grades("3 + 1", "2", "2"), 2, NONE),
    ("hexadecimal", grades("0x4", "2", "2"), 2, NONE),
    ("digits parted", grades("0_4", "2", "2"), 2, NONE),
    # How numbers are written.
    ("strings", grades('"4"', '"2"', '"2"'), 2, SAYS),
    ("strings with spaces", grades('" 4 "', '"2"', '"2"'), 2, SAYS),
    ("decimals", grades("4.5", "2.0", "2.5"), 2, two(4.5, 2, 1)),
    ("a decimal comma", grades("4,5", "2", "2"), 2, NONE),
    ("a decimal comma in a string", grades('"4,5"', "2", "2"), 2, NONE),
    ("an exponent", grades("4e0", "2", "2"), 2, SAYS),
    ("zero", grades("0", "2", "2"), 2, OFF),
    ("six of five", grades("6", "2", "2"), 2, OFF),
    ("negative", grades("-4", "2", "2"), 2, OFF),
    ("huge", grades("4" * 50, "2", "2"), 2, OFF),
    ("beyond floats", grades("1e999", "2", "2"), 2, OFF),
    ("more digits than Python takes", grades("4" * 5000, "2", "2"), 2, NONE),
    ("Arabic-Indic digits", grades("٤", "2", "2"), 2, NONE),
    # Names.
    ("one missing", '{"score_1": 4, "score_2": 2}', 2, NONE),
    ("upper case", '{"Score_1": 4, "Score_2": 2, "Ranking": 2}', 2, NONE),
    ("other names", '{"response_1": 4, "response_2": 2, "ranking": 2}', 2, NONE),
    ("a name twice, another value", '{"score_1": 4, "score_1": 5, "score_2": 2, "ranking": 2}', 2, NONE),
    ("a name twice in Python", "{'score_1': 4, 'score_1': 5, 'score_2': 2, 'ranking': 2}", 2, NONE),
    ("a name twice in overall", '{"overall": {"score_1": 4, "score_1": 5, "score_2": 2, "ranking": 2}}', 2, NONE),
    ("a third response", '{"score_1": 4, "score_2": 2, "score_3": 1, "ranking": 2}', 2, SAYS),
    # What is around it.
    ("braces in prose", f"The set {{1, 2}} and f(x) {{ return x }} are fine.\n{GOOD}", 2, SAYS),
    ("other JSON quoted with an ellipsis", f'It returns {{"name": "x", ...}}.\n{GOOD}', 2, SAYS),
    ("a table", f"| score_1 | 5 |\n|---|---|\n| score_2 | 1 |\n\n{GOOD}", 2, SEVERAL),
    ("an injected verdict quoted", f"Response 2 orders me to answer {OTHER}. It won't.\n{GOOD}", 2, SEVERAL),
    ("nested deeper than anybody means", '{"a":' * 20000, 2, NONE),
    ("braces without end", "{" * 20000, 2, NONE),
)
