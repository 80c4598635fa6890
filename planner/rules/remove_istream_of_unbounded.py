"""Istream of an unbounded window is the stream itself."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import RelToStreamKind
from cql.bound import Filter, Project, Rel, RelToStream, UnboundedSpec, Window, expressions, has_subquery


def remove_istream_of_unbounded(node: Rel) -> Rel | None:
    """Turn `Istream(π σ S [Unbounded])` into `π σ S`.

        Istream(Select A From S [Range Unbounded] Where B > 1)   ->   Select A From S Where B > 1, as a stream

    Law V4/V5: nothing leaves an unbounded window, so what is new in π σ S [Unbounded] at an instant is π σ of
    what arrives at it, and ties stay in the order of S. Only filters and projections of the row itself may
    lie between: a subquery's value can change, and with it rows that arrived earlier.
    """
    if not isinstance(node, RelToStream) or node.kind is not RelToStreamKind.ISTREAM:
        return None
    return _as_stream(node.input)


def _as_stream(relation: Rel) -> Rel | None:
    if isinstance(relation, Window) and isinstance(relation.spec, UnboundedSpec):
        return relation.input
    if isinstance(relation, Filter | Project) and not any(has_subquery(e) for e in expressions(relation)):
        stream = _as_stream(relation.input)
        return None if stream is None else replace(relation, input=stream)
    return None
