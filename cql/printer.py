"""The canonical text of a syntax tree: one spelling for each thing that CQL can say.

Error messages, explain, golden files and the names of unnamed columns show it. The law it keeps is
that printing and then parsing gives back an equal tree, for every tree that the grammar can yield.
There are as few parentheses as that allows, no line breaks, and no semicolon. It knows the shape of
the grammar (which word is reserved, what binds tighter) and nothing about what names mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, TypeVar

from cql import ast

N = TypeVar("N", bound=ast.Node)

# Words that the lexer takes for a keyword in some place where a name may stand (a test compares them with
# the parser's tables). All other words of the grammar, `range` and `rows` among them, need no quotes.
_RESERVED_WORDS = (
    "ALL|AND|AS|ASC|BETWEEN|CASE|CAST|CROSS|DESC|DISTINCT|DSTREAM|ELSE|END|ESCAPE|EXCEPT|EXISTS|EXTRACT|FALSE"
    "|FILTER|FROM|FULL|GROUP|HAVING|IN|INNER|INTERSECT|INTERVAL|INTO|IS|ISTREAM|JOIN|LEFT|LIKE|LIMIT|NOT|NULL"
    "|ON|OR|ORDER|OVER|RIGHT|RSTREAM|SELECT|TABLESAMPLE|THEN|TIMESTAMP|TRUE|UNION|WHEN|WHERE|WITH"
)
# These only where a query may begin with the name of an operand: first in a statement, and after EXPLAIN.
_STATEMENT_WORDS = "CREATE|DESCRIBE|DOT|DROP|EXPLAIN|JSON|MERMAID|QUERY|REGISTER|RULES|SET|SHOW|START|STOP|TRY"

# Matched as the lexer does it: ignoring case, `ſelect` is a keyword too.
RESERVED = re.compile(_RESERVED_WORDS, re.IGNORECASE)
RESERVED_FOR_INPUTS = re.compile(f"{_RESERVED_WORDS}|{_STATEMENT_WORDS}", re.IGNORECASE)


def to_text(node: ast.Node) -> str:
    """Return the canonical text of any syntax node.

    >>> from cql.parsing import parse_query
    >>> to_text(parse_query("select istream(a+1 b) from S x [range 10 sec] where not (a!=2)"))
    'ISTREAM(SELECT a + 1 AS b FROM S [RANGE 10 SECONDS] AS x WHERE NOT a <> 2)'
    """
    return _PRINTERS[type(node)](node)


_PRINTERS: dict[type[ast.Node], Callable[[Any], str]] = {}


def _prints(kind: type[N]) -> Callable[[Callable[[N], str]], Callable[[N], str]]:
    """Register a function as the printer of one class of nodes."""

    def register(function: Callable[[N], str]) -> Callable[[N], str]:
        _PRINTERS[kind] = function
        return function

    return register


# Helpers


def _join(nodes: Iterable[ast.Node]) -> str:
    return ", ".join([to_text(node) for node in nodes])


def _clauses(*parts: str) -> str:
    """Return the parts that there are, a space between them."""
    return " ".join(filter(None, parts))


def _clause(keyword: str, node: ast.Node | None) -> str:
    return f"{keyword} {to_text(node)}" if node is not None else ""


def _list_clause(keyword: str, nodes: tuple[ast.Node, ...]) -> str:
    return f"{keyword} {_join(nodes)}" if nodes else ""


def _in_brackets(nodes: tuple[ast.Node, ...]) -> str:
    return f"({_join(nodes)})" if nodes else ""


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


# Names

_PLAIN = re.compile(r"[^\W\d]\w*")
_PLAIN_KEY = re.compile(rf"{_PLAIN.pattern}(\.{_PLAIN.pattern})*")


@lru_cache(maxsize=4096)
def _identifier(text: str, reserved: re.Pattern[str] = RESERVED) -> str:
    is_plain = _PLAIN.fullmatch(text) and not reserved.fullmatch(text)
    return text if is_plain else _quoted(text, '"')


@_prints(ast.Name)
def _name(node: ast.Name) -> str:
    return _identifier(node.text)


def _dotted(qualifier: ast.Name | None, name: str) -> str:
    return f"{_identifier(qualifier.text)}.{name}" if qualifier else name


def _key(name: ast.Name) -> str:
    """Return the key of an option: words with dots, or a string."""
    return name.text if _PLAIN_KEY.fullmatch(name.text) else _quoted(name.text, "'")


# Expressions


class _Binding(IntEnum):
    """How tightly an expression holds together; what is looser than its place allows gets parentheses."""

    OR = 1
    AND = 2
    NOT = 3
    PREDICATE = 4
    SUM = 5
    PRODUCT = 6
    UNARY = 7
    PRIMARY = 8


_OPERATORS: dict[str, _Binding] = {
    "OR": _Binding.OR,
    "AND": _Binding.AND,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _Binding.PREDICATE),
    **dict.fromkeys(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"), _Binding.PREDICATE),
    **dict.fromkeys(("+", "-", "||"), _Binding.SUM),
    **dict.fromkeys(("*", "/", "%"), _Binding.PRODUCT),
}
_PREFIXES = {"NOT": _Binding.NOT, "-": _Binding.UNARY, "+": _Binding.UNARY}
_PREDICATES = (ast.Between, ast.InList, ast.InQuery, ast.Like, ast.IsNull)


def _binding(node: ast.Expression) -> _Binding:
    if isinstance(node, ast.Binary | ast.Logical):
        return _OPERATORS[node.operator]
    if isinstance(node, ast.Unary):
        return _PREFIXES[node.operator]
    return _Binding.PREDICATE if isinstance(node, _PREDICATES) else _Binding.PRIMARY


def _at_least(binding: _Binding, node: ast.Expression) -> str:
    """Return an expression for a place that takes what binds so tightly or tighter."""
    text = _PRINTERS[type(node)](node)
    return f"({text})" if _binding(node) < binding else text


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


@_prints(ast.Number)
def _number(node: ast.Number) -> str:
    return node.text


@_prints(ast.String)
def _string(node: ast.String) -> str:
    return _quoted(node.value, "'")


@_prints(ast.Boolean)
def _boolean(node: ast.Boolean) -> str:
    return "TRUE" if node.value else "FALSE"


@_prints(ast.Null)
def _null(node: ast.Null) -> str:
    return "NULL"


@_prints(ast.TimestampLiteral)
def _timestamp_literal(node: ast.TimestampLiteral) -> str:
    return "TIMESTAMP " + _quoted(node.text, "'")


@_prints(ast.IntervalLiteral)
def _interval_literal(node: ast.IntervalLiteral) -> str:
    return f"INTERVAL '{node.interval}'"


@_prints(ast.Column)
def _column(node: ast.Column) -> str:
    return _dotted(node.qualifier, _identifier(node.name.text))


@_prints(ast.Unary)
def _unary(node: ast.Unary) -> str:
    operand = _at_least(_PREFIXES[node.operator], node.operand)
    if node.operator == "NOT" or operand.startswith("-"):  # two dashes would start a comment
        return f"{node.operator} {operand}"
    return node.operator + operand


@_prints(ast.Binary)
def _binary(node: ast.Binary) -> str:
    binding = _OPERATORS[node.operator]
    tighter = _Binding(binding + 1)
    chains = binding is not _Binding.PREDICATE
    left = _at_least(binding if chains else tighter, node.left)
    return f"{left} {node.operator} {_at_least(tighter, node.right)}"


@_prints(ast.Logical)
def _logical(node: ast.Logical) -> str:
    tighter = _Binding(_OPERATORS[node.operator] + 1)
    return f" {node.operator} ".join([_at_least(tighter, operand) for operand in node.operands])


@_prints(ast.Between)
def _between(node: ast.Between) -> str:
    operand, low, high = (_at_least(_Binding.SUM, part) for part in (node.operand, node.low, node.high))
    return f"{operand} {_not(node.negated)}BETWEEN {low} AND {high}"


@_prints(ast.InList)
def _in_list(node: ast.InList) -> str:
    return f"{_at_least(_Binding.SUM, node.operand)} {_not(node.negated)}IN ({_join(node.items)})"


@_prints(ast.InQuery)
def _in_query(node: ast.InQuery) -> str:
    return f"{_at_least(_Binding.SUM, node.operand)} {_not(node.negated)}IN ({to_text(node.query)})"


@_prints(ast.Like)
def _like(node: ast.Like) -> str:
    operand = _at_least(_Binding.SUM, node.operand)
    escape = f" ESCAPE {_at_least(_Binding.SUM, node.escape)}" if node.escape else ""
    return f"{operand} {_not(node.negated)}LIKE {_at_least(_Binding.SUM, node.pattern)}{escape}"


@_prints(ast.IsNull)
def _is_null(node: ast.IsNull) -> str:
    return f"{_at_least(_Binding.SUM, node.operand)} IS {_not(node.negated)}NULL"


@_prints(ast.Exists)
def _exists(node: ast.Exists) -> str:
    return f"EXISTS ({to_text(node.query)})"


@_prints(ast.ScalarQuery)
def _scalar_query(node: ast.ScalarQuery) -> str:
    return f"({to_text(node.query)})"


@_prints(ast.Row)
def _row(node: ast.Row) -> str:
    return _in_brackets(node.items)


@_prints(ast.Case)
def _case(node: ast.Case) -> str:
    branches = [f"WHEN {to_text(when)} THEN {to_text(then)}" for when, then in node.branches]
    return _clauses(_clause("CASE", node.operand) or "CASE", *branches, _clause("ELSE", node.otherwise), "END")


@_prints(ast.Cast)
def _cast(node: ast.Cast) -> str:
    return f"CAST({to_text(node.operand)} AS {to_text(node.target)})"


@_prints(ast.TypeName)
def _type_name(node: ast.TypeName) -> str:
    parameters = ", ".join(map(str, node.parameters))
    return f"{node.word}({parameters})" if parameters else node.word


@_prints(ast.Extract)
def _extract(node: ast.Extract) -> str:
    return f"EXTRACT({to_text(node.field)} FROM {to_text(node.operand)})"


@_prints(ast.Call)
def _call(node: ast.Call) -> str:
    arguments = _clauses("DISTINCT" if node.distinct else "", _join(node.arguments))
    condition = f" FILTER (WHERE {to_text(node.filter)})" if node.filter else ""
    return f"{to_text(node.function)}({arguments}){condition}"


@_prints(ast.WindowCall)
def _window_call(node: ast.WindowCall) -> str:
    over = _clauses(_list_clause("PARTITION BY", node.partition), _list_clause("ORDER BY", node.order))
    return f"{to_text(node.call)} OVER ({over})"


@_prints(ast.SortKey)
def _sort_key(node: ast.SortKey) -> str:
    nulls = {None: "", True: "NULLS FIRST", False: "NULLS LAST"}[node.nulls_first]
    return _clauses(to_text(node.expression), "DESC" if node.descending else "", nulls)


# Windows

_PLAIN_AMOUNT = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


def _duration(node: ast.IntervalLiteral) -> str:
    """Return a length of time without the word INTERVAL, if it is a plain number of one unit."""
    parts = node.interval.parts
    is_plain = len(parts) == 1 and _PLAIN_AMOUNT.fullmatch(parts[0][0])
    return str(node.interval) if is_plain else _interval_literal(node)


@_prints(ast.RangeWindow)
def _range_window(node: ast.RangeWindow) -> str:
    duration = _duration(node.duration) if node.duration else "UNBOUNDED"
    return f"[RANGE {duration} SLIDE {_duration(node.slide)}]" if node.slide else f"[RANGE {duration}]"


@_prints(ast.NowWindow)
def _now_window(node: ast.NowWindow) -> str:
    return "[NOW]"


@_prints(ast.RowsWindow)
def _rows_window(node: ast.RowsWindow) -> str:
    return "[ROWS UNBOUNDED]" if node.count is None else f"[ROWS {node.count}]"


@_prints(ast.PartitionWindow)
def _partition_window(node: ast.PartitionWindow) -> str:
    columns = ", ".join([_dotted(qualifier, _name(name)) for qualifier, name in node.columns])
    limit = f" RANGE {_duration(node.duration)}" if node.duration else ""
    return f"[PARTITION BY {columns} ROWS {node.count}{limit}]"


# Inputs


def _input(what: str, window: ast.Window | None, alias: ast.Name | None) -> str:
    return _clauses(what, to_text(window) if window else "", _clause("AS", alias))


@_prints(ast.NamedInput)
def _named_input(node: ast.NamedInput) -> str:
    return _input(_identifier(node.name.text, RESERVED_FOR_INPUTS), node.window, node.alias)


@_prints(ast.SubqueryInput)
def _subquery_input(node: ast.SubqueryInput) -> str:
    text = to_text(node.query)
    is_closed = isinstance(node.query, ast.RelToStream)
    return _input(text if is_closed else f"({text})", node.window, node.alias)


@_prints(ast.SampledInput)
def _sampled_input(node: ast.SampledInput) -> str:
    return f"{to_text(node.input)} TABLESAMPLE ({to_text(node.percent)} PERCENT)"


@_prints(ast.Join)
def _join_of_inputs(node: ast.Join) -> str:
    """Return a join; joins associate to the left, so only one on the right needs parentheses."""
    right = to_text(node.right)
    if isinstance(node.right, ast.Join):
        right = f"({right})"
    condition = f" ON {to_text(node.condition)}" if node.condition else ""
    return f"{to_text(node.left)} {node.kind.value} {right}{condition}"


# Queries


class _QueryBinding(IntEnum):
    """How tightly a query holds together."""

    CLAUSES = 1
    UNION = 2
    INTERSECT = 3
    OPERAND = 4


_QUERY_BINDINGS: dict[type[ast.Query], _QueryBinding] = {
    ast.With: _QueryBinding.CLAUSES,
    ast.TopN: _QueryBinding.CLAUSES,
    ast.Select: _QueryBinding.OPERAND,
    ast.RelToStream: _QueryBinding.OPERAND,
    ast.NamedInput: _QueryBinding.OPERAND,
}


def _query_binding(node: ast.Query) -> _QueryBinding:
    if isinstance(node, ast.SetOperation):
        return _QueryBinding.INTERSECT if node.kind is ast.SetKind.INTERSECT else _QueryBinding.UNION
    return _QUERY_BINDINGS[type(node)]


def _query_at_least(binding: _QueryBinding, node: ast.Query) -> str:
    text = _PRINTERS[type(node)](node)
    return f"({text})" if _query_binding(node) < binding else text


@_prints(ast.Select)
def _select(node: ast.Select) -> str:
    return _clauses(
        "SELECT DISTINCT" if node.distinct else "SELECT",
        _join(node.items),
        _list_clause("FROM", node.inputs),
        _clause("WHERE", node.where),
        _list_clause("GROUP BY", node.group_by),
        _clause("HAVING", node.having),
    )


@_prints(ast.SelectItem)
def _select_item(node: ast.SelectItem) -> str:
    return _clauses(to_text(node.expression), _clause("AS", node.alias))


@_prints(ast.Star)
def _star(node: ast.Star) -> str:
    return _dotted(node.qualifier, "*")


@_prints(ast.SetOperation)
def _set_operation(node: ast.SetOperation) -> str:
    binding = _query_binding(node)
    left = _query_at_least(binding, node.left)
    right = _query_at_least(_QueryBinding(binding + 1), node.right)
    return f"{left} {node.kind.value}{' ALL' if node.all else ''} {right}"


@_prints(ast.RelToStream)
def _rel_to_stream(node: ast.RelToStream) -> str:
    return f"{node.kind.value}({to_text(node.query)})"


@_prints(ast.TopN)
def _top_n(node: ast.TopN) -> str:
    return _clauses(
        _query_at_least(_QueryBinding.UNION, node.query),
        _list_clause("ORDER BY", node.keys),
        "" if node.limit is None else f"LIMIT {node.limit}",
    )


@_prints(ast.With)
def _with(node: ast.With) -> str:
    body = to_text(node.query)
    if isinstance(node.query, ast.With):
        body = f"({body})"
    return f"WITH {_join(node.definitions)} {body}"


@_prints(ast.Cte)
def _cte(node: ast.Cte) -> str:
    return f"{_clauses(to_text(node.name), _in_brackets(node.columns))} AS ({to_text(node.query)})"


# Statements


def _timestamp_by(timestamp: ast.Name | None) -> str:
    return _clause("TIMESTAMP BY", timestamp)


def _options(options: tuple[ast.Option, ...]) -> str:
    pairs = ", ".join([f"{_key(option.key)} {to_text(option.value)}" for option in options])
    return f"OPTIONS ({pairs})" if options else ""


@_prints(ast.ColumnDef)
def _column_def(node: ast.ColumnDef) -> str:
    return _clauses(to_text(node.name), to_text(node.type), "NOT NULL" if node.not_null else "")


@_prints(ast.Option)
def _option(node: ast.Option) -> str:
    return f"{_key(node.key)} = {to_text(node.value)}"


@_prints(ast.SourceSpec)
def _source(node: ast.SourceSpec) -> str:
    inferred = "SCHEMA INFERRED" if node.inferred else ""
    return _clauses("FROM", to_text(node.format), inferred, _options(node.options))


@_prints(ast.SinkSpec)
def _sink(node: ast.SinkSpec) -> str:
    return _clauses("INTO", to_text(node.format), _options(node.options))


def _optional(node: ast.Node | None) -> str:
    return to_text(node) if node is not None else ""


@_prints(ast.CreateStream)
def _create_stream(node: ast.CreateStream) -> str:
    return _clauses(
        f"CREATE STREAM {to_text(node.name)}",
        _in_brackets(node.columns),
        _timestamp_by(node.timestamp),
        f"DELAY {_duration(node.delay)}" if node.delay else "",
        _optional(node.source),
    )


@_prints(ast.CreateRelation)
def _create_relation(node: ast.CreateRelation) -> str:
    return _clauses(
        f"CREATE RELATION {to_text(node.name)}",
        _in_brackets(node.columns),
        _timestamp_by(node.timestamp),
        _clause("SIGN BY", node.sign),
        _optional(node.source),
    )


@_prints(ast.RegisterTable)
def _register_table(node: ast.RegisterTable) -> str:
    head = f"REGISTER {node.kind.value} {to_text(node.name)}"
    return _clauses(head, _in_brackets(node.columns), _optional(node.source))


@_prints(ast.CreateView)
def _create_view(node: ast.CreateView) -> str:
    """Return the view; what a STREAM script declares about its result has no words in CQL."""
    name = _clauses(to_text(node.name), _in_brackets(node.columns))
    return f"CREATE VIEW {name} AS {to_text(node.query)}"


@_prints(ast.RegisterQuery)
def _register_query(node: ast.RegisterQuery) -> str:
    return _clauses(
        f"REGISTER QUERY {to_text(node.name)} AS {to_text(node.query)}",
        f"WITH ({_join(node.options)})" if node.options else "",
        _optional(node.sink),
    )


@_prints(ast.QueryStatement)
def _query_statement(node: ast.QueryStatement) -> str:
    return to_text(node.query)


@_prints(ast.Try)
def _try(node: ast.Try) -> str:
    return f"TRY {to_text(node.query)}"


@_prints(ast.Drop)
def _drop(node: ast.Drop) -> str:
    return f"DROP {node.kind.value} {to_text(node.name)}"


@_prints(ast.Explain)
def _explain(node: ast.Explain) -> str:
    form = "" if node.form == "TEXT" else node.form
    if node.target is None:
        return _clauses("EXPLAIN", form, "ALL")
    what = "QUERY" if isinstance(node.target, ast.Name) else ""
    return _clauses("EXPLAIN", form, what, to_text(node.target))


@_prints(ast.Show)
def _show(node: ast.Show) -> str:
    return f"SHOW {_identifier(node.what)}"


@_prints(ast.Describe)
def _describe(node: ast.Describe) -> str:
    return f"DESCRIBE {to_text(node.name)}"


@_prints(ast.SetSetting)
def _set_setting(node: ast.SetSetting) -> str:
    return f"SET {_key(node.key)} = {to_text(node.value)}"


@_prints(ast.Start)
def _start(node: ast.Start) -> str:
    return "START"


@_prints(ast.Stop)
def _stop(node: ast.Stop) -> str:
    return "STOP"
