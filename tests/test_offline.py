"""Tools for afterwards: the optimum is as good as exhaustive search, and what is missing completes the exact join."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._joinshed_memory import zipfian
from benchmarks.models.archive import Holding, archive_metric, count_delivered, delivered_pairs, missing_pairs
from benchmarks.models.static import best_kept_of_each, kept_of_many
from repl import cli
from shedding.offline.archive import undelivered_pairs
from shedding.offline.optimum import optimum
from shedding.offline.static import best_kept, pairs_kept
from shedding.offline.streams import Pairs, Stream, count_exact, exact_pairs

R = Stream.ticking(np.array([1, 1, 1, 3, 2]))
S = Stream.ticking(np.array([2, 3, 1, 1, 3]))

values = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def stream(keys: list[int], gaps: list[int]) -> Stream:
    """A stream with some rows at the same instant and some instants without a row."""
    times = np.cumsum([gaps[at % len(gaps)] for at in range(len(keys))])
    return Stream(times.astype(np.int64), np.array(keys, np.int64))


streams = st.builds(stream, values, st.lists(st.integers(0, 2), min_size=1, max_size=4))


def by_definition(left: Stream, right: Stream, reach: int) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i, j in product(range(len(left)), range(len(right)))
        if left.keys[i] == right.keys[j] and abs(left.times[i] - right.times[j]) <= reach
    ]


def exhaustive(left: Stream, right: Stream, reach: int, memory: int, pooled: bool, since: int) -> int:
    """The best that any choice of evictions can do, by trying all of them."""
    rows = [(0, int(t), int(k)) for t, k in zip(left.times, left.keys, strict=True)]
    rows += [(1, int(t), int(k)) for t, k in zip(right.times, right.keys, strict=True)]
    instants = sorted({t for _, t, _ in rows})
    arriving = {t: [(at, row) for at, row in enumerate(rows) if row[1] == t] for t in instants}

    def allowed(chosen: tuple[int, ...]) -> bool:
        sides = [rows[at][0] for at in chosen]
        return len(sides) <= memory if pooled else max(sides.count(0), sides.count(1)) <= memory // 2

    @cache
    def best(at: int, stored: tuple[int, ...]) -> int:
        if at == len(instants):
            return 0
        now = instants[at]
        new = [each for each, _ in arriving[now]]
        there = tuple(each for each in stored if rows[each][1] >= now - reach)
        counts = now >= since
        pairs = [(a, b) for a in new for b in there] + list(combinations(new, 2))
        gain = sum(counts and rows[a][0] != rows[b][0] and rows[a][2] == rows[b][2] for a, b in pairs)
        everyone = (*there, *new)
        choices = (c for size in range(min(memory, len(everyone)) + 1) for c in combinations(everyone, size))
        return gain + max(best(at + 1, chosen) for chosen in choices if allowed(chosen))

    return best(0, ())


def test_the_worked_example_of_the_paper() -> None:
    assert count_exact(R, S, 2) == 7
    assert optimum(R, S, 2, [2, 4]) == [5, 7]


@settings(max_examples=60, deadline=None)
@given(
    st.builds(stream, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.just([1, 0, 2])),
    st.builds(stream, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.just([1, 1, 0])),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 4),
)
def test_the_optimum_is_the_best_of_all_choices(
    left: Stream, right: Stream, reach: int, memory: int, pooled: bool, since: int
) -> None:
    [found] = optimum(left, right, reach, [memory], pooled=pooled, since=since)
    assert found == exhaustive(left, right, reach, memory, pooled, since)


def test_the_optimum_of_the_papers_input_is_found() -> None:
    given_ = zipfian(5600, 50, (1.0, 1.0), "independent", 1)
    [found] = optimum(given_.left, given_.right, 399, [400], since=800)
    assert 0.8 < found / count_exact(given_.left, given_.right, 399, 800) < 1


@given(streams, streams, st.integers(0, 5))
def test_with_memory_for_all_the_optimum_is_the_exact_join(left: Stream, right: Stream, reach: int) -> None:
    most = 2 * (len(left) + len(right))
    curve = optimum(left, right, reach, range(0, most + 1, 2))
    gains = np.diff(curve)
    assert curve[-1] == count_exact(left, right, reach)
    assert (gains >= 0).all() and (optimum(left, right, reach, [most], pooled=True) == [curve[-1]])


@given(streams, streams, st.integers(0, 5), st.integers(0, 8))
def test_exact_pairs_are_those_of_the_definition(left: Stream, right: Stream, reach: int, since: int) -> None:
    pairs = by_definition(left, right, reach)
    assert exact_pairs(left, right, reach).rows() == pairs
    late = [(i, j) for i, j in pairs if max(left.times[i], right.times[j]) >= since]
    assert count_exact(left, right, reach, since) == len(late)


@given(streams, streams, st.integers(0, 5), st.data())
def test_delivered_and_missing_pairs_are_the_exact_join_and_no_pair_is_twice(
    left: Stream, right: Stream, reach: int, data: st.DataObject
) -> None:
    held = Holding(
        *(
            each.times + data.draw(st.lists(st.integers(0, reach + 1), min_size=len(each), max_size=len(each)))
            for each in (left, right)
        )
    )
    delivered, missing = delivered_pairs(left, right, reach, held), missing_pairs(left, right, reach, held)
    assert sorted(delivered.rows() + missing.rows()) == by_definition(left, right, reach)
    assert undelivered_pairs(left, right, reach, delivered).rows() == missing.rows()
    assert count_delivered(left, right, reach, held) == len(delivered)
    assert len(missing_pairs(left, right, reach, Holding.complete(left, right, reach))) == 0


@given(streams, streams, st.integers(0, 4), st.data())
def test_the_archive_metric_counts_by_its_formula(left: Stream, right: Stream, reach: int, data: st.DataObject) -> None:
    held = [
        each.times + data.draw(st.lists(st.integers(0, reach), min_size=len(each), max_size=len(each)))
        for each in (left, right)
    ]
    end = max(left.times.max(), right.times.max())
    count = 0
    for side, (own, other) in enumerate(((left, right), (right, left))):
        for i in range(len(own)):
            partners = [j for j in range(len(other)) if other.keys[j] == own.keys[i]]
            later = [j for j in partners if own.times[i] < other.times[j] <= own.times[i] + reach]
            earlier = [j for j in partners if own.times[i] - reach <= other.times[j] < own.times[i]]
            complete = all(held[side][i] >= other.times[j] for j in later)
            complete = complete and all(held[1 - side][j] >= own.times[i] for j in earlier)
            count += not complete and own.times[i] + reach <= end
    missing = missing_pairs(left, right, reach, Holding(*held))
    assert archive_metric(left, right, reach, missing) == count


@pytest.mark.parametrize(
    ("delivered", "complaint"),
    [([(0, 2), (0, 2)], "twice"), ([(0, 0)], "not one of the join")],
)
def test_a_log_of_something_else_is_refused(delivered: list[tuple[int, int]], complaint: str) -> None:
    log = Pairs(*(np.array(each) for each in zip(*delivered, strict=True)))
    with pytest.raises(ValueError, match=complaint):
        undelivered_pairs(R, S, 2, log)


# The static join


def test_the_vectors_of_the_sheet() -> None:
    assert [pairs_kept(3, 2, p) for p in range(6)] == [0, 0, 1, 2, 4, 6]
    assert best_kept([1, 2], [1, 2], 4).pairs == 4
    assert best_kept([1, 2], [1, 2], 4).left == [0, 2]


counts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3)


@given(counts, st.integers(0, 12))
def test_no_choice_of_rows_keeps_more_of_a_join(keys: list[tuple[int, int]], kept: int) -> None:
    found = best_kept(*zip(*keys, strict=True), kept)
    ways = product(*(product(range(m + 1), range(n + 1)) for m, n in keys))
    kept = min(kept, sum(m + n for m, n in keys))
    assert found.pairs == max(sum(p * q for p, q in way) for way in ways if sum(p + q for p, q in way) == kept)
    assert found.pairs == sum(p * q for p, q in zip(found.left, found.right, strict=True))
    assert sum(found.left) + sum(found.right) == kept
    assert all(p <= m and q <= n for p, q, (m, n) in zip(found.left, found.right, keys, strict=True))


@given(counts, st.integers(0, 6), st.integers(0, 6))
def test_no_choice_of_so_many_rows_of_each_keeps_more(keys: list[tuple[int, int]], left: int, right: int) -> None:
    found = best_kept_of_each(*zip(*keys, strict=True), left, right)
    left, right = min(left, sum(m for m, _ in keys)), min(right, sum(n for _, n in keys))
    ways = product(*(product(range(m + 1), range(n + 1)) for m, n in keys))
    assert found.pairs == max(
        sum(p * q for p, q in way) for way in ways if (sum(p for p, _ in way), sum(q for _, q in way)) == (left, right)
    )
    assert (sum(found.left), sum(found.right)) == (left, right)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=2), st.tuples(*[st.integers(0, 3)] * 3))
def test_of_three_relations_no_more_than_three_times_the_least_loss_is_lost(
    keys: list[tuple[int, int, int]], deleted: tuple[int, int, int]
) -> None:
    rows = np.array(keys).T
    deleted_of = [min(d, int(row.sum())) for d, row in zip(deleted, rows, strict=True)]
    kept = np.array(kept_of_many(rows.tolist(), deleted_of))
    assert (rows.sum(1) - kept.sum(1)).tolist() == deleted_of
    ways = [
        [way for way in product(*(range(int(c) + 1) for c in row)) if sum(way) == row.sum() - gone]
        for row, gone in zip(rows, deleted_of, strict=True)
    ]
    best = max(int(np.prod(np.array(way), axis=0).sum()) for way in product(*ways))
    everything = int(np.prod(rows, axis=0).sum())
    assert everything - int(np.prod(kept, axis=0).sum()) <= 3 * (everything - best)


# The command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("left.csv").write_text("key,at\na,1\na,2\na,3\nc,4\nb,5\n,6\n")
    Path("right.csv").write_text("key,at\nb,1\nc,2\na,3\na,4\nc,5\n,6\n")
    Path("log.csv").write_text("left,right\n2,3\n2,4\n3,3\n3,4\n4,2\n")


WINDOW = ("left.csv", "right.csv", "--on", "key", "--window", "2")


@pytest.mark.usefixtures("files")
def test_the_command_tells_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offline", "optimum", *WINDOW, "--memory", "2,4", "--time", "at"]) == 0
    out = capsys.readouterr()
    assert out.out == "memory  pairs  of all\n     2      5  0.714\n     4      7  1.000\n"
    assert out.err == "7 pairs in all\n"


@pytest.mark.usefixtures("files")
def test_the_command_tells_which_rows_to_keep(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offline", "static", "left.csv", "right.csv", "--on", "key", "--keep", "5"]) == 0
    out = capsys.readouterr()
    assert out.out.splitlines()[1].split() == ["a", "3", "2", "3", "2"]
    assert out.err == "6 of 9 pairs are kept\n"


@pytest.mark.usefixtures("files")
def test_the_command_tells_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offline", "complete", *WINDOW, "--delivered", "log.csv"]) == 0
    out = capsys.readouterr()
    assert out.out == '"left","right","key"\n1,3,"a"\n4,5,"c"\n'
    assert out.err == "5 pairs were delivered, 2 are missing; 4 rows were not fully joined\n"


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("left.csv", "right.csv", "--on", "kay", "--window", "2"), "left.csv:1:1: E202: there is no column 'kay'"),
        (("no.csv", "right.csv", "--on", "key", "--window", "2"), "no.csv:1:1: E501: 'no.csv' cannot be read"),
        ((*WINDOW, "--time", "key"), "left.csv:1:1: E503: the column 'key' has values that are not whole numbers"),
        (("left.csv", "late.csv", "--on", "key", "--window", "2", "--time", "at"), "row 2 is earlier"),
        (("left.csv", "empty.csv", "--on", "key", "--window", "2"), "E504: this is not a csv file"),
        ((*WINDOW[:-1], "0"), "log.csv:1:1: E503: a pair was delivered that is not one of the join"),
        (("left.csv", "short.csv", "--on", "key", "--window", "2"), "there is no row 3 on the right, which has 1"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("late.csv").write_text("key,at\na,2\na,1\n")
    Path("empty.csv").write_text("")
    Path("short.csv").write_text("key\na\n")
    assert cli.main(["offline", "complete", *arguments, "--delivered", "log.csv"]) == 1
    out = capsys.readouterr()
    assert complaint in out.err and out.out == ""
