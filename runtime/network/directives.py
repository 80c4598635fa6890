"""What goes down to the tasks of a micro-batch: what is lost in it, and what is known before it.

Directives are the same for all tasks of a micro-batch, and for tasks that are repeated. What is lost is in the log of
decisions as well, for micro-batches that are repeated after a restart. The rest only saves work or is found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from runtime.network.lateness import Lateness


@dataclass(frozen=True)
class FeedOrder:
    """What is known of the order of a feed: the `newest` instant before a micro-batch, and `before` single places of
    it."""

    newest: int | None = None
    before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Directives:
    """What the tasks of one micro-batch are told."""

    schedules: Mapping[str, Any] = field(default_factory=dict)
    """What is lost: units of time, by the ids of schedules; looks of joins; the memory that joins may use."""
    complete: Mapping[str, int] = field(default_factory=dict)
    """How far edges are complete before it, as far as that is known."""
    order: Mapping[str, FeedOrder] = field(default_factory=dict)
    """What is known of the order of feeds."""

    def judge(self, feed: str, delay: int) -> Lateness:
        """Return the judge of the rows of a feed that is read in the order of its places."""
        known = self.order.get(feed, FeedOrder())
        return Lateness(delay, known.newest, known.before)

    def to_values(self) -> dict[str, Any]:
        """Return them as named values that JSON can hold."""
        order = {feed: asdict(known) for feed, known in self.order.items()}
        return {"schedules": self.schedules, "complete": self.complete, "order": order}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the directives of some named values."""
        order = {feed: FeedOrder(**known) for feed, known in values.get("order", {}).items()}
        return cls(values.get("schedules", {}), values.get("complete", {}), order)
