"""Spark's Python daemon with the runtime loaded: the processes that it forks for tasks begin with everything there.

Loading takes a second or two, which otherwise every new process spends in its first task. What is loaded counts as
old for the garbage collector, which Spark runs after each task.
"""

from __future__ import annotations

import gc
from importlib import import_module

LOADED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.streaming.list_state_client",
    "pyspark.sql.streaming.map_state_client",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.streaming.value_state_client",
    "pyspark.worker",
    "runtime.connectors",
    "runtime.spark.buckets",
    "runtime.spark.inbox_frame",
    "runtime.spark.processor",
    "runtime.spark.reading",
)
"""What tasks import."""


def main() -> None:
    """Load what tasks need, and serve as Spark's own daemon does."""
    from pyspark import daemon

    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
