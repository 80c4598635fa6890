"""The plan as a tree for reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cql import bound
from cql.bound.text import expression_text
from cql.intervals import TimeDomain, Unit
from planner import operators as op
from planner.conditions import condition_text, index_condition
from planner.costs import ASSUMED_RATE
from planner.explain.headlines import headline, route_text

if TYPE_CHECKING:
    from planner.plan import Plan
    from planner.state import Synopsis

_GROWTH = {
    "constant": "fixed size",
    "relation": "as large as the relation",
    "window": "as much as arrives in that time",
    "keys": "grows with the number of different keys",
    "stream": "grows with the stream",
}


def to_text(plan: Plan, query: str | None = None) -> str:
    """Return queries as trees, then the stores, fragments, chains, and what can grow without limit.

    With a query only its part is shown, and what it shares with others is still marked.
    """
    lines: list[str] = []
    printed: dict[str, str] = {}
    chosen = None if query is None else plan.output(query).id
    for output in plan.outputs:
        if chosen in (None, output.id):
            kind = "stream" if output.is_stream else "relation"
            columns = ", ".join(f"{column.name} {column.type}" for column in output.columns)
            lines += [f"query {output.query}: {kind} ({columns})"]
            lines += list(_tree(plan, output, "  ", "  ", output.query, printed))
            lines.append("")
    if query is not None:
        plan = plan.part(query)
    lines += list(_stores(plan)) + list(_fragments(plan)) + list(_chains(plan)) + list(_growing(plan))
    return "\n".join(lines).rstrip() + "\n"


def _tree(
    plan: Plan, operator: op.Operator, first: str, rest: str, query: str, printed: dict[str, str]
) -> Iterator[str]:
    """Yield the lines of an operator and what it reads; what was printed before is only referred to."""
    others = [name for name in plan.users[operator.id] if name != query]
    shared = f"  shared with {', '.join(others)}" if others else ""
    if operator.id in printed and operator.inputs:
        where = "above" if printed[operator.id] == query else f"in {printed[operator.id]}"
        yield f"{first}{operator.id} (as {where}){shared}"
        return
    printed[operator.id] = query
    guess = operator.estimate()
    cost = f"  cost {guess.cost:g}, passes {guess.selectivity:g}" if operator.inputs else ""
    yield f"{first}{headline(operator, plan.by_id)}  #{operator.id}{cost}{shared}"
    bar = "│ " if operator.inputs else "  "
    synopses = (_synopsis(plan, operator, synopsis) for synopsis in plan.synopses if synopsis.operator == operator.id)
    details = operator.details(_clock(plan, operator), plan.users[operator.id])
    for line in (*details, *synopses):
        yield f"{rest}{bar}  {line}"
    for at, edge in enumerate(operator.inputs):
        last = at == len(operator.inputs) - 1
        route = route_text(edge, plan.by_id)
        if route:
            yield f"{rest}│   ({route})"
        yield from _tree(
            plan,
            plan.by_id[edge.operator],
            rest + ("└─ " if last else "├─ "),
            rest + ("   " if last else "│  "),
            query,
            printed,
        )


def _clock(plan: Plan, operator: op.Operator) -> TimeDomain | None:
    """Return the clock of the sources of an operator."""
    return next((source.time for source in plan.sources_below(operator) if source.time is not None), None)


def _synopsis(plan: Plan, operator: op.Operator, synopsis: Synopsis) -> str:
    names = op.output_names(plan.by_id[operator.inputs[synopsis.input].operator])
    index = ", ".join(expression_text(key, names) for key in synopsis.index) or _other_index(plan, operator, synopsis)
    found = f", index on {index}" if index else ""
    return f"synopsis {synopsis.role}: {synopsis.holds}{found}; leave {synopsis.expiry}; in {synopsis.store}"


def _other_index(plan: Plan, operator: op.Operator, synopsis: Synopsis) -> str:
    """Return what a join without equal keys finds rows by, if there is anything."""
    if operator.pair_condition is None:
        return ""
    names = [op.output_names(plan.by_id[edge.operator]) for edge in operator.inputs]
    condition = index_condition(operator.pair_condition, len(names[0]))
    return "" if condition is None else condition_text(condition, synopsis.input, names[synopsis.input])


def _stores(plan: Plan) -> Iterator[str]:
    if plan.stores:
        yield "stores"
    for store in plan.stores:
        shared = f"  shared by {len(store.stubs)} stubs" if len(store.stubs) > 1 else ""
        sizes = {s.id: s for s in plan.synopses if s.id in store.stubs}
        size = _size(plan, store.stubs, sizes)
        yield f"  {store.id}  {store.kind}, {size}{shared}"
        yield from (f"    stub {stub}" for stub in store.stubs)
    if plan.stores:
        yield ""


def _size(plan: Plan, stubs: tuple[str, ...], synopses: dict[str, Synopsis]) -> str:
    rows = [_rows(plan, synopses[stub]) for stub in stubs]
    known = [r for r in rows if r is not None]
    if len(known) == len(rows):
        return f"about {max(known):,} rows"
    growth = next(synopses[stub].growth for stub, r in zip(stubs, rows, strict=True) if r is None)
    return _GROWTH[growth]


def _rows(plan: Plan, synopsis: Synopsis) -> int | None:
    """Return an estimate of how many rows a window's synopsis holds, at an assumed rate."""
    window = plan.by_id[synopsis.operator]
    if window.window_spec is None:
        window = plan.by_id[window.inputs[synopsis.input].operator]
    match window.window_spec:
        case bound.RowsSpec(rows=rows):
            return rows
        case bound.RangeSpec(ticks=ticks):
            length = ticks * (_clock(plan, window) or TimeDomain.INTEGER).microseconds_per_tick
            return max(1, length * ASSUMED_RATE // Unit.SECOND.value)
    return None


def _fragments(plan: Plan) -> Iterator[str]:
    fragments: dict[str, list[op.Operator]] = {}
    for operator in plan.operators:
        fragments.setdefault(operator.fragment, []).append(operator)
    yield "fragments"
    for name, found in sorted(fragments.items(), key=lambda item: (item[1][0].level, item[0])):
        what = {
            "source": "where elements are read, before any is sent on",
            "hash": "in every bucket",
            "single": "in one bucket",
        }[found[0].placement]
        yield f"  {name}: {len(found)} operator{'s' if len(found) > 1 else ''}, {what}"
        reasons = dict.fromkeys(operator.reason for operator in found if operator.reason)
        yield from (f"    because {reason}" for reason in reasons)
    yield ""


def _chains(plan: Plan) -> Iterator[str]:
    yield "chains"
    for path in plan.paths:
        steps = " | ".join(f"{' > '.join(chain.operators)} (slope {chain.slope:.3g})" for chain in path.chains)
        yield f"  {path.query} from {path.source}: {steps}"
    yield ""


def _growing(plan: Plan) -> Iterator[str]:
    if plan.growing:
        yield "state without a bound"
    for growing in plan.growing:
        yield f"  {growing.query}: {growing.synopsis} {_GROWTH[growing.growth]}"
