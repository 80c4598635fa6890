"""What all tests share: golden files and the settings of randomised tests.

A golden file holds text that the project printed and a person reviewed. `golden(name, text)` compares `text`
with `tests/golden/<name>`; `make golden` writes the files anew, to be reviewed as a diff.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker("golden")


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
