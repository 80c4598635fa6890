"""The log of decisions: what is written is there for a micro-batch that is repeated, and for whoever asks why."""

from __future__ import annotations

from pathlib import Path

from cql import Engine
from cql.session import Listing
from runtime.controllers import decision_log
from runtime.controllers.decision_log import Decision, DecisionLog, decisions_listing
from runtime.controllers.idle_watch import IDLENESS, idle_decision


def shed(batch: int, fraction: float) -> Decision:
    return Decision(batch, "shedding", "q", {"fraction": fraction}, {"waiting": 5000.0}, "load")


def test_a_repeated_micro_batch_goes_by_what_was_written(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    assert log.state("shedding", 0) is None and log.last_state("shedding") is None
    log.write("shedding", 0, [shed(0, 0.5)], {"seed": 7})
    log.write("shedding", 1, [], {"seed": 8})
    again = DecisionLog(tmp_path)
    assert again.state("shedding", 0) == {"seed": 7}
    assert again.last_state("shedding") == {"seed": 8}
    assert again.state("shedding", 2) is None
    assert again.newest() == [shed(0, 0.5)]


def test_decisions_of_several_controllers_are_in_the_order_of_micro_batches(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log.write("shedding", 3, [shed(3, 0.5)], {})
    log.add(IDLENESS, 2, [idle_decision(2, "s", 11.0)])
    log.add(IDLENESS, 2, [idle_decision(2, "r", 12.0)])
    for each in (log, DecisionLog(tmp_path)):
        assert [(one.batch, one.subject) for one in each.newest()] == [(2, "s"), (2, "r"), (3, "q")]
        assert [one.batch for one in each.newest(1)] == [3]


def test_pages_without_decisions_are_kept_for_a_while_and_those_with_some_for_longer(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log.write("shedding", 0, [shed(0, 0.5)], {"batch": 0})
    for batch in range(1, 50):
        log.write("shedding", batch, [], {"batch": batch})
    kept = [0, *range(50 - decision_log.KEPT_PAGES, 50)]
    assert [int(path.stem.partition("-")[0]) for path in sorted(tmp_path.iterdir())] == kept
    assert log.state("shedding", 1) is None
    assert DecisionLog(tmp_path).newest() == [shed(0, 0.5)]


def test_old_decisions_are_forgotten(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    for batch in range(decision_log.KEPT_DECISIONS + 30):
        log.write("shedding", batch, [shed(batch, 0.5)], {})
    assert len(list(tmp_path.iterdir())) == decision_log.KEPT_DECISIONS


def test_the_listing_says_what_was_decided_from_what_and_why() -> None:
    listing = decisions_listing([idle_decision(4, "s", 10.25), shed(5, 0.125)])
    assert listing.rows == (
        ("4", "idleness", "s", "idle = True", "seconds without rows = 10.2", "no rows while others had some"),
        ("5", "shedding", "q", "fraction = 0.125", "waiting = 5000", "load"),
    )


def test_nothing_is_shown_where_nothing_was_decided() -> None:
    (listing,) = Engine().execute("SHOW DECISIONS")
    assert isinstance(listing, Listing)
    assert listing.columns[:3] == ("batch", "controller", "subject") and listing.rows == ()
