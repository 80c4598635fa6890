"""The parts of `docs/language.md` that are written from the code: functions, settings and conversions.

In the page they stand between `<!-- generated: NAME -->` and `<!-- end -->`; `make golden` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from cql import types as t
from cql.functions import AGGREGATES, SCALARS
from cql.functions.scalars import CALLABLE
from cql.settings import Settings

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
    called = set(CALLABLE.values())
    rows = [(f"`{f.usage}`", f.description) for f in SCALARS.values() if f not in called and f.callable]
    return table(("operator", "meaning"), [*rows, (f"`{SCALARS['mod'].usage}`", SCALARS["mod"].description)])


def _functions() -> str:
    functions = {f.name: f for f in (*CALLABLE.values(), *SCALARS.values()) if f.name in CALLABLE or not f.callable}
    spellings = {name: [other for other, g in CALLABLE.items() if g is f and other != name] for name, f in functions.items()}
    rows = []
    for name, f in functions.items():
        usage = f"mod(a, b), {f.usage}" if name == "mod" else f.usage
        also = f"; also called {', '.join(f'`{other}`' for other in spellings[name])}" if spellings[name] else ""
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


_TYPES = (t.BOOLEAN, t.BYTE, t.INT, t.BIGINT, t.decimal(38, 10), t.DOUBLE, t.STRING, t.TIMESTAMP, t.INTERVAL)


def _conversions() -> str:
    def conversion(source: t.DataType, target: t.DataType) -> str:
        if source == target:
            return "="
        if t.common_type(source, target) == target or _wider_decimal(source, target):
            return "yes"
        return "CAST" if t.castable(source, target) else "-"

    names = [data_type.kind.value for data_type in _TYPES]
    rows = [(name, *(conversion(a, b) for b in _TYPES)) for name, a in zip(names, _TYPES, strict=True)]
    return table(("from \\ to", *names), rows)


def _wider_decimal(source: t.DataType, target: t.DataType) -> bool:
    return source.is_integer and target.kind is t.Kind.DECIMAL


PARTS: dict[str, Callable[[], str]] = {
    "operators": _operators,
    "functions": _functions,
    "aggregates": _aggregates,
    "settings": _settings,
    "conversions": _conversions,
}
