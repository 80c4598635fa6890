"""The shell without a terminal: help, completion, statements from a pipe, what is told of queries, the live picture."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

import cql
from cql import Catalog, ast
from cql.parsing import parse_statement
from cql.parsing.parser import keywords
from cql.session import SHOWABLE, Session
from cql.settings import Settings
from repl import cli
from repl.background import LATEST, LocalBackground
from repl.commands import COMMANDS
from repl.completion import candidates
from repl.figures import sparkline
from repl.help import STATEMENTS, find_help
from repl.inputs import inputs, is_complete
from repl.plan_summary import dropped_lines, planned, registered_lines
from repl.samples import Sample, SampleHistory
from repl.screen import FOOTER, picture
from repl.shell import Shell
from repl.summary import status_line, total_line
from runtime.local.run import LocalRun
from tests.test_cli import Result

BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at"
FROM_CSV = f"{BID} FROM csv OPTIONS (path 'bids.csv', header 'true');\n"
BEST = "REGISTER QUERY best AS SELECT auction, MAX(price) AS price FROM bid [Range 10 Seconds] GROUP BY auction;\n"

Pipe = Callable[..., Result]
ROOT = Path(__file__).parent.parent


def bids(count: int) -> str:
    return "auction,price,at\n" + "".join(f"{n % 3},{n * 7 % 100},{n // 5}\n" for n in range(count))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("bids.csv").write_text(bids(20))
    return tmp_path


@pytest.fixture
def pipe(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """`cql repl` with standard input from a pipe, on the local engine."""

    def run(text: str | bytes, *arguments: str) -> Result:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = cli.main(["repl", "--engine", "local", *arguments])
        return Result(code, *capsys.readouterr())

    return run


# Help


def statement_kinds() -> set[type[ast.Statement]]:
    kinds = (getattr(ast, name) for name in ast.__all__)
    return {kind for kind in kinds if issubclass(kind, ast.Statement) and kind is not ast.Statement}


def test_every_kind_of_statement_has_help_once() -> None:
    described = [node for each in STATEMENTS for node in each.nodes]
    assert len(described) == len(set(described))
    assert set(described) == statement_kinds()


@pytest.mark.parametrize("entry", STATEMENTS, ids=lambda entry: entry.name)
def test_the_example_of_a_statement_is_one(entry: object) -> None:
    assert isinstance(parse_statement(entry.example), entry.nodes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("entry", STATEMENTS, ids=lambda entry: entry.name)
def test_the_syntax_of_a_statement_has_the_words_of_the_grammar(entry: object) -> None:
    words = set(re.findall(r"\b[A-Z]{2,}\b", entry.syntax)) - {"TYPE"}  # type: ignore[attr-defined]
    assert words <= keywords() | set(SHOWABLE)


def test_the_examples_can_be_typed_one_after_the_other() -> None:
    session = Session()
    session.run("".join(entry.example for entry in STATEMENTS))
    assert set(session.catalog.streams) == {"bid", "temperature"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("select", ["SELECT"]),
        ("create", ["CREATE STREAM", "CREATE RELATION", "CREATE VIEW"]),
        ("register query q as", ["REGISTER QUERY"]),
        ("dorp", ["DROP"]),
        ("start;", ["START"]),
        ("fly", []),
    ],
)
def test_help_is_found_by_the_words_of_a_statement(words: str, names: list[str]) -> None:
    assert [each.name for each in find_help(words)] == names


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.key)
def test_every_command_is_there(command: object) -> None:
    assert callable(getattr(Shell, f"_{command.key[1:]}"))  # type: ignore[attr-defined]


def test_help_on_everything_and_on_one_statement(pipe: Pipe) -> None:
    result = pipe("\\h\n\\help try\nhelp\n")
    assert (result.code, result.err) == (0, "")
    for each in STATEMENTS:
        assert f"\n{each.name} " in result.out
    for command in COMMANDS:
        assert f"\n{', '.join(command.names)}" in result.out
    assert "TRY: runs a query at once" in result.out and "example:\n  TRY SELECT" in result.out


# Completion

CATALOG = Catalog()
CATALOG.execute(
    f"{BID}; CREATE RELATION item (id INT, title STRING); CREATE VIEW dear AS SELECT price AS much FROM bid;"
    "REGISTER QUERY best AS SELECT MAX(price) AS top FROM bid;"
)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", {"SELECT", "CREATE STREAM", "TRY", "START"}),
        ("sel", {"select"}),
        ("SEL", {"SELECT"}),
        ("SHOW ", set(SHOWABLE)),
        ("show st", {"streams", "stats"}),
        ("SET ", set(Settings.model_fields)),
        ("SET sch", {"scheduler"}),
        ("SET scheduler = ", {"chain", "fifo", "round-robin", "greedy"}),
        ("DESCRIBE ", {"bid", "item", "dear", "best"}),
        ("DROP QUERY ", {"best"}),
        ("DROP STREAM ", {"bid"}),
        ("EXPLAIN QUERY ", {"best"}),
        ("EXPLAIN JSON QUERY b", {"best"}),
        ("SELECT * FROM ", {"bid", "item", "dear"}),
        ("SELECT * FROM bid, ", {"bid", "item", "dear"}),
        ("SELECT * FROM bid JOIN i", {"item"}),
        ("SELECT * FROM bid [", {"RANGE", "ROWS", "NOW", "PARTITION BY"}),
        ("select * from bid [r", {"range", "rows"}),
        ("SELECT * FROM bid [Range 10 se", {"seconds"}),
        ("SELECT * FROM bid [Partition By a", {"auction", "at"}),
        ("SELECT x.pr", {"price"}),
        ("SELECT * FROM bid WHERE auc", {"auction"}),
        ("SHOW STREAMS; DESCRIBE it", {"item"}),
        ("CREATE STREAM s (a INT, b ST", {"STRING"}),
        ("CREATE STREAM s (a INT, b INT) TIMESTAMP BY ", {"a", "b"}),
        ("CREATE STREAM s (a INT) TIMESTAMP BY a FROM c", {"csv"}),
        ("CREATE STREAM s (a INT) TIMESTAMP BY a FROM rate OPTIONS (rows", {"rowsPerSecond"}),
        ("REGISTER QUERY q AS SELECT * FROM bid INTO par", {"parquet"}),
        ("\\wa", {"\\watch"}),
        ("\\h cr", {"CREATE STREAM", "CREATE RELATION", "CREATE VIEW"}),
        ("\\d ", {"bid", "item", "dear", "best"}),
        ("\\watch ", {"best"}),
        ("\\engine l", {"local"}),
        ("SELECT 'pri", set()),
    ],
)
def test_what_is_offered(typed: str, offered: set[str]) -> None:
    after = " FROM bid x" if typed.startswith("SELECT x.") else ""
    assert offered <= {each.text for each in candidates(typed, after, CATALOG)}
    if not offered:
        assert candidates(typed, after, CATALOG) == []


def test_columns_of_the_tables_that_are_named_come_first() -> None:
    found = candidates("SELECT ", " FROM item", CATALOG)
    assert [each.text for each in found] == ["id", "title"]
    assert {"auction", "id", "much"} <= {each.text for each in candidates("SELECT ", "", CATALOG)}


def test_functions_and_functions_of_the_user_are_offered() -> None:
    catalog = CATALOG.copy_for_trial()

    @catalog.function
    def countdown(x: int) -> int:
        return x

    texts = {each.text for each in candidates("SELECT cou", "", catalog)}
    assert {"count(", "countdown("} <= texts


@pytest.mark.parametrize("typed", ["\\i ", "CREATE STREAM s (a INT) TIMESTAMP BY a FROM csv OPTIONS (path '"])
def test_paths_are_offered(typed: str, folder: Path) -> None:
    Path("data").mkdir()
    Path("data/day 1.csv").touch()
    assert [each.text for each in candidates(typed, "", CATALOG)] == ["bids.csv", "data/"]
    assert [each.text for each in candidates(f"{typed}data/d", "", CATALOG)] == ["day 1.csv"]
    assert candidates(f"{typed}nowhere/d", "", CATALOG) == []


@pytest.mark.parametrize("text", ["SELECT a, FROM (", "\\", "'", '"', "SELECT x.", "SET none = ", "((((", "/*", "[1"])
def test_whatever_is_typed_something_or_nothing_is_offered(text: str) -> None:
    for end in range(len(text) + 1):
        candidates(text[:end], text[end:], CATALOG)


def test_colours_follow_the_grammar() -> None:
    from pygments.token import Keyword, Name, Number, String

    from repl.highlighting import lexer

    found = {text: kind for kind, text in lexer()().get_tokens("select Count(bid) from bid [Range 10 seconds] 'x'")}
    assert found["select"] is Keyword and found["Range"] is Keyword
    assert found["Count"] is Name.Function and found["bid"] is Name and found["10"] is Number
    assert found["'x'"] is String.Single
    for word in keywords():
        assert next(lexer()().get_tokens(word))[0] in Keyword


# Statements and commands in a text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("-- nothing\n", []),
        ("a; b;", ["a", "b"]),
        ("a\n  b;\n\\d x\nc;", ["a\n  b", "\\d x", "c"]),
        ("a '\n\\d;' b;", ["a '\n\\d;' b"]),
        ("-- c ; \n\\d\n", ["\\d"]),
        ("a -- ;\n;b;", ["a", "b"]),
        ("a", ["a"]),
        ("quit\n", ["quit"]),
        ("EXIT;\n", ["EXIT;"]),
    ],
)
def test_a_text_is_cut_into_statements_and_commands(text: str, found: list[str]) -> None:
    assert [each.text for each in inputs(text.splitlines(keepends=True), "x")] == found


@pytest.mark.parametrize(
    ("text", "complete"),
    [("", True), ("SELECT 1", False), ("SELECT ';", False), ("SHOW STREAMS;", True), ("a; b", False), ("\\d", True)],
)
def test_a_statement_goes_on_until_its_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


# From a pipe


def test_a_session_from_a_pipe(pipe: Pipe, golden: Callable[[str, str], None]) -> None:
    result = pipe(
        FROM_CSV
        + "\\d\n"
        + "SELECT prise FROM bid;\n"
        + "TRY SELECT auction, price FROM bid [Now] WHERE price > 90;\n"
        + BEST
        + "REGISTER QUERY worst AS SELECT auction, MIN(price) AS price FROM bid [Range 20 Seconds] GROUP BY auction;\n"
        + "SELECT Istream(price) FROM bid WHERE price > 90;\n"
        + "DROP QUERY worst;\nSET on_bad_row = skip;\n"
        + "START;\n"
        + "\\watch\n"
        + "STOP;\n"
        + "SHOW QUERIES"
    )
    assert result.code == 1
    golden("repl/piped.txt", f"{result.out}--- standard error\n{result.err}")


def test_results_are_those_of_run(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.cql").write_text(FROM_CSV + BEST)
    assert cli.main(["run", "script.cql", "--engine", "local", "--output", "jsonl"]) == 0
    ran = capsys.readouterr().out
    result = pipe(FROM_CSV + BEST + "START;\n\\d\n", "--output", "jsonl")
    assert (result.code, result.out) == (0, ran)
    assert all(json.loads(line)["query"] == "best" for line in result.out.splitlines())
    assert "query best: relation" in result.err


def test_a_file_comes_before_what_is_piped(pipe: Pipe) -> None:
    Path("script.cql").write_text(FROM_CSV + "SELCT;\n" + BEST)
    result = pipe("DESCRIBE best;", "script.cql")
    assert result.code == 1
    assert result.err.startswith("script.cql:2:1: E101: ")
    assert "price    INT" in result.out


def test_a_file_that_is_included_can_name_files_beside_it(pipe: Pipe) -> None:
    example = ROOT / "examples" / "network" / "network.cql"
    result = pipe(f"\\i {example}\nSTART;\n")
    assert (result.code, result.err) == (0, "")
    assert "lost (stream)\nts     pid  flow\n21  +    8  voice\n" in result.out


def test_a_file_of_stream_can_be_included(pipe: Pipe) -> None:
    Path("s.script").write_text("table : register stream S (A integer);\nsource : S.dat\nquery : select * from S;\n")
    result = pipe("\\i s.script\nDESCRIBE S;")
    assert (result.code, "query q1: " in result.out, "A       INT" in result.out) == (0, True, True)


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("bds.cql", "E501", "hint: did you mean bids.cql?"),
        ("nothing", "E501", "there is no file 'nothing'"),
        (".", "E501", "is a folder"),
        ("binary", "E108", "this is not a text file"),
        ("", "E501", "takes the name of a file"),
    ],
)
def test_a_file_that_cannot_be_included(pipe: Pipe, name: str, code: str, told: str) -> None:
    Path("bids.cql").write_text(FROM_CSV)
    Path("binary").write_bytes(b"\x7fELF\0\1\2")
    result = pipe(f"\\i {name}\nSHOW STREAMS;")
    assert result.code == 1
    assert f": {code}: " in result.err and told in result.err
    assert result.out.startswith("stream  columns")


def test_binary_input_is_survived(pipe: Pipe) -> None:
    result = pipe(b"\xff\xfe\0\1;\n\x80;" + BID.encode() + b";\nSHOW STREAMS;")
    assert result.code == 1
    assert "Traceback" not in result.err
    assert "bid     auction INT" in result.out


def test_a_half_typed_statement_at_the_end_is_told(pipe: Pipe) -> None:
    result = pipe(FROM_CSV + "SELECT price FROM")
    assert result.code == 1
    assert result.err.startswith("<stdin>:2:18: E101: ")


def test_a_run_that_fails_is_told_where_the_source_is_and_the_session_goes_on(pipe: Pipe) -> None:
    Path("bids.csv").write_text(bids(5) + "x,y,z\n")
    result = pipe(FROM_CSV + BEST + "START;\nSHOW STREAMS;\nSET on_bad_row = skip;\n")
    assert result.code == 1
    assert result.err.startswith("<stdin>:1:") and ": E503: " in result.err
    assert "FROM csv OPTIONS (path 'bids.csv'" in result.err
    assert result.out.count("bid     auction INT") == 1 and result.out.endswith("on_bad_row = skip\n")


def test_a_failure_without_a_place_is_told_at_its_statement(pipe: Pipe) -> None:
    result = pipe("\\i define.cql\n\nSTART;\n")
    assert result.err.startswith("define.cql:1:1: E501: ")
    assert "<stdin>:3:1: E411: no query is registered\n  START;\n  ^^^^^\n" in result.err
    Path("define.cql").write_text(FROM_CSV.replace("bids.csv", "gone.csv") + BEST)
    assert (
        "<stdin>:3:1: E501: there is no file 'gone.csv'\n  START;\n  ^^^^^\n" in pipe("\\i define.cql\n\nSTART;\n").err
    )


def test_a_query_that_has_no_plan_is_not_registered(pipe: Pipe) -> None:
    query = (
        "SELECT auction FROM bid [Now] WHERE price > (SELECT MAX(price) FROM bid [Rows 5] AS x WHERE x.at < bid.at);\n"
    )
    result = pipe(FROM_CSV + query + "SHOW QUERIES;\n")
    assert result.code == 1
    assert "<stdin>:2:" in result.err and ": E601: " in result.err
    assert result.out.endswith("query  kind  columns  into  text\n\n")


def test_an_unknown_command_is_told_with_the_nearest(pipe: Pipe) -> None:
    result = pipe("\\tming\n\\zzzzz\n")
    assert result.code == 1
    assert "there is no command \\tming\n  \\tming\n  ^^^^^^\n  hint: did you mean \\timing?" in result.err
    assert "hint: \\h lists the commands" in result.err


def test_timing_engine_and_quit(pipe: Pipe) -> None:
    result = pipe("\\timing\nSHOW VIEWS;\n\\timing\n\\engine\n\\engine flink\n\\engine spark\n\\q\nSELECT;\n")
    assert re.search(r"^took 0\.\d{3} s$", result.out, re.MULTILINE)
    assert "START runs queries in this process" in result.out and "START runs queries on Spark" in result.out
    assert result.err.count("E") == result.err.count("E303") == 1


def test_queries_that_were_not_started_are_named(pipe: Pipe) -> None:
    result = pipe(FROM_CSV + BEST)
    assert (result.code, result.err) == (0, "not started: best; START runs what is registered\n")


def test_an_internal_error_is_one_line_and_the_session_goes_on(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Session, statement: ast.Statement, source: object) -> None:
        raise KeyError("first line\nsecond line")

    monkeypatch.setattr(Session, "run_statement", broken)
    result = pipe("SHOW STREAMS;\nSHOW VIEWS;\n\\timing\n")
    assert (result.code, result.out) == (3, "timing is on\n")
    assert result.err.count("\n") == result.err.count("internal error: KeyError: ") == 2
    assert "Traceback" in pipe("SHOW STREAMS;", "--debug").err


def test_edit_needs_a_terminal(pipe: Pipe) -> None:
    assert "E701: \\e needs a terminal" in pipe("\\e\n").err


def test_a_shell_that_nobody_listens_to_ends_quietly(folder: Path) -> None:
    program = (
        "import os, sys; r, w = os.pipe(); os.dup2(w, 1); os.close(r); from repl.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "repl", "--engine", "local"]
    done = subprocess.run(command, input="SHOW SETTINGS;\n" * 99, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


def test_each_statement_is_answered_before_the_next_is_read(folder: Path) -> None:
    command = [sys.executable, "-m", "repl.cli", "repl", "--engine", "local"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        for name in ("a", "b"):
            shell.stdin.write(f"CREATE STREAM {name} (t INT) TIMESTAMP BY t;\n")
            shell.stdin.flush()
            assert shell.stdout.readline() == f"stream {name} (t INT)\n"


def test_the_prompt_comes_before_anything_slow_is_loaded() -> None:
    slow = "{'pyarrow', 'pyspark', 'pandas', 'numpy', 'planner.plan'}"
    program = f"import sys, repl.terminal; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")


# TRY


def test_try_shows_instants_and_marks(pipe: Pipe) -> None:
    Path("bids.csv").write_text("auction,price,at\n1,10,1\n1,30,2\n")
    result = pipe(FROM_CSV + "TRY SELECT MAX(price) AS top FROM bid [Range 1];")
    assert result.code == 0
    assert result.out.endswith("try (relation)\nts     top\n 1  +   10\n 2  -   10\n 2  +   30\n")


def test_try_reads_the_first_rows_and_shows_the_beginning_of_the_answer(pipe: Pipe) -> None:
    Path("bids.csv").write_text(bids(3000))
    result = pipe(FROM_CSV + "TRY SELECT Istream(COUNT(*) AS n) FROM bid;\nTRY SELECT Istream(at) FROM bid;")
    first, second = result.out.split("try (stream)\n")[1:]
    assert first.splitlines()[-1] == "over the first 1,000 rows of bid, up to the last instant that they complete"
    assert ".. and 149 more changes" in first and "\n 0  +    5\n" in first
    assert ".. and 945 more changes" in second


def test_try_closes_the_sample_if_it_would_show_nothing(pipe: Pipe) -> None:
    Path("bids.csv").write_text("auction,price,at\n" + "1,2,3\n" * 1500)
    result = pipe(FROM_CSV + "TRY SELECT COUNT(*) AS n FROM bid [Now];")
    assert " 3  +  1000\n" in result.out
    assert result.out.endswith("over the first 1,000 rows of bid, as if they ended there\n")


def test_try_registers_nothing_and_reads_static_relations_whole(pipe: Pipe) -> None:
    Path("items.csv").write_text("".join(f"{n},t{n}\n" for n in range(2000)))
    Path("bids.csv").write_text("auction,price,at\n1999,5,1\n")
    item = "CREATE RELATION item (id INT, title STRING) FROM csv OPTIONS (path 'items.csv');\n"
    result = pipe(FROM_CSV + item + "TRY SELECT Istream(title) FROM bid [Now], item WHERE auction = id;\nSHOW QUERIES;")
    assert "ts     title\n 1  +  t1999\n" in result.out
    assert result.out.endswith("query  kind  columns  into  text\n\n") and result.err == ""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "'s' cannot be tried: nothing says where its rows come from"),
        ("FROM rate", "'s' cannot be tried: rate has no first rows that could be read once more"),
        ("FROM csv OPTIONS (path 'gone.csv')", "there is no file 'gone.csv'"),
    ],
)
def test_a_query_that_cannot_be_tried(pipe: Pipe, source: str, told: str) -> None:
    result = pipe(
        f"CREATE STREAM s (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp {source};\nTRY SELECT * FROM s;"
    )
    assert result.code == 1
    assert (
        f": {told}\n" in result.err and "<stdin>:2:1: E" in result.err and "TRY SELECT * FROM s;\n  ^^^" in result.err
    )


def test_try_in_a_script_and_in_an_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.cql").write_text(FROM_CSV + "TRY SELECT Istream(price) FROM bid WHERE price > 90;\n" + BEST)
    assert cli.main(["run", "script.cql", "--engine", "local", "--output", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert err == "try (stream)\nts     price\n 2  +     91\n 2  +     98\n"
    assert all(json.loads(line)["query"] == "best" for line in out.splitlines())

    engine = cql.Engine(local=True)
    engine.stream("given", [{"k": n, "at": n} for n in range(3)], timestamp="at")
    assert engine.execute("TRY SELECT Istream(k) FROM given WHERE k > 1") == ["try (stream)\nts     k\n 2  +  2\n"]


# What is told of queries


def told(query: str, *others: str) -> list[str]:
    catalog = Catalog()
    catalog.execute(f"{BID}; CREATE RELATION item (id INT, title STRING);")
    for at, other in enumerate(others):
        catalog.execute(f"REGISTER QUERY other{at} AS {other}")
    catalog.execute(f"REGISTER QUERY q AS {query}")
    return [line.strip() for line in registered_lines(planned(catalog), catalog.query("q"))]


def test_a_plan_in_brief() -> None:
    lines = told("SELECT title, COUNT(*) FROM bid [Range 1 Minute], item WHERE auction = id GROUP BY title")
    assert lines == [
        "binary-join on auction = id → aggregate count(*) by title",
        "bid → seq-window [Range 1 minute]",
        "item",
        "state: bounded, by what arrives within its windows",
    ]


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("SELECT price FROM bid WHERE price > 3", "none"),
        ("SELECT COUNT(*) FROM bid", "bounded, of fixed size"),
        ("SELECT auction, COUNT(*) FROM bid GROUP BY auction", "bounded by how many different keys there are, for: "),
        (
            "SELECT * FROM bid [Range 10] a, bid [Range Unbounded] b WHERE a.at = b.at",
            "NOT bounded, it grows",
        ),
    ],
)
def test_whether_state_is_bounded(query: str, state: str) -> None:
    assert any(line.startswith(f"state: {state}") for line in told(query))


def test_what_a_query_shares() -> None:
    window = "FROM bid [Range 1 Minute]"
    lines = told(f"SELECT MIN(price) {window}", f"SELECT MAX(price) {window}", "SELECT price FROM bid")
    assert "shared with other0 and other1: bid" in lines
    assert "shared with other0: seq-window [Range 1 minute]" in lines
    assert "on Spark in one bucket: an aggregate without GROUP BY is over all rows" in lines


def test_what_goes_with_a_query() -> None:
    catalog = Catalog()
    catalog.execute(f"{BID}; SELECT price FROM bid; SELECT auction FROM bid WHERE price > 3;")
    assert dropped_lines(planned(catalog), "q2") == ["  3 operators and their state are given up; 1 stays for q1"]


# Runs in the background


def background(text: str) -> LocalBackground:
    """Return a run of the queries of a script, which has ended."""
    run = unstarted(text)
    run.start()
    assert run.wait(60)
    return run


def unstarted(text: str) -> LocalBackground:
    catalog = Catalog()
    catalog.execute(text)
    queries = list(catalog.queries.values())
    return LocalBackground(queries, lambda: None, lambda: LocalRun(catalog, queries, live=True))


def test_a_run_in_the_background_keeps_the_latest_results(folder: Path) -> None:
    Path("bids.csv").write_text(bids(1000))
    run = background(FROM_CSV + "REGISTER QUERY q AS SELECT Istream(price, at) FROM bid;" + BEST)
    assert (run.error, run.doing, run.is_running) == (None, "ended", False)
    latest = run.latest["q"]
    assert (latest.count, len(latest.changes)) == (1000, LATEST)
    last = latest.changes[-1]
    assert (last.instant, last.mark, last.values) == ("199", "+", ("93", "199"))
    sample = run.course.last
    assert (sample.rows_in, sample.rows_out["q"], sample.left_out) == ({"bid": 1000}, 1000, 0)
    assert total_line(run).endswith(f"1,000 rows in, {sample.total_out:,} changes out")


def test_a_run_that_fails_in_the_background_keeps_its_error(folder: Path) -> None:
    Path("bids.csv").write_text("auction,price,at\nx,y,z\n")
    run = background(FROM_CSV + BEST)
    assert isinstance(run.error, cql.CqlError) and run.error.diagnostics[0].code is cql.Code.BAD_DATA
    assert run.doing == "failed"


def test_a_run_in_the_background_can_be_stopped(folder: Path) -> None:
    Path("many").mkdir()
    for at in range(1000):
        Path(f"many/{at:04}.csv").write_text(f"auction,price,at\n1,2,{at}\n")
    run = unstarted(FROM_CSV.replace("bids.csv", "many") + BEST)
    run.stop()
    run.start()
    assert run.wait(60)
    assert run.error is None
    assert 0 < run.course.last.total_in < 1000


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (40, 10), (20, 5), (10, 3), (300, 90)])
@pytest.mark.parametrize("chosen", [None, "best", "nothing"])
def test_the_picture_fits_its_window(folder: Path, width: int, height: int, chosen: str | None) -> None:
    names = [f"REGISTER QUERY q{n} AS SELECT Istream(price) FROM bid WHERE price > {n};" for n in range(7)]
    text = FROM_CSV + BEST + "".join(names) + "REGISTER QUERY f AS SELECT at FROM bid INTO csv OPTIONS (path 'out');"
    run = background(text)
    catalog = Catalog()
    catalog.execute(text)
    lines = [str(Text.from_ansi(line)) for line in picture(run, planned(catalog), chosen, width, height)]
    assert len(lines) == height
    assert all(cell_len(line) <= width for line in lines)


def test_the_picture_shows_results_rates_and_operators(folder: Path) -> None:
    run = background(FROM_CSV + BEST)
    catalog = Catalog()
    catalog.execute(FROM_CSV + BEST)
    lines = [str(Text.from_ansi(line)) for line in picture(run, planned(catalog), None, 110, 40)]
    shown = "\n".join(line.rstrip() for line in lines)
    assert "in 20 rows" in lines[0] and "state " in lines[0]
    assert re.search(r"\nts +auction  price\n", shown) and re.search(r"^ *2  [+-]  +\d  +\d+", shown, re.MULTILINE)
    assert re.search(r"^operator .* in +out +passes +time +state", shown, re.MULTILINE)
    assert "aggregate max(price) by auction" in shown
    assert lines[-1] == FOOTER


def test_rates_are_those_of_late() -> None:
    course = SampleHistory()
    now = time.monotonic()
    for ago, rows in ((10.0, 0), (5.0, 5000), (0.0, 5100)):
        course.add(Sample(at=now - ago, rows_in={"bid": rows}))
    assert 15 < course.rate_in() <= 20
    assert course.rates_in()[-2:] == pytest.approx([1000.0, 20.0])


def test_a_curve_and_a_line_of_state(folder: Path) -> None:
    assert sparkline([1]) == sparkline([0, 0]) == ""
    assert sparkline([1, 2, 4])[-1] == sparkline([5, 5])[-1]
    run = unstarted(FROM_CSV + BEST)
    assert status_line(None) is None
    assert (status_line(run) or "").startswith("starting ")
    assert status_line(background(FROM_CSV + BEST)) is None
