"""Windows: from streams to relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cql import bound
from cql.bound.text import window_text
from cql.intervals import TimeDomain, duration_text
from planner.costs import Estimate
from planner.json_codec import WindowField
from planner.operators.node import Names, Operator, TimeDemand
from planner.operators.state_needs import Facts, Growth, OwnState, SynopsisNeed, WindowLog

__all__ = ["SeqWindow"]


class SeqWindow(Operator):
    """A bounded window. Ties at one instant are in the order of the one source of the stream, or else by value."""

    kind: Literal["seq-window"] = "seq-window"
    window: WindowField
    time: TimeDomain | None
    order: Literal["source", "value"] = "source"

    @property
    def window_spec(self) -> bound.WindowSpec:
        return self.window

    @property
    def counts_in(self) -> str | None:
        return "by value" if isinstance(self.window, bound.RowsSpec) and self.order == "value" else None

    @property
    def views(self) -> tuple[str, ...]:
        return ("window",) if isinstance(self.window, bound.RowsSpec) else ()

    @property
    def expiry(self) -> str:
        match self.window:
            case bound.RowsSpec(rows=rows):
                return f"{rows} rows later"
            case bound.PartitionRowsSpec(rows=rows, ticks=ticks):
                by_time = f" or after {duration_text(ticks, self.time)}" if ticks else ""
                return f"{rows} rows of the same key later{by_time}"
            case bound.RangeSpec(ticks=ticks, slide=slide):
                at = f", at multiples of {duration_text(slide, self.time)}" if slide else ""
                return f"after {duration_text(ticks, self.time)}{at}"
        return super().expiry

    @property
    def loses_soundly(self) -> bool:
        return isinstance(self.window, bound.RangeSpec)

    def headline(self, inputs: Names) -> str:
        order = "" if self.order == "source" else ", ties by value"
        return f"seq-window [{window_text(self.window, inputs[0], self.time)}]{order}"

    def estimate(self) -> Estimate:
        return Estimate(1.0, 2.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(self._growth(), False)

    def _growth(self) -> Growth:
        match self.window:
            case bound.RowsSpec():
                return "constant"
            case bound.PartitionRowsSpec(ticks=None):
                return "keys"
        return "window"

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        holds = f"rows ({', '.join(inputs[0])}) of [{window_text(self.window, inputs[0], self.time)}]"
        if isinstance(self.window, bound.PartitionRowsSpec):
            return (OwnState("window", 0, holds, self.expiry, self._growth()),)
        return (WindowLog("window", 0, holds),)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return isinstance(self.window, bound.RangeSpec)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        if isinstance(self.window, bound.RangeSpec):
            return TimeDemand("window", self.window.ticks, self.window.slide)
        return TimeDemand("count")
