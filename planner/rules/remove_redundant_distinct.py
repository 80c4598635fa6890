"""DISTINCT of rows that are different anyway."""

from __future__ import annotations

from cql.bound import Distinct, Rel
from planner.keys import key_of


def remove_redundant_distinct(node: Rel) -> Rel | None:
    """Turn `Distinct(R)` into `R` if R has no row twice.

        Select Distinct A, Count(*) From S [Rows 9] Group By A
        ->  Select A, Count(*) From S [Rows 9] Group By A

    Law: some columns identify a row of R (`planner/keys.py`), so equal rows are one row.
    """
    if isinstance(node, Distinct) and key_of(node.input) is not None:
        return node.input
    return None
