"""Load shedding for joins: the papers' experiments on a virtual clock, asserted.

`docs/join-shedding.md` shows the tables and plots.
"""

from __future__ import annotations

from benchmarks import joinshed_memory


def main() -> None:
    """Run all experiments."""
    joinshed_memory.report()


if __name__ == "__main__":
    main()
