"""Windows by their meaning: lengths of time are in ticks of the stream's clock, columns are positions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnboundedSpec:
    """Everything so far."""

    def __str__(self) -> str:
        return "Unbounded"


@dataclass(frozen=True, slots=True)
class RangeSpec:
    """The elements of the last `ticks` instants; with a slide it moves at multiples of `slide` only."""

    ticks: int
    slide: int | None = None

    def __str__(self) -> str:
        if self.ticks == 1 and self.slide is None:
            return "Now"
        return f"Range {self.ticks}" + (f" Slide {self.slide}" if self.slide else "")


@dataclass(frozen=True, slots=True)
class RowsSpec:
    """The last `rows` elements in source order."""

    rows: int

    def __str__(self) -> str:
        return f"Rows {self.rows}"


@dataclass(frozen=True, slots=True)
class PartitionRowsSpec:
    """The last `rows` elements for each value of some columns; `ticks` also expires them by time."""

    columns: tuple[int, ...]
    rows: int
    ticks: int | None = None

    def __str__(self) -> str:
        keys = ", ".join(f"${column}" for column in self.columns)
        return f"Partition By {keys} Rows {self.rows}" + (f" Range {self.ticks}" if self.ticks else "")


WindowSpec = UnboundedSpec | RangeSpec | RowsSpec | PartitionRowsSpec
