"""Where a plan begins: sources, and the ledger, which keeps the log of a relation sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from cql.intervals import TimeDomain
from planner.costs import Estimate
from planner.operators.node import Names, Operator, TimeDemand
from planner.operators.state_needs import Facts, OwnState, SynopsisNeed

__all__ = ["Ledger", "Source"]


class Source(Operator):
    """A registered stream or relation.

    A static relation is there from the first instant of its query on: `begins` lists the timed sources of the query.
    Queries that join a network while it runs have an `epoch` of their own: they see streams from then on, and
    relations as they are.
    """

    kind: Literal["source"] = "source"
    table: str
    is_relation: bool
    time: TimeDomain | None
    begins: tuple[str, ...] = ()
    epoch: int = 0

    @property
    def feed(self) -> str:
        """The name of what is read: a stream is read once for all, the log of a relation again for each epoch."""
        table = self.table.casefold()
        return table if self.is_stream or not self.epoch else f"{table}@{self.epoch}"

    @property
    def goes_by(self) -> tuple[str, ...]:
        return self.begins

    @property
    def expiry(self) -> str:
        return "when the input retracts them" if self.is_relation else "never"

    @property
    def loses_soundly(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        kind = "stream" if not self.is_relation else "relation" if self.time else "static relation"
        return f"source {self.table} ({kind})"

    def estimate(self) -> Estimate:
        return Estimate(0.0, 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts("relation" if self.is_relation else "stream", self.time is None or self.is_stream)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return ()

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return self.is_stream or self.time is None

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return TimeDemand("stream" if self.is_stream else "log" if self.time is not None else "static")

    def identity(self) -> dict[str, Any]:
        content = super().identity()
        given = {name: value for name, value in content.items() if value or name not in ("begins", "epoch")}
        return given | {"types": [str(column.type) for column in self.columns]}


class Ledger(Operator):
    """The changes of a relation as its log has them, but for removals of rows that are not there."""

    kind: Literal["ledger"] = "ledger"
    table: str
    time: TimeDomain

    @property
    def loses_soundly(self) -> bool:
        return False

    def headline(self, inputs: Names) -> str:
        return f"ledger {self.table}"

    def estimate(self) -> Estimate:
        return Estimate(2.0, 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return below[0]

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return (OwnState("rows", 0, "how often each row is there", "with the last of a row", below[0].growth),)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return False

    def is_netted(self, below: Sequence[bool]) -> bool:
        return True
