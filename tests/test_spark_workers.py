"""The Python processes of Spark: which Python they are, what they import, and what becomes of a run when one dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cql
from cql import Catalog, CqlError

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from runtime.spark import workers
from runtime.spark.broadcast import Sent, folder_of_program
from runtime.spark.run import SparkRun
from runtime.spark.streaming import MOST_STARTS, SparkQuery

QUERY = "SELECT auction, SUM(slow(price)) AS total FROM bid [Range 3 Seconds] GROUP BY auction"
BIDS = [{"auction": n % 3, "price": n, "at": n // 4} for n in range(40)]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# Processes that die, and tasks that fail


def totals(engine: cql.Engine, ends: Path | None) -> list[Any]:
    """Return the changes of a query whose function ends its process the first time, if it is to."""
    engine.stream("bid", BIDS, timestamp="at")

    @engine.function
    def slow(price: int) -> int:
        if ends is not None and price == 30 and not ends.exists():
            ends.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return price

    query = engine.register("totals", QUERY)
    engine.start()
    return sorted(query.changes(), key=str)


def test_a_process_that_is_killed_changes_no_answer(spark: SparkSession) -> None:
    killed = Path("killed").absolute()
    found = totals(cql.Engine(spark), killed)
    assert killed.exists()
    assert found == totals(cql.Engine(local=True), None)


def calls_until_it_fails(engine: cql.Engine) -> int:
    """Return how often a function is called that cannot divide by zero."""
    called = Path("called").absolute()
    called.unlink(missing_ok=True)
    engine.stream("bid", BIDS, timestamp="at")

    @engine.function
    def share(price: int) -> int:
        with called.open("a") as file:
            file.write(f"{price}\n")
        return 100 // price

    engine.register("shares", "SELECT Istream(share(price) AS share) FROM bid [Now] WHERE price = 0")
    with pytest.raises(CqlError, match="ZeroDivisionError") as caught:
        engine.start()
    assert str(caught.value).count("ZeroDivisionError") == 1
    return len(called.read_text().splitlines())


def test_an_error_of_the_user_ends_all_attempts_and_is_told_once(spark: SparkSession) -> None:
    assert calls_until_it_fails(cql.Engine(spark)) == calls_until_it_fails(cql.Engine(local=True))


class SlowMachine:
    """A frame and its writer; the queries that it starts fail a number of times, because a process comes too late."""

    def __init__(self, failures: int) -> None:
        self.writeStream = self
        self.failures = failures
        self.starts = 0

    def foreachBatch(self, _: object) -> SlowMachine:
        return self

    option = queryName = lambda self, *_: self

    def start(self) -> Any:
        self.starts += 1
        is_late = self.starts <= self.failures
        error = RuntimeError("Python worker failed to connect back.") if is_late else None

        def process_all() -> None:
            if error is not None:
                raise error

        return SimpleNamespace(isActive=not is_late, exception=lambda: error, processAllAvailable=process_all)


@pytest.mark.parametrize("wait", [SparkQuery.check, SparkQuery.process_available])
def test_a_process_that_comes_too_late_is_waited_for(wait: Callable[[SparkQuery], object]) -> None:
    machine = SlowMachine(failures=3)
    query = SparkQuery(machine, lambda frame, number: None, Path("c"), "q")  # type: ignore[arg-type]
    query.start()
    while machine.starts < 4:
        wait(query)
    assert query.check() and machine.starts == 4
    machine = SlowMachine(failures=100)
    query = SparkQuery(machine, lambda frame, number: None, Path("c"), "q")  # type: ignore[arg-type]
    query.start()
    with pytest.raises(CqlError) as caught:
        for _ in range(100):
            wait(query)
    assert caught.value.diagnostics[0].code.name == "TOO_SLOW" and caught.value.is_of_machine
    assert machine.starts == MOST_STARTS


# Checkpoints, and sources that Spark does not read


def test_a_checkpoint_that_is_removed_under_a_run_is_told(spark: SparkSession) -> None:
    Path("bid").mkdir()
    Path("bid/1.csv").write_text("7,10,1\n")
    catalog = Catalog()
    catalog.execute(
        "SET files = follow;"
        "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 'bid');"
        "REGISTER QUERY last AS SELECT price FROM bid [Rows 1] INTO csv OPTIONS (path 'out');"
    )
    with (
        pytest.raises(CqlError) as caught,
        SparkRun(spark, catalog, list(catalog.queries.values()), checkpoint=Path("c")) as network,
    ):
        network.start()
        network.process_available()
        shutil.rmtree("c", ignore_errors=True)
        Path("bid/2.csv").write_text("7,10,2\n")
        network.wait(60)
    (diagnostic,) = caught.value.diagnostics
    told = f"the checkpoint '{Path.cwd()}/c' has been removed while its queries run"
    assert (diagnostic.code.name, diagnostic.message) == ("OTHER_CHECKPOINT", told)


REFUSED = {
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM jdbc OPTIONS (url 'jdbc:x:y', dbtable 't')": (
        "CANNOT_READ: Spark does not read jdbc as a stream, which 't' is to be"
    ),
    "RELATION t (k INT) FROM jdbc OPTIONS (url 'jdbc:x:y', dbtable 't')": (
        "MISSING: Spark lacks what reads jdbc for 't': No suitable driver"
    ),
    "RELATION t (k INT) FROM jdbc OPTIONS (url 'jdbc:x:y', dbtable 't', driver 'org.none.Driver')": (
        "MISSING: Spark lacks what reads jdbc for 't': org.none.Driver"
    ),
    "RELATION t (k INT) FROM jdbc OPTIONS (dbtable 't')": "CANNOT_READ: Spark cannot read 't' from jdbc: ",
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM libsvm OPTIONS (path '.')": (
        "CANNOT_READ: Spark cannot read 't' from libsvm: Schema must be specified"
    ),
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM noop": "CANNOT_READ: Spark does not read noop as a stream",
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM statestore OPTIONS (path '.')": (
        "CANNOT_READ: Spark cannot read 't' from statestore: "
    ),
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM hive": "CANNOT_READ: Spark cannot read 't' from hive: ",
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM kafka": "BAD_DEFINITION: Spark has no data source 'kafka'",
    "STREAM t (k INT, at INT) TIMESTAMP BY at FROM delta OPTIONS (path '.')": (
        "BAD_DEFINITION: Spark has no data source 'delta'"
    ),
    "STREAM t (value INT, timestamp TIMESTAMP) TIMESTAMP BY timestamp FROM rate OPTIONS (rowsPerSecond 'x')": "",
}


def test_what_spark_does_not_read_is_told_before_anything_starts(spark: SparkSession) -> None:
    for definition, told in REFUSED.items():
        catalog = Catalog()
        catalog.execute(f"CREATE {definition}; SELECT * FROM t;")
        with (
            pytest.raises(CqlError) as caught,
            SparkRun(spark, catalog, list(catalog.queries.values()), live=True) as network,
        ):
            network.start()
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.advice() and "\n" not in diagnostic.message
        assert f"{diagnostic.code.name}: {diagnostic.message}".startswith(told), definition


# Which Python, and what it imports


def context(python: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(pythonExec=python, environment={}, master=master)


def other_python(path: Path, says: str) -> str:
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_nobody_has_chosen_and_that_is_of_no_use_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    bare = other_python(tmp_path / "bare", "echo 3.1 pandas")
    given = context(bare)
    assert workers.python_of(given) == sys.executable
    with workers.own_workers(given):
        assert (given.pythonExec, given.environment) == (sys.executable, {"PYTHONSAFEPATH": "1"})
    assert (given.pythonExec, given.environment) == (bare, {}), "the session is left as it is"
    assert workers.python_of(context(bare, "spark://host:7077")) == bare, "executors have a Python of their own"
    assert workers.python_of(context(sys.executable)) == sys.executable


@pytest.mark.parametrize(
    ("says", "code", "told"),
    [
        ("echo 3.1", "VERSIONS", "that is Python 3.1, where this is Python 3."),
        ("echo {version} pyarrow runtime", "MISSING", "that has no module pyarrow or runtime"),
        ("echo oh >&2; exit 3", "MISSING", "that is no Python which works: oh"),
        ("", "MISSING", "that cannot be started: "),
    ],
)
def test_a_python_that_was_chosen_and_is_of_no_use_is_named(
    says: str, code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"python-{abs(hash(says))}"
    version = ".".join(map(str, sys.version_info[:2]))
    python = other_python(path, says.format(version=version)) if says else str(path)
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    with pytest.raises(CqlError) as caught:
        workers.python_of(context(python))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code.name == code
    assert diagnostic.message.startswith(f"Spark starts '{python}' for its Python processes, and {told}")
    assert diagnostic.hint == f"set PYSPARK_PYTHON to '{sys.executable}' before the session is made"


def test_modules_beside_the_program_come_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "program/main.py", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    folder = str(Path("program").absolute())
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    assert folder_of_program() == folder
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert folder_of_program() == "", "the program does not import from there either"
    assert Sent("a", Sent.of("b", 1).packed, folder).get() == 1
    assert sys.path[-1] == folder


SHADOWS = ("csv", "json", "typing", "pandas", "pyarrow", "numpy", "pyspark", "cql", "repl", "runtime/__init__")
PROGRAM = """
import cql, helper, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
engine = cql.Engine(spark)
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
engine.stream("tick", rows, timestamp="timestamp")
engine.function(helper.twice)
query = engine.register("q", "SELECT Istream(twice(value) AS n) FROM tick")
engine.start()
while not any(query.changes()):
    engine.wait(1)
print("stopping", file=sys.stderr)
engine.stop()
print("stopped", file=sys.stderr)
assert all(change.row["n"] % 2 == 0 for change in query.changes())
spark.stop()
"""


@pytest.fixture
def full_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: data, and files that are named as modules are."""
    folder = tmp_path / "data"
    for name in SHADOWS:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise SystemExit('{name} was imported')")
    (folder / "bids").mkdir()
    (folder / "bids/1.csv").write_text("7,10,1\n7,20,2\n")
    (folder / "script.cql").write_text(
        "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 'bids');"
        "REGISTER QUERY totals AS SELECT Istream(SUM(price) AS total) FROM bid [Range 9 Seconds];"
    )
    monkeypatch.chdir(folder)
    return folder


def environment() -> dict[str, str]:
    """Return an environment in which no virtual environment is activated, and nothing says what to import."""
    ours = str(Path(sys.executable).parent)
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != ours)
    unset = ("PYTHONPATH", "PYTHONSAFEPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV")
    return {**{key: value for key, value in os.environ.items() if key not in unset}, "PATH": path}


def ran(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment())
    return done.returncode, done.stdout, done.stderr


def installed() -> str:
    return str(Path(sys.executable).with_name("cql"))


RESULT = '{"query": "totals", "ts": 1, "op": "+", "row": {"total": 10}}\n' + (
    '{"query": "totals", "ts": 2, "op": "+", "row": {"total": 30}}\n'
)


def test_nothing_is_imported_from_where_the_data_are(full_of_data: Path) -> None:
    assert ran(installed(), "run", "script.cql", "--engine", "local", "--output", "jsonl") == (0, RESULT, "")


@pytest.mark.spark(own_process=True)
def test_nothing_is_imported_from_where_the_data_are_on_spark(full_of_data: Path) -> None:
    assert ran(installed(), "run", "script.cql", "--output", "jsonl") == (0, RESULT, "")


@pytest.mark.spark(own_process=True)
def test_in_a_session_of_the_user_an_engine_runs_with_its_own_python_and_stops_without_a_word(
    full_of_data: Path, tmp_path: Path
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/main.py").write_text(PROGRAM)
    (tmp_path / "program/helper.py").write_text("def twice(value: int) -> int:\n    return 2 * value\n")
    code, _, told = ran(str(tmp_path / "program/main.py"))
    assert code == 0, told
    after = told.partition("stopping\n")[2].partition("stopped\n")[0]
    assert "Exception" not in after and "Traceback" not in told, told
