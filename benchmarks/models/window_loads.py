"""What shedding saves: windows and rows that a run of lost units frees, and the load of drop plans.

Follows sections 6 and 11 of the sheet `papers/windrop.md`, with its corrections, for the query SUBNET1 -> A(w, d) ->
SUBNET2 and one row per instant.
"""

from __future__ import annotations

from dataclasses import dataclass


def windows_of(instant: int, size: int, slide: int, first: int = 0) -> int:
    """Return in how many windows of A(size, slide) an instant is, the first of which starts at `first`.

    >>> [windows_of(t, 10, 3) for t in range(16)]
    [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 3, 3, 4, 3, 3, 4]
    """
    whole, rest = divmod(size, slide)
    step, offset = divmod(instant - first, slide)
    if step < whole:
        return step + 1
    return whole + 1 if offset < rest else whole


def rows_freed(size: int, slide: int, batch: int) -> int:
    """Return how many instants a run of `batch` lost windows between two kept ones frees.

    >>> [rows_freed(10, 5, 10), rows_freed(7, 6, 3), rows_freed(100, 10, 9)]
    [45, 17, 0]
    """
    return max(0, (batch + 1) * slide - size)


def share_passed(size: int, slide: int, batch: int, fraction: float) -> float:
    """Return the share of rows that a window-drop passes when a share of the windows is lost.

    >>> round(share_passed(100, 50, 10, 0.2), 2)
    0.82
    """
    return 1 - fraction * rows_freed(size, slide, batch) / (batch * slide)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a row costs in SUBNET1, in the aggregate and in SUBNET2, and what the drop operators cost.

    `before` passes a share of its rows, `keeps`; the aggregate makes `makes` rows of one. `check` is what it costs to
    ask of a row at the input whether it is needed, `filter_` to ask of a result whether it is delivered.
    """

    before: float
    aggregate: float
    after: float
    makes: float
    keeps: float = 1.0
    check: float = 0.0
    filter_: float = 0.0

    def load(self, rate: float) -> float:
        """Return the load without shedding.

        >>> Costs(5, 0.1, 5, 1 / 50).load(200)
        1040.0
        """
        return rate * (self.before + self.keeps * (self.aggregate + self.makes * self.after))

    def load_of_random_drop(self, rate: float, fraction: float) -> float:
        """Return the load if a share of the results of the aggregate is dropped right after it.

        >>> round(Costs(5, 0.1, 5, 1 / 50, filter_=0.01).load_of_random_drop(200, 0.2), 2)
        1036.04
        """
        after = self.filter_ + (1 - fraction) * self.after
        return rate * (self.before + self.keeps * (self.aggregate + self.makes * after))

    def load_of_window_drop(self, rate: float, fraction: float, passed: float) -> float:
        """Return the load if a share of the windows is dropped at the input, where a share of the rows passes.

        No marks travel, so nothing but the two questions is added to what is left of the work.
        """
        after = self.filter_ + (1 - fraction) * self.after
        inside = passed * (self.before + self.keeps * self.aggregate)
        return rate * (self.check + inside + self.keeps * self.makes * after)


def fraction_needed(costs: Costs, size: int, slide: int, batch: int, excess: float) -> float:
    """Return the share of windows to lose so that an input of 1 + excess times the capacity can be processed.

    Above `batch / (batch + 1)` the gap does not allow it, above 1 nothing does.

    >>> round(fraction_needed(Costs(5, 0, 5, 1), 100, 1, 10, 0.25), 2)
    0.4
    >>> round(fraction_needed(Costs(5, 0, 5, 1 / 25), 25, 25, 10, 0.25), 2)
    0.2
    """
    capacity = costs.load(1.0)
    most = costs.load_of_window_drop(1 + excess, 1.0, share_passed(size, slide, batch, 1.0))
    none = costs.load_of_window_drop(1 + excess, 0.0, 1.0)
    return (none - capacity) / (none - most) if none > capacity else 0.0
