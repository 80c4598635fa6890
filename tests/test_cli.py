"""The command line: what goes where, with which exit code, and that nothing ends in a traceback."""

import io
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import cql as package
from cql.session import Session
from repl import cli

ROOT = Path(__file__).parent.parent
BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at;\n"
GOOD = BID + "CREATE VIEW dear AS SELECT * FROM bid WHERE price > 9; SELECT * FROM dear; SELECT at FROM bid;\n"
WRONG = BID + "SELECT prise FROM bid;\n"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Runs `cql` in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Result:
        code = cli.main(arguments)
        return Result(code, *self.capsys.readouterr())


@pytest.fixture
def cql(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """`cql` in a folder with a good and a wrong script."""
    monkeypatch.chdir(tmp_path)
    Path("good.cql").write_text(GOOD)
    Path("wrong.cql").write_text(WRONG)
    return Shell(capsys)


def process(*command: str, stdin: str = "", cwd: Path | None = None) -> Result:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, timeout=60)
    return Result(done.returncode, done.stdout, done.stderr)


def installed(*arguments: str, stdin: str = "", cwd: Path | None = None) -> Result:
    """Run the installed command."""
    return process(str(Path(sys.executable).with_name("cql")), *arguments, stdin=stdin, cwd=cwd)


# ----------------------------------------------------------------------------------- the command as installed


def test_the_installed_command_checks_a_script(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    summary = "good.cql: 1 stream, 1 view, 2 queries: ok\n"
    assert installed("check", "good.cql", cwd=tmp_path) == Result(0, summary, "")


def test_the_installed_command_reports_errors_on_standard_error() -> None:
    result = installed("check", "-", stdin=WRONG)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("<stdin>:2:8: E202: there is no column 'prise'\n")


def test_the_installed_command_tells_wrong_usage() -> None:
    result = installed("chekc", "good.cql")
    assert (result.code, result.out) == (2, "")
    assert "invalid choice: 'chekc'" in result.err
    assert "Traceback" not in result.err


@pytest.mark.skipif(os.name != "posix", reason="pipes break differently elsewhere")
def test_output_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    into_closed_pipe = "import os, sys; r, w = os.pipe(); os.dup2(w, 1); os.close(r); "
    program = into_closed_pipe + "from repl.cli import main; sys.exit(main())"
    result = process(sys.executable, "-c", program, "check", str(tmp_path / "good.cql"))
    assert (result.code, result.err) == (141, "")


def test_checking_loads_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    slow = "{'rich', 'pyarrow', 'pyspark', 'pandas', 'numpy'}"
    program = f"import sys; from repl.cli import main; main(); print(*{slow} & set(sys.modules))"
    result = process(sys.executable, "-c", program, "check", str(tmp_path / "good.cql"))
    assert result.out.splitlines()[1:] == [""]


# ------------------------------------------------------------------------------------------------------ check


def test_check_says_what_a_script_defines(cql: Shell) -> None:
    assert cql("check", "good.cql") == Result(0, "good.cql: 1 stream, 1 view, 2 queries: ok\n", "")


def test_check_reports_errors_and_nothing_else(cql: Shell) -> None:
    assert cql("check", "wrong.cql") == Result(
        1,
        "",
        "wrong.cql:2:8: E202: there is no column 'prise'\n"
        "  SELECT prise FROM bid;\n"
        "         ^^^^^\n"
        "  hint: did you mean price?\n",
    )


def test_check_goes_through_all_files_and_the_worst_code_wins(cql: Shell) -> None:
    result = cql("check", "good.cql", "wrong.cql", "good.cql")
    assert result.code == 1
    assert result.out.count("good.cql: 1 stream, 1 view, 2 queries: ok\n") == 2
    assert result.err.startswith("wrong.cql:2:8: E202:")


def test_each_file_is_checked_on_its_own(cql: Shell) -> None:
    Path("uses.cql").write_text("SELECT price FROM bid;")
    assert cql("check", "good.cql", "uses.cql").code == 1


@pytest.mark.parametrize("text", ["", "\n\n", "-- nothing yet\n", "SHOW SETTINGS;", ";;"])
def test_a_script_may_define_nothing(cql: Shell, text: str) -> None:
    Path("empty.cql").write_text(text)
    assert cql("check", "empty.cql") == Result(0, "empty.cql: nothing defined: ok\n", "")


def test_check_binds_questions_and_prints_no_answers(cql: Shell) -> None:
    Path("asks.cql").write_text(GOOD + "SHOW STREAMS; DESCRIBE bid; EXPLAIN ALL; START; STOP;")
    assert cql("check", "asks.cql") == Result(0, "asks.cql: 1 stream, 1 view, 2 queries: ok\n", "")
    Path("asks.cql").write_text(GOOD + "DESCRIBE bidd;")
    assert cql("check", "asks.cql").code == 1


def test_check_takes_stream_scripts(cql: Shell) -> None:
    Path("s.script").write_text("table : register stream S (A integer);\nsource : S.dat\nquery : select * from S;\n")
    assert cql("check", "s.script") == Result(0, "s.script: 1 stream, 1 query: ok\n", "")


def test_a_script_can_come_from_standard_input(cql: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert cql("check", "-") == Result(0, "<stdin>: 1 stream, 1 view, 2 queries: ok\n", "")


def test_a_byte_order_mark_does_not_count(cql: Shell) -> None:
    Path("bom.cql").write_bytes(b"\xef\xbb\xbfSELCT;")
    assert cql("check", "bom.cql").err.startswith("bom.cql:1:1: E101: ")


# ---------------------------------------------------------------------------------- files that cannot be read


def test_a_missing_file_suggests_a_similar_one(cql: Shell) -> None:
    result = cql("check", "godd.cql")
    assert result.code == 1
    assert result.err == "godd.cql:1:1: E501: there is no file 'godd.cql'\n  hint: did you mean good.cql?\n"


def test_a_file_in_a_missing_folder(cql: Shell) -> None:
    assert cql("check", "no/good.cql") == Result(1, "", "no/good.cql:1:1: E501: there is no file 'no/good.cql'\n")


def test_a_folder_is_no_script(cql: Shell) -> None:
    Path("queries").mkdir()
    result = cql("check", "queries")
    assert result.code == 1
    assert result.err.startswith("queries:1:1: E501: 'queries' is a folder\n")


def test_an_unreadable_file(cql: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    message = "good.cql:1:1: E501: 'good.cql' cannot be read: Permission denied\n"
    assert cql("check", "good.cql") == Result(1, "", message)


def test_a_name_that_no_file_can_have(cql: Shell) -> None:
    for name in ("x" * 5000, "a\0b"):
        result = cql("check", name)
        assert (result.code, result.out) == (1, "")
        assert ":1:1: E501: " in result.err


def test_text_that_is_not_utf8_is_pointed_at(cql: Shell) -> None:
    Path("latin.cql").write_bytes(BID.encode() + "SELECT 'René' FROM bid;".encode("latin-1"))
    assert cql("check", "latin.cql").err.startswith("latin.cql:2:12: E108: the byte 0xE9 is not UTF-8 text\n")


@pytest.mark.parametrize("data", [b"\x7fELF\0\1\2", "SELECT".encode("utf-16")], ids=["binary", "utf-16"])
def test_a_binary_file_is_not_printed(cql: Shell, data: bytes) -> None:
    Path("binary.cql").write_bytes(data)
    result = cql("check", "binary.cql")
    assert result.code == 1
    assert result.err.startswith("binary.cql:1:1: E108: this is not a text file\n  hint: ")
    assert result.err.replace("\n", "").isprintable()


def test_a_file_name_that_the_terminal_cannot_show(cql: Shell) -> None:
    name = os.fsdecode(b"caf\xe9.cql")
    Path(name).write_text(GOOD)
    assert cql("check", name) == Result(0, "caf\\udce9.cql: 1 stream, 1 view, 2 queries: ok\n", "")


# --------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("command", ["check", "run", "explain"])
def test_set_takes_effect_before_the_script(cql: Shell, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    seen: list[Session] = []
    monkeypatch.setattr(Session, "run", lambda self, text, name: seen.append(self))
    cql(
        command,
        "good.cql",
        "--set",
        "range_bounds=closed",
        "empty_aggregate=stream",
        "--set",
        "rstream_clock=tick",
    )
    (session,) = seen
    settings = session.catalog.settings
    assert (settings.range_bounds, settings.empty_aggregate, settings.rstream_clock) == (
        "closed",
        "stream",
        "tick",
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("range_bound=closed", "there is no setting 'range_bound' (did you mean range_bounds?)"),
        ("range_bounds=open", "'range_bounds' cannot be 'open'"),
        ("range_bounds", "write key=value"),
        ("=closed", "there is no setting ''"),
    ],
)
def test_a_wrong_setting_is_wrong_usage(cql: Shell, setting: str, message: str) -> None:
    result = cql("check", "--set", setting, "good.cql")
    assert (result.code, result.out) == (2, "")
    assert f"cql: error: --set {setting}: {message}" in result.err


def test_set_may_stand_before_the_file(cql: Shell) -> None:
    assert cql("check", "--set", "range_bounds=closed", "good.cql").code == 0


# ---------------------------------------------------------------------------------------------------- answers


def test_run_answers_questions(cql: Shell) -> None:
    Path("asking.cql").write_text(
        "CREATE STREAM s (k INT, t INT) TIMESTAMP BY t;\n"
        "DESCRIBE s; EXPLAIN SELECT k FROM s [Rows 2]; EXPLAIN RULES SELECT k FROM s WHERE TRUE AND k > 1;\n"
    )
    result = cql("run", "asking.cql")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "column  type  null  note\nk       INT   yes\nt       INT   no    timestamp\n\nquery query: "
    )
    assert "seq-window [Rows 2]" in result.out and "1. simplify predicates" in result.out


@pytest.mark.parametrize("command", ["run", "explain"])
def test_an_error_in_the_script_comes_first(cql: Shell, command: str) -> None:
    result = cql(command, "wrong.cql")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("wrong.cql:2:8: E202: ")


@pytest.mark.parametrize(
    ("form", "beginning"),
    [
        ("text", "query q1: "),
        ("json", '{\n  "version": 1,'),
        ("dot", "digraph plan {"),
        ("mermaid", "flowchart BT"),
    ],
)
def test_explain_prints_the_plan(cql: Shell, form: str, beginning: str) -> None:
    for arguments in ((), ("--query", "q1")):
        result = cql("explain", "good.cql", "--format", form, *arguments)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith(beginning) and result.out.endswith("\n")


def test_a_query_without_a_plan_is_explained(cql: Shell, tmp_path: Path) -> None:
    Path("unplanned.cql").write_text(
        "CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t;\n"
        "SELECT k FROM s [Now] WHERE v > (SELECT MAX(v) FROM s [Rows 5] AS x WHERE x.k < s.k);\n"
    )
    assert cql("check", "unplanned.cql").code == 0
    result = cql("explain", "unplanned.cql")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("unplanned.cql:2:") and ": E601: " in result.err and "  hint: " in result.err


def test_explain_knows_the_queries_of_the_script(cql: Shell) -> None:
    result = cql("explain", "good.cql", "--query", "q7")
    assert result.code == 1
    assert result.err.startswith("good.cql:1:1: E208: there is no query 'q7'\n")


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("check",),
        ("run",),
        ("run", "good.cql", "wrong.cql"),
        ("run", "good.cql", "--engine", "flink"),
        ("run", "good.cql", "--out", "jsonl"),
        ("run", "good.cql", "--engine", "local", "--adopt"),
        ("repl", "--engine", "local", "--checkpoint", "kept"),
        ("explain", "good.cql", "--format", "png"),
        ("state",),
        ("state", "kept", "--limit", "few"),
        ("repl", "--set", "range_bounds"),
        ("check", "good.cql", "--verbose"),
    ],
    ids=" ".join,
)
def test_wrong_usage(cql: Shell, arguments: tuple[str, ...]) -> None:
    result = cql(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: cql")


@pytest.mark.parametrize("command", ["run", "check", "explain", "state", "repl"])
def test_help_has_an_example(cql: Shell, command: str) -> None:
    result = cql(command, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"example:\n  cql {command} " in result.out
    assert f"    {command}" in cql("--help").out


def test_version(cql: Shell) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cql("--version") == Result(0, f"cql {project['version']}\n", "")
    assert package.__version__ == project["version"]


def test_the_package_has_a_description_and_says_that_it_has_types() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert content["project"]["readme"] == "README.md"
    assert "py.typed" in content["tool"]["setuptools"]["package-data"]["*"]
    for name in content["tool"]["setuptools"]["packages"]["find"]["include"]:
        assert (ROOT / name.rstrip("*") / "py.typed").exists(), name


# --------------------------------------------------------------------------------- statements as an argument


def test_statements_can_be_an_argument(cql: Shell) -> None:
    Path("bid.csv").write_text("1,7,1\n2,9,2\n")
    text = f"{BID.rstrip()[:-1]} FROM csv OPTIONS (path 'bid.csv'); SELECT Istream(auction) FROM bid WHERE price > 8"
    arguments = ("run", "--engine", "local", "--output", "jsonl", "--set", "on_bad_row=skip")
    line = '{"query": "q1", "ts": 2, "op": "+", "row": {"auction": 2}}\n'
    assert cql(*arguments, "-c", text) == Result(0, line, "")
    assert cql(*arguments, "--command", text) == Result(0, line, "")
    assert cql("run", "-c", WRONG).err.startswith("<command>:2:8: E202: there is no column 'prise'\n")
    assert cql("run", "-c", "") == Result(0, "", "")


def test_statements_are_a_file_or_an_argument(cql: Shell) -> None:
    for arguments in (("run",), ("run", "good.cql", "-c", GOOD)):
        result = cql(*arguments)
        assert (result.code, result.out) == (2, "") and "usage: cql run" in result.err


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that every check runs into."""

    def fail(self: Session, text: str, name: str) -> None:
        raise KeyError("first line\nsecond line")

    monkeypatch.setattr(Session, "run", fail)


@pytest.mark.usefixtures("broken")
def test_an_internal_error_is_one_line(cql: Shell) -> None:
    result = cql("check", "good.cql")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("internal error: KeyError: ")
    assert "run again with --debug" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("arguments", [("--debug", "check", "good.cql"), ("check", "good.cql", "--debug")])
def test_debug_shows_the_traceback(cql: Shell, arguments: tuple[str, ...]) -> None:
    result = cql(*arguments)
    assert result.code == 3
    assert result.err.startswith("Traceback (most recent call last):\n")


def test_an_error_of_the_user_has_no_traceback_even_with_debug(cql: Shell) -> None:
    assert cql("--debug", "check", "wrong.cql") == cql("check", "wrong.cql")


def test_ctrl_c_ends_quietly(cql: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Session, text: str, name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "run", interrupt)
    assert cql("check", "good.cql") == Result(130, "", "")
