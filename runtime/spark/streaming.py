"""One query of Spark Structured Streaming: started from a checkpoint, stopped between two micro-batches, looked after.

It knows nothing of networks: what is done with a micro-batch is a function that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from cql.errors import Code, CqlError
from runtime.spark.backlog import amounts
from runtime.spark.sources import translate

Deliver = Callable[[DataFrame, int], None]
"""What is done with the frame of a micro-batch, and its id; called on the driver."""


_QUIET_SECONDS = 0.5
"""For how long there has to be nothing to do until that is believed."""


MOST_STARTS = 12
"""How often a query is started before a machine is taken for too slow: that is two minutes."""


class Stopping(Exception):
    """Ends a micro-batch that has done nothing yet, because Spark stops the query.

    Spark looks for these words in what a function raises, to see that nothing has failed. They are all that it gets:
    in a text with Java's whole trace, its pattern does not come to an end.
    """

    def __init__(self) -> None:
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException")


class SparkQuery:
    """A streaming query that runs from its start."""

    def __init__(self, frame: DataFrame, deliver: Deliver, checkpoint: Path, name: str) -> None:
        self._deliver = deliver
        self._is_stopping = False
        self._is_waiting = False
        """Whether a micro-batch that has done nothing yet waits for the query to be stopped."""
        self._done = 0
        self._starts = 0
        self._starting = Lock()
        self._query: StreamingQuery | None = None
        self._writer = (
            frame.writeStream.foreachBatch(self._run).option("checkpointLocation", f"file:{checkpoint}").queryName(name)
        )

    def start(self) -> None:
        """Start from where the checkpoint is."""
        self._starts += 1
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
            self._wait_to_be_stopped(frame)
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

    def _wait_to_be_stopped(self, frame: DataFrame) -> None:
        """Wait, in Spark's thread of the query, until Spark interrupts that."""
        self._is_waiting = True
        jvm = frame.sparkSession._jvm
        assert jvm is not None, "there is a session"
        with suppress(Py4JJavaError):
            while self._started.isActive:
                jvm.java.lang.Thread.sleep(100)
        raise Stopping

    def process_available(self) -> None:
        """Wait until everything that the sources have now is processed."""
        while True:
            query = self._started
            try:
                with translated():
                    query.processAllAvailable()
                return
            except CqlError as error:
                if not self._is_started_again(query, error):
                    raise

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
        while self._started.isActive and self._started.status["isTriggerActive"] and not self._is_waiting:
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
        if error is None:
            return False
        if self._is_started_again(query, error):
            return True
        with translated():
            raise error

    def _is_started_again(self, query: StreamingQuery, error: Exception) -> bool:
        """Start again after a Python process came too late for Spark, which waits ten seconds; tell whether that is so.

        Such a process is asked while a micro-batch is planned, so nothing has been done.
        """
        known = translate(error)
        if known is None or known.diagnostics[0].code is not Code.TOO_SLOW:
            return False
        with self._starting:
            if query is self._query and not self._is_stopping and self._starts < MOST_STARTS:
                self.start()
            return query is not self._query

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
