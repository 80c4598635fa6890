"""Equalities between the two inputs of a join are its keys."""

from __future__ import annotations

from cql.bound import Call, Expr, Join, Rel, conjuncts
from planner.expressions import columns_read, depends_on_row_only, moved
from planner.joins import condition_of, inputs_read, keys_of, kind_of, starts, with_condition, with_keys
from planner.logic import order_key
from planner.logical import KeyedJoin, StreamJoin

Pair = tuple[Expr, Expr]


def extract_equi_keys(node: Rel) -> Rel | None:
    """Turn `X ⋈[a = b and q] Y` into a join that knows its keys a and b and tests q besides.

        From S1 [Rows 9] Left Join S2 [Rows 9] On S1.A = S2.A and S1.B < S2.B   ->   keys A = A, residual B < B

    Law: the definition of a keyed join; it holds for every kind. Each side of the equality reads one input
    only. Keys and the rest of the condition are put into canonical order. Every join becomes a keyed one, be
    it without keys.
    """
    if isinstance(node, Join):
        node_with_keys: KeyedJoin | StreamJoin = KeyedJoin(
            kind_of(node), node.left, node.right, residual=node.condition, span=node.span
        )
    elif isinstance(node, KeyedJoin | StreamJoin):
        node_with_keys = node
    else:
        return None
    left_keys, right_keys = keys_of(node_with_keys)
    pairs = list(zip(left_keys, right_keys, strict=True))
    condition = condition_of(node_with_keys)
    rest = []
    for term in [] if condition is None else conjuncts(condition):
        pair = _pair(node_with_keys, term)
        if pair is None:
            rest.append(term)
        else:
            pairs.append(pair)
    pairs = sorted(dict.fromkeys(pairs), key=lambda pair: (order_key(pair[0]), order_key(pair[1])))
    lefts, rights = tuple(left for left, _ in pairs), tuple(right for _, right in pairs)
    result = with_condition(with_keys(node_with_keys, (lefts, rights)), rest)
    return None if result == node else result


def _pair(join: KeyedJoin | StreamJoin, term: Expr) -> Pair | None:
    """Return the keys that an equality stands for, if its sides read one input each."""
    if not isinstance(term, Call) or term.function != "eq" or not depends_on_row_only(term):
        return None
    left, right = term.arguments
    owners = [inputs_read(join, columns_read(side)) for side in (left, right)]
    if owners == [[1], [0]]:
        left, right = right, left
    elif owners != [[0], [1]]:
        return None
    inputs = (join.left, join.right) if isinstance(join, KeyedJoin) else (join.stream, join.relation)
    start = starts(join)[1]
    return moved(left, inputs[0]), moved(right, inputs[1], lambda at: at - start)
