"""A set of registered queries and their common plan, changed one query at a time.

Queries are compiled once, when they are added; adding or dropping one leaves the compiled others as
they are, ids included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from cql.catalog import Catalog, QueryDef
from cql.errors import Code, fail
from planner.explain.headlines import headline
from planner.plan import Plan, QueryPlan, combine, compile_query


@dataclass(frozen=True)
class Network:
    """Compiled queries by name, in the order they were added; immutable."""

    queries: Mapping[str, QueryPlan] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, definitions: Iterable[QueryDef]) -> Network:
        """Return the network of some queries."""
        compiled = (compile_definition(definition) for definition in definitions)
        return cls(MappingProxyType({query.name.casefold(): query for query in compiled}))

    @classmethod
    def of_catalog(cls, catalog: Catalog) -> Network:
        """Return the network of all queries of a catalog."""
        return cls.of(catalog.queries.values())

    def with_query(self, definition: QueryDef) -> Network:
        """Return a network with one more query."""
        compiled = compile_definition(definition)
        return replace(self, queries=MappingProxyType({**self.queries, compiled.name.casefold(): compiled}))

    def without(self, name: str) -> Network:
        """Return a network without a query."""
        kept = {key: query for key, query in self.queries.items() if key != name.casefold()}
        return replace(self, queries=MappingProxyType(kept))

    @cached_property
    def plan(self) -> Plan:
        """The common plan."""
        return combine(self.queries.values())


def compile_definition(definition: QueryDef, share: bool = True, *, epoch: int = 0, spread: bool = True) -> QueryPlan:
    """Compile a registered query; raises if its settings refuse state that grows with a stream."""
    compiled = compile_query(definition.name, definition.tree, share=share, epoch=epoch, spread=spread)
    if definition.settings.unbounded_state == "refuse":
        refuse_unbounded(compiled)
    return compiled


def refuse_unbounded(query: QueryPlan) -> None:
    """Raise if a query has state that grows with the length of a stream."""
    operators = {operator.id: operator for operator in query.operators}
    for growing in query.growing():
        if growing.growth == "stream":
            what = headline(operators[growing.operator], operators)
            raise fail(
                Code.UNBOUNDED_STATE,
                f"query '{query.name}' keeps everything that ever arrives, for: {what}",
                hint="put windows on its streams, or SET unbounded_state = allow",
            )
