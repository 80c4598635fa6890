"""What goes wrong while networks run on Spark: an error in the words of this project, and nothing half-written.

Sources that go, or become something else; checkpoints that belong to somebody else, are damaged or have no room;
functions of the user that fail inside of Spark's tasks.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import cql
from cql import Catalog, CqlError
from cql.errors import Code
from repl.cli import main

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from runtime.network.control_log import ControlLog
from runtime.spark.run import SparkRun

ROOT = Path(__file__).parent.parent

TABLE = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at\n  FROM {} OPTIONS (path 'bid', {});\n"
FROM_CSV = TABLE.format("csv", "maxFilesPerTrigger '1'")
FROM_PARQUET = TABLE.format("parquet", "maxFilesPerTrigger '1'")
TOTALS = (
    "REGISTER QUERY totals AS SELECT auction, SUM(price) AS total FROM bid [Range 9 Seconds] GROUP BY auction\n"
    "  INTO json OPTIONS (path 'out');\n"
)
LAST = "REGISTER QUERY last AS SELECT price FROM bid [Rows 1] INTO json OPTIONS (path 'last');\n"

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bid").mkdir()


def write_csv(number: int, text: str) -> None:
    """Write a file that is read after those with smaller numbers."""
    dated(Path(f"bid/{number}.csv"), lambda path: path.write_text(text))


def write_parquet(number: int, **columns: pa.Array) -> None:
    dated(Path(f"bid/{number}.parquet"), lambda path: parquet.write_table(pa.table(columns), path))


def dated(path: Path, write: Callable[[Path], object]) -> None:
    write(path)
    os.utime(path, (1_000_000_000 + int(path.stem),) * 2)


def run(script: str, *arguments: str) -> tuple[int, str]:
    """Run a script on the Spark of all tests, and return the exit code and what is told, paths relative to here."""
    Path("network.cql").write_text(script)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["run", "network.cql", "--output", "jsonl", *arguments])
    assert out.getvalue() == ""
    return code, err.getvalue().replace(f"{Path.cwd()}/", "")


def refused(script: str, *arguments: str) -> str:
    """Return the first line of the error with which a run ends; there is a hint too, and no traceback."""
    code, told = run(script, *arguments)
    assert code == 1, told
    return message(told)


def message(told: str) -> str:
    assert "Traceback" not in told and "internal error" not in told and "  hint: " in told, told
    return told.splitlines()[0]


def written(folder: str = "out") -> list[dict[str, Any]]:
    """Return the rows of the files of a result; all of them are complete."""
    files = sorted(Path(folder).glob("[!.]*"))
    assert all(re.fullmatch(r"part-\d+\.json", file.name) for file in files), files
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# Sources


def test_a_file_with_other_columns_ends_the_run_after_what_came_before(spark: SparkSession) -> None:
    def int32(*values: int) -> pa.Array:
        return pa.array(values, pa.int32())

    write_parquet(1, auction=int32(7), price=int32(10), at=int32(1))
    write_parquet(2, auction=int32(7), price=int32(10), at=int32(2))
    write_parquet(3, auction=int32(7), price=pa.array(["dear"]), at=int32(3))
    told = "network.cql:2:3: E504: 'bid/3.parquet' has string in the column 'price', which is declared INT"
    assert refused(FROM_PARQUET + TOTALS, "--checkpoint", "c") == told
    assert written() == [{"ts": 1, "op": "+", "auction": 7, "total": 10}]
    write_parquet(3, auction=int32(7), at=int32(3))
    told = "network.cql:2:3: E504: 'bid/3.parquet' has no column 'price'"
    assert refused(FROM_PARQUET + TOTALS, "--checkpoint", "c") == told
    write_parquet(3, auction=int32(7), price=int32(5), at=int32(3))
    said = "bid/3.parquet, which ended a run, is not what it was: it is read as it is now\n"
    assert run(FROM_PARQUET + TOTALS, "--checkpoint", "c") == (0, said)
    assert [row["total"] for row in written() if row["op"] == "+"] == [10, 20, 25]


def test_a_line_with_too_few_columns_is_an_error_or_is_left_out(spark: SparkSession) -> None:
    write_csv(1, "7,10,1\n")
    write_csv(2, "7,20,2\n7,20\n8,x,3\n")
    told = "network.cql:2:3: E503: bid/2.csv, line 2: 3 columns are declared, and the line has 2"
    assert refused(FROM_CSV + TOTALS) == told
    assert run(FROM_CSV + TOTALS, "--set", "on_bad_row=skip") == (0, "bid: left out: 2 rows were bad\n")
    assert [row["total"] for row in written() if row["op"] == "+"] == [10, 30]


def test_a_folder_that_disappears_ends_the_run(spark: SparkSession) -> None:
    write_csv(1, "7,10,1\n")
    write_csv(2, "7,20,2\n")
    catalog = Catalog()
    catalog.execute(FROM_CSV + TOTALS)
    with pytest.raises(CqlError) as caught, SparkRun(spark, catalog, list(catalog.queries.values())) as network:
        network.start()
        network.process_available()
        shutil.rmtree("bid")
        network.wait(60)
    assert message(caught.value.render()) == "<text>:1:1: E501: there is no file 'bid'"
    assert [row["total"] for row in written()] == [10], "what was complete before"


def test_files_that_disappear_before_they_are_read_end_the_run(spark: SparkSession) -> None:
    for number in range(1, 5):
        write_csv(number, f"7,10,{number}\n")
    catalog = Catalog()
    catalog.execute(FROM_CSV + "REGISTER QUERY q AS SELECT Istream(price) FROM bid [Rows 1]")

    def remove(changes: DataFrame, batch_id: int) -> None:
        shutil.rmtree("bid", ignore_errors=True)

    with pytest.raises(CqlError) as caught:
        network = SparkRun(spark, catalog, list(catalog.queries.values()), callbacks={"q": remove})
        with network:
            network.drain()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code in (Code.NO_FILE, Code.CHANGED_SOURCE) and diagnostic.advice()


# Checkpoints


@pytest.fixture
def made(spark: SparkSession) -> None:
    """The checkpoint `c` of a network that has come to its end."""
    write_csv(1, "7,10,1\n")
    assert run(FROM_CSV + TOTALS, "--checkpoint", "c") == (0, "")


def test_a_checkpoint_of_other_queries_is_refused_or_adopted(made: None) -> None:
    before = written()
    assert refused(FROM_CSV + LAST, "--checkpoint", "c") == (
        "network.cql:1:1: E507: the checkpoint 'c' belongs to other queries: it has no last; "
        "here there is no totals; the contents of 2 stores would be given up"
    )
    assert written() == before and not Path("last").exists()
    write_csv(2, "7,20,2\n")
    assert run(FROM_CSV + TOTALS + LAST, "--checkpoint", "c", "--adopt") == (0, "")
    assert [row["total"] for row in written() if row["op"] == "+"] == [10, 30]
    assert [row["price"] for row in written("last")] == [20]
    code, said = run(FROM_CSV + LAST, "--checkpoint", "c", "--adopt")
    assert code == 0 and said.startswith("the contents of 2 stores are given up: store/")


DAMAGES: list[tuple[str, Callable[[str], str], str]] = [
    (
        "network.json",
        lambda text: text.replace('"version":2', '"version":99'),
        "E507: the checkpoint 'c/integer' cannot be used: it was made by another version of this program "
        "(its format is 99)",
    ),
    (
        "network.json",
        lambda text: text[: len(text) // 2],
        "E507: the checkpoint 'c/integer' cannot be used: its file network.json cannot be read",
    ),
    (
        "network.json",
        lambda text: '{"version": 2}',
        "E507: the checkpoint 'c/integer' cannot be used: its file network.json cannot be read",
    ),
    (
        "delivery.json",
        lambda text: text[: len(text) // 2],
        "E504: 'c/integer/delivery.json' does not say what has been delivered: ",
    ),
    ("delivery.json", lambda text: "[]", "E504: 'c/integer/delivery.json' does not say what has been delivered: "),
]


def test_a_checkpoint_that_is_damaged_or_of_another_version_is_refused(made: None) -> None:
    before = written()
    write_csv(2, "7,20,2\n")
    for name, damage, told in DAMAGES:
        path = Path("c/integer") / name
        whole = path.read_text()
        path.write_text(damage(whole))
        assert refused(FROM_CSV + TOTALS, "--checkpoint", "c").startswith(f"network.cql:1:1: {told}")
        assert written() == before
        path.write_text(whole)
    assert run(FROM_CSV + TOTALS, "--checkpoint", "c") == (0, "")
    assert [row["total"] for row in written() if row["op"] == "+"] == [10, 30]


def test_what_a_crash_has_left_of_a_message_is_none() -> None:
    control = ControlLog(Path("control"))
    Path("control/.00000000.txt").write_text('{"ended": ["b')
    assert control.last() == {}
    assert control.tell({"idle": ["bid"]}) == "00000000.txt"
    assert control.last() == {"idle": ["bid"]}


def test_a_checkpoint_serves_one_network_at_a_time(spark: SparkSession) -> None:
    write_csv(1, "7,10,1\n")
    catalog = Catalog()
    catalog.execute(FROM_CSV + TOTALS)
    with SparkRun(spark, catalog, list(catalog.queries.values()), checkpoint=Path("c")) as first:
        first.start()
        told = refused(FROM_CSV + TOTALS, "--checkpoint", "c")
        assert told.startswith(f"network.cql:1:1: E507: the checkpoint 'c/integer' is in use by process {os.getpid()}")
        first.close_instants()
    assert [row["total"] for row in written()] == [10]


def test_a_checkpoint_with_something_in_the_way_is_refused(spark: SparkSession) -> None:
    write_csv(1, "7,10,1\n")
    Path("c").touch()
    for folder in ("c", "c/d"):
        told = f"network.cql:1:1: E507: the checkpoint '{folder}/integer' cannot be used: Not a directory"
        assert refused(FROM_CSV + TOTALS, "--checkpoint", folder) == told
    assert not Path("out").exists()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of two megabytes."""
    place = Path("disk").absolute()
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "cql", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_is_full_ends_the_run_and_the_next_goes_on(spark: SparkSession, small_disk: Path) -> None:
    for number in range(1, 4):
        write_csv(number, f"7,10,{number}\n")
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 1_900_000)
    told = "network.cql:1:1: E505: Spark cannot write: No space left on device"
    assert refused(FROM_CSV + TOTALS, "--checkpoint", f"{small_disk}/c") == told
    filler.unlink()
    assert run(FROM_CSV + TOTALS, "--checkpoint", f"{small_disk}/c") == (0, "")
    assert [row["total"] for row in written() if row["op"] == "+"] == [10, 20, 30]


# Java, and ports


def test_without_java_a_run_says_so() -> None:
    Path("network.cql").write_text(FROM_CSV + TOTALS)
    command = [sys.executable, "-m", "repl.cli", "run", "network.cql"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": "/none"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    told = "network.cql:1:1: E701: Spark needs Java 17 or newer, and there is none in JAVA_HOME, which is '/none'"
    assert (done.returncode, done.stdout, message(done.stderr)) == (3, "", told)


def test_a_port_that_somebody_has_is_told_and_a_killed_run_leaves_no_log() -> None:
    program = (
        "import os, sys\nfrom runtime.spark.session import local_session\nfrom cql import CqlError\n"
        "try:\n    local_session({'spark.driver.port': sys.argv[1], 'spark.port.maxRetries': '0'})\n"
        "except CqlError as error:\n    print(error.render(), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    Path("temporary").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(Path("temporary").absolute())}
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        command = [sys.executable, "-c", program, str(occupied.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not list(Path("temporary").glob("cql-*"))
    assert "E703: Spark did not start: java.net.BindException" in message(done.stdout)
    assert "Address already in use" in done.stdout and done.stderr == ""


# Functions of the user


def failing(spark: SparkSession, query: str, into: Callable[..., None] | None = None) -> str:
    """Return the error of an engine whose query calls a function that cannot divide by zero."""
    engine = cql.Engine(spark)
    engine.stream("bid", [{"auction": n % 2, "price": 3 - n, "at": n} for n in range(5)], timestamp="at")

    @engine.function
    def share(price: int) -> int:
        return 100 // price

    engine.register("shares", query, into=into)
    with pytest.raises(CqlError) as caught:
        engine.start()
    return message(caught.value.render()).removeprefix("<text>:1:1: E506: ")


SHARE_OF_NOTHING = "query shares: share(0) failed: ZeroDivisionError: integer division or modulo by zero, on the row "


def test_a_function_that_fails_above_a_source_is_told_with_query_and_row(spark: SparkSession) -> None:
    query = "SELECT Istream(auction, share(price) AS share) FROM bid [Now]"
    assert failing(spark, query) == SHARE_OF_NOTHING + "auction = 1, price = 0, at = 3"
    query = "SELECT price FROM bid [Rows 2] WHERE share(price) > 30"
    assert failing(spark, query) == SHARE_OF_NOTHING + "auction = 1, price = 0, at = 3"


def test_a_function_that_fails_above_an_aggregate_is_told_with_query_and_row(spark: SparkSession) -> None:
    query = "SELECT auction, share(MIN(price)) AS share FROM bid [Range 9 Seconds] GROUP BY auction"
    assert failing(spark, query) == SHARE_OF_NOTHING + "auction = 1, min(price) = 0"


def test_a_function_that_takes_results_and_fails_is_told_with_query_and_batch(spark: SparkSession) -> None:
    def into(changes: DataFrame, batch_id: int) -> None:
        raise RuntimeError(f"no room for {changes.count()} changes")

    told = "the function that takes the results of 'shares' failed in batch 0: RuntimeError: no room for 7 changes"
    assert failing(spark, "SELECT price FROM bid [Rows 1]", into) == told
