"""The condition of a filter, and the number it ranks by: SQL over the columns of a scored corpus, evaluated by DuckDB.

Both are checked before any work, and must have three properties:

- they depend on one response only: no subqueries, window functions or aggregates;
- they are deterministic: the same at any time, on any machine and in any session;
- they compare values of one family of types. DuckDB alone would cast in `status = 1` and in `reward >= '10'`; here both are
  errors.

Null isn't true: a response without a reward doesn't meet `reward < 1`. NaN is null everywhere, which DuckDB alone would take
for the largest number: in the columns, in their structs and lists, and where something computed is compared. Infinities are
numbers: they are larger or smaller than all others.
"""

import difflib
import json
import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from actors.errors import ExpressionError, Rejected
from pipelines.corpus.readers import RECORD
from pipelines.formats import parse
from pipelines.run_folder.columns import ROW, scalar_column
from pipelines.scored_corpus import databases

_ROWS, _READ = "rows_of_the_filter", "rows_as_they_were_read"
_END = "\n"  # ends a `--` comment that an expression may close with
_ALONE = "a filter looks at one response at a time"
_REFUSED = {
    "SUBQUERY": f"{_ALONE}, and a subquery would look at others",
    "WINDOW": f"{_ALONE}, and a window function looks at others",
    "STAR": "* and COLUMNS(...) stand for several columns; name the one that is meant",
    "PARAMETER": "parameters such as ? or $1 have no value here",
}
_WITHOUT_ARGUMENTS = ["pi", "map", "list_value", "list_pack"]
"""Deterministic functions that take no arguments. All others without arguments depend on the clock or the session."""
_OF_THE_SESSION = frozenset(
    {"ago", "assert_true", "format_type", "get_block_size", "pg_get_constraintdef", "pg_get_viewdef", "pg_sleep"}
)
"""Macros that depend on more than their arguments. DuckDB's catalogue knows it of functions, and not of macros."""
_WITHOUT_PARENTHESES = frozenset({
    "current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp",
    "current_user", "localtime", "localtimestamp", "session_user", "user",
})  # fmt: skip
"""Functions of the clock or the session that SQL lets stand without parentheses, and then parses as columns."""
_UNFIT = """
select function_name, bool_and(function_type = 'aggregate') as only_aggregates
from duckdb_functions() where list_contains($1, function_name) group by 1
having only_aggregates or bool_or(
    function_type in ('scalar', 'macro')
    and (stability <> 'CONSISTENT' or len(parameters) = 0 and varargs is null and not list_contains($2, function_name))
)
order by 2 desc, 1
"""
"""Of the functions $1, those that are aggregates in all overloads, then those but $2 that change in any."""
_CLAUSE = {"condition": "WHERE", "ranking": "ORDER BY"}
_FAMILIES = {
    "number": ("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint",
               "uhugeint", "bignum", "float", "double", "decimal"),
    "text": ("varchar", "enum", "uuid"),
    "moment": ("date", "timestamp", "timestamp with time zone", "timestamp_s", "timestamp_ms", "timestamp_ns"),
}  # fmt: skip
_FAMILY = {kind: family for family, kinds in _FAMILIES.items() for kind in kinds}

Node = Mapping[str, Any]


@dataclass(frozen=True)
class _Checked:
    """A checked expression, the SQL that evaluates it, and the columns that this needs.

    `flat` are those of the columns that hold fields of JSON rows. Such a column has the type of the first rows; a value of
    another type is null in it and present only in the raw record, so the record is among the columns, too.
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    flat: tuple[str, ...] = ()

    what: ClassVar[str]
    family: ClassVar[str]

    @classmethod
    def check(cls, text: str, schema: pa.Schema) -> Self:
        """Check an expression against the schema of the rows. Raises `ExpressionError`, which says how to write it."""
        sql, needed = _check_expression(text, schema, cls.what, cls.family)
        flat = tuple(name for name in needed if name in _flat_fields(schema))
        return cls(text, sql, tuple(dict.fromkeys((*needed, RECORD))) if flat else needed, flat)


class Condition(_Checked):
    """A boolean expression; a response is kept where it is true."""

    what, family = "condition", "boolean"


class Ranking(_Checked):
    """A numeric expression that responses are ranked by; higher is better."""

    what, family = "ranking", "number"


class Evaluator:
    """Evaluates checked expressions, table by table."""

    def __init__(self, expressions: Mapping[str, str], columns: Sequence[str], flat: Sequence[str] = ()) -> None:
        """`expressions` maps the name of each result to SQL; `columns` and `flat` are those that the expressions need."""
        self._columns = columns
        self._flat = flat
        self._select = f"select {', '.join(f'({text}{_END}) as {name}' for name, text in expressions.items())}"
        self._texts = "\n  ".join(expressions.values())
        self._connection = databases.cursor()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The results for each row. Raises `ExpressionError` if evaluation fails, or a value is only in the raw record."""
        for name in self._flat:
            _check_whole(table, name)
        self._connection.register(_READ, table.select(self._columns))
        read = self._connection.sql(f"from {_READ}")
        columns = (
            f"{_without_nan(quoted(name), kind)} as {quoted(name)}"
            for name, kind in zip(read.columns, read.types, strict=True)
        )
        try:
            return self._connection.sql(
                f"{self._select} from (select {', '.join(columns)} from {_READ}) as {_ROWS}"
            ).to_arrow_table()
        except duckdb.Error as error:
            raise ExpressionError(
                f"this can't be evaluated: {_first_line(error)}\n  {self._texts}\n"
                "try_cast(x as double) is null where x is no number, and try(...) where something else can't be computed"
            ) from error


def _without_nan(value: str, kind: Any, depth: int = 0) -> str:
    """The SQL for a value of this type with null in place of every NaN in it."""
    if kind.id in ("float", "double"):
        return f"nullif({value}, 'nan')"
    if kind.id not in ("struct", "list", "array", "map") or not re.search("FLOAT|DOUBLE", str(kind)):
        return value
    item, inner = f"item_{depth}", dict(kind.children)
    if kind.id == "struct":
        fields = {quoted(name): _without_nan(f"{value}.{quoted(name)}", part, depth) for name, part in inner.items()}
        packed = ", ".join(f"{name} := {field}" for name, field in fields.items())
        return f"case when {value} is not null then struct_pack({packed}) end"
    if kind.id == "map":
        entry = f"struct_pack(key := {item}.key, value := {_without_nan(f'{item}.value', inner['value'], depth + 1)})"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {item}: {entry}))"
    return f"list_transform({value}, lambda {item}: {_without_nan(item, inner['child'], depth + 1)})::{kind}"


def _flat_fields(schema: pa.Schema) -> Sequence[str]:
    """The columns that hold fields of JSON rows: those after the raw record. None for a Parquet corpus."""
    record = schema.get_field_index(RECORD)
    if record < 0 or not pa.types.is_large_binary(schema.field(record).type):
        return ()
    return [field.name for field in list(schema)[record + 1 :] if not pa.types.is_nested(field.type)]


def _check_whole(table: pa.Table, name: str) -> None:
    """Raise `ExpressionError` if a row has a value in its record that its flat column doesn't have.

    Null in the column would otherwise silently decide the condition.
    """
    kind = table.schema.field(name).type
    # Only rows with null in the column need their record parsed; where the field is null or absent, null is right.
    for record in table.filter(pc.is_null(table.column(name))).column(RECORD).to_pylist():
        try:
            fields = parse(record) if record is not None else {}
        except Rejected:
            continue
        value = fields.get(name)
        is_null = value is None or (isinstance(value, float) and math.isnan(value))
        if not is_null and scalar_column([value], kind).null_count:
            raise ExpressionError(
                f"a row has {json.dumps(value)[:80]} for {name}, which was {kind} in the first rows of the corpus, so that "
                f"the column {name} is null there; {_record_advice(name)}"
            )
        for other, value in fields.items():
            if value is not None and other != name and other.casefold() == name.casefold():
                raise ExpressionError(
                    f"a row has {json.dumps(value)[:80]} for {other}, and the column is {name}: SQL doesn't tell them "
                    f"apart; {_record_advice(other)}"
                )


def _record_advice(name: str) -> str:
    """The advice for reading a field from the raw record instead of its column."""
    column = "'$." + json.dumps(name).replace("'", "''") + "'"
    text = f"decode(record)->>{column}"
    return f"ask the record itself: try_cast({text} as double) is the number, {text} the text"


def _check_expression(text: str, schema: pa.Schema, what: str, family: str) -> tuple[str, tuple[str, ...]]:
    """Check an expression; returns it as it is evaluated, and the columns that it needs.

    At least one: a table needs a column to have rows.
    """
    with databases.cursor() as connection:
        rows = _register_null_row(connection, schema)
        try:
            root = _parse(connection, text, what)
            _check_nodes(connection, root, {name.casefold() for name in (_ROWS, *rows.column_names)})
            _check_case(root, schema)
            _check_types(connection, text, root, what, family)
            sql = _without_computed_nan(connection, text, root)
        except (ExpressionError, duckdb.Error, RecursionError) as error:
            raise ExpressionError(_error_message(connection, text, str(error), rows, what)) from error
    used = {name.casefold() for name in _names(root)}
    needed = tuple(name for name in rows.column_names if name.casefold() in used)
    return sql, needed or tuple(rows.column_names[:1])


def _register_null_row(connection: DuckDBPyConnection, schema: pa.Schema) -> pa.Table:
    """Register, and return, a table of one row of nulls, with the columns that an expression may name.

    One row suffices to bind and to evaluate an expression once. DuckDB ignores the case of names, so of two columns that
    differ only in case the first is registered (`_check_case` refuses to use either).
    """
    fields: dict[str, pa.Field] = {}
    for field in schema:
        if field.name.casefold() not in fields and _is_supported(connection, field):
            fields[field.name.casefold()] = field
    visible = pa.schema([field.with_nullable(True) for field in fields.values()])
    rows = pa.table([pa.nulls(1, field.type) for field in visible], visible)
    connection.register(_ROWS, rows)
    return rows


def _is_supported(connection: DuckDBPyConnection, field: pa.Field) -> bool:
    try:
        connection.register(_ROWS, pa.schema([field]).empty_table())
        connection.sql(f"from {_ROWS}")
    except duckdb.NotImplementedException:  # 16-bit floats, 256-bit decimals
        return False
    return True


def _parse(connection: DuckDBPyConnection, text: str, what: str) -> Node:
    """The syntax tree of the text, which must be exactly one expression. Raises `ExpressionError`."""
    document = _serialized(connection, f"select {text}")
    if document["error"]:
        raise ExpressionError(document["error_message"])
    statements = document["statements"]
    columns = statements[0]["node"].get("select_list", [])
    # Apart from its select list, the statement must equal `select true`: this refuses `x from t`, `x limit 1`, `x; drop ...`
    # and every other clause, without a list of them.
    plain = _serialized(connection, "select true")["statements"][0]["node"]
    if len(statements) > 1 or len(columns) != 1 or statements[0]["node"] != plain | {"select_list": columns}:
        raise ExpressionError(f"a {what} is one expression: what could stand after {_CLAUSE[what]}, and nothing else")
    root: Node = columns[0]
    if root["alias"]:
        raise ExpressionError(f"a {what} can't be given a name, and this one is called {root['alias']}")
    return root


def _serialized(connection: DuckDBPyConnection, statement: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_value(connection, "json_serialize_sql($1)", statement))
    return document


def _value(connection: DuckDBPyConnection, expression: str, parameter: str) -> str:
    return str(connection.execute(f"select {expression}", [parameter]).fetchall()[0][0])


def _check_nodes(connection: DuckDBPyConnection, root: Node, columns: Container[str]) -> None:
    """Refuse what depends on other rows, and what isn't deterministic. Raises `ExpressionError`."""
    functions, changing = set(), []
    for node in _walk(root):
        if problem := _REFUSED.get(node["class"]):
            raise ExpressionError(problem)
        if node["class"] == "COLUMN_REF":
            name = node["column_names"][0].casefold()
            if name in _WITHOUT_PARENTHESES and name not in columns:
                changing.append(name)
        elif node["class"] == "FUNCTION":
            name = node["function_name"].lower()
            functions.add(name)
            # `age(x)` is the interval from x to now; only `age(x, y)` is deterministic. `x.age()` is refused.
            of_now = name == "age" and (len(node["arguments"]) < 2 or len(node["qualified_name"]["path"]) > 1)
            if of_now or name in _OF_THE_SESSION:
                changing.append(f"{name}()")
    for name, is_aggregate in connection.execute(_UNFIT, [list(functions), _WITHOUT_ARGUMENTS]).fetchall():
        if is_aggregate:
            raise ExpressionError(f"{_ALONE}, and {name}() sums several up")
        changing.append(f"{name}()")
    if changing:
        raise ExpressionError(
            f"{changing[0]} has another value each time, so the result couldn't be reproduced; "
            "for a sample use hash(row) % 10 = 0, for a moment write it out"
        )


def _check_case(root: Node, schema: pa.Schema) -> None:
    """Refuse a name that two columns, or two fields of a struct, share but for case: DuckDB would read the first of them."""
    written = set(_names(root))
    columns = {name.casefold() for name in written}
    if ambiguous := _ambiguous_names(schema.names, columns):
        name = next((name for name in ambiguous if name in written), ambiguous[0])
        way_out = f"rename one of them{f', or {_record_advice(name)}' if _flat_fields(schema) else ''}"
        raise ExpressionError(f"SQL doesn't tell the columns {' and '.join(map(repr, ambiguous))} apart; {way_out}")
    # A field may also be named by a constant, as in meta['quality'], so every text constant counts as a possible name.
    constants = (node["literal"]["text"] for node in _walk(root) if node["class"] == "CONSTANT")
    fields = columns.union(text.casefold() for text in constants)
    kinds = [field.type for field in schema if field.name.casefold() in columns]
    while kinds:
        kind = kinds.pop()
        children = [kind.field(i) for i in range(kind.num_fields)]
        if ambiguous := _ambiguous_names([field.name for field in children], fields):
            raise ExpressionError(
                f"SQL doesn't tell the fields {' and '.join(map(repr, ambiguous))} apart; rename one of them"
            )
        kinds += [field.type for field in children]


def _ambiguous_names(names: Sequence[str], used: Container[str]) -> list[str]:
    """Two or more names that differ only in case and whose case-folded form is in `used`; empty if there are none."""
    by_fold: dict[str, list[str]] = {}
    for name in names:
        by_fold.setdefault(name.casefold(), []).append(name)
    return next((variants for fold, variants in by_fold.items() if fold in used and len(variants) > 1), [])


def _check_types(connection: DuckDBPyConnection, text: str, root: Node, what: str, family: str) -> None:
    """Bind the expression, check its type and those of the operands that it compares, and evaluate it once on nulls."""
    # In WHERE, DuckDB refuses unnest() and the like, which change the number of rows.
    relation = connection.sql(f"select ({text}{_END}) from {_ROWS} where ({text}{_END}) is null")
    if _FAMILY.get((kind := relation.types[0]).id, kind.id) != family:
        raise ExpressionError(f"it is {kind}, and a {what} must be {'BOOLEAN' if family == 'boolean' else 'a number'}")
    for node in _walk(root, into_lambdas=False):
        _check_families(connection, _compared_operands(node))
        _check_families(connection, _boolean_operands(node), "boolean")
    relation.fetchall()  # a text constant that can't be converted shows here


def _without_computed_nan(connection: DuckDBPyConnection, text: str, root: Node) -> str:
    """The expression with null for every NaN that it computes and compares, such as 0 / 0 and cast('nan' as double)."""
    operands = [operand for node in _walk(root, into_lambdas=False) for operand in _compared_operands(node)]
    computed = [operand for operand in operands if operand["class"] not in ("COLUMN_REF", "CONSTANT")]
    kinds = _select_nodes(connection, computed).types if computed else []
    floats = [operand for operand, kind in zip(computed, kinds, strict=True) if kind.id in ("float", "double")]
    if not floats:
        return text
    for operand in floats:
        wrapped = _serialized(connection, "select nullif(0, 'nan')")["statements"][0]["node"]["select_list"][0]
        wrapped["arguments"][0]["expression"] = dict(operand)
        operand.clear()
        operand.update(wrapped)
    return _sql_of(connection, [root])


def _compared_operands(node: Node) -> Sequence[dict[str, Any]]:
    """The operands of a node that must be of one family of types."""
    match node["class"], node["type"]:
        case "COMPARISON", _:
            return [node["left"], node["right"]]
        case "BETWEEN", _:
            return [node["input"], node["lower"], node["upper"]]
        case "OPERATOR", "COMPARE_IN" | "COMPARE_NOT_IN" | "OPERATOR_COALESCE":
            return list(node["children"])
        case "CASE", _:
            return [*(check["then_expr"] for check in node["case_checks"]), node["else_expr"]]
    return []


def _boolean_operands(node: Node) -> Sequence[Node]:
    """The operands of a node that must be boolean."""
    match node["class"], node["type"]:
        case ("CONJUNCTION", _) | ("OPERATOR", "OPERATOR_NOT"):
            return list(node["children"])
        case "CASE", _:
            return [check["when_expr"] for check in node["case_checks"]]
    return []


def _check_families(connection: DuckDBPyConnection, operands: Sequence[Node], expected: str = "") -> None:
    """Raise `ExpressionError` unless the operands are of one family: `expected`, if given. Null fits every family."""
    if not operands:
        return
    kinds = _select_nodes(connection, operands).types
    families = {_FAMILY.get(kind.id, kind.id) for kind in kinds if kind.id != "null"} | ({expected} if expected else set())
    texts = [node for node, kind in zip(operands, kinds, strict=True) if _FAMILY.get(kind.id) == "text"]
    if families == {"moment", "text"} and all(node["class"] == "CONSTANT" for node in texts):
        return  # ts > '2026-01-01', the usual way to write it
    if len(families) > 1:
        written = [_sql_of(connection, [node]) for node in operands]
        typed = ", ".join(f"{text} is {kind}" for text, kind in zip(written, kinds, strict=True))
        if expected:
            raise ExpressionError(f"{typed}: what AND, OR, NOT and WHEN work on must be BOOLEAN")
        way_out = "decode(x) makes text of bytes" if "blob" in families else "try_cast(x as double) makes a number of text"
        raise ExpressionError(f"{typed}: only like can be compared with like; {way_out}")


def _select_nodes(connection: DuckDBPyConnection, expressions: Sequence[Node]) -> DuckDBPyRelation:
    return connection.sql(f"select {_sql_of(connection, expressions)} from {_ROWS}")


def _sql_of(connection: DuckDBPyConnection, expressions: Sequence[Node]) -> str:
    document = _serialized(connection, "select true")
    document["statements"][0]["node"]["select_list"] = list(expressions)
    return _value(connection, "json_deserialize_sql($1)", json.dumps(document)).removeprefix("SELECT ")


def _walk(root: Node, into_lambdas: bool = True) -> Iterator[Node]:
    """All expression nodes of a tree. A lambda's body names parameters that have no type outside of it."""
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
    """Every identifier that may be a column: `a`, both of `rows.a` and of `a.field`, and the `a` of `a.lower()`."""
    for node in _walk(root):
        if node["class"] == "COLUMN_REF":
            yield from node["column_names"]
        elif node["class"] == "FUNCTION":
            yield from node["qualified_name"]["path"][:-1]


def _nested_hint(text: str, outer: str) -> list[str]:
    """Where a field inside another one of JSON rows is, which has no column: for `outer.inner` in the expression."""
    if (place := re.search(rf"\b{re.escape(outer)}(?:\.\w+)+", text)) is None:
        return []
    way = f"json_extract_string(decode({RECORD}), '$.{place[0]}')"
    return [f"A field inside another one is in the row's record alone: {way} is text; cast({way} as double) a number"]


def _error_message(connection: DuckDBPyConnection, text: str, problem: str, rows: pa.Table, what: str) -> str:
    """The full error message: the first line of DuckDB's, the expression, a hint, and the columns with their types."""
    problem = re.sub(r"^[A-Z][\w ]+ Error: ", "", problem).split("\n")[0]
    hint = []
    if missing := re.match(r'Referenced column "(.+)" not found', problem):
        problem = f"there is no column {missing[1]}"
        if f'"{missing[1]}"' in text:
            literal = missing[1].replace("'", "''")
            hint = [f"Text is written in single quotes: '{literal}' (what is in double quotes is a column's name)"]
    is_json = RECORD in rows.column_names and pa.types.is_large_binary(rows.schema.field(RECORD).type)
    if (table := re.match(r'Referenced table "(.+)" not found', problem)) and is_json:
        outer = table[1].split(".")[0]  # of meta.info.k, DuckDB names meta.info
        problem = f"there is no column {outer}"
        hint = _nested_hint(text, outer)
    elif missing:
        close = difflib.get_close_matches(missing[1], rows.column_names, n=1)
        hint = hint or [f"Did you mean {name}?" for name in close]
        if is_json:
            advice = _record_advice(missing[1])
            hint.append(f"A field that was null in the first rows, or of several types, has no column: {advice}")
        if ROW in rows.column_names and (value := re.search(rf"\b{re.escape(missing[1])}\s*=\s*'([\w-]+)'", text)):
            folder = f"{missing[1]}={value[1]}/"
            hint.append(f"Of files in folders {folder} a row's name holds the folder: {ROW} like '%{folder}%'")
    connection.register(_ROWS, rows)
    reserved = connection.execute("select keyword_name from duckdb_keywords() where keyword_category = 'reserved'")
    keywords = {name for (name,) in reserved.fetchall()}
    relation = connection.sql(f"from {_ROWS}")
    columns = zip(relation.columns, relation.types, strict=True)
    listed = (f"  {line}" for name, kind in columns for line in _column_lines(name, kind, keywords))
    return "\n".join([f"the {what} can't be used: {problem}", f"  {text}", *hint, "The columns are:", *listed])


def _column_lines(name: str, kind: Any, keywords: set[str]) -> Iterator[str]:
    plain = re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in keywords
    written = name if plain else quoted(name)
    if kind.id != "struct":
        yield f"{written}: {kind}"
        return
    for field, inner in kind.children:
        yield from (f"{written}.{line}" for line in _column_lines(field, inner, keywords))


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
