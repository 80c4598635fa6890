"""Scheduling: the queue sizes of the thesis's examples to the digit, and the memory of a burst on the engine.

The first part runs the schedulers on a virtual clock: the figures for FIFO and greedy are those printed in section
2.3.2 of the thesis, those for Chain follow from its definition, and the benchmark fails if any differs.

The second part runs queries on the engine. Arrivals come in bursts, and between two of them there is time for a part
of the work that one makes; work is measured as it is done, only arrivals are on a virtual clock. Target: under the
heaviest load Chain needs the least memory for queues.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

import numpy as np
import pyarrow as pa

from cql import bind
from cql.catalog import Catalog
from planner import operators as op
from planner.costs import Estimate
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.engine.executor import Executor
from runtime.engine.queues import Queue
from runtime.engine.scheduling import POLICIES, Fifo, Greedy, Ready, RoundRobin, Scheduler, SteepestChain

ARRIVALS = 7
"""A batch arrives at each of the instants 0 to 6, then none."""


@dataclass(frozen=True)
class Line:
    """A path of operators, each of which takes one unit of time for what is left of one batch.

    `sizes[i]` is how many elements of a batch are left after i operators.
    """

    sizes: tuple[int, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return ("source", *(f"O{at}" for at in range(1, len(self.sizes))))

    def estimate(self, operator: str) -> Estimate:
        """Return what an operator costs and passes on, exactly."""
        at = self.path.index(operator)
        if at == 0:
            return Estimate(0.0, 1.0)
        return Estimate(1 / self.sizes[at - 1], self.sizes[at] / self.sizes[at - 1])

    def width(self, operator: str) -> float:
        """Return the size of an element: memory is counted in elements here."""
        return 1.0

    def scheduler(self, policy: str) -> Scheduler:
        """Return a scheduler of the engine for this path."""
        match policy:
            case "fifo":
                return Fifo(self.path)
            case "round-robin":
                return RoundRobin()
            case "greedy":
                return Greedy(self.path, [self.path], self)
        return SteepestChain(self.path, [self.path], self)


EXAMPLES = {"example 1": Line((10, 2, 0)), "example 2": Line((10, 9, 9, 0))}

EXPECTED = {
    ("example 1", "fifo"): ([1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0], [3.2, 3.0, 2.2, 2.0, 1.2, 1.0, 0.2, 0.0]),
    ("example 1", "greedy"): ([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2], [1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0]),
    ("example 1", "chain"): ([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2], [1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0]),
    ("example 2", "fifo"): (
        [1.0, 1.9, 2.9, 3.0, 3.9, 4.9, 5.0],
        [4.9, 4.9, 4.0, 3.9, 3.9, 3.0, 2.9, 2.9, 2.0, 1.9, 1.9, 1.0, 0.9, 0.9, 0.0],
    ),
    ("example 2", "greedy"): (
        [1.0, 1.9, 2.8, 3.7, 4.6, 5.5, 6.4],
        [6.3, 6.3, 5.4, 5.4, 4.5, 4.5, 3.6, 3.6, 2.7, 2.7, 1.8, 1.8, 0.9, 0.9, 0.0],
    ),
    ("example 2", "chain"): (
        [1.0, 1.9, 2.9, 3.0, 3.9, 4.9, 5.0],
        [4.9, 4.9, 4.0, 3.9, 3.9, 3.0, 2.9, 2.9, 2.0, 1.9, 1.9, 1.0, 0.9, 0.9, 0.0],
    ),
}
"""Total queue size in batches, during the burst (as printed in the thesis) and after it, until all is empty."""


def queue_sizes(line: Line, scheduler: Scheduler, arrivals: int = ARRIVALS) -> list[float]:
    """Return the total queue size, in batches, at each instant until nothing is left."""
    path = line.path
    queues = [Queue(f"queue/{producer}", (f"{reader}:0",), True) for producer, reader in pairwise(path)]
    sizes: list[float] = []
    at = 0
    while at < arrivals or sizes[-1] > 0:
        if at < arrivals:
            queues[0].put(_elements(at, line.sizes[0]), at)
        sizes.append(sum(queue.held_elements for queue in queues) / line.sizes[0])
        ready = list(_ready(path, queues))
        if ready:
            chosen = ready[scheduler.next(ready)]
            step = path.index(chosen.operator)
            queues[step - 1].pop(f"{chosen.operator}:0", line.sizes[step - 1])
            if step < len(queues):
                queues[step].put(_elements(chosen.arrival, line.sizes[step]), chosen.arrival)
        at += 1
    return sizes


def _ready(path: Sequence[str], queues: Sequence[Queue]) -> Iterator[Ready]:
    for operator, queue in zip(path[1:], queues, strict=True):
        waiting = queue.waiting(f"{operator}:0")
        if waiting is not None:
            yield Ready(operator, 0, *waiting)


def _elements(instant: int, rows: int) -> ChangeBatch:
    return ChangeBatch((), np.full(rows, instant, np.int64), None, None, instant + 1)


def examples() -> None:
    """Print the queue sizes of the examples, and fail where they are not those expected."""
    for name, line in EXAMPLES.items():
        print(f"{name}: n -> " + " -> ".join(f"{size / line.sizes[0]:g} n" for size in line.sizes[1:]))
        print(f"  {'time':<12}" + "".join(f"{at:>6}" for at in range(ARRIVALS)) + "   average   until empty")
        for policy in POLICIES:
            sizes = queue_sizes(line, line.scheduler(policy))
            burst = sizes[:ARRIVALS]
            shown = "".join(f"{size:>6.1f}" for size in burst)
            print(f"  {policy:<12}{shown}{sum(burst) / ARRIVALS:>10.1f}{sum(sizes):>14.1f}")
            during, after = EXPECTED.get((name, policy), (sizes, []))
            assert sizes == [*during, *after], f"{policy} on {name}: {sizes}, expected {[*during, *after]}"
        print()


TABLES = """
CREATE STREAM packets (link STRING, host STRING, bytes INT, port INT, at INT) TIMESTAMP BY at;
CREATE STREAM alarms (link STRING, level INT, at INT) TIMESTAMP BY at;
"""
QUERIES = {
    "scans": "SELECT UPPER(host) || '-' || link AS what, bytes * 8 AS bits FROM packets WHERE port = 22",
    "largest": "SELECT link, bytes FROM packets [Rows 1000] WHERE bytes > 1480",
    "alarmed": "SELECT Istream(p.link, p.bytes, a.level) FROM packets [Range 60] p, alarms [Range 60] a "
    "WHERE p.link = a.link AND p.port < 2000",
    "load": "SELECT link, SUM(bytes), MAX(bytes) FROM packets [Range 60] WHERE port > 60000 GROUP BY link",
}
"""Filters, a join and an aggregate. The filter of `largest` is above its window, which passes on more than it gets."""

ROWS = 20_000
INSTANTS = 10
"""How many rows an arrival has, and how many instants it spans."""

BURST = 10
BURSTS = 2
"""How many arrivals a burst has, one at each tick, and how many bursts come, each after a pause of the same length."""

CHUNK_ROWS = 5_000
LOADS = (1.5, 2.0, 4.0)
"""How much more arrives in a burst than there is time for."""

REPEATS = 3
"""How often each figure is measured; the median counts."""


def network() -> Plan:
    """Return the plan of the queries."""
    catalog = Catalog()
    catalog.execute(TABLES)
    return combine(compile_query(name, bind(text, catalog)) for name, text in QUERIES.items())


def arrival(number: int) -> dict[str, ChangeBatch]:
    """Return what arrives together, by stream."""
    rng = np.random.default_rng(number)
    links = pa.array([f"link-{at:03}" for at in range(200)])
    hosts = pa.array([f"host-{at:05}.example.net" for at in range(5000)])
    columns = {
        "packets": (
            links.take(pa.array(rng.integers(0, 200, ROWS))),
            hosts.take(pa.array(rng.integers(0, 5000, ROWS))),
            pa.array(rng.integers(40, 1501, ROWS, np.int32)),
            pa.array(np.where(rng.random(ROWS) < 0.05, 22, rng.integers(0, 65536, ROWS)).astype(np.int32)),
        ),
        "alarms": (links.take(pa.array(rng.integers(0, 200, 20))), pa.array(rng.integers(1, 6, 20, np.int32))),
    }
    return {table: _timed(each, number, rng) for table, each in columns.items()}


def _timed(columns: tuple[pa.Array, ...], number: int, rng: np.random.Generator) -> ChangeBatch:
    start = np.sort(rng.integers(INSTANTS * number, INSTANTS * (number + 1), len(columns[0])))
    return ChangeBatch((*columns, pa.array(start.astype(np.int32))), start, None, None, INSTANTS * (number + 1))


@dataclass
class Burst:
    """The queries under a policy, on a machine that has a given number of seconds between two ticks."""

    policy: str
    seconds: float
    peak: int = 0
    worked: float = 0.0
    credit: float = 0.0

    def __post_init__(self) -> None:
        self.plan = network()
        self.sources = {each.table: each.id for each in self.plan.operators if isinstance(each, op.Source)}
        self.executor = Executor(self.plan, policy=self.policy, chunk_rows=CHUNK_ROWS)

    def run(self) -> None:
        """Let the bursts arrive, and work until nothing is left."""
        arrivals = iter(range(BURSTS * BURST))
        for tick in range(2 * BURSTS * BURST):
            if tick // BURST % 2 == 0:
                for table, batch in arrival(next(arrivals)).items():
                    self.executor.push(self.sources[table], batch)
                self._note()
            self._work(self.seconds)
        self._work(float("inf"))

    def _work(self, seconds: float) -> None:
        """Work for a time; a step that took longer is paid for later, but time without work is lost."""
        self.credit += seconds
        while self.credit > 0:
            start = time.process_time()
            if not self.executor.step():
                self.credit = 0.0
                return
            taken = time.process_time() - start
            self.credit -= taken
            self.worked += taken
            self._note()

    def _note(self) -> None:
        self.peak = max(self.peak, self.executor.statistics.queued_bytes)


@cache
def seconds_per_arrival() -> float:
    """Return the work that one arrival makes, measured."""
    for _ in range(2):
        burst = Burst("fifo", float("inf"))
        burst.run()
    return burst.worked / (BURSTS * BURST)


def engine_burst(policy: str, load: float = LOADS[-1]) -> int:
    """Return the most bytes that all queues together hold under a policy."""
    burst = Burst(policy, seconds_per_arrival() / load)
    burst.run()
    return burst.peak


def bursts() -> None:
    """Print the peaks of each policy, and fail if Chain's is not the lowest under the heaviest load."""
    print(f"{len(QUERIES)} queries, {BURSTS} bursts of {BURST} x {ROWS:,} rows; peak of all queues together, in MB")
    print(f"  {'load':<12}" + "".join(f"{load:>8g}" for load in LOADS))
    peaks = {}
    for policy in POLICIES:
        peaks[policy] = [median(engine_burst(policy, load) for _ in range(REPEATS)) for load in LOADS]
        print(f"  {policy:<12}" + "".join(f"{peak / 1e6:>8.2f}" for peak in peaks[policy]))
    heaviest = {policy: found[-1] for policy, found in peaks.items()}
    assert min(heaviest, key=heaviest.__getitem__) == "chain", f"chain is not the lowest: {heaviest}"


def main() -> None:
    """Run the benchmark and print its tables."""
    examples()
    bursts()
