"""Samples: a row is in or not by its values alone, so that it leaves as it has come, on every host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.columns.batch import ChangeBatch, Columns, Mask
from runtime.columns.row_codes import row_codes
from runtime.operators.base import Context, Operator
from runtime.operators.registry import Step, implements

_BITS = 53
"""How many bits of a hash count: as many as a float has."""


def sampled(columns: Columns, length: int, percent: float) -> Mask:
    """Return which rows are in a sample; those of a smaller sample are in every larger one."""
    salt = pa.array(np.zeros(length, np.int64))
    hashes = row_codes((salt, *columns), length).codes >> np.uint64(64 - _BITS)
    return hashes.astype(np.float64) < percent / 100 * 2.0**_BITS


def _sampling(node: op.Sample, functions: Mapping[str, Any]) -> Step:
    return lambda batch: batch.filter(sampled(batch.columns, len(batch), node.percent))


@implements(op.Sample, step=_sampling)
class Sample(Operator):
    """Passes the rows of a sample."""

    def __init__(self, node: op.Sample, context: Context) -> None:
        super().__init__(node, context)
        self._step = _sampling(node, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self._step(batch) if len(batch) else batch
