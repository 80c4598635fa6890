"""The shell as a person waits for it: first prompt, TRY, START to the first result, in process and on Spark.

It is typed at through a pseudo-terminal. Targets: a prompt within 1 s, an answer to TRY within 2 s.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pexpect

REPEATED = 5
ROOT = Path(__file__).parent.parent
BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 'bids.csv');"
BEST = "SELECT auction, MAX(price) AS highest FROM bid [Range 10 Seconds] GROUP BY auction"


class Typist:
    """Somebody at a shell, with a clock."""

    def __init__(self, folder: str) -> None:
        self._began = time.perf_counter()
        self._shell = pexpect.spawn(
            sys.executable,
            ["-m", "repl.cli", "repl"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
            encoding="utf-8",
            timeout=300,
            dimensions=(40, 120),
        )

    def waits_for(self, text: str) -> float:
        """Return how long it takes until a text appears."""
        self._shell.expect_exact(text)
        return time.perf_counter() - self._began

    def enters(self, text: str) -> None:
        """Type a line; the clock starts anew."""
        self._began = time.perf_counter()
        self._shell.send(f"{text}\r")

    def does(self, text: str) -> None:
        """Type a line and wait until it is done."""
        self.enters(text)
        self._shell.expect_exact("cql> ")

    def leaves(self) -> None:
        """Leave the shell."""
        self._shell.send("\\q\r")
        self._shell.expect(pexpect.EOF)
        self._shell.close()


def at_the_prompt(folder: str) -> tuple[float, float, float]:
    """Return how long the first prompt, a TRY right after it, and one after that take."""
    typist = Typist(folder)
    prompt = typist.waits_for("cql> ")
    typist.does(BID)
    tries = []
    for _ in range(2):
        typist.enters(f"TRY {BEST};")
        tries.append(typist.waits_for("over the first"))
        typist.waits_for("cql> ")
    typist.leaves()
    return prompt, tries[0], tries[1]


def started(folder: str) -> tuple[float, float, float]:
    """Return how long START takes to a first result: in process, on Spark, and on the same Spark again."""
    typist = Typist(folder)
    typist.waits_for("cql> ")
    for line in (BID, f"REGISTER QUERY best AS {BEST};", "\\engine local"):
        typist.does(line)
    found = []
    for engine in ("local", "spark", "spark"):
        typist.does(f"\\engine {engine}")
        typist.enters("START;")
        found.append(typist.waits_for("rows in, "))
        typist.waits_for("cql> ")
    typist.leaves()
    return found[0], found[1], found[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bids.csv").write_text("".join(f"{n % 5},{n * 7 % 100},{n // 5}\n" for n in range(5000)))
        waits = list(zip(*(at_the_prompt(folder) for _ in range(REPEATED)), strict=True))
        for what, times in zip(("first prompt", "TRY, the first", "TRY, the next"), waits, strict=True):
            print(f"{what:<34} {median(times):6.2f} s  (from {min(times):.2f} to {max(times):.2f})")
        whats = ("START to all results, in process", "START to all results, on Spark", "the same once more")
        for what, seconds in zip(whats, started(folder), strict=True):
            print(f"{what:<34} {seconds:6.2f} s")


if __name__ == "__main__":
    main()
