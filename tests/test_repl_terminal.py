"""The shell on a real terminal: typed at through a pseudo-terminal, with all that a person sees.

Every test waits for text and never for time, so that a busy machine is only slower.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 180
"""For how many seconds a text is waited for: the start of Spark on a busy machine is the longest."""

CTRL_C, TAB, ENTER, UP = "\x03", "\t", "\r", "\x1b[A"
ASKS_FOR_CURSOR = "\x1b[6n"
BIDS = "auction,price,at\n" + "".join(f"{n % 3},{n * 7 % 100},{n // 5}\n" for n in range(2000))
BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at"
FROM_CSV = f"{BID} FROM csv OPTIONS (path 'bids.csv', header 'true');"
MAX = "SELECT auction, MAX(price) AS price FROM bid [Range 10 Seconds] GROUP BY auction"

_UNSEEN = re.compile(r"\r|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """A shell on a terminal. `sees` waits for text, whatever colours and movements are in between."""

    def __init__(self, home: Path, *arguments: str, size: tuple[int, int] = (40, 120), **environment: str) -> None:
        variables = {
            **{key: value for key, value in os.environ.items() if not key.startswith("XDG_")},
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "TERM": "xterm-256color",
            **environment,
        }
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "repl.cli", "repl", *arguments],
            env=variables,  # type: ignore[arg-type]
            encoding="utf-8",
            dimensions=size,
            timeout=PATIENCE,
        )
        self._seen = ""

    def types(self, text: str) -> None:
        self._child.send(text)

    def enters(self, text: str) -> None:
        self.types(text + ENTER)

    def sees(self, text: str) -> str:
        """Wait for a text and return what was seen before it; it is not seen again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            plain = _UNSEEN.sub("", self._seen)
            at = plain.find(text)
            if at >= 0:
                self._seen = plain[at + len(text) :]
                return plain[:at]
            if time.monotonic() > deadline:
                pytest.fail(f"{text!r} is not seen, but\n{plain}")
            try:
                self._seen += self._answered(self._child.read_nonblocking(4096, timeout=1))
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                pytest.fail(f"{text!r} is not seen before the end of\n{plain}")

    def _answered(self, shown: str) -> str:
        """Answer as terminals do when they are asked where the cursor is: at the top, so there is room below."""
        for _ in range(shown.count(ASKS_FOR_CURSOR)):
            self.types("\x1b[1;1R")
        return shown

    def is_asked(self) -> str:
        """Wait for the prompt and return what was seen before it."""
        return self.sees("cql> ")

    def resizes(self, rows: int, columns: int) -> None:
        self._child.setwinsize(rows, columns)

    def leaves(self, by: str = "\x04") -> int:
        """Leave and return the exit code."""
        self.types(by)
        self._child.expect(pexpect.EOF)
        self._child.close()
        assert isinstance(self._child.exitstatus, int)
        return self._child.exitstatus

    def close(self) -> None:
        self._child.close(force=True)


Open = Callable[..., Terminal]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens shells on the local engine, in a folder with a file of bids."""
    monkeypatch.chdir(tmp_path)
    Path("bids.csv").write_text(BIDS)
    terminals: list[Terminal] = []

    def make(*arguments: str, **options: object) -> Terminal:
        terminal = Terminal(tmp_path / "home", "--engine", "local", *arguments, **options)  # type: ignore[arg-type]
        terminals.append(terminal)
        terminal.is_asked()
        return terminal

    (tmp_path / "home").mkdir()
    yield make
    for terminal in terminals:
        terminal.close()


def many_files(count: int) -> str:
    """Write so many small files that reading them takes long, and return a stream of them."""
    Path("many").mkdir()
    for at in range(count):
        Path(f"many/{at:05}.csv").write_text(f"auction,price,at\n1,{at % 50},{at}\n")
    return FROM_CSV.replace("bids.csv", "many")


def test_a_first_session(opened: Open) -> None:
    shell = opened()
    shell.enters(FROM_CSV)
    shell.sees("stream bid (auction INT, price INT, at INT)")
    shell.is_asked()
    shell.enters("SELECT auction,")
    shell.sees("...> ")
    shell.enters("  prise FROM bid;")
    shell.sees("<input>:2:3: E202: there is no column 'prise'")
    shell.sees("^^^^^")
    shell.sees("hint: did you mean price?")
    shell.is_asked()
    shell.enters(f"TRY {MAX};")
    shell.sees("try (relation)")
    shell.sees("over the first 1,000 rows of bid, up to the last instant that they complete")
    shell.is_asked()
    shell.enters(f"REGISTER QUERY best AS {MAX};")
    shell.sees("query best: relation of (auction INT, price INT)")
    shell.sees("state: bounded, by what arrives within its windows")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("the last 20")
    shell.sees("2,000 rows in, ")
    shell.is_asked()
    shell.enters("SHOW STATS;")
    shell.sees("aggregate")
    shell.is_asked()
    shell.enters("\\d")
    shell.sees("best")
    shell.is_asked()
    assert shell.leaves() == 0


def test_tab_completes(opened: Open) -> None:
    shell = opened()
    shell.enters(FROM_CSV)
    shell.sees("stream bid (")
    shell.is_asked()
    shell.types("sel" + TAB)
    shell.sees("select")
    shell.types(" pri" + TAB)
    shell.sees("price")
    shell.types(" from b" + TAB)
    shell.sees("bid")
    shell.types(" [" + TAB)
    shell.sees("PARTITION BY")
    shell.types("now];" + ENTER)
    shell.sees("query q1: relation of (price INT)")
    shell.is_asked()
    shell.types("\\i bid" + TAB)
    shell.sees("bids.csv")
    shell.types(CTRL_C)
    shell.is_asked()
    shell.types("set unb" + TAB)
    shell.sees("unbounded_state")
    shell.types(" = re" + TAB)
    shell.sees("refuse")
    shell.enters(";")
    shell.sees("unbounded_state = refuse")
    shell.is_asked()
    assert shell.leaves("\\q\r") == 0


def test_history_is_there_after_a_restart(opened: Open, tmp_path: Path) -> None:
    first = opened()
    first.enters("SHOW SETTINGS;")
    first.sees("range_bounds")
    first.is_asked()
    assert first.leaves() == 0
    history = tmp_path / "home/.local/state/cql/history"
    assert "SHOW SETTINGS;" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    second = opened()
    second.types(UP)
    second.sees("SHOW SETTINGS;")
    second.types(ENTER)
    second.sees("range_bounds")
    second.is_asked()
    assert second.leaves() == 0


@pytest.mark.parametrize("variables", [{"HOME": "/dev/null"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_poor_surroundings_are_enough(opened: Open, variables: dict[str, str]) -> None:
    shell = opened(**variables)
    shell.enters(FROM_CSV)
    shell.sees("stream bid (auction INT, price INT, at INT)")
    shell.is_asked()
    shell.enters(f"REGISTER QUERY best AS {MAX};")
    shell.sees("state: bounded")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("2,000 rows in, ")
    shell.is_asked()
    assert shell.leaves() == 0


def test_watching_is_left_by_ctrl_c_and_the_run_stopped_by_two_more(opened: Open) -> None:
    stream = many_files(6_000)
    shell = opened()
    shell.enters(stream)
    shell.sees("stream bid (")
    shell.is_asked()
    shell.enters(f"REGISTER QUERY best AS {MAX};")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("passes")
    shell.resizes(10, 40)
    shell.sees("back to typing; the querie…")
    shell.resizes(40, 120)
    shell.sees("back to typing; the queries run on")
    shell.types(TAB)
    shell.types(CTRL_C)
    shell.sees("the queries run on; \\watch shows them, STOP ends them")
    shell.is_asked()
    shell.sees("rows in")
    shell.enters("REGISTER QUERY more AS SELECT price FROM bid WHERE price > 9;")
    shell.sees("it takes part from the next START on")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("queries are running")
    shell.is_asked()
    shell.enters("\\watch best")
    shell.sees("back to typing")
    shell.types("q")
    shell.sees("the queries run on")
    shell.is_asked()
    shell.types(CTRL_C)
    shell.sees("queries are running: Ctrl-C again stops them")
    shell.is_asked()
    shell.types(CTRL_C)
    shell.sees("ended after")
    shell.is_asked()
    shell.types(CTRL_C)
    shell.sees("Ctrl-D or \\q leaves")
    shell.is_asked()
    shell.enters("SHOW QUERIES;")
    shell.sees("more")
    shell.is_asked()
    assert shell.leaves() == 0


def test_a_run_that_goes_on_is_stopped_when_one_leaves(opened: Open) -> None:
    stream = many_files(6_000)
    shell = opened()
    shell.enters(f"{stream} REGISTER QUERY best AS {MAX}; START;")
    shell.sees("back to typing")
    shell.types("q")
    shell.sees("the queries run on")
    shell.is_asked()
    shell.types("\x04")
    shell.sees("ended after")


def test_a_run_that_ends_is_told_above_what_is_being_typed(opened: Open) -> None:
    stream = many_files(1_000)
    shell = opened()
    shell.enters(f"{stream} REGISTER QUERY best AS {MAX}; START;")
    shell.sees("back to typing")
    shell.types("q")
    shell.sees("the queries run on")
    shell.is_asked()
    shell.types("SHOW VI")
    shell.sees("1,000 rows in, ")
    shell.is_asked()
    shell.sees("SHOW VI")
    shell.enters("EWS;")
    shell.sees("columns")
    shell.is_asked()
    assert shell.leaves() == 0


def test_what_fails_leaves_the_session_and_what_is_defined(opened: Open, tmp_path: Path) -> None:
    shell = opened(JAVA_HOME="/none")
    Path("bids.csv").write_text(BIDS + "x,y,z\n")
    shell.enters(f"{FROM_CSV} REGISTER QUERY best AS {MAX}; START;")
    shell.sees("the run failed; what is defined is still there")
    shell.sees("E503: ")
    shell.is_asked()
    shell.enters("\\engine spark")
    shell.sees("START runs queries on Spark")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("E701: Spark needs Java 17 or newer, and there is none in JAVA_HOME")
    shell.is_asked()
    shell.enters("\\i nowhere.cql")
    shell.sees("E501: there is no file 'nowhere.cql'")
    shell.is_asked()
    shell.enters("\\engine local")
    shell.is_asked()
    shell.enters("SET on_bad_row = skip;")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("2,000 rows in, ")
    shell.sees("bid: left out: 1 row was bad")
    shell.is_asked()
    assert shell.leaves() == 0


def test_folders_are_not_followed_without_spark_but_tried(opened: Open) -> None:
    shell = opened()
    Path("bids.csv").write_text(BIDS)
    shell.enters(f"SET files = follow; {FROM_CSV} TRY {MAX};")
    shell.sees("over the first 1,000 rows of bid")
    shell.is_asked()
    shell.enters(f"REGISTER QUERY best AS {MAX};")
    shell.is_asked()
    shell.enters("START;")
    shell.sees("E901: the local engine reads files to their ends, and does not follow folders")
    shell.sees("hint: SET files = drain; cql run follows them")
    shell.is_asked()
    assert shell.leaves() == 0


def test_the_last_statement_can_be_edited(opened: Open, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i s/STREEMS/STREAMS/ $1\n")
    editor.chmod(0o755)
    shell = opened(EDITOR=str(editor))
    shell.enters("SHOW STREEMS;")
    shell.sees("hint: did you mean STREAMS?")
    shell.is_asked()
    shell.enters("\\e")
    shell.sees("SHOW STREAMS;")
    shell.sees("timestamp")
    shell.is_asked()
    assert shell.leaves() == 0


@pytest.mark.spark(own_process=True)
def test_a_session_on_spark(opened: Open) -> None:
    shell = opened()
    shell.enters(f"{FROM_CSV} TRY {MAX};")
    shell.sees("over the first 1,000 rows of bid")
    shell.is_asked()
    shell.enters("\\engine spark")
    shell.is_asked()
    shell.enters("CREATE STREAM tick (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp FROM rate;")
    shell.is_asked()
    shell.enters(
        "REGISTER QUERY seconds AS SELECT COUNT(*) AS counted FROM tick [Range 2 Seconds Slide 1 Second]; START;"
    )
    shell.sees("starting Spark")
    shell.sees("counted")
    shell.types("q")
    shell.sees("the queries run on")
    shell.is_asked()
    shell.enters("REGISTER QUERY odd AS SELECT Istream(value) FROM tick [Now] WHERE mod(value, 2) = 1;")
    shell.sees("it runs from now on: streams begin empty for it")
    shell.is_asked()
    shell.enters("DROP QUERY seconds;")
    shell.sees("it is over; the others run on")
    shell.is_asked()
    shell.enters("\\watch odd")
    shell.sees("back to typing")
    shell.types(CTRL_C)
    shell.sees("the queries run on")
    shell.is_asked()
    shell.enters("STOP;")
    shell.sees("ended after")
    shell.is_asked()
    shell.enters(f"DROP QUERY odd; REGISTER QUERY best AS {MAX}; START;")
    shell.sees("2,000 rows in, ")
    shell.is_asked()
    assert shell.leaves() == 0
