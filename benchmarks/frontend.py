"""Parsing and binding: a typical query, a script of 1,000 statements, and the time to import.

Targets: a typical query under 5 ms, the script under 2 s, the import under 0.5 s. Medians of repeated
runs; the import is measured in fresh processes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import cql

STREAMS = """
CREATE STREAM person (id BIGINT, name STRING, city STRING, state STRING, at TIMESTAMP) TIMESTAMP BY at;
CREATE STREAM auction (id BIGINT, seller BIGINT, category INT, expires TIMESTAMP, at TIMESTAMP) TIMESTAMP BY at;
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, at TIMESTAMP)
    TIMESTAMP BY at DELAY 5 SECONDS;
"""

TYPICAL = {
    "filter": "SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001) AND price > 100",
    "sliding aggregate": "SELECT auction, COUNT(*) AS n, MAX(price) FROM bid [Range 10 Seconds Slide 2 Seconds] "
    "GROUP BY auction HAVING COUNT(*) > 3",
    "windowed join": "SELECT Istream(p.name, p.city, a.id) FROM person [Range 1 Hour] AS p, "
    "auction [Range 1 Hour] AS a WHERE a.seller = p.id AND a.category = 10 AND p.state IN ('or', 'id', 'ca')",
    "nested": "SELECT category, AVG(top) FROM (SELECT a.id, a.category, MAX(b.price) AS top FROM auction a, bid b "
    "WHERE b.auction = a.id AND b.at BETWEEN a.at AND a.expires GROUP BY a.id, a.category) AS q GROUP BY category",
}


def main() -> None:
    """Run the benchmark and print a table."""
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    print(f"{'what':<34}{'median':>12}{'target':>12}")
    for name, query in TYPICAL.items():
        _row(f"query: {name}", _median(lambda query=query: cql.bind(query, catalog), 50) * 1000, "ms", "5 ms")  # type: ignore[misc]
    script = _script(1000)
    _row("script of 1,000 statements", _median(lambda: cql.Catalog().execute(script), 5), "s", "2 s")
    _row("import cql", statistics.median(_import_seconds() for _ in range(7)), "s", "0.5 s")


def _row(what: str, value: float, unit: str, target: str) -> None:
    print(f"{what:<34}{value:>9.2f} {unit:<2}{target:>12}")


def _script(statements: int) -> str:
    queries = list(TYPICAL.values())
    registered = (
        f"REGISTER QUERY q{at} AS {queries[at % len(queries)]};" for at in range(statements - STREAMS.count(";"))
    )
    return STREAMS + "\n".join(registered)


def _median(run: Callable[[], object], times: int) -> float:
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _import_seconds() -> float:
    code = "import time; start = time.perf_counter(); import cql; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
