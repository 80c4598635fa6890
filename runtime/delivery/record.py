"""What a checkpoint knows of the results of a network: how far the sink of each query is."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cql.errors import Code, fail
from runtime.connectors.batch_sinks import SinkProgress
from runtime.connectors.result_files import write_atomically


@dataclass(slots=True)
class DeliveryRecord:
    """The progress of all queries of a network, in a file that changes as a whole; None: it is not kept."""

    path: Path | None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells the checkpoint from all others."""
    _queries: dict[str, SinkProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            try:
                found = json.loads(self.path.read_bytes())
                self._queries = {name: SinkProgress(**values) for name, values in found["queries"].items()}
                self.id = found["id"]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise fail(
                    Code.BAD_FILE,
                    f"'{self.path}' does not say what has been delivered: {error}",
                    hint="the checkpoint is damaged or of another version; start from a new one",
                ) from None

    def progress(self, query: str, sink: str) -> SinkProgress:
        """Return the progress of a query, which begins anew if its results go somewhere else than before."""
        found = self._queries.get(query)
        if found is None or found.sink != sink:
            self._queries[query] = found = SinkProgress(sink)
        return found

    def forget(self, query: str) -> None:
        """Forget a query: one of the same name begins anew."""
        self._queries.pop(query, None)

    def save(self) -> None:
        """Write the record, so that it survives a failure of the machine."""
        if self.path is None:
            return
        queries = {name: asdict(progress) for name, progress in self._queries.items()}
        write_atomically(self.path, json.dumps({"id": self.id, "queries": queries}).encode())
