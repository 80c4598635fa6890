"""Streams, relations and results written as text, so that tests read as tables of instants.

S="1@3 1@3 2@5"      the rows (1), (1) at 3 and (2) at 5, in this order
P="1,0@5 2,NULL@6"   rows of several columns
K="a1@1 b2@2"        short for a,1@1 b,2@2
R="+1@1 -1@4"        a signed relation
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from cql import Catalog, bind, bound
from tests.definition.evaluator import Bag, Element, Result, evaluate, user_code
from tests.definition.values import Row, Value

_DECLARATIONS = """
    REGISTER STREAM S (A int);  REGISTER STREAM T (A int);
    REGISTER STREAM P (a int, b int);  REGISTER STREAM Q (a int, b int);
    REGISTER STREAM K (k char(1), v int);
    REGISTER RELATION R (A int);  REGISTER RELATION W (a int, b int);
    CREATE RELATION Fixed (a INT, b INT);
    CREATE STREAM E (v INT, at TIMESTAMP) TIMESTAMP BY at;
"""
_BASE = Catalog()
_BASE.execute(_DECLARATIONS)


def catalog(**settings: str) -> Catalog:
    """Return a catalog with the streams and relations above, under some settings."""
    made = _BASE.copy_for_trial()
    for key, value in settings.items():
        made.set(key, value)
    return made


def elements(text: str) -> list[Element]:
    """Return the elements that a text means."""
    return [_element(word) for word in text.split()]


def _element(word: str) -> Element:
    sign, row, instant = re.fullmatch(r"([+-]?)(.*)@(-?\d+)", word).groups()  # type: ignore[union-attr]
    short = re.fullmatch(r"([a-z])(\d+)", row)
    parts = short.groups() if short else row.split(",")
    return int(instant), tuple(_value(part) for part in parts), -1 if sign == "-" else +1


def _value(text: str) -> Value:
    if text == "NULL":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def run(query: str | bound.Rel, catalog: Catalog = _BASE, *, every_tick: bool = False, **data: str) -> Result:
    """Evaluate a query; inputs that are not given are empty."""
    tree = bind(query, catalog) if isinstance(query, str) else query
    given = {name: elements(data.get(name, "")) for name in {scan.name for scan in bound.scans(tree)}}
    return evaluate(tree, given, user_code(catalog), every_tick=every_tick)


def changes(query: str | bound.Rel, catalog: Catalog = _BASE, **data: str) -> dict[int, str]:
    """Return what a query yields by instant: elements of a stream, signed changes of a relation."""
    tree = bind(query, catalog) if isinstance(query, str) else query
    found = run(tree, catalog, every_tick=False, **data).changes
    return {time: written(bag, signed=not tree.is_stream) for time, bag in found.items()}


def contents(query: str, times: Iterable[int], catalog: Catalog = _BASE, **data: str) -> dict[int, str]:
    """Return a relation at some instants."""
    result = run(query, catalog, every_tick=False, **data)
    return {time: written(result.relation_at(time)) for time in times}


def sorted_words(table: Mapping[int, str]) -> dict[int, str]:
    """Return texts by instant with their words in the order in which results are written."""
    return {time: " ".join(sorted(text.split())) for time, text in table.items()}


def written(bag: Bag, signed: bool = False) -> str:
    """Return a bag as text, sorted."""
    words = []
    for row, count in bag.items():
        sign = ("+" if count > 0 else "-") if signed else ""
        words += [sign + _row_text(row)] * abs(count)
    return " ".join(sorted(words))


def _row_text(row: Row) -> str:
    if len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], int):
        return f"{row[0]}{row[1]}"
    return ",".join(_value_text(value) for value in row)


def _value_text(value: Value) -> str:
    if value is None:
        return "NULL"
    return str(value.normalize()) if isinstance(value, Decimal) else str(value)
