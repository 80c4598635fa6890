"""Random expressions, conditions and aggregates of CQL as text, typed by the kind of their values.

A kind is `int`, `dbl`, `dec`, `str`, `bool` or `time`. `Leaf`s are what expressions start from: columns, keys of
groups, aggregates. Subqueries come from whoever makes queries (`Subqueries`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")

NUMBERS = ("int", "dbl", "dec")

LITERALS = {
    "int": ("0", "1", "1", "2", "2", "3"),
    "dbl": ("0.5e0", "1e0", "2e0", "-1.5e0"),
    "dec": ("0.5", "1.5", "2.0", "1.25"),
    "str": ("'a'", "'b'", "'ab'", "''"),
    "bool": ("TRUE", "FALSE"),
    "time": ("TIMESTAMP '2026-01-01 00:00:02'", "TIMESTAMP '2026-01-01T00:00:03.5Z'", "TIMESTAMP '1970-01-01'"),
}
ODD_LITERALS = {"int": ("-1", "10", "2147483647", "3000000000"), "str": ("'a%'", "'it''s'", "'ä'")}
SPANS = ("INTERVAL '1' SECOND", "INTERVAL '1 second 500 ms'", "INTERVAL 2 SECONDS")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that expressions start from: how to write it here, and how inside a subquery if that is possible.

    `dull` ones hold instants, which seldom equal anything else.
    """

    text: str
    kind: str
    inside: str | None = None
    dull: bool = False


class Subqueries(Protocol):
    """Makes queries inside expressions. They may refer to the leaves around them; None: no more queries."""

    def value_query(self, kind: str, around: Sequence[Leaf]) -> str | None: ...

    def condition_query(self, around: Sequence[Leaf]) -> str | None: ...


def weighted(rng: Random, choices: Sequence[tuple[float, T]]) -> T:
    """Return one of some choices, each given with its weight."""
    total = sum(weight for weight, _ in choices)
    at = rng.random() * total
    for weight, choice in choices:
        at -= weight
        if at < 0:
            return choice
    return choices[-1][1]


@dataclass(slots=True)
class Expressions:
    """Makes expressions; `depth` is how deep they may nest."""

    rng: Random
    features: frozenset[str]
    subqueries: Subqueries

    # Values

    def value(self, kind: str, leaves: Sequence[Leaf], depth: int = 1, queries: bool = False) -> str:
        """Return an expression of a kind; with `queries` it may contain subqueries."""
        rng = self.rng
        own = [leaf for leaf in leaves if leaf.kind == kind]
        plain = "expressions" not in self.features
        if own and (plain or depth <= 0 or rng.random() < 0.55):
            return self.leaf(own).text
        if depth <= 0 or plain or rng.random() < 0.12:
            return self.literal(kind)
        if queries and rng.random() < 0.12:
            query = self.subqueries.value_query(kind, leaves)
            if query is not None:
                return query
        if rng.random() < 0.2:
            return self._of_any_kind(kind, leaves, depth - 1)
        return _MAKERS[kind](self, leaves, depth - 1)

    def leaf(self, leaves: Sequence[Leaf]) -> Leaf:
        """Return one of some leaves, seldom a dull one."""
        return weighted(self.rng, [(0.15 if leaf.dull else 1.0, leaf) for leaf in leaves])

    def literal(self, kind: str) -> str:
        """Return a constant; now and then an odd one."""
        roll = self.rng.random()
        if roll < 0.015 and "expressions" in self.features:
            return "NULL"
        if roll < 0.04 and kind in ODD_LITERALS:
            return self.rng.choice(ODD_LITERALS[kind])
        return self.rng.choice(LITERALS[kind])

    def _operand(self, kind: str, leaves: Sequence[Leaf], depth: int) -> str:
        text = self.value(kind, leaves, depth)
        return f"({text})" if not text.isalnum() and not text.startswith("(") else text

    def _of_any_kind(self, kind: str, leaves: Sequence[Leaf], depth: int) -> str:
        """Return what exists for every kind: CASE, COALESCE, NULLIF, LEAST and GREATEST."""
        rng = self.rng
        a, b = self.value(kind, leaves, depth), self.value(kind, leaves, depth)
        if "case" in self.features and rng.random() < 0.5:
            if rng.random() < 0.3:
                simple = self.value("int", leaves, 0)
                return f"CASE {simple} WHEN {self.literal('int')} THEN {a} ELSE {b} END"
            otherwise = f" ELSE {b}" if rng.random() < 0.75 else ""
            more = f" WHEN {self.condition(leaves, 0)} THEN {b}" if rng.random() < 0.2 else ""
            return f"CASE WHEN {self.condition(leaves, depth)} THEN {a}{more}{otherwise} END"
        if "functions" not in self.features or kind == "bool":
            return a
        name = rng.choice(("coalesce", "coalesce", "nullif", "least", "greatest"))
        return f"{name}({a}, {b})"

    def _integer(self, leaves: Sequence[Leaf], depth: int) -> str:
        rng = self.rng
        a = self._operand("int", leaves, depth)
        forms: list[Callable[[], str]] = [
            lambda: f"{a} + {self._operand('int', leaves, depth)}",
            lambda: f"{a} - {self._operand('int', leaves, depth)}",
            lambda: f"{a} * {self._operand('int', leaves, 0)}",
            lambda: f"{a} % {rng.choice((2, 2, 3, 0))}",
            lambda: f"{a} / {rng.choice((2, 2, 3, 0))}",
            lambda: f"-{a}" if a.isalpha() else f"-({a})",
        ]
        if "functions" in self.features:
            forms += [
                lambda: f"abs({a})",
                lambda: f"mod({a}, 2)",
                lambda: f"length({self.value('str', leaves, depth)})",
                lambda: f"overlap({self.value('str', leaves, depth)}, {self.value('str', leaves, depth)})",
                lambda: f"CAST({self.value('dbl', leaves, depth)} AS INT)",
                lambda: f"CAST({self.value('str', leaves, depth)} AS INT)",
                lambda: f"{rng.choice(('floor', 'ceil'))}({self.value('dbl', leaves, depth)})",
                lambda: f"CAST({self.condition(leaves, 0)} AS INT)",
                lambda: f"CAST({a} AS {rng.choice(('BIGINT', 'BYTE', 'INT'))})",
            ]
            if any(leaf.kind == "time" for leaf in leaves):
                time = self.value("time", leaves, 0)
                forms += 3 * [lambda: f"EXTRACT(MINUTE FROM {time})", lambda: f"epoch({time})"]
        return rng.choice(forms)()

    def _double(self, leaves: Sequence[Leaf], depth: int) -> str:
        rng = self.rng
        a = self._operand("dbl", leaves, depth)
        number = self._operand(rng.choice(("int", "dbl")), leaves, depth)
        forms = [f"{a} + {number}", f"{a} * {number}", f"{a} - {number}", f"{a} / {number}", f"-({a})"]
        if "functions" in self.features:
            forms += [f"CAST({number} AS DOUBLE)", f"sqrt({number})", f"abs({a})", f"round({a})"]
            forms += [f"inner_product({self.value('str', leaves, depth)}, {self.value('str', leaves, depth)})"]
            if "inexact" in self.features and rng.random() < 0.3:
                forms += [f"ln({number})", f"exp({a})", f"power({a}, 2)", f"round({a}, 1)"]
        return rng.choice(forms)

    def _decimal(self, leaves: Sequence[Leaf], depth: int) -> str:
        if "decimal" not in self.features:
            return self.literal("dec")
        number = self._operand("int", leaves, depth)
        forms = [f"{number} * 0.5", f"{number} + 1.5", f"CAST({number} AS DECIMAL(10,2))", f"{number} / 0.5"]
        forms += [f"round(CAST({self.value('dbl', leaves, depth)} AS DECIMAL(12,4)), 1)"]
        return self.rng.choice(forms)

    def _string(self, leaves: Sequence[Leaf], depth: int) -> str:
        rng = self.rng
        a = self.value("str", leaves, depth)
        if "functions" not in self.features:
            return a
        forms = [
            f"{self._operand('str', leaves, depth)} || {self._operand('str', leaves, depth)}",
            f"upper({a})",
            f"substr({a}, 1, 1)",
            f"substr({a}, {rng.choice((2, -1))})",
            f"CAST({self.value(rng.choice(('int', 'str', 'bool')), leaves, depth)} AS STRING)",
            f"replace({a}, 'a', 'b')",
            f"concat({a}, '-', {self.value('str', leaves, 0)})",
            f"lower(trim({a}))",
            f"split_part({a}, 'a', {rng.choice((1, 2, -1))})",
        ]
        return rng.choice(forms)

    def _time(self, leaves: Sequence[Leaf], depth: int) -> str:
        a = self.value("time", leaves, 0)
        forms = [f"{a} + {self.rng.choice(SPANS)}", f"{a} - {self.rng.choice(SPANS)}", f"date_trunc('second', {a})"]
        return self.rng.choice(forms)

    def _boolean(self, leaves: Sequence[Leaf], depth: int) -> str:
        return f"({self.condition(leaves, depth)})"

    # Conditions

    def condition(self, leaves: Sequence[Leaf], depth: int = 1, queries: bool = False) -> str:
        """Return a condition over some leaves; with `queries` it may contain subqueries."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            return self._composed(leaves, depth, queries)
        if queries and rng.random() < 0.25:
            found = self.subqueries.condition_query(leaves)
            if found is not None:
                return found
        roll = rng.random()
        if not leaves or roll < 0.02:
            return rng.choice(("1 = 1", "TRUE", "FALSE", "NULL", "2 > 3", "NULL = 1", "NOT FALSE"))
        a = self.leaf(leaves)
        if a.kind == "bool":
            return rng.choice((a.text, f"NOT {a.text}", f"{a.text} IS NULL", f"{a.text} = TRUE"))
        if "expressions" not in self.features or roll < 0.55:
            return self._comparison(a, leaves, depth, queries)
        if roll < 0.66:
            return f"{a.text} IS {rng.choice(('', 'NOT ', 'NOT '))}NULL"
        if roll < 0.76:
            items = [self.literal(a.kind) for _ in range(rng.choice((1, 2, 3, 3)))]
            if rng.random() < 0.2:
                items.append(self.value(a.kind, leaves, 0))
            return f"{a.text} {rng.choice(('', '', 'NOT '))}IN ({', '.join(items)})"
        if roll < 0.83:
            low, high = self.literal(a.kind), self.value(a.kind, leaves, 0)
            return f"{a.text} {rng.choice(('', '', 'NOT '))}BETWEEN {low} AND {high}"
        if roll < 0.90:
            negation = rng.choice(("", "NOT "))
            return f"{a.text} IS {negation}DISTINCT FROM {self.value(a.kind, leaves, 0)}"
        if roll < 0.96 and a.kind == "str":
            if rng.random() < 0.2 and "functions" in self.features:
                return f"regexp_like({a.text}, '^a')"
            pattern = rng.choice(("'a%'", "'%b'", "'_'", "'%'", "'a\\%' ESCAPE '\\'"))
            return f"{a.text} {rng.choice(('', '', 'NOT '))}LIKE {pattern}"
        return self._comparison(a, leaves, depth, queries)

    def _composed(self, leaves: Sequence[Leaf], depth: int, queries: bool) -> str:
        rng = self.rng
        inner = queries and "or_subquery" in self.features
        roll = rng.random()
        if roll < 0.2:
            return f"NOT ({self.condition(leaves, depth - 1, inner)})"
        if roll < 0.6:
            return f"{self._nested(leaves, depth, queries)} AND {self._nested(leaves, depth, queries)}"
        parts = [self._nested(leaves, depth, inner) for _ in range(2 if rng.random() < 0.85 else 3)]
        if rng.random() < 0.15:
            parts = [f"({parts[0]} AND {part})" for part in parts[1:]] + [f"({parts[0]} AND {parts[-1]})"]
        return f"({' OR '.join(parts)})"

    def _nested(self, leaves: Sequence[Leaf], depth: int, queries: bool) -> str:
        text = self.condition(leaves, depth - 1, queries)
        return text if text.startswith("(") and text.endswith(")") and text.count("(") == 1 else f"({text})"

    def _comparison(self, a: Leaf, leaves: Sequence[Leaf], depth: int, queries: bool = False) -> str:
        rng = self.rng
        roll = rng.random()
        left, kind = a.text, a.kind
        if depth > 0 and roll < 0.2:
            left = self.value(kind, leaves, depth)
        others = [leaf for leaf in leaves if alike(leaf.kind, kind) and leaf is not a]
        if kind == "time" and others and roll > 0.9 and all(other.kind == "time" for other in others):
            return f"{left} - {self.leaf(others).text} {rng.choice(('<', '>='))} {rng.choice(SPANS)}"
        if others and roll < 0.35:
            right = self.leaf(others).text
        elif queries and roll < 0.5:
            right = self.value(kind, leaves, 1, queries)
        else:
            right = self.literal(kind)
        operator = rng.choice((">", ">", ">=", ">=", "<", "<=", "<=", "<>", "<>", "="))
        return f"{right} {operator} {left}" if roll > 0.93 else f"{left} {operator} {right}"

    def equality(self, left: Sequence[Leaf], right: Sequence[Leaf]) -> str | None:
        """Return an equality between two inputs, mostly of columns that go together well."""
        pairs = [(_fit(a, b), (a, b)) for a in left for b in right if alike(a.kind, b.kind)]
        if not pairs:
            return None
        a, b = weighted(self.rng, pairs)
        roll = self.rng.random()
        if "expressions" in self.features and a.kind == "int" and roll < 0.08:
            return f"{a.text} + 1 = {b.text}"
        if {"expressions", "functions"} <= self.features and roll < 0.12 and a.kind == b.kind:
            return f"coalesce({a.text}, {self.rng.choice(LITERALS[a.kind])}) = {b.text}"
        return f"{a.text} = {b.text}" if roll < 0.6 else f"{b.text} = {a.text}"

    # Aggregates

    def aggregate(self, leaves: Sequence[Leaf], stamped: bool) -> Leaf:
        """Return an aggregate over rows of some leaves; `stamped` says that FIRST and LAST can be used."""
        rng = self.rng
        numbers = [leaf for leaf in leaves if leaf.kind in NUMBERS]
        anything = [leaf for leaf in leaves if leaf.kind != "bool"] or list(leaves)
        roll = rng.random()
        if roll < 0.26 or not anything:
            text, kind = "COUNT(*)", "int"
        elif roll < 0.60 and numbers:
            name = weighted(rng, [(5, "SUM"), (3, "AVG"), (2, "MIN"), (2, "MAX")])
            argument = self.leaf(numbers)
            written, kind = argument.text, argument.kind
            if rng.random() < 0.15 and "expressions" in self.features:
                written = self.value(kind, leaves, 1)
            if name == "AVG" and kind != "dec":
                kind = "dbl"
            distinct = "DISTINCT " if "distinct_aggregate" in self.features and rng.random() < 0.15 else ""
            text = f"{name}({distinct}{written})"
        elif roll < 0.70:
            distinct = "DISTINCT " if "distinct_aggregate" in self.features and rng.random() < 0.5 else ""
            text, kind = f"COUNT({distinct}{self.leaf(anything).text})", "int"
        elif roll < 0.84:
            argument = self.leaf(anything)
            text, kind = f"{rng.choice(('MIN', 'MAX'))}({argument.text})", argument.kind
        elif roll < 0.90 or "inexact" not in self.features:
            argument, by = self.leaf(anything), self.leaf(anything)
            text, kind = f"{rng.choice(('arg_min', 'arg_max'))}({argument.text}, {by.text})", argument.kind
            if stamped and rng.random() < 0.5:
                text = f"{rng.choice(('FIRST', 'LAST'))}({argument.text})"
        elif numbers and rng.random() < 0.7:
            text, kind = f"{rng.choice(('stddev', 'variance'))}({self.leaf(numbers).text})", "dbl"
        else:
            text, kind = f"approx_count_distinct({self.leaf(anything).text})", "int"
        if "filter" in self.features and rng.random() < 0.15:
            text += f" FILTER (WHERE {self.condition(leaves, 0)})"
        return Leaf(text, kind)


def alike(a: str, b: str) -> bool:
    """Tell whether values of two kinds can be compared."""
    return a == b or (a in NUMBERS and b in NUMBERS)


def _fit(a: Leaf, b: Leaf) -> float:
    """Return how likely two columns should meet in an equality."""
    if a.dull or b.dull:
        return 0.3 if a.dull and b.dull else 0.05
    if a.kind != b.kind:
        return 0.1
    a_name, b_name = a.text.rpartition(".")[2], b.text.rpartition(".")[2]
    if a_name == b_name:
        return 6.0 if a_name == "k" else 1.0
    return 0.5


_MAKERS: dict[str, Callable[[Expressions, Sequence[Leaf], int], str]] = {
    "int": Expressions._integer,
    "dbl": Expressions._double,
    "dec": Expressions._decimal,
    "str": Expressions._string,
    "time": Expressions._time,
    "bool": Expressions._boolean,
}
