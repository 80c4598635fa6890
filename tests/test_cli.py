"""The command line: what goes where, with which exit code, and that nothing ends in a traceback."""

import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cql.session import Session
from repl import cli

BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at;\n"
GOOD = BID + "CREATE VIEW dear AS SELECT * FROM bid WHERE price > 9; SELECT * FROM dear; SELECT price FROM bid;\n"
WRONG = BID + "SELECT prise FROM bid;\n"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Shell:
    """Runs `cql` inside this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Result:
        code = cli.main(list(arguments))
        return Result(code, *self.capsys.readouterr())


@pytest.fixture
def cql(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """`cql` in a folder with a good and a wrong script."""
    monkeypatch.chdir(tmp_path)
    Path("good.cql").write_text(GOOD)
    Path("wrong.cql").write_text(WRONG)
    return Shell(capsys)


def installed(*arguments: str, stdin: str = "", cwd: Path | None = None) -> Result:
    """Run the installed command."""
    command = [str(Path(sys.executable).with_name("cql")), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, timeout=60)
    return Result(done.returncode, done.stdout, done.stderr)


# ----------------------------------------------------------------------------------------- the installed command


def test_the_installed_command_checks_a_script(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    assert installed("check", "good.cql", cwd=tmp_path) == Result(
        0, "good.cql: 1 stream, 1 view, 2 queries: ok\n", ""
    )


def test_the_installed_command_reports_errors_on_standard_error() -> None:
    result = installed("check", "-", stdin=WRONG)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("<stdin>:2:8: E202: there is no column 'prise'\n")


def test_the_installed_command_tells_wrong_usage() -> None:
    result = installed("chekc", "good.cql")
    assert (result.code, result.out) == (2, "")
    assert "invalid choice: 'chekc'" in result.err and "Traceback" not in result.err


def test_nobody_reading_the_output_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    program = "import os, sys; os.close(1); os.dup2(os.pipe()[1], 1); from repl.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", f"import os; r, w = os.pipe(); os.dup2(w, 1); os.close(w); os.close(r); {program[15:]}"]
        if False
        else [sys.executable, "-c", _CLOSED_PIPE, "check", str(tmp_path / "good.cql")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (141, "")


def test_checking_loads_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "good.cql").write_text(GOOD)
    program = (
        "import sys; from repl.cli import main; main(sys.argv[1:]);"
        "print(*{'rich', 'pyarrow', 'pyspark', 'pandas', 'numpy'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program, "check", str(tmp_path / "good.cql")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[1:] == [""]
