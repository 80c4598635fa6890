"""A projection moves above a window."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import ColumnRef, Filter, PartitionRowsSpec, Project, Rel, Window
from planner.logical import StreamJoin


def pull_project_above_window(node: Rel) -> Rel | None:
    """Turn `(π S) [W]` into `π (S [W])`.

        From (Select Istream(A) From S) [Rows 9]   ->   project A over the window of S

    Law V3: a projection keeps every element and their order. Windows then stand on the streams themselves and
    share what they store. For a partitioned window the partitioning columns have to be columns below, too. Not
    over a stream join: its elements of one instant are in the order of what is projected from it.
    """
    if not isinstance(node, Window) or not isinstance(node.input, Project) or _is_stream_join(node.input):
        return None
    project, spec = node.input, node.spec
    if isinstance(spec, PartitionRowsSpec):
        keys = [project.items[at] for at in spec.columns]
        places = [key.index for key in keys if isinstance(key, ColumnRef) and key.depth == 0]
        if len(places) < len(keys):
            return None
        spec = replace(spec, columns=tuple(dict.fromkeys(places)))
    return replace(project, input=replace(node, input=project.input, spec=spec))


def _is_stream_join(stream: Rel) -> bool:
    while isinstance(stream, Filter | Project):
        stream = stream.input
    return isinstance(stream, StreamJoin)
