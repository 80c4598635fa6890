"""When a stream counts as idle: by a clock that the tests move."""

from __future__ import annotations

from runtime.controllers.idle_watch import IdleWatch
from runtime.time.clock import SourceClock, SourceTime


class Watched:
    """A watch over two tables with a timeout of 10, its clock, and what it has told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[list[str]] = []
        self.watch = IdleWatch(["a", "b"], 10, lambda idle: self.told.append(list(idle)), lambda: self.now)

    def at(self, now: float, **rows: int) -> list[list[str]]:
        """Let the watch note rows, if there are any, and look; return what it has told by then."""
        self.now = now
        if rows:
            self.watch.note(rows)
        self.watch.look()
        return self.told


def test_a_table_is_idle_when_it_had_nothing_for_the_timeout_while_another_had_rows() -> None:
    watched = Watched()
    assert watched.at(5, a=1, b=0) == []
    assert watched.at(10) == []
    assert watched.at(10.1) == [["b"]]
    assert watched.at(30, a=2) == [["b"]], "it is told once"


def test_nobody_is_idle_where_nobody_has_rows() -> None:
    assert Watched().at(100) == []


def test_a_table_that_has_rows_again_can_become_idle_again() -> None:
    watched = Watched()
    watched.at(5, a=1)
    watched.at(11)
    assert watched.at(12, a=1, b=3) == [["b"]]
    assert watched.at(21, a=2) == [["b"]]
    assert watched.at(23, a=3) == [["b"], ["b"]]


def test_idle_streams_that_have_ended_close_their_last_instant() -> None:
    """While one is only idle, it may still bring something for the instant that the others are at."""
    sources = {"a": SourceTime(True, until=12, last=12, has_ended=True), "b": SourceTime(True, until=3, is_idle=True)}
    clock = SourceClock(sources)
    assert clock.passed("a") == clock.passed("b") == 12
    sources["b"].has_ended = True
    assert clock.passed("a") == clock.passed("b") == 13
