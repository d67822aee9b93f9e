"""The condition of a filter, and the number it ranks by: SQL over the columns of a scored corpus, evaluated by DuckDB.

Both are checked before any work. They look at one response at a time, come out the same whenever and wherever they are
evaluated, and compare like with like. DuckDB alone would read `status = 1` as text and `reward >= '10'` as a number; here
both are errors. Null is not true: a response without a reward doesn't meet `reward < 1`. NaN in a column of the input
counts as the largest number.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from actors.errors import ExpressionError, Rejected
from pipelines.corpus.readers import RECORD
from pipelines.formats import parse
from pipelines.scored_corpus.columns import scalar_column

_ROWS = "rows_of_the_filter"
_END = "\n"  # of a comment that may stand in an expression
_ALONE = "a filter looks at one response at a time"
_REFUSED = {
    "SUBQUERY": f"{_ALONE}, and a subquery would look at others",
    "WINDOW": f"{_ALONE}, and a window function looks at others",
    "STAR": "* and COLUMNS(...) stand for several columns; name the one that is meant",
    "PARAMETER": "there is nothing to fill a parameter in with",
}
_WITHOUT_ARGUMENTS = frozenset({"pi", "map", "list_value", "list_pack"})
"""Functions that need no argument, and are the same everywhere; others that take none are of the moment or the session."""
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
    """An expression that was checked, and the columns that it needs.

    `flat` are those of them that hold fields of JSON rows. A value of another type than the first rows' is null there, and
    whole in the record alone, which is needed, too.
    """

    text: str
    columns: tuple[str, ...]
    flat: tuple[str, ...] = ()

    what: ClassVar[str]
    family: ClassVar[str]

    @classmethod
    def check(cls, text: str, schema: pa.Schema) -> Self:
        """Check an expression against the columns that there are. Raises `ExpressionError` with what would be right."""
        needed = _checked(text, schema, cls.what, cls.family)
        flat = tuple(name for name in needed if name in _flat_fields(schema))
        return cls(text, tuple(dict.fromkeys((*needed, RECORD))) if flat else needed, flat)


class Condition(_Checked):
    """What a response must meet: true or false."""

    what, family = "condition", "boolean"


class Ranking(_Checked):
    """What responses are ranked by, greater is better: a number."""

    what, family = "ranking", "number"


class Evaluator:
    """Evaluates expressions of a filter, table by table."""

    def __init__(self, expressions: Mapping[str, str], columns: Sequence[str], flat: Sequence[str] = ()) -> None:
        """`expressions` are SQL by the name of their result; `columns`, and `flat` ones, are those that they need."""
        self._columns = columns
        self._flat = flat
        self._select = f"select {', '.join(f'({text}{_END}) as {name}' for name, text in expressions.items())} from {_ROWS}"
        self._texts = "\n  ".join(expressions.values())
        self._connection = _connect()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The results for each row. Raises `ExpressionError` if a value can't be computed with, or isn't in its column."""
        for name in self._flat:
            _check_whole(table, name)
        self._connection.register(_ROWS, table.select(self._columns))
        try:
            return self._connection.sql(self._select).to_arrow_table()
        except duckdb.Error as error:
            raise ExpressionError(
                f"this can't be evaluated: {_first_line(error)}\n  {self._texts}\n"
                "try_cast(x as double) is null where x is no number, and try(...) where something else can't be computed"
            ) from error


def _flat_fields(schema: pa.Schema) -> Sequence[str]:
    """The columns that hold fields of JSON rows: those after the raw record."""
    at = schema.get_field_index(RECORD)
    if at < 0 or not pa.types.is_large_binary(schema.field(at).type):
        return ()
    return [field.name for field in list(schema)[at + 1 :] if not pa.types.is_nested(field.type)]


def _check_whole(table: pa.Table, name: str) -> None:
    """Raise `ExpressionError` if a row has a value in its record that isn't in the column of its name: null is no guess."""
    kind = table.schema.field(name).type
    for record in table.filter(pc.is_null(table.column(name))).column(RECORD).to_pylist():
        try:
            fields = parse(record) if record is not None else {}
        except Rejected:
            continue
        value = fields.get(name)
        if value is not None and scalar_column([value], kind).null_count:
            raise ExpressionError(
                f"a row has {json.dumps(value)[:80]} for {name}, which was {kind} in the first rows of the corpus, so that "
                f"the column {name} is null there; {_of_record(name)}"
            )
        for other, value in fields.items():
            if value is not None and other != name and other.casefold() == name.casefold():
                raise ExpressionError(
                    f"a row has {json.dumps(value)[:80]} for {other}, and the column is {name}: SQL doesn't tell them "
                    f"apart; {_of_record(other)}"
                )


def _of_record(name: str) -> str:
    """How a field is asked for whose column isn't what is meant."""
    column = "'$." + json.dumps(name).replace("'", "''") + "'"
    text = f"decode(record)->>{column}"
    return f"ask the record itself: try_cast({text} as double) is the number, {text} the text"


def _checked(text: str, schema: pa.Schema, what: str, family: str) -> tuple[str, ...]:
    """Check an expression; returns the columns that it needs, at least one."""
    with _connect() as connection:
        rows = _visible(connection, schema)
        try:
            root = _parse(connection, text, what)
            _check_nodes(connection, root, (name.casefold() for name in (_ROWS, *rows.column_names)))
            _check_case(root, schema)
            _check_types(connection, text, root, what, family)
        except (ExpressionError, duckdb.Error, RecursionError) as error:
            raise ExpressionError(_explained(connection, text, str(error), rows, what)) from error
    asked = {name.casefold() for name in _names(root)}
    needed = tuple(name for name in rows.column_names if name.casefold() in asked)
    return needed or tuple(rows.column_names[:1])


def _connect() -> DuckDBPyConnection:
    """A DuckDB that sees what it is given, and neither files nor Python's variables. One thread, and rows in order."""
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "threads": 1,
        }
    )
    connection.execute("set TimeZone = 'UTC'")  # else a moment written as text means another one on each machine
    connection.execute("set lock_configuration = true")
    return connection


def _select(condition: str, where: str = "") -> str:
    return f"select ({condition}{_END}) from {_ROWS} {where}"


def _visible(connection: DuckDBPyConnection, schema: pa.Schema) -> pa.Table:
    """One row of nulls in the columns that a condition may name; registered as the rows that it looks at.

    DuckDB doesn't tell names apart by case: of two that differ in nothing else, only the first is there.
    """
    fields: dict[str, pa.Field] = {}
    for field in schema:
        if field.name.casefold() not in fields and _readable(connection, field):
            fields[field.name.casefold()] = field
    visible = pa.schema([field.with_nullable(True) for field in fields.values()])
    rows = pa.table([pa.nulls(1, field.type) for field in visible], visible)
    connection.register(_ROWS, rows)
    return rows


def _readable(connection: DuckDBPyConnection, field: pa.Field) -> bool:
    try:
        connection.register(_ROWS, pa.schema([field]).empty_table())
        connection.sql(f"from {_ROWS}")
    except duckdb.NotImplementedException:  # 16-bit floats, 256-bit decimals
        return False
    return True


def _parse(connection: DuckDBPyConnection, text: str, what: str) -> Node:
    """The syntax tree of the expression, which must be one expression and nothing more."""
    document = _serialized(connection, f"select {text}")
    if document["error"]:
        raise ExpressionError(document["error_message"])
    statements = document["statements"]
    selected = statements[0]["node"].get("select_list", [])
    expected = _serialized(connection, "select true")["statements"][0]["node"]
    if len(statements) > 1 or len(selected) != 1 or statements[0]["node"] != expected | {"select_list": selected}:
        raise ExpressionError(f"a {what} is one expression: what could stand after {_CLAUSE[what]}, and nothing else")
    root: Node = selected[0]
    if root["alias"]:
        raise ExpressionError(f"a {what} can't be given a name, and this one is called {root['alias']}")
    return root


def _serialized(connection: DuckDBPyConnection, statement: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_value(connection, "json_serialize_sql($1)", statement))
    return document


def _value(connection: DuckDBPyConnection, expression: str, parameter: str) -> str:
    return str(connection.execute(f"select {expression}", [parameter]).fetchall()[0][0])


def _check_nodes(connection: DuckDBPyConnection, root: Node, columns: Iterable[str]) -> None:
    """Refuse what looks at other rows, and what comes out otherwise each time."""
    for node in _walk(root):
        if why := _REFUSED.get(node["class"]):
            raise ExpressionError(why)
    used = sorted({node["function_name"].lower() for node in _walk(root) if node["class"] == "FUNCTION"})
    summing = connection.execute(
        "select function_name from duckdb_functions() where list_contains($1, function_name) "
        "group by 1 having bool_and(function_type = 'aggregate') order by 1",
        [used],
    ).fetchall()
    if summing:
        raise ExpressionError(f"{_ALONE}, and {summing[0][0]}() sums several up")
    if changing := next(_changing(connection, [root], set(columns)), None):
        raise ExpressionError(
            f"{changing} comes out otherwise each time, so that nobody could say again what was kept; "
            "for a sample use hash(row) % 10 = 0, for a moment write it out"
        )


def _changing(connection: DuckDBPyConnection, nodes: Sequence[Node], columns: Container[str]) -> Iterator[str]:
    """What of expressions isn't made of their values alone: of the clock, chance, the session, settings, sequences.

    By DuckDB's own catalogue a function is `CONSISTENT`, or it isn't allowed, and a macro is what it is made of. Where the
    catalogue is wrong, functions that take no argument tell: of what could they be?
    """
    for node in (found for root in nodes for found in _walk(root)):
        if node["class"] == "COLUMN_REF":
            name = node["column_names"][0]
            if name.casefold() not in columns and name.isidentifier() and _is_a_value(connection, name):
                yield name
        elif node["class"] == "SUBQUERY":  # of a macro: what this session's catalogue holds
            yield "a subquery"
        elif node["class"] == "FUNCTION":
            name = node["function_name"].lower()
            of_now = name == "age" and (len(node["arguments"]) < 2 or len(node["qualified_name"]["path"]) > 1)
            if of_now or _may_change(connection, name):
                yield f"{name}()"


def _is_a_value(connection: DuckDBPyConnection, name: str) -> bool:
    """Whether SQL knows a name without any table, such as `current_date` and `user`."""
    try:
        connection.sql(f"select {name}")
    except duckdb.Error:
        return False
    return True


def _may_change(connection: DuckDBPyConnection, name: str) -> bool:
    """Whether a function may give something else of the same arguments."""
    ways = connection.execute(
        "select function_type, stability, len(parameter_types) = 0 and varargs is null, macro_definition, parameters "
        "from duckdb_functions() where function_name = $1 and function_type in ('scalar', 'macro')",
        [name],
    ).fetchall()
    for kind, stability, alone, definition, parameters in ways:
        if kind == "macro":
            known = {parameter.casefold() for parameter in parameters}
            if not known or next(_changing(connection, [_macro(connection, definition)], known), None):
                return True
        elif stability != "CONSISTENT" or (alone and name not in _WITHOUT_ARGUMENTS):
            return True
    return False


def _macro(connection: DuckDBPyConnection, definition: str) -> Node:
    found: Node = _serialized(connection, f"select {definition}")["statements"][0]["node"]["select_list"][0]
    return found


def _check_case(root: Node, schema: pa.Schema) -> None:
    """Refuse a name that two columns have, or two fields of a column, but for case: the first would be read."""
    written = set(_names(root))
    columns = {name.casefold() for name in written}
    if alike := _but_for_case(schema.names, columns):
        name = next((name for name in alike if name in written), alike[0])
        way_out = f"rename one of them{f', or {_of_record(name)}' if _flat_fields(schema) else ''}"
        raise ExpressionError(f"SQL doesn't tell the columns {' and '.join(map(repr, alike))} apart; {way_out}")
    constants = (node["literal"]["text"] for node in _walk(root) if node["class"] == "CONSTANT")  # meta['quality']
    fields = columns.union(text.casefold() for text in constants)
    kinds = [field.type for field in schema if field.name.casefold() in columns]
    while kinds:
        kind = kinds.pop()
        inner = [kind.field(at) for at in range(kind.num_fields)]
        if alike := _but_for_case([field.name for field in inner], fields):
            raise ExpressionError(f"SQL doesn't tell the fields {' and '.join(map(repr, alike))} apart; rename one of them")
        kinds += [field.type for field in inner]


def _but_for_case(names: Sequence[str], wanted: Container[str]) -> list[str]:
    """The names, two or more, that are one of those that are wanted but for case; empty if there are none."""
    by_fold: dict[str, list[str]] = {}
    for name in names:
        by_fold.setdefault(name.casefold(), []).append(name)
    return next((alike for fold, alike in by_fold.items() if fold in wanted and len(alike) > 1), [])


def _check_types(connection: DuckDBPyConnection, text: str, root: Node, what: str, family: str) -> None:
    """Bind the expression, compare the types of what it compares, and evaluate it once, on nulls."""
    connection.sql(f"select 1 from {_ROWS} where ({text}{_END}) is null")  # refuses whatever works on several rows
    relation = connection.sql(_select(text))
    if _FAMILY.get((kind := relation.types[0]).id, kind.id) != family:
        raise ExpressionError(f"it is {kind}, and a {what} must be {'BOOLEAN' if family == 'boolean' else 'a number'}")
    for node in _walk(root, into_lambdas=False):
        for operands, wanted in ((_alike(node), None), (_truths(node), "boolean")):
            _check_families(connection, operands, wanted)
    relation.fetchall()  # a text constant that can't be converted shows here


def _alike(node: Node) -> Sequence[Node]:
    """The parts of an expression that must be of one family of types."""
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


def _truths(node: Node) -> Sequence[Node]:
    """The parts of an expression that must be true or false."""
    match node["class"], node["type"]:
        case ("CONJUNCTION", _) | ("OPERATOR", "OPERATOR_NOT"):
            return list(node["children"])
        case "CASE", _:
            return [check["when_expr"] for check in node["case_checks"]]
    return []


def _check_families(connection: DuckDBPyConnection, operands: Sequence[Node], wanted: str | None) -> None:
    if not operands:
        return
    kinds = _relation(connection, operands).types
    families = {_FAMILY.get(kind.id, kind.id) for kind in kinds if kind.id != "null"} | ({wanted} if wanted else set())
    texts = [node for node, kind in zip(operands, kinds, strict=True) if _FAMILY.get(kind.id) == "text"]
    if families == {"moment", "text"} and all(node["class"] == "CONSTANT" for node in texts):
        return  # ts > '2026-01-01', the usual way to write it
    if len(families) > 1:
        written = [_written(connection, [node]) for node in operands]
        typed = ", ".join(f"{text} is {kind}" for text, kind in zip(written, kinds, strict=True))
        if wanted:
            raise ExpressionError(f"{typed}: what AND, OR, NOT and WHEN work on must be BOOLEAN")
        way_out = "decode(x) makes text of bytes" if "blob" in families else "try_cast(x as double) makes a number of text"
        raise ExpressionError(f"{typed}: only like can be compared with like; {way_out}")


def _relation(connection: DuckDBPyConnection, expressions: Sequence[Node]) -> DuckDBPyRelation:
    return connection.sql(f"select {_written(connection, expressions)} from {_ROWS}")


def _written(connection: DuckDBPyConnection, expressions: Sequence[Node]) -> str:
    document = _serialized(connection, "select true")
    document["statements"][0]["node"]["select_list"] = list(expressions)
    return _value(connection, "json_deserialize_sql($1)", json.dumps(document)).removeprefix("SELECT ")


def _walk(root: Node, into_lambdas: bool = True) -> Iterator[Node]:
    """All expressions in the tree. Inside a lambda are names that only it knows."""
    stack: list[Any] = [root]
    while stack:
        found = stack.pop()
        if isinstance(found, list):
            stack += found
        elif isinstance(found, dict):
            if "class" in found:
                yield found
            if into_lambdas or found.get("class") != "LAMBDA":
                stack += found.values()


def _names(root: Node) -> Iterator[str]:
    """Everything that may be a column's name: `a`, `rows.a`, `a.field`, and the first `a` of `a.lower()`."""
    for node in _walk(root):
        if node["class"] == "COLUMN_REF":
            yield from node["column_names"]
        elif node["class"] == "FUNCTION":
            yield from node["qualified_name"]["path"][:-1]


def _explained(connection: DuckDBPyConnection, text: str, problem: str, rows: pa.Table, what: str) -> str:
    """The whole message. What DuckDB says is its first line, without the name of the error."""
    problem = re.sub(r"^[A-Z][\w ]+ Error: ", "", problem).split("\n")[0]
    hint = []
    if missing := re.match(r'Referenced column "(.+)" not found', problem):
        problem = f"there is no column {missing[1]}"
        if f'"{missing[1]}"' in text:
            literal = missing[1].replace("'", "''")
            hint = [f"Text is written in single quotes: '{literal}' (what is in double quotes is a column's name)"]
    connection.register(_ROWS, rows)
    reserved = connection.execute("select keyword_name from duckdb_keywords() where keyword_category = 'reserved'")
    keywords = {name for (name,) in reserved.fetchall()}
    relation = connection.sql(f"from {_ROWS}")
    columns = zip(relation.columns, relation.types, strict=True)
    listed = (f"  {line}" for name, kind in columns for line in _listed(name, kind, keywords))
    return "\n".join([f"the {what} can't be used: {problem}", f"  {text}", *hint, "The columns are:", *listed])


def _listed(name: str, kind: Any, keywords: set[str]) -> Iterator[str]:
    plain = re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in keywords
    written = name if plain else '"' + name.replace('"', '""') + '"'
    if kind.id != "struct":
        yield f"{written}: {kind}"
        return
    for field, inner in kind.children:
        yield from (f"{written}.{line}" for line in _listed(field, inner, keywords))


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
