"""The shedder pass: puts drop operators into the plans of queries that ask for shedding.

A query that sheds windows reads its streams through a `window-drop`, right above the source, and delivers through
`keep-windows` or `hold`; one that sheds rows reads through a `random-drop`. Everything else stays as it was compiled.
Queries that do not ask read the sources themselves and are never affected.

Queries that lose the same units share the window-drop of a stream, which passes what any of them needs, and windows and
aggregates above it as other queries do. Queries that are compiled together agree on common units where that is sound
and lets rows be dropped early (the paper's rule for fan-out); a query that comes later takes over the units of others
as they are if they fit, and never changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import lcm

from cql import bound
from cql.catalog import Catalog, QueryDef
from cql.errors import CqlError
from cql.intervals import Unit
from cql.service import EVICTING, ServiceLevel, service_level
from planner import operators as op
from planner.explain.headlines import headline
from planner.network import compile_definition
from planner.plan import Plan, QueryPlan, combine
from shedding.demand import Cut, DemandStep, cut, delivering, drops_early, formula, grain, sizes
from shedding.joins import check_memory, fitting_policy, with_dual_join, with_evicting_join, with_selective_joins
from shedding.plan_edits import cannot, on, rebuilt, refuse_unsound
from shedding.schedule import Schedule


@dataclass(frozen=True)
class Shed:
    """A query that sheds windows: what it was compiled to, and what its units would be if it were alone."""

    plan: QueryPlan
    level: ServiceLevel
    steps: tuple[DemandStep, ...]
    own: Cut
    tables: tuple[str, ...]
    """The streams that lose rows."""

    def sizes(self, length: int) -> dict[str, int]:
        """Return how much of each source is needed, of those that lose rows; units have some length."""
        return {source: size for source, size in sizes(self.steps, length).items() if size is not None}


# Compiling


def compile_registered(
    definition: QueryDef,
    share: bool = True,
    *,
    epoch: int = 0,
    spread: bool = True,
    known: Sequence[op.Units] = (),
) -> QueryPlan:
    """Compile a registered query with the drop operators that it asks for.

    `known` are units of other queries, which it takes over if they fit.
    """
    compiled = compile_definition(definition, share, epoch=epoch, spread=spread)
    return with_drops(compiled, _level(definition), share, known, definition.utility)


def compile_all(
    definitions: Iterable[QueryDef],
    share: bool = True,
    at: Callable[[QueryDef], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> list[QueryPlan]:
    """Compile queries that start together; those that shed agree on common units.

    `at` is a context for what is done about one query, such as one that says in errors where it is.
    """
    compiled: list[tuple[QueryPlan, QueryDef]] = []
    shed: list[Shed] = []
    for definition in definitions:
        with at(definition):
            plan, level = compile_definition(definition, share), _level(definition)
            compiled.append((plan, definition))
            if policy_of(plan, level) == "window" and definition.utility is None:
                shed.append(profile(plan, level))
            else:
                with_drops(plan, level, share, (), definition.utility)
    known = agreed(shed)
    return [with_drops(plan, _level(each), share, known, each.utility) for plan, each in compiled]


def plan_of(catalog: Catalog) -> Plan:
    """Return the common plan of all queries of a catalog, as they run."""
    return combine(compile_all(catalog.queries.values()))


def with_drops(
    plan: QueryPlan,
    level: ServiceLevel,
    share: bool = True,
    known: Sequence[op.Units] = (),
    utility: bound.Rel | None = None,
) -> QueryPlan:
    """Return the plan of a query with its drop operators; the same plan if it sheds nothing.

    `utility` computes what the pairs of its join are worth.
    """
    policy = policy_of(plan, level)
    _refuse_unused(plan, level, policy, utility)
    match policy:
        case "selective":
            return with_selective_joins(plan, level, share, _random_drops(plan, level), utility)
        case "dual":
            above = _random_drops(plan, level) if level.accept_approximate else lambda _: None
            return with_dual_join(plan, level, share, above)
        case "window":
            return _with_window_drops(profile(plan, level), share, known)
        case "random":
            return _with_random_drops(plan, level, share)
        case _ if policy in EVICTING:
            found = with_evicting_join(plan, replace(level, policy=policy), share)
            check_memory(combine([found]), buckets=1)
            return found
    return plan


def _refuse_unused(plan: QueryPlan, level: ServiceLevel, policy: str, utility: bound.Rel | None) -> None:
    """Raise if a query says what its policy has no use for, so that nobody relies on it."""
    chosen = ", as 'auto' chose" if level.policy == "auto" else ""
    how = "sheds nothing" if policy == "none" else f"sheds by '{policy}'{chosen}"
    for does, option, given in (
        ("bounds", "memory", level.memory),
        ("divides", "allocation", level.allocation),
    ):
        if given is not None and policy not in EVICTING:
            message = f"{does} the memory of its join, which is for 'rand', 'prob' and 'life', and {how}"
            raise cannot(plan, message, option)
    if utility is not None and policy != "selective":
        raise cannot(plan, f"has a utility, which is for 'selective' joins, and {how}", "utility")


def _level(definition: QueryDef) -> ServiceLevel:
    return service_level(definition.options, definition.settings)


def policy_of(plan: QueryPlan, level: ServiceLevel) -> str:
    """Return the policy of a query; instead of `auto`, the one that fits what is scarce and what the query is."""
    if level.policy != "auto":
        return level.policy
    found = fitting_policy(plan, level)
    if found is not None:
        return found
    if level.memory is not None:
        message = "bounds the memory of its join, and 'rand', 'prob' and 'life', which can keep to that, do not fit"
        raise cannot(plan, message, "memory")
    try:
        profile(plan, level)
    except CqlError:
        _refuse_random(plan, level)
        return "random"
    return "window"


def _refuse_random(plan: QueryPlan, level: ServiceLevel) -> None:
    """Raise if not even rows can be lost, so that `auto` has nothing to choose."""
    try:
        _with_random_drops(plan, level, share=True)
    except CqlError as error:
        if _streams(plan):
            raise cannot(plan, "can lose nothing without wrong answers, whatever the policy", "approximate") from error
        raise


def schedules_of(plan: Plan) -> dict[str, Schedule]:
    """Return schedules that lose nothing for all drop operators of a plan."""
    drops = [operator for operator in plan.operators if isinstance(operator, op.SourceDrop)]
    overlapping = {drop.units.schedule for drop in drops if drop.reach > drop.units.length}
    return {
        units.schedule: Schedule(
            units.length, units.batch, units.seed, units.batch if units.schedule in overlapping else 1
        )
        for units in (o.units for o in _shedding(plan))
    }


def loses_anything(plan: Plan) -> bool:
    """Tell whether any query of a plan may lose something."""
    return any(each.adapts != "nothing" for each in plan.operators)


def units_of_query(plan: Plan, query: str) -> op.Units | None:
    """Return the units that a query of a plan loses, None if it sheds nothing."""
    return next((operator.units for operator in _shedding(plan.part(query))), None)


def choices_of_query(plan: Plan, query: str) -> list[str]:
    """Return the schedules of the joins of a query that look at a part."""
    return [each.schedule for each in plan.part(query).operators if isinstance(each, op.PartialJoin)]


def _shedding(plan: Plan) -> Iterator[op.ByUnits]:
    """Yield the operators of a plan that go by units."""
    for operator in plan.operators:
        if isinstance(operator, op.ByUnits):
            yield operator


# Agreeing on units


def agreed(queries: Sequence[Shed]) -> list[op.Units]:
    """Return units that queries of the same streams can have in common, as far as these drop rows early."""
    groups: list[list[Shed]] = []
    for query in queries:
        group = next((group for group in groups if _common_units([*group, query]) is not None), None)
        if group is None:
            groups.append([query])
        else:
            group.append(query)
    return [units for group in groups if (units := _common_units(group)) is not None]


def _common_units(queries: Sequence[Shed]) -> op.Units | None:
    """Return the units of the paper's rule for fan-out; None if they are no use to these queries together."""
    if len({(query.tables, query.level.seed) for query in queries}) > 1:
        return None
    length = lcm(*(query.own.length for query in queries))
    batch = min(query.own.batch * query.own.length // length for query in queries)
    size = max(size for query in queries for size in query.sizes(length).values())
    if batch < 1 or not drops_early(size, length, batch):
        return None
    return _units(queries[0], Cut(length, batch))


def _fits(query: Shed, units: op.Units) -> bool:
    """Tell whether a query can lose the units of others: its windows fit into them, and its gap is kept."""
    same = units.schedule == _units(query, Cut(units.length, units.batch)).schedule
    whole = units.length % query.own.length == 0
    return same and whole and units.batch * units.length <= query.own.batch * query.own.length


def _units(query: Shed, chosen: Cut) -> op.Units:
    return _named_units(query.tables, chosen, query.level.seed)


def _named_units(tables: Sequence[str], chosen: Cut, seed: int, what: str = "") -> op.Units:
    name = f"{what}{'+'.join(tables)}/{chosen.length}x{chosen.batch}" + (f"/{seed}" if seed else "")
    return op.Units(schedule=name, length=chosen.length, batch=chosen.batch, seed=seed)


# Shedding windows


def profile(plan: QueryPlan, level: ServiceLevel) -> Shed:
    """Return what there is to know about shedding windows of a query; raises if it has none that can be lost."""
    operators = {operator.id: operator for operator in plan.operators}
    steps = tuple(_step(operator, operators) for operator in plan.operators)
    if not any(step.kind in ("window", "count") for step in steps):
        raise cannot(plan, "has no window that could be lost", "random")
    sources = plan.sources
    own = cut(steps, level.max_gap, _second(sources)) if delivering(steps) else Cut(1, 1)
    found = sizes(steps, own.length)
    tables = sorted({source.table.casefold() for source in sources if found.get(source.id) is not None})
    if not tables:
        counting = next(step.name for step in steps if step.kind == "count")
        what = headline(operators[counting], operators)
        raise cannot(plan, f"needs every row for ever, for: {what}", "random")
    return Shed(plan, level, steps, own, tuple(tables))


def _with_window_drops(query: Shed, share: bool, known: Sequence[op.Units]) -> QueryPlan:
    units = next((each for each in known if _fits(query, each)), None) or _units(query, query.own)
    needs, rule = query.sizes(units.length), formula(query.steps, units.length)
    output = query.plan.operators[-1]
    kind = op.KeepWindows if output.is_stream else op.Hold

    def above(source: op.Source) -> op.Operator | None:
        size = needs.get(source.id)
        return None if size is None else on(source, op.WindowDrop, units=units, size=size, formula=rule)

    return rebuilt(query.plan, share, above, (kind, {"units": units, "grain": grain(query.steps)}))


def _step(operator: op.Operator, operators: Mapping[str, op.Operator]) -> DemandStep:
    """Return an operator as a step of demand."""
    inputs = tuple(edge.operator for edge in operator.inputs)
    kind, length, slide = operator.time_demand([operators[name].is_stream for name in inputs])
    return DemandStep(operator.id, kind, inputs, length, slide)


# Shedding rows


def _with_random_drops(plan: QueryPlan, level: ServiceLevel, share: bool) -> QueryPlan:
    if not level.accept_approximate:
        refuse_unsound(plan, lambda operator: not operator.inputs and operator.is_stream)
    return rebuilt(plan, share, _random_drops(plan, level), None)


def _random_drops(plan: QueryPlan, level: ServiceLevel) -> Callable[[op.Source], op.Operator | None]:
    """Return what goes above sources to lose rows of all streams of a query together."""
    sources = _streams(plan)
    if not sources:
        raise cannot(plan, "reads no stream", None)
    tables = sorted({source.table.casefold() for source in sources})
    units = _named_units(tables, Cut(_second(sources), 1), level.seed, "rows of ")
    return lambda source: on(source, op.RandomDrop, units=units) if source.is_stream else None


def _streams(plan: QueryPlan) -> list[op.Source]:
    return [source for source in plan.sources if source.is_stream]


def _second(sources: Iterable[op.Source]) -> int:
    """Return how many ticks of the clock of some sources a second has."""
    time = next(source.time for source in sources if source.time is not None)
    return Unit.SECOND.value // time.microseconds_per_tick
