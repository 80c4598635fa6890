"""The control loop: how much of which units to lose, so that the next micro-batch takes as long as it may.

What a micro-batch costs is learned from those before it: a fixed part, a part for each row that is read, one for each
row that is kept, and one for each that is lost before joins that choose come to see it. From how many rows are waiting
follows how long the next one would take; what is too much is split over the schedules so that the answers lost weigh as
little as possible for the time that is saved. If losing all that gaps allow is not enough, the most costly schedule
whose queries cannot be served is suspended, and comes back when there is room for it. Up at once, down slowly, and with
a band in between in which nothing changes, so that it does not swing.

Of what has waited for so long that its answers would be later than they may be, nothing is worth its time: if there is
not time for everything, that is given up as a whole, whatever the gaps. So a micro-batch that took much longer than it
should, as the first one after a start does, delays the answers of its own time and no others.

How long operators have worked tells what rows cost from the first micro-batch on, however cold it was. As long as not
even that is known, a micro-batch gets only as many rows as would do no harm. This module knows nothing of Spark: it is
told what happened and says what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from shedding.fitting import fitted

REMEMBERED = 40
"""From how many micro-batches costs are learned."""

EASING = 0.6
"""What is left of a fraction, at least, when it goes down."""

BAND = 0.1
"""A time that is off by no more than this share is as good as right."""

FULLEST = 0.8
"""How much of the time that a micro-batch may take is planned for."""

SAFEST = 0.95
"""What would be later than this share of the bound is taken to be too late."""

SURPRISES = 10
"""Of how many micro-batches it is known how much longer they took than they should have."""

MOST_SURPRISING = 0.2
"""Which part of the bound is left free, at most, because the next one may take as much longer."""

LEAST = 2.0
"""A micro-batch may take this times what it takes without rows: below that, shedding saves next to nothing."""

COLD = 2
"""The times of how many micro-batches after a start say nothing about costs: processes start and code is compiled."""

WARMING = 0.3
"""How many seconds of the work of operators in such a micro-batch are put down to that, too."""

RECENT = 5
"""From how many micro-batches it is guessed how many operators work at once."""

ENOUGH_WORK = 1.0
"""After how many seconds of their work it is known what rows cost."""

PATIENCE = 3
"""How many times in a row losing all that gaps allow has to be too little before a schedule is suspended."""

BRINGS_BACK = 0.8
"""A suspended schedule comes back when with it this share of the time would be used."""

HOPE = 0.9
"""How much less rows are taken to cost with each micro-batch that keeps none: otherwise nobody would find out."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A micro-batch that is done: rows that were read, rows that were kept of them, and seconds.

    With joins that choose, what is kept is what they do, and rows may be lost before they come to these.
    """

    read: int
    kept: int
    seconds: float
    lost: int = 0
    busy: float = 0.0
    """How many seconds operators have worked, side by side; 0 if nobody knows."""

    @property
    def busy_each(self) -> float:
        """How many seconds operators have worked for each row that was kept."""
        return self.busy / self.kept if self.kept else 0.0


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
    waited: float = 0.0
    """For how many seconds the first of those that wait have waited; 0 if nobody knows."""
    has_begun: bool = False
    """Whether rows have been read of something that is kept, and the others wait: that is not given up any more."""

    def rows(self, seconds: float) -> float:
        """Return how many rows to be ready for: those that wait, and if it is about later ones, too, no fewer than come
        while these are processed.

        >>> Load(waiting=100, rate=80).rows(2.0), Load(waiting=100, rate=80, is_ahead=False).rows(2.0)
        (160.0, 100)
        """
        return max(self.waiting, self.rate * seconds) if self.is_ahead else self.waiting

    def without(self, share: float) -> Load:
        """Return what is left to do if the first of the rows that wait are given up."""
        return replace(self, waiting=self.waiting * (1 - share), waited=self.waited * (1 - share))


@dataclass(frozen=True, slots=True)
class Bound:
    """The delay that answers may have, in seconds, and what of that is not for waiting and processing.

    >>> Bound(20.0, pause=1.0).batch, Bound(20.0, pause=1.0).waiting
    (9.0, 10.0)
    """

    latency: float
    delay: float = 0.0
    """By how much rows may come late, so that answers wait for them."""
    pause: float = 0.0
    """What passes from the end of a micro-batch to the beginning of the next."""

    @property
    def batch(self) -> float:
        """How long a micro-batch may take: rows wait for one to end, and then for theirs."""
        return max((self.latency - self.delay) / 2 - self.pause, 0.1 * self.latency)

    @property
    def waiting(self) -> float:
        """How long rows may have waited when a micro-batch begins that takes as long as it may."""
        return self.latency - self.delay - self.pause - self.batch


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
    unit: float = 0.0
    """How many seconds of a stream are kept or lost as a whole."""


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
    parallel: int = 1
    """How many operators can work at once, at most."""
    suspended: frozenset[str] = frozenset()
    """Schedules that are off, because the gaps of their queries could not be kept."""
    _started: int = 0
    _worked: float = 0.0
    """How many seconds operators have worked, as far as anybody knows."""
    _each_read: float | None = None
    """How long they did for a row that was read, in the last micro-batch with any."""
    _each_kept: float = 0.0
    """How long they did for a row that was kept, after a start."""
    _hope: float = 1.0
    """Which part of what rows are taken to cost they may cost, as far as one hopes."""
    _short: int = 0
    """How many times in a row what could be lost was too little."""
    _seen: deque[Observed] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _longer: deque[float] = field(default_factory=lambda: deque(maxlen=SURPRISES))
    """How much longer micro-batches of late took than they should have."""
    _fractions: dict[str, float] = field(default_factory=dict)

    def observe(self, batch: Observed) -> None:
        """Learn from a micro-batch."""
        self._started += 1
        self._worked += batch.busy
        if not batch.read:
            return
        self._each_read = batch.busy / batch.read
        self._hope = 1.0 if batch.kept else self._hope * HOPE
        if self._started > COLD:
            if self._seen:
                self._longer.append(batch.seconds - self.costs.seconds(batch.read, batch.kept))
            self._seen.append(batch)
            self.costs = self._learned()
        elif batch.busy > WARMING and batch.kept:
            self._each_kept = (batch.busy - WARMING) / batch.kept
            self.costs = replace(self.costs, kept=max(self.costs.kept, self._each_kept))

    def _learned(self) -> Costs:
        """Return the costs that explain the micro-batches best, as far as what operators have worked allows.

        They work one after the other, or some at once: which of these, is guessed from how long micro-batches take
        beside what they usually do for themselves. A single one in which operators were slow says nothing.
        """
        usual, lowest = Costs(), 1 / self.parallel
        each = [batch.busy_each for batch in self._seen if batch.kept] or [self._each_kept]
        last = [batch for batch in self._seen if batch.busy][-RECENT:]
        spread = sum(b.seconds - usual.fixed for b in last) / sum(b.busy for b in last) if last else 1.0
        guess = max(usual.kept, each[-1] * min(max(spread * self._hope, lowest), 1.0))
        least = min(each[-2:]) * lowest if len(each) > 1 else 0.0
        found = _fitted(self._seen, replace(usual, kept=guess), max(least, self.least_kept))
        fixed = min(batch.seconds - batch.busy * lowest for batch in self._seen)
        return replace(found, fixed=min(found.fixed, max(fixed, 0.0)))

    def most_rows(self, bound: Bound) -> float | None:
        """Return how many rows the next micro-batch is to have at most, as long as nobody knows what rows cost."""
        if self._worked >= ENOUGH_WORK or (self._each_read == 0 and self._started > COLD):
            return None
        return bound.batch / 2 / self._each_read if self._each_read else 0.0

    def given_up(self, load: Load, shares: Mapping[str, Share], bound: Bound) -> float:
        """Return which share of what waits, from its beginning, is to be lost as a whole.

        That is what would be too late, if there is not time for everything. What is left has waited for h seconds, and
        takes its time; both together are no more than the bound. One unit may be kept more than on average. Nor is what
        has begun, and waited for longer, to be too late.
        """
        needed = self.costs.seconds(load.waiting, load.waiting * load.work)
        wanted = self._wanted(bound.batch)
        if not load.waited or bound.waiting <= 0 or needed <= wanted * (1 + BAND):
            return 0.0
        fractions = self._split(replace(load, waiting=0.0), wanted, shares)
        second = self._savings(load.rate * load.work, shares)
        kept = self.costs.kept * load.rate * load.work - sum(fractions[name] * second[name] for name in shares)
        units = sum(second[name] * shares[name].unit for name in shares if fractions[name] > 0)
        surprise = min(max(self._longer, default=0.0), MOST_SURPRISING * bound.latency)
        time = (
            bound.latency * SAFEST
            - max(surprise, 0.0)
            - bound.delay
            - bound.pause
            - self.costs.seconds(load.waiting, 0.0)
            - units
        )
        left = time / (1 + kept)
        if load.has_begun and kept > 0:
            left = min(left, (time - load.waited) / kept)
        return min(max(1 - left / load.waited, 0.0), 1.0)

    def _wanted(self, seconds: float) -> float:
        """Return how long a micro-batch is to take if it may take some time."""
        least = LEAST * self.costs.fixed
        return least if self.costs.fixed >= seconds else max(seconds * FULLEST, min(least, seconds))

    def fractions(self, load: Load, shares: Mapping[str, Share], seconds: float) -> dict[str, float]:
        """Return what each schedule should lose, with some load and if a micro-batch may take so many seconds."""
        wanted = self._wanted(seconds)
        if not self._seen:
            load = replace(load, is_ahead=False)
        found = self._split(load, wanted, shares)
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

    def _split(self, load: Load, wanted: float, shares: Mapping[str, Share]) -> dict[str, float]:
        """Return fractions with which a load takes no longer than wanted, as far as gaps allow.

        They are from the schedules whose answers weigh least for what they save.
        """
        rows = load.rows(wanted)
        savings, found = self._savings(rows * load.work, shares), dict.fromkeys(shares, 0.0)
        excess = self.costs.seconds(rows, rows * load.work) - wanted
        if excess <= wanted * BAND:
            return found
        excess -= sum(savings[name] for name in self.suspended & shares.keys())
        for name in sorted(shares, key=lambda name: shares[name].weight / max(savings[name], 1e-12)):
            if excess > 1e-6 * wanted and savings[name] > 0 and name not in self.suspended:
                found[name] = min(excess / savings[name], shares[name].most)
                excess -= found[name] * savings[name]
        return found

    def values(self) -> dict[str, float]:
        """Return what is known of costs, as JSON has it."""
        return {**asdict(self.costs), "worked": self._worked} if self._worked else {}

    def take_over(self, values: Mapping[str, float]) -> None:
        """Go on from what was known, as long as nothing else is."""
        if values and not self._seen:
            self._worked = values["worked"]
            self.costs = Costs(*(values[each.name] for each in fields(Costs)))

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


def _fitted(seen: Sequence[Observed], guess: Costs, least_kept: float) -> Costs:
    """Return the costs that explain some micro-batches best; those that one would guess count as one more of them."""
    counts = [[1.0, batch.read - batch.lost, batch.kept, batch.lost] for batch in seen]
    costs = [guess.fixed, guess.read, guess.kept, guess.lost]
    found = Costs(*fitted(counts, [batch.seconds for batch in seen], costs).tolist())
    return replace(found, kept=max(found.kept, least_kept))
