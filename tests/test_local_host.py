"""The local host: whenever a network is killed and started again, its files are those of a run without kills."""

from __future__ import annotations

import json
import os
import random
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cql import CqlError
from cql.session import Session
from runtime.delivery.delivery import Delivery
from runtime.delivery.targets import Target
from runtime.local import host as module
from runtime.local.host import LocalHost
from runtime.local.state_files import StateFiles
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.network import Network
from runtime.network.record import NetworkRecord, changed

CASES = int(os.environ.get("CQL_FUZZ", "12"))
"""How many random runs are killed again and again."""

SCRIPT = """
CREATE STREAM s (k INT, v INT, at INT) TIMESTAMP BY at DELAY 2 SECONDS FROM csv OPTIONS (path 'in/s');
CREATE STREAM r (k INT, w INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 'in/r');
CREATE RELATION n (k INT, name STRING) FROM csv OPTIONS (path 'in/n.csv');
REGISTER QUERY pairs AS SELECT Istream(s.k, s.v, r.w) FROM s [Range 5], r [Range 3] WHERE s.k = r.k
  INTO csv OPTIONS (path '{out}/pairs');
REGISTER QUERY sums AS SELECT k, COUNT(*) AS n, SUM(v) AS v FROM s [Range 6 Slide 2] GROUP BY k
  INTO json OPTIONS (path '{out}/sums');
REGISTER QUERY recent AS SELECT n.name, s.v FROM s [Partition By k Rows 2], n WHERE s.k = n.k
  INTO csv OPTIONS (path '{out}/recent');
REGISTER QUERY best AS SELECT MAX(w) AS w FROM r [Rows 4] INTO stream OPTIONS (path '{out}/best.txt');
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_input(rng: random.Random) -> None:
    """Write streams into small files; s is out of order, and some of its rows are late."""
    Path("in").mkdir()
    Path("in/n.csv").write_text("0,zero\n1,one\n2,two\n")
    for name, disorder in (("s", 3), ("r", 0)):
        folder, at = Path("in", name), 0
        folder.mkdir()
        for number in range(rng.randint(2, 6)):
            lines = []
            for _ in range(rng.choice((0, 1, 4, 9))):
                at += rng.choice((0, 0, 1, 3))
                lines.append(f"{rng.randrange(3)},{rng.randrange(100)},{max(at - rng.randint(0, disorder), 0)}\n")
            (folder / f"{number}.csv").write_text("".join(lines))


def network_of(out: str, checkpoint: Path | None, buckets: int, host: LocalHost) -> tuple[Network, Callable[[], None]]:
    """Return a network on a host, and what starts it and completes its results."""
    session = Session()
    session.run(SCRIPT.format(out=out))
    queries = list(session.catalog.queries.values())
    folder = checkpoint or Path(f"{out} without checkpoint")
    record = changed(NetworkRecord.load(folder), session.catalog, queries, buckets).record
    targets = [Target(query, query.tree.schema, query.tree.is_stream, query.tree.time) for query in queries]
    delivery = Delivery(folder, targets)
    network = Network(host, folder, delivery, Counters("integer"))

    def run() -> None:
        network.start(record, Definitions(session.catalog, queries))
        network.close_instants(read_all=True)
        delivery.finish()

    return network, run


def results(out: str) -> dict[str, Counter[str]]:
    """Return how often each change is in the files of each query."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(Path(out).rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            name = path.name if path.suffix == ".txt" else path.parent.name
            found.setdefault(name, Counter()).update(path.read_text().splitlines())
    return found


class Killer:
    """Ends the process at one of the moments at which something reaches the disk, some of it perhaps lost."""

    def __init__(self, moment: int, rng: random.Random) -> None:
        self._left = moment
        self._rng = rng

    def watch(self) -> None:
        """Be there from now on, in this process."""
        for owner, names in {os: ("fsync", "truncate"), Path: ("replace", "unlink")}.items():
            for name in names:
                self._wrap(owner, name)
        for owner in (module.PlanLog, module.StateFiles, Delivery):
            self._wrap(owner, {"PlanLog": "add", "StateFiles": "commit", "Delivery": "deliver"}[owner.__name__])

    def _wrap(self, owner: object, name: str) -> None:
        original = getattr(owner, name)

        def dangerous(*arguments: object, **named: object) -> object:
            self._left -= 1
            if self._left == 0:
                if self._rng.random() < 0.5:
                    original(*arguments, **named)
                os._exit(9)
            return original(*arguments, **named)

        setattr(owner, name, dangerous)


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
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9), "the work failed"
    return status == 0


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(CASES))
def test_after_kills_at_any_moment_the_files_are_those_of_a_run_without(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    write_input(rng)
    monkeypatch.setattr(module, "MOST_ROWS", rng.choice((1, 3, 1000)))
    buckets, often = rng.choice((1, 1, 2)), rng.choice((0.0, 0.3, 1.0))

    def work(out: str, checkpoint: Path | None, killer: Killer | None) -> None:
        if killer:
            killer.watch()
        host = LocalHost(checkpoint, commit_seconds=0.0)
        chance = random.Random(killer and killer._left)
        host._is_time_to_commit = lambda: chance.random() < often  # type: ignore[method-assign]
        network_of(out, checkpoint, buckets, host)[1]()

    assert in_a_process_that_may_die(lambda: work("whole", None, None))
    for _ in range(20):
        killer = Killer(rng.randint(1, 60), rng)
        if in_a_process_that_may_die(lambda killer=killer: work("killed", Path("kept"), killer)):
            break
    else:
        assert in_a_process_that_may_die(lambda: work("killed", Path("kept"), None))
    assert results("killed") == results("whole"), f"seed {seed}"
    assert any(results("whole").values()) or not any(Path("in/s").iterdir())


def test_a_run_goes_on_with_what_has_come_since() -> None:
    write_input(random.Random(1))
    for name in ("s", "r"):
        for path in Path("in", name).iterdir():
            path.unlink()
    Path("in/r/0.csv").touch()
    Path("in/s/1.csv").write_text("1,10,1\n1,20,4\n")
    network_of("out", Path("kept"), 1, LocalHost(Path("kept")))[1]()
    Path("in/r/1.csv").write_text("1,7,5\n")
    Path("in/s/2.csv").write_text("1,30,6\n0,1,2\n")
    network, run = network_of("out", Path("kept"), 1, LocalHost(Path("kept")))
    run()
    assert Counter(results("out")["pairs"]) == Counter(["5,+,1,10,7", "5,+,1,20,7", "6,+,1,30,7"])
    assert network.progress().late == {"s": 1, "r": 0, "n": 0}
    assert not list(Path("kept").glob("planned.jsonl")) or not Path("kept/planned.jsonl").read_text()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_text(path.read_text()[:-20]), "its file manifest.json is damaged"),
        (lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "moon"})), "another version"),
        (lambda path: [each.unlink() for each in Path("kept/segments").iterdir()], "of its state cannot be read"),
    ],
)
def test_a_checkpoint_that_cannot_be_used_says_why(damage: Callable[[Path], object], said: str) -> None:
    write_input(random.Random(2))
    network_of("out", Path("kept"), 1, LocalHost(Path("kept")))[1]()
    damage(Path("kept/manifest.json"))
    network, run = network_of("out", Path("kept"), 1, LocalHost(Path("kept")))
    with pytest.raises(CqlError, match=said):
        run()
    network.abort()


def test_segments_with_little_of_use_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.local.state_files._MOST_UNUSED", 0)
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    write_input(random.Random(3))
    network_of("out", Path("kept"), 1, LocalHost(Path("kept"), commit_seconds=0.0))[1]()
    files = StateFiles(Path("kept"))
    used = sum(where.length for chunks in files.manifest.chunks.values() for where in chunks.values())
    assert sum(path.stat().st_size for path in Path("kept/segments").iterdir()) <= 2 * used
