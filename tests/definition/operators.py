"""What the operators of a physical plan mean: the logical plan they were made from, read back.

Queues, synopses, stores and routes do not change what is computed, so they are left out; an operator that several
queries share is read back for each of them. Only the unbounded window has no operator of its own: it stands
wherever a relation is needed and a stream arrives.
"""

from __future__ import annotations

from cql import bound
from cql.ast import RelToStreamKind, SetKind
from cql.bound import Rel
from planner import operators as op
from planner.logical import GroupTopN, JoinType, KeyedJoin, MultiJoin, StreamJoin
from planner.plan import Plan


def query_of(plan: Plan, query: str) -> Rel:
    """Return the logical plan of a query of a network."""
    return _read(plan, plan.output(query))


def _read(plan: Plan, operator: op.Operator) -> Rel:
    below = [_read(plan, plan.by_id[edge.operator]) for edge in operator.inputs]
    names = tuple(f"c{at}" for at in range(len(operator.columns)))
    match operator:
        case op.Source():
            fields = tuple(bound.Field(c.name, c.type, c.nullable) for c in operator.columns)
            if operator.is_relation:
                return bound.RelationScan(operator.table, fields, operator.time)
            assert operator.time is not None
            return bound.StreamScan(operator.table, fields, operator.time)
        case op.Ledger():
            return below[0]
        case op.Select():
            return bound.Filter(_kind(below[0], operator), bound.conjunction(list(operator.predicates)))
        case op.Project():
            return bound.Project(_kind(below[0], operator), operator.items, names)
        case op.SeqWindow():
            return bound.Window(below[0], operator.window)
        case op.BinaryJoin() | op.SemiJoin() | op.AntiJoin():
            kind = {op.SemiJoin: JoinType.SEMI, op.AntiJoin: JoinType.ANTI}.get(type(operator))
            kind = kind or JoinType(operator.join)  # type: ignore[union-attr]
            left, right = _relation(below[0]), _relation(below[1])
            return KeyedJoin(kind, left, right, operator.left_keys, operator.right_keys, operator.residual)
        case op.MJoin():
            return MultiJoin(tuple(_relation(b) for b in below), operator.keys, operator.residual)
        case op.StreamJoin():
            return StreamJoin(below[0], _relation(below[1]), operator.left_keys, operator.right_keys, operator.residual)
        case op.Union() | op.Except() | op.Intersect():
            kinds = {op.Union: SetKind.UNION, op.Except: SetKind.EXCEPT, op.Intersect: SetKind.INTERSECT}
            return bound.SetOperation(kinds[type(operator)], True, _relation(below[0]), _relation(below[1]))
        case op.DuplicateEliminate():
            return bound.Distinct(_relation(below[0]))
        case op.Sample():
            return bound.Sample(_relation(below[0]), operator.percent)
        case op.Aggregate():
            return bound.Aggregate(_relation(below[0]), operator.keys, operator.calls, names, operator.empty_row)
        case op.TopN():
            keys = tuple(bound.SortKey(k.column, k.descending, k.nulls_first) for k in operator.keys)
            if not operator.partition and not operator.numbered:
                return bound.TopN(_relation(below[0]), keys, operator.limit)
            number = "number" if operator.numbered else None
            return GroupTopN(_relation(below[0]), operator.partition, keys, operator.limit, number)
        case op.IStream() | op.DStream():
            kind = RelToStreamKind.ISTREAM if isinstance(operator, op.IStream) else RelToStreamKind.DSTREAM
            return bound.RelToStream(kind, _relation(below[0]))
        case op.RStream():
            return bound.RelToStream(RelToStreamKind.RSTREAM, _relation(below[0]), operator.every_tick)
        case op.Output():
            return _kind(below[0], operator)
    raise AssertionError(f"no meaning for {type(operator).__name__}")


def _relation(rel: Rel) -> Rel:
    return bound.Window(rel, bound.UnboundedSpec()) if rel.is_stream else rel


def _kind(rel: Rel, operator: op.Operator) -> Rel:
    """Return the input of an operator that takes streams and relations as what the operator puts out."""
    return rel if operator.is_stream else _relation(rel)
