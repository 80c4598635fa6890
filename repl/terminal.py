"""The shell on a terminal: greets, reads, carries out, until somebody leaves.

Ctrl-C gives up the line; on an empty one it first reminds of queries that run, and then stops them. Ctrl-D leaves.
"""

from __future__ import annotations

import sys
import threading

from cql.session import Session
from repl.editor import Editor
from repl.live import Live
from repl.script import RunOptions
from repl.shell import TYPED, Leaving, Shell
from repl.summary import status_line
from repl.terminal_display import TerminalDisplay

GREETING = "CQL on Spark. Statements end with ; — \\h helps, \\q leaves."


def interact(options: RunOptions, session: Session, file: str | None, *, debug: bool) -> int:
    """Run the shell on a terminal until it is left, and return the exit code."""
    display = TerminalDisplay()
    live = Live(options, display)
    shell = Shell(session, live, display, debug=debug, name=TYPED)
    live.report_bug = shell.report_bug
    editor = Editor(lambda: shell.catalog, lambda: status_line(live.run))
    display.line(GREETING)
    warming = threading.Thread(target=live.warm_up, name="cql warm-up", daemon=True)
    warming.start()
    try:
        if file is not None:
            shell.run_file(file)
        _loop(shell, live, editor)
    except Leaving:
        pass
    if live.is_running:
        live.stop()
    warming.join()
    sys.stdout.flush()
    return 0


def _loop(shell: Shell, live: Live, editor: Editor) -> None:
    """Read and carry out until the end of input."""
    has_warned = False
    while True:
        try:
            with live.prompting():
                text = editor.read()
        except EOFError:
            return
        except KeyboardInterrupt:
            if editor.typed.strip():
                continue
            has_warned = _interrupted(live, shell, has_warned)
            continue
        has_warned = False
        shell.run_text(text, TYPED)


def _interrupted(live: Live, shell: Shell, has_warned: bool) -> bool:
    """Act on Ctrl-C on an empty line; tell whether the next one would stop what runs."""
    if not live.is_running:
        shell.display.line("Ctrl-D or \\q leaves")
        return False
    if not has_warned:
        shell.display.line("queries are running: Ctrl-C again stops them, \\watch shows them")
        return True
    try:
        live.stop()
    except KeyboardInterrupt:
        shell.display.line("still stopping")
    return False
