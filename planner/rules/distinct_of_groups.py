"""Groups without aggregates are distinct keys."""

from __future__ import annotations

from cql.bound import Aggregate, Distinct, Project, Rel


def distinct_of_groups(node: Rel) -> Rel | None:
    """Turn a GROUP BY that computes nothing into DISTINCT.

        Select A From S [Rows 9] Group By A   ->   Select Distinct A From S [Rows 9]

    Law: there is a group for each value of the keys. Not without keys: the row may be one of an empty group.
    """
    if not isinstance(node, Aggregate) or not node.keys or node.calls:
        return None
    return Distinct(Project(node.input, node.keys, node.names, span=node.span), span=node.span)
