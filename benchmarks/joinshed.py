"""Load shedding for joins: the papers' experiments on a virtual clock, asserted.

`docs/join-shedding.md` shows the tables and plots.
"""

from __future__ import annotations

import time

from benchmarks import _joinshed_dual, _joinshed_memory, _joinshed_selective
from shedding.offline.optimum import optimum


def main() -> None:
    """Run all experiments."""
    given = _joinshed_memory.zipfian(5600, 50, (1.0, 1.0), "independent", 1)
    started = time.perf_counter()
    optimum(given.left, given.right, 399, [400], since=800)
    print(f"OPT-offline, 5,600 rows, windows of 400, memory for 400: {time.perf_counter() - started:.1f} s\n")
    _joinshed_memory.report()
    _joinshed_selective.report()
    _joinshed_dual.report()
