"""All that was ever inserted into a relation that only grows is the relation."""

from __future__ import annotations

from cql.ast import RelToStreamKind, SetKind
from cql.bound import (
    Distinct,
    Filter,
    Join,
    Project,
    Rel,
    RelToStream,
    SetOperation,
    UnboundedSpec,
    Window,
)
from planner.logical import JoinType, KeyedJoin, MultiJoin


def remove_unbounded_of_istream(node: Rel) -> Rel | None:
    """Turn `Istream(R) [Unbounded]` into `R` if nothing ever leaves R.

        Select Count(*) From (Istream(Select Distinct A From S))   ->   Select Count(*) From (Select Distinct A From S)

    Law: the sum of R(s) - R(s-1) over all s <= t is R(t) if no difference is cut off at zero, that is if R grows.
    Views that are read without a window come in this form. R must be empty before its first element arrives:
    a static table in R would be news at the first instant of the run, which R by itself does not speak of to an
    Rstream around it. The same for `Rstream(R) [Now]` is not a law: an Rstream around it would lose the ticks.
    """
    match node:
        case Window(spec=UnboundedSpec(), input=RelToStream(kind=RelToStreamKind.ISTREAM, input=relation)):
            return relation if relation.grows and _starts_empty(relation) else None
    return None


def _starts_empty(relation: Rel) -> bool:
    """Tell whether a relation is empty as long as no stream below it has had an element."""
    match relation:
        case Window():
            return True
        case Filter() | Project() | Distinct():
            return _starts_empty(relation.input)
        case Join() | KeyedJoin(kind=JoinType.INNER | JoinType.SEMI):
            return _starts_empty(relation.left) or _starts_empty(relation.right)
        case MultiJoin():
            return any(_starts_empty(part) for part in relation.relations)
        case SetOperation():
            parts = [_starts_empty(relation.left), _starts_empty(relation.right)]
            return all(parts) if relation.kind is SetKind.UNION else any(parts)
    return False
