"""The control loop: how much of which units to lose, so that the next micro-batch takes as long as it may.

What a micro-batch costs is learned from those before it: a fixed part, a part for each row that is read, one for each
row that is kept, and one for each that is lost before joins that choose come to see it. From how many rows are waiting
follows how long the next one would take; what is too much is split over the schedules so that the answers lost weigh as
little as possible for the time that is saved. If losing all that gaps allow is not enough, the most costly schedule
whose queries cannot be served is suspended, and comes back when there is room for it. Up at once, down slowly, and with
a band in between in which nothing changes, so that it does not swing. This module knows nothing of Spark: it is told
what happened and says what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shedding.fitting import fitted

REMEMBERED = 40
"""From how many micro-batches costs are learned."""

EASING = 0.6
"""What is left of a fraction, at least, when it goes down."""

BAND = 0.1
"""A time that is off by no more than this share is as good as right."""

FULLEST = 0.9
"""How much of the time that a micro-batch may take is planned for."""

LEAST = 2.0
"""A micro-batch may take this times what it takes without rows: below that, shedding saves next to nothing."""

COLD = 2
"""How many micro-batches after a start say nothing about costs: processes start and code is compiled."""

PATIENCE = 3
"""How many times in a row losing all that gaps allow has to be too little before a schedule is suspended."""

BRINGS_BACK = 0.5
"""A suspended schedule comes back when the others leave this share of the time unused."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A micro-batch that is done: rows that were read, rows that were kept of them, and seconds.

    With joins that choose, what is kept is what they do, and rows may be lost before they come to these.
    """

    read: int
    kept: int
    seconds: float
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """What a micro-batch takes: seconds for itself, for each row that is read, and for each that is kept.

    Rows that are lost before joins take other times.
    """

    fixed: float = 0.4
    read: float = 2e-7
    kept: float = 2e-6
    lost: float = 1e-6

    def seconds(self, read: float, kept: float) -> float:
        """Return how long a micro-batch takes."""
        return self.fixed + self.read * read + self.kept * kept


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to do: rows that wait, and rows that come in a second."""

    waiting: float
    rate: float = 0.0
    work: float = 1.0
    """What a row that is kept takes, beside what kept rows took when what they cost was learned."""
    is_ahead: bool = True
    """Whether what is decided is about rows that come later, too; otherwise the next micro-batch has its own."""

    def rows(self, seconds: float) -> float:
        """Return how many rows to be ready for: those that wait, and if it is about later ones, too, no fewer than come
        while these are processed.

        >>> Load(waiting=100, rate=80).rows(2.0), Load(waiting=100, rate=80, is_ahead=False).rows(2.0)
        (160.0, 100)
        """
        return max(self.waiting, self.rate * seconds) if self.is_ahead else self.waiting


@dataclass(frozen=True, slots=True)
class Share:
    """A schedule: which share of all rows it is about, and what losing all of its units would save.

    `saved` is the share of its rows that go if all units are lost, `most` the largest fraction that its gaps allow, and
    more than 1 if losing rows saves more than what can be done with them; `weight` what its answers are worth together.
    """

    part: float
    saved: float
    most: float
    weight: float


@dataclass
class Controller:
    """Learns costs, and says which fraction of units each schedule should lose.

    >>> controller = Controller()
    >>> for _ in range(22):
    ...     controller.observe(Observed(read=100_000, kept=100_000, seconds=1.4))
    >>> share = Share(part=1.0, saved=1.0, most=0.9, weight=1.0)
    >>> light, heavy = (controller.fractions(Load(rows), {"s": share}, 2.0)["s"] for rows in (100_000, 400_000))
    >>> light == 0, 0.3 < heavy < 0.8
    (True, True)
    """

    costs: Costs = field(default_factory=Costs)
    least_kept: float = 1e-9
    """What a row that is kept takes at least, whatever micro-batches seem to say."""
    suspended: frozenset[str] = frozenset()
    """Schedules that are off, because the gaps of their queries could not be kept."""
    _started: int = 0
    _short: int = 0
    """How many times in a row what could be lost was too little."""
    _seen: deque[Observed] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _fractions: dict[str, float] = field(default_factory=dict)

    def observe(self, batch: Observed) -> None:
        """Learn from a micro-batch."""
        self._started += 1
        if batch.read and self._started > COLD:
            self._seen.append(batch)
            found = _fitted(self._seen)
            self.costs = replace(found, kept=max(found.kept, self.least_kept))

    def fractions(self, load: Load, shares: Mapping[str, Share], seconds: float) -> dict[str, float]:
        """Return what each schedule should lose, with some load and if a micro-batch may take so many seconds."""
        wanted = max(seconds * FULLEST, LEAST * self.costs.fixed)
        found = self._split(load.rows(wanted), load.work, wanted, shares)
        self._suspend(load.rate * wanted or load.waiting, load.work, wanted, shares)
        eased = {
            name: fraction if name in self.suspended else max(fraction, EASING * self._fractions.get(name, 0.0) - 0.01)
            for name, fraction in found.items()
        }
        before = self._fractions
        self._fractions = {
            name: before[name] if name in before and _is_close(before[name], value) else value
            for name, value in eased.items()
        }
        return {
            name: max(shares[name].most, 1.0) if name in self.suspended else value
            for name, value in self._fractions.items()
        }

    def _split(self, rows: float, work: float, wanted: float, shares: Mapping[str, Share]) -> dict[str, float]:
        """Return fractions with which so many rows take no longer than wanted, as far as gaps allow.

        They are from the schedules whose answers weigh least for what they save.
        """
        savings, found = self._savings(rows * work, shares), dict.fromkeys(shares, 0.0)
        excess = self.costs.seconds(rows, rows * work) - wanted
        if excess <= wanted * BAND:
            return found
        excess -= sum(savings[name] for name in self.suspended & shares.keys())
        for name in sorted(shares, key=lambda name: shares[name].weight / max(savings[name], 1e-12)):
            if excess > 1e-6 * wanted and savings[name] > 0 and name not in self.suspended:
                found[name] = min(excess / savings[name], shares[name].most)
                excess -= found[name] * savings[name]
        return found

    def _savings(self, rows: float, shares: Mapping[str, Share]) -> dict[str, float]:
        """Return the seconds that losing all units of schedules would save, of so many rows."""
        return {name: rows * share.part * share.saved * self.costs.kept for name, share in shares.items()}

    def _suspend(self, rows: float, work: float, wanted: float, shares: Mapping[str, Share]) -> None:
        """Switch off the most costly schedule if losing all that gaps allow is not enough; bring one back if it is.

        What counts is what comes all the time: a backlog passes.
        """
        savings = self._savings(rows * work, shares)
        off = [name for name in shares if name in self.suspended]
        active = [name for name in shares if name not in self.suspended]
        least = self.costs.seconds(rows, rows * work) - sum(savings[name] for name in off)
        least -= sum(shares[name].most * savings[name] for name in active)
        candidates = [name for name in active if savings[name] > 0]
        self._short = self._short + 1 if least > wanted * (1 + BAND) else 0
        if self._short >= PATIENCE and candidates:
            self._short = 0
            self.suspended |= {max(candidates, key=lambda name: savings[name])}
        elif off:
            cheapest = min(off, key=lambda name: savings[name])
            if least + savings[cheapest] * (1 - shares[cheapest].most) < wanted * BRINGS_BACK:
                self.suspended -= {cheapest}


def _is_close(before: float, now: float) -> bool:
    """Tell whether a change is not worth making: neither for what is lost nor for what is kept."""
    return now > 0 and abs(now - before) <= 0.05 * min(before, 1 - before)


def _fitted(seen: Sequence[Observed]) -> Costs:
    """Return the costs that explain some micro-batches best; those that one would guess count as one more of them."""
    guess = Costs()
    counts = [[1.0, batch.read - batch.lost, batch.kept, batch.lost] for batch in seen]
    costs = [guess.fixed, guess.read, guess.kept, guess.lost]
    return Costs(*fitted(counts, [batch.seconds for batch in seen], costs).tolist())
