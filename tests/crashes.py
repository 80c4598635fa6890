"""Runs of `cql run` that are killed with SIGKILL at chosen moments, and what their files hold afterwards.

A micro-batch goes through steps that leave traces in the checkpoint: its offsets are logged, it is computed, its
results are delivered, it is committed. A kill is aimed at one of them: the harness waits for the trace and then for a
random moment more. Nothing in the program knows of it.
"""

from __future__ import annotations

import json as json_lines
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, json, parquet

from runtime.connectors.claims import NAME as OWNER
from runtime.spark.tickets import committed, handed_out

ROOT = Path(__file__).parent.parent
KEYS = 5
ROWS = 40
PATIENCE = 900.0
_NUMBER = re.compile(r"\d+")

Elements = list[tuple[object, ...]]

SCRIPT = """
CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at
  FROM parquet OPTIONS (path '{data}/bid', maxFilesPerTrigger '1');
CREATE STREAM ask (auction INT, price INT, at INT) TIMESTAMP BY at
  FROM parquet OPTIONS (path '{data}/ask', maxFilesPerTrigger '1');
CREATE RELATION item (auction INT, name STRING) FROM csv OPTIONS (path '{data}/item.csv');

REGISTER QUERY pairs AS
  SELECT Istream(b.auction, b.price, a.price AS asked)
  FROM bid [Range 6 Seconds] AS b, ask [Range 4 Seconds] AS a WHERE b.auction = a.auction
  INTO parquet OPTIONS (path '{out}/pairs');
REGISTER QUERY totals AS
  SELECT auction, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS best
  FROM bid [Range 12 Seconds Slide 3 Seconds] GROUP BY auction
  INTO json OPTIONS (path '{out}/totals');
REGISTER QUERY recent AS
  SELECT i.name, b.price FROM bid [Partition By auction Rows 2] AS b, item AS i WHERE b.auction = i.auction
  INTO csv OPTIONS (path '{out}/recent', header 'true');
REGISTER QUERY latest AS
  SELECT price, COUNT(*) AS n FROM ask [Rows 15] GROUP BY price
  INTO json OPTIONS (path '{out}/latest');
REGISTER QUERY sizes AS
  SELECT t.n, COUNT(*) AS auctions
  FROM (SELECT auction, COUNT(*) AS n FROM bid [Range 9 Seconds] GROUP BY auction) AS t GROUP BY t.n
  INTO stream OPTIONS (path '{out}/sizes.txt');
"""


def write_input(folder: Path, files: int, rng: random.Random) -> None:
    """Write streams that are read a file at a time; what times the files have says nothing of their order."""
    for name in ("bid", "ask"):
        (folder / name).mkdir(parents=True)
        at = 0
        for number in range(files):
            instants = sorted(at + rng.randrange(4) for _ in range(ROWS))
            at += 4
            columns = {
                "auction": pa.array((rng.randrange(KEYS) for _ in instants), pa.int32()),
                "price": pa.array((rng.randrange(20) for _ in instants), pa.int32()),
                "at": pa.array(instants, pa.int32()),
            }
            path = folder / name / f"{number:04}.parquet"
            parquet.write_table(pa.table(columns), path)
            seconds = 1_000_000_000 + rng.choice((0, 0, number, -number, 30 * 86_400 * number))
            os.utime(path, (seconds, seconds))
    (folder / "item.csv").write_text("".join(f"{number},item {number}\n" for number in range(KEYS)))


def release(source: Path, folder: Path, files: int) -> None:
    """Let as many files of each stream as are said be in a folder, with the times that they have in another."""
    for name in ("bid", "ask"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in sorted((source / name).iterdir())[:files]:
            if not (folder / name / path.name).exists():
                shutil.copy2(path, folder / name / path.name)
    shutil.copy2(source / "item.csv", folder / "item.csv")


def planned(checkpoint: Path) -> list[Path]:
    """Return the files of a checkpoint that are in a micro-batch which is not committed."""
    found = []
    for log in (checkpoint / "integer" / "files").glob("*/log.jsonl"):
        spark, name = checkpoint / "integer" / "spark", log.parent.name
        done = committed(spark, name)
        numbers = {number for number, entry in handed_out(spark, name).items() if entry > done}
        lines = [json_lines.loads(line) for line in log.read_text().splitlines()]
        found += [Path(line["path"]) for line in lines if line.get("number") in numbers]
    return found


def write_script(path: Path, data: Path, out: Path) -> Path:
    """Write the queries, with their results in a folder."""
    path.write_text(SCRIPT.format(data=data, out=out))
    return path


def results(out: Path) -> dict[str, Elements]:
    """Return all elements of all queries, each with its instant and sign, sorted."""
    found = {
        "pairs": _rows(parquet.read_table(path) for path in _parts(out / "pairs")),
        "totals": _rows(json.read_json(path) for path in _parts(out / "totals")),
        "recent": _rows(csv.read_csv(path) for path in _parts(out / "recent")),
        "latest": _rows(json.read_json(path) for path in _parts(out / "latest")),
        "sizes": [tuple(line.split(",")) for line in (out / "sizes.txt").read_text().splitlines()],
    }
    return {name: sorted(elements, key=repr) for name, elements in found.items()}


def _parts(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.iterdir() if path.name != OWNER)


def _rows(tables: Iterable[pa.Table]) -> Elements:
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


# Killing


@dataclass(frozen=True)
class Traces:
    """What a run has left so far: its newest batch that is logged, delivered in part, committed; and its messages."""

    logged: int
    delivered: int
    committed: int
    messages: int

    @property
    def step(self) -> str:
        """In words, how far the newest micro-batch has come."""
        if self.logged < 0:
            return "nothing is logged"
        steps = ("committed", self.committed), ("delivered", self.delivered), ("logged", self.logged)
        return f"batch {self.logged} is {next(word for word, batch in steps if batch == self.logged)}"


def traces(checkpoint: Path, out: Path) -> Traces:
    """Return what a checkpoint, and the results beside it, show now; cheap, because it is asked often."""
    folder = checkpoint / "integer"
    return Traces(
        _newest(folder / "spark" / "offsets"),
        _newest(out / "pairs"),
        _newest(folder / "spark" / "commits"),
        _newest(folder / "control"),
    )


def _newest(folder: Path) -> int:
    """Return the greatest number that names a file of a folder; hidden files do not count."""
    try:
        names = [name for name in os.listdir(folder) if name[0] != "."]
    except FileNotFoundError:
        return -1
    return max((int(_NUMBER.search(name)[0]) for name in names), default=-1)  # type: ignore[index]


Wanted = Callable[[Traces, Traces], bool]
"""Tells, from the traces at the start of a run and from those of now, whether the step has come."""


@dataclass(frozen=True)
class Aim:
    """When to kill: at which step, and how long after it."""

    name: str
    wanted: Wanted
    seconds: float
    """The random time after the step is at most this."""


AIMS = (
    Aim("while a micro-batch is computed", lambda start, now: now.logged > now.committed > start.committed, 0.6),
    Aim(
        "when results have been delivered", lambda start, now: now.delivered > max(start.delivered, now.committed), 0.03
    ),
    Aim("when a micro-batch has been committed", lambda start, now: now.committed > start.committed + 1, 0.03),
    Aim("while the last instants are closed", lambda start, now: now.messages > start.messages, 0.8),
    Aim("while the run starts", lambda start, now: True, 8.0),
)
*IN_BATCHES, AT_THE_END, AT_THE_START = AIMS


def aims(count: int) -> list[Aim]:
    """Return as many aims: the steps of micro-batches in turn, starts among them, and the end for the last."""
    cycle = [*IN_BATCHES, AT_THE_START]
    return [*(cycle[at % len(cycle)] for at in range(count - 1)), AT_THE_END]


def run_of(script: Path, checkpoint: Path) -> list[str | Path]:
    """Return the command that runs a script."""
    return ["repl.cli", "run", script, "--checkpoint", checkpoint]


class Run:
    """A program in a process group of its own, its JVM included, with a folder for what they put aside.

    `command` is a module and its arguments.
    """

    def __init__(self, command: Sequence[str | Path], aside: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(aside), "SPARK_LOCAL_DIRS": str(aside)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and what was printed."""
        try:
            printed, _ = self._process.communicate(timeout=PATIENCE)
        finally:
            self.kill_group()
        return self._process.returncode, printed

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until something holds, and tell whether the run was still at work then."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def kill(self, driver_only: bool) -> bool:
        """Kill the driver, and its JVM with it unless that is left to notice; tell whether the run was at work."""
        was_at_work = self._process.poll() is None
        if driver_only:
            self._process.kill()
        else:
            self.kill_group()
        self._process.communicate(timeout=PATIENCE)
        return was_at_work

    def kill_group(self) -> None:
        """Kill all that is left of the process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Kill:
    """A run that was killed: what was aimed at, whether only the driver was, and what it has left."""

    run: Run
    aim: Aim
    driver_only: bool
    left: Traces

    def __str__(self) -> str:
        whom = "driver" if self.driver_only else "driver and JVM"
        return f"{whom} killed {self.aim.name}: {self.left.step}"


def killed(
    command: Sequence[str | Path],
    checkpoint: Path,
    out: Path,
    aside: Path,
    aim: Aim,
    driver_only: bool,
    rng: random.Random,
) -> Kill:
    """Start a run, or let it go on from its checkpoint, and kill it.

    If only the driver is killed, its JVM ends by itself while the next run is starting already.
    """
    start = traces(checkpoint, out)
    run = Run(command, aside)
    try:
        has_come = run.wait_for(lambda: aim.wanted(start, traces(checkpoint, out)))
        time.sleep(rng.uniform(0, aim.seconds))
        was_at_work = run.kill(driver_only)
    except BaseException:
        run.kill_group()
        raise
    left = traces(checkpoint, out)
    assert has_come and was_at_work, f"the run ended before it was killed {aim.name}: {start}, {left}"
    return Kill(run, aim, driver_only, left)
