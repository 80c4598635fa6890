"""Writes `docs/errors.md`: every error code with its meaning, an example, what is printed, and a way out."""

from collections.abc import Mapping

from cql.errors import Code

_HEAD = """\
# Errors

Every error is printed as `FILE:LINE:COL: CODE: message`, the source line, a caret under the offending text,
and a hint where one helps. All errors of a script are reported at once, except those that only follow from
an earlier one. A statement with an error changes nothing. `cql check FILE` finds errors without running
anything.

A code keeps its meaning for ever. This page is written by `make golden` from the scripts in `tests/errors/`.
"""

FIXES = {
    Code.SYNTAX: (
        "Look at the word under the caret and at the one before it: a misspelt keyword, a missing comma "
        "or semicolon, or a habit from another language. The hint says what could stand there."
    ),
    Code.UNCLOSED: (
        "Add the missing bracket, or remove the one too many. The caret is under the bracket that has "
        "no partner, not where the partner is missing."
    ),
    Code.BAD_CHARACTER: (
        "Remove or replace the character. Text copied from a document often has typographic quotes and dashes in it."
    ),
    Code.UNTERMINATED: "Close the quote. A quote inside a string is written twice: `'O''Neill'`.",
    Code.BAD_LITERAL: (
        "Write timestamps as `'2026-01-31 12:00:00'` and intervals as `10 Seconds` or `'1 hour 30 "
        "minutes'`; counts are whole numbers."
    ),
    Code.TOO_DEEP: "Move inner parts into views.",
    Code.STREAM_SCRIPT: (
        "In a STREAM script `table` is followed by its `source`, `vquery` by its `vtable`, and a "
        "`query`, if it has a file for its result, by its `dest`."
    ),
    Code.ENCODING: "Save the file as UTF-8.",
    Code.UNKNOWN_TABLE: (
        "Correct the name, or define it in a statement further up. An input with an alias is known by "
        "its alias only. A registered query cannot be read from; make it a view."
    ),
    Code.UNKNOWN_COLUMN: (
        "Correct the name. Strings are in single quotes, names in double quotes. A name given with `AS` "
        "can be used in GROUP BY, HAVING and ORDER BY, not in WHERE."
    ),
    Code.AMBIGUOUS_COLUMN: "Say which input is meant: `bid.price`.",
    Code.UNKNOWN_FUNCTION: (
        "Correct the name; `SHOW FUNCTIONS` lists all functions. Functions of your own are registered from Python."
    ),
    Code.UNKNOWN_TYPE: "Use BOOLEAN, BYTE, INT, BIGINT, DOUBLE, DECIMAL(p,s), STRING or TIMESTAMP.",
    Code.DUPLICATE_NAME: (
        "Choose another name, or drop what has it. Names are compared without regard to case; streams, "
        "relations and views share their names."
    ),
    Code.UNKNOWN_OPTION: "Correct the name. `SHOW SETTINGS` lists all settings.",
    Code.UNKNOWN_QUERY: "Correct the name; `SHOW QUERIES` lists all queries.",
    Code.IN_USE: "Drop the views and queries that use it first.",
    Code.TYPE_MISMATCH: ("Convert one side with `CAST(x AS TYPE)`, or compare with something of the same type."),
    Code.BAD_ARGUMENTS: "Call the function as the hint shows.",
    Code.BAD_OPTION_VALUE: "Use one of the values in the hint.",
    Code.COLUMN_COUNT: "Make both lists equally long.",
    Code.WINDOW_ON_RELATION: ("Leave the window out, or make a stream first: `FROM Istream(SELECT ..) [Rows 5]`."),
    Code.BAD_WINDOW: (
        "Make `Slide` at most as long as `Range`, and both at least one tick of the stream's clock: a "
        "second for integer timestamps, a microsecond for TIMESTAMP."
    ),
    Code.MIXED_TIME: "Give all streams of a query timestamps of the same kind.",
    Code.AGGREGATE_NOT_ALLOWED: (
        "Conditions on aggregates go into HAVING; an aggregate of an aggregate needs a subquery or view."
    ),
    Code.NOT_GROUPED: ("Group by the column, or say which of its values is meant: `MAX(bidder)`, `LAST(bidder)`."),
    Code.BAD_ORDER: (
        "A relation has no order: `ORDER BY .. LIMIT n` as a whole chooses its first n rows, and "
        "neither half means anything alone."
    ),
    Code.BAD_TIMESTAMP: (
        "The timestamp is a TIMESTAMP column, or an INT or BIGINT column of seconds; the sign of a "
        "relation's log is `'+'` or `'-'`, or 1 or -1."
    ),
    Code.BAD_SUBQUERY: (
        "A subquery that is used as a value has one column and at most one row: select an aggregate. A "
        "row in parentheses can only be compared by `IN (SELECT ..)`."
    ),
    Code.BAD_ROW_NUMBER: (
        "Put ROW_NUMBER into the select list of a subquery, and choose rows by it outside: `SELECT .. "
        "FROM (SELECT .., ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) AS n FROM ..) WHERE n <= 3`."
    ),
    Code.BAD_DEFINITION: "Add what the definition lacks.",
    Code.NOT_TRUSTED: (
        "Code that is imported can do anything. If you trust who wrote the catalog: "
        "`cql.Catalog.from_json(text, trusted=True)`."
    ),
    Code.CANNOT_DECORRELATE: "Write the subquery as a join with the query around it.",
    Code.CANNOT_PLAN: "Write the query in another way; the message says which part of it has no plan.",
    Code.UNBOUNDED_STATE: "Put windows on the streams, or allow such state: `SET unbounded_state = allow`.",
    Code.NO_FILE: "Correct the path. Relative paths start at the working directory.",
    Code.CANNOT_INFER: "List the columns instead of `SCHEMA INFERRED`.",
    Code.BAD_DATA: (
        "Correct the row: the message says where it stands and which value is wrong. Or leave such rows out, "
        "which are then counted: `SET on_bad_row = skip`."
    ),
    Code.BAD_FILE: "Write the file again, or correct the columns or the format in the definition of its table.",
    Code.CHANGED_SOURCE: (
        "Put the file back as it was: the checkpoint has read it, or was about to. New rows belong into files with new "
        "names, written under a name that begins with a dot and renamed when they are complete."
    ),
    Code.CANNOT_WRITE: "Choose another path, or see to it that the folder can be written to.",
    Code.FUNCTION_FAILED: (
        "Correct the function: the message says which arguments it failed on. It has to return a value of its type, "
        "or None for NULL."
    ),
    Code.FORGOTTEN: (
        "Of each query the last million rows of changes are kept in memory. Read them while they come, ask for "
        "`query.dataframe()` before the engine starts, or keep more: `cql.Engine(keep=10_000_000)`."
    ),
    Code.TOO_MUCH_MEMORY: (
        "The message says which query keeps how much, and for which operator of `cql explain`. A result that is a "
        "relation keeps all rows that are to be taken back, so a join of long windows without a selective condition "
        "keeps each of its pairs. Count or group them, shorten the windows, or allow more: `SET max_memory = '8 GB'`."
    ),
    Code.OTHER_CHECKPOINT: (
        "Start from a new checkpoint, or stop the network that uses this one. A checkpoint of other queries can be "
        "adopted: `cql run --adopt` lets those that are the same go on, and the others begin anew."
    ),
    Code.CANNOT_SHED: (
        "Choose a policy that fits: whole windows are lost by queries over time ranges, single rows by queries that "
        "give fewer answers for fewer rows and never other ones; for joins there are others. `shedding = 'auto'` takes "
        "one that fits. `docs/shedding.md` and `docs/join-shedding.md` say which fits where."
    ),
    Code.OTHER_OWNER: (
        "Give each run that lasts, and each checkpoint, a path of its own for its results. A run from a new "
        "checkpoint writes all results anew, in the place of those of an earlier one. `docs/operating.md` has the "
        "rules."
    ),
    Code.CANNOT_READ: (
        "The message has Spark's own reason: an option that is missing, a driver that is not there, a format that can "
        "be read as a relation but not followed as a stream."
    ),
    Code.MISSING: "Install what the message names; it says where it was looked for.",
    Code.VERSIONS: (
        "Use versions that go together: one Python for all of Spark's processes, and the PySpark of the session."
    ),
    Code.NOT_STARTED: "The message has the reason that Spark gives: a port, memory, a setting.",
    Code.TOO_SLOW: (
        "Give the machine less to do at once. Spark waits ten seconds for such a process, and a run is started a dozen "
        "times before it ends. One with a checkpoint goes on where it stopped."
    ),
    Code.PROCESS_ENDED: (
        "See whether there is too little memory: then the system ends processes. A run with a checkpoint goes on "
        "where it stopped. Sessions that are made by `cql` try a task four times, as clusters do; in a session of "
        "your own on one machine, the master `local[2, 4]` says so."
    ),
    Code.NOT_AVAILABLE: "Leave it out until a version that has it.",
}

ELSEWHERE = {
    Code.NOT_TRUSTED: "tests of the catalog",
    Code.CANNOT_DECORRELATE: "tests of the planner",
    Code.CANNOT_PLAN: "tests of the planner",
    Code.UNBOUNDED_STATE: "tests of the planner",
    Code.BAD_DATA: "tests of the readers",
    Code.BAD_FILE: "tests of the readers",
    Code.CHANGED_SOURCE: "tests of the files of sources",
    Code.CANNOT_WRITE: "tests of the writers",
    Code.FUNCTION_FAILED: "tests of the Python API",
    Code.OTHER_CHECKPOINT: "tests of failures on Spark",
    Code.FORGOTTEN: "tests of the Python API",
    Code.OTHER_OWNER: "tests of the writers",
    Code.CANNOT_READ: "tests of sources on Spark",
    **dict.fromkeys(
        (Code.MISSING, Code.VERSIONS, Code.NOT_STARTED, Code.TOO_SLOW, Code.PROCESS_ENDED), "tests of starting Spark"
    ),
    Code.TOO_MUCH_MEMORY: "tests of the engine",
    Code.NOT_AVAILABLE: "tests of formats",
}
"""The codes that checking a script cannot bring about, and where they are tested."""


def errors_page(examples: Mapping[Code, tuple[str, str]]) -> str:
    """Return the page; `examples` holds a script and what is printed for it, by code."""
    codes = sorted(Code, key=lambda code: code.text)
    return "\n".join([_HEAD, *(_section(code, examples.get(code)) for code in codes)])


def _section(code: Code, example: tuple[str, str] | None) -> str:
    lines = [f"## {code.text}: {code.meaning}", ""]
    if example:
        script, printed = example
        lines += ["```sql", script.rstrip("\n"), "```", "```text", printed.rstrip("\n"), "```"]
    return "\n".join([*lines, FIXES[code], ""])
