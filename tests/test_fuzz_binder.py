"""Whatever is written binds to a tree that satisfies all invariants, or is a well-placed error of the user's.

`Texts` writes queries that follow the grammar over the tables of `tests/binding.py`, mostly with sense: names that
are in reach, types that go together; but also with names that are misspelt and types that clash. `CQL_FUZZ` sets how
many are tried. The queries of `tests/random_queries.py` all bind; on those, growth is compared with what happens.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

import cql
from cql import Catalog, Code, CqlError
from cql.bound import Rel, direct_inputs
from cql.bound.check import check
from cql.source import SourceText
from tests import random_queries
from tests.binding import marked, tables
from tests.definition.evaluator import evaluate
from tests.strategies import inputs_to_try

pytestmark = pytest.mark.fuzz

NUMBERS, TEXTS, CONDITIONS, TIMES = "number", "text", "condition", "time"

COLUMNS: dict[str, dict[str, str]] = {
    "S": {"a": NUMBERS, "b": NUMBERS, "x": NUMBERS, "s": TEXTS, "f": CONDITIONS, "t": NUMBERS},
    "U": {"a": NUMBERS, "c": TEXTS, "t": NUMBERS},
    "E": {"a": NUMBERS, "n": NUMBERS, "ts": TIMES},
    "R": {"a": NUMBERS, "r": TEXTS},
    "L": {"a": NUMBERS, "l": TEXTS},
    "O": {"a": NUMBERS, "b": NUMBERS},
    "kept": {"a": NUMBERS, "s": TEXTS},
    "counts": {"s": TEXTS, "n": NUMBERS},
}
STREAMS = ("S", "U", "E", "O", "kept")
VIEWS = """
CREATE VIEW kept AS SELECT a, s FROM S WHERE a > 1;
CREATE VIEW counts AS SELECT s, COUNT(*) AS n FROM S GROUP BY s;
"""
CONSTANTS = {
    NUMBERS: ("0", "7", "-1", "2.50", "1e3", "NULL", "9223372036854775807", "0.00000000001"),
    TEXTS: ("'x'", "''", "NULL", "'it''s'", "'2026-01-31'"),
    CONDITIONS: ("TRUE", "FALSE", "NULL"),
    TIMES: ("TIMESTAMP '2026-01-31 12:00:00'", "NULL"),
}
# Places: {n} a number, {s} a text, {f} a condition, {t} a time.
FORMS = {
    NUMBERS: (
        *("{n} + {n}", "{n} - {n}", "{n} * {n}", "{n} / {n}", "{n} % {n}", "- {n}", "abs({n})", "round({n}, 1)"),
        *("floor({n})", "coalesce({n}, {n})", "nullif({n}, {n})", "least({n}, {n})", "length({s})", "epoch({t})"),
        *("CASE WHEN {f} THEN {n} ELSE {n} END", "CASE {n} WHEN {n} THEN {n} END", "CAST({s} AS INT)"),
        *("CAST({n} AS DECIMAL(10,2))", "EXTRACT(hour FROM {t})", "power({n}, {n})"),
    ),
    TEXTS: (
        *("{s} || {s}", "upper({s})", "substr({s}, 2)", "CAST({n} AS STRING)", "replace({s}, 'a', {s})"),
        *("coalesce({s}, {s})", "CASE WHEN {f} THEN {s} END", "date_format({t}, 'yyyy')"),
    ),
    CONDITIONS: (
        *("{n} = {n}", "{n} < {n}", "{s} <> {s}", "{t} >= {t}", "{f} AND {f}", "{f} OR {f}", "NOT {f}"),
        *("{n} BETWEEN {n} AND {n}", "{n} IN ({n}, {n})", "{s} LIKE 'a%'", "{n} IS DISTINCT FROM {n}"),
        *("{n} IS NULL", "{t} - {t} > INTERVAL '1 s'"),
    ),
    TIMES: ("{t} + INTERVAL '1 hour'", "date_trunc('hour', {t})", "greatest({t}, {t})", "CAST({s} AS TIMESTAMP)"),
}
AGGREGATES = (
    *("COUNT(*)", "COUNT({n})", "SUM({n})", "AVG({n})", "MAX({n})", "MIN({n}) FILTER (WHERE {f})"),
    *("SUM(DISTINCT {n})", "ARG_MAX({n}, {s})", "STDDEV({n})"),
)
WINDOWS = ("", "", " [Now]", " [Rows 3]", " [Range 10 Seconds]", " [Range 10 Slide 5]", " [Range Unbounded]")
BAD_WINDOWS = (" [Range 5 Slide 7]", " [Range 500 ms]", " [Rows 0]")

Scope = dict[str, dict[str, str]]
"""The kinds of columns by their names, by the names of their inputs."""


class Texts:
    """Writes random queries. `scopes` has the columns in reach, those of the query at hand last."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.scopes: list[Scope] = []
        self.aliases = 0
        self.tables = ["E", "E", "R"] if self.often(0.15) else [name for name in COLUMNS if name != "E"]

    def often(self, chance: float) -> bool:
        return self.rng.random() < chance

    # Queries

    def query(self, depth: int = 2) -> str:
        kind = self.rng.random()
        if kind < 0.12:
            operator = self.rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "INTERSECT ALL"])
            sides = (self.select(depth - 1, kinds=[NUMBERS, TEXTS]) for _ in range(2))
            return f" {operator} ".join(f"({side})" for side in sides)
        if kind < 0.24:
            return f"{self.rng.choice(['Istream', 'Dstream', 'Rstream'])}({self.select(depth)})"
        if kind < 0.30:
            return f"WITH w AS ({self.select(depth)}) SELECT * FROM w{self.rng.choice(WINDOWS)}"
        return self.select(depth)

    def select(self, depth: int, kinds: Sequence[str] = ()) -> str:
        source = self.inputs(depth)
        where = f" WHERE {self.expression(CONDITIONS, depth)}" if self.often(0.6) else ""
        if self.often(0.3) and not kinds:
            keys = [self.expression(kind, 1) for kind in (NUMBERS, TEXTS)[: self.rng.randint(0, 2)]]
            items, group = [*keys, self.aggregate()], self.group_by(keys)
        else:
            kinds = kinds or self.rng.choices([NUMBERS, TEXTS, CONDITIONS, TIMES], [6, 3, 1, 1], k=2)
            items, group = ["*"] if self.often(0.1) else [self.expression(kind, depth) for kind in kinds], ""
        named = [f"{item} AS c{at}" if item != "*" and self.often(0.5) else item for at, item in enumerate(items)]
        order = f" ORDER BY {self.rng.choice(['1', '2 DESC', 'c0'])} LIMIT 3" if self.often(0.08) else ""
        self.scopes.pop()
        return f"SELECT {'DISTINCT ' * self.often(0.1)}{', '.join(named)} FROM {source}{where}{group}{order}"

    def group_by(self, keys: list[str]) -> str:
        text = f" GROUP BY {', '.join(str(at) if self.often(0.2) else key for at, key in enumerate(keys, 1))}"
        having = f" HAVING {self.aggregate()} > {self.rng.choice([*keys[:1], '1'])}" if self.often(0.4) else ""
        return (text if keys else "") + having

    def inputs(self, depth: int) -> str:
        """Return the items of FROM; from now on their columns are in reach."""
        scope: Scope = {}
        parts = [self.input(depth, scope) for _ in range(self.rng.choice([1, 1, 1, 1, 2, 2, 3]))]
        self.scopes.append(scope)
        text, first = parts[0], 0
        for at, part in enumerate(parts[1:], 1):
            join = self.rng.choice([",", " JOIN", " LEFT JOIN", " RIGHT JOIN", " FULL JOIN", " CROSS JOIN"])
            text += f"{join} {part}"
            first = at if join == "," else first
            if join not in (",", " CROSS JOIN"):
                self.scopes[-1] = dict(list(scope.items())[first : at + 1])
                text += f" ON {self.expression(CONDITIONS, 1)}"
                self.scopes[-1] = scope
        return text

    def input(self, depth: int, scope: Scope) -> str:
        self.aliases += 1
        alias = f"i{self.aliases}"
        if depth and self.often(0.2):
            inside = self.inputs(depth - 1)
            text = f"(SELECT {self.expression(NUMBERS, 1)} AS k, {self.expression(TEXTS, 1)} AS p FROM {inside})"
            self.scopes.pop()
            scope[alias] = {"k": NUMBERS, "p": TEXTS}
            return f"{text} {alias}"
        name = self.rng.choice(list(COLUMNS) if self.often(0.02) else self.tables)
        scope[alias] = COLUMNS[name]
        window = self.rng.choice(WINDOWS) if name in STREAMS else ""
        if self.often(0.02):
            window = self.rng.choice([*WINDOWS, *BAD_WINDOWS, f" [Partition By {self.typo('a')} Rows 2]"])
        return f"{self.typo(name)}{window} AS {alias}"

    # Expressions

    def expression(self, kind: str, depth: int) -> str:
        if self.often(0.01):
            kind = self.rng.choice([NUMBERS, TEXTS, CONDITIONS, TIMES])
        if depth > 0 and kind in (NUMBERS, CONDITIONS) and self.often(0.2):
            return self.subquery(kind, depth - 1)
        if depth <= 0 or self.often(0.4):
            return self.leaf(kind)
        return f"({self.filled(self.rng.choice(FORMS[kind]), depth - 1)})"

    def subquery(self, kind: str, depth: int) -> str:
        """Return a query used as a value or condition; it may look at the rows around it."""
        if kind == CONDITIONS and self.often(0.3):
            return f"EXISTS ({self.select(depth)})"
        value = self.expression(NUMBERS, 0)
        source = self.inputs(depth)
        where = f" WHERE {self.expression(CONDITIONS, depth + 1)}" if self.often(0.8) else ""
        inner = self.expression(NUMBERS, 1) if kind == CONDITIONS else self.aggregate()
        self.scopes.pop()
        query = f"(SELECT {inner} FROM {source}{where})"
        return query if kind == NUMBERS else f"({value} {'NOT ' * self.often(0.3)}IN {query})"

    def filled(self, form: str, depth: int) -> str:
        """Return a form with its places filled."""
        kinds = {"{n}": NUMBERS, "{s}": TEXTS, "{f}": CONDITIONS, "{t}": TIMES}
        for place, kind in kinds.items():
            while place in form:
                form = form.replace(place, self.expression(kind, depth), 1)
        return form

    def aggregate(self) -> str:
        return self.filled(self.rng.choice(AGGREGATES), 1)

    def leaf(self, kind: str) -> str:
        scopes = self.scopes[-1:] if self.often(0.7) else self.scopes
        found = [
            (owner, column)
            for scope in scopes
            for owner, columns in scope.items()
            for column, its_kind in columns.items()
            if its_kind == kind
        ]
        if not found or self.often(0.15):
            return self.rng.choice(CONSTANTS[kind])
        owner, column = self.rng.choice(found)
        return self.typo(column) if self.often(0.03) else f"{owner}.{self.typo(column)}"

    def typo(self, name: str) -> str:
        """Return a name, now and then misspelt."""
        if not self.often(0.01):
            return name
        return self.rng.choice([name + name[-1], name[:-1] + "z", name.upper(), f'"{name}"', "größe"])


def texts(count: int, seed: int) -> Iterator[str]:
    for number in range(count):
        yield Texts(random.Random(f"{seed} {number}")).query()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return tables(VIEWS)


def test_a_query_binds_to_a_sound_tree_or_is_a_well_placed_error(catalog: Catalog) -> None:
    outcomes: Counter[str] = Counter()
    for text in texts(inputs_to_try(1200), seed=1):
        try:
            tree = cql.bind(text, catalog)
        except CqlError as error:
            assert marked(error, text), text
            assert CqlError(error.diagnostics, SourceText("f", text)).render()
            assert not {d.code for d in error.diagnostics} & {Code.SYNTAX, Code.UNCLOSED, Code.BAD_CHARACTER}, text
            outcomes[error.diagnostics[0].code.name] += 1
        except Exception as error:
            raise AssertionError(text) from error
        else:
            try:
                check(tree)
            except AssertionError as error:
                raise AssertionError(text) from error
            outcomes["stream" if tree.is_stream else "relation"] += 1
    bound = outcomes["stream"] + outcomes["relation"]
    assert bound > outcomes.total() / 4, f"too few of the queries bind to say much: {outcomes}"
    assert len(outcomes) > 8, f"too few kinds of mistakes: {outcomes}"


def test_what_is_bound_is_the_same_each_time(catalog: Catalog) -> None:
    for text in texts(150, seed=2):
        try:
            assert cql.bind(text, catalog) == cql.bind(text, catalog), text
        except CqlError as error:
            with pytest.raises(CqlError) as again:
                cql.bind(text, catalog)
            assert again.value.diagnostics == error.diagnostics, text


def test_views_stand_for_their_queries(catalog: Catalog) -> None:
    """A query defined as a view and selected from has the columns and the kind that it has itself."""
    for text in texts(200, seed=3):
        try:
            tree = cql.bind(text, catalog)
        except CqlError:
            continue
        trial = catalog.copy_for_trial()
        trial.execute(f"CREATE VIEW v AS {text}")
        by_view = cql.bind("SELECT * FROM v", trial)
        assert [(f.type, f.nullable) for f in by_view.schema] == [(f.type, f.nullable) for f in tree.schema], text
        assert by_view.is_stream == tree.is_stream, text
        check(by_view)
        assert Catalog.from_json(trial.to_json(), trusted=True).views["v"].tree == trial.views["v"].tree, text


def test_well_typed_queries_bind_to_sound_trees() -> None:
    known, tried, refused = random_queries.catalog(), inputs_to_try(300), 0
    for seed in range(tried):
        text = random_queries.random_query(random.Random(f"binder {seed}"))
        try:
            check(cql.bind(text, known))
        except CqlError:
            refused += 1
        except Exception as error:
            raise AssertionError(text) from error
    assert refused <= tried / 100


def test_what_is_said_to_only_grow_never_loses_a_row() -> None:
    known = random_queries.catalog()
    growing = 0
    for seed in range(inputs_to_try(500)):
        rng = random.Random(f"grows {seed}")
        text = random_queries.random_query(rng, size=2)
        if seed % 4:
            text = re.sub(r"\[[^]]*\]", "", text)  # Without windows more of a query only grows.
        data = random_queries.random_data(rng, known, random_queries.tables_of(text), most=6)
        for rel in _relations(cql.bind(text, known)):
            if rel.grows and rel.time:
                growing += 1
                changes = evaluate(rel, data).changes
                lost = {time: change for time, change in changes.items() if min(change.values()) < 0}
                assert not lost, random_queries.report(text, data, loses=f"{lost} from {rel}")
    assert growing > 100


def _relations(tree: Rel) -> Iterator[Rel]:
    """Yield the relations of a query from the top down, those inside its expressions left out."""
    if not tree.is_stream:
        yield tree
    for below in direct_inputs(tree):
        yield from _relations(below)
