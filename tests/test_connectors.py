"""Sources by positions: what comes after one is the same whenever it is read; and what the registry says of formats."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import Catalog, CqlError
from cql.catalog import RelationDef, StreamDef
from cql.errors import Code
from cql.secrets import is_secret, secret_places
from runtime.connectors import logged_files, rate, registry, sources
from runtime.connectors.connector import Arrival, Connector, Position, ReadSettings, RowReader, RowSource
from runtime.connectors.format_options import Count, FormatOptions, OptionNote
from runtime.connectors.registry import CONNECTORS, canonical, connector
from runtime.connectors.spark import SparkConnector
from tests.formats_page import formats_page

SourceRows = list[tuple[Any, ...]]
Table = StreamDef | RelationDef
DOCS = Path(__file__).parent.parent / "docs"
START = 1_700_000_000_000
"""When generators begin, in milliseconds."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(statement: str) -> Table:
    catalog = Catalog()
    catalog.execute(statement)
    (found,) = catalog.tables()
    return catalog.as_read(found.name)


def opened(definition: Table, **settings: Any) -> RowSource:
    return sources.source_of(definition, ReadSettings(**settings))


def rows_of(arrival: Arrival) -> SourceRows:
    return list(zip(*(column.to_pylist() for column in arrival.rows.columns), strict=True))


def there(reader: RowReader) -> list[Arrival]:
    """Return what is there now."""
    return list(iter(reader.poll, None))


def all_rows(arrivals: list[Arrival]) -> SourceRows:
    return [row for arrival in arrivals for row in rows_of(arrival)]


def kept(position: Position) -> Position:
    """Return a position as a checkpoint has it."""
    found: Position = json.loads(json.dumps(position))
    return found


def refusal(do: Callable[[], object]) -> tuple[Code, str]:
    with pytest.raises(CqlError) as caught:
        do()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.advice(), "an error says what to do"
    return diagnostic.code, diagnostic.message


# Files

FILES = "CREATE STREAM s (v INT, t INT) TIMESTAMP BY t FROM {} OPTIONS (path 'in')"


def write(name: str, *rows: str, seconds_ago: float = 60) -> None:
    path = Path("in", name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))
    os.utime(path, (time.time() - seconds_ago,) * 2)


@pytest.fixture(params=["csv", "json", "parquet", "stream"])
def files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A stream over three files of a format, of which a reader gives a few rows at a time."""
    monkeypatch.setattr("runtime.connectors.parquet_files.ROWS", 3)
    values = {"a": range(7), "b": range(7, 8), "c": range(8, 12)}
    for name, some in values.items():
        match request.param:
            case "csv":
                write(name, *(f"{v},{v}" for v in some))
            case "json":
                write(name, *(f'{{"v": {v}, "t": {v}}}' for v in some))
            case "stream":
                write(name, "i,i", *(f"{v},{v}" for v in some))
            case _:
                Path("in").mkdir(exist_ok=True)
                parquet.write_table(pa.table({"v": [*some], "t": [*some]}), Path("in", name))
    if request.param == "stream":
        return table("REGISTER STREAM s (v integer) FROM stream OPTIONS (path 'in')")
    return table(FILES.format(request.param))


def test_files_give_the_same_rows_after_every_position(files: Table, tmp_path: Path) -> None:
    source = opened(files, folder=tmp_path / "log")
    reader = source.read(source.start())
    arrivals = there(reader)
    values = [row[0] for row in all_rows(arrivals)]
    assert (values, reader.has_ended, source.is_bounded) == ([*range(12)], True, True)
    for at, arrival in enumerate(arrivals):
        again = opened(files, folder=tmp_path / "log").read(kept(arrival.position))
        assert all_rows(there(again)) == all_rows(arrivals[at + 1 :])


def test_a_position_within_a_file_does_not_depend_on_how_it_was_read(tmp_path: Path) -> None:
    write("a", *(f"{v},{v}" for v in range(10)))
    source = opened(table(FILES.format("csv")), folder=tmp_path / "log")
    again = source.read({"file": 0, "rows": 4, "newest": None})
    assert [row[0] for row in all_rows(there(again))] == [*range(4, 10)]


def test_files_that_come_later_are_read_after_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_files, "_PAUSE", 0)
    monkeypatch.setattr(logged_files, "_SHARE", 0)
    write("b", "1,1")
    definition = table(FILES.format("csv"))
    source = opened(definition, folder=tmp_path / "log", is_followed=True)
    assert not source.is_bounded
    reader = source.read(source.start())
    first = there(reader)
    assert reader.poll() is None and not reader.has_ended
    write("a", "2,2")
    write(".hidden", "9,9")
    second = there(reader)
    assert (all_rows(first), all_rows(second)) == ([(1, 1)], [(2, 2)])
    write("growing", "3,3", seconds_ago=0)
    assert reader.poll() is None
    assert all_rows(there(reader)) == [(3, 3)], "it is the same at the second look"
    again = opened(definition, folder=tmp_path / "log", is_followed=True).read(kept(first[-1].position))
    assert all_rows(there(again)) == [(2, 2), (3, 3)]


def test_bad_rows_are_counted_once(tmp_path: Path) -> None:
    write("a", "1,1", "x,2", "3,3", "x,4")
    write("b", "x,5")
    definition = table(FILES.format("csv"))
    source = opened(definition, folder=tmp_path / "log", on_bad_row="skip")
    arrivals = there(source.read(source.start()))
    assert (len(all_rows(arrivals)), [each.skipped for each in arrivals]) == (2, [2, 0, 1])
    again = opened(definition, folder=tmp_path / "log", on_bad_row="skip").read(kept(arrivals[0].position))
    assert [each.skipped for each in there(again)] == [0, 1]


def test_how_far_rows_may_be_ahead_goes_on_at_a_position(tmp_path: Path) -> None:
    write("a", "1,1", "2,50")
    write("b", "3,58", "4,100")
    catalog = Catalog()
    catalog.execute(f"SET max_ahead = '60 seconds'; {FILES.format('csv')}")
    source = opened(catalog.as_read("s"), folder=tmp_path / "log", on_bad_row="skip")
    arrivals = there(source.read(source.start()))
    assert [row[0] for row in all_rows(arrivals)] == [1, 2, 3, 4]
    again = opened(catalog.as_read("s"), folder=tmp_path / "log", on_bad_row="skip").read(kept(arrivals[1].position))
    assert [row[0] for row in all_rows(there(again))] == [3, 4], "without what came before, 100 is too far"
    assert arrivals[1].position["newest"] == 50


def failed(source: RowSource) -> None:
    """Read until a row is bad, and say so to the source."""
    with pytest.raises(CqlError):
        there(source.read(source.start()))
    source.reject()


def test_a_file_that_ended_a_run_may_be_corrected(tmp_path: Path) -> None:
    write("a", "1,1")
    write("b", "x,2")
    definition = table(FILES.format("csv"))
    failed(opened(definition, folder=tmp_path / "log"))
    write("b", "2,2", "3,3")
    source = opened(definition, folder=tmp_path / "log")
    reader = source.read(source.start())
    assert [note for note in reader.notes if "in/b, which ended a run, is not what it was" in note]
    assert [row[0] for row in all_rows(there(reader))] == [1, 2, 3]


def test_a_file_of_which_rows_were_committed_may_not_change(tmp_path: Path) -> None:
    write("a", "1,1", "2,2")
    definition = table(FILES.format("csv"))
    source = opened(definition, folder=tmp_path / "log")
    there(source.read(source.start()))
    half = {"file": 0, "rows": 1, "newest": None}
    source.settle(half)
    source.reject()
    write("a", "1,1", "5,5")
    assert refusal(lambda: opened(definition, folder=tmp_path / "log").read(half))[0] is Code.CHANGED_SOURCE
    Path("in/a").unlink()
    write("b", "1,1")
    again = opened(definition, folder=tmp_path / "log").read(half)
    assert refusal(lambda: there(again))[0] is Code.CHANGED_SOURCE


def test_what_was_given_out_has_to_be_the_same(tmp_path: Path) -> None:
    write("a", "1,1", "2,2")
    write("b", "3,3")
    definition = table(FILES.format("csv"))
    source = opened(definition, folder=tmp_path / "log")
    arrivals = there(source.read(source.start()))
    write("a", "5,5")
    given = kept(arrivals[0].position)
    again = opened(definition, folder=tmp_path / "log")
    assert refusal(lambda: again.read(again.start(), given))[0] is Code.CHANGED_SOURCE
    anew = opened(definition, folder=tmp_path / "log")
    assert [row[0] for row in all_rows(there(anew.read(anew.start())))] == [5, 3], "nobody was given anything"


def test_files_without_a_folder_remember_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.connectors.file_log.fingerprint", None)
    write("a", "1,1")
    source = opened(table(FILES.format("csv")))
    assert all_rows(there(source.read(source.start()))) == [(1, 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_position_says_nothing_of_rows_that_were_not_read(tmp_path: Path) -> None:
    """A reader that is polled for one part leaves the others to the next one."""
    write("a", *(f"{v},{v}" for v in range(5)))
    write("b", "9,9")
    source = opened(table(FILES.format("csv")), folder=tmp_path / "log")
    first = source.read(source.start()).poll()
    assert first is not None
    rest = opened(table(FILES.format("csv")), folder=tmp_path / "log").read(kept(first.position))
    assert all_rows([first, *there(rest)]) == [(v, v) for v in (0, 1, 2, 3, 4, 9)]


# rate


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that sets the clock, to milliseconds after the start of generators."""

    def show(milliseconds: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: (START + milliseconds) * 1_000_000)

    show(0)
    return show


def generator(options: str = "", columns: str = "timestamp TIMESTAMP, value BIGINT") -> Table:
    return table(f"CREATE STREAM s ({columns}) TIMESTAMP BY timestamp FROM rate OPTIONS ({options})")


def milliseconds(arrivals: list[Arrival]) -> list[int]:
    return [int(each) // 1000 - START for arrival in arrivals for each in arrival.rows.instants]


def test_a_generator_gives_rows_when_their_instants_have_come(clock: Callable[[int], None]) -> None:
    source = opened(generator("rowsPerSecond 3"))
    reader = source.read(source.start())
    assert (source.is_bounded, source.is_replayable, reader.has_ended) == (False, True, False)
    found = []
    for now in (0, 0, 400, 1999):
        clock(now)
        found.append(milliseconds(there(reader)))
    assert found == [[0], [], [333], [667, 1000, 1333, 1667]]


def test_a_generator_gives_the_same_rows_after_every_position(clock: Callable[[int], None]) -> None:
    definition = generator("rowsPerSecond 7, rampUpTime '3s'")
    source = opened(definition)
    start = source.start()
    clock(10_000)
    whole = all_rows(there(source.read(start)))
    clock(2500)
    (first,) = there(opened(definition).read(kept(start)))
    clock(10_000)
    rest = there(opened(definition).read(kept(first.position)))
    assert rows_of(first) + all_rows(rest) == whole
    assert [row[1] for row in whole] == [*range(len(whole))]


def test_a_generator_ramps_up_as_on_spark(clock: Callable[[int], None]) -> None:
    """Spark's own example: 2 more rows each second, until there are 10."""
    source = opened(generator("rowsPerSecond 10, rampUpTime 4"))
    start = source.start()
    clock(6999)
    seconds = [instant // 1000 for instant in milliseconds(there(source.read(start)))]
    assert [seconds.count(second) for second in range(7)] == [2, 4, 6, 8, 10, 10, 10]


def test_a_generator_that_is_behind_gives_its_rows_in_pieces(
    clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate, "_MOST_ROWS", 100)
    source = opened(generator("rowsPerSecond 30"))
    start = source.start()
    clock(86_400_000)
    reader = source.read(start)
    sizes = [len(arrival.rows) for arrival in (reader.poll() for _ in range(5)) if arrival]
    assert sizes == [100] * 5


def test_the_columns_of_a_generator_go_by_name_and_are_converted(clock: Callable[[int], None]) -> None:
    clock(0)
    source = opened(generator("", "VALUE DOUBLE, timestamp TIMESTAMP"))
    (arrival,) = there(source.read(source.start()))
    assert rows_of(arrival)[0][0] == 0.0
    code, message = refusal(lambda: opened(generator("", "valeu INT, timestamp TIMESTAMP")))
    assert (code, message) == (Code.BAD_FILE, "the source of 's' has no column 'valeu'")
    code, message = refusal(lambda: opened(generator("", "value BOOLEAN, timestamp TIMESTAMP")))
    assert message == "the source of 's' has BIGINT in the column 'value', which is declared BOOLEAN"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("rowsPerSecond 0", "the option 'rowsPerSecond' of rate cannot be '0'"),
        ("ROWSPERSECOND 'many'", "the option 'ROWSPERSECOND' of rate cannot be 'many'"),
        ("rampUpTime 'soon'", "the option 'rampUpTime' of rate cannot be 'soon'"),
        ("numPartitions '-1'", "the option 'numPartitions' of rate cannot be '-1'"),
    ],
)
def test_options_of_a_generator_that_mean_nothing(options: str, message: str) -> None:
    assert refusal(lambda: opened(generator(options))) == (Code.BAD_OPTION_VALUE, message)


# socket


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def lines(server: socket.socket, columns: str = "value STRING", more: str = "") -> Table:
    port = server.getsockname()[1]
    text = f"CREATE RELATION s ({columns}) FROM socket OPTIONS (host '127.0.0.1', port {port}{more})"
    return table(text)


def next_one(reader: RowReader) -> Arrival:
    """Return what comes next, which is on its way."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if (arrival := reader.poll()) is not None:
            return arrival
        time.sleep(0.001)
    raise AssertionError("nothing came")


def test_lines_come_from_a_port_as_soon_as_they_are_complete(server: socket.socket) -> None:
    source = opened(lines(server))
    assert (source.is_bounded, source.is_replayable) == (False, False)
    reader = source.read(source.start())
    connection, _ = server.accept()
    assert reader.poll() is None
    connection.sendall("żółw\r\n\nhalf".encode() + b"\xff")
    assert rows_of(next_one(reader)) == [("żółw",), ("",)]
    connection.sendall(b" a line\nrest")
    arrival = next_one(reader)
    assert (rows_of(arrival), arrival.position["lines"]) == ([("half\ufffd a line",)], 3)
    assert reader.poll() is None and not reader.has_ended
    connection.close()
    assert rows_of(next_one(reader)) == [("rest",)]
    assert reader.has_ended and reader.poll() is None
    reader.close()


def test_lines_say_when_they_came_and_are_read_as_the_declared_types(server: socket.socket) -> None:
    columns = "value INT, timestamp TIMESTAMP"
    source = opened(lines(server, columns, ", includeTimestamp 'true'"), on_bad_row="skip")
    before = time.time_ns() // 1_000_000 * 1000
    reader = source.read(source.start())
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"7\nseven\n 8 \n")
        arrival = next_one(reader)
    assert ([row[0] for row in rows_of(arrival)], arrival.skipped) == ([7, 8], 1)
    instants = arrival.rows.columns[1].view(pa.int64()).to_pylist()
    assert all(before <= instant <= time.time_ns() // 1000 and instant % 1000 == 0 for instant in instants)
    reader.close()


def test_a_bad_line_is_told_with_its_number(server: socket.socket) -> None:
    source = opened(lines(server, "value INT"))
    reader = source.read(source.start())
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"7\nseven\n")
        message = "the socket source of 's', row 2: the column 'value' is INT, and 'seven' is not"
        assert refusal(lambda: next_one(reader)) == (Code.BAD_DATA, message)
    reader.close()


def test_nobody_listens(server: socket.socket) -> None:
    definition = lines(server)
    server.close()
    source = opened(definition)
    code, message = refusal(lambda: source.read(source.start()))
    assert code is Code.NO_FILE and message.startswith("nothing can be read from 127.0.0.1:")


def test_what_a_port_does_not_have(server: socket.socket) -> None:
    assert "no column 'timestamp'" in refusal(lambda: opened(lines(server, "timestamp TIMESTAMP")))[1]
    assert refusal(
        lambda: opened(table("CREATE RELATION s (value STRING) FROM socket OPTIONS (host 'h', port 'x')"))
    ) == (
        Code.BAD_OPTION_VALUE,
        "the option 'port' of socket cannot be 'x'",
    )


# The registry


def test_every_connector_describes_itself() -> None:
    for each in CONNECTORS:
        assert each.reads or each.writes
        assert each.options.format == each.name
        for option in each.options.described():
            assert option.option.meaning and option.option.uses
        names = [name.casefold() for option in each.options.described() for name in option.names]
        assert len(names) == len(set(names)), f"{each.name} has two options of one name"
        assert not set(names) & {name.casefold() for name in each.spark_options}


def test_known_formats_are_known_in_any_case_and_others_are_those_of_spark() -> None:
    assert [canonical(word) for word in ("CSV", "Memory", "KAFKA", "My.Source")] == [
        "csv",
        "memory",
        "kafka",
        "My.Source",
    ]
    assert isinstance(connector("kafka"), SparkConnector) and not connector("kafka").is_bounded
    assert connector("orc").is_bounded and connector("orc").is_in_files


def test_what_the_local_host_does_not_read_yet_is_refused() -> None:
    code, message = refusal(lambda: sources.open_source(generator()))
    assert (code, message) == (Code.NOT_AVAILABLE, "the local engine does not read the format rate")


def test_what_only_spark_reads_names_the_way_out() -> None:
    with pytest.raises(CqlError) as caught:
        opened(table("CREATE RELATION r (value STRING) FROM kafka OPTIONS (topic 't')"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == "the local engine does not read the format kafka"
    assert (
        diagnostic.hint == "it reads csv, json, parquet, rate, socket or stream; Spark may read others: --engine spark"
    )


class VaultOptions(FormatOptions):
    format = "vault"
    pin: Annotated[Count, OptionNote("opens it", is_secret=True)]


class Vault(Connector):
    name = "vault"
    reads = "what nobody may see"
    options = VaultOptions


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connector]:
    """A connector with an option that is secret and not called so."""
    monkeypatch.setattr(registry, "CONNECTORS", (*CONNECTORS, found := Vault()))
    registry.secret_options.cache_clear()
    yield found
    registry.secret_options.cache_clear()


def test_an_option_that_a_connector_marks_is_a_secret_of_its_format(vault: Connector) -> None:
    assert (is_secret("PIN", "vault"), is_secret("pin", "csv"), is_secret("pin")) == (True, False, True)
    found = table("CREATE RELATION r (a INT) FROM vault OPTIONS (pin 1234)").source
    assert found is not None and found.options == {"pin": "1234"}
    assert "1234" not in repr(found) + found.model_dump_json()
    assert "1234" not in refusal(lambda: VaultOptions.of({"pin": "1234x"}))[1]
    for spelled in ("pin 1234", "pin '1234'", "PIN = '1234'", "\"pin\" '1234'", "a 'b', pin=1234"):
        script = f"CREATE RELATION r (a INT) FROM Vault SCHEMA INFERRED\n OPTIONS ({spelled});"
        assert [script[first:end] for first, end in secret_places(script)] == ["1234"]
        assert secret_places(script.replace("Vault", "csv")) == []


def test_errors_do_not_show_what_a_connector_marks(vault: Connector) -> None:
    with pytest.raises(CqlError) as caught:
        Catalog().execute("CREATE STREAM s (a INT) TIMESTAMP BY b FROM vault OPTIONS (pin '1234');")
    assert "1234" not in str(caught.value) and "***" in str(caught.value)


def test_needed_and_unknown_options_are_those_of_the_connector(vault: Connector) -> None:
    code, message = refusal(lambda: table("CREATE RELATION r (a INT) FROM vault"))
    assert (code, message) == (Code.BAD_DEFINITION, "the format vault needs the option 'pin'")
    code, message = refusal(lambda: table("CREATE RELATION r (a INT) FROM vault OPTIONS (pin 1, pan 2)"))
    assert (code, message) == (Code.UNKNOWN_OPTION, "the format vault has no option 'pan'")


# Documents


@pytest.mark.golden
def test_the_page_of_formats_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        (DOCS / "formats.md").write_text(formats_page())
    assert (DOCS / "formats.md").read_text() == formats_page(), "`make golden` writes docs/formats.md anew"


def test_the_language_has_the_formats_of_the_registry() -> None:
    lines = (DOCS / "language.md").read_text().partition("\n| format ")[2].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in itertools.takewhile(str.strip, lines[2:])]
    needed = {cell[0].strip("`"): re.findall(r"`(\w+)`", cell[2]) for cell in cells}
    expected = {each.name: each.needed_options("read") for each in registry.sources()}
    assert needed == {**expected, "kafka": [], "any other name": []}


def test_running_queries_has_the_options_of_csv() -> None:
    page = (DOCS / "running.md").read_text().partition("### csv\n")[2].partition("\n###")[0]
    rows = re.findall(r"^\| `(\w+)`(?:, or `(\w+)`)? \| (`?)(.+?)\3 \|", page, re.MULTILINE)
    found = {first: ([first, *filter(None, [also])], default) for first, also, _, default in rows}
    assert len(found) > 5
    for option in connector("csv").options.described("read"):
        if option.name in found:
            names, default = found.pop(option.name)
            shown = str(option.default).lower() if option.default is False else str(option.default or "nothing")
            assert (names, default) == ([*option.names], shown)
    assert not found, "csv has no such options"
