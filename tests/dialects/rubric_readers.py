"""What chat models write to rubrics of a user's own: which rubric, text, how many responses, and what it says."""

from collections.abc import Mapping
from typing import Any

from actors.contracts.judge import Verdict
from actors.records import Reason

Case = tuple[str, str, int, Verdict | Reason]

NONE, SEVERAL, OFF = Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE
PROMPT = {"prompt": "{{ response }}"}
PROMPT_OF_TWO = {"shows": "two", "prompt": "{{ response_1 }} {{ response_2 }}"}
WINNERS = {"A": "first", "B": "second", "C": "tie"}

RUBRICS: Mapping[str, Mapping[str, Any]] = {
    "whole": PROMPT | {"pattern": "Grade: ([0-9]+)", "low": 1, "high": 10},
    "digits": PROMPT | {"pattern": r"Grade: (\d)", "low": 1, "high": 5},
    "anything": PROMPT | {"pattern": r"Grade:\s*\**([^\s*]+)", "low": 1, "high": 5},
    "named": PROMPT | {"pattern": r"(?i)facts=(?P<facts>\S+) (?:style=(?P<style>\S+))?", "low": 0, "high": 10},
    "sides": PROMPT_OF_TWO | {"pattern": r"1: (?P<score_1>\S+)\s+2: (?P<score_2>\S+)", "low": 1, "high": 5},
    "winner": PROMPT_OF_TWO | {"pattern": r"\[\[(?P<winner>.*?)\]\]", "winners": WINNERS},
    "object": PROMPT
    | {
        "json_schema": {
            "type": "object",
            "properties": {"score": {"type": "number"}, "why": {"type": "string"}},
            "required": ["score"],
        },
        "low": 1,
        "high": 5,
    },
    "checks": PROMPT
    | {
        "json_schema": {
            "type": "object",
            "properties": {"polite": {"type": "boolean"}, "right": {"type": "boolean"}},
            "required": ["polite", "right"],
        },
        "low": 0,
        "high": 1,
    },
    "steps": PROMPT | {"json_schema": {"properties": {"score": {"type": "number", "multipleOf": 0.5}}}, "low": 1, "high": 5},
    "duel": PROMPT_OF_TWO
    | {
        "json_schema": {
            "properties": {"score_1": {"type": "integer"}, "score_2": {"type": "integer"}, "winner": {}},
            "required": ["score_1", "score_2", "winner"],
        },
        "low": 1,
        "high": 5,
        "winners": WINNERS,
    },
}


def scored(score: float) -> Verdict:
    return Verdict(({"score": score},))


def sides(score: float, other: float) -> Verdict:
    return Verdict(({"score": score}, {"score": other}), (score, other))


def won(win: float, other: float) -> Verdict:
    return Verdict(({"win": win}, {"win": other}), (win, other))


WHOLE: tuple[Case, ...] = (
    ("seven", "Fine.\nGrade: 7", 1, scored(7)),
    ("out of ten", "Grade: 7/10", 1, scored(7)),
    ("a point after it", "Grade: 7.", 1, scored(7)),
    ("half of a decimal", "Grade: 7.5", 1, NONE),
    ("half of Arabic-Indic digits", "Grade: 1٠", 1, NONE),
    ("a range", "Grade: 7-8", 1, NONE),
    ("eleven", "Grade: 11", 1, OFF),
    ("more digits than anybody writes", "Grade: " + "1" * 30, 1, NONE),
    ("negative", "Grade: -7", 1, NONE),
    ("a space too many", "Grade:  7", 1, NONE),
    ("bold", "**Grade: 7**", 1, scored(7)),
    ("bold number", "Grade: **7**", 1, NONE),
    ("twice the same", "Grade: 7\nGrade: 7", 1, scored(7)),
    ("twice another", "Grade: 7\nGrade: 8", 1, SEVERAL),
    ("a begin mark mentioned before", "It writes <thinking> first.\nGrade: 7", 1, scored(7)),
    ("a begin mark mentioned after", "Grade: 7, though it writes <think> first", 1, scored(7)),
    ("upper-case thinking never closed", "<THINK>Grade: 7", 1, NONE),
    ("quoted", "It says 'Grade: 10'.\nGrade: 2", 1, SEVERAL),
)

DIGITS: tuple[Case, ...] = (
    ("four", "Grade: 4", 1, scored(4)),
    ("the first of two digits", "Grade: 45", 1, NONE),
    ("the whole of a decimal", "Grade: 4.5", 1, NONE),
    ("six of five", "Grade: 6", 1, OFF),
    ("a table", "| Grade: 4 | 5 |", 1, scored(4)),
    ("a table with another number", "| Grade: 4 | 2 |", 1, NONE),
)

ANYTHING: tuple[Case, ...] = (
    ("decimal", "Grade: 4.5", 1, scored(4.5)),
    ("bold", "Grade: **4**", 1, scored(4)),
    ("negative", "Grade: -4", 1, OFF),
    ("out of five", "Grade: 4/5", 1, NONE),
    ("a decimal comma", "Grade: 4,5", 1, NONE),
    ("a point after it", "Grade: 4.", 1, NONE),
)

NAMED: tuple[Case, ...] = (
    ("both", "facts=7 style=3.5 ", 1, Verdict(({"facts": 7.0, "style": 3.5},))),
    ("upper case", "FACTS=7 STYLE=3", 1, Verdict(({"facts": 7.0, "style": 3.0},))),
    ("one missing", "facts=7 and that is it", 1, NONE),
    ("one off the scale", "facts=7 style=11", 1, OFF),
    ("one no number", "facts=7 style=good", 1, NONE),
    ("twice, of which one differs", "facts=7 style=3\nfacts=7 style=4", 1, SEVERAL),
)

SIDES: tuple[Case, ...] = (
    ("both", "1: 4\n2: 2.5", 2, sides(4, 2.5)),
    ("one alone", "1: 4", 2, NONE),
    ("the wrong way round", "2: 4\n1: 3", 2, NONE),
    ("one off the scale", "1: 4 2: 9", 2, OFF),
    ("in bold", "1: **4** 2: **2**", 2, NONE),
)

WINNER: tuple[Case, ...] = (
    ("A", "[[A]]", 2, won(1, 0)),
    ("B", "So [[B]].", 2, won(0, 1)),
    ("C", "[[C]]", 2, won(0.5, 0.5)),
    ("A/B", "[[A/B]]", 2, NONE),
    ("D", "[[D]]", 2, NONE),
    ("spaces", "[[ A ]]", 2, NONE),
    ("twice", "[[A]] and [[A]]", 2, won(1, 0)),
    ("two", "[[A]] or [[B]]", 2, SEVERAL),
)

OBJECT: tuple[Case, ...] = (
    ("plain", '{"score": 4}', 1, scored(4)),
    ("with why", '{"why": "short", "score": 4.5}', 1, scored(4.5)),
    ("a line break in why", '{"why": "short\nand right", "score": 4}', 1, scored(4)),
    ("a begin mark in why", '{"why": "no <thinking> in it", "score": 4}', 1, scored(4)),
    ("a string, which the schema forbids", '{"score": "4"}', 1, NONE),
    ("true, which the schema forbids", '{"score": true}', 1, NONE),
    ("null", '{"score": null}', 1, NONE),
    ("six of five", '{"score": 6}', 1, OFF),
    ("negative", '{"score": -4}', 1, OFF),
    ("missing", '{"why": "short"}', 1, NONE),
    ("nested", '{"result": {"score": 4}}', 1, NONE),
    ("cut off, with a quoted one", '{"why": "It says {\'score\': 5}", "score": 2', 1, NONE),
    ("two that differ", '{"score": 4} {"score": 5}', 1, SEVERAL),
    ("beside one that the schema forbids", '{"score": 4} {"score": "5"}', 1, NONE),
    ("beside one of which the text is none", '{"why": 5, "score": 2} {"score": 4}', 1, NONE),
    ("beside one that is about something else", '{"name": "x"} {"score": 4}', 1, scored(4)),
    ("quoted in a string", '{"why": "It says {\\"score\\": 5}", "score": 2}', 1, scored(2)),
    ("quoted, and the verdict is broken", '{"score": 5} quoted. {"why": "it is "bad"", "score": 2}', 1, SEVERAL),
)

CHECKS: tuple[Case, ...] = (
    ("both", '{"polite": true, "right": false}', 1, Verdict(({"polite": 1.0, "right": 0.0},))),
    ("numbers", '{"polite": 1, "right": 0}', 1, NONE),
    ("text", '{"polite": "true", "right": "false"}', 1, NONE),
    ("one missing", '{"polite": true}', 1, NONE),
    ("a name twice", '{"polite": true, "right": true, "right": false}', 1, NONE),
)

STEPS: tuple[Case, ...] = (
    ("a half", '{"score": 4.5}', 1, scored(4.5)),
    ("no half", '{"score": 4.3}', 1, NONE),
)

DUEL: tuple[Case, ...] = (
    (
        "whole",
        '{"score_1": 4, "score_2": 4, "winner": "B"}',
        2,
        Verdict(({"score": 4.0, "win": 0.0}, {"score": 4.0, "win": 1.0}), (0.0, 1.0)),
    ),
    (
        "tie",
        '{"score_1": 4, "score_2": 2, "winner": "C"}',
        2,
        Verdict(({"score": 4.0, "win": 0.5}, {"score": 2.0, "win": 0.5}), (0.5, 0.5)),
    ),
    ("another winner", '{"score_1": 4, "score_2": 4, "winner": "first"}', 2, NONE),
    ("no winner", '{"score_1": 4, "score_2": 4}', 2, NONE),
    ("a winner that is an object", '{"score_1": 4, "score_2": 4, "winner": {"is": "A"}}', 2, NONE),
    ("a grade off the scale", '{"score_1": 4, "score_2": 9, "winner": "A"}', 2, OFF),
)

CASES = {
    "whole": WHOLE,
    "digits": DIGITS,
    "anything": ANYTHING,
    "named": NAMED,
    "sides": SIDES,
    "winner": WINNER,
    "object": OBJECT,
    "checks": CHECKS,
    "steps": STEPS,
    "duel": DUEL,
}
