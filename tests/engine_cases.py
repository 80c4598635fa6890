"""Random cases for the engine: queries, the elements of their inputs, and how the engine is made to run them.

A case is decided by its seed. Data is small, and where it is not, windows are: the definition, which is the judge,
takes all of a relation at every instant. What is rare in small data is made frequent by small limits (`small_limits`):
then runs are merged, stores rewritten, logs compacted and slots given up all the time.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property, lru_cache, partial
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

import cql
from cql import Catalog
from cql.bound import Rel
from cql.errors import Code, CqlError
from cql.types import Kind
from planner import operators as op
from planner.plan import Plan, combine, compile_query
from runtime.columns import row_codes as rows
from runtime.columns.batch import BEGINNING, BLOCK_ROWS, ChangeBatch, empty_batch
from runtime.connectors.intake import SourceRows
from runtime.engine.executor import Executor
from runtime.engine.scheduling import POLICIES
from runtime.joins import candidates as looking
from tests.agreement import disagreement
from tests.definition import Result, evaluate
from tests.definition.evaluator import user_code
from tests.engine_runs import results, to_column
from tests.random_data import Data, minimise, report
from tests.random_orders import take_random_orders
from tests.random_queries import SETTINGS, catalog, random_data, random_query, tables_of
from tests.test_plan_random import network

REFUSED = {Code.CANNOT_DECORRELATE, Code.CANNOT_PLAN, Code.DUPLICATE_NAME, Code.BAD_ROW_NUMBER}


@dataclass(frozen=True)
class Case:
    """Queries of one network by name, as text and bound, and the elements of their inputs in the order of arrival.

    Elements come at most `delay` later than others with larger instants.
    """

    texts: Mapping[str, str]
    trees: Mapping[str, Rel]
    data: Data
    delay: int
    functions: Mapping[str, Any] = field(default_factory=dict)
    closes: bool = False
    """Whether windows that have begun are closed at the end."""

    @property
    def shared(self) -> Plan:
        return _plan(tuple(self.trees.items()), share=True)

    @property
    def unshared(self) -> Plan:
        return _plan(tuple(self.trees.items()), share=False)

    @cached_property
    def expected(self) -> dict[str, Result]:
        """What the queries mean."""
        return {
            name: evaluate(tree, self.data, self.functions, closes_windows=self.closes)
            for name, tree in self.trees.items()
        }


@lru_cache(maxsize=4)
def _plan(queries: tuple[tuple[str, Rel], ...], share: bool) -> Plan:
    """Return the plan of a network; all setups of a case ask for one of two."""
    return combine([compile_query(name, tree, share=share) for name, tree in queries])


@dataclass(frozen=True)
class Setup:
    """How the engine runs a case."""

    seed: int
    share: bool
    policy: str
    chunk_rows: int
    batch_rows: tuple[int, ...]
    limits: str
    block_rows: int = BLOCK_ROWS

    def executor(self, case: Case) -> Executor:
        """Return an executor for a case at which nothing has arrived."""
        plan = case.shared if self.share else case.unshared
        rows = {"chunk_rows": self.chunk_rows, "block_rows": self.block_rows}
        executor = Executor(
            plan,
            case.functions,
            policy=self.policy,
            check=True,
            closes_windows=case.closes,
            on_bad_row="skip",
            **rows,
        )
        if self.seed % 2:
            take_random_orders(executor, Random(self.seed))
        return executor

    def tidiness(self) -> AbstractContextManager[None]:
        """Return the context in which the engine tidies up as often as this setup wants it."""
        return _LIMITS[self.limits]()


def random_setup(rng: Random, case: Case) -> Setup:
    """Return a way to run a case."""
    many = max(map(len, case.data.values()), default=0) > 20
    return Setup(
        seed=rng.randrange(2**32),
        share=rng.random() < 0.6,
        policy=rng.choice(POLICIES),
        chunk_rows=rng.choice((20, 65_536) if many else (1, 5, 65_536, 65_536)),
        batch_rows=rng.choice(((10, 30), (40, 80), (1000,)) if many else ((1, 2, 3, 100), (2, 5), (100,))),
        limits=rng.choice(("usual", "small", "small", "clashing")),
        block_rows=rng.choice((20, BLOCK_ROWS) if many else (1, 2, 5, BLOCK_ROWS)),
    )


# ------------------------------------------------------------------------------------------------------- small limits

SMALL = {
    "runtime.state.future_changes": {"MOST_RUNS": 2, "LONG": 3},
    "runtime.state.group_table": {"_FEWEST": 1, "MOST_CHUNKS": 2},
    "runtime.state.group_sums": {"_FEWEST": 1},
    "runtime.state.store": {"_FEWEST": 1, "MOST_PARTS": 2},
    "runtime.state.code_index": {"GROWTH": 1, "_LONG_STRETCH": 1},
    "runtime.joins.candidates": {
        "MOST_CANDIDATES": 4,
        "PAIR_COST": 10**6,
        "ENTRY_COST": 1,
        "MARKS_FROM": 0,
        "_FEWEST": 1,
        "_DENSE": 2,
    },
    "runtime.state.bitmap_index": {"_ROWS": 2, "_STRETCH": 3},
    "runtime.joins.exact": {"MOST_CANDIDATES": 4},
    "runtime.state.sorted_runs": {
        "_FIRST_LOOK": 0,
        "_LOOK_GROWTH": 2,
        "_FEWEST_PASSED": 1,
        "_FEWEST_IN_A_STEP": 2,
        "_SAMPLE": 1,
    },
    "runtime.columns.sort_codes": {"_FEW_TIMES": 0},
    "runtime.operators.windows": {"_FEWEST_ROWS": 1, "_FEWEST_KEYS": 1},
    "runtime.exact_sums.lanes": {"_BLOCK": 3},
    "runtime.aggregates.user": {"_FEWEST": 1},
}
"""From how much on the engine tidies up, made so small that it does so in small cases."""

FEW_CODES = np.uint64(0xC000_0000_0000_0001)


@contextmanager
def small_limits() -> Iterator[None]:
    """Make the engine merge, compact, rewrite and give up whenever there is anything to."""
    with ExitStack() as stack:
        for name, values in SMALL.items():
            for constant, value in values.items():
                stack.enter_context(patch.object(importlib.import_module(name), constant, value))
        yield


@contextmanager
def clashing_codes() -> Iterator[None]:
    """Leave three bits of the codes of columns, so that different rows have equal codes."""
    codes = rows._column_codes
    with (
        small_limits(),
        patch.object(rows, "_column_codes", lambda column: codes(column) & FEW_CODES),
        patch.object(rows, "_is_narrow", lambda data_type: False),
    ):
        yield


@contextmanager
def marked_codes() -> Iterator[None]:
    """Compare codes of joins without equal keys as bits, wherever they can be."""
    with (
        small_limits(),
        patch.object(looking, "PAIR_COST", 0),
        patch.object(looking, "WORD_COST", -1),
        patch.object(looking, "ENTRY_COST", 1),
    ):
        yield


_LIMITS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "usual": nullcontext,
    "small": small_limits,
    "clashing": clashing_codes,
    "marked": marked_codes,
}


# ------------------------------------------------------------------------------------------------------------ queries


def random_case(rng: Random) -> Case | None:
    """Return a case of some kind; None if the planner refuses the query that was drawn."""
    roll = rng.random()
    if roll < 0.6:
        return _single(rng)
    if roll < 0.8:
        return _aggregates(rng)
    return _network(rng)


def _single(rng: Random) -> Case | None:
    known = catalog() if rng.random() < 0.75 else catalog(rng.choice(SETTINGS))
    return _bound(rng, {"q": random_query(rng)}, known)


def _network(rng: Random) -> Case | None:
    texts, trees = network(rng.randrange(2**32))
    kept: dict[str, str] = {}
    for name, text in texts.items():
        if _go_together([trees[each] for each in (*kept, name)]):
            kept[name] = text
    return _bound(rng, kept, catalog()) if kept else None


def _go_together(trees: Sequence[Rel]) -> bool:
    """Tell whether queries can be of one network: all on one clock, or all on none."""
    clocks = {next((scan.domain for scan in cql.bound.scans(tree) if scan.domain), None) for tree in trees}
    return len(clocks) == 1


def _bound(rng: Random, texts: Mapping[str, str], known: Catalog) -> Case | None:
    try:
        trees = {name: cql.bind(text, known) for name, text in texts.items()}
        plan = _plan(tuple(trees.items()), share=True)
    except CqlError as error:
        assert {each.code for each in error.diagnostics} <= REFUSED, texts
        return None
    names = sorted({name for text in texts.values() for name in tables_of(text, known)})
    delay = rng.choice((0, 0, 0, 1, 3, 1_500_000))
    data = _delayed(rng, _data(rng, known, names, plan), delay)
    return Case(texts, trees, data, delay, user_code(known), closes=rng.random() < 0.4)


# --------------------------------------------------------------------------------------------- aggregates and functions

OWN = """
CREATE STREAM A (k INT, v INT, b BIGINT, m DECIMAL(9,2), w DECIMAL(30,4), d DOUBLE, s STRING, f BOOLEAN, t INT)
TIMESTAMP BY t;
CREATE RELATION B (k INT, v INT, b BIGINT, m DECIMAL(9,2), w DECIMAL(30,4), d DOUBLE, s STRING, f BOOLEAN, t INT,
                   at INT, sign INT) TIMESTAMP BY at SIGN BY sign;
"""


class Told:
    """Says what it holds."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, x: Any) -> None:
        self.values.append(x)

    def result(self) -> str:
        return " ".join(sorted(map(repr, self.values)))


class Kept(Told):
    """The same, with a way back."""

    def remove(self, x: Any) -> None:
        self.values.remove(x)


def halved(x: int | None) -> int | None:
    return None if x is None else x // 2


def spelled(x: Decimal | None, s: str | None) -> str:
    return f"{s}:{x}"


@cache
def own_catalog() -> Catalog:
    """Return a catalog of wide tables, with functions and aggregates of users."""
    made = Catalog()
    made.execute(OWN)
    made.function(halved, arguments=["INT"], returns="INT")
    made.function(spelled, arguments=["DECIMAL(9,2)", "STRING"], returns="STRING")
    for code in (Told, Kept):
        made.aggregate(code, name=f"{code.__name__}_v", arguments=["INT"], returns="STRING")
        made.aggregate(code, name=f"{code.__name__}_m", arguments=["DECIMAL(9,2)"], returns="STRING")
    return made


COLUMNS = ("k", "v", "b", "m", "w", "d", "s", "f", "t")
NUMBERS = ("k", "v", "b", "m", "w", "d")


def _aggregates(rng: Random) -> Case | None:
    return _bound(rng, {f"q{at}": _aggregate_query(rng) for at in range(rng.choice((1, 1, 2)))}, own_catalog())


def _aggregate_query(rng: Random) -> str:
    keys = rng.choice(((), ("k",), ("k",), ("s", "f"), ("m",), ("halved(v)",)))
    calls = [_call(rng) for _ in range(rng.randint(1, 4))]
    items = [f"{each} AS c{at}" for at, each in enumerate((*keys, *calls))]
    source = "B" if rng.random() < 0.2 else f"A {_window(rng)}"
    where = rng.choice(("", "", " WHERE halved(v) = 1", " WHERE m > 1.5", " WHERE spelled(m, s) <> 'a:1.00'"))
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    having = " HAVING COUNT(*) > 1" if rng.random() < 0.15 else ""
    text = f"SELECT {', '.join(items)} FROM {source}{where}{grouping}{having}"
    return rng.choice(("{}", "{}", "Istream({})", "Dstream({})", "Rstream({})")).format(text)


def _window(rng: Random) -> str:
    return rng.choice(
        (
            "[Range 3]",
            "[Range 5]",
            "[Range 4 Slide 2]",
            "[Now]",
            "[Rows 3]",
            "[Rows 5]",
            "[Partition By k Rows 2]",
            "[Partition By s, f Rows 2 Range 4]",
            "",
        )
    )


def _call(rng: Random) -> str:
    distinct = rng.choice(("", "", "DISTINCT "))
    number, anything, other = rng.choice(NUMBERS), rng.choice(COLUMNS), rng.choice(COLUMNS)
    made = rng.choice(
        (
            "COUNT(*)",
            f"COUNT({distinct}{anything})",
            f"SUM({distinct}{number})",
            f"AVG({distinct}{number})",
            f"MIN({distinct}{anything})",
            f"MAX({distinct}{anything})",
            f"stddev({number})",
            f"variance({number})",
            f"arg_min({anything}, {other})",
            f"arg_max({anything}, {other})",
            f"approx_count_distinct({anything})",
            f"Told_v({distinct}v)",
            f"Kept_v({distinct}v)",
            f"Told_m({distinct}m)",
            f"Kept_m({distinct}m)",
        )
    )
    return made + rng.choice(("", "", "", " FILTER (WHERE f)", " FILTER (WHERE halved(v) > 0)"))


# --------------------------------------------------------------------------------------------------------------- data

FAR = 2**62


def _data(rng: Random, known: Catalog, names: Sequence[str], plan: Plan) -> Data:
    """Return elements: mostly few and close together; some cases have many, some have instants far away."""
    bounded = not any(each.growth == "stream" for each in plan.growing)
    if bounded and rng.random() < 0.12:
        data = _long(rng, known, names)
    else:
        data = random_data(rng, known, names, most=rng.choice((4, 10, 10, 16)), bad_removals=True)
    data = {name: [_wide(rng, known, name, element) for element in elements] for name, elements in data.items()}
    if rng.random() < 0.08:
        data = _far(rng, data, plan)
    return data


def _long(rng: Random, known: Catalog, names: Sequence[str]) -> Data:
    """Return many pieces of data one after the other; in some cases each has keys of its own."""
    data: Data = {name: [] for name in names}
    moves_keys = rng.random() < 0.5
    statics = {name for name in names if getattr(known.find(name), "time", None) is None}
    begin: int | None = None
    for piece in range(rng.choice((6, 15, 25))):
        made = random_data(rng, known, names)
        timed = [element[0] for name, elements in made.items() if name not in statics for element in elements]
        if not timed:
            continue
        begin = min(timed) if begin is None else begin
        shift = begin - min(timed)
        begin = max(timed) + shift + rng.choice((0, 1, 1, 5))
        for name, elements in made.items():
            if name in statics:
                data[name] = data[name] or elements
                continue
            column = _column_at(known, name, "k") if moves_keys else None
            moved = [(i + shift, _with_key(row, column, piece), sign) for i, row, sign in elements]
            data[name] += moved
            if any(sign < 0 for _, _, sign in elements) or known.find(name) in known.relations.values():
                data[name] += [(begin, row, -1) for row in _left(moved)]
    return {name: sorted(elements, key=lambda element: element[0]) for name, elements in data.items()}


def _left(log: Sequence[tuple[int, tuple[Any, ...], int]]) -> list[tuple[Any, ...]]:
    """Return the rows that a log leaves in its relation."""
    held: dict[str, list[tuple[Any, ...]]] = {}
    for _, row, sign in log:
        if sign > 0:
            held.setdefault(repr(row), []).append(row)
        else:
            held[repr(row)].pop()
    return [row for each in held.values() for row in each]


def _column_at(known: Catalog, table: str, column: str) -> int | None:
    found = known.find(table)
    assert found is not None
    names = [each.name for each in found.scan().schema]  # type: ignore[union-attr]
    return names.index(column) if column in names else None


def _with_key(row: tuple[Any, ...], at: int | None, piece: int) -> tuple[Any, ...]:
    if at is None or row[at] is None:
        return row
    return (*row[:at], (row[at] + 10 * piece) % 2**31, *row[at + 1 :])


def _wide(rng: Random, known: Catalog, name: str, element: tuple[int, Any, int]) -> tuple[int, Any, int]:
    """Return an element of the wide tables with values that use the width of their types."""
    if known is not own_catalog():
        return element
    instant, row, sign = element
    columns = known.find(name).scan().schema  # type: ignore[union-attr]
    return instant, tuple(_wider(value, column) for value, column in zip(row, columns, strict=True)), sign


def _wider(value: Any, column: Any) -> Any:
    if value is None or column.type.kind not in (Kind.DECIMAL, Kind.BIGINT):
        return value
    if column.type.kind is Kind.BIGINT:
        return int(value) * (2**61 + 3)
    scale = Decimal(10) ** -column.type.scale
    return Decimal(value) * (10 ** (column.type.precision - column.type.scale - 1)) - 7 * scale * (int(value) % 2)


def _far(rng: Random, data: Data, plan: Plan) -> Data:
    """Return data at instants far from 0, or far from each other; an Rstream would speak all the time in between."""
    if rng.random() < 0.6 or any(isinstance(each, op.RStream) for each in plan.operators):
        by = rng.choice((FAR, -FAR, FAR - 3))
        return {name: [(i + by, row, sign) for i, row, sign in elements] for name, elements in data.items()}
    instants = sorted(instant for elements in data.values() for instant, _, _ in elements)
    middle = instants[len(instants) // 2] if instants else 0
    return {
        name: [(i + FAR if i >= middle else i - FAR, row, sign) for i, row, sign in elements]
        for name, elements in data.items()
    }


def _delayed(rng: Random, data: Data, delay: int) -> Data:
    """Return elements in an order of arrival in which none is late by more than the delay."""
    if not delay:
        return data
    return {
        name: [each for _, each in sorted(((e[0] + rng.randint(0, delay), e) for e in elements), key=lambda p: p[0])]
        for name, elements in data.items()
    }


# ------------------------------------------------------------------------------------------------------------ running


def sources_by_table(plan: Plan) -> dict[str, list[op.Source]]:
    """Return the sources of a plan by the table that they read."""
    found: dict[str, list[op.Source]] = {}
    for operator in plan.operators:
        if isinstance(operator, op.Source):
            found.setdefault(operator.table, []).append(operator)
    return found


Push = Callable[[Executor], None]
"""Something that happens to an executor: a batch, a heartbeat, or the end of a source."""


def pushes(plan: Plan, case: Case, setup: Setup) -> list[Push]:
    """Return all that happens to an executor, tables in a random order."""
    rng = Random(setup.seed)
    by_table = {
        table: _pushes_of(sources, batches_of(sources[0], case.data[table], setup.batch_rows, rng))
        for table, sources in sources_by_table(plan).items()
    }
    order = [table for table, made in by_table.items() for _ in made]
    rng.shuffle(order)
    return [by_table[table].pop(0) for table in order]


def batches_of(source: op.Source, elements: Sequence[Any], sizes: Sequence[int], rng: Random) -> list[ChangeBatch]:
    """Return elements in batches of random sizes that end between instants, heartbeats alone among them."""
    if source.time is None:
        contents = _rows(source, elements)
        return [ChangeBatch(contents.columns, contents.instants, None, None, BEGINNING)]
    ordered, batches, at = sorted(elements, key=lambda element: element[0]), [], 0
    while at < len(ordered):
        last = min(at + rng.choice(sizes), len(ordered))
        while last < len(ordered) and ordered[last][0] == ordered[last - 1][0]:
            last += 1
        newest = ordered[last - 1][0]
        following = ordered[last][0] if last < len(ordered) else newest + 1
        rows = _rows(source, ordered[at:last])
        batches.append(ChangeBatch(rows.columns, rows.instants, None, rows.signs, rng.randint(newest + 1, following)))
        if batches[-1].until < following and rng.random() < 0.3:
            batches.append(empty_batch([column.type for column in rows.columns], following))
        at = last
    return batches


def _rows(source: op.Source, elements: Sequence[Any]) -> SourceRows:
    columns = tuple(to_column([row[at] for _, row, _ in elements], c) for at, c in enumerate(source.columns))
    signs = np.array([sign for _, _, sign in elements], np.int64) if source.is_relation else None
    return SourceRows(columns, np.array([instant for instant, _, _ in elements], np.int64), signs)


def _pushes_of(sources: Sequence[op.Source], batches: Sequence[ChangeBatch]) -> list[Push]:
    def push(batch: ChangeBatch, executor: Executor) -> None:
        for source in sources:
            if source.time is None:
                executor.push_static(source.id, batch.columns)
            else:
                executor.push(source.id, batch)

    def end(executor: Executor) -> None:
        for source in sources:
            executor.end(source.id)

    made: list[Push] = [partial(push, batch) for batch in batches]
    return made if sources[0].time is None else [*made, end]


def run(case: Case, setup: Setup) -> dict[str, Result]:
    """Return what the engine makes of a case."""
    rng = Random(setup.seed)
    with setup.tidiness():
        executor = setup.executor(case)
        taken = Taken(case.trees)
        for push in pushes(executor.plan, case, setup):
            push(executor)
            for _ in range(rng.choice((0, 0, 1, 3))):
                executor.step()
            if rng.random() < 0.2:
                executor.run()
                taken.take(executor)
        executor.run()
        taken.take(executor)
    return taken.results()


class Taken:
    """What has been taken from an executor, or from several that do parts of one work."""

    def __init__(self, queries: Iterable[str]) -> None:
        self._changes: dict[str, dict[int, Counter[Any]]] = {query: {} for query in queries}

    def take(self, executor: Executor) -> None:
        """Take what is ready."""
        for query, changes in results(executor, Random(0)).items():
            for instant, bag in changes.items():
                self._changes[query].setdefault(instant, Counter()).update(bag)

    def results(self) -> dict[str, Result]:
        """Return all of it, netted per instant."""
        return {query: Result(_netted(changes)) for query, changes in self._changes.items()}


def _netted(changes: Mapping[int, Counter[Any]]) -> dict[int, Counter[Any]]:
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in changes.items()}
    return {instant: bag for instant, bag in netted.items() if bag}


def difference(case: Case, found: Callable[[Case], Mapping[str, Result]]) -> str | None:
    """Return where what was found differs from the definition, or how finding it failed; None if they agree."""
    try:
        results_found = found(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for query, expected in case.expected.items():
        problem = disagreement(expected, results_found[query])
        if problem is not None:
            return f"{query}: {problem}"
    return None


def check(case: Case, setup: Setup, how: Callable[[Case, Setup], Mapping[str, Result]] = run) -> None:
    """Compare the engine with the definition, and report a difference on as little as shows it."""

    def problem(of: Case) -> str | None:
        return difference(of, lambda each: how(each, setup))

    if problem(case) is None:
        return
    parts = [replace(case, texts={q: case.texts[q]}, trees={q: case.trees[q]}) for q in case.trees]
    case = next((part for part in parts if problem(part) is not None), case)
    data = minimise(case.data, lambda fewer: problem(replace(case, data=fewer)) is not None)
    smallest = replace(case, data=data)
    plan = (case.shared if setup.share else case.unshared).explain()
    text = "\n".join(case.texts.values())
    raise AssertionError(
        report(text, data, setup=str(setup), plan=plan, difference=problem(smallest) or "none any more")
    )
