"""What a connector is: a format that rows are read from or results are written to, described and done in one file.

A connector says what it is called, which options it has (`format_options.py`), what completion and documents tell of
it, how the columns of a source are inferred, whether a source has an end, and whether it can be read again. It opens
a `RowSource`. `registry.py` knows all connectors; hosts, shell, binder and documents ask it and know no format by name.

A source gives its rows in one order, and every place in that order has a *position*: a small value that goes to JSON
and back, and stands in the checkpoint of a host. What comes after a position is the same whenever it is read, unless
the source says that it is not replayable. A host that keeps the position of what it has committed goes on from there.

    source = source_of(table, ReadSettings(folder=checkpoint / "sources" / name))    # of sources.py
    reader = source.read(kept if kept is not None else source.start())
    while not reader.has_ended:
        arrival = reader.poll()         # None: there is nothing now
        ...
        source.settle(arrival.position) # when that is committed

This module says which questions there are; it imports nothing that takes long, because `cql check` asks some of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cql.catalog import ColumnModel, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.query import MOST_KEPT
from cql.settings import OnBadRow
from cql.source import NO_SPAN, Span
from runtime.connectors.format_options import FormatOptions, Use

if TYPE_CHECKING:
    from pathlib import Path

    from runtime.connectors.batch_sinks import Sink
    from runtime.connectors.claims import Owner
    from runtime.connectors.intake import SourceRows
    from runtime.connectors.results import Result, Writer
    from runtime.connectors.tables import Screen

Output = Literal["table", "jsonl"]
"""How results are printed."""

Table = StreamDef | RelationDef

Position = dict[str, Any]
"""A place in the order of a source; only the source knows what it means. It goes to JSON and back."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The next rows of a source, in its order, and the position after them.

    There may be no rows: then the position is news all the same, or bad rows were left out.
    """

    rows: SourceRows
    position: Position
    skipped: int = 0
    """How many bad rows were left out since the arrival before."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What a host decides about the reading of a source."""

    on_bad_row: OnBadRow = "fail"
    is_followed: bool = False
    """Whether a source that has an end goes on with what comes later, such as new files in a folder."""
    folder: Path | None = None
    """Where the source remembers what it needs to find the same rows again; None: nothing outlives this process."""


class RowReader(ABC):
    """Reads on from a position; used by one thread."""

    notes: Sequence[str] = ()
    """What a user is to be told when reading begins, such as that a file is not what it was."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether nothing comes any more; without an end, that stays false."""

    @abstractmethod
    def poll(self) -> Arrival | None:
        """Return the next rows, or None if there are none now; never waits for rows to come.

        Called as often as the host likes. Raises an error for the user if a row is bad and may not be left out, or if
        the source is not there, or is not what it was.
        """

    def close(self) -> None:  # noqa: B027, not all have something to let go
        """Let go what is open; called once or several times."""


class RowSource(ABC):
    """The rows of one table in their order."""

    is_bounded: bool
    """Whether there is an end that can be read to."""
    is_replayable: bool = True
    """Whether what comes after a position can be read again; otherwise rows that were not committed are lost."""

    @abstractmethod
    def start(self) -> Position:
        """Return the position before all rows, for a run from its beginning; it may hold when that was."""

    @abstractmethod
    def read(self, position: Position, given_out: Position | None = None) -> RowReader:
        """Return a reader of what comes after a position: the first one, or one that an arrival had.

        What comes before the position counts as settled. What comes before `given_out` has been given to somebody who
        gets it again, so it has to be what it was. Called once for each run; raises if the source cannot be read.
        """

    def settle(self, position: Position) -> None:  # noqa: B027, not all remember anything
        """Take what comes before a position for done with: the host has committed it, and never asks for it again."""

    def reject(self) -> None:  # noqa: B027, not all can be corrected
        """Note that what is read and not settled has ended the run; it may be corrected before the next one."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What a run decides about the writing of results."""

    output: Output = "table"
    screen: Screen | None = None
    """What queries that print share; None: standard output."""
    owner: Owner | None = None
    """Whose results they are, if the place of the results can have only one owner."""
    keep: int = MOST_KEPT
    """How many rows of changes are kept, if they are kept in memory."""


class Connector(ABC):
    """A format: what is to be said of it, and what opens its sources and sinks."""

    name: str
    reads: ClassVar[str] = ""
    """What its sources are, for documents and completion; empty if there are none."""
    writes: ClassVar[str] = ""
    """What its sinks write; empty if there are none."""
    options: type[FormatOptions] = FormatOptions
    spark_options: ClassVar[frozenset[str]] = frozenset()
    """Options that sources of this name have on Spark beside ours; with one that changes rows, Spark reads."""
    takes_any_option: ClassVar[bool] = False
    """Whether options are passed on to somebody who knows which there are."""

    is_bounded: bool = False
    """Whether sources have an end that can be read to."""
    is_in_files: bool = False
    """Whether sources and sinks are files, which `path` names."""
    can_be_read_again: bool = False
    """Whether several readers that begin at the beginning read the same rows."""
    is_written_by_tasks: bool = False
    """Whether tasks of Spark may write results, each a file with a part of a micro-batch."""
    is_only_on_spark: bool = False
    """Whether nobody but Spark reads and writes it."""

    def option_names(self, use: Use) -> list[str]:
        """Return the names of all options, the names that documents use first."""
        described = list(self.options.described(use))
        others = [name for each in described for name in each.option.also]
        return [*(each.name for each in described), *others, *sorted(self.spark_options if use == "read" else ())]

    def needed_options(self, use: Use) -> list[str]:
        """Return the names of the options that have to be given."""
        return [each.name for each in self.options.described(use) if each.is_required]

    def secret_options(self) -> frozenset[str]:
        """Return the names of options that hold secrets, in lower case."""
        described = self.options.described()
        return frozenset(name.casefold() for each in described if each.option.is_secret for name in each.names)

    def columns(self, given: Mapping[str, str], place: Span) -> list[ColumnModel]:
        """Return the columns that a source has, for SCHEMA INFERRED; raises if they cannot be found out."""
        raise self.cannot_infer(place)

    def cannot_infer(self, place: Span = NO_SPAN) -> CqlError:
        """Return the error that a source does not say which columns it has."""
        return fail(
            Code.CANNOT_INFER,
            f"the columns of a {self.name} source cannot be inferred",
            place,
            hint="list the columns: name (column TYPE, ..)",
        )

    def source(self, table: Table, settings: ReadSettings) -> RowSource:
        """Open the source of a table; raises if its options or columns do not go together, or it is not there."""
        raise NotImplementedError(f"{self.name} has no sources that the engine reads")

    def sink(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Sink:
        """Return what takes results a batch at a time, so that a batch that comes again does no harm."""
        raise NotImplementedError(f"{self.name} has no sinks")

    def writer(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Writer:
        """Return what writes a result as a whole: it shows when it is closed, and not if it is given up."""
        raise NotImplementedError(f"{self.name} has no sinks")
