"""Spark's Python daemon with the runtime loaded: the processes that it forks for tasks begin with everything there.

Loading takes a second or two, which otherwise every new process spends in its first task. What is loaded counts as
old for the garbage collector, which Spark runs after each task.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Load what tasks need, and serve as Spark's own daemon does."""
    from pyspark import daemon

    import runtime.spark.preloaded  # noqa: F401

    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
