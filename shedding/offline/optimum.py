"""OPT-offline: the most pairs that any policy could have found with a given memory, the whole input being known.

Follows section 2.4 of the sheet `papers/join-shedding.md`: a minimum-cost flow, in which a unit of flow is a place in
memory, time passes from left to right, and a place that holds a row while a partner arrives earns 1.

The network is smaller than the sheet's. Rows of a side with the same key meet the same partners, and the newest can do
so for longest. So it is never wrong to hold the newest ones, and only their *number* matters, not which they are:

    timeline      one node for each instant, joined by arcs for places that are free
    meeting       one node for each key and instant at which partners arrive
    entering      arc from the instant of a row to the next meeting of its key, earns what arrives there
    staying       arc from a meeting to the next one of the key, for as many rows as will still be in the window
    leaving       arc from a meeting to its instant: the place is free for what arrives then

The side of a join does not matter to what the other side earns. With a fixed allocation each is a network of its own;
with a common pool they share the timeline. Augmenting along shortest paths gives the optimum for one place after the
other, so that one run has the whole curve. Costs are small integers and most reduced costs 0; the queue of Dijkstra's
algorithm therefore is a stack for each distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shedding.offline.streams import Stream
from shedding.schedule import Ints

_UNLIMITED = 2**60


def optimum(
    left: Stream, right: Stream, reach: int, memory: Sequence[int], *, pooled: bool = False, since: int | None = None
) -> list[int]:
    """Return the most pairs that can be found with memory for so many rows, beside those that are just arriving.

    The memory is divided into halves for the sides; pooled, they share it. Pairs complete before `since` do not count.

    >>> left, right = Stream.ticking(np.array([1, 1, 1, 3, 2])), Stream.ticking(np.array([2, 3, 1, 1, 3]))
    >>> optimum(left, right, 2, [0, 2, 4])
    [1, 5, 7]
    """
    at_once = _counted(right, since).count(left.keys, left.times - 1, left.times).sum()
    sides = [(left, _counted(right, since)), (right, _counted(left, since))]
    most = max(memory, default=0)
    if pooled:
        curves = [_Network.of(sides, reach).curve(most)]
    else:
        curves = [_Network.of([side], reach).curve(most // 2) for side in sides]
    return [int(at_once) + sum(curve[min(m // len(curves), len(curve) - 1)] for curve in curves) for m in memory]


def _counted(stream: Stream, since: int | None) -> Stream:
    """Return the rows at whose arrival pairs count."""
    counts = stream.times >= (stream.times.min(initial=0) if since is None else since)
    return Stream(stream.times[counts], stream.keys[counts])


@dataclass(slots=True)
class _Network:
    """Nodes are numbers, first those of the timeline. Arcs come in pairs, each next to its reverse."""

    instants: int
    heads: list[int] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    leaving: list[list[int]] = field(default_factory=list)
    """The arcs that leave each node."""
    instant_of: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, sides: Sequence[tuple[Stream, Stream]], reach: int) -> _Network:
        """Return the network for rows that are held, and partners that arrive, on one or both sides."""
        times = np.unique(np.concatenate([stream.times for side in sides for stream in side]))
        network = cls(len(times))
        for at in range(len(times)):
            network._node(at)
        for at in range(len(times) - 1):
            network._arc(at, at + 1, _UNLIMITED, 0)
        for held, partners in sides:
            for key in np.intersect1d(held.keys, partners.keys):
                network._add_key(times, held.times[held.keys == key], partners.times[partners.keys == key], reach)
        return network

    def _node(self, instant: int) -> int:
        self.leaving.append([])
        self.instant_of.append(instant)
        return len(self.leaving) - 1

    def _arc(self, tail: int, head: int, capacity: int, gain: int) -> None:
        for start, end, room, cost in ((tail, head, capacity, -gain), (head, tail, 0, gain)):
            self.leaving[start].append(len(self.heads))
            self.heads.append(end)
            self.capacities.append(room)
            self.costs.append(cost)

    def _add_key(self, times: Ints, held: Ints, partners: Ints, reach: int) -> None:
        """Add the rows of a key that can be held, and the meetings with its partners."""
        meetings, gains = np.unique(partners, return_counts=True)
        places = np.searchsorted(times, meetings).tolist()
        entries = np.searchsorted(times, held).tolist()
        alive = np.searchsorted(held, meetings - reach, side="left").tolist()
        arrived = np.searchsorted(held, meetings, side="left").tolist()
        before, known = None, 0
        for place, gain, first, last in zip(places, gains.tolist(), alive, arrived, strict=True):
            if first == last:
                before, known = None, last
                continue
            meeting = self._node(place)
            if before is not None and known > first:
                self._arc(before, meeting, known - first, gain)
            for entry in entries[max(known, first) : last]:
                self._arc(entry, meeting, 1, gain)
            self._arc(meeting, place, _UNLIMITED, 0)
            before, known = meeting, last

    def curve(self, most: int) -> list[int]:
        """Return what 0, 1, 2, ... places can earn, up to so many, or until more places earn no more."""
        earned = [0]
        for gain in self._augmentations() if self.instants > 1 else ():
            if gain == 0 or len(earned) > most:
                break
            earned.append(earned[-1] + gain)
        return earned

    def _augmentations(self) -> Iterator[int]:
        """Yield what each further place earns; the flow is augmented when the next one is asked for."""
        potentials = self._first_potentials()
        while True:
            path = self._shortest_path(potentials)
            yield potentials[0] - potentials[self.instants - 1]
            node = self.instants - 1
            while node != 0:
                arc = path[node]
                self.capacities[arc] -= 1
                self.capacities[arc ^ 1] += 1
                node = self.heads[arc ^ 1]

    def _first_potentials(self) -> list[int]:
        """Return the distances from the start, while every arc leads forward: a meeting is just before its instant."""
        distances = [_UNLIMITED] * len(self.leaving)
        distances[0] = 0
        for node in sorted(range(len(self.leaving)), key=lambda n: (self.instant_of[n], n < self.instants)):
            for arc in self.leaving[node]:
                if self.capacities[arc]:
                    head = self.heads[arc]
                    distances[head] = min(distances[head], distances[node] + self.costs[arc])
        return distances

    def _shortest_path(self, potentials: list[int]) -> list[int]:
        """Return the arc by which each node is reached, as far as the end needs it, and bring potentials up to date."""
        heads, capacities, costs, leaving = self.heads, self.capacities, self.costs, self.leaving
        end = self.instants - 1
        distances, path = [_UNLIMITED] * len(leaving), [-1] * len(leaving)
        distances[0] = 0
        waiting, reached, distance = {0: [0]}, [], 0
        while distances[end] > distance:
            distance = min(waiting)
            stack = waiting.pop(distance)
            while stack:
                node = stack.pop()
                if distances[node] < distance:
                    continue
                if node == end:
                    break
                reached.append(node)
                base = distance + potentials[node]
                for arc in leaving[node]:
                    if capacities[arc]:
                        head = heads[arc]
                        found = base + costs[arc] - potentials[head]
                        if found < distances[head]:
                            distances[head], path[head] = found, arc
                            if found == distance:
                                stack.append(head)
                            else:
                                waiting.setdefault(found, []).append(head)
        for node in set(reached):
            potentials[node] -= distance - distances[node]
        return path
