"""Delivery of results: whatever happens between two batches, the files hold every result once."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import CqlError
from cql import types as t
from cql.catalog import External, QueryDef
from cql.intervals import TimeDomain
from cql.types import DataType
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import ChangeBatch
from runtime.connectors import batch_sinks
from runtime.connectors.claims import NAME
from runtime.connectors.python_data import Callback
from runtime.connectors.results import Writer
from runtime.connectors.sinks import open_sink
from runtime.connectors.tables import Screen
from runtime.delivery.delivery import Delivery
from runtime.delivery.targets import Target

CASES = int(os.environ.get("CQL_FUZZ", "25"))
"""How many random runs with crashes are tried."""

FILES = ("csv", "json", "parquet", "stream")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Column:
    name: str
    type: DataType


KV = (Column("k", t.STRING), Column("v", t.INT))


def target(format_name: str | None, path: str = "", name: str = "", callback: Callback | None = None) -> Target:
    sink = External(format=format_name, options={"path": path} if path else {}) if format_name else None
    query = QueryDef(name=name or format_name or "q", text="SELECT 1", sink=sink)
    return Target(query, KV, False, TimeDomain.INTEGER, callback)


def changes(*rows: tuple[int, int, str, int | None]) -> ChangeBatch:
    """Return changes given as (instant, weight, k, v)."""
    at, weights, k, v = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = tuple(pa.array(values, arrow_type(c.type)) for values, c in zip((k, v), KV, strict=True))
    return ChangeBatch(columns, np.array(at, np.int64), None, np.array(weights, np.int64), 0)


def delivered(checkpoint: str | None, targets: Sequence[Target], *batches: ChangeBatch, first: int = 0) -> None:
    """Deliver batches to all targets and finish."""
    delivery = Delivery(Path(checkpoint) if checkpoint else None, targets)
    for batch_id, batch in enumerate(batches, first):
        delivery.deliver(batch_id, {each.query.name: [batch] for each in targets if len(batch)})
    delivery.finish()


def contents(folder: str | Path = ".") -> dict[str, Any]:
    """Return what is in the files of a folder; what a Parquet file holds is its table."""
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.name.endswith(NAME))
    return {
        str(path.relative_to(folder)): parquet.read_table(path) if path.suffix == ".parquet" else path.read_bytes()
        for path in found
    }


ONE = changes((1, 1, "x", 1))
TWO = changes((2, 2, "y", None), (3, -1, "x", 1))


# Files


def test_every_batch_with_rows_has_a_file_in_a_folder() -> None:
    delivered("c", [target("csv", "o")], ONE, changes(), TWO)
    assert contents("o") == {"part-00000000.csv": b"1,+,x,1\n", "part-00000002.csv": b"2,+,y,\n2,+,y,\n3,-,x,1\n"}


def test_a_file_of_stream_grows() -> None:
    delivered("c", [target("stream", "new/o.txt")], ONE, changes(), TWO)
    assert Path("new/o.txt").read_text() == "[1]:+:x, 1\n[2]:+:y, NULL\n[2]:+:y, NULL\n[3]:-:x, 1\n"


@pytest.mark.parametrize("format_name", FILES)
def test_a_batch_that_comes_again_changes_nothing(format_name: str) -> None:
    delivered("c", [target(format_name, "o/o")], ONE, TWO)
    before = contents("o")
    delivered("c", [target(format_name, "o/o")], TWO, first=1)
    assert contents("o") == before


@pytest.mark.parametrize("format_name", FILES)
def test_a_network_goes_on_where_it_was_stopped(format_name: str) -> None:
    delivered("c", [target(format_name, "whole/o")], ONE, TWO, ONE)
    delivered("d", [target(format_name, "halves/o")], ONE, TWO)
    delivered("d", [target(format_name, "halves/o")], ONE, first=2)
    assert contents("halves") == contents("whole")


@pytest.mark.parametrize("checkpoint", ["new", None])
@pytest.mark.parametrize("format_name", FILES)
def test_a_run_from_a_new_checkpoint_replaces_the_files_of_an_earlier_one(
    format_name: str, checkpoint: str | None
) -> None:
    delivered("c", [target(format_name, "o/o")], ONE, TWO, ONE)
    Path("o/mine.txt").write_text("kept")
    delivered(checkpoint, [target(format_name, "o/o")], ONE)
    delivered("d", [target(format_name, "expected/o")], ONE)
    Path("expected/mine.txt").write_text("kept")
    assert contents("o") == contents("expected")


@pytest.mark.parametrize("format_name", FILES)
def test_a_batch_that_is_done_again_may_have_no_rows_now(format_name: str) -> None:
    """An input that ended its first try was corrected."""
    crashed = Delivery(Path("c"), [target(format_name, "o/o")])
    crashed.deliver(0, {format_name: [ONE]})
    before = Path("c/delivery.json").read_bytes()
    crashed.deliver(1, {format_name: [TWO]})
    crashed.abort()
    Path("c/delivery.json").write_bytes(before)
    if format_name == "stream":
        record = json.loads(before)
        record["queries"]["stream"].update(begun=1, length=len(b"[1]:+:x, 1\n"))
        Path("c/delivery.json").write_text(json.dumps(record))
    delivered("c", [target(format_name, "o/o")], changes(), first=1)
    delivered("alone", [target(format_name, "p/o")], ONE)
    assert contents("o") == contents("p")


def test_a_run_without_results_replaces_an_earlier_one_too() -> None:
    targets = [target("csv", "o/csv"), target("stream", "o/s.txt")]
    delivered("c", targets, ONE)
    delivered("d", targets)
    assert contents("o") == {"s.txt": b""}


def test_a_query_that_is_added_has_all_its_results_from_then_on() -> None:
    """Although the batch comes again that the others have had."""
    delivered("c", [target("csv", "a", "a")], ONE, TWO)
    delivered("c", [target("csv", "a", "a"), target("csv", "b", "b")], TWO, ONE, first=1)
    assert list(contents("a")) == [f"part-0000000{n}.csv" for n in (0, 1, 2)]
    assert list(contents("b")) == [f"part-0000000{n}.csv" for n in (1, 2)]


def test_what_a_crash_left_under_hidden_names_is_removed() -> None:
    Path("o").mkdir()
    for name in (".part-00000001.csv.0123456789ab", ".mine", "part-00000000.json"):
        (Path("o") / name).touch()
    delivered("c", [target("csv", "o")], ONE)
    assert sorted(contents("o")) == [".mine", "part-00000000.csv", "part-00000000.json"]


# Other sinks


def test_standard_output_is_printed_batch_by_batch_and_not_again_after_a_stop() -> None:
    out = io.StringIO()
    delivery = Delivery(Path("c"), [target(None)], "jsonl", Screen(out))
    delivery.deliver(0, {"q": [ONE]})
    assert [json.loads(line)["row"] for line in out.getvalue().splitlines()] == [{"k": "x", "v": 1}]
    delivery.finish()
    again = io.StringIO()
    delivery = Delivery(Path("c"), [target(None)], "jsonl", Screen(again))
    delivery.deliver(0, {"q": [ONE]})
    delivery.finish()
    assert again.getvalue() == ""


def test_a_table_is_printed_when_its_batch_is_delivered() -> None:
    out = io.StringIO()
    delivery = Delivery(None, [target(None)], "table", Screen(out))
    delivery.deliver(0, {"q": [ONE]})
    assert out.getvalue().splitlines()[-1] == " 1  +  x  1"
    delivery.abort()


def test_results_in_memory_are_those_of_this_process() -> None:
    for _ in range(2):
        delivery = Delivery(Path("c"), [target("memory", name="q")])
        delivery.deliver(5, {"q": [TWO]})
        delivery.deliver(5, {"q": [TWO]})
        assert [len(batch) for batch in delivery.results["q"].batches] == [2]
        delivery.finish()


def test_a_function_of_the_user_gets_the_changes_and_the_batch() -> None:
    seen: list[tuple[int, list[dict[str, Any]]]] = []
    targets = [target(None, callback=lambda table, batch_id: seen.append((batch_id, table.to_pylist())))]
    delivered("c", targets, ONE, changes(), TWO)
    delivered("c", targets, TWO, first=2)
    assert seen[0] == (0, [{"ts": 1, "op": "+", "k": "x", "v": 1}])
    assert [batch_id for batch_id, _ in seen] == [0, 2]


def test_a_function_that_fails_is_named_and_called_again_under_the_same_id() -> None:
    seen = []

    def fails_once(table: pa.Table, batch_id: int) -> None:
        seen.append(batch_id)
        if len(seen) == 1:
            raise ZeroDivisionError("oh")

    with pytest.raises(CqlError, match=r"the results of 'q' failed in batch 3: ZeroDivisionError: oh"):
        delivered("c", [target(None, callback=fails_once)], ONE, first=3)
    delivered("d", [target(None, callback=fails_once)], ONE, first=3)
    assert seen == [3, 3]


# Checkpoints


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(CqlError) as caught:
        call()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.advice(), "an error says what to do"
    return diagnostic.code.name, diagnostic.message


def test_a_checkpoint_serves_one_network_at_a_time() -> None:
    first = Delivery(Path("c"), [])
    code, message = refused(lambda: Delivery(Path("c"), []))
    assert code == "OTHER_CHECKPOINT"
    assert message.startswith(f"the checkpoint 'c' is in use by process {os.getpid()} on ")
    first.finish()
    Delivery(Path("c"), []).abort()
    Delivery(Path("c"), []).abort()


def test_the_lock_of_a_process_that_was_killed_is_no_lock() -> None:
    program = "import sys; from pathlib import Path; from runtime.delivery.delivery import Delivery\n"
    program += "kept = Delivery(Path('c'), []); print('locked', flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
    assert f"process {holder.pid} on" in refused(lambda: Delivery(Path("c"), []))[1]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    Delivery(Path("c"), []).finish()


def test_a_checkpoint_that_cannot_be_read_is_an_error() -> None:
    Path("c").mkdir()
    for text in ("{", "[]", '{"queries": {"q": {"x": 1}}}'):
        Path("c/delivery.json").write_text(text)
        assert refused(lambda: Delivery(Path("c"), []))[0] == "BAD_FILE"


# Whose results are where


@pytest.mark.parametrize("format_name", FILES)
def test_two_runs_never_write_to_one_place_at_the_same_time(format_name: str) -> None:
    targets = [target(format_name, "o/o")]
    first = Delivery(Path("c"), targets)
    code, message = refused(lambda: Delivery(Path("d"), targets))
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    assert (code, message) == ("OTHER_OWNER", f"'o/o' is in use by {holder}, which writes its results there")
    first.deliver(0, {format_name: [ONE]})
    assert refused(lambda: Delivery(None, targets))[0] == "OTHER_OWNER"
    first.finish()
    before = contents("o")
    delivered("c", targets, TWO, first=1)
    assert contents("o").keys() >= before.keys()


@pytest.mark.parametrize("format_name", FILES)
def test_a_checkpoint_does_not_go_on_in_the_results_of_another(format_name: str) -> None:
    targets = [target(format_name, "o/o")]
    delivered("c", targets, ONE)
    delivered("d", targets, TWO)
    before = contents("o")
    code, message = refused(lambda: delivered("c", targets, ONE, first=1))
    owner = f"query '{format_name}' of '{Path.cwd()}/d'"
    assert (code, message) == ("OTHER_OWNER", f"'o/o' has the results of {owner} by now")
    delivered(None, targets, ONE)
    assert refused(lambda: delivered("d", targets, ONE, first=1))[1].endswith("of a run without checkpoint by now")
    assert contents("o") != before


@pytest.mark.parametrize("format_name", FILES)
def test_a_run_in_this_process_replaces_results_of_a_checkpoint_that_does_not_run(format_name: str) -> None:
    targets = [target(format_name, "o/o")]
    network = Delivery(Path("c"), targets)
    network.deliver(0, {format_name: [ONE]})
    network.deliver(1, {format_name: [TWO]})
    before = contents("o")

    def whole() -> Writer:
        return open_sink(targets[0].query, KV, False, TimeDomain.INTEGER)

    assert refused(whole)[0] == "OTHER_OWNER"
    network.finish()
    whole().abort()
    assert contents("o") == before
    with whole() as writer:
        writer.write(ONE)
    assert len(contents("o")) == 1
    assert refused(lambda: delivered("c", targets, ONE, first=2))[0] == "OTHER_OWNER"


def test_a_run_that_ends_before_its_first_batch_takes_no_place() -> None:
    targets = [target("csv", "o")]
    delivered("c", targets, ONE)
    Delivery(Path("d"), targets).abort()
    delivered("c", targets, TWO, first=1)
    assert list(contents("o")) == ["part-00000000.csv", "part-00000001.csv"]


def test_of_a_checkpoint_and_its_copy_the_one_that_goes_on_first_has_the_results() -> None:
    targets = [target("csv", "o")]
    delivered("c", targets, ONE)
    shutil.move("c", "moved")
    delivered("moved", targets, TWO, first=1)
    shutil.copytree("moved", "copy")
    assert refused(lambda: delivered("copy", targets, ONE, first=2))[0] == "OTHER_OWNER"
    delivered("moved", targets, ONE, first=2)
    assert len(contents("o")) == 3


@pytest.mark.parametrize("format_name", FILES)
def test_a_place_that_has_gone_between_two_runs_is_an_error(format_name: str) -> None:
    targets = [target(format_name, "o/o")]
    delivered("c", targets, ONE)
    shutil.rmtree("o")
    told = f"'o/o', which has the results of '{format_name}', has been removed or replaced"
    for _ in range(2):
        assert refused(lambda: delivered("c", targets, TWO, first=1)) == ("OTHER_OWNER", told)
        Path("o").mkdir(exist_ok=True)
    assert list(Path("o").iterdir()) == [], "nothing is written"


@pytest.mark.parametrize("format_name", FILES)
def test_a_place_that_goes_under_a_run_is_an_error(format_name: str) -> None:
    delivery = Delivery(Path("c"), [target(format_name, "o/o")])
    delivery.deliver(0, {format_name: [ONE]})
    shutil.rmtree("o")
    told = f"'o/o', which has the results of '{format_name}', has been removed or replaced"
    for again in (lambda: delivery.deliver(1, {format_name: [TWO]}), lambda: delivery.deliver(2, {}), delivery.finish):
        assert refused(again) == ("OTHER_OWNER", told)
    delivery.abort()
    assert not Path("o").exists()


def test_a_growing_file_that_goes_alone_is_an_error() -> None:
    delivered("c", [target("stream", "o.txt")], ONE)
    Path("o.txt").unlink()
    message = refused(lambda: delivered("c", [target("stream", "o.txt")], TWO, first=1))[1]
    assert message == "'o.txt' is shorter than the checkpoint says: someone else has changed or removed it"


def test_a_query_that_changes_in_a_living_network_keeps_its_place() -> None:
    delivery = Delivery(Path("c"), [target("csv", "o", "q"), target("csv", "p", "r")])
    delivery.deliver(0, {"q": [ONE], "r": [ONE]})
    delivery.change([target("json", "o", "q"), target("csv", "p", "r")])
    delivery.deliver(1, {"q": [ONE], "r": [ONE]})
    delivery.change([target("csv", "o", "r")])
    delivery.deliver(2, {"r": [ONE]})
    delivery.finish()
    assert {path for path in contents("o") if path.endswith("csv")} == {"part-00000002.csv"}


def test_the_lock_of_a_checkpoint_that_is_a_link_is_not_followed() -> None:
    Path("c").mkdir()
    Path("mine.txt").write_text("kept")
    for link in (Path("c/delivery.lock"), Path(f"o/{NAME}")):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(Path("mine.txt").absolute())
        assert refused(lambda: Delivery(Path("c"), [target("csv", "o")]))[0] == "CANNOT_WRITE"
        link.unlink()
    assert Path("mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([target("stream", "c")], "'c' is a folder, and a file is to be written there"),
        ([target("csv", "f")], "'f' is a file, and a folder of csv files is to be written there"),
        ([target("csv", "o", "a"), target("json", "./o", "b")], "the queries 'a' and 'b' both write to './o'"),
    ],
)
def test_sinks_that_cannot_be_opened(targets: list[Target], message: str) -> None:
    Path("c").mkdir()
    Path("f").touch()
    assert refused(lambda: Delivery(Path("c"), targets)) == ("CANNOT_WRITE", message)
    Delivery(Path("c"), []).finish()


@pytest.mark.parametrize("format_name", FILES)
def test_a_url_cannot_be_written_to_and_no_folder_of_that_name_is_made(format_name: str) -> None:
    code, message = refused(lambda: Delivery(None, [target(format_name, "hdfs://name/o")]))
    assert (code, message) == ("BAD_OPTION_VALUE", f"the option 'path' of {format_name} cannot be 'hdfs://name/o'")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("format_name", FILES)
def test_the_url_of_a_file_is_its_path(format_name: str) -> None:
    delivered("c", [target(format_name, f"file:{Path('o').absolute()}")], ONE)
    assert {path.name for path in Path().iterdir() if not path.name.endswith(NAME)} == {"c", "o"}


# Disks


@pytest.mark.parametrize("format_name", FILES)
def test_a_disk_that_is_full_leaves_nothing_half_written(format_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(Path("c"), [target(format_name, "o/o")])
    delivery.deliver(0, {format_name: [ONE]})
    before = contents("o")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        if format_name != "stream":
            patch.setattr(Path, "replace", full)
        code, message = refused(lambda: delivery.deliver(1, {format_name: [TWO]}))
    assert code == "CANNOT_WRITE"
    assert message.endswith("cannot be written: No space left on device")
    assert contents("o") == before
    delivery.deliver(1, {format_name: [TWO]})
    delivery.finish()
    delivered("d", [target(format_name, "expected/o")], ONE, TWO)
    assert contents("o") == contents("expected")


def test_a_file_that_someone_cut_is_not_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(Path("c"), [target("stream", "o.txt")])
    delivery.deliver(0, {"stream": [TWO]})

    def fails(self: object, batch: ChangeBatch) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(batch_sinks.StreamFormat, "lines", fails)
        refused(lambda: delivery.deliver(1, {"stream": [ONE]}))
    Path("o.txt").write_text("")
    message = refused(lambda: delivery.deliver(1, {"stream": [ONE]}))[1]
    assert message == "'o.txt' is shorter than the checkpoint says: someone else has changed or removed it"
    delivery.abort()


# Crashes


class Killer:
    """Ends the process at one of the moments at which something reaches the disk, some of it perhaps lost."""

    def __init__(self, moment: int, rng: random.Random) -> None:
        self.left = moment
        self.rng = rng

    def wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def dangerous(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._die(name, arguments, original)
            return original(*arguments)

        setattr(owner, name, dangerous)

    def _die(self, name: str, arguments: tuple[Any, ...], original: Callable[..., Any]) -> None:
        if name == "lines":
            form, batch = arguments
            text = original(form, batch)
            with Path("crash/s.txt").open("ab") as file:
                file.write(text[: self.rng.randrange(len(text) + 1)])
        elif self.rng.random() < 0.5:
            original(*arguments)
        os._exit(9)


def in_a_process_that_may_die(work: Callable[[], None]) -> bool:
    """Return whether some work in a process of its own came to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9), "the work failed"
    return status == 0


def random_batches(rng: random.Random) -> list[dict[str, ChangeBatch]]:
    def batch() -> ChangeBatch:
        rows = range(rng.choice([0, 1, 3, 10]))
        return changes(*((n, rng.choice([1, 1, -1, 3]), rng.choice("xyz"), rng.choice([None, n])) for n in rows))

    return [{name: batch() for name in FILES} for _ in range(rng.randint(1, 6))]


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(5))
def test_after_crashes_at_any_moment_the_files_are_those_of_a_run_without(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(part * CASES // 5, (part + 1) * CASES // 5):
        rng = random.Random(seed)
        place = tmp_path / str(seed)
        place.mkdir()
        monkeypatch.chdir(place)
        batches = random_batches(rng)

        def run(folder: str, killer: Killer | None, batches: list[dict[str, ChangeBatch]] = batches) -> None:
            """Deliver from the first batch that is not committed, and commit each, as Spark does."""
            if killer:
                for owner, names in {os: ("fsync", "truncate"), Path: ("replace", "unlink", "touch")}.items():
                    for name in names:
                        killer.wrap(owner, name)
                killer.wrap(batch_sinks.StreamFormat, "lines")
                killer.wrap(Delivery, "deliver")
            targets = [target(name, f"{folder}/{'s.txt' if name == 'stream' else name}") for name in FILES]
            commits = Path(f"{folder}-commits")
            delivery = Delivery(Path(f"{folder}-checkpoint"), targets)
            for batch_id in range(int(commits.read_text()) + 1 if commits.exists() else 0, len(batches)):
                delivery.deliver(batch_id, {name: [each] for name, each in batches[batch_id].items() if len(each)})
                commits.write_text(str(batch_id))
            delivery.finish()

        assert in_a_process_that_may_die(lambda run=run: run("whole", None))
        for _ in range(20):
            killer = Killer(rng.randint(1, 25), rng)
            if in_a_process_that_may_die(lambda run=run, killer=killer: run("crash", killer)):
                break
        assert in_a_process_that_may_die(lambda run=run: run("crash", None))
        assert contents("crash") == contents("whole"), f"seed {seed}"
