"""Cells: the groups and instants at which an aggregate may change."""

from __future__ import annotations

from typing import NamedTuple

from runtime.columns.batch import Ints


class Cells(NamedTuple):
    """Pairs of slot and instant before a heartbeat, sorted, each once."""

    slot: Ints
    instant: Ints
    until: int
