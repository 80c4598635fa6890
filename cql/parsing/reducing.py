"""Calls the builder directly when the parser reduces a rule, without a parse tree in between.

Lark's own tree building spends more time on positions and intermediate trees than on parsing. The
parser hands every reduction the values of all symbols of the rule, so the span of what was reduced is
the span from its first to its last symbol, punctuation included. What Lark's conventions ask for is
kept: filtered tokens are dropped, `?rule` with one child is that child, parts left out of `[..]` are
None, and the children of rules that Lark makes for repetitions are spliced in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lark import Lark, Token
from lark.grammar import Rule, Terminal

from cql.source import NO_SPAN, Span

MAX_LEVELS = 160
"""How deep syntax nodes may nest: everything that walks them recursively gets by with Python's stack."""


class TooDeep(Exception):
    """Nodes nest deeper than anything sensible; the span says where."""

    def __init__(self, span: Span) -> None:
        super().__init__(f"a syntax tree has at most {MAX_LEVELS} levels")
        self.span = span


class SymbolValue(NamedTuple):
    """The value of a symbol, where it starts and ends (-1 if it is empty), and how deep it nests."""

    value: Any
    start: int
    end: int
    level: int


def install(lark: Lark, builder: object) -> None:
    """Make a parser call a builder's methods; `lark.parse` then returns a `SymbolValue`."""
    callbacks = {rule: _reducer(rule, builder) for rule in lark.rules}
    inner: Any = lark.parser.parser
    starts = {rule: value for rule, value in inner.parser.callbacks.items() if rule not in callbacks}
    inner.parser.callbacks = {**starts, **callbacks}


def _reducer(rule: Rule, builder: object) -> Callable[[Sequence[SymbolValue | Token]], SymbolValue]:
    name = rule.alias or rule.origin.name
    kept = _kept(rule)
    inlined = rule.options.expand1 and not rule.alias
    if inlined and len(rule.expansion) == 1 and len(kept) == 1 and kept[0][0] == 0 and not kept[0][1]:
        return lambda symbols: symbols[0]  # type: ignore[return-value]
    method = None if rule.origin.name.startswith("_") else getattr(builder, name, None)

    def reduce(symbols: Sequence[SymbolValue | Token]) -> SymbolValue:
        start, end = _extent(symbols)
        level = 0
        children: list[Any] = []
        only: SymbolValue | Token | None = None
        for at, splice, nones in kept:
            if nones:
                children.extend([None] * nones)
            if at < 0:
                continue
            only = symbols[at]
            if type(only) is not SymbolValue:
                children.append(only)
                continue
            level = only.level if only.level > level else level
            if splice:
                children.extend(only.value)
            else:
                children.append(only.value)
        if method is None and not inlined:
            return SymbolValue(children, start, end, level)
        if inlined and len(children) == 1:
            return only if type(only) is SymbolValue else SymbolValue(children[0], start, end, level)
        span = NO_SPAN if start < 0 else Span(start, end)
        if level >= MAX_LEVELS:
            raise TooDeep(span)
        assert method is not None, name
        return SymbolValue(method(span, children), start, end, level + 1)

    return reduce


def _extent(symbols: Sequence[SymbolValue | Token]) -> tuple[int, int]:
    """Return where the first symbol that is not empty starts and the last one ends; -1 if all are empty."""
    start = end = -1
    for symbol in symbols:
        start = symbol.start if type(symbol) is SymbolValue else symbol.start_pos  # type: ignore[union-attr, assignment]
        if start >= 0:
            break
    for symbol in reversed(symbols):
        end = symbol.end if type(symbol) is SymbolValue else symbol.end_pos
        if end >= 0:
            break
    return start, end


def _kept(rule: Rule) -> list[tuple[int, bool, int]]:
    """Return which symbols of a rule become children: (position, splice it, how many Nones before it)."""
    absent = rule.options.empty_indices or [False] * len(rule.expansion)
    kept: list[tuple[int, bool, int]] = []
    nones = at = 0
    for empty in absent:
        if empty:
            nones += 1
            continue
        symbol = rule.expansion[at]
        if not (isinstance(symbol, Terminal) and symbol.filter_out):
            kept.append((at, not symbol.is_term and symbol.name.startswith("_"), nones))
            nones = 0
        at += 1
    if nones:
        kept.append((-1, False, nones))
    return kept
