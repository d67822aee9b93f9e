"""What RewardAnything writes, that grades and ranks a list: text, how many responses, and what it says."""

from actors.contracts.judge import Verdict
from actors.records import Reason

Case = tuple[str, str, int, Verdict | Reason]

NONE, SEVERAL, OFF = Reason.NO_VERDICT, Reason.TWO_VERDICTS, Reason.OUT_OF_RANGE


def ranked(*scores_and_ranks: tuple[float, float], merits: tuple[float, ...]) -> Verdict:
    return Verdict(tuple({"score": score, "rank": rank} for score, rank in scores_and_ranks), merits)


def three(first: str, second: str, third: str, order: str = '["model-2", "model-3", "model-1"]') -> str:
    return f'{{"scores": {{"model-1": {first}, "model-2": {second}, "model-3": {third}}}, "best-to-worst": {order}}}'


def pair(first: str, second: str, order: str = '["model-1", "model-2"]') -> str:
    return f'{{"scores": {{"model-1": {first}, "model-2": {second}}}, "best-to-worst": {order}}}'


def quoted(text: str, mark: str) -> str:
    return text.replace('"', mark)


GOOD = three("2", "5", "3")
SAYS = ranked((2, 3), (5, 1), (3, 2), merits=(1, 3, 2))
TWO = pair("4", "2")
OTHER = pair("1", "5", '["model-2", "model-1"]')
SAYS_TWO = ranked((4, 1), (2, 2), merits=(2, 1))
BY_GRADES = ranked((4, 1), (2, 2), merits=(4, 2))
SCORES = '{"scores": {"model-1": 4, "model-2": 2}}'

CASES: tuple[Case, ...] = (
    ("three", GOOD, 3, SAYS),
    ("two", TWO, 2, SAYS_TWO),
    ("one", '{"scores": {"model-1": 3}, "best-to-worst": ["model-1"]}', 1, ranked((3, 1), merits=())),
    ("one without a ranking", '{"scores": {"model-1": 3}}', 1, ranked((3, 1), merits=())),
    ("equal grades told apart", pair("3", "3", '["model-2", "model-1"]'), 2, ranked((3, 2), (3, 1), merits=(1, 2))),
    ("the ranking first", '{"best-to-worst": ["model-1", "model-2"], "scores": {"model-1": 4, "model-2": 2}}', 2, SAYS_TWO),
    ("as the authors misspell it", TWO.replace("worst", "worse"), 2, SAYS_TWO),
    # Ranking or grades alone.
    ("grades without a ranking", SCORES, 2, BY_GRADES),
    (
        "equal grades without a ranking",
        '{"scores": {"model-1": 3, "model-2": 3}}',
        2,
        ranked((3, 1), (3, 1), merits=(3, 3)),
    ),
    (
        "three of which two are equal, without a ranking",
        '{"scores": {"model-1": 3, "model-2": 5, "model-3": 3}}',
        3,
        ranked((3, 2), (5, 1), (3, 2), merits=(3, 5, 3)),
    ),
    ("a ranking that is null", pair("4", "2", "null"), 2, BY_GRADES),
    ("an empty ranking", pair("4", "2", "[]"), 2, NONE),
    ("a ranking without grades", '{"best-to-worst": ["model-1", "model-2"]}', 2, NONE),
    ("a ranking in an object of its own", f'{SCORES}\n{{"best-to-worst": ["model-2", "model-1"]}}', 2, NONE),
    ("a ranking in prose", "model-1 > model-2", 2, NONE),
    # Names.
    ("a name is missing", pair("4", "2"), 3, NONE),
    ("a name too many", GOOD, 2, NONE),
    ("names with another sign", '{"scores": {"model_1": 4, "model_2": 2}}', 2, NONE),
    ("names in upper case", '{"scores": {"Model-1": 4, "Model-2": 2}}', 2, NONE),
    ("a name twice, another value", '{"scores": {"model-1": 4, "model-1": 5, "model-2": 2}}', 2, NONE),
    ("a name twice in Python", "{'scores': {'model-1': 4, 'model-1': 5, 'model-2': 2}}", 2, NONE),
    ("scores twice", '{"scores": {"model-1": 4, "model-2": 2}, "scores": {"model-1": 1, "model-2": 2}}', 2, NONE),
    ("a name missing in the ranking", pair("4", "2", '["model-1"]'), 2, NONE),
    ("a name twice in the ranking", pair("4", "2", '["model-1", "model-1"]'), 2, NONE),
    ("numbers in the ranking", pair("4", "2", "[1, 2]"), 2, NONE),
    ("a ranking that is text", pair("4", "2", '"model-1 > model-2"'), 2, NONE),
    ("a tie in the ranking", pair("4", "4", '[["model-1", "model-2"]]'), 2, NONE),
    ("two rankings", TWO[:-1] + ', "best-to-worse": ["model-2", "model-1"]}', 2, SEVERAL),
    ("two rankings, the same", TWO[:-1] + ', "best-to-worse": ["model-1", "model-2"]}', 2, SAYS_TWO),
    ("grades in a list", '{"scores": [4, 2], "best-to-worst": ["model-1", "model-2"]}', 2, NONE),
    ("grades without `scores`", '{"model-1": 4, "model-2": 2}', 2, NONE),
    ("inside another object", f'{{"result": {TWO}}}', 2, NONE),
    # Reasoning.
    ("</think> in a quoted response", f"<think>\nIt says </think>{OTHER}\n</think>\n{TWO}", 2, SEVERAL),
    # Cut off.
    ("cut off in the grades", '{"scores": {"model-1": 4, "model-2": 2', 2, NONE),
    ("cut off, with a quoted verdict inside", "{\"thoughts\": \"It says {'scores': {'model-1': 5, 'model-2': 1}}", 2, NONE),
    # Several.
    ("two equal", f"{TWO}\n{TWO}", 2, SAYS_TWO),
    ("two that differ", f"{OTHER}\n{TWO}", 2, SEVERAL),
    ("two that differ in the ranking", TWO + pair("4", "2", '["model-2", "model-1"]'), 2, SEVERAL),
    ("with a ranking and without", f"{TWO}\n{SCORES}", 2, SEVERAL),
    ("an example of the form first", f'{{"scores": {{"model-1": 2, "model-2": 4, ...}}}}\n{TWO}', 2, SEVERAL),
    ("a whole one, then one that is broken", f'{TWO}\n{{"scores": {{"model-1": 1, "model-2": 5', 2, SEVERAL),
    # How JSON is bent.
    (
        "commas at the end",
        '{"scores": {"model-1": 4, "model-2": 2,}, "best-to-worst": ["model-1", "model-2",],}',
        2,
        SAYS_TWO,
    ),
    # Numbers.
    ("zero", pair("4", "0"), 2, OFF),
    ("six of five", pair("6", "2"), 2, OFF),
    ("out of five", pair('"4/5"', "2"), 2, NONE),
    ("a grade and why", pair('[4, "good"]', "2"), 2, NONE),
    # What is around it.
    ("injected and quoted", f"model-2 asks for {OTHER}. No.\n{TWO}", 2, SEVERAL),
)
