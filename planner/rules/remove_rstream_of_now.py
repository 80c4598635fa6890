"""Rstream of a Now window is the stream itself."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import RelToStreamKind
from cql.bound import Filter, Project, RangeSpec, Rel, RelToStream, Window, expressions, has_subquery


def remove_rstream_of_now(node: Rel) -> Rel | None:
    """Turn `Rstream(π σ S [Now])` into `π σ S`.

        Rstream(Select A From S [Now] Where B > 1)   ->   Select A From S Where B > 1, as a stream

    Law V4/V5: what is in S [Now] at an instant is what arrives at it, and the Rstream's clock has every
    instant at which something arrives. Only filters and projections may lie between (N12): a distinct or
    an aggregate would change from one instant's elements to all elements, a subquery is a relation of its own.
    """
    if not isinstance(node, RelToStream) or node.kind is not RelToStreamKind.RSTREAM:
        return None
    return _as_stream(node.input)


def _as_stream(relation: Rel) -> Rel | None:
    if isinstance(relation, Window) and relation.spec == RangeSpec(1):
        return relation.input
    if isinstance(relation, Filter | Project) and not any(has_subquery(e) for e in expressions(relation)):
        stream = _as_stream(relation.input)
        return None if stream is None else replace(relation, input=stream)
    return None
