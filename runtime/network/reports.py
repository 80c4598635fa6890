"""What workers send up with each micro-batch: what they have read, done and kept, and what is to be decided from.

A report is of one place, a bucket of a fragment. Counts of rows are sums since the beginning, `work` is what was done
since the last report, and the rest is as it is after the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from runtime.columns.batch import BEGINNING
from shedding.budgets import Demand


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one bucket of a fragment says of a micro-batch."""

    place: str
    """The fragment and the bucket: `fragment/bucket`."""
    told: str = ""
    """The name of the last control message that has come, if one has."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """How many rows of each feed the micro-batch has."""
    read: Mapping[str, int] = field(default_factory=dict)
    """By source, the rows that were read."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """By source, the bad rows that were left out where they were read."""
    late: Mapping[str, int] = field(default_factory=dict)
    """By source, rows of this bucket whose instants were complete before their micro-batch."""
    read_late: Mapping[str, int] = field(default_factory=dict)
    """By source, rows that were late by its order where they were read."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """By source, the removals of rows that were not there."""
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The places of each ordered feed that the micro-batch has."""
    overtaken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The latest instants before the places of feeds of which one was read with rows that are late."""
    order: Mapping[str, int] = field(default_factory=dict)
    """The latest instant of each feed."""
    first: int | None = None
    """The first instant that was ever read."""
    newest: int | None = None
    """The newest instant that was ever read."""
    closed: int = BEGINNING
    """The instant before which all that comes in is complete."""
    complete: Mapping[str, int] = field(default_factory=dict)
    """How far edges are complete on which rows are combined."""
    until: Mapping[str, int] = field(default_factory=dict)
    """The instants before which results of queries are complete."""
    unended: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of queries that have come to their ends, the rows of each table in windows that did not end."""
    work: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What each operator did since the last report: batches, elements in and out, seconds."""
    read_work: Mapping[str, list[float]] = field(default_factory=dict)
    """What operators did where rows are read, as `work`, since the beginning."""
    steps: Sequence[Sequence[Any]] = ()
    """What each step of operators' work did since the last report: the operator, and its figures."""
    read_steps: Sequence[Sequence[Any]] = ()
    """What such steps did where rows are read, since the beginning."""
    held: Mapping[str, list[int]] = field(default_factory=dict)
    """The elements and bytes that operators, synopses and stores hold."""
    shed: Mapping[str, list[int]] = field(default_factory=dict)
    """How many rows each drop operator has taken and passed."""
    pairs: Mapping[str, list[int]] = field(default_factory=dict)
    """What joins that give up rows have found."""
    demands: Mapping[str, Any] = field(default_factory=dict)
    """How much memory joins that give up rows would use, by pool."""
    joins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What joins that choose have counted, by their schedules."""

    @property
    def bucket(self) -> int:
        """The bucket that it is of."""
        return int(self.place.rpartition("/")[2])

    @property
    def fragment(self) -> str:
        """The fragment that it is of."""
        return self.place.rpartition("/")[0]

    def to_values(self) -> dict[str, Any]:
        """Return it as named values that JSON can hold."""
        return dict(vars(self))

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the report of some named values."""
        return cls(**values)


def complete_after(reports: Iterable[Report]) -> dict[str, int]:
    """Return how far edges are complete after a micro-batch."""
    found: dict[str, int] = {}
    for report in reports:
        for edge, until in report.complete.items():
            found[edge] = max(found.get(edge, until), until)
    return found


def overtaken_places(reports: Iterable[Report]) -> dict[str, Mapping[str, int]]:
    """Return the latest instants before the places of feeds of which some have to be read again."""
    return {feed: places for report in reports for feed, places in report.overtaken.items()}


def counted_by_joins(reports: Iterable[Report]) -> dict[str, list[Any]]:
    """Return what the buckets of joins that choose have counted, by the schedules of these."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        for name, counts in report.joins.items():
            found.setdefault(name, []).append(counts)
    return found


def demands_of_joins(reports: Iterable[Report]) -> dict[str, dict[int, Sequence[Demand]]]:
    """Return how much memory the buckets of joins that give up rows would use, by join, bucket and pool."""
    found: dict[str, dict[int, Sequence[Demand]]] = {}
    for report in reports:
        for name, demands in report.demands.items():
            found.setdefault(name, {})[report.bucket] = demands
    return found
