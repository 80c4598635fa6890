"""Bombs on Spark: small inputs that blow up what computes them naively, each under a bound on memory.

Every case is a script that `cql run` runs in a process of its own, on Spark with two tasks at a time. What all its
processes take together, Java and Python, is looked at five times a second; memory that they share counts once. A case
has to end as it should within `CQL_SECONDS` (1800), either well or with the error that says what is too much, and to
stay below 4 GB. `CQL_BENCH=count,gap` picks cases, `CQL_ENGINE=local` runs them without Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 4 << 30
ROWS = 20_000
LOOKS_PER_SECOND = 5


@dataclass(frozen=True)
class Case:
    """A query over the streams below, and the code of the error that it ends with, if it should."""

    name: str
    what: str
    query: str
    error: str = ""


PAIRED = "FROM a [Range 1000], b [Range 1000] WHERE a.k = b.k"
CASES = [
    Case("count", "a hot key, 400 M pairs, counted in groups",
         f"SELECT a.v % 7 AS g, COUNT(*) AS n {PAIRED} GROUP BY g"),
    Case("cross", "a cross join, 400 M pairs, counted", "SELECT COUNT(*) AS n FROM a [Range 1000], b [Range 1000]"),
    Case("distinct", "a hot key, 400 M pairs, the different ones", f"SELECT DISTINCT a.k, b.v % 3 AS r {PAIRED}"),
    Case("pairs", "a hot key, 20 M pairs, all of them put out",
         "SELECT Istream(a.v, c.v AS w) FROM a [Range Unbounded], c [Range Unbounded] WHERE a.k = c.k"),
    Case("kept", "a hot key, 400 M pairs that are to be taken back", f"SELECT a.v, b.v AS w {PAIRED}", "E514"),
    Case("gap", "Rstream at every tick, two rows with 2 billion ticks between them",
         "SELECT Rstream(k, v) FROM gap [Range 20000000]"),
    Case("slide", "Rstream at every microsecond, two rows with a day between them",
         "SELECT Rstream(k, v) FROM day [Range 1 Second Slide 1 Microsecond]"),
    Case("regexp", "an expression that takes for ever where it is tried out",
         "SELECT Istream(k) FROM texts [Now] WHERE regexp_like(k, '^(a+)+$')"),
    Case("texts", "65 texts side by side", f"SELECT Istream({' || '.join(['k'] * 65)} AS t) FROM texts [Now]"),
    Case("terms", "130 terms of a sum", f"SELECT Istream({' + '.join(['v'] * 130)} AS t) FROM c [Now]"),
    Case("cases", "85 CASEs in each other",
         f"SELECT Istream({'CASE WHEN v > 1 THEN v ELSE ' * 85}0{' END' * 85} AS t) FROM c [Now]"),
]  # fmt: skip

TABLES = {
    "a": ("k INT, v INT, at INT", [f"1,{at},{at // 100}" for at in range(ROWS)]),
    "b": ("k INT, v INT, at INT", [f"1,{at},{at // 100}" for at in range(ROWS)]),
    "c": ("k INT, v INT, at INT", [f"1,{at},{at // 10}" for at in range(1000)]),
    "gap": ("k INT, v INT, at INT", ["1,1,0", "1,2,2000000000"]),
    "day": ("k INT, v INT, at TIMESTAMP", ["1,1,2026-01-01 00:00:00", "1,2,2026-01-02 00:00:00"]),
    "texts": ("k STRING, at INT", [f"{'a' * 40}b,1", f"{'a' * 40},2"]),
}


@dataclass(frozen=True)
class Found:
    """How a run ended."""

    code: int | None
    said: str
    peak: int
    seconds: float

    def verdict(self, case: Case) -> str:
        """Return whether that is as it should be."""
        if self.code is None:
            return "not done in time"
        ended = self.code == 0 if not case.error else self.code == 1 and f"{case.error}:" in self.said
        if not ended:
            return f"exit {self.code}: {(self.said.strip().splitlines() or ['?'])[0][:100]}"
        return "ok" if self.peak <= LIMIT else "too much memory"


def main() -> None:
    """Run the cases and print a table; the exit status says whether all of them are as they should be."""
    cases = {case.name: case for case in CASES}
    chosen = os.environ.get("CQL_BENCH", ",".join(cases)).split(",")
    print(f"{'case':<10}{'peak MB':>9}{'seconds':>9}{'result MB':>11}  verdict")
    verdicts = []
    for case in map(cases.__getitem__, chosen):
        with tempfile.TemporaryDirectory() as folder:
            found = run(case, Path(folder))
            size = sum(each.stat().st_size for each in Path(folder, "out").rglob("*") if each.is_file())
        verdicts.append(found.verdict(case))
        print(
            f"{case.name:<10}{found.peak >> 20:>9,}{found.seconds:>9.0f}{size >> 20:>11,}  {verdicts[-1]}: {case.what}",
            flush=True,
        )
    sys.exit(any(verdict != "ok" for verdict in verdicts))


def run(case: Case, folder: Path) -> Found:
    """Run a case in a folder."""
    streams = []
    for name, (columns, rows) in TABLES.items():
        heading = ",".join(column.split()[0] for column in columns.split(", "))
        (folder / f"{name}.csv").write_text("\n".join([heading, *rows]))
        options = f"path '{folder / name}.csv', header 'true'"
        streams.append(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY at FROM csv OPTIONS ({options});")
    query = f"REGISTER QUERY bomb AS {case.query} INTO parquet OPTIONS (path '{folder / 'out'}');"
    script = folder / "bomb.cql"
    script.write_text("\n".join([*streams, query]))
    engine = os.environ.get("CQL_ENGINE", "spark")
    command = [str(Path(sys.executable).with_name("cql")), "run", str(script), "--engine", engine]
    with (folder / "said").open("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        peak, end = 0, began + float(os.environ.get("CQL_SECONDS", "1800"))
        while process.poll() is None and time.monotonic() < end:
            peak = max(peak, sum(map(_memory, _family(process.pid))))
            time.sleep(1 / LOOKS_PER_SECOND)
        code = process.poll()
        if code is None:
            for each in reversed(list(_family(process.pid))):
                with suppress(ProcessLookupError):
                    os.kill(each, 9)
            process.wait()
        said.seek(0)
        return Found(code, said.read(), peak, time.monotonic() - began)


def _family(process: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    yield process
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in each.read_text().split():
                yield from _family(int(child))


def _memory(process: int) -> int:
    """Return the bytes of a process that are in memory; of those that it shares, its share."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
