"""Running scripts in this process: what goes where, what is left behind, what errors say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cql import Catalog
from cql.settings import Settings
from planner import operators as op
from planner.network import compile_definition
from planner.plan import compile_query
from repl import cli
from runtime.connectors import SourceReader, SourceRows
from runtime.connectors.file_log import SourceFile
from runtime.connectors.results import Writer
from runtime.engine.scheduling import POLICIES
from runtime.local.run import LocalRun, by_clock
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.definition.evaluator import Element, Result
from tests.engine_runs import from_column, to_batch
from tests.random_data import random_data, report
from tests.random_tables import catalog as random_catalog
from tests.test_plan_random import network

BIDS = "auction,price,at\n1,10,1\n2,20,1\n1,30,3\n2,5,7\n"
BID = (
    "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at "
    "FROM csv OPTIONS (path 'bids.csv', header 'true');\n"
)
HEARD = "CREATE STREAM heard (word STRING, at TIMESTAMP) TIMESTAMP BY at FROM json OPTIONS (path 'heard.json');\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some data, in which scripts run."""
    monkeypatch.chdir(tmp_path)
    Path("bids.csv").write_text(BIDS)
    Path("heard.json").write_text(
        '{"word": "a", "at": "2026-01-01 00:00:00"}\n{"word": "b", "at": "2026-01-01 00:00:02.5"}\n'
    )
    return tmp_path


class Ran:
    """What a run of a script printed, and how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], script: str, *options: str) -> None:
        Path("script.cql").write_text(script)
        self.code = cli.main(["run", "script.cql", "--engine", "local", *options])
        self.out, self.err = capsys.readouterr()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda script, *options: Ran(capsys, script, *options)


# Results


def test_a_query_without_a_sink_is_printed_as_a_table(run: Any) -> None:
    ran = run(BID + "SELECT auction, MAX(price) AS best FROM bid [Range 3 Seconds] GROUP BY auction;")
    assert (ran.code, ran.err) == (0, "")
    first, heading, *rows = ran.out.splitlines()
    assert (first, heading) == ("q1 (relation)", "ts     auction  best")
    assert sorted(map(str.split, rows)) == sorted(
        [
            ["1", "+", "1", "10"],
            ["1", "+", "2", "20"],
            ["3", "-", "1", "10"],
            ["3", "+", "1", "30"],
            ["4", "-", "2", "20"],
            ["6", "-", "1", "30"],
            ["7", "+", "2", "5"],
        ]
    )


def test_json_lines_have_the_form_that_scripts_rely_on(run: Any) -> None:
    ran = run(BID + "SELECT Istream(auction, price / 4.0 AS q) FROM bid WHERE price > 9;", "--output", "jsonl")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == '{"query": "q1", "ts": 1, "op": "+", "row": {"auction": 1, "q": 2.500000}}'
    assert [line["ts"] for line in ran.lines] == [1, 1, 3]


def test_timestamps_are_iso_texts_in_json_lines(run: Any) -> None:
    ran = run(HEARD + "SELECT * FROM heard [Range 1 Second];", "--output", "jsonl")
    assert [(line["ts"], line["op"], line["row"]["word"]) for line in ran.lines] == [
        ("2026-01-01T00:00:00.000000Z", "+", "a"),
        ("2026-01-01T00:00:01.000000Z", "-", "a"),
        ("2026-01-01T00:00:02.500000Z", "+", "b"),
    ]


def test_the_last_instant_is_closed_and_no_time_passes_after_it(run: Any) -> None:
    ran = run(BID + "SELECT price FROM bid [Now];", "--output", "jsonl")
    assert [(line["ts"], line["op"]) for line in ran.lines][-1] == (7, "+")


def test_several_queries_on_different_clocks_run_in_one_script(run: Any) -> None:
    Path("names.csv").write_text("1,one\n")
    ran = run(
        BID + HEARD + "CREATE RELATION names (auction INT, name STRING) FROM csv OPTIONS (path 'names.csv');\n"
        "REGISTER QUERY a AS SELECT name, price FROM bid [Now], names WHERE bid.auction = names.auction;\n"
        "REGISTER QUERY b AS SELECT word, name FROM heard [Now], names;\n"
        "REGISTER QUERY c AS SELECT COUNT(*) AS n FROM names;\n",
        "--output",
        "jsonl",
    )
    assert (ran.code, ran.err) == (0, "")
    assert {(line["query"], *line["row"].values()) for line in ran.lines if line["op"] == "+"} == {
        ("a", "one", 10),
        ("a", "one", 30),
        ("b", "a", "one"),
        ("b", "b", "one"),
        ("c", 1),
    }


def test_queries_share_an_executor_only_on_one_clock() -> None:
    catalog = Catalog()
    catalog.execute(
        "CREATE STREAM i (k INT, t INT) TIMESTAMP BY t; CREATE STREAM s (k INT, t TIMESTAMP) TIMESTAMP BY t;"
        "CREATE RELATION r (k INT);"
        "SELECT k FROM i; SELECT k FROM s; SELECT k FROM r; SELECT i.k FROM i [Now], r; SELECT s.k FROM s [Now], r;"
    )
    parts = by_clock([compile_definition(query) for query in catalog.queries.values()])
    assert [[query.name for query in part] for part in parts] == [["q1", "q4"], ["q2", "q5"], ["q3"]]


def test_results_go_to_sinks_and_can_be_read_again(run: Any) -> None:
    for form in ("csv", "json", "parquet"):
        ran = run(BID + f"REGISTER QUERY top AS SELECT MAX(price) AS p FROM bid INTO {form} OPTIONS (path 'out');")
        assert (ran.code, ran.out, ran.err) == (0, "", "")
        again = run(
            f"CREATE RELATION top (ts BIGINT, op STRING, p INT) TIMESTAMP BY ts SIGN BY op FROM {form} "
            "OPTIONS (path 'out');\nSELECT p FROM top;",
            "--output",
            "jsonl",
        )
        assert {(line["ts"], line["op"], line["row"]["p"]) for line in again.lines} == {
            (1, "+", 20),
            (3, "-", 20),
            (3, "+", 30),
        }
        for file in Path("out").iterdir():
            file.unlink()


def test_a_query_that_yields_nothing_says_so(run: Any) -> None:
    assert run(BID + "SELECT price FROM bid WHERE price > 99;").out == "q1 (no results)\n"


def test_a_script_without_queries_runs_nothing(run: Any) -> None:
    ran = run("CREATE STREAM gone (t INT) TIMESTAMP BY t FROM csv OPTIONS (path 'gone.csv');")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


# Scripts of STREAM


def test_a_stream_script_writes_its_dest_files(run: Any) -> None:
    Path("S.dat").write_text("i,i,f\n1,1,0.5\n2,2,1.25\n2,1,3\n")
    ran = run(
        "table : register stream S (A integer, B float);\nsource : S.dat\n"
        "vquery : select A from S [Rows 1];\nvtable : register relation V (A integer);\n"
        "query : select * from S;\ndest : all.out\nquery : select * from V;\ndest : deep/last.out\n"
    )
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert Path("all.out").read_text() == "[1]:+:1, 0.5\n[2]:+:2, 1.25\n[2]:+:1, 3\n"
    assert Path("deep/last.out").read_text() == "[1]:+:1\n"


# START and what is asked


def test_start_runs_what_is_registered_so_far_and_the_end_runs_the_rest(run: Any) -> None:
    ran = run(
        BID + "SELECT Istream(at) FROM bid WHERE at > 5; START; SHOW QUERIES; STOP;\n"
        "REGISTER QUERY later AS SELECT Istream(price) FROM bid WHERE at > 5; START; START;\n"
        "REGISTER QUERY last AS SELECT Istream(auction) FROM bid WHERE at > 5;"
    )
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines() if "query" not in line and "REAM" not in line] == [
        ["q1", "(stream)"],
        ["ts", "at"],
        ["7", "+", "7"],
        [],
        [],
        ["later", "(stream)"],
        ["ts", "price"],
        ["7", "+", "5"],
        [],
        ["last", "(stream)"],
        ["ts", "auction"],
        ["7", "+", "2"],
    ]


def test_a_query_that_is_dropped_before_start_does_not_run(run: Any) -> None:
    ran = run(BID + "SELECT at FROM bid; SELECT price FROM bid; DROP QUERY q1; START;", "--output", "jsonl")
    assert {line["query"] for line in ran.lines} == {"q2"}


def test_show_stats_tells_what_the_run_did(run: Any) -> None:
    ran = run(
        BID + "SHOW STATS; REGISTER QUERY dear AS SELECT price FROM bid WHERE price > 9 INTO memory; START; SHOW STATS;"
    )
    assert (ran.code, ran.err) == (0, "")
    before, after = ran.out.split("\n\n", 1)
    assert before.split()[:3] == ["part", "kind", "what"] and "\n" not in before
    figures = {tuple(line.split()[1:3]): line.split()[3:] for line in after.strip().splitlines()[1:]}
    assert figures["source", "bid"] == ["4", "0", "0"]
    assert figures["operator", "select"][1:3] == ["4", "3"]


def test_answers_are_no_json_lines(run: Any) -> None:
    ran = run(BID + "SELECT price FROM bid; START; SHOW STATS; DESCRIBE bid;", "--output", "jsonl")
    assert len(ran.lines) == 4
    assert ran.err.startswith("part ")


# Settings


@pytest.mark.parametrize("setting", ["scheduler=fifo", "scheduler=round-robin", "scheduler=greedy", "sharing=off"])
def test_settings_of_the_run_change_no_results(run: Any, setting: str) -> None:
    script = (
        BID
        + "SELECT auction, SUM(price) AS s FROM bid [Range 3 Seconds] GROUP BY auction;"
        + "SELECT a.price AS x, b.price AS y FROM bid [Range 3 Seconds] a, bid [Rows 2] b WHERE a.auction = b.auction;"
    )

    def netted(lines: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(line, sort_keys=True) for line in lines)

    ordinary, other = run(script, "--output", "jsonl"), run(script, "--output", "jsonl", "--set", setting)
    assert (other.code, other.err) == (0, "")
    assert netted(other.lines) == netted(ordinary.lines)


def test_a_table_is_read_once_even_if_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = SourceReader.__init__

    def counting(self: SourceReader, files: list[SourceFile], *rest: Any) -> None:
        opened.extend(file.path for file in files)
        original(self, files, *rest)

    monkeypatch.setattr(SourceReader, "__init__", counting)
    catalog = Catalog(settings=Settings(sharing="off"))
    catalog.execute(BID + "SELECT price FROM bid; SELECT a.at FROM bid [Now] a, bid [Now] b;")
    with LocalRun(catalog, catalog.queries.values(), live=True) as running:
        running.drain()
    assert opened == ["bids.csv"]
    assert sum(map(len, running.results["q1"].batches)) == 4


# What is left out


def test_late_and_bad_rows_are_told_on_standard_error(run: Any) -> None:
    Path("bids.csv").write_text("auction,price,at\n1,10,5\n1,x,6\n1,10,1\n1,11,2\n1,12,7\n")
    ran = run(BID + "SELECT price FROM bid; START; SHOW STATS;", "--set", "on_bad_row=skip")
    assert ran.code == 0
    assert ran.err == "bid: left out: 2 rows came too late, 1 row was bad\n"
    assert next(line for line in ran.out.splitlines() if line.startswith("source-")).split()[-3:] == ["4", "2", "1"]


def test_rows_within_the_delay_are_put_in_order(run: Any) -> None:
    Path("bids.csv").write_text("auction,price,at\n1,10,5\n1,11,3\n1,12,6\n")
    ran = run(BID.replace(" FROM", " DELAY 2 SECONDS FROM") + "SELECT Istream(price) FROM bid;", "--output", "jsonl")
    assert [(line["ts"], line["row"]["price"]) for line in ran.lines] == [(3, 11), (5, 10), (6, 12)]
    assert ran.err == ""


# Failures


def test_a_bad_row_ends_the_run_and_leaves_nothing(run: Any) -> None:
    Path("bids.csv").write_text(BIDS + "1,many,8\n")
    ran = run(BID + "REGISTER QUERY q AS SELECT price FROM bid INTO csv OPTIONS (path 'out/deep');")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("script.cql:1:68: E503: bids.csv, line 6: the column 'price' is INT, and 'many' is not\n")
    assert "SET on_bad_row = skip" in ran.err
    assert not Path("out").exists()


def test_an_earlier_result_stays_if_a_run_fails(run: Any) -> None:
    script = BID + "REGISTER QUERY q AS SELECT price FROM bid INTO json OPTIONS (path 'out');"
    assert run(script).code == 0
    before = Path("out/part-00000.json").read_bytes()
    Path("bids.csv").write_text(BIDS + "1,many,8\n")
    assert run(script).code == 1
    assert [path.read_bytes() for path in Path("out").iterdir()] == [before]


@pytest.mark.parametrize(
    ("script", "beginning"),
    [
        (
            BID.replace("bids.csv", "none.csv") + "SELECT at FROM bid;",
            "script.cql:1:68: E501: there is no file 'none.csv'",
        ),
        (
            "CREATE STREAM s (t INT) TIMESTAMP BY t;\nSELECT t FROM s;",
            "script.cql:1:1: E411: nothing says where the rows of 's' come from",
        ),
        (
            "CREATE STREAM s TIMESTAMP BY timestamp FROM rate SCHEMA INFERRED OPTIONS (rowsPerSecond 3);\n"
            "SELECT value FROM s;",
            "script.cql:1:40: E901: the local engine does not read the format rate",
        ),
        (
            BID + "REGISTER QUERY q AS SELECT at FROM bid INTO kafka OPTIONS (topic 'x');",
            "script.cql:2:40: E901: this version does not write",
        ),
        (
            BID + "REGISTER QUERY a AS SELECT at FROM bid INTO csv OPTIONS (path 'o');\n"
            "REGISTER QUERY b AS SELECT at FROM bid INTO csv OPTIONS (path 'o');",
            "script.cql:3:40: E505: the queries 'a' and 'b' both write to 'o'",
        ),
        (
            BID + "SELECT at FROM bid [Now] WHERE price > (SELECT MAX(price) FROM bid [Rows 5] x WHERE x.at < bid.at);",
            "script.cql:2:",
        ),
    ],
    ids=["no file", "no source", "format to read", "format to write", "two into one", "no plan"],
)
def test_an_error_points_to_its_place_in_the_script(run: Any, script: str, beginning: str) -> None:
    ran = run(script)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(beginning)
    assert not Path("o").exists()


def test_nothing_runs_if_anything_in_the_script_is_wrong(run: Any) -> None:
    ran = run(BID + "SELECT price FROM bid; START; SELECT prise FROM bid;")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("script.cql:2:38: E202: ")


def test_a_failure_in_a_sink_gives_up_all_results(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog()
    catalog.execute(
        BID + "REGISTER QUERY a AS SELECT at FROM bid INTO csv OPTIONS (path 'a');"
        "REGISTER QUERY b AS SELECT at FROM bid INTO csv OPTIONS (path 'b');"
    )
    original = Writer.write

    def failing(self: Writer, batch: Any) -> None:
        if len(batch) and len(written) == 1:
            raise KeyboardInterrupt
        written.append(batch) if len(batch) else None
        original(self, batch)

    written: list[Any] = []
    monkeypatch.setattr(Writer, "write", failing)
    with pytest.raises(KeyboardInterrupt), LocalRun(catalog, catalog.queries.values()) as running:
        running.drain()
    assert len(written) == 1
    assert sorted(path.name for path in Path().iterdir()) == ["bids.csv", "heard.json"]


def _listen_to_ctrl_c() -> None:
    """Undo what a shell does to processes that it starts in the background: they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="signals differ elsewhere")
def test_ctrl_c_leaves_nothing_behind(folder: Path) -> None:
    os.mkfifo("slow.csv")
    Path("script.cql").write_text(
        BID.replace("bids.csv", "slow.csv") + "REGISTER QUERY q AS SELECT at FROM bid INTO csv OPTIONS (path 'out');"
    )
    command = [str(Path(sys.executable).with_name("cql")), "run", "script.cql", "--engine", "local"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_listen_to_ctrl_c
    ) as process:
        with Path("slow.csv").open("w") as pipe:
            pipe.write(BIDS)
            pipe.flush()
            deadline = time.monotonic() + 30
            while not Path("out").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert Path("out").exists()
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert not Path("out").exists()


# Memory and start-up


def test_the_source_that_is_furthest_behind_is_read_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two long streams in one query: neither gets ahead of the other by more than a chunk."""
    for name, step in (("x", 1), ("y", 3)):
        Path(f"{name}.csv").write_text("".join(f"{at % 7},{at // step}\n" for at in range(300_000)))
    read: list[tuple[str, int]] = []
    original = SourceReader.__next__

    def noting(self: SourceReader) -> Any:
        rows = original(self)
        read.append((self._intake.layout.table, int(rows.instants[-1])))
        return rows

    monkeypatch.setattr(SourceReader, "__next__", noting)
    catalog = Catalog()
    for name in "xy":
        catalog.execute(f"CREATE STREAM {name} (k INT, t INT) TIMESTAMP BY t FROM csv OPTIONS (path '{name}.csv')")
    catalog.execute("SELECT COUNT(*) AS n FROM x [Now], y [Now] WHERE x.k = y.k AND x.k = 1")
    with LocalRun(catalog, catalog.queries.values(), live=True) as running:
        running.drain()
    at = {"x": 0, "y": 0}
    for table, instant in read:
        other = at["y" if table == "x" else "x"]
        assert at[table] <= other or other >= 99_999
        at[table] = instant
    assert [table for table, _ in read[:4]] == ["x", "y", "y", "y"]


def test_a_run_loads_neither_pandas_nor_spark(folder: Path) -> None:
    Path("script.cql").write_text(BID + "SELECT price FROM bid;")
    program = "import sys; from repl.cli import main; main(); print(*{'pandas', 'pyspark'} & set(sys.modules))"
    command = [sys.executable, "-c", program, "run", "script.cql", "--engine", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == ""


def test_pandas_can_be_loaded_after_a_run() -> None:
    program = "import sys; from repl.script import hide_pandas; hide_pandas(); import pandas; print(pandas.DataFrame)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# What runs means what it says

NETWORKS = int(os.environ.get("CQL_FUZZ", "50"))
"""How many random networks are tried."""


def pieces(source: op.Source, elements: Sequence[Element], rng: Random) -> list[SourceRows]:
    """Return elements as rows, cut anywhere: in the middle of instants, too."""
    cuts = sorted(rng.sample(range(len(elements) + 1), min(len(elements), rng.choice((0, 1, 3)))))
    parts = [elements[first:last] for first, last in pairwise((0, *cuts, len(elements)))]
    batches = [to_batch(source, part, 0) for part in parts]
    return [SourceRows(batch.columns, batch.start, batch.weight) for batch in batches if len(batch)]


def kept(run: LocalRun, query: str) -> Result:
    """Return the results of a query, netted per instant."""
    bags: dict[int, Counter[Any]] = {}
    for batch in run.results[query].batches:
        rows = list(zip(*map(from_column, batch.columns), strict=True))
        for instant, row, weight in zip(batch.start.tolist(), rows, batch.weights.tolist(), strict=True):
            bags.setdefault(instant, Counter())[row] += weight
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in bags.items()}
    return Result({instant: bag for instant, bag in netted.items() if bag})


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(5))
def test_queries_that_run_together_mean_what_each_means_alone(part: int) -> None:
    """Several random queries, on both clocks and on none, over tables that are cut into pieces at random."""
    for seed in range(part, NETWORKS, 5):
        texts, trees = network(seed)
        rng = Random(seed)
        known = random_catalog().copy_for_trial()
        known.settings = Settings(scheduler=rng.choice(POLICIES), sharing=rng.choice(("on", "off")))
        for name, text in texts.items():
            known.execute(f"REGISTER QUERY {name} AS {text}")
        data = random_data(rng, known)
        sources = {
            each.table: each
            for tree in trees.values()
            for each in compile_query("q", tree).operators
            if isinstance(each, op.Source)
        }
        rows = {name.casefold(): pieces(source, data[name], rng) for name, source in sources.items()}
        with LocalRun(known, known.queries.values(), data=rows, live=True) as running:
            running.drain()
        for name, tree in trees.items():
            difference = disagreement(evaluate(tree, data), kept(running, name))
            assert difference is None, report(texts[name], data, seed=str(seed), at=difference)
