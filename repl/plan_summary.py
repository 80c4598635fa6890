"""What a query becomes, in a few lines: its plan, what it shares with others, and how much it remembers.

EXPLAIN tells the whole; this is what one wants to know right after registering. It knows plans, not runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cql.catalog import Catalog, QueryDef
from planner import operators as op
from planner.explain.headlines import headline
from planner.plan import Plan
from planner.state import Growth
from shedding.insert_drops import plan_of

MOST_LINES = 8
"""How many lines a plan may take."""

MOST_NAMES = 4
"""How many other queries are named."""

UNBOUNDED = "NOT bounded"

_BOUNDS: dict[Growth, str] = {
    "constant": "of fixed size",
    "relation": "as large as the relations that it reads",
    "window": "by what arrives within its windows",
    "keys": "bounded by how many different keys there are",
    "stream": f"{UNBOUNDED}, it grows with the stream (a window would bound it)",
}
_ORDER: tuple[Growth, ...] = ("constant", "relation", "window", "keys", "stream")


def planned(catalog: Catalog) -> Plan:
    """Return the common plan of all queries of a catalog; raises if one of them has none."""
    return plan_of(catalog)


def registered_lines(plan: Plan, query: QueryDef) -> list[str]:
    """Return what is worth knowing of a query that has just been registered."""
    output = plan.output(query.name)
    lines = [f"  {line}" for line in _tree(plan, plan.by_id[output.inputs[0].operator])]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"  .. {len(lines) - MOST_LINES + 1} more; EXPLAIN QUERY {query.name} shows all"]
    shared = [*_shared_operators(plan, output), *_shared_state(plan, output)]
    return [*lines, *shared, f"  state: {_state(plan.part(query.name))}", *_spread(plan, output)]


def _tree(plan: Plan, operator: op.Operator) -> Iterator[str]:
    """Yield the operators below one, a chain of them in one line and what a join reads below it."""
    chain = [operator]
    while len(chain[-1].inputs) == 1:
        chain.append(plan.by_id[chain[-1].inputs[0].operator])
    yield " → ".join(_step(plan, each) for each in reversed(chain))
    for edge in chain[-1].inputs:
        yield from (f"  {line}" for line in _tree(plan, plan.by_id[edge.operator]))


def _step(plan: Plan, operator: op.Operator) -> str:
    return operator.table if isinstance(operator, op.Source) else headline(operator, plan.by_id)


def _shared_operators(plan: Plan, output: op.Output) -> Iterator[str]:
    """Yield what a query has in common with others, for each set of them; only the last of a chain is told."""
    shared: dict[tuple[str, ...], list[op.Operator]] = {}
    for operator in plan.below(output):
        others = tuple(name for name in plan.users[operator.id] if name != output.query)
        if others:
            shared.setdefault(others, []).append(operator)
    for others, operators in shared.items():
        read = {edge.operator for each in operators for edge in each.inputs}
        tops = [_step(plan, each) for each in operators if each.id not in read]
        yield f"  shared with {_listed(others)}: {', '.join(tops)}"


def _shared_state(plan: Plan, output: op.Output) -> Iterator[str]:
    """Yield what a query remembers together with others."""
    stubs = {synopsis.id: synopsis for synopsis in plan.part(output.query).synopses}
    for store in plan.stores:
        own = [stubs[stub] for stub in store.stubs if stub in stubs]
        users = {name for s in plan.synopses if s.id in store.stubs for name in plan.users[s.operator]}
        others = tuple(sorted(users - {output.query}))
        if own and others and len(own) < len(store.stubs):
            yield f"  state shared with {_listed(others)}: {own[0].holds}"


def _state(part: Plan) -> str:
    """Return how much a query remembers, in words."""
    if not part.synopses:
        return "none"
    wildest = max((synopsis.growth for synopsis in part.synopses), key=_ORDER.index)
    blamed = [synopsis for synopsis in part.synopses if synopsis.growth == wildest]
    if wildest in ("keys", "stream"):
        which = headline(part.by_id[blamed[0].operator], part.by_id)
        return f"{_BOUNDS[wildest]}, for: {which}"
    return f"bounded, {_BOUNDS[wildest]}"


def _spread(plan: Plan, output: op.Output) -> Iterator[str]:
    """Yield why a query, or a part of it, is not spread over the buckets of a run on Spark.

    What an operator above has to have in one bucket is there for its reason.
    """
    reasons = [each.reason for each in plan.below(output) if each.placement == "single" and each.reason]
    if reasons:
        yield f"  on Spark in one bucket: {reasons[-1]}"


def dropped_lines(before: Plan, name: str) -> list[str]:
    """Return what goes with a query that is dropped, and what stays for others."""
    output = before.output(name)
    below = list(before.below(output))
    kept = {user for each in below for user in before.users[each.id] if user != output.query}
    gone = [each for each in below if before.users[each.id] == (output.query,)]
    left = len(below) - len(gone)
    stays = f"; {left} {'stays' if left == 1 else 'stay'} for {_listed(sorted(kept))}" if kept else ""
    operators = "1 operator and its" if len(gone) == 1 else f"{len(gone)} operators and their"
    return [f"  {operators} state are given up{stays}"]


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
