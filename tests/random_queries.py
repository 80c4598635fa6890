"""Random CQL queries as text. With `tests/random_data.py` they make the cases of property tests.

Tests of the rules, the planner, the engine and the Spark runtime draw their cases here. Everything comes from a
`random.Random`, so a seed is a case. The generator knows the types of what it writes, so a query binds; what the
planner refuses all the same is counted by the tests and has to stay rare.

    case = random_case(random.Random(7))
    tree = cql.bind(case.query, case.catalog)
    result = evaluate(tree, case.data)

A query is small (one to three inputs) and mostly has a result. `size` is how many inputs it may have, `features`
what it may contain (see `FEATURES`): an engine that lacks something leaves its feature out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from cql import Catalog
from tests.random_data import Data, minimise, random_data, report
from tests.random_expressions import Expressions, Leaf, alike, weighted
from tests.random_tables import (
    CATALOG,
    INTEGER_LENGTHS,
    SETTINGS,
    TIME_LENGTHS,
    Column,
    Lengths,
    Table,
    Tables,
    catalog,
    own_tables,
    tables_of,
)

__all__ = [
    "CATALOG",
    "FEATURES",
    "SETTINGS",
    "Case",
    "Data",
    "catalog",
    "first_seed",
    "minimise",
    "random_case",
    "random_data",
    "random_query",
    "report",
    "tables_of",
]

FEATURES = frozenset({
    "aggregate", "case", "correlated", "cte", "decimal", "distinct", "distinct_aggregate", "dstream", "exists",
    "expressions", "filter", "functions", "having", "in", "inexact", "istream", "join", "nested_stream",
    "non_equi_correlation", "now", "or_subquery", "outer_join", "partition", "relation", "row_number", "rows",
    "rstream", "sample", "scalar", "select_subquery", "self_join", "set", "slide", "static", "subquery", "time",
    "top_n", "unbounded", "view",
})  # fmt: skip
"""What queries may contain. `inexact` are functions whose last digit depends on who computes them; `time` is
TIMESTAMP time; `expressions` is everything beyond columns, constants and comparisons."""


def first_seed() -> int:
    """Return the seed that tests start from: 0, or CQL_SEED, so that long runs can go where none has been."""
    return int(os.environ.get("CQL_SEED") or 0)


@dataclass(frozen=True, slots=True)
class Case:
    """A query, the catalog (with its settings) to bind it against, and elements for its inputs."""

    query: str
    catalog: Catalog
    data: Data


def random_case(
    rng: Random, size: int = 3, features: Iterable[str] = FEATURES, most: int = 10, odd_values: bool = True
) -> Case:
    """Return a query with data for it: at most about `size` inputs of at most `most` elements each."""
    query = random_query(rng, size, features)
    known = catalog() if rng.random() < 0.75 else catalog(rng.choice(SETTINGS))
    return Case(query, known, random_data(rng, known, tables_of(query, known), most, odd_values))


def random_query(rng: Random, size: int = 3, features: Iterable[str] = FEATURES, over: Tables | None = None) -> str:
    """Return a query with at most about `size` inputs, over `CATALOG` or other tables."""
    return _Queries(rng, frozenset(features), over or own_tables(), size).whole()


# --------------------------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Made:
    """A query: text, columns, whether it is a stream, and whether it needs parentheses inside a set operation."""

    text: str
    columns: tuple[Column, ...] = ()
    is_stream: bool = False
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """An item of FROM; `condition` belongs into WHERE."""

    text: str
    alias: str | None
    columns: tuple[Column, ...]
    stamped: bool = False
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class From:
    """A FROM clause: its text, what its rows consist of, and the conditions that belong into WHERE."""

    text: str
    leaves: tuple[Leaf, ...]
    conditions: tuple[str, ...]
    stamped: bool
    aliases: tuple[str, ...]


@dataclass(slots=True)
class _Queries:
    """Makes one query. `budget` is how many more inputs it may have."""

    rng: Random
    features: frozenset[str]
    known: Tables
    budget: int
    local: list[Table] = field(default_factory=list)
    mood: str = "any"
    tables: Sequence[Table] = ()
    lengths: Lengths = INTEGER_LENGTHS
    made_names: int = 0
    taken: set[str] = field(default_factory=set)
    timed: bool = False
    depth: int = 0
    expressions: Expressions = field(init=False)

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.rng, self.features, self)
        self.budget = weighted(self.rng, [(45, 1), (38, 2), (22, 3), (6, 4), (3, 5)][: max(1, self.budget)])
        on_time = "time" in self.features and bool(self.known.time) and self.chance(0.2)
        chosen = self.known.time if on_time else self.known.integer
        self.tables = [t for t in chosen if not t.feature or t.feature in self.features]
        self.lengths = TIME_LENGTHS if on_time else INTEGER_LENGTHS
        # Queries of a kind that rules look for would be rare if all choices were independent.
        moods = [(70.0, "any"), (10.0, "unbounded")]
        if {"now", "rstream"} <= self.features:
            moods.append((10.0, "now"))
        if "join" in self.features and self.budget >= 3:
            moods.append((45.0, "star"))
        self.mood = weighted(self.rng, moods)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def may(self, feature: str, probability: float) -> bool:
        """Tell whether to use a feature here."""
        return feature in self.features and self.rng.random() < probability

    def name(self, prefix: str) -> str:
        self.made_names += 1
        return f"{prefix}{self.made_names}"

    # Whole queries

    def whole(self) -> str:
        """Return a query for a user to register: perhaps local views, perhaps a stream."""
        prefix = self._local_views() if self.budget > 1 and self.may("cte", 0.1) else ""
        kind = self._stream_kind()
        return prefix + (self.query() if kind is None else self.stream(kind)).text

    def _stream_kind(self) -> str | None:
        if self.mood == "now" and self.chance(0.8):
            return "Rstream"
        kinds = [(45.0, ""), (20.0, "Istream"), (12.0, "Dstream"), (18.0, "Rstream")]
        return weighted(self.rng, [(w, k) for w, k in kinds if not k or k.lower() in self.features]) or None

    def _local_views(self) -> str:
        definitions = []
        for _ in range(1 if self.chance(0.8) else 2):
            if not self.budget:
                break
            self.budget -= 1
            budget, self.budget = self.budget, min(self.budget, 1) + 1
            self.timed = False
            made = self.stream(self._some_kind()) if self.chance(0.3) else self.query(named=True)
            self.budget = budget
            name, columns, listed = self.name("q"), made.columns, ""
            text = made.text if self.timed else made.text.replace("Rstream", self._other_kind)
            if self.chance(0.3):
                columns = tuple(Column(self.name("c"), c.kind, c.dull) for c in columns)
                listed = f" ({', '.join(c.name for c in columns)})"
            definitions.append(f"{name}{listed} AS ({text})")
            self.local.append(Table(name, columns, made.is_stream, "" if self.timed else "static"))
        self.budget += 1
        return f"WITH {', '.join(definitions)} "

    def _some_kind(self) -> str:
        kinds = [kind for kind in ("Istream", "Dstream", "Rstream") if kind.lower() in self.features]
        return self.rng.choice(kinds or [self._other_kind])

    @property
    def _other_kind(self) -> str:
        """What to write for an Rstream over what never changes: it would speak at every tick of the clock."""
        return "Istream" if "istream" in self.features else "Dstream"

    def stream(self, kind: str) -> Made:
        """Return a query under a relation-to-stream operator, which may stand in the select list."""
        if self.chance(0.5):
            return self.block(named=True, stream=kind)
        made = self.query(named=True)
        return Made(f"{kind}({made.text})", made.columns, True)

    def query(self, kinds: Sequence[str] | None = None, named: bool = False) -> Made:
        """Return a query that yields a relation; `kinds` says of which columns, `named` that all have names."""
        if self.budget > 1 and self.mood != "star" and self.may("set", 0.22):
            return self._set_operation(kinds)
        if kinds is None and self.may("top_n", 0.02):
            return self._top_of_top()
        return self.block(kinds, named)

    def _top_of_top(self) -> Made:
        """Return the first of the first rows of a table, by the same keys or by others."""
        table = self.rng.choice([t for t in self.tables if t.is_stream] or self.tables)
        source = self._named(table)
        self.budget -= 1
        leaves = self._leaves(source, bare=True)
        inner = self._top_n(leaves, 0, False, self.rng.randint(1, 4))
        outer = self._top_n(leaves, 0, False, self.rng.randint(1, 4))
        if self.chance(0.6):
            outer = inner.rpartition(" ")[0] + f" {self.rng.randint(1, 4)}"
        text = f"SELECT * FROM (SELECT * FROM {source.text}{inner}) AS {self.name('x')}{outer}"
        return Made(text, source.columns, open_ended=True)

    def _set_operation(self, kinds: Sequence[str] | None) -> Made:
        kinds = kinds or [
            self.rng.choice(("int", "int", "int", "str", "dbl")) for _ in range(self.rng.choice((1, 1, 2, 3)))
        ]
        left = self._operand(kinds)
        text, columns = left.text, left.columns
        for _ in range(2 if self.budget > 1 and self.chance(0.3) else 1):
            operator = self.rng.choice(("UNION", "UNION", "EXCEPT", "INTERSECT"))
            everything = self.rng.choice(("", "", " ALL", " ALL", " DISTINCT"))
            text = f"{text} {operator}{everything} {self._operand(kinds).text}"
        made = Made(text, columns, open_ended=True)
        if self.may("top_n", 0.08):
            key = self.rng.choice((columns[0].name, "1", str(len(columns))))
            made = Made(
                f"{text} ORDER BY {self._sort_key(key)} LIMIT {self.rng.randint(1, 3)}", columns, open_ended=True
            )
        return made

    def _operand(self, kinds: Sequence[str]) -> Made:
        """Return a block, a named stream or relation, or a query in parentheses."""
        fitting = [
            t for t in self.tables if len(t.columns) == len(kinds)
            and all(alike(c.kind, kind) for c, kind in zip(t.columns, kinds, strict=True))
        ]  # fmt: skip
        if fitting and self.chance(0.5):
            self.budget -= 1
            table = self.rng.choice(fitting)
            window = f" {self.window(table.columns)}" if table.is_stream else ""
            return Made(f"{table.name}{window}".rstrip(), table.columns)
        made = self._set_operation(kinds) if self.budget > 3 and self.chance(0.1) else self.block(kinds, named=True)
        return Made(f"({made.text})", made.columns) if made.open_ended or self.chance(0.2) else made

    # Blocks

    def block(
        self,
        kinds: Sequence[str] | None = None,
        named: bool = False,
        stream: str | None = None,
        around: Sequence[Leaf] = (),
        one_row: bool = False,
    ) -> Made:
        """Return a SELECT block. `around` are columns of the queries around it that it may refer to, `one_row`
        asks for at most one row."""
        source = self._from(around)
        where = list(source.conditions)
        if around and self.may("correlated", 0.75):
            where += self._correlation(source.leaves, around)
        if self.budget > 0 and self.chance(0.5):
            where += [c for c in [self.condition_query(source.leaves)] if c]
        if self.chance(0.45 if not where else 0.25):
            where.append(f"({self.expressions.condition(source.leaves, 2, queries=self.budget > 0)})")
        clauses = f" FROM {source.text}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if one_row:
            grouped = not self.may("top_n", 0.2)
        else:
            grouped = self.may("aggregate", 0.3)
        if grouped:
            items, after, sortable, only_row = self._grouped(source, kinds, one_row)
            clauses += after
        else:
            items, sortable, only_row = self._items(source, kinds, named), list(source.leaves), False
        distinct = not only_row and self.may("distinct", 0.12)
        starred = any(item.text.endswith("*") for item in items)
        tail = ""
        if (one_row and not only_row) or (not only_row and not (distinct and starred) and self.may("top_n", 0.07)):
            tail = self._top_n(
                sortable, 0 if starred else len(items), distinct, 1 if one_row else self.rng.randint(1, 3)
            )
        columns, written = self._written(items, named)
        inner = ("DISTINCT " if distinct else "") + written
        text = f"SELECT {stream}({inner})" if stream else f"SELECT {inner}"
        return Made(text + clauses + tail, columns, stream is not None, bool(tail))

    def _written(self, items: Sequence[Leaf], named: bool) -> tuple[tuple[Column, ...], str]:
        """Return a select list: the columns it makes, and its text."""
        columns: list[Column] = []
        texts = []
        for item in items:
            if item.text.endswith("*"):
                texts.append(item.text)
                continue
            plain = item.text.rpartition(".")[2]
            if item.inside and plain not in [c.name for c in columns] and not self.chance(0.15):
                columns.append(Column(plain, item.kind, item.dull))
                texts.append(item.text)
            else:
                name = self.name("c")
                columns.append(Column(name, item.kind, item.dull))
                texts.append(f"{item.text} AS {name}" if named or self.chance(0.5) else item.text)
        return tuple(columns), ", ".join(texts)

    def _items(self, source: From, kinds: Sequence[str] | None, named: bool) -> list[Leaf]:
        """Return what to select of the rows of FROM."""
        rng = self.rng
        if kinds is None and not named and self.chance(0.15):
            return (
                [Leaf("*", "")]
                if self.chance(0.7)
                else [Leaf(f"{rng.choice(source.aliases)}.*", "")]
                if source.aliases
                else [Leaf("*", "")]
            )
        if kinds is None:
            chosen = [self.expressions.leaf(source.leaves) for _ in range(rng.choice((1, 2, 2, 3)))]
            return [leaf if self.chance(0.8) else self._of_some_kind(leaf.kind, source.leaves) for leaf in chosen]
        return [self._of_kind(kind, source.leaves) for kind in kinds]

    def _of_kind(self, kind: str, leaves: Sequence[Leaf]) -> Leaf:
        own = [leaf for leaf in leaves if leaf.kind == kind]
        if own and self.chance(0.85):
            return self.expressions.leaf(own)
        return self._expression(kind, leaves)

    def _of_some_kind(self, kind: str, leaves: Sequence[Leaf]) -> Leaf:
        if self.may("expressions", 0.3):
            kind = weighted(self.rng, [(1, "bool"), (1, "dec" if "decimal" in self.features else kind), (1, "int")])
        return self._expression(kind, leaves)

    def _expression(self, kind: str, leaves: Sequence[Leaf]) -> Leaf:
        queries = self.budget > 0 and "select_subquery" in self.features
        if queries and self.chance(0.4):
            found = self.condition_query(leaves) if kind == "bool" else self.value_query(kind, leaves)
            if found:
                return Leaf(found, kind)
        return Leaf(self.expressions.value(kind, leaves, 2, queries), kind)

    def _grouped(
        self, source: From, kinds: Sequence[str] | None, one_row: bool
    ) -> tuple[list[Leaf], str, list[Leaf], bool]:
        """Return the select list of a grouped block, its clauses, what ORDER BY may use, and whether it has
        no keys."""
        rng = self.rng
        keys: list[Leaf] = []
        interesting = [leaf for leaf in source.leaves if not leaf.dull] or list(source.leaves)
        if not one_row and self.chance(0.78):
            for _ in range(1 if self.chance(0.75) else 2):
                leaf = next((x for x in interesting if x.text.endswith("k") and self.chance(0.5)), None)
                key = leaf or self.expressions.leaf(interesting)
                if self.may("expressions", 0.15):
                    text = self.expressions.value(key.kind, source.leaves, 1)
                    key = Leaf(f"({text})", key.kind) if not text.isdigit() else key  # a number is a position
                if key not in keys:
                    keys.append(key)
        aggregates = [self.expressions.aggregate(source.leaves, source.stamped) for _ in range(rng.choice((1, 1, 2)))]
        if keys and self.chance(0.06):
            aggregates = []  # a GROUP BY that is a DISTINCT
        groups = keys + aggregates
        if kinds is None:
            items = [key for key in keys if self.chance(0.85)] + aggregates
            if self.may("expressions", 0.15):
                items.append(self._of_some_kind(rng.choice(groups).kind, groups))
            items = items or keys
        else:
            items = [self._of_kind(kind, groups) for kind in kinds]
            if not keys and not any(a.text in item.text for a in aggregates for item in items):
                items[0] = self._aggregate_of_kind(kinds[0], source)
                groups = [items[0]]
        clauses = ""
        if keys:
            clauses += " GROUP BY " + ", ".join(self._group_key(key, items) for key in keys)
        if self.may("having", 0.25):
            clauses += f" HAVING {self.expressions.condition(groups, 1, queries=self.budget > 0)}"
        return items, clauses, groups, not keys

    def _aggregate_of_kind(self, kind: str, source: From) -> Leaf:
        own = [leaf for leaf in source.leaves if leaf.kind == kind]
        if own:
            return Leaf(f"{self.rng.choice(('MIN', 'MAX'))}({self.expressions.leaf(own).text})", kind)
        return Leaf(f"MAX({self.expressions.value(kind, source.leaves, 1)})", kind)

    def _group_key(self, key: Leaf, items: Sequence[Leaf]) -> str:
        if key in items and self.chance(0.1):
            return str(items.index(key) + 1)
        return key.text

    def _top_n(self, leaves: Sequence[Leaf], places: int, distinct: bool, limit: int) -> str:
        keys = []
        for _ in range(1 if self.chance(0.7) else 2):
            by_place = places and (distinct or self.chance(0.2))
            keys.append(str(self.rng.randint(1, places)) if by_place else self.expressions.leaf(leaves).text)
        return f" ORDER BY {', '.join(self._sort_key(key) for key in keys)} LIMIT {limit}"

    def _sort_key(self, key: str) -> str:
        direction = self.rng.choice(("", "", " ASC", " DESC", " DESC"))
        return key + direction + self.rng.choice(("", "", "", " NULLS FIRST", " NULLS LAST"))

    # FROM

    def _from(self, around: Sequence[Leaf]) -> From:
        """Return a FROM clause with one to three inputs, joined by commas or JOIN."""
        sources = [self._source(around)]
        self.budget -= 1
        more = 0
        if "join" in self.features:
            more = (
                self.budget if self.mood == "star" and not around else weighted(self.rng, [(45, 0), (40, 1), (15, 2)])
            )
        for _ in range(min(more, self.budget, 2)):
            if not self.budget:
                break
            self.budget -= 1
            sources.append(self._source(around, sources[-1] if self.may("self_join", 0.2) else None))
        bare = len(sources) == 1 and self.chance(0.5)
        leaves = [self._leaves(source, bare) for source in sources]
        conditions = [source.condition for source in sources if source.condition]
        text, matching = self._joined(sources, leaves)
        return From(
            text,
            tuple(leaf for group in leaves for leaf in group),
            tuple(conditions + matching),
            sum(source.stamped for source in sources) == 1,
            tuple(source.alias for source in sources if source.alias),
        )

    def _leaves(self, source: Source, bare: bool) -> list[Leaf]:
        def leaf(column: Column) -> Leaf:
            qualified = f"{source.alias}.{column.name}"
            return Leaf(column.name if bare or not source.alias else qualified, column.kind, qualified, column.dull)

        return [leaf(column) for column in source.columns]

    def _joined(self, sources: Sequence[Source], leaves: Sequence[Sequence[Leaf]]) -> tuple[str, list[str]]:
        """Return the items of FROM in one text, and the join conditions that go into WHERE."""
        text, conditions = sources[0].text, []
        seen = list(leaves[0])
        if self.mood == "star" and len(sources) > 2 and self.chance(0.8):
            key = self.expressions.equality(leaves[0], leaves[1])
            for at, (source, own) in enumerate(zip(sources[1:], leaves[1:], strict=True)):
                text += f", {source.text}"
                partners = leaves[at] if self.chance(0.5) else leaves[0]
                same = self._same_key(partners, own)
                conditions += [same] if same else [key] if key and at == 0 else []
            if self.chance(0.3):
                conditions.append(f"({self.expressions.condition([*seen, *leaves[1], *leaves[2]], 1)})")
            return text, conditions
        if len(sources) == 3 and self.chance(0.08):
            inner = self._join_on(leaves[1], leaves[2])
            outer = self._join_on(leaves[0], [*leaves[1], *leaves[2]])
            kind, second = self._join_kind(), self._join_kind()
            return f"{text} {kind} ({sources[1].text} {second} {sources[2].text} ON {inner}) ON {outer}", []
        for source, own in zip(sources[1:], leaves[1:], strict=True):
            if self.chance(0.45):
                text += f" {self._join_kind()} {source.text} ON {self._join_on(seen, own)}"
            elif self.chance(0.04):
                text += f" CROSS JOIN {source.text}"
            else:
                # After a comma, a JOIN belongs to the input before it only.
                matching = self._matching(seen, own)
                conditions += matching
                text += f", {source.text}"
                seen = []
            seen += own
        return text, conditions

    def _same_key(self, left: Sequence[Leaf], right: Sequence[Leaf]) -> str | None:
        def key(leaves: Sequence[Leaf]) -> str | None:
            ints = [leaf for leaf in leaves if leaf.kind == "int" and not leaf.dull]
            named = [leaf.text for leaf in ints if leaf.text.endswith("k")]
            return named[0] if named else ints[0].text if ints else None

        a, b = key(left), key(right)
        return f"{a} = {b}" if a and b else None

    def _join_kind(self) -> str:
        if self.may("outer_join", 0.6):
            return self.rng.choice(("LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN"))
        return self.rng.choice(("JOIN", "INNER JOIN"))

    def _join_on(self, left: Sequence[Leaf], right: Sequence[Leaf]) -> str:
        parts = self._matching(left, right) or [self.expressions.condition([*left, *right], 1)]
        if self.chance(0.2):
            parts.append(
                f"({self.expressions.condition([*left, *right], 1, queries=self.budget > 0 and self.chance(0.2))})"
            )
        return " AND ".join(parts)

    def _matching(self, left: Sequence[Leaf], right: Sequence[Leaf]) -> list[str]:
        """Return conditions between two inputs: mostly an equality, at times two, something else or nothing."""
        roll = self.rng.random()
        if roll < 0.06:
            return []
        if roll < 0.16:
            pairs = [(a, b) for a in left for b in right if alike(a.kind, b.kind) and not (a.dull or b.dull)]
            if pairs:
                a, b = self.rng.choice(pairs)
                return [f"{a.text} {self.rng.choice(('<', '<=', '>', '<>'))} {b.text}"]
        found = {self.expressions.equality(left, right) for _ in range(2 if roll > 0.85 else 1)}
        return sorted(condition for condition in found if condition)

    # Items of FROM

    def _source(self, around: Sequence[Leaf] = (), like: Source | None = None) -> Source:
        """Return a named table, a subquery, a stream of a subquery with a window, or a numbered subquery."""
        unused = [table for table in self.local if table.name not in self.taken]
        if unused and self.chance(0.9):
            return self._named(self.rng.choice(unused))
        if like is not None and like.alias and not like.text.startswith("("):
            twin = next((t for t in [*self.tables, *self.local] if t.name == like.text.split()[0]), None)
            if twin is not None:
                return self._named(twin)
        roll = self.rng.random() if self.depth < 2 else 1.0
        if roll < 0.08 and "row_number" in self.features:
            return self._numbered()
        if 0.08 < roll < 0.16 and "nested_stream" in self.features:
            return self._nested_stream()
        if 0.16 < roll < 0.26 and "subquery" in self.features:
            return self._subquery(around if self.chance(0.1) else ())
        wanted = self.tables if self.chance(0.3) else [t for t in self.tables if t.is_stream] or self.tables
        return self._named(self.rng.choice(wanted))

    def _subquery(self, around: Sequence[Leaf]) -> Source:
        saved, self.budget = self.budget, max(1, self.budget)
        self.depth += 1
        if not around and self.may("set", 0.2):
            self.budget = max(2, self.budget)
            made = self._set_operation(None)
        else:
            made = self.block(named=True, around=around) if around or self.chance(0.8) else self.query(named=True)
        self.depth -= 1
        self.budget = min(saved, self.budget + 1)
        alias = self.name("x")
        return Source(f"({made.text}) {self.rng.choice(('AS ', ''))}{alias}", alias, made.columns)

    def _named(self, table: Table) -> Source:
        rng = self.rng
        alias: str | None = table.name
        written = ""
        if table.name in self.taken or self.chance(0.5):
            alias = self.name("x")
            written = rng.choice(("AS ", "AS ", "")) + alias
        self.taken.add(table.name)
        static = table.feature == "static"
        self.timed = self.timed or not static
        window = self.window(table.columns) if table.is_stream and not static else ""
        parts = [table.name, window, written] if self.chance(0.8) else [table.name, written, window]
        if self.may("sample", 0.05):
            parts.append(f"TABLESAMPLE ({rng.choice((0, 30, 50, 87.5, 100))} PERCENT)")
        return Source(" ".join(part for part in parts if part), alias, table.columns, table.stamped)

    def _nested_stream(self) -> Source:
        """Return a subquery that is a stream, or only grows, under a window of its own."""
        rng = self.rng
        alias = self.name("x")
        streams = [table for table in self.tables if table.is_stream and table.stamped]
        bounded = True
        if streams and self.chance(0.3):
            growing, bounded = rng.choice(streams), not self.may("istream", 0.4)
            leaves = [Leaf(c.name, c.kind, c.name, c.dull) for c in growing.columns]
            columns = tuple(c for c in growing.columns if c.name in "kv" or self.chance(0.3))
            where = self.expressions.condition(leaves, 1)
            distinct = "DISTINCT " if self.may("distinct", 0.3) else ""
            text = f"SELECT {distinct}{', '.join(c.name for c in columns)} FROM {growing.name} WHERE {where}"
            text = f"({text})" if bounded else f"Istream({text})"
        else:
            saved, self.budget = self.budget, max(1, min(2, self.budget))
            mood, self.mood = self.mood, "any"
            timed, self.timed = self.timed, False
            self.depth += 1
            made = self.stream(self._some_kind())
            self.depth -= 1
            self.budget, self.mood = min(saved, self.budget + 1), mood
            columns = made.columns
            text = made.text if made.text[1:7] == "stream" else f"({made.text})"
            if not self.timed:  # what never changes has no time that a window, or an Rstream, could go by
                self.timed = timed
                return Source(f"{text.replace('Rstream', self._other_kind)} AS {alias}", alias, columns)
        self.timed = True
        window = self.window(columns) if bounded else ""
        parts = [text, window, f"AS {alias}"] if self.chance(0.8) else [text, alias, window]
        return Source(" ".join(part for part in parts if part), alias, columns)

    def _numbered(self) -> Source:
        """Return a subquery with ROW_NUMBER; a condition on the number makes it a top-n of each group."""
        rng = self.rng
        inner = self._named(rng.choice([t for t in self.tables if t.is_stream] or self.tables))
        leaves = self._leaves(inner, bare=self.chance(0.5))
        chosen = rng.sample(leaves, min(len(leaves), rng.choice((2, 3))))
        partition = [leaf for leaf in leaves if leaf.text.endswith("k")][: 1 if self.chance(0.8) else 0]
        if self.chance(0.15):
            partition.append(self.expressions.leaf(leaves))
        keys = [self._sort_key(self.expressions.leaf(leaves).text) for _ in range(1 if self.chance(0.7) else 2)]
        within = f"PARTITION BY {', '.join(leaf.text for leaf in partition)} " if partition else ""
        alias, number = self.name("x"), self.name("n")
        columns, written = self._written(chosen, named=True)
        where = f" WHERE {self.expressions.condition(leaves, 0)}" if self.chance(0.2) else ""
        numbering = f"ROW_NUMBER() OVER ({within}ORDER BY {', '.join(keys)}) AS {number}"
        text = f"(SELECT {written}, {numbering} FROM {inner.text}{where}) AS {alias}"
        place, numbered = f"{alias}.{number}", (*columns, Column(number, "int"))
        # Without an upper limit the planner refuses it; so it does if an outer join keeps the limit away.
        limits = (f"{place} <= 2", f"{place} = 1", f"{place} < 3", f"2 >= {place}", f"{place} <= 1")
        condition = f"{place} > 1" if self.chance(0.01) else rng.choice(limits)
        if self.chance(0.4):  # a filter of its own, as one writes it
            return Source(
                f"(SELECT * FROM {text} WHERE {condition}) AS {self.name('x')}", f"x{self.made_names}", numbered
            )
        return Source(text, alias, numbered, condition=condition)

    def window(self, columns: Sequence[Column]) -> str:
        """Return a window in brackets; nothing is the unbounded one."""
        if self.mood == "now" and self.chance(0.5) and "now" in self.features:
            return "[Now]"
        if self.mood == "unbounded" and self.chance(0.75) and "unbounded" in self.features:
            return self.rng.choice(("", "[Range Unbounded]", "[Rows Unbounded]"))
        forms = [
            (28.0, "range"),
            (14.0, "slide"),
            (10.0, "now"),
            (18.0, "rows"),
            (17.0, "partition"),
            (13.0, "unbounded"),
        ]
        form = weighted(self.rng, [(w, f) for w, f in forms if f == "range" or f in self.features])
        rng = self.rng
        match form:
            case "slide":
                length, slide = rng.choice(self.lengths.slides)
                return f"[Range {length} Slide {slide}]"
            case "now":
                return "[Now]"
            case "rows":
                return f"[Rows {rng.choice((1, 2, 2, 3, 3, 4, 100))}]"
            case "partition":
                names = [c.name for c in columns if not c.dull] or [c.name for c in columns]
                keys = [n for n in names if n == "k" and self.chance(0.7)] or rng.sample(
                    names, rng.choice((1, 1, 2)) if len(names) > 1 else 1
                )
                expiry = f" Range {rng.choice(self.lengths.ranges)}" if self.chance(0.3) else ""
                return f"[Partition By {', '.join(keys)} Rows {rng.choice((1, 1, 2, 3))}{expiry}]"
            case "unbounded":
                return rng.choice(("", "", "[Range Unbounded]", "[Rows Unbounded]"))
        return f"[Range {rng.choice(self.lengths.ranges)}]"

    # Queries inside expressions

    def value_query(self, kind: str, around: Sequence[Leaf]) -> str | None:
        """Return a query as a value, or None if there may be no more inputs."""
        if self.budget <= 0 or "scalar" not in self.features:
            return None
        return f"({self._inner([kind], around, one_row=True)})"

    def condition_query(self, around: Sequence[Leaf]) -> str | None:
        """Return a condition on a query, or None if there may be no more inputs."""
        forms = [(4.0, "in"), (4.0, "exists"), (2.0, "scalar")]
        possible = [(w, f) for w, f in forms if f in self.features]
        if self.budget <= 0 or not possible:
            return None
        form = weighted(self.rng, possible)
        negation = self.rng.choice(("", "", "NOT "))
        plain = [leaf for leaf in around if leaf.kind != "bool"]
        if form == "exists" or not plain:
            return f"{negation}EXISTS ({self._inner(None if self.chance(0.5) else ['int'], around)})"
        leaf = self.expressions.leaf(plain)
        if form == "scalar":
            operator = self.rng.choice((">", ">=", "<", "<=", "<>", "="))
            return f"{leaf.text} {operator} {self.value_query(leaf.kind, around)}"
        if self.chance(0.15) and len(plain) > 1:
            second = self.expressions.leaf(plain)
            return f"({leaf.text}, {second.text}) {negation}IN ({self._inner([leaf.kind, second.kind], around)})"
        text = leaf.text if self.chance(0.85) else f"({self.expressions.value(leaf.kind, around, 1)})"
        return f"{text} {negation}IN ({self._inner([leaf.kind], around)})"

    def _inner(self, kinds: Sequence[str] | None, around: Sequence[Leaf], one_row: bool = False) -> str:
        reachable = [leaf for leaf in around if leaf.inside]
        mood, self.mood = self.mood, "any" if self.chance(0.7) else self.mood
        budget, self.budget = self.budget, 1 if self.chance(0.85) else self.budget
        used = self.budget
        made = self.block(kinds, named=self.chance(0.3), around=reachable, one_row=one_row)
        self.mood, self.budget = mood, budget - (used - self.budget)
        return made.text

    def _correlation(self, own: Sequence[Leaf], around: Sequence[Leaf]) -> list[str]:
        """Return conditions that tie a subquery to the rows around it: mostly one equality."""
        outside = [Leaf(leaf.inside, leaf.kind, leaf.inside, leaf.dull) for leaf in around if leaf.inside]
        conditions = [self.expressions.equality(own, outside)] if self.chance(0.92) else []
        if self.chance(0.12):
            conditions.append(self.expressions.equality(own, outside))
        if self.may("non_equi_correlation", 0.06):
            pairs = [(a, b) for a in own for b in outside if alike(a.kind, b.kind)]
            if pairs:
                a, b = self.rng.choice(pairs)
                conditions.append(f"{a.text} {self.rng.choice(('<', '>=', '<>'))} {b.text}")
        return list(dict.fromkeys(c for c in conditions if c))
