"""Planning: 100 queries over five streams as one network, one more added, and what sharing saves.

Targets: the 100 queries under 2 s, one more under 50 ms, and at most a fifth of the unshared stores.
"""

from __future__ import annotations

import statistics
import time

from cql.catalog import Catalog
from planner.network import Network
from planner.plan import combine, compile_query

STREAMS = "".join(
    f"CREATE STREAM s{at} (k INT, v INT, w DOUBLE, name STRING, t TIMESTAMP) TIMESTAMP BY t;" for at in range(5)
)

MIX = (
    "SELECT k, COUNT(*), SUM(v) FROM {a} [Range {n} Seconds] GROUP BY k",
    "SELECT k, MAX(v) FROM {a} [Range {n} Seconds Slide 1 Second] GROUP BY k",
    "SELECT Istream(x.k, x.v, y.v) FROM {a} [Range {n} Seconds] AS x, {b} [Range 30 Seconds] AS y WHERE x.k = y.k",
    "SELECT k, AVG(w) FROM {a} [Partition By k Rows 10] GROUP BY k HAVING COUNT(*) >= 5",
    "SELECT k, MIN(v), MAX(v) FROM {a} [Range {n} Seconds] GROUP BY k",
    "SELECT * FROM {a} [Range {n} Seconds] AS x WHERE EXISTS (SELECT 1 FROM {b} [Range 1 Minute] AS y WHERE y.k = x.k)",
    "SELECT AVG(v) FROM {a} [Rows {m}]",
    "SELECT x.k, y.v FROM {a} [Rows {m}] AS x, {b} [Range 1 Minute] AS y WHERE x.k = y.k",
    "SELECT k, v FROM {a} WHERE v > 10 AND name = 'x'",
    "SELECT DISTINCT k FROM {a} [Range {n} Seconds]",
)


def queries(count: int) -> list[str]:
    """Return a mix of queries over the five streams with a few different windows, as a dashboard has it."""
    made = []
    for at in range(count):
        first, second = f"s{at % 5}", f"s{(at + 1) % 5}"
        made.append(MIX[at % len(MIX)].format(a=first, b=second, n=10 * (1 + at % 3), m=100 * (1 + at % 2)))
    return made


def main() -> None:
    """Run the benchmark and print a table."""
    catalog = Catalog()
    catalog.execute(STREAMS)
    texts = queries(101)
    catalog.execute(";".join(f"REGISTER QUERY q{at} AS {text}" for at, text in enumerate(texts)))
    definitions = list(catalog.queries.values())
    many, one = [], []
    for _ in range(5):
        start = time.perf_counter()
        network = Network.of(definitions[:100])
        plan = network.plan
        many.append(time.perf_counter() - start)
        start = time.perf_counter()
        _ = network.with_query(definitions[100]).plan
        one.append(time.perf_counter() - start)
    unshared = combine(compile_query(q.name, q.tree, share=False) for q in definitions[:100])
    print(f"{'what':<34}{'measured':>12}{'target':>12}")
    print(f"{'planning 100 queries':<34}{statistics.median(many):>10.2f} s{'2 s':>12}")
    print(f"{'adding one more':<34}{statistics.median(one) * 1000:>9.1f} ms{'50 ms':>12}")
    print(f"{'operators, shared / unshared':<34}{len(plan.operators):>5} /{len(unshared.operators):>5}")
    ratio = len(plan.stores) / len(unshared.stores)
    print(f"{'stores, shared / unshared':<34}{len(plan.stores):>5} /{len(unshared.stores):>5}{'1 / 5':>12}")
    print(f"{'ratio of stores':<34}{ratio:>12.3f}{'0.2':>12}")
