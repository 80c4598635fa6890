"""Packets on two links, as the demonstration sees them: files that appear in a folder while the clock on the wall runs.

A customer's network is connected to a backbone. Some of the packets on the backbone came over the customer's link, a
moment before. In a burst, one host sends many times as much as all others together.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

FILE_SECONDS = 0.5
HOSTS = 40
LOUDEST = 7
"""The host that sends the burst."""
DELAY_MICROSECONDS = 50_000
"""How long a packet takes from the customer's link to the backbone."""
SHARE = 0.4
"""How much of the customer's traffic goes to the backbone."""


@dataclass(frozen=True)
class Phase:
    """A stretch of time with so many packets a second on each link."""

    name: str
    seconds: float
    rate: int


class Traffic:
    """Writes the packets of some phases, one after the other, in a thread of its own."""

    def __init__(self, folder: Path, phases: list[Phase]) -> None:
        self._folder = folder
        self._phases = phases
        self._rng = np.random.default_rng(42)
        self._written = 0
        self._packets = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.phase: Phase | None = None
        self.began = time.time()
        self.offered = 0
        """How many packets there have been on both links."""
        for link in ("customer", "backbone"):
            (folder / link).mkdir(parents=True)

    def greet(self, count: int) -> None:
        """Write a few packets before the first phase, so that there is something to warm up on."""
        self._write(time.time() - FILE_SECONDS, count)

    def start(self) -> None:
        """Let the first phase begin."""
        self.began = time.time()
        self._thread.start()

    def stop(self) -> None:
        """End the traffic at once."""
        self._stop.set()
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        """Tell whether all phases are over."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.time()
        for phase in self._phases:
            self.phase = phase
            for _ in range(round(phase.seconds / FILE_SECONDS)):
                self._write(due, round(phase.rate * FILE_SECONDS))
                due += FILE_SECONDS
                if self._stop.wait(max(due - time.time(), 0)):
                    return

    def _write(self, since: float, count: int) -> None:
        """Write the packets of both links since an instant."""
        sent = self._packed(since, count)
        arrived = self._rng.random(count) < SHARE
        passing = sent.filter(pa.array(arrived))
        late = pa.array(np.asarray(passing["at"].cast(pa.int64())) + DELAY_MICROSECONDS).cast(pa.timestamp("us"))
        passing = passing.set_column(4, "at", late)
        others = self._packed(since + DELAY_MICROSECONDS / 1e6, count - len(passing))
        self._put("customer", sent)
        self._put("backbone", pa.concat_tables([passing, others]).sort_by("at"))
        self.offered += 2 * count

    def _packed(self, since: float, count: int) -> pa.Table:
        """Return packets spread over the time of a file."""
        begin = int(since * 1e6)
        instants = np.sort(self._rng.integers(begin, begin + int(FILE_SECONDS * 1e6), count))
        sources = self._rng.zipf(1.6, count) % HOSTS
        if self.phase is not None and self.phase.rate > self._phases[0].rate:
            sources = np.where(self._rng.random(count) < 0.9, LOUDEST, sources)
        ids = np.arange(self._packets, self._packets + count)
        self._packets += count
        return pa.table(
            {
                "id": ids,
                "source": sources.astype(np.int32),
                "target": self._rng.integers(0, HOSTS, count, np.int32),
                "bytes": self._rng.integers(64, 1500, count, np.int32),
                "at": pa.array(instants, pa.timestamp("us")),
            }
        )

    def _put(self, link: str, packets: pa.Table) -> None:
        """Let a file appear as a whole."""
        self._written += 1
        path = self._folder / link / f"{self._written:06}.parquet"
        hidden = path.with_name(f".{path.name}")
        parquet.write_table(packets, hidden)
        hidden.replace(path)
