"""UNION, EXCEPT and INTERSECT of sets become those of bags."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import SetKind
from cql.bound import Distinct, Rel, SetOperation
from planner.keys import key_of


def set_operation_to_distinct(node: Rel) -> Rel | None:
    """Turn set operations into bag operations and DISTINCT.

        Select A From S [Rows 9] Except Select A From R
        ->  (Select Distinct A From S [Rows 9]) Except All Select A From R

    Law: a row is in A UNION B if it is in A + B; in A EXCEPT B once if it is in A and not in B, which is what
    max(0, 1 - b) says for any b; in A INTERSECT B once if it is in both: min(1, b). So one side without
    duplicates is enough, the left one of EXCEPT.
    """
    if not isinstance(node, SetOperation) or node.all:
        return None
    every = replace(node, all=True)
    if node.kind is SetKind.UNION:
        return Distinct(every, span=node.span)
    if key_of(node.left) is not None or (node.kind is SetKind.INTERSECT and key_of(node.right) is not None):
        return every
    return replace(every, left=Distinct(node.left, span=node.span))
