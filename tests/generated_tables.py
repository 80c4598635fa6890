"""The parts of documents that are written from the code: functions, settings, conversions, rules, operators, upgrades.

In a page they stand between `<!-- generated: NAME -->` and `<!-- end -->`; `make golden` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

from cql import Catalog
from cql import types as t
from cql.functions import AGGREGATES, SCALARS
from cql.functions.scalars import CALLABLE
from cql.settings import Settings
from planner.operators import OPERATOR_TYPES
from planner.rules import RULES
from repl.commands import COMMANDS
from repl.help import STATEMENTS
from runtime.network.record import NetworkChange, NetworkRecord, changed

_PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_generated_parts(page: str) -> str:
    """Return the page with its generated parts as they should be."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", page)


def generated_parts(page: str) -> list[str]:
    """Return the names of the generated parts that a page has."""
    return [name for _, name, _ in _PART.findall(page)]


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table whose source is aligned, too.

    >>> print(table(["a", "b"], [["1", "x|y"]]), end="")
    | a | b    |
    |---|------|
    | 1 | x\\|y |
    """
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (heading, *rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heading))]
    texts = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    border = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([f"| {texts[0]} |", f"|{border}|", *(f"| {text} |" for text in texts[1:])]) + "\n"


def _operators() -> str:
    called = {f.name for f in CALLABLE.values()} - {"mod"}
    operators = [f for f in SCALARS.values() if f.callable and f.name not in called]
    return table(("operator", "meaning"), [(f"`{f.usage}`", f.description) for f in operators])


def _functions() -> str:
    rows = []
    for f in SCALARS.values():
        if f.name in CALLABLE or not f.callable:
            others = [f"`{name}`" for name, same in CALLABLE.items() if same is f and name != f.name]
            also = f"; also called {', '.join(others)}" if others else ""
            usage = "mod(a, b)" if f.name == "mod" else f.usage
            rows.append((f"`{usage}`", f.description + also))
    return table(("function", "meaning"), rows)


def _aggregates() -> str:
    return table(("aggregate", "meaning"), [(f"`{f.usage}`", f.description) for f in AGGREGATES.values()])


def _settings() -> str:
    rows = []
    for name, info in Settings.model_fields.items():
        values = re.split(r", | or ", Settings.values_of(name))
        listed = ", ".join(f"**{value}**" if value == info.default else value for value in values)
        rows.append((f"`{name}`", listed, info.description or ""))
    return table(("setting", "values (default in bold)", "meaning"), rows)


_TYPES = (t.BOOLEAN, t.BYTE, t.INT, t.BIGINT, t.decimal(38, 10), t.DOUBLE, t.STRING, t.TIMESTAMP)


def _conversions() -> str:
    def conversion(source: t.DataType, target: t.DataType) -> str:
        if source == target:
            return "="
        if t.common_type(source, target) == target:
            return "yes"
        return "CAST" if t.castable(source, target) else "-"

    rows = [(a.kind.value, *(conversion(a, b) for b in _TYPES)) for a in (*_TYPES, t.INTERVAL)]
    return table(("from \\ to", *(b.kind.value for b in _TYPES)), rows)


def _rules() -> str:
    rows = []
    for name in RULES:
        documentation = import_module(f"planner.rules.{name}").__doc__ or ""
        rows.append((f"`{name}`", documentation.splitlines()[0]))
    return table(("rule", "what it does"), rows)


def _plan_operators() -> str:
    rows = []
    for kind in OPERATOR_TYPES:
        summary = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        rows.append((kind.model_fields["kind"].default, summary))
    return table(("operator", "what it does"), rows)


_NETWORK = """
CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at DELAY 5 SECONDS FROM csv OPTIONS (path 'bids');
REGISTER QUERY best AS SELECT auction, MAX(price) AS price FROM bid [Range 1 Minute] WHERE price > 5 GROUP BY auction;
"""
_UPGRADES = {
    "layout, comments, capitals": ("MAX(price)", "max( PRICE ) /* so far */"),
    "an equal way to say it: `60 Seconds` for `1 Minute`, a view": ("1 Minute", "60 Seconds"),
    "the name of a column of the result": ("AS price", "AS top"),
    "the name of a column of a stream, here and in its queries": ("auction", "sale"),
    "the sink, or its options": ("GROUP BY auction", "GROUP BY auction INTO csv OPTIONS (path 'out')"),
    "how fast a source is read: `maxFilesPerTrigger`": ("path 'bids'", "path 'bids', maxFilesPerTrigger 1"),
    "how a source is read: `header`, `sep`": ("path 'bids'", "path 'bids', header 'true'"),
    "`DELAY`": ("5 SECONDS", "50 SECONDS"),
    "`SET on_bad_row`, `scheduler`, `idle_timeout`": ("CREATE", "SET on_bad_row = skip; CREATE"),
    "another query, added or dropped": ("GROUP BY auction;", "GROUP BY auction; SELECT COUNT(*) FROM bid;"),
    "a window, a condition, an expression": ("1 Minute", "2 Minutes"),
    "the name of the query": ("QUERY best", "QUERY top"),
    "the name of a stream": ("bid ", "offer "),
    "the path or format of a source": ("'bids'", "'new/bids'"),
    "a column of a stream added, removed, or of another type": ("price INT", "price BIGINT"),
    "`SET sharing`": ("CREATE", "SET sharing = off; CREATE"),
    "`SET range_bounds`": ("CREATE", "SET range_bounds = closed; CREATE"),
}
"""Changes of a script, and how they change the one above."""


def _upgrades() -> str:
    before = _network(_NETWORK, None).record

    def becomes(old: str, new: str) -> str:
        assert old in _NETWORK
        return "goes on" if "best" in _network(_NETWORK.replace(old, new), before).kept else "begins anew"

    return table(("what changes", "the query"), [(what, becomes(*how)) for what, how in _UPGRADES.items()])


def _network(script: str, before: NetworkRecord | None) -> NetworkChange:
    catalog = Catalog()
    catalog.execute(script)
    return changed(before, catalog, list(catalog.queries.values()), buckets=2)


def _commands() -> str:
    rows = [(", ".join(f"`{name}`" for name in each.names), each.usage, each.summary) for each in COMMANDS]
    return table(("command", "", "what it does"), rows)


def _statements() -> str:
    return table(("statement", "what it does"), [(each.name, each.summary) for each in STATEMENTS])


PARTS: dict[str, Callable[[], str]] = {
    "upgrades": _upgrades,
    "commands": _commands,
    "statements": _statements,
    "rules": _rules,
    "plan operators": _plan_operators,
    "operators": _operators,
    "functions": _functions,
    "aggregates": _aggregates,
    "settings": _settings,
    "conversions": _conversions,
}
