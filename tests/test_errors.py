"""What people read when they are wrong: the text printed for each script of `tests/errors/`, as golden files.

A script is named after the code that it shows, `unknown_table.cql` or `unknown_table_drop.cql`; the plain
name is the example of that code in `docs/errors.md`. Scripts named `script_..` are about errors together.
"""

import contextlib
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from cql.errors import Code
from repl.cli import main
from tests.errors_page import ELSEWHERE, FIXES, errors_page

FOLDER = Path(__file__).parent / "errors"
PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
SCRIPTS = sorted(FOLDER.glob("*.cql"))

HEADLINE = re.compile(r"(?P<file>\S+\.cql):(?P<line>\d+):(?P<column>\d+): (?P<code>E\d{3}): (?P<message>.+)")


@cache
def printed(script: Path) -> str:
    """Return what `cql check` prints for a wrong script."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(FOLDER), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["check", script.name])
    assert (code, out.getvalue()) == (1, "")
    return err.getvalue()


def codes(text: str) -> list[str]:
    return [headline["code"] for headline in HEADLINE.finditer(text)]


def text_of(script: Path) -> str:
    return script.read_text(encoding="utf-8", errors="replace")


def example_of(code: Code) -> Path:
    return FOLDER / f"{code.name.lower()}.cql"


def code_shown_by(script: Path) -> Code | None:
    """Return the code that a script is named after."""
    named = [code for code in Code if f"{script.stem}_".startswith(f"{code.name.lower()}_")]
    assert len(named) <= 1
    return named[0] if named else None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_rendered_errors(script: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"errors/{script.stem}.txt", printed(script))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_errors_have_the_one_form_and_lie_within_the_script(script: Path) -> None:
    text = text_of(script)
    lines = printed(script).splitlines()
    assert HEADLINE.fullmatch(lines[0])
    for at, line in enumerate(lines):
        if headline := HEADLINE.fullmatch(line):
            source_line = text.splitlines()[int(headline["line"]) - 1]
            assert headline["file"] == script.name
            assert int(headline["column"]) <= len(source_line) + 1
            assert not headline["message"].endswith(".")
            assert lines[at + 1] == f"  {source_line}"
            assert re.fullmatch(r"\s*\^+", lines[at + 2])
        else:
            assert line.startswith("  ")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_shows_the_code_that_it_is_named_after(script: Path) -> None:
    code = code_shown_by(script)
    if code:
        assert set(codes(printed(script))) == {code.text}
    else:
        assert script.stem.startswith("script_")


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_code_has_an_example_or_is_tested_elsewhere(code: Code) -> None:
    assert example_of(code).exists() is (code not in ELSEWHERE)


def test_codes_are_unique() -> None:
    assert len({code.text for code in Code}) == len(Code)


def test_several_independent_errors_are_all_reported() -> None:
    text = printed(FOLDER / "script_several_errors.cql")
    assert codes(text) == ["E205", "E405", "E202", "E202", "E404", "E201", "E101"]


@pytest.mark.parametrize("name", ["script_failed_create", "script_failed_create_syntax"])
def test_what_follows_from_an_error_is_not_reported_again(name: str) -> None:
    assert len(codes(printed(FOLDER / f"{name}.cql"))) == 1


@pytest.mark.golden
def test_the_page_of_errors_is_up_to_date(request: pytest.FixtureRequest) -> None:
    assert set(Code) == FIXES.keys(), "tests/errors_page.py says how to fix each error"
    scripts = {code: example_of(code) for code in Code if code not in ELSEWHERE}
    page = errors_page({code: (text_of(script), printed(script)) for code, script in scripts.items()})
    if request.config.getoption("--update-golden"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_bytes(page.encode())
    assert PAGE.read_bytes().decode() == page, "`make golden` writes docs/errors.md anew"
