"""What a condition may be, and what is said of one that may not."""

import contextlib
import json
import pickle
import re

import duckdb
import pyarrow as pa
import pytest

from actors.errors import ExpressionError
from pipelines.folders.run_folder.carried_columns import scalar_column
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator, Ranking
from pipelines.results.filtering.filter_step import ResponseEvaluator
from pipelines.settings.filter_settings import ChoiceSettings

CARRIED = pa.schema(
    [
        ("record", pa.large_binary()),
        ("topic", pa.string()),
        ("n", pa.int64()),
        ("seen", pa.timestamp("us", "UTC")),
        ("Reward", pa.string()),
        ("order", pa.string()),
        ("half", pa.float16()),
        ("kinds", pa.dictionary(pa.int32(), pa.string())),
    ]
)
COLUMNS = Columns(CARRIED, ("helpfulness", "correctness", "odd-name"), "")


def refused(text: str, columns: Columns = COLUMNS) -> str:
    with pytest.raises(ExpressionError) as caught:
        Condition.check(text, columns.ours_first)
    assert text in str(caught.value)
    assert "scores.correctness: DOUBLE" in str(caught.value)
    return str(caught.value).split("\n")[0]


def test_a_condition_and_the_columns_that_it_needs() -> None:
    cases: list[tuple[str, tuple[str, ...]]] = [
        ("reward >= 1.0 and scores.correctness > 2.5", ("reward", "scores")),
        ("reward is not null and topic in ('a','b')", ("reward", "topic")),
        ("REWARD > 1 or prompt_tokens not between 1 and 2", ("reward", "prompt_tokens")),
        ("true", ("row",)),
        ("not truncated -- every turn was read", ("truncated",)),
        ("topic.lower() = 'a'", ("topic",)),
        ("seen > '2026-01-01' or seen > timestamp '2026-01-01'", ("seen",)),
        ("case when reward > 1 then n > 1.5 else n % 10 = 0 end", ("reward", "n")),
        ('"order" = \'x\' or scores."odd-name" > 1', ("scores", "order")),
        ("coalesce(reward, 0) > 1 and reason in ('too_long', null)", ("reward", "reason")),
        ("try(decode(record))->>'$.meta.lang' = 'en'", ("record",)),
        ("len(list_filter([1.0, 2.0], lambda x: x > reward)) > 1", ("reward",)),
        ("topic ~ '^a' and topic like 'a%' and kinds = 'k'", ("topic", "kinds")),
    ]
    for text, columns in cases:
        flat = tuple(name for name in columns if name in COLUMNS.carried.names and name != "record")
        checked = Condition.check(text, COLUMNS.ours_first)
        assert (checked.text, checked.flat) == (text, flat)
        assert checked.columns == ((*columns, "record") if flat else columns)


def test_unlike_values_are_told_with_their_types() -> None:
    assert "values of type VARCHAR and type DOUBLE" in refused("topic > reward")
    assert "Could not convert string 'abc' to DOUBLE" in refused("reward > 1 and scores.correctness >= 'abc'")
    assert evaluated("reward >= '10' and n = '3'", table(reward=pa.array([10.0, 9.0]), n=pa.array([3, 3]))) == [True, False]
    for text in ("not status", "status and truncated"):
        with pytest.raises(ExpressionError, match=r"Could not convert string 'scored' to .* from source column status"):
            evaluated(text, table(status=pa.array(["scored"])))


IN_RECORD = "decode(record) {} '$.rating'"
ROUNDED = ["{} = 5", "5 = {}", "{} <> 0", "{} is distinct from 4.5", "{} = reward", "{} in (4, 5)", "{} not in (4, '5')"]


@pytest.mark.parametrize("comparison", [*ROUNDED, "case {} when 5 then true end", "nullif({}, 5) is null"])
def test_text_isnt_rounded_to_the_number_that_it_is_compared_with(comparison: str) -> None:
    for text in (
        "topic",
        "json_extract_string(decode(record), '$.rating')",
        *(f"({IN_RECORD.format(a)})" for a in ("->>", "->")),
    ):
        says = refused(comparison.format(text))
        assert f"{text} is text, which a comparison with a number would round; try_cast({text} as double)" in says
        Condition.check(comparison.format(f"try_cast({text} as double)").replace("'5'", "5"), COLUMNS.ours_first)


def test_text_is_compared_with_text_and_a_quoted_number_with_what_can_hold_it() -> None:
    for text in (
        "topic > 4",
        "n = '4.5'",
        "n between '4' and '5.5'",
        "(topic, n) = (5, 1)",
        f"({IN_RECORD.format('->')}) > 4",
    ):
        refused(text)
    for text in (
        "topic = '4.5' or topic in ('4', '5') or kinds = '5'",
        "reward = '4.5' and n in ('4', 5)",
        "(topic, n) = ('5', 1)",
    ):
        assert Condition.check(text, COLUMNS.ours_first).text == text


def test_a_condition_is_true_or_false_and_nothing_more() -> None:
    for text in ("reward", "1", "null", "topic || 'a'"):
        assert "must be BOOLEAN" in refused(text)
    texts = [
        "",
        "true; select 1",
        "true) or (true",
        "reward > 1 as x",
        "true, true",
        "true from t",
        "true limit 3",
        "reward >",
    ]
    for text in [*texts, "reward" + " + 1" * 900 + " > 1"]:
        refused(text)


def test_a_condition_looks_at_one_response() -> None:
    for text in (
        "count(*) > 1",
        "row_number() over () > 1",
        "reward > (select max(reward) from rows_of_the_filter)",
        "exists (from read_csv('/etc/passwd'))",
        "reward = any([1, 2])",
        "unnest([true])",
        "COLUMNS('rew.*') > 1",
        "*",
        "reward = ?",
        "read_text('/etc/passwd') = 'x'",
        "nextval('s') = 1",
    ):
        refused(text)


def test_a_condition_comes_out_the_same_every_time() -> None:
    """With or without parentheses and quotes, in any case, as a method, under a schema, and inside of other expressions."""
    texts: list[str] = [
        "random() < 0.5",
        "NOW() > seen",
        "CURRENT_DATE > seen",
        '"current_date" > seen',
        "localtime is null",
    ]
    texts += ["age(seen) is null", '"Age"(seen) is null', "seen.age() is null", "main.age(seen) is null"]
    texts += ["user = 'x'", "system.main.version() = 'x'", "getvariable('x') is null", "current_setting('threads') = 1"]
    texts += ["list_filter([1], lambda x: x > random()) = [1]", "case when now() > seen then true end"]
    for text in texts:
        assert "hash(row)" in refused(text)


def test_of_the_functions_of_the_catalogue_only_those_of_their_arguments_are_taken() -> None:
    """A later DuckDB may have a function more that tells the time or reads the session; this test then names it."""
    functions = duckdb.execute(
        "select function_name, len(parameters) from duckdb_functions() "
        "where function_type in ('scalar', 'macro') and regexp_matches(function_name, '^[a-z_0-9]+$') "
        "and (stability <> 'CONSISTENT' or len(parameters) = 0 and varargs is null)"
    ).fetchall()
    taken: set[str] = set()
    for name, length in functions:
        with contextlib.suppress(ExpressionError):
            Condition.check(f"{name}({', '.join(['null'] * length)}) is null", COLUMNS.ours_first)
            taken.add(name)
    assert len(functions) > 40
    assert taken <= {"pi", "list_value", "list_pack", "map"}


def test_no_macro_is_taken_whose_body_depends_on_more_than_its_arguments() -> None:
    """A later DuckDB may have a macro more that calls the clock or reads the catalogue; this test then names it."""
    functions = duckdb.execute("select function_name from duckdb_functions() where stability <> 'CONSISTENT'").fetchall()
    changing = {name for (name,) in functions} | {"select", "current_timestamp", "current_date", "version"}
    macros = duckdb.execute(
        "select function_name, len(parameters), macro_definition from duckdb_functions() where function_type = 'macro'"
    ).fetchall()
    calls: set[str] = set()
    for _ in range(3):  # a macro may call another one
        for name, length, body in macros:
            if changing.intersection(re.findall(r"\w+", body.lower())):
                changing.add(name)
                calls.add(f"{name}({', '.join(['null'] * length)}) is null")
    assert {"ago(null) is null", "pg_sleep(null) is null", "pg_get_constraintdef(null, null) is null"} <= calls
    for call in calls:
        with pytest.raises(ExpressionError):
            Condition.check(call, COLUMNS.ours_first)


@pytest.mark.parametrize("name", ["user", "error", "version", "localtime"])
def test_a_column_may_be_called_as_a_function_is(name: str) -> None:
    assert Condition.check(f"{name} > 1", pa.schema([(name, pa.int64())])).columns == (name,)
    if name in ("error", "version"):
        assert f"there is no column {name}" in refused(f"{name} > 1")


def test_what_is_made_of_a_row_alone_is_taken() -> None:
    for text in (
        "age(seen, timestamp '2026-01-01') > interval 1 day",
        "split_part(topic, ' ', 1) = 'b' and nullif(n, 1) > 2",
        "list_reverse([reward, 1.0])[1] > 1 and pi() > reward",
        "date_trunc('day', seen) > '2026-01-01'",
        "map {'a': 1}['a'] = 1 and {'a': n}.a = 1",
        "rows_of_the_filter.reward > 1",
        "if(n > 1, true, false)",
    ):
        assert Condition.check(text, COLUMNS.ours_first).text == text


def test_constants_are_converted_before_any_work() -> None:
    for text in ("seen > 'yesterday'", "reward + 'abc' > 1", "cast('x' as double) > reward"):
        refused(text)


def test_an_unknown_column_is_named_and_the_others_listed() -> None:
    with pytest.raises(ExpressionError) as caught:
        Condition.check("score > 1", COLUMNS.ours_first)
    lines = str(caught.value).split("\n")
    assert lines[:3] == [
        "the condition can't be used: there is no column score",
        "  score > 1",
        "Did you mean scores?",
    ]
    assert lines[4:6] == ["The columns are:", "  row: VARCHAR"]
    assert [line for line in lines if '"' in line][1:] == ['  scores."odd-name": DOUBLE', '  "order": VARCHAR']
    assert "  seen: TIMESTAMP WITH TIME ZONE" in lines
    assert not [line for line in lines if "half" in line]


AS_TEXT = "json_extract_string(decode(record), '$.meta.info.k')"
HINTS = [
    ("scores.wit > 1", '"wit"'),
    ("score.wit > 1", "there is no column score\n  score.wit > 1\nDid you mean scores?"),
    ('status = "scored"', "in single quotes: 'scored'"),
    (
        "meta.info.k > 5",
        f"there is no column meta\n  meta.info.k > 5\nA field .*: {AS_TEXT} is text; cast({AS_TEXT} as double)",
    ),
    ("note = 'x'", "or of several types, has no column: ask the record itself: try_cast(decode(record)->>'$.\"note\"' as"),
]


@pytest.mark.parametrize(("text", "hint"), HINTS)
def test_what_an_unknown_name_may_mean_is_told(text: str, hint: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(hint).replace(r"\.\*", ".*")):
        Condition.check(text, COLUMNS.ours_first)
    parquet = pa.schema([field for field in COLUMNS.ours_first if field.name != "record"])
    with pytest.raises(ExpressionError) as refusal:
        Condition.check(text, parquet)
    assert "decode" not in str(refusal.value)
    Condition.check(f"cast({AS_TEXT} as double) > 5", COLUMNS.ours_first)


def test_a_field_that_is_null_in_the_first_rows_is_read_in_the_record() -> None:
    schema = pa.schema([("reward", pa.float64()), ("record", pa.large_binary())])
    rows = pa.table([[2.0, 2.0], [b'{"note": null}', b'{"note": "x"}']], schema=schema)
    note = "(decode(record)->>'$.\"note\"')"
    for checked, met in (
        (Condition.check(f"length({note}) > 0 and reward > 1", schema), [None, True]),
        (Condition.check(f"{note} is null", schema), [True, False]),
        (Ranking.check(f"length({note})", schema), [None, 1]),
    ):
        assert Evaluator({"met": checked.sql}, checked.columns, checked.flat)(rows).column("met").to_pylist() == met


def table(**columns: pa.Array) -> pa.Table:
    names = COLUMNS.schema.names
    length = len(next(iter(columns.values())))
    values = [columns.get(name, pa.nulls(length, COLUMNS.schema.field(name).type)) for name in names]
    return pa.table(values, schema=COLUMNS.schema)


def evaluated(text: str, rows: pa.Table) -> list[bool]:
    met: list[bool] = [
        bool(value) for value in evaluator(Condition.check(text, COLUMNS.ours_first))(rows).column("met").to_pylist()
    ]
    return met


def evaluator(condition: Condition) -> Evaluator:
    return Evaluator({"met": condition.sql}, condition.columns)


def test_null_is_not_met() -> None:
    rows = table(reward=pa.array([2.0, None, 0.0]), Reward=pa.array(["x", "y", "z"]))
    assert evaluated("Reward > 1", rows) == [True, False, False], "of two names that differ in case ours counts"
    assert evaluated("not (reward > 1)", rows) == [False, False, True]
    assert evaluated("reward is null", rows) == [False, True, False]


BOTH = pa.schema([("record", pa.large_binary()), ("Quality", pa.int64()), ("quality", pa.int64())])


@pytest.mark.parametrize("is_json", [True, False])
def test_a_name_that_two_columns_have_but_for_case_is_refused(is_json: bool) -> None:
    """DuckDB would read the first of them, also for the exact name of the other one, in double quotes."""
    columns = Columns(BOTH if is_json else pa.schema(list(BOTH)[1:]), ("score",), "")
    for name in ("quality", '"Quality"', "QUALITY", "rows_of_the_filter.quality"):
        with pytest.raises(ExpressionError) as refusal:
            Ranking.check(name, columns.ours_first)
        if "." not in name:
            assert "names of columns or of their fields apart that differ in case" in str(refusal.value)
            of_record = re.findall(r"try_cast\S+ as double\)", str(refusal.value))
            assert len(of_record) == is_json
    assert Condition.check("reward > 3", columns.ours_first).columns == ("reward",)
    if is_json:
        condition = Condition.check("try_cast(decode(record)->>'$.\"quality\"' as double) > 3", columns.ours_first)
        rows = pa.table({"record": pa.array([b'{"Quality": 5}', b'{"quality": 5}'], pa.large_binary())})
        assert evaluator(condition)(rows).column("met").to_pylist() == [None, True]


@pytest.mark.parametrize("text", ["meta.quality > 3", "len(list_filter(many, lambda x: x.quality > 3)) > 0"])
def test_a_field_whose_name_another_has_but_for_case_is_refused(text: str) -> None:
    struct = pa.struct([("Quality", pa.int64()), ("quality", pa.int64()), ("n", pa.int64())])
    columns = Columns(pa.schema([("meta", struct), ("many", pa.list_(struct))]), ("score",), "")
    with pytest.raises(ExpressionError, match="of their fields apart that differ in case"):
        Condition.check(text, columns.ours_first)


def test_a_value_under_another_spelling_of_a_columns_name_is_no_null() -> None:
    """The column is of the first rows' spelling."""
    columns = Columns(pa.schema([("record", pa.large_binary()), ("Quality", pa.int64())]), ("score",), "")
    records = [b'{"Quality": 5}', b'{"x": 1}', b'{"quality": null}', b'{"quality": 5}']
    rows = pa.table({"record": pa.array(records, pa.large_binary()), "Quality": pa.array([5, None, None, None], pa.int64())})
    condition = Condition.check("quality > 3", columns.ours_first)
    evaluate = Evaluator({"met": condition.sql}, condition.columns, condition.flat)
    assert evaluate(rows.slice(0, 3)).column("met").to_pylist() == [True, None, None]
    with pytest.raises(ExpressionError, match=re.escape("a row has 5 for quality, and the column Quality is null there")):
        evaluate(rows)


def test_rows_stay_in_order_in_whatever_pieces_they_come() -> None:
    numbers = table(n=pa.array(range(10_000)))
    pieces = pa.concat_tables([numbers.slice(index, 37) for index in range(0, 10_000, 37)])
    assert evaluated("n % 7 = 3", pieces) == [number % 7 == 3 for number in range(10_000)]


def test_a_moment_in_text_is_utc_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    moments = pa.array([0, 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert evaluated("seen > '1970-01-01 00:00:00'", table(seen=moments)) == [False, True]


def test_a_value_that_cannot_be_computed_with_is_an_error() -> None:
    rows = table(topic=pa.array(["1", "x"]))
    evaluate = evaluator(Condition.check("cast(topic as double) > 0", COLUMNS.ours_first))
    with pytest.raises(ExpressionError, match="try_cast"):
        evaluate(rows)
    assert evaluated("try_cast(topic as double) > 0", rows) == [True, False]


def test_an_evaluator_is_used_again_and_a_condition_travels() -> None:
    condition = pickle.loads(pickle.dumps(Condition.check("reward > 1", COLUMNS.ours_first)))
    evaluate = evaluator(condition)
    for rewards, met in (([2.0], [True]), ([0.0, 2.0], [False, True]), ([], [])):
        assert evaluate(table(reward=pa.array(rewards, pa.float64()))).column("met").to_pylist() == met


@pytest.mark.parametrize("text", ["reward", "0.7 * scores.helpfulness + n", "length(topic) -- a comment", "1", "-reward"])
def test_a_ranking_is_a_number(text: str) -> None:
    assert Ranking.check(text, COLUMNS.ours_first).text == text


def test_a_ranking_that_cant_be_used_is_told() -> None:
    cases: list[tuple[str, str]] = [
        ("topic", "it is VARCHAR, and a ranking must be a number"),
        ("reward, n", "a ranking is exactly one expression"),
        ("avg(reward)", "a filter looks at one response at a time"),
    ]
    for text, says in cases:
        with pytest.raises(ExpressionError, match=re.escape(says)) as caught:
            Ranking.check(text, COLUMNS.ours_first)
        assert str(caught.value).startswith("the ranking can't be used: ")


MISFITS = [
    (4, 4.5, "4.5"),
    (4, 2**70, str(2**70)),
    ("a", 5, "5"),
    (True, 1, "1"),
]


def test_a_value_that_its_column_cant_hold_is_named_and_never_null() -> None:
    """The column has the type of the first rows; of later ones the record alone is whole."""
    for first, later, written in MISFITS:
        rows: list[dict[str, object]] = [{"x": first}, {"x": None}, {}, {"x": later}]
        kind = pa.array([first]).type
        columns = Columns(pa.schema([("record", pa.large_binary()), ("x", kind)]), ("score",), "")
        checked = Condition.check("x is not null and status = 'scored'", columns.ours_first)
        records = pa.array([json.dumps(row).encode() for row in rows] + [b"{", None], pa.large_binary())
        held = scalar_column([row.get("x") for row in rows] + [None, None], kind)
        table = pa.table({"record": records, "x": held, "status": ["scored"] * 6})
        evaluate = Evaluator({"met": checked.sql}, checked.columns, checked.flat)
        assert evaluate(table.slice(0, 3)).column("met").to_pylist() == [True, False, False]
        assert evaluate(table.slice(4)).column("met").to_pylist() == [False, False]
        with pytest.raises(
            ExpressionError, match=rf"a row has {re.escape(written)} for x, and .* the type \({kind}\) of the first rows"
        ) as error:
            evaluate(table)
        pieces = re.findall(r"try_cast.* as double\)|decode\(record\)->>\S+", str(error.value))
        assert len(pieces) == 2
        for text in pieces:
            value = Evaluator({"value": text}, Condition.check(f"({text}) is null", columns.ours_first).columns)(
                table.slice(0, 4)
            )
            if isinstance(first, int | float) and isinstance(later, float):
                assert value.column("value").to_pylist()[-1] in (later, str(later))


def test_what_a_ranking_and_a_filter_need_is_in_the_record_too() -> None:
    columns = Columns(pa.schema([("record", pa.large_binary()), ("n", pa.int64())]), ("score",), "")
    judge = ResponseEvaluator.of(ChoiceSettings(by="n", top_fraction=0.5), "", columns.ours_first)
    assert {"record", "n"} <= judge.columns
    table = pa.table(
        {
            "record": pa.array([b'{"n": 4}', b'{"n": 4.5}'], pa.large_binary()),
            "n": pa.array([4, None]),
            **{name: ["x", "x"] for name in ("row", "response_name", "status", "reason")},
        }
    )
    with pytest.raises(ExpressionError, match=r"a row has 4\.5 for n"):
        judge.evaluate(0, 0, table, judge.compile())
