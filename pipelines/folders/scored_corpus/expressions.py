"""The condition of a filter, and the number it ranks by: SQL over the columns of a scored corpus, evaluated by DuckDB.

DuckDB parses and binds both before any work, so names and types are its own. Here it is checked that they depend on one
response only (no subqueries, window functions or aggregates), and are the same at any time, on any machine, in any session.

Null isn't true: a response without a reward doesn't meet `reward < 1`. NaN is null everywhere, which DuckDB alone would take
for the largest number: in the columns, in their structs and lists, and where something computed is compared. Infinities are
numbers: they are larger or smaller than all others. The least and the greatest of values are null where one of them is.
Text isn't compared with a number.
"""

import contextlib
import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from actors.errors import ExpressionError, Rejected
from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import parse
from pipelines.folders.run_folder.carried_columns import scalar_column
from pipelines.folders.run_folder.columns import ROW, is_json
from pipelines.folders.scored_corpus import databases

_ROWS = "rows_of_the_filter"
_END = "\n"  # ends a `--` comment that an expression may close with
# Classes of DuckDB's syntax tree.
_REFUSED = {
    "SUBQUERY": "a filter looks at one response at a time, and a subquery would look at others",
    "STAR": "* and COLUMNS(...) stand for several columns; name the one that is meant",
}
# Functions and macros of the clock, of chance and of the session. SQL lets some of them stand without parentheses.
_CHANGING = frozenset({
    "ago", "assert_true", "current_catalog", "current_connection_id", "current_database", "current_date",
    "current_localtime", "current_localtimestamp", "current_query", "current_query_id", "current_role", "current_schema",
    "current_schemas", "current_setting", "current_time", "current_timestamp", "current_transaction_id", "current_user",
    "currval", "error", "format_type", "gen_random_uuid", "get_block_size", "get_current_time", "get_current_timestamp",
    "getvariable", "in_search_path", "inet_client_addr", "inet_client_port", "inet_server_addr", "inet_server_port",
    "localtime", "localtimestamp", "nextval", "now", "pg_conf_load_time", "pg_get_constraintdef", "pg_get_viewdef",
    "pg_my_temp_schema", "pg_postmaster_start_time", "pg_sleep", "random", "session_user", "setseed", "setval", "sleep_ms",
    "stats", "today", "transaction_timestamp", "txid_current", "user", "uuid", "uuidv4", "uuidv7", "vector_type", "version",
    "write_log",
})  # fmt: skip
_NUMBERS = frozenset({
    "tinyint", "smallint", "integer", "bigint", "hugeint", "bignum", "utinyint", "usmallint", "uinteger", "ubigint",
    "uhugeint", "float", "double", "decimal",
})  # fmt: skip
_FLOATS = frozenset({"float", "double"})
_EXTREMES = frozenset({"least", "greatest"})

Node = Mapping[str, Any]


@dataclass(frozen=True)
class _Checked:
    # A checked expression, the SQL that evaluates it, and the columns that this needs.
    # `flat` are those of the columns that hold fields of JSON rows. Such a column has the type of the first rows; a value of
    # another type is null in it and present only in the raw record, so the record is among the columns, too.
    text: str
    sql: str
    columns: tuple[str, ...]
    flat: tuple[str, ...] = ()

    what: ClassVar[str]
    types: ClassVar[frozenset[str]]
    must: ClassVar[str]

    @classmethod
    def check(cls, text: str, schema: pa.Schema) -> Self:
        """Check an expression against the schema of the rows. Raises `ExpressionError`, which says how to write it."""
        with databases.cursor() as connection:
            rows = _register_null_row(connection, schema)
            try:
                # DuckDB refuses in WHERE what looks at other rows, and in one of the places whatever is no expression:
                # `true from t`, `true limit 1`, `true; drop ...` in parentheses, `true) or (true` without.
                binding = f"select ({text}{_END}), {text}{_END} from {_ROWS} where ({text}{_END}) is null"
                types = connection.sql(binding).types
                if len(types) != 2:
                    raise ExpressionError(f"a {cls.what} is exactly one expression")
                root = _parse(connection, text)
                _check_functions(root, rows.column_names)
                if types[0].id not in cls.types:
                    raise ExpressionError(f"it is {types[0]}, and a {cls.what} must be {cls.must}")
                names = set(_names(root))
                sql = _write(connection, root) if _check_operands(connection, root) else text
                connection.sql(f"select ({sql}{_END}) from {_ROWS}").fetchall()  # converts the constants
            except (ExpressionError, duckdb.Error, RecursionError) as error:
                raise ExpressionError(_error_message(connection, text, str(error), schema, cls.what)) from error
        # At least one column, because a table needs one to have rows.
        needed = [name for name in rows.column_names if name.casefold() in names] or rows.column_names[:1]
        flat = [name for name in needed if name in _flat_fields(schema)]
        return cls(text, sql, tuple(dict.fromkeys([*needed, RECORD] if flat else needed)), tuple(flat))


class Condition(_Checked):
    """A boolean expression; a response is kept where it is true.

    Null isn't true, so a response without a reward fails `reward < 1`.
    """

    what, types, must = "condition", frozenset({"boolean"}), "BOOLEAN"


class Ranking(_Checked):
    """A numeric expression that responses are ranked by; higher is better.

    Null, and NaN with it, is no rank: such a response is not chosen.
    """

    what, types, must = "ranking", _NUMBERS, "a number"


class Evaluator:
    """Evaluates checked expressions, table by table."""

    def __init__(self, expressions: Mapping[str, str], columns: Sequence[str], flat: Sequence[str] = ()) -> None:
        """`expressions` maps the name of each result to SQL; `columns` and `flat` are those that the expressions need."""
        self._columns = columns
        self._flat = flat
        self._select = f"select {', '.join(f'({text}{_END}) as {name}' for name, text in expressions.items())} from {_ROWS}"
        self._texts = "\n  ".join(expressions.values())
        self._connection = databases.cursor()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The results for each row. Raises `ExpressionError` if evaluation fails, or a value is only in the raw record."""
        for name in self._flat:
            _check_whole(table, name)
        # NaN is looked for in the columns that are needed, and in no others.
        self._connection.register(_ROWS, pa.table({name: _without_nan(table.column(name)) for name in self._columns}))
        try:
            return self._connection.sql(self._select).to_arrow_table()
        except duckdb.Error as error:
            raise ExpressionError(
                f"this can't be evaluated: {str(error).split(chr(10))[0]}\n  {self._texts}\n"
                "try_cast(x as double) is null where x is no number, and try(...) where something else can't be computed"
            ) from error


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # DuckDB takes NaN for the largest number, so NaN becomes null before it sees any: in structs, lists and maps too.
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), None, column)
    if not pa.types.is_nested(kind) or not re.search("float|double", str(kind)):
        return column
    if pa.types.is_struct(kind):
        fields = [_without_nan(pc.struct_field(column, [i])) for i in range(kind.num_fields)]
        packed = pc.make_struct(*fields, field_names=[field.name for field in kind])
        return pc.if_else(pc.is_null(column), None, packed)
    return pa.array(column.to_pylist(), kind, from_pandas=True)  # reads NaN as null


def _flat_fields(schema: pa.Schema) -> Sequence[str]:
    # They come after the raw record; a Parquet corpus has none.
    if not is_json(schema):
        return ()
    return [field.name for field in list(schema)[schema.get_field_index(RECORD) + 1 :] if not pa.types.is_nested(field.type)]


def _check_whole(table: pa.Table, name: str) -> None:
    # Raise `ExpressionError` if a row has a value in its record that its flat column doesn't have.
    # Null in the column would otherwise silently decide the condition.
    kind = table.schema.field(name).type
    # Only rows with null in the column need their record parsed; where the field is null or absent, null is right.
    for record in table.filter(pc.is_null(table.column(name))).column(RECORD).to_pylist():
        try:
            fields = parse(record) if record is not None else {}
        except Rejected:
            continue
        for key, value in fields.items():
            is_null = value is None or (isinstance(value, float) and math.isnan(value))
            if is_null or key.casefold() != name.casefold():
                continue
            if key != name or scalar_column([value], kind).null_count:
                raise ExpressionError(
                    f"a row has {json.dumps(value)[:80]} for {key}, and the column {name} is null there: it has the "
                    f"spelling and the type ({kind}) of the first rows of the corpus; {_record_advice(key)}"
                )


def _record_advice(name: str) -> str:
    column = "'$." + json.dumps(name).replace("'", "''") + "'"
    text = f"decode(record)->>{column}"
    return f"ask the record itself: try_cast({text} as double) is the number, {text} the text"


def _register_null_row(connection: DuckDBPyConnection, schema: pa.Schema) -> pa.Table:
    # Register, and return, a table of one row of nulls, with the columns that an expression may name.
    # One row suffices to bind and to evaluate an expression once. Of names that differ in case alone, which SQL doesn't tell
    # apart, there is none: DuckDB would read the first of them.
    counts = Counter(name.casefold() for name in schema.names)
    columns: dict[str, pa.Array] = {}
    for field in schema:
        nulls = pa.nulls(1, field.type)
        with contextlib.suppress(duckdb.NotImplementedException):  # 16-bit floats, 256-bit decimals
            connection.register(_ROWS, pa.table({field.name: nulls}))
            connection.sql(f"from {_ROWS}")
            if counts[field.name.casefold()] == 1 and not _is_ambiguous(field.type):
                columns[field.name] = nulls
    rows = pa.table(columns)
    connection.register(_ROWS, rows)
    return rows


def _is_ambiguous(kind: pa.DataType) -> bool:
    # DuckDB reads the first of two fields whose names differ in case alone, also for the exact name of the other.
    if not pa.types.is_nested(kind):
        return False
    fields = [kind.field(index) for index in range(kind.num_fields)]
    names = {field.name.casefold() for field in fields}
    return len(names) < len(fields) or any(_is_ambiguous(field.type) for field in fields)


def _parse(connection: DuckDBPyConnection, text: str) -> Node:
    root: Node = _document(connection, text)["statements"][0]["node"]["select_list"][0]
    return root


def _write(connection: DuckDBPyConnection, *expressions: Node) -> str:
    document = _document(connection, "true")
    document["statements"][0]["node"]["select_list"] = expressions
    rows = connection.execute("select json_deserialize_sql($1)", [json.dumps(document)]).fetchall()
    return str(rows[0][0]).removeprefix("SELECT ")


def _document(connection: DuckDBPyConnection, text: str) -> dict[str, Any]:
    rows = connection.execute("select json_serialize_sql($1)", [f"select {text}"]).fetchall()
    document: dict[str, Any] = json.loads(rows[0][0])
    return document


def _check_functions(root: Node, columns: Sequence[str]) -> None:
    names = {name.lower() for name in columns}
    for node in _walk(root):
        # Aggregates and window functions aren't here: DuckDB refuses them itself, in WHERE.
        if problem := _REFUSED.get(node["class"]):
            raise ExpressionError(problem)
        if node["class"] == "FUNCTION":
            name = node["function_name"].lower()
            # `age(x)` is the interval from x to now; only `age(x, y)` is deterministic.
            is_changing = name in _CHANGING or (name == "age" and len(node["arguments"]) < 2)
            if name in _EXTREMES and len(node["qualified_name"]["path"]) > 1:
                raise ExpressionError(f"of {name} all arguments stand in its parentheses: {name}(x, y)")
        elif node["class"] == "COLUMN_REF":
            name = node["column_names"][0].lower()
            is_changing = name in _CHANGING and name not in names
        else:
            continue
        if is_changing:
            raise ExpressionError(
                f"{name} has another value each time, so the result couldn't be reproduced; "
                "for a sample use hash(row) % 10 = 0, for a moment write it out"
            )


def _check_operands(connection: DuckDBPyConnection, root: Node) -> bool:
    # Refuse text compared with a number, and put null for a NaN that an operand computes, such as 0 / 0, and for `least` and
    # `greatest` of a null. Whether this changed the tree.
    is_changed = False
    # The innermost first: what holds them is written with their changes.
    for node in reversed([*_walk(root, into_lambdas=False)]):
        operands = _compared(node)
        if not operands:
            continue
        types = connection.sql(f"select {_write(connection, *operands)} from {_ROWS}").types
        if node["type"] != "OPERATOR_COALESCE":
            _check_text(connection, operands, types)
        for operand, kind in zip(operands, types, strict=True):
            if operand["class"] not in ("COLUMN_REF", "CONSTANT") and kind.id in _FLOATS:
                text = _write(connection, operand)
                operand.clear()
                operand.update(_parse(connection, f"nullif({text}, 'nan')"))
                is_changed = True
    for node in reversed([*_walk(root)]):
        if _is_call(node, _EXTREMES):
            # DuckDB passes over nulls: the least of 4 and a missing score would be 4, the best there is.
            missing = (f"({_write(connection, operand)}) is null" for operand in _compared(node))
            text = f"case when {' or '.join(missing)} then null else {_write(connection, node)} end"
            node.clear()
            node.update(_parse(connection, text))
            is_changed = True
    return is_changed


def _check_text(connection: DuckDBPyConnection, operands: Sequence[Node], types: Sequence[Any]) -> None:
    # DuckDB refuses `>` of text and a number, but for `=` and `in` it rounds text to the number's type: of a rating '4.5'
    # (UltraFeedback has them as text) `rating = 5` is true. So it does for each comparison of JSON, whose id is varchar too,
    # and of a quoted number with a column of whole ones.
    if {"list", "array", "struct", "tuple"} & {kind.id for kind in types}:
        connection.sql(f"select coalesce({_write(connection, *operands)}) from {_ROWS}")  # refuses unlike types at any depth
    numbers = {kind.id for kind in types} & _NUMBERS
    for operand, kind in zip(operands, types, strict=True):
        quoted = operand.get("literal", {}).get("kind") == "STRING"
        is_exact = quoted and (numbers <= _FLOATS or re.fullmatch(r"\s*[+-]?\d+\s*", operand["literal"]["text"]))
        if numbers and kind.id == "varchar" and not is_exact:
            text = _write(connection, operand)
            raise ExpressionError(
                f"{text} is text, which a comparison with a number would round; try_cast({text} as double) is the number, "
                "and another text stands in single quotes"
            )


def _compared(node: Node) -> list[dict[str, Any]]:
    if node["class"] == "COMPARISON":
        return [node["left"], node["right"]]
    if node["class"] == "BETWEEN":
        return [node["input"], node["lower"], node["upper"]]
    if _is_call(node, {"nullif", *_EXTREMES}):
        return [argument["expression"] for argument in node["arguments"]]
    return node["children"] if node["type"] in ("COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE") else []


def _is_call(node: Node, names: Collection[str]) -> bool:
    return node["class"] == "FUNCTION" and node["function_name"].lower() in names


def _walk(root: Node, into_lambdas: bool = True) -> Iterator[dict[str, Any]]:
    # A lambda's body names parameters that have no type outside of it, so nothing in it can be bound by itself.
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            if "class" in item:
                yield item
            if into_lambdas or item.get("class") != "LAMBDA":
                stack += item.values()


def _names(root: Node) -> Iterator[str]:
    # Both of `rows.a` and of `a.field`, and the `a` of `a.lower()`: which of them is a column, only binding tells.
    for node in _walk(root):
        if node["class"] == "COLUMN_REF":
            yield from map(str.casefold, node["column_names"])
        elif node["class"] == "FUNCTION":
            yield from map(str.casefold, node["qualified_name"]["path"][:-1])


def _error_message(connection: DuckDBPyConnection, text: str, problem: str, schema: pa.Schema, what: str) -> str:
    problem = re.sub(r"^[A-Z][\w ]+ Error: ", "", problem).split("\n")[0]
    # The condition is bound in a WHERE, of which its author knows nothing.
    problem = problem.replace("WHERE clause cannot", "a filter looks at one response at a time, and can't")
    hints: list[str] = []
    if missing := re.match(r'Referenced (column|table) "(.+)" not found', problem):
        name = missing[2].split(".")[0] if missing[1] == "table" else missing[2]  # of meta.info.k, meta.info is the table
        problem = f"there is no column {name}"
        hints = list(_missing_hints(text, name, schema))
    reserved = connection.execute("select keyword_name from duckdb_keywords() where keyword_category = 'reserved'")
    keywords = {name for (name,) in reserved.fetchall()}
    relation = connection.sql(f"from {_ROWS}")
    columns = zip(relation.columns, relation.types, strict=True)
    listed = (f"  {line}" for name, kind in columns for line in _column_lines(name, kind, keywords))
    return "\n".join([f"the {what} can't be used: {problem}", f"  {text}", *hints, "The columns are:", *listed])


def _missing_hints(text: str, name: str, schema: pa.Schema) -> Iterator[str]:
    if f'"{name}"' in text:
        literal = name.replace("'", "''")
        yield f"Text is written in single quotes: '{literal}' (what is in double quotes is a column's name)"
    if name.casefold() in map(str.casefold, schema.names):
        yield "SQL doesn't tell names of columns or of their fields apart that differ in case alone; rename one of them"
    else:
        yield from (f"Did you mean {close}?" for close in difflib.get_close_matches(name, schema.names, n=1))
    if is_json(schema):
        if place := re.search(rf"\b{re.escape(name)}(?:\.\w+)+", text):
            way = f"json_extract_string(decode({RECORD}), '$.{place[0]}')"
            yield f"A field inside another one is in the row's record alone: {way} is text; cast({way} as double) a number"
        else:
            yield f"A field that was null in the first rows, or of several types, has no column: {_record_advice(name)}"
    if ROW in schema.names and (value := re.search(rf"\b{re.escape(name)}\s*=\s*'([\w-]+)'", text)):
        folder = f"{name}={value[1]}/"
        yield f"Of files in folders {folder} a row's name holds the folder: {ROW} like '%{folder}%'"


def _column_lines(name: str, kind: Any, keywords: set[str]) -> Iterator[str]:
    plain = re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in keywords
    written = name if plain else databases.quoted(name)
    if kind.id != "struct":
        yield f"{written}: {kind}"
        return
    for field, inner in kind.children:
        yield from (f"{written}.{line}" for line in _column_lines(field, inner, keywords))
