"""Plans with other operators in them, and what may be lost in them without making answers wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cql.errors import Code, CqlError, fail
from planner import operators as op
from planner.explain.headlines import headline
from planner.plan import QueryPlan, planned


def refuse_unsound(plan: QueryPlan, loses: Callable[[op.Operator], bool]) -> None:
    """Raise if a query could answer with rows that are wrong, not only missing, when some operators lose rows."""
    operators = {operator.id: operator for operator in plan.operators}
    affected: set[str] = set()
    for operator in plan.operators:
        if loses(operator):
            affected.add(operator.id)
            continue
        if affected.isdisjoint(edge.operator for edge in operator.inputs):
            continue
        affected.add(operator.id)
        if not operator.loses_soundly:
            what = headline(operator, operators)
            raise cannot(plan, f"would get wrong answers, not only fewer, if rows were lost below: {what}", "window")


def rebuilt(
    plan: QueryPlan,
    share: bool,
    above: Callable[[op.Source], op.Operator | None],
    below_output: tuple[type[op.Operator], Mapping[str, Any]] | None,
    instead: Mapping[str, op.Operator] = MappingProxyType({}),
) -> QueryPlan:
    """Return a plan with operators above its sources, below its output, and instead of some by their ids.

    Ids follow from what operators read.
    """
    renamed: dict[str, str] = {}
    made: dict[str, op.Operator] = {}

    def add(operator: op.Operator, salt: str) -> op.Operator:
        new = op.identified(operator, "" if share else f"{plan.name}:{salt}:")
        return made.setdefault(new.id, new)

    for operator in plan.operators:
        inputs = tuple(e.model_copy(update={"operator": renamed[e.operator]}) for e in operator.inputs)
        if isinstance(operator, op.Source):
            made[operator.id] = operator
            drop = above(operator)
            renamed[operator.id] = operator.id if drop is None else add(drop, f"above {operator.id}").id
            continue
        if isinstance(operator, op.Output) and below_output is not None:
            kind, more = below_output
            shared = operator.model_dump(include={"is_stream", "placement", "level", "reason"})
            last = add(kind(inputs=inputs, columns=made[inputs[0].operator].columns, **shared, **more), "last")
            inputs = (op.InputEdge(operator=last.id),)
        new = instead.get(operator.id, operator).model_copy(update={"inputs": inputs})
        renamed[operator.id] = add(new, operator.id).id
    return planned(plan.name, made, share)


def on(source: op.Source, kind: type[op.Operator], **more: Any) -> op.Operator:
    return kind(inputs=(op.InputEdge(operator=source.id),), columns=source.columns, is_stream=True, **more)


def cannot(plan: QueryPlan, why: str, other: str | None) -> CqlError:
    """Return the error of a policy that does not fit a query; `other` is one that may."""
    evicting = (
        "'prob' and its like are for one inner join of two windows of time by equal values, and take accept = "
        "'approximate' below an Istream or an aggregate"
    )
    hints = {
        "join": "shedding = 'auto' takes the policy that fits; 'window' loses whole windows of time; 'none' loses "
        "nothing",
        "utility": "leave out the utility; or join two windows of time, and shed by 'selective'",
        "memory": f"leave out the memory; {evicting}",
        "allocation": f"leave out the allocation; {evicting}",
        "approximate": "accept = 'approximate' accepts wrong answers; 'none' loses nothing",
        "random": "shedding = 'random' loses single rows, where that is sound; 'none' loses nothing",
        "window": "shedding = 'window' loses whole windows of time; accept = 'approximate' accepts wrong answers; "
        "'none' loses nothing",
        None: "shedding = 'none' loses nothing",
    }
    return fail(Code.CANNOT_SHED, f"the query '{plan.name}' {why}", hint=hints[other])
