"""Law: which rows are late follows from the order of a source alone, however tasks share out its places."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.network.lateness import Lateness, PlaceSpan, overtaken

PLACES = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6)


def by_definition(places: list[list[int]], delay: int, newest: int | None) -> list[list[bool]]:
    """The rows that are on time, one after the other."""
    found: list[list[bool]] = []
    for instants in places:
        found.append([])
        for instant in instants:
            found[-1].append(newest is None or instant >= newest - delay)
            newest = instant if newest is None else max(newest, instant)
    return found


@given(PLACES, st.integers(0, 3), st.none() | st.integers(0, 9), st.data())
def test_tasks_keep_what_is_on_time_by_the_order_of_the_source(
    places: list[list[int]], delay: int, newest: int | None, data: st.DataObject
) -> None:
    tasks = [data.draw(st.integers(0, 2)) for _ in places]
    cuts = [data.draw(st.integers(0, 4)) for _ in places]

    def read(before: dict[str, int]) -> tuple[list[list[bool]], list[PlaceSpan]]:
        judges = [Lateness(delay, newest, before) for _ in range(3)]
        kept: list[list[bool]] = []
        spans: list[PlaceSpan] = []
        for number, instants in enumerate(places):
            kept.append([])
            place, cut = f"{number:03}", cuts[number] % (len(instants) + 1)
            for part in (instants[:cut], instants[cut:]):
                rows = np.array(part, np.int64)
                mask = judges[tasks[number]].on_time(place, rows)
                kept[-1] += mask.tolist()
                spans.append(PlaceSpan.of(place, rows[mask]))
        return kept, spans

    kept, spans = read({})
    if before := overtaken(spans, delay, newest):
        kept, spans = read(before)
        assert not overtaken(spans, delay, newest), "a second reading knows enough"
    assert kept == by_definition(places, delay, newest)
