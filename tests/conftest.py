"""What all tests share: golden files, the settings of randomised tests, and Spark.

A golden file holds text that the project printed and a person reviewed. `golden(name, text)` compares `text`
with `tests/golden/<name>`; `make golden` writes the files anew, to be reviewed as a diff.

Tests run in several processes (pytest-xdist). Those marked `spark` are a group that one process works through, before
anything else, so that there is one Spark and one JVM, started once; the other processes see to the rest meanwhile.
Those that start programs with a Spark of their own (`spark(own_process=True)`) are another group, for another process.
"""

from __future__ import annotations

import difflib
import gc
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.leftovers import is_spark_running, leftovers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN_FOLDER = Path(__file__).parent / "golden"
ROOT = Path(__file__).parent.parent

# Every name that this run compared, with its text: one golden file must not serve two different outputs.
SEEN = pytest.StashKey[dict[Path, str]]()

# On a busy machine a time limit per example fails tests that are right; CI repeats the same examples always.
hypothesis.settings.register_profile("cql", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("cql")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = {}
    # JVMs of tests live too short for more than one compiler.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if config.getoption("--update-golden") and config.getoption("numprocesses", None):
        raise pytest.UsageError("one process writes the golden files: `make golden`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker("golden")
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        mark = item.get_closest_marker("spark")
        if mark is not None:
            group = "spark of its own" if mark.kwargs.get("own_process") else "spark"
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("loadgroup", False):
        grouped = all("@spark" in item.nodeid for item in session.items if item.get_closest_marker("spark"))
        assert grouped, "this pytest-xdist does not group the tests of this pytest, so Spark would be started twice"
    gc.freeze()  # the tests themselves are there to the end: looking at them takes a tenth of the time


# Golden files


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares text with a golden file: `golden("errors/unknown_name.txt", rendered)`."""
    seen = request.config.stash[SEEN]
    update = request.config.getoption("--update-golden")

    def check(relative_name: str, text: str) -> None:
        path = (GOLDEN_FOLDER / relative_name).resolve()
        assert path.is_relative_to(GOLDEN_FOLDER), f"{relative_name} lies outside tests/golden"
        text = text if text.endswith("\n") else text + "\n"
        if seen.setdefault(path, text) != text:
            pytest.fail(f"two different outputs claim the golden file {_shown(path)}", pytrace=False)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        elif not path.exists():
            pytest.fail(f"there is no golden file {_shown(path)}; `make golden` writes it", pytrace=False)
        else:
            _compare(path, text)

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--update-golden"):
        return
    seen = config.stash[SEEN]
    terminalreporter.write_line(f"{len(seen)} golden files written")
    whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.getoption("keyword")
    if whole_run and not terminalreporter.stats.keys() & {"failed", "error", "skipped"}:
        for path in sorted(set(filter(Path.is_file, GOLDEN_FOLDER.rglob("*"))) - seen.keys()):
            terminalreporter.write_line(f"no test uses {_shown(path)}: delete it?")


def _compare(path: Path, text: str) -> None:
    expected = path.read_bytes().decode()
    if expected == text:
        return
    diff = difflib.unified_diff(expected.splitlines(), text.splitlines(), _shown(path), "this run", lineterm="")
    pytest.fail("\n".join([*diff, "", "If the new text is right, `make golden` writes the file anew."]), pytrace=False)


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of all tests in this process; a test that changes its settings changes them back."""
    from runtime.spark.session import local_session

    session = local_session(cores=2)
    yield session
    session.stop()


@pytest.fixture
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with settings and tables of its own in the same Spark."""
    yield spark.newSession()
    spark.createDataFrame([], "nothing INT")  # makes the session of all tests the active one again


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test on Spark that leaves something behind, and any other test that starts Spark."""
    if request.node.get_closest_marker("spark") is None:
        was_running = is_spark_running()
        yield
        assert was_running or not is_spark_running(), "a test that starts Spark is marked `spark`"
        return
    temporary = request.getfixturevalue("tmp_path_factory").mktemp("temporary")
    before = threading.enumerate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.setenv("TMPDIR", str(temporary))
        yield
    left = leftovers(before, temporary)
    assert not left, "\n".join(left)
