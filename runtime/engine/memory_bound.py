"""How much memory a network keeps, and the bound on it.

Pieces of what flows are of limited size; what operators and stores keep grows with the data. It is looked at whenever
an operator has dealt with some thousand rows, so that it costs nothing that one would notice.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.plan import Plan
from runtime.operators import Operator
from runtime.state.store import Store, Stub
from runtime.user_errors import MemoryExceeded

ROWS = 4096
"""After how many rows of an operator it is looked at."""


class Memory:
    """The bytes that operators and their stores keep, of which there may be so many."""

    def __init__(
        self, plan: Plan, operators: Mapping[str, Operator], stubs: Mapping[str, Stub], max_bytes: int
    ) -> None:
        self._operators = operators
        self._max_bytes = max_bytes
        self._stores: dict[str, list[Store]] = {name: [] for name in operators}
        for synopsis in plan.synopses:
            if synopsis.id in stubs:
                self._stores[synopsis.operator].append(stubs[synopsis.id].store)
        self._rows = dict.fromkeys(operators, 0)
        self._own: dict[str, int] = {}
        self._stored: dict[int, int] = {}
        self._total = 0

    def note(self, operator: str, rows: int) -> None:
        """Note that an operator has dealt with rows; raises if what is kept takes too much memory then."""
        self._rows[operator] += rows
        if self._rows[operator] < ROWS:
            return
        self._rows[operator] = 0
        own = self._operators[operator].nbytes
        self._total += own - self._own.get(operator, 0)
        self._own[operator] = own
        for store in self._stores[operator]:
            size = store.nbytes
            self._total += size - self._stored.get(id(store), 0)
            self._stored[id(store)] = size
        if self._total > self._max_bytes:
            largest = max(self._operators, key=self._kept_by)
            raise MemoryExceeded(largest, self._kept_by(largest), self._total, self._max_bytes)

    def _kept_by(self, operator: str) -> int:
        return self._own.get(operator, 0) + sum(self._stored.get(id(store), 0) for store in self._stores[operator])
