"""Filters: predicates that all have to be true of a row, evaluated in an order that a tactic says.

Cheap predicates are computed together for all rows, because to choose rows costs more than it saves. Dear ones
(`runtime/expressions/costs.py`) follow, each for those rows only that are left. Dear ones that have something dear in
common are computed together, so that it is computed once.

Rows that pass are the same in any order. A function of the user is not called for a row that a predicate before it has
removed, be that false or NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
import pyarrow as pa

from cql.bound import Expr, UserCall, walk
from runtime.columns.batch import Mask
from runtime.expressions.costs import dear_parts
from runtime.expressions.program import Chosen, Fused, all_true
from runtime.expressions.user import NO_FUNCTIONS, Functions
from runtime.expressions.values import Datum, is_constant

MOST_CHOSEN = 0.75
"""If more of the rows than that are left, it is no use to choose them, unless a function of the user is called."""


@dataclass(slots=True)
class PredicateFigures:
    """How many rows a predicate was computed for, of how many it was true, and what time that took."""

    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0


class PredicateOrder(Protocol):
    """In which order dear predicates are evaluated."""

    def order(self) -> Sequence[int]:
        """Return the places of all predicates, the one that is evaluated first being first."""


class AsWritten:
    """The order in which the plan has the predicates."""

    def __init__(self, predicates: int) -> None:
        self._places = range(predicates)

    def order(self) -> Sequence[int]:
        return self._places


class Filter:
    """The predicates of a filter, and what each of them has done so far."""

    def __init__(self, predicates: Sequence[Expr], functions: Functions = NO_FUNCTIONS) -> None:
        self._count = len(predicates)
        self.count_anew()
        self.order: PredicateOrder = AsWritten(len(predicates))
        self._stages = [
            _stage(places, [predicates[place] for place in places], is_dear, functions)
            for places, is_dear in _groups(predicates)
        ]

    def count_anew(self) -> None:
        """Forget what the predicates have done."""
        self.figures = [PredicateFigures() for _ in range(self._count)]

    def holds(self, columns: Sequence[pa.Array], length: int) -> Mask:
        """Return the rows for which all predicates are true, not NULL."""
        first, *others = self._in_order()
        mask = first.holds(columns, length, self.figures)
        for stage in others:
            mask = stage.narrowed(mask, columns, length, self.figures)
        return mask

    def _in_order(self) -> list[_Stage]:
        if len(self._stages) == 1:
            return self._stages
        rank = {place: at for at, place in enumerate(self.order.order())}
        return sorted(self._stages, key=lambda stage: (stage.is_dear, min(rank[place] for place in stage.places)))


@dataclass(frozen=True, slots=True)
class _Stage:
    """Predicates, by their places, that are computed for the same rows."""

    places: Sequence[int]
    is_dear: bool
    calls_users: bool
    fused: Fused

    def narrowed(
        self, mask: Mask, columns: Sequence[pa.Array], length: int, figures: Sequence[PredicateFigures]
    ) -> Mask:
        """Return those of some rows for which all of them are true, not NULL."""
        passing = int(np.count_nonzero(mask))
        if passing == length or (passing > MOST_CHOSEN * length and not self.calls_users):
            return mask & self.holds(columns, length, figures)
        rows = np.flatnonzero(mask)
        narrowed = np.zeros(length, np.bool_)
        narrowed[rows[self.holds(Chosen(columns, rows), passing, figures)]] = True
        return narrowed

    def holds(self, columns: Sequence[pa.Array], length: int, figures: Sequence[PredicateFigures]) -> Mask:
        """Return the rows for which all of them are true, not NULL."""
        if not length:
            return np.zeros(0, np.bool_)
        return all_true(list(self._values(columns, length, figures)), length)

    def _values(self, columns: Sequence[pa.Array], length: int, figures: Sequence[PredicateFigures]) -> Iterator[Datum]:
        started = perf_counter()
        for place, value in zip(self.places, self.fused.values(columns, length), strict=True):
            passing = length * bool(value.as_py()) if is_constant(value) else value.true_count
            ended = perf_counter()
            own = figures[place]
            own.rows_in += length
            own.rows_out += passing
            own.seconds += ended - started
            started = ended
            yield value


def _stage(places: Sequence[int], predicates: Sequence[Expr], is_dear: bool, functions: Functions) -> _Stage:
    calls_users = any(isinstance(part, UserCall) for predicate in predicates for part in walk(predicate))
    return _Stage(places, is_dear, calls_users, Fused(predicates, functions))


def _groups(predicates: Sequence[Expr]) -> list[tuple[list[int], bool]]:
    """Return the places of predicates that are computed together, and whether they are dear.

    Those are the cheap ones, and dear ones that have dear parts in common.
    """
    cheap: list[int] = []
    dear: list[tuple[list[int], set[Expr]]] = []
    for place, predicate in enumerate(predicates):
        places, parts = [place], dear_parts(predicate)
        if not parts:
            cheap.append(place)
            continue
        for group in [group for group in dear if group[1] & parts]:
            dear.remove(group)
            places, parts = group[0] + places, group[1] | parts
        dear.append((places, parts))
    return [(cheap, False)] * bool(cheap or not dear) + [(places, True) for places, _ in dear]
