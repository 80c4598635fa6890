"""The plan of one fragment: its operators, with what is sent to it as sources."""

from __future__ import annotations

from collections.abc import Iterator

from cql.intervals import TimeDomain
from planner import operators as op
from planner.plan import Chain, Path, Plan, queues_between
from runtime.network.layout import NetworkLayout, fragment_of


def fragment_plan(layout: NetworkLayout, fragment: str) -> Plan:
    """Return a plan that an executor can run: what arrives over an edge comes from a source with the edge's name.

    Operators, synopses and stores keep their ids, so that state stays theirs whatever is around them.
    """
    plan = layout.plan
    operators: dict[str, op.Operator] = {}
    for edge in layout.into(fragment):
        producer = plan.by_id[edge.producer]
        operators[edge.key] = op.Source(
            id=edge.key,
            table=edge.key,
            columns=producer.columns,
            is_stream=producer.is_stream,
            is_relation=not producer.is_stream,
            time=TimeDomain.INTEGER,
        )
    for operator in plan.operators:
        if fragment_of(operator) == fragment:
            inputs = tuple(op.InputEdge(operator=layout.input_key(operator, edge)) for edge in operator.inputs)
            operators[operator.id] = operator.model_copy(update={"inputs": inputs})
    own = {name for name in operators if name in plan.by_id}
    stubs = {synopsis.id for synopsis in plan.synopses if synopsis.operator in own}
    stores = (s.model_copy(update={"stubs": tuple(x for x in s.stubs if x in stubs)}) for s in plan.stores)
    return Plan.model_construct(
        version=plan.version,
        queries=tuple(each.query for each in operators.values() if isinstance(each, op.Output)),
        operators=tuple(operators.values()),
        queues=tuple(queues_between(operators)),
        synopses=tuple(s for s in plan.synopses if s.id in stubs),
        stores=tuple(s for s in stores if s.stubs),
        paths=tuple(_paths(layout, own)),
        growing=(),
    )


def _paths(layout: NetworkLayout, own: set[str]) -> Iterator[Path]:
    """Yield the stretches of the plan's paths that lie in a fragment."""
    for path in layout.plan.paths:
        before, stretch = path.source, []
        for operator in (each for chain in path.chains for each in chain.operators):
            if operator in own:
                stretch.append(operator)
                continue
            if stretch:
                yield _path(layout, path.query, before, stretch)
            before, stretch = operator, []
        if stretch:
            yield _path(layout, path.query, before, stretch)


def _path(layout: NetworkLayout, query: str, before: str, stretch: list[str]) -> Path:
    first = layout.plan.by_id[stretch[0]]
    edge = next(each for each in first.inputs if each.operator == before)
    return Path(query=query, source=layout.input_key(first, edge), chains=(Chain(operators=tuple(stretch), slope=0.0),))
