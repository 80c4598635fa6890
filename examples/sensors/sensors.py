"""Sensors in rooms, with the Python API: a stream from a pandas data frame, functions of one's own, and a snapshot.

Shows: `engine.stream` and `engine.relation` on data, a scalar function and an aggregate in Python, `query.changes()`,
`query.snapshot()`, and rows that are pushed one by one.
Run: python examples/sensors/sensors.py              in this process
     python examples/sensors/sensors.py --spark      on a local Spark, with the same answers
"""

from __future__ import annotations

import sys

import pandas as pd

import cql

READINGS = pd.DataFrame(
    [
        ("attic", 25.0, 0),
        ("cellar", 12.5, 0),
        ("attic", 26.0, 10),
        ("cellar", 12.25, 15),
        ("attic", 31.0, 20),
        ("attic", 33.5, 30),
        ("cellar", 12.0, 35),
        ("attic", 27.0, 40),
        ("attic", 26.5, 70),
    ],
    columns=["sensor", "celsius", "second"],
)
ROOMS = pd.DataFrame([("attic", "top"), ("cellar", "ground")], columns=["sensor", "floor"])


def fahrenheit(celsius: float) -> float:
    """Return a temperature on the other scale."""
    return celsius * 9 / 5 + 32


class Swing:
    """How far apart the warmest and the coldest value of a group are: an aggregate with a state of its own."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, value: float) -> None:
        self.values.append(value)

    def remove(self, value: float) -> None:
        self.values.remove(value)

    def result(self) -> float:
        return max(self.values) - min(self.values)


def over_a_data_frame(engine: cql.Engine) -> None:
    """Run queries over data that is there as a whole."""
    engine.function(fahrenheit)
    engine.aggregate(Swing)
    engine.stream("reading", READINGS, timestamp="second")
    engine.relation("room", ROOMS)
    swings = engine.register(
        "swings",
        "SELECT floor, swing(celsius) AS swing, fahrenheit(MAX(celsius)) AS warmest "
        "FROM reading [Range 30 Seconds] AS r JOIN room ON r.sensor = room.sensor GROUP BY floor",
    )
    alarms = engine.register(
        "alarms",
        "SELECT Istream(sensor, MAX(celsius) AS celsius) FROM reading [Rows 4] "
        "GROUP BY sensor HAVING MAX(celsius) > 30",
    )
    engine.start()
    for change in sorted(swings.changes(), key=lambda change: (change.ts, change.op == "+", change.row["floor"])):
        print(change.ts, change.op, change.row)
    print("alarms:", [(change.ts, *change.row.values()) for change in alarms.changes()])
    print("in the end:", sorted(swings.snapshot().to_pylist(), key=str))


def over_pushed_rows(engine: cql.Engine) -> None:
    """Run a query over rows that come one by one; an instant is complete when a later row has come."""
    engine.execute("CREATE STREAM reading (sensor STRING, celsius DOUBLE, second INT) TIMESTAMP BY second")
    latest = engine.register("latest", "SELECT sensor, celsius FROM reading [Partition By sensor Rows 1]")
    engine.push("reading", [("attic", 25.0, 0), ("cellar", 12.5, 0)])
    print("after second 0:", latest.snapshot().to_pylist())
    engine.push("reading", [("attic", 26.0, 10)])
    print("after second 10:", sorted(latest.snapshot().to_pylist(), key=str))
    engine.stop()
    print("after the end:", sorted(latest.snapshot().to_pylist(), key=str))


def main(arguments: list[str]) -> None:
    is_local = "--spark" not in arguments
    with cql.Engine(local=is_local) as engine:
        over_a_data_frame(engine)
    with cql.Engine(local=is_local) as engine:
        over_pushed_rows(engine)


if __name__ == "__main__":
    main(sys.argv[1:])
