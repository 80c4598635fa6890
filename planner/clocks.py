"""When an Rstream speaks: what rules that remove one have to ask."""

from __future__ import annotations

from cql.ast import RelToStreamKind
from cql.bound import Filter, Project, Rel, RelToStream, StreamScan
from planner.logical import StreamJoin


def speaks_at_elements_of(rstream: RelToStream, stream: Rel) -> bool:
    """Tell whether an Rstream speaks at every instant at which a stream below it has an element.

    If it does not speak at every tick, it speaks where a registered stream or relation has an element, and at
    slides. An Istream or Dstream can have elements between those: when something expires.
    """
    if rstream.every_tick:
        return True
    match stream:
        case StreamScan():
            return True
        case Filter() | Project():
            return speaks_at_elements_of(rstream, stream.input)
        case StreamJoin():
            return speaks_at_elements_of(rstream, stream.stream)
        case RelToStream(kind=RelToStreamKind.RSTREAM, every_tick=False):
            return True
    return False
