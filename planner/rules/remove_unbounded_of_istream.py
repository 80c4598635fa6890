"""A window that undoes a relation-to-stream operator."""

from __future__ import annotations

from cql.ast import RelToStreamKind
from cql.bound import RangeSpec, Rel, RelToStream, UnboundedSpec, Window


def remove_unbounded_of_istream(node: Rel) -> Rel | None:
    """Turn `Istream(R) [Unbounded]` into `R` if nothing ever leaves R, and `Rstream(R) [Now]` into `R`.

        Select Count(*) From (Istream(Select Distinct A From S))
        ->  Select Count(*) From (Select Distinct A From S)

    Laws: the sum of R(s) - R(s-1) over all s <= t is R(t) if no difference is cut off at zero, that is if R
    grows; views that are read without a window come in this form. What an Rstream says at t is R(t), if it
    speaks at every tick. When an Rstream around it speaks depends on the inputs only, which stay.
    """
    match node:
        case Window(spec=UnboundedSpec(), input=RelToStream(kind=RelToStreamKind.ISTREAM, input=relation)):
            return relation if relation.grows else None
        case Window(
            spec=RangeSpec(ticks=1, slide=None),
            input=RelToStream(kind=RelToStreamKind.RSTREAM, every_tick=True, input=relation),
        ):
            return relation
    return None
