"""The shedder pass for joins: puts joins that hold or look at a part in the place of those that do it all.

Each of them fits some joins only. What it finds is a part of what the join would find, so that what stands above it
has to make fewer rows of fewer rows; otherwise wrong answers have to be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from cql import bound
from cql.errors import Code, CqlError, fail
from cql.service import ServiceLevel
from cql.sizes import size_text
from cql.types import Kind
from planner import operators as op
from planner.explain.headlines import headline
from planner.expressions import shifted
from planner.plan import Plan, QueryPlan, compile_query
from shedding.budgets import least_memory
from shedding.plan_edits import cannot, rebuilt, refuse_unsound

Operators = Mapping[str, op.Operator]


def fitting_policy(plan: QueryPlan, level: ServiceLevel) -> str | None:
    """Return the policy that fits the joins of a query; None if none of those for joins does.

    What a query says that it has little of is scarce: memory, if it says how much; time otherwise.
    """
    wanted: dict[str, Callable[[], QueryPlan]]
    if level.memory is not None:
        wanted = {"prob": lambda: with_evicting_join(plan, replace(level, policy="prob"), share=True)}
    else:
        wanted = {
            "dual": lambda: with_dual_join(plan, level, True, lambda _: None),
            "selective": lambda: with_selective_joins(plan, level, True, lambda _: None),
        }
    for policy, attempt in wanted.items():
        try:
            attempt()
        except CqlError:
            continue
        return policy
    return None


# Too little memory


def with_evicting_join(plan: QueryPlan, level: ServiceLevel, share: bool) -> QueryPlan:
    """Return a plan whose join holds the rows that are most likely to match."""
    if level.memory is None:
        message = f"the query '{plan.name}' does not say how much memory its join may use"
        raise fail(Code.CANNOT_SHED, message, hint=f"add memory = '64 MB' to shedding = '{level.policy}'")
    join, windows = _equijoin_of_ranges(plan)
    chosen: dict[str, Any] = {
        "policy": level.policy,
        "memory": level.memory,
        "allocation": level.allocation or "variable",
        "windows": windows,
        "seed": level.seed,
    }
    same = {name: getattr(join, name) for name in op.BinaryJoin.model_fields if name not in ("id", "kind", "join")}
    return _instead(plan, level, share, {join.id: op.EvictingJoin(**same, **chosen)})


def check_memory(plan: Plan, buckets: int) -> None:
    """Raise if the memory of a join is too little for a row of each input in each bucket."""
    for join in plan.operators:
        if isinstance(join, op.EvictingJoin):
            places = buckets if join.placement == "hash" else 1
            least = places * least_memory(join)
            if join.memory < least:
                names = [query for query in plan.queries if join in plan.below(plan.output(query))]
                message = (
                    f"the query '{names[0]}' gives its join {size_text(join.memory)}; a row of each input, in each of "
                    f"its buckets, takes {size_text(least)} at least"
                )
                raise fail(Code.CANNOT_SHED, message, hint="give it more memory, or leave out the shedding")


def _equijoin_of_ranges(plan: QueryPlan) -> tuple[op.BinaryJoin, tuple[int, int]]:
    """Return the join of a query, and how long its windows are; raises if it is not one that can give up rows."""
    join = _only_join(plan, "'rand', 'prob' and 'life' are")
    windows = _ranges_below(join, {operator.id: operator for operator in plan.operators})
    if windows is None:
        raise cannot(plan, "joins what is not two windows of time, which 'rand', 'prob' and 'life' are for", "join")
    return join, windows


def _only_join(plan: QueryPlan, policies: str) -> op.BinaryJoin:
    """Return the join of a query; raises if that is not one of two inputs by equal values."""
    joins = [each for each in plan.operators if isinstance(each, op.BinaryJoin | op.MJoin)]
    if len(joins) != 1 or not isinstance(joins[0], op.BinaryJoin):
        raise cannot(plan, f"is not one join of two inputs, which {policies} for", "join")
    join = joins[0]
    if join.join != "inner" or not join.left_keys:
        what = headline(join, {operator.id: operator for operator in plan.operators})
        raise cannot(plan, f"has no inner join by equal values, which {policies} for: {what}", "join")
    return join


# Too little time, windows of time


def with_selective_joins(
    plan: QueryPlan,
    level: ServiceLevel,
    share: bool,
    above: Callable[[op.Source], op.Operator | None],
    utility: bound.Rel | None = None,
) -> QueryPlan:
    """Return a plan whose joins of two windows look at the ages that are worth it; `above` may lose rows before that.

    Of joins of several inputs, those of two windows do so; the others take what these find. What pairs are worth can
    be said for one join only.
    """
    joins = _joins_of_ranges(plan)
    worth: dict[str, Any] = {} if utility is None else _worth(plan, [join for join, _ in joins], utility)
    instead: dict[str, op.Operator] = {}
    for join, windows in joins:
        same = {name: getattr(join, name) for name in op.BinaryJoin.model_fields if name not in ("id", "kind")}
        schedule = _schedule("selective", join, level, repr(worth) if worth else "")
        instead[join.id] = op.SelectiveJoin(**same, **worth, schedule=schedule, windows=windows, seed=level.seed)
    return _instead(plan, level, share, instead, above)


def _worth(plan: QueryPlan, joins: Sequence[op.BinaryJoin], utility: bound.Rel) -> dict[str, Any]:
    """Return what the pairs of a join are worth, and what of that is known of a row of either input alone."""
    if sum(isinstance(each, op.BinaryJoin | op.MJoin) for each in plan.operators) > 1:
        raise cannot(plan, "is not one join of two inputs, whose pairs could have a utility", "utility")
    compiled = compile_query(plan.name, utility)
    operators = {operator.id: operator for operator in compiled.operators}
    projected = operators[compiled.operators[-1].inputs[0].operator]
    below = operators[projected.inputs[0].operator]
    if not isinstance(below, op.BinaryJoin) or below.columns != joins[0].columns:
        raise cannot(plan, "does not take pairs as its join finds them, so that they cannot have a utility", "utility")
    left = len(operators[below.inputs[0].operator].columns)
    (worth,) = projected.computed
    own = tuple(_known_of(worth, lambda index: index < left))
    other = tuple(shifted(each, -left) for each in _known_of(worth, lambda index: index >= left))
    return {"utility": worth, "types": (own, other)}


def _known_of(expression: bound.Expr, is_own: Callable[[int], bool]) -> Iterator[bound.Expr]:
    """Yield the largest parts of an expression that are about columns of one input, numbers or truth values."""
    columns = [part.index for part in bound.walk(expression) if isinstance(part, bound.ColumnRef)]
    if columns and all(is_own(index) for index in columns):
        if expression.type.is_numeric or expression.type.kind is Kind.BOOLEAN:
            yield expression
            return
    for part in bound.children(expression):
        yield from _known_of(part, is_own)


def _joins_of_ranges(plan: QueryPlan) -> list[tuple[op.BinaryJoin, tuple[int, int]]]:
    """Return the joins of two windows of time, and how long these are; raises if there are none."""
    operators = {operator.id: operator for operator in plan.operators}
    joins = [each for each in plan.operators if isinstance(each, op.BinaryJoin | op.MJoin)]
    found = [
        (join, windows)
        for join in joins
        if isinstance(join, op.BinaryJoin) and join.join == "inner" and (windows := _ranges_below(join, operators))
    ]
    if not found:
        what = f": {headline(joins[0], operators)}" if joins else ""
        raise cannot(plan, f"has no inner join of two windows of time, which 'selective' is for{what}", "join")
    return found


def _ranges_below(join: op.BinaryJoin, operators: Operators) -> tuple[int, int] | None:
    """Return for how many ticks rows of the inputs of a join are there; None if these are not windows of time."""
    left, right = (_range_below(operators[edge.operator], operators) for edge in join.inputs)
    return None if left is None or right is None else (left, right)


def _range_below(operator: op.Operator, operators: Operators) -> int | None:
    """Return for how many ticks, at most, rows of a window of time are there, seen through filters and projections."""
    while operator.is_row_by_row:
        operator = operators[operator.inputs[0].operator]
    match operator.window_spec:
        case bound.RangeSpec(ticks=ticks, slide=slide):
            return ticks + (slide or 0)
    return None


# Too little time, windows of rows


def with_dual_join(
    plan: QueryPlan, level: ServiceLevel, share: bool, above: Callable[[op.Source], op.Operator | None]
) -> QueryPlan:
    """Return a plan in whose join rows that find few others do not look; `above` may lose rows before that."""
    join, windows = _equijoin_of_rows(plan)
    same = {name: getattr(join, name) for name in op.BinaryJoin.model_fields if name not in ("id", "kind")}
    dual = op.DualJoin(**same, schedule=_schedule("dual", join, level), windows=windows, seed=level.seed)
    return _instead(plan, level, share, {join.id: dual}, above)


def _equijoin_of_rows(plan: QueryPlan) -> tuple[op.BinaryJoin, tuple[int, int]]:
    """Return the join of a query, and how many rows its windows have.

    Raises if it is not one of two windows that count rows, by equal values.
    """
    join = _only_join(plan, "'dual' is")
    operators = {operator.id: operator for operator in plan.operators}
    left, right = (_rows_of(operators[edge.operator]) if edge.route == "local" else None for edge in join.inputs)
    if left is None or right is None:
        raise cannot(plan, "joins what is not two windows of the last rows, as they are, which 'dual' is for", "join")
    return join, (left, right)


def _rows_of(operator: op.Operator) -> int | None:
    """Return how many rows a window has; None if it is not one that counts them."""
    return operator.window_spec.rows if isinstance(operator.window_spec, bound.RowsSpec) else None


# Both


def _schedule(policy: str, join: op.BinaryJoin, level: ServiceLevel, more: str = "") -> str:
    seed = f"/{level.seed}" if level.seed else ""
    return f"{policy} {join.id}{seed}" + (f"/{sha256(more.encode()).hexdigest()[:4]}" if more else "")


def _instead(
    plan: QueryPlan,
    level: ServiceLevel,
    share: bool,
    instead: Mapping[str, op.Operator],
    above: Callable[[op.Source], op.Operator | None] = lambda _: None,
) -> QueryPlan:
    """Return a plan with other joins; raises if that could make answers wrong, and nobody has accepted that."""
    if not level.accept_approximate:
        refuse_unsound(plan, lambda operator: operator.id in instead)
    return rebuilt(plan, share, above, None, instead)
