"""The plan of a whole network of queries: operators, queues, synopses, stores, chains.

Each query is compiled on its own (`compile_query`); combining queries merges operators of equal id, and
the stores behind them. A plan is immutable and goes to JSON and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from pydantic import BaseModel, ConfigDict

from cql.bound import Rel, slides
from cql.errors import Code, fail
from planner import operators as op
from planner.build import PlanBuilder
from planner.chains import lower_envelope
from planner.operators.state_needs import Facts, Growth
from planner.optimize import optimize
from planner.state import StateBuilder, Store, Stub, Synopsis

FORMAT_VERSION = 1

MOST_PATHS = 100
"""How many paths of a query are looked at: views joined with themselves over and over have endless ones."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Queue(_Model):
    """The elements between a producer and its readers; each reader has its own place in it."""

    id: str
    producer: str
    readers: tuple[str, ...]


class Chain(_Model):
    """Operators to run together on a path from a source to an output, and the slope they are ranked by."""

    operators: tuple[str, ...]
    slope: float


class Path(_Model):
    """One way of elements from a source to a query's output, cut into chains."""

    query: str
    source: str
    chains: tuple[Chain, ...]


class Growing(_Model):
    """State of a query that can grow without limit: which synopsis, and with what."""

    query: str
    synopsis: str
    operator: str
    growth: Growth


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What one query is compiled to: its operators, inputs before readers, the output last."""

    name: str
    operators: tuple[op.Operator, ...]
    stubs: tuple[Stub, ...]
    paths: tuple[Path, ...]

    @property
    def sources(self) -> list[op.Source]:
        """The operators that read the streams and relations of the query."""
        return [operator for operator in self.operators if isinstance(operator, op.Source)]

    def growing(self) -> list[Growing]:
        """Return the state that has no bound in the query or in time."""
        return [
            Growing(query=self.name, synopsis=s.id, operator=s.operator, growth=s.growth)
            for s, _ in self.stubs
            if s.growth in ("keys", "stream")
        ]


def compile_query(
    name: str,
    tree: Rel,
    *,
    share: bool = True,
    disabled: frozenset[str] = frozenset(),
    epoch: int = 0,
    spread: bool = True,
) -> QueryPlan:
    """Return the plan of one query, without the rules that are switched off by name.

    Without `share` none of its parts is merged with anything, in this query or in others. An `epoch` tells when a
    query joined a network that was running: it has seen less of its sources than the queries of epochs before, so
    it shares with those of its own only. Without `spread` it needs one stage and runs in one bucket.
    """
    logical = optimize(tree, disabled)[0]
    builder = PlanBuilder(salt="" if share else name, epoch=epoch, spread=spread)
    builder.output(name, logical, slides(tree))
    return planned(name, builder.operators, share)


def planned(name: str, operators: Mapping[str, op.Operator], share: bool) -> QueryPlan:
    """Return the plan of a query that has been turned into operators: with the state and the paths that follow."""
    facts: dict[str, Facts] = {}
    for operator in operators.values():
        facts[operator.id] = operator.facts([facts[edge.operator] for edge in operator.inputs])
    state = StateBuilder(operators, facts, share)
    for operator in operators.values():
        state.add(operator)
    return QueryPlan(name, tuple(operators.values()), tuple(state.stubs), tuple(_paths(name, operators)))


class Plan(_Model):
    """A network: everything by id, operators in an order in which inputs come before readers."""

    version: int = FORMAT_VERSION
    queries: tuple[str, ...]
    operators: tuple[op.AnyOperator, ...]
    queues: tuple[Queue, ...]
    synopses: tuple[Synopsis, ...]
    stores: tuple[Store, ...]
    paths: tuple[Path, ...]
    growing: tuple[Growing, ...]

    @cached_property
    def by_id(self) -> dict[str, op.Operator]:
        return {operator.id: operator for operator in self.operators}

    @cached_property
    def sources(self) -> tuple[op.Source, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, op.Source))

    @cached_property
    def outputs(self) -> tuple[op.Output, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, op.Output))

    def output(self, query: str) -> op.Output:
        """Return the output operator of a query."""
        for operator in self.outputs:
            if operator.query.casefold() == query.casefold():
                return operator
        raise fail(Code.UNKNOWN_QUERY, f"the plan has no query '{query}'")

    def below(self, operator: op.Operator) -> Iterator[op.Operator]:
        """Yield an operator and everything it reads, each once, inputs first."""
        wanted: set[str] = set()
        stack = [operator.id]
        while stack:
            current = stack.pop()
            if current not in wanted:
                wanted.add(current)
                stack.extend(edge.operator for edge in self.by_id[current].inputs)
        return (each for each in self.operators if each.id in wanted)

    def sources_below(self, operator: op.Operator) -> list[op.Source]:
        """Return the sources that an operator reads in the end."""
        return [each for each in self.below(operator) if isinstance(each, op.Source)]

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """The queries that each operator serves."""
        found: dict[str, list[str]] = {operator.id: [] for operator in self.operators}
        for output in self.outputs:
            for each in self.below(output):
                found[each.id].append(output.query)
        return {key: tuple(names) for key, names in found.items()}

    def part(self, query: str) -> Plan:
        """Return the plan of one query of the network."""
        output = self.output(query)
        kept = tuple(self.below(output))
        ids = {operator.id for operator in kept}
        stubs = {synopsis.id for synopsis in self.synopses if synopsis.operator in ids}
        stores = (s.model_copy(update={"stubs": tuple(x for x in s.stubs if x in stubs)}) for s in self.stores)
        return Plan.model_construct(
            version=self.version,
            queries=(output.query,),
            operators=kept,
            queues=tuple(q for q in self.queues if q.producer in ids),
            synopses=tuple(s for s in self.synopses if s.operator in ids),
            stores=tuple(s for s in stores if s.stubs),
            paths=tuple(p for p in self.paths if p.query == output.query),
            growing=tuple(g for g in self.growing if g.query == output.query),
        )

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of its operators, queues, synopses and stores."""
        return frozenset(e.id for part in (self.operators, self.queues, self.synopses, self.stores) for e in part)

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Load a plan; it equals the one that was written."""
        try:
            plan = cls.model_validate_json(text)
        except ValueError as error:
            raise fail(Code.BAD_DEFINITION, f"this is not a plan: {error}") from None
        if plan.version != FORMAT_VERSION:
            raise fail(
                Code.BAD_DEFINITION,
                f"this plan has format version {plan.version}",
                hint=f"this program reads version {FORMAT_VERSION}",
            )
        return plan

    def explain(self, form: str = "text", query: str | None = None) -> str:
        """Return the plan, or the part of one query, as text, json, dot or mermaid."""
        from planner.explain import explain

        return explain(self, form, query)

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        """Return the plan as notebooks show it."""
        from planner.explain.drawing import to_html

        return to_html(self)


def combine(queries: Iterable[QueryPlan]) -> Plan:
    """Return the plan of several queries together: what has the same id is the same."""
    operators: dict[str, op.Operator] = {}
    stubs: dict[str, Stub] = {}
    names: list[str] = []
    paths: list[Path] = []
    growing: list[Growing] = []
    for query in queries:
        names.append(query.name)
        paths.extend(query.paths)
        growing.extend(query.growing())
        for operator in query.operators:
            known = operators.get(operator.id)
            operators[operator.id] = operator if known is None else known.merged(operator)
        for stub in query.stubs:
            stubs.setdefault(stub.synopsis.id, stub)
    return Plan.model_construct(
        version=FORMAT_VERSION,
        queries=tuple(names),
        operators=tuple(operators.values()),
        queues=tuple(queues_between(operators)),
        synopses=tuple(stub.synopsis for stub in stubs.values()),
        stores=tuple(_stores(stubs.values())),
        paths=tuple(paths),
        growing=tuple(growing),
    )


def queues_between(operators: Mapping[str, op.Operator]) -> Iterator[Queue]:
    """Yield a queue for each operator that others read."""
    readers: dict[str, list[str]] = {}
    for operator in operators.values():
        for port, edge in enumerate(operator.inputs):
            readers.setdefault(edge.operator, []).append(f"{operator.id}:{port}")
    for producer, found in readers.items():
        yield Queue.model_construct(id=f"queue/{producer}", producer=producer, readers=tuple(found))


def _stores(stubs: Iterable[Stub]) -> Iterator[Store]:
    found: dict[str, tuple[Store, list[str]]] = {}
    for synopsis, store in stubs:
        found.setdefault(store.id, (store, []))[1].append(synopsis.id)
    for store, readers in found.values():
        yield store.model_copy(update={"stubs": tuple(readers)})


def _paths(query: str, operators: Mapping[str, op.Operator]) -> Iterator[Path]:
    """Yield the paths from each source to the output, with their chains from estimated costs."""
    *_, output = operators.values()

    def walk(operator: op.Operator, above: tuple[op.Operator, ...]) -> Iterator[tuple[op.Operator, ...]]:
        path = (operator, *above)
        if not operator.inputs:
            yield path
        for edge in operator.inputs:
            yield from walk(operators[edge.operator], path)

    for path in dict.fromkeys(islice(walk(output, ()), MOST_PATHS)):
        steps = path[1:]
        estimates = [step.estimate() for step in steps]
        envelope = lower_envelope([e.cost for e in estimates], [e.selectivity for e in estimates])
        chains = tuple(
            Chain(operators=tuple(o.id for o in steps[s.first : s.last]), slope=round(s.slope, 6)) for s in envelope
        )
        yield Path(query=query, source=path[0].id, chains=chains)
