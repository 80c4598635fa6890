"""The commands of the shell that begin with a backslash, in one list: help, completion and documents follow it."""

from __future__ import annotations

from dataclasses import dataclass

from cql.errors import nearest


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its names, the longest last, what may follow it, and what it does.

    `argument` is what completion offers: a statement, a table or query, a query, a file, an engine, or nothing.
    """

    names: tuple[str, ...]
    usage: str
    summary: str
    argument: str = ""

    @property
    def key(self) -> str:
        """The name that stands for the command in the program."""
        return self.names[-1]


COMMANDS: tuple[Command, ...] = (
    Command(("\\h", "\\help"), "[STATEMENT]", "help: all statements and commands, or one statement", "statement"),
    Command(("\\d", "\\describe"), "[NAME]", "all that is defined, or the columns of one of it", "name"),
    Command(("\\e", "\\edit"), "", "edit the last statement in $EDITOR, and run it"),
    Command(("\\i", "\\include"), "FILE", "run the statements of a file", "file"),
    Command(("\\w", "\\watch"), "[QUERY]", "watch what runs, or one query of it, until q or Ctrl-C", "query"),
    Command(("\\timing",), "", "tell how long each statement takes, or no longer"),
    Command(("\\engine",), "[spark | local]", "where START runs queries: on Spark, or in this process", "engine"),
    Command(("\\q", "\\quit"), "", "leave; Ctrl-D does the same"),
)

BY_NAME = {name: command for command in COMMANDS for name in command.names}


def nearest_commands(word: str) -> tuple[str, ...]:
    """Return the commands that are spelt like a word."""
    return nearest(word, BY_NAME, most=1)
