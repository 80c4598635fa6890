"""How a run is doing, from one place: samples of what runs count, and the rates between them.

The live screen, the line below the prompt and summaries read samples and nothing else. A run in this process and one on
Spark give the same sample; what one of them does not know is None.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.controllers.decision_log import Decision
    from runtime.engine.statistics import Figures
    from runtime.local.run import LocalRun
    from runtime.reports.losses import Loss
    from runtime.reports.progress import Progress
    from runtime.spark.run import SparkRun

KEPT = 240
"""How many samples are remembered."""

RECENT = 3.0
"""Over how many seconds rates are taken."""

LONGEST_LAG = 86_400.0
"""Results that are further behind the clock on the wall are of data from the past, not late."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a run has done at one moment. Rows are counted by table and by query since it was started."""

    at: float = field(default_factory=time.monotonic)
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    batch_seconds: float | None = None
    lag: float | None = None
    """By how many seconds results are behind the newest row, or the clock on the wall if rows are of now."""
    state_bytes: int = 0
    operators: tuple[Figures, ...] = ()
    shedding: tuple[Loss, ...] = ()
    """What queries that shed have lost."""
    decisions: tuple[Decision, ...] = ()
    """What was decided last."""

    @property
    def total_in(self) -> int:
        return sum(self.rows_in.values())

    @property
    def total_out(self) -> int:
        return sum(self.rows_out.values())

    @property
    def left_out(self) -> int:
        return sum(self.late.values()) + sum(self.skipped.values())


class SampleHistory:
    """The samples of a run, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque([Sample()], maxlen=KEPT)

    def add(self, sample: Sample) -> None:
        """Remember a sample."""
        self._samples.append(sample)

    @property
    def last(self) -> Sample:
        return self._samples[-1]

    def rate_in(self) -> float:
        """Return how many rows a second have been read of late."""
        return _rate([(each.at, each.total_in) for each in tuple(self._samples)], time.monotonic())

    def rate_out(self, query: str | None = None) -> float:
        """Return how many changes a second have been delivered of late, by all queries or one."""
        return _rate([(each.at, _count(each, query)) for each in tuple(self._samples)], time.monotonic())

    def rates_in(self) -> list[float]:
        """Return the rows a second between samples."""
        return _differences([(each.at, each.total_in) for each in tuple(self._samples)])

    def rates_out(self, query: str | None = None) -> list[float]:
        """Return the changes a second between samples."""
        return _differences([(each.at, _count(each, query)) for each in tuple(self._samples)])

    def state_sizes(self) -> list[float]:
        """Return the bytes of state in each sample."""
        return [float(each.state_bytes) for each in tuple(self._samples)]


def _count(sample: Sample, query: str | None) -> int:
    return sample.total_out if query is None else sample.rows_out.get(query, 0)


def _rate(counts: Sequence[tuple[float, int]], now: float) -> float:
    """Return how much a count has grown a second of late: since the last sample that is not of late."""
    then, before = next((each for each in reversed(counts) if each[0] <= now - RECENT), counts[0])
    return (counts[-1][1] - before) / max(now - then, 1e-3)


def _differences(counts: Sequence[tuple[float, int]]) -> list[float]:
    return [
        max(0.0, (count - before) / (at - then)) if at > then else 0.0
        for (then, before), (at, count) in pairwise(counts)
    ]


def sample(run: LocalRun | SparkRun) -> Sample:
    """Return a sample of a run."""
    found = list(run.progress().values())
    lags = [lag for each in found if (lag := _lag(each)) is not None]
    return Sample(
        rows_in=_merged([each.rows_in for each in found]),
        rows_out=_merged([each.rows_out for each in found]),
        late=_merged([each.late for each in found]),
        skipped=_merged([each.skipped for each in found]),
        batch_seconds=max((each.batch_seconds for each in found), default=0.0),
        lag=max(lags, default=None),
        state_bytes=sum(each.state_bytes for each in found),
        operators=tuple(operator for each in found for operator in each.operators),
        shedding=tuple(run.shedding()),
        decisions=tuple(run.decisions()),
    )


def _lag(progress: Progress) -> float | None:
    """Return by how many seconds results are behind the clock on the wall or, of data from the past, the newest row."""
    behind_now = progress.behind_now
    return behind_now if behind_now is not None and 0 <= behind_now < LONGEST_LAG else progress.lag


def _merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return counts by name; a table that several parts read is counted once."""
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = max(found.get(name, 0), count)
    return found
