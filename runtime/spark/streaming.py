"""One query of Spark Structured Streaming: started from a checkpoint, stopped between two micro-batches, looked after.

It knows nothing of networks: what is done with a micro-batch is a function that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from runtime.spark.amounts import amounts
from runtime.spark.sources import translate

Deliver = Callable[[DataFrame, int], None]
"""What is done with the frame of a micro-batch, and its id; called on the driver."""


_QUIET_SECONDS = 0.5
"""For how long there has to be nothing to do until that is believed."""


class Stopping(Exception):
    """Ends a micro-batch that has done nothing yet, because the query is to stop."""


class SparkQuery:
    """A streaming query that runs from its start."""

    def __init__(self, frame: DataFrame, deliver: Deliver, checkpoint: Path, name: str) -> None:
        self._deliver = deliver
        self._is_stopping = False
        self._done = 0
        self._query: StreamingQuery | None = None
        self._writer = (
            frame.writeStream.foreachBatch(self._run).option("checkpointLocation", f"file:{checkpoint}").queryName(name)
        )

    def start(self) -> None:
        """Start from where the checkpoint is."""
        self._query = self._writer.start()

    @property
    def _started(self) -> StreamingQuery:
        """The query; its first micro-batch may begin while Spark is still starting it."""
        while self._query is None:
            time.sleep(0.01)
        return self._query

    def _run(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Spark with each micro-batch, before it is computed."""
        if self._is_stopping:
            raise Stopping
        self._deliver(frame, batch_id)
        self._done += 1

    def recomputed(self, frame: DataFrame) -> DataFrame:
        """The frame of the micro-batch that is running, to be computed from its sources.

        Computing the given frame twice would take what was shuffled from the first time.
        """
        plan = self._started._jsq.streamingQuery().lastExecution().executedPlan().clone()
        session = frame.sparkSession
        made = session._jsparkSession.internalCreateDataFrame(plan.execute(), frame._jdf.schema(), False)
        return DataFrame(made, session)

    def process_available(self) -> None:
        """Wait until everything that the sources have now is processed."""
        with translated():
            self._started.processAllAvailable()

    def process_current(self) -> None:
        """Wait until a micro-batch is done that was begun after this call, or it is seen that there is nothing to do.

        For sources that always have more, that is what they had at the call, as far as a micro-batch takes it.
        """
        done, quiet_since = self._done, time.monotonic()
        while self.check() and self._done < done + 2 and time.monotonic() < quiet_since + _QUIET_SECONDS:
            if self._started.status["isDataAvailable"]:
                quiet_since = time.monotonic()
            time.sleep(0.01)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; raises if the query fails before."""
        while self.check() and not condition():
            time.sleep(0.01)

    def stop_after_this(self) -> None:
        """Let the micro-batch that is running be the last."""
        self._is_stopping = True

    def stop(self) -> None:
        """Stop between two micro-batches: the one that is running is completed."""
        self.stop_after_this()
        while self._started.isActive and self._started.status["isTriggerActive"]:
            time.sleep(0.01)
        self.abort()

    def abort(self) -> None:
        """Stop at once; the micro-batch that is running is done again after the next start."""
        self.stop_after_this()
        with suppress(Exception):
            if self._query is not None:
                self._query.stop()

    def check(self) -> bool:
        """Tell whether the query is running; raises if it has failed."""
        query = self._started
        if query.isActive:
            return True
        error = query.exception()
        if error is not None and not (self._is_stopping and Stopping.__name__ in str(error)):
            with translated():
                raise error
        return False

    def amounts(self) -> list[float]:
        """Return what each source has for the micro-batch that is about to run."""
        return amounts(self._started._jsq.streamingQuery().lastExecution())

    @property
    def recent_progress(self) -> list[Any]:
        """What Spark says of the last micro-batches, oldest first."""
        return list(self._started.recentProgress)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of Spark into errors for the user, as far as they are known."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
