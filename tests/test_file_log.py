"""The files of a source: in which order they are read, and what is said when they are not what they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cql import CqlError
from cql.errors import Code
from runtime.connectors import file_log
from runtime.connectors.file_log import FileLog, SourceFile
from runtime.connectors.paths import Place


class Source:
    """A folder with files, and the log of them in a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "in"
        self.files.mkdir()
        self._checkpoint = folder / "checkpoint"

    def write(self, name: str, text: str = "1\n", days_ago: float = 2) -> Path:
        path = self.files / name
        path.write_text(text)
        seconds = path.stat().st_mtime - days_ago * 86400
        os.utime(path, (seconds, seconds))
        return path

    def log(self) -> FileLog:
        place = Place(str(self.files))
        return FileLog(self._checkpoint, lambda: [str(path) for path in place.files()])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def names(files: list[SourceFile]) -> list[str]:
    return [Path(file.path).name for file in files]


def refusal(log: FileLog, settled: int, handed_out: int) -> str:
    with pytest.raises(CqlError) as caught:
        log.open(settled, handed_out)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is Code.CHANGED_SOURCE and diagnostic.hint
    return diagnostic.message


def test_files_come_in_the_order_of_their_names_and_later_ones_after_them(source: Source) -> None:
    for name, days_ago in (("b", 30), ("c[1]", 1), ("a", 2)):
        source.write(name, days_ago=days_ago)
    log = source.log()
    assert log.open(0, 0) == []
    assert names(log.discover()) == ["a", "b", "c[1]"]
    source.write("0", days_ago=365)
    assert names(log.discover()) == ["0"]
    again = source.log()
    again.open(0, 0)
    assert again.discover() == [] and names(again.unsettled) == ["a", "b", "c[1]", "0"]


def test_a_file_that_is_to_be_read_again_has_to_be_what_it_was(source: Source) -> None:
    path = source.write("a", "1\n2\n")
    source.log().discover()
    path.write_text("1\n3\n")
    assert "it has other contents" in refusal(source.log(), 0, 1)
    path.write_text("1\n2\n3\n")
    assert "it has 6 bytes, and had 4" in refusal(source.log(), 0, 1)
    path.unlink()
    assert "is gone, and its rows have not been delivered" in refusal(source.log(), 0, 1)
    source.write("a", "1\n2\n", days_ago=9)
    assert source.log().open(0, 1) == [], "it came back as it was"


def test_a_file_that_is_done_with_may_go_but_not_change(source: Source) -> None:
    path = source.write("a", "1\n2\n")
    source.write("b")
    log = source.log()
    log.discover()
    assert log.settle(1) == [0]
    path.unlink()
    log.check_settled()
    assert source.log().open(1, 1) == []
    source.write("a", "1\n2\n", days_ago=3)
    log.check_settled()
    assert log.discover() == [], "it is known"
    path.write_text("1\n2\n3\n")
    with pytest.raises(CqlError, match="it has 6 bytes, and had 4"):
        log.check_settled()
    assert "it has 6 bytes, and had 4" in refusal(source.log(), 1, 1)


def test_a_file_that_nobody_has_read_may_become_anything(source: Source) -> None:
    a, _ = source.write("a", "1\n"), source.write("b", "2\n")
    source.log().discover()
    a.write_text("1\n2\n")
    source.files.joinpath("b").unlink()
    log = source.log()
    assert log.open(0, 0) == []
    assert [(file.size, file.is_withdrawn) for file in log.unsettled] == [(4, False), (-1, True)]
    source.write("b", "3\n")
    assert names(log.discover()) == ["b"], "it is another one now"


def test_a_file_that_ended_a_run_may_be_corrected_or_emptied_but_not_go(source: Source) -> None:
    path = source.write("a", "x\n")
    log = source.log()
    log.discover()
    log.reject([0])
    path.unlink()
    assert "is gone" in refusal(source.log(), 0, 1)
    path.write_text("1\n")
    assert source.log().open(0, 1) == [f"{path}, which ended a run, is not what it was: it is read as it is now"]
    assert source.log().open(0, 1) == [], "that is noted"
    path.write_text("2\n")
    assert "it has other contents" in refusal(source.log(), 0, 1)
    path.write_text("1\n")
    log = source.log()
    log.open(0, 1)
    log.reject([0])
    path.write_text("")
    assert source.log().open(0, 1) == [f"{path}, which ended a run, is empty: it is left out"]


def test_a_file_that_somebody_is_writing_waits_and_keeps_those_after_it_waiting(source: Source) -> None:
    source.write("a")
    growing = source.write("b", "1", days_ago=0)
    source.write("c")
    log = source.log()
    assert names(log.discover(only_complete=True)) == ["a"]
    growing.write_text("1\n2")
    assert log.discover(only_complete=True) == []
    assert names(log.discover(only_complete=True)) == ["b", "c"]
    source.write("d", days_ago=0)
    assert names(log.discover()) == ["d"], "whoever wants all that there is gets it"


def test_a_file_that_goes_while_it_is_looked_for_was_none(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write("a")
    log = FileLog(source.files.parent / "log", lambda: [str(source.files / "gone"), str(source.files / "a")])
    assert names(log.discover(only_complete=True)) == ["a"]


def test_a_line_that_a_crash_has_cut_off_was_never_acted_upon(source: Source) -> None:
    source.write("a")
    source.log().discover()
    path = source.files.parent / "checkpoint" / "log.jsonl"
    text = path.read_text()
    path.write_text(text + text[:10])
    source.write("b")
    assert names(source.log().discover()) == ["b"]
    path.write_text("{}\n")
    with pytest.raises(CqlError, match="does not say which files have been read"):
        source.log()


def test_large_files_are_told_apart_by_samples(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "_WHOLE", 1000)
    monkeypatch.setattr(file_log, "_SAMPLE", 16)
    text = "".join(f"{number}\n" for number in range(1000))
    path = source.write("a", text)
    before = file_log.fingerprint(str(path), len(text))
    for changed in ("x" + text[1:], text[:-1] + "x"):
        path.write_text(changed)
        assert file_log.fingerprint(str(path), len(text)) != before
