"""The operators of a plan at work: what is made for each kind of operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner import operators as op
from runtime.operators.aggregate import Aggregate
from runtime.operators.base import Context, Operator
from runtime.operators.counted import DuplicateEliminate, Except, Intersect
from runtime.operators.joins import (
    HalfJoin,
    StreamJoin,
    dual_join,
    join_operator,
    memory_limited_join,
    multiway_join,
    selective_join,
)
from runtime.operators.ledger import Ledger
from runtime.operators.shedding import DropRows, Hold, KeepWindows
from runtime.operators.stateless import Project, Select, Union
from runtime.operators.streams import DStream, IStream, Output, RStream
from runtime.operators.top_n import TopN
from runtime.operators.windows import window_operator

MAKERS: dict[type[op.Operator], Callable[[Any, Context], Operator]] = {
    op.Ledger: Ledger,
    op.Select: Select,
    op.Project: Project,
    op.SeqWindow: window_operator,
    op.BinaryJoin: join_operator,
    op.SelectiveJoin: selective_join,
    op.DualJoin: dual_join,
    op.EvictingJoin: memory_limited_join,
    op.SemiJoin: HalfJoin,
    op.AntiJoin: HalfJoin,
    op.MJoin: multiway_join,
    op.StreamJoin: StreamJoin,
    op.Union: Union,
    op.Except: Except,
    op.Intersect: Intersect,
    op.DuplicateEliminate: DuplicateEliminate,
    op.Aggregate: Aggregate,
    op.TopN: TopN,
    op.IStream: IStream,
    op.DStream: DStream,
    op.RStream: RStream,
    op.WindowDrop: DropRows,
    op.RandomDrop: DropRows,
    op.KeepWindows: KeepWindows,
    op.Hold: Hold,
    op.Output: Output,
}
"""All but sources, which do nothing but pass on what is pushed into them."""


def make_operator(node: op.Operator, context: Context) -> Operator:
    """Return an operator of a plan, ready to work."""
    return MAKERS[type(node)](node, context)
