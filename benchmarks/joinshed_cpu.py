"""Joins that take too long: selective processing and dual windows, on a virtual clock."""

from __future__ import annotations

from benchmarks import joinshed_dual, joinshed_selective


def report() -> None:
    """Run the experiments of both, print their tables, write their plots, and hold them to what the sheet expects."""
    joinshed_selective.report()
    joinshed_dual.report()


main = report
