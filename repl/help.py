"""What every statement is for: its syntax and an example, in one list.

`\\h`, completion and a table in `docs/repl.md` are made from it. The examples fit together: run in order, they all
bind.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql import ast
from cql.errors import nearest


@dataclass(frozen=True, slots=True)
class Help:
    """A statement: the words that it begins with, its nodes, what it does, how it is written."""

    name: str
    nodes: tuple[type[ast.Statement], ...]
    summary: str
    syntax: str
    example: str


STATEMENTS: tuple[Help, ...] = (
    Help(
        "CREATE STREAM",
        (ast.CreateStream,),
        "defines a stream",
        "CREATE STREAM name (column TYPE [NOT NULL], ..) TIMESTAMP BY column [DELAY time]\n"
        "  [FROM format [SCHEMA INFERRED] [OPTIONS (key 'value', ..)]]",
        "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at DELAY 5 SECONDS\n"
        "  FROM csv OPTIONS (path 'bids.csv', header 'true');",
    ),
    Help(
        "CREATE RELATION",
        (ast.CreateRelation,),
        "defines a static table, or a relation by a log of its changes",
        "CREATE RELATION name (column TYPE [NOT NULL], ..) [TIMESTAMP BY column SIGN BY column]\n"
        "  [FROM format [SCHEMA INFERRED] [OPTIONS (key 'value', ..)]]",
        "CREATE RELATION item (id INT, title STRING) FROM json OPTIONS (path 'items.json');",
    ),
    Help(
        "CREATE VIEW",
        (ast.CreateView,),
        "names a query, to be used in others",
        "CREATE VIEW name [(column, ..)] AS query",
        "CREATE VIEW dear AS SELECT * FROM bid WHERE price > 100;",
    ),
    Help(
        "REGISTER QUERY",
        (ast.RegisterQuery,),
        "registers a continuous query; START runs it",
        "REGISTER QUERY name AS query [WITH (option = value, ..)] [INTO format [OPTIONS (key 'value', ..)]]",
        "REGISTER QUERY best AS\n"
        "  SELECT auction, MAX(price) AS price FROM bid [Range 1 Minute Slide 10 Seconds] GROUP BY auction\n"
        "  INTO csv OPTIONS (path 'out/best');",
    ),
    Help(
        "SELECT",
        (ast.QueryStatement,),
        "a query alone is registered as q1, q2, ..",
        "SELECT [DISTINCT] expression [AS name], .. | Istream(..) | Dstream(..) | Rstream(..)\n"
        "  FROM name [window] [alias], .. [WHERE ..] [GROUP BY ..] [HAVING ..] [ORDER BY ..] [LIMIT n]\n"
        "windows: [Range 1 Minute] [Range 1 Minute Slide 10 Seconds] [Rows 100] [Now]\n"
        "  [Partition By column Rows 10] [Range Unbounded]",
        "SELECT Istream(title, price) FROM bid [Now], item WHERE auction = id;",
    ),
    Help(
        "TRY",
        (ast.Try,),
        "runs a query at once over the first rows of its tables, and registers nothing",
        "TRY query",
        "TRY SELECT auction, COUNT(*) AS bids FROM bid [Rows 100] GROUP BY auction;",
    ),
    Help(
        "EXPLAIN",
        (ast.Explain,),
        "shows the plan of a query, or what each rewrite rule did",
        "EXPLAIN [JSON | DOT | MERMAID | RULES] query | QUERY name | ALL",
        "EXPLAIN QUERY best;",
    ),
    Help(
        "SHOW",
        (ast.Show,),
        "lists what is defined, can be set, or was counted while queries ran",
        "SHOW STREAMS | RELATIONS | VIEWS | QUERIES | FUNCTIONS | STATS | SHEDDING | DECISIONS | SETTINGS",
        "SHOW QUERIES;",
    ),
    Help(
        "DESCRIBE",
        (ast.Describe,),
        "lists the columns of a stream, relation, view or query",
        "DESCRIBE name",
        "DESCRIBE bid;",
    ),
    Help(
        "SET",
        (ast.SetSetting,),
        "changes a setting for the statements after it",
        "SET name = value",
        "SET on_bad_row = skip;",
    ),
    Help(
        "START",
        (ast.Start,),
        "runs the registered queries",
        "START",
        "START;",
    ),
    Help(
        "STOP",
        (ast.Stop,),
        "ends what runs: the last instants are closed and results are complete",
        "STOP",
        "STOP;",
    ),
    Help(
        "DROP",
        (ast.Drop,),
        "removes a stream, relation, view or query that nothing else uses",
        "DROP STREAM | RELATION | VIEW | QUERY name",
        "DROP QUERY best;",
    ),
    Help(
        "REGISTER STREAM",
        (ast.RegisterTable,),
        "defines a stream or relation in STREAM's form: the timestamp is the first, unnamed column",
        "REGISTER STREAM | RELATION name (column type, ..) [FROM format [OPTIONS (key 'value', ..)]]",
        "REGISTER STREAM temperature (room CHAR(8), degrees FLOAT) FROM stream OPTIONS (path 'temperature.dat');",
    ),
)


def find_help(words: str) -> list[Help]:
    """Return the statements that some words mean: those that begin with them, or else are spelt like them.

    >>> [each.name for each in find_help("create str")], [each.name for each in find_help("explian")]
    (['CREATE STREAM'], ['EXPLAIN'])
    """
    asked = " ".join(words.upper().rstrip(";").split())
    found = [each for each in STATEMENTS if each.name.startswith(asked) or asked.startswith(f"{each.name} ")]
    if found:
        return found
    near = nearest(asked, [each.name for each in STATEMENTS])
    return [each for each in STATEMENTS if each.name in near]
