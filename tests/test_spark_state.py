"""`cql state`: what the checkpoint of a network on Spark holds, compared with tables worked out by hand."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cql.catalog import Catalog
from repl.cli import main
from tests.state_cases import ASKS, BIDS, Row

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from runtime.spark.run import SparkRun

# The last bid, and the last ask, come in micro-batches of their own.
BID_FILES = [BIDS[:2], BIDS[2:4], BIDS[4:]]
ASK_FILES = [ASKS[:2], ASKS[2:3], ASKS[3:]]
TICKS = ["1,2026-01-01T00:00:00Z", "2,2026-01-01T00:00:30Z", "3,2026-01-01T00:01:15Z"]

QUERIES = """
REGISTER QUERY pairs AS
  SELECT b.auction, b.price, a.price AS asked FROM bid [Range 4 Seconds] AS b, ask [Range 10 Seconds] AS a
  WHERE b.auction = a.auction;
REGISTER QUERY last AS SELECT auction, price FROM bid [Rows 2];
REGISTER QUERY totals AS SELECT auction, COUNT(*) AS n, MAX(price) AS best FROM bid [Range 4 Seconds] GROUP BY auction;
REGISTER QUERY recent AS SELECT Rstream(v) FROM tick [Range 1 Minute];
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("tables")
    for name, files in (("bid", BID_FILES), ("ask", ASK_FILES)):
        (folder / name).mkdir()
        for number, rows in enumerate(files):
            path = folder / name / f"{number}.csv"
            path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
            os.utime(path, (1_000_000_000 + number,) * 2)
    (folder / "tick").mkdir()
    (folder / "tick" / "0.csv").write_text("\n".join(TICKS) + "\n")
    columns = {"bid": "auction INT, price INT, at INT", "ask": "auction INT, price INT, at INT"}
    columns["tick"] = "v INT, at TIMESTAMP"
    known = Catalog()
    for name, declared in columns.items():
        options = f"path '{folder / name}', maxFilesPerTrigger '1'"
        known.execute(f"CREATE STREAM {name} ({declared}) TIMESTAMP BY at FROM csv OPTIONS ({options})")
    known.execute(QUERIES)
    return known


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a network that has come to its end."""
    path = tmp_path_factory.mktemp("network") / "checkpoint"
    with SparkRun(spark, catalog, list(catalog.queries.values()), out=io.StringIO(), checkpoint=path) as run:
        run.drain()
    return path


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run `cql state` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["state", *map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


def lines(*arguments: str | Path) -> list[dict[str, Any]]:
    code, out, err = run(*arguments, "--output", "jsonl")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def rows(checkpoint: Path, part: str, *arguments: str) -> tuple[list[str], list[Row]]:
    """Return the columns and sorted rows of a part, without buckets."""
    found = lines(checkpoint, "--store", part, *arguments)
    assert {line.pop("store") for line in found} == {part}
    assert all(line.pop("bucket") for line in found)
    return list(found[0]), sorted((tuple(line.values()) for line in found), key=repr)


def only(listed: list[dict[str, Any]], beginning: str, end: str) -> dict[str, Any]:
    """Return the one part of a list whose id begins and ends in some way."""
    parts = [line for line in listed if line.get("id", "").startswith(beginning) and line["id"].endswith(end)]
    assert len(parts) == 1, parts
    return parts[0]


@pytest.fixture(scope="module")
def listed(checkpoint: Path) -> list[dict[str, Any]]:
    """All that the checkpoint holds."""
    return lines(checkpoint)


# The inputs end at 9. Synopses hold the rows that are there at 10 or later, groups are those of 9.
WINDOW = ["start", "end", "auction", "price", "at"]
HELD = {
    ("binary-join-", "/left"): (WINDOW, [(8, 12, 8, 40, 8), (9, 13, 7, 50, 9)]),
    ("binary-join-", "/right"): (
        WINDOW,
        [(1, 11, 7, 11, 1), (3, 13, 8, 21, 3), (6, 16, 9, 31, 6), (9, 19, 7, 41, 9)],
    ),
    ("seq-window-", "/window"): (WINDOW, [(8, None, 8, 40, 8), (9, None, 7, 50, 9)]),
    ("operator/aggregate-", "/groups"): (
        ["auction", "count(*)", "max(price)", "rows", "count(*) n"],
        [(7, 1, 50, 1, 1), (8, 1, 40, 1, 1), (9, 0, None, 0, 0)],
    ),
    ("r-stream-", "/relation"): (
        ["start", "end", "weight", "v"],
        [
            ("2026-01-01T00:00:30.000000Z", "2026-01-01T00:01:30.000000Z", 1, 2),
            ("2026-01-01T00:01:15.000000Z", "2026-01-01T00:02:15.000000Z", 1, 3),
        ],
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("part", HELD, ids="".join)
def test_windows_and_groups_hold_what_they_must(
    part: tuple[str, str], checkpoint: Path, listed: list[dict[str, Any]]
) -> None:
    columns, expected = HELD[part]
    found = only(listed, *part)
    assert rows(checkpoint / found["clock"], found["id"]) == (columns, sorted(expected, key=repr))
    assert found["rows"] == len(expected)


@pytest.mark.spark
def test_a_list_says_what_is_kept_where_and_for_whom(listed: list[dict[str, Any]]) -> None:
    parts = [line for line in listed if "id" in line]
    (log,) = [part for part in parts if part["queries"] == ["pairs", "totals"]]
    assert (log["clock"], log["kind"], log["what"]) == ("integer", "log", "rows of source bid (stream)")
    assert log["rows"] >= 2 and log["chunks"] >= 1 and log["bytes"] > 0 and 1 <= log["buckets"] <= 2
    assert {part["clock"] for part in parts} == {"integer", "timestamp"}
    assert {query for part in parts for query in part["queries"]} == {"pairs", "last", "totals", "recent"}


@pytest.mark.spark
def test_a_list_says_how_far_sources_are(listed: list[dict[str, Any]]) -> None:
    sources = {line["table"]: line for line in listed if "table" in line}
    told = ("clock", "first", "last", "until", "read", "skipped", "late", "status")
    assert [sources["bid"][name] for name in told] == ["integer", 1, 9, 9, 6, 0, 0, "ended"]
    assert [sources["ask"][name] for name in told] == ["integer", 1, 9, 9, 4, 0, 0, "ended"]
    first, last = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:15.000000Z"
    assert [sources["tick"][name] for name in told] == ["timestamp", first, last, last, 3, 0, 0, "ended"]


@pytest.mark.spark
def test_tables_are_for_reading_and_looking_writes_nothing(checkpoint: Path, listed: list[dict[str, Any]]) -> None:
    before = _files(checkpoint)
    code, out, _ = run(checkpoint)
    assert code == 0
    assert out.startswith("integer clock, after micro-batch ")
    assert "\n\ntimestamp clock, after micro-batch " in out
    name = only(listed, "seq-window-", "/window")["id"]
    code, out, err = run(checkpoint, "--store", name, "--limit", "1")
    assert (code, out) == (
        0,
        f"{name} (2 rows)\nbucket      start   end  auction  price  at\nsingle-0/0      8  NULL        8     40   8\n",
    )
    assert err == f"{name}: 1 of 2 rows are shown; --limit 0 shows all\n"
    assert _files(checkpoint) == before


@pytest.mark.spark
def test_all_parts_of_an_operator_are_shown_together(checkpoint: Path, listed: list[dict[str, Any]]) -> None:
    operator = only(listed, "operator/aggregate-", "/groups")["id"].removesuffix("/groups")
    shown = {line["store"] for line in lines(checkpoint / "integer", "--store", operator)}
    assert shown == {f"{operator}/groups", f"{operator}/agenda", f"{operator}/1"}


@pytest.mark.spark
def test_an_earlier_state_can_be_looked_at(checkpoint: Path) -> None:
    """After the first micro-batch all before 2 is complete, so the second bid waits."""
    earlier = lines(checkpoint / "integer", "--batch", "0")
    assert {line["batch"] for line in earlier} == {0}
    waiting = only(earlier, "waiting/", "/single")["id"]
    columns = ["instant", "weight", "auction", "price", "at"]
    assert rows(checkpoint / "integer", waiting, "--batch", "0") == (columns, [(2, 1, 8, 20, 2)])


@pytest.mark.spark
def test_a_running_network_can_be_looked_at(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    queries = [catalog.query("last")]
    with SparkRun(spark, catalog, queries, out=io.StringIO(), checkpoint=tmp_path) as network:
        network.start()
        network.process_available()
        name = only(lines(tmp_path), "seq-window-", "/window")["id"]
        assert rows(tmp_path, name)[1] == [(5, None, 9, 5, 5), (8, None, 8, 40, 8)]
        network.close_instants()
        assert rows(tmp_path, name)[1] == [(8, None, 8, 40, 8), (9, None, 7, 50, 9)]


@pytest.mark.spark
def test_without_the_plan_there_are_ids(checkpoint: Path, tmp_path: Path) -> None:
    copied = _copied(checkpoint / "integer", tmp_path)
    (copied / "network.json").unlink()
    found = lines(copied)
    assert {(line["kind"], line["what"]) for line in found if "id" in line} == {("log", ""), ("operator", "")}
    columns, kept = rows(copied, only(found, "store/log/", "/single")["id"])
    assert columns == ["start", "c0", "c1", "c2"] and kept[-2:] == [(8, 8, 40, 8), (9, 7, 50, 9)]


# What is wrong is told, with exit code 1


@pytest.mark.spark
def test_a_damaged_state_is_told(checkpoint: Path, tmp_path: Path) -> None:
    copied = _copied(checkpoint / "integer", tmp_path)
    for log in (copied / "spark" / "state").rglob("*.changelog"):
        log.write_bytes(log.read_bytes()[:5])
    _told(run(copied), "E504", f"the state in '{copied}' cannot be read: ")


@pytest.mark.spark
def test_an_unknown_part_is_told(checkpoint: Path, listed: list[dict[str, Any]]) -> None:
    result = run(checkpoint, "--store", only(listed, "binary-join-", "/left")["id"] + "t")
    _told(result, "E303", "the checkpoint holds nothing under the id ", "did you mean binary-join-")


@pytest.mark.spark
def test_a_batch_that_is_not_there_is_told(checkpoint: Path) -> None:
    result = run(checkpoint / "integer", "--batch", "99")
    _told(result, "E303", "there is no state of micro-batch 99 in ", "there is that of 0 to ")


@pytest.mark.spark
def test_a_plan_that_cannot_be_read_is_told(checkpoint: Path, tmp_path: Path) -> None:
    copied = _copied(checkpoint / "integer", tmp_path)
    (copied / "network.json").write_text("{")
    _told(run(copied), "E507", "its file network.json cannot be read")


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    _told(run(tmp_path / "none"), "E501", f"the checkpoint '{tmp_path / 'none'}' is not there")
    _told(run(tmp_path), "E504", f"'{tmp_path}' is not the checkpoint of a network")
    (tmp_path / "file").write_text("")
    _told(run(tmp_path / "file"), "E501", "is not a folder")


def test_a_checkpoint_without_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "integer").mkdir()
    _told(run(tmp_path), "E504", f"the checkpoint '{tmp_path}' has no state yet")
    (tmp_path / "integer" / "spark" / "commits").mkdir(parents=True)
    _told(run(tmp_path / "integer"), "E504", "has no state yet: no micro-batch is complete")


@pytest.mark.parametrize("option", ["--limit", "--batch"])
def test_numbers_are_numbers(option: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, option, "-1")
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def _told(result: tuple[int, str, str], code: str, *texts: str) -> None:
    assert result[:2] == (1, "")
    assert f": {code}: " in result[2] and "Traceback" not in result[2]
    assert all(text in result[2] for text in texts), result[2]


def _copied(checkpoint: Path, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint, folder / checkpoint.name))


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
