"""The log of decisions: what controllers have decided about a network, with the figures and the reason.

A decision is in the checkpoint before anybody goes by it. What a controller has decided for a micro-batch is one page
of the log, a file that appears as a whole; a micro-batch that is repeated goes by the page that is there. A page has
the decisions that are new, for whoever wants to know why, and what the controller goes on from, if it needs anything.
Decisions that reach places as control messages, as that a table is idle, are repeated with these.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from cql.session import Listing
from runtime.connectors.result_files import write_atomically, writing

KEPT_PAGES = 20
"""Of how many micro-batches a controller's pages are kept."""

KEPT_DECISIONS = 200
"""How many pages of a controller are kept for the decisions on them."""

SHOWN = 20
"""How many decisions are shown of each network."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that a controller has decided about a subject, from a micro-batch on."""

    batch: int
    controller: str
    subject: str
    decision: Mapping[str, Any]
    figures: Mapping[str, float]
    """What it was decided from."""
    reason: str


class DecisionLog:
    """The pages of all controllers of a network, in a folder of its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._decisions: dict[str, dict[int, list[Decision]]] = defaultdict(dict)
        """By controller and micro-batch, in the order of these: what is on the pages."""
        for path in sorted(folder.glob("[0-9]*-*.json")):
            batch, _, controller = path.stem.partition("-")
            self._decisions[controller][int(batch)] = [Decision(**each) for each in _read(path)["decisions"]]

    def state(self, controller: str, batch: int) -> Mapping[str, Any] | None:
        """Return what a controller goes on from in a micro-batch; None if nothing has been decided for that."""
        path = self._path(controller, batch)
        return _read(path)["state"] if path.exists() else None

    def last_state(self, controller: str) -> Mapping[str, Any] | None:
        """Return what a controller goes on from after its last page."""
        batch = max(self._decisions[controller], default=None)
        return None if batch is None else self.state(controller, batch)

    def write(self, controller: str, batch: int, decisions: Sequence[Decision], state: Mapping[str, Any]) -> None:
        """Write what a controller has decided for a micro-batch."""
        with self._lock:
            with writing(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
            values = {"decisions": [asdict(each) for each in decisions], "state": state}
            write_atomically(self._path(controller, batch), json.dumps(values).encode())
            self._decisions[controller][batch] = list(decisions)
            self._forget(controller)

    def add(self, controller: str, batch: int, decisions: Iterable[Decision]) -> None:
        """Write further decisions for a micro-batch, of a controller that goes on from nothing."""
        self.write(controller, batch, [*self._decisions[controller].get(batch, ()), *decisions], {})

    def newest(self, most: int = SHOWN) -> list[Decision]:
        """Return the last decisions, oldest first."""
        with self._lock:
            decisions = [each for pages in self._decisions.values() for page in pages.values() for each in page]
        return sorted(decisions, key=lambda each: each.batch)[-most:]

    def _forget(self, controller: str) -> None:
        """Remove pages that nobody goes on from, but for those of the last decisions."""
        pages = self._decisions[controller]
        decided = [batch for batch in sorted(pages) if pages[batch]]
        for batch in pages.keys() - {*sorted(pages)[-KEPT_PAGES:], *decided[-KEPT_DECISIONS:]}:
            self._path(controller, batch).unlink(missing_ok=True)
            del pages[batch]

    def _path(self, controller: str, batch: int) -> Path:
        return self._folder / f"{batch:010}-{controller}.json"


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def decisions_listing(decisions: Iterable[Decision]) -> Listing:
    """Return what SHOW DECISIONS shows: a line for each decision, oldest first."""
    columns = ("batch", "controller", "subject", "decision", "figures", "reason")
    rows = (
        (str(each.batch), each.controller, each.subject, _text(each.decision), _text(each.figures), each.reason)
        for each in decisions
    )
    return Listing(columns, tuple(rows))


def _text(values: Mapping[str, Any]) -> str:
    """Return named values as a text.

    >>> _text({"fraction": 0.25, "waiting": 12345.678, "is": "idle"})
    'fraction = 0.25, waiting = 12346, is = idle'
    """
    return ", ".join(f"{name} = {_short(value)}" for name, value in values.items())


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
