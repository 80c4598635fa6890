"""Samples: a row is in or not by its values alone, so that it leaves as it has come, on every host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.columns.batch import ChangeBatch, Columns, Mask
from runtime.columns.row_codes import row_hashes
from runtime.operators.registry import Step
from runtime.operators.row_by_row import row_by_row

_BITS = 53
"""How many bits of a hash count: as many as a float has."""


def sampled(columns: Columns, length: int, percent: float) -> Mask:
    """Return which rows are in a sample; those of a smaller sample are in every larger one."""
    salt = pa.array(np.zeros(length, np.int64))
    hashes = row_hashes((salt, *columns)) >> np.uint64(64 - _BITS)
    return hashes.astype(np.float64) < percent / 100 * 2.0**_BITS


@row_by_row(op.Sample)
class Sampling(Step):
    """Passes the rows of a sample."""

    def __init__(self, node: op.Sample, functions: Mapping[str, Any]) -> None:
        self._percent = node.percent

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        return batch.filter(sampled(batch.columns, len(batch), self._percent)) if len(batch) else batch
