"""Lengths of time: unit words, texts, and ticks of the two clocks."""

import pyarrow as pa
import pytest

from cql import bound
from cql.bound.text import literal_text
from cql.intervals import UNIT_WORDS, BadInterval, Interval, TimeDomain, Unit, parse_interval
from planner.json_codec import type_from_text
from runtime.connectors.tables import shown_texts


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("5 seconds", 5_000_000),
        ("5s", 5_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1 hour, 30 minutes", 5_400_000_000),
        ("1.5 seconds", 1_500_000),
        (".5 ms", 500),
        ("1. day", 86_400_000_000),
        ("-1 minute", -60_000_000),
        ("1 day -24 hours", 0),
        ("+2 us", 2),
        ("0 seconds", 0),
        (" 7 Days ", 604_800_000_000),
        ("9223372036854775807 us", 2**63 - 1),
    ],
)
def test_length(text: str, microseconds: int) -> None:
    assert parse_interval(text).microseconds() == microseconds


@pytest.mark.parametrize("word", UNIT_WORDS)
def test_every_unit_word_means_its_unit(word: str) -> None:
    for spelled in (word, word.upper()):
        assert parse_interval(f"2 {spelled}").microseconds() == 2 * UNIT_WORDS[word].value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "5",
        "seconds",
        "5 lightyears",
        "five seconds",
        "5 seconds 6",
        "1e3 seconds",
        "5 + 3 seconds",
        "5,s",
    ],
)
def test_what_is_not_an_interval(text: str) -> None:
    with pytest.raises(BadInterval):
        parse_interval(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.5 us", "whole number of microseconds"),
        ("0.0000001 seconds", "whole number of microseconds"),
        ("1.0000000000000000000000000000000000001 seconds", "whole number of microseconds"),
        ("9223372036854775808 us", "292,000 years"),
        ("999999999999999999999999999999 days", "292,000 years"),
        ("-9223372036854775808 us", "292,000 years"),
    ],
)
def test_a_length_that_no_clock_has(text: str, reason: str) -> None:
    with pytest.raises(BadInterval, match=reason):
        parse_interval(text).microseconds()


@pytest.mark.parametrize(
    ("text", "integer", "timestamp"),
    [
        ("5 seconds", 5, 5_000_000),
        ("1 minute", 60, 60_000_000),
        ("1 day", 86_400, 86_400_000_000),
        ("2000 ms", 2, 2_000_000),
        ("1500 ms", None, 1_500_000),
        ("1 us", None, 1),
    ],
)
def test_ticks_of_both_clocks(text: str, integer: int | None, timestamp: int) -> None:
    interval = parse_interval(text)
    assert interval.ticks(TimeDomain.TIMESTAMP) == timestamp
    if integer is None:
        with pytest.raises(BadInterval, match="whole seconds"):
            interval.ticks(TimeDomain.INTEGER)
    else:
        assert interval.ticks(TimeDomain.INTEGER) == integer


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval((("1", Unit.HOUR), ("30", Unit.MINUTE))), "1 HOUR 30 MINUTES"),
        (Interval((("1.50", Unit.SECOND),)), "1.50 SECONDS"),
        (Interval((("-1", Unit.DAY),)), "-1 DAYS"),
    ],
)
def test_an_interval_is_written_with_the_amounts_it_was_given(interval: Interval, text: str) -> None:
    assert str(interval) == text
    assert parse_interval(text) == interval


def test_people_read_lengths_of_time_in_words() -> None:
    lengths = pa.array([90_000_000, 500_000, 0, -3_600_000_000, None], pa.duration("us"))
    assert shown_texts(lengths).to_pylist() == ["90 seconds", "500 milliseconds", "0 seconds", "-1 hour", "NULL"]
    literal = bound.Literal(60_000_000, type=type_from_text("INTERVAL"), nullable=False)
    assert literal_text(literal) == "INTERVAL '1 MINUTE'"
