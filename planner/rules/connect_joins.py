"""Inner joins are made in an order in which each has a condition, wherever there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations

from cql.bound import Call, Expr, Rel
from planner.expressions import columns_read, depends_on_row_only, equality, moved
from planner.join_trees import Term, equal_expressions, is_inner, terms_of
from planner.joins import with_condition
from planner.logical import JoinType, KeyedJoin
from planner.rewriting import outermost_first
from planner.subquery_columns import chosen_columns


@outermost_first
def connect_joins(node: Rel) -> Rel | None:
    """Turn `(X × Z) ⋈[k = l and m = n] Y` into `(X ⋈[k = l] Y) ⋈[m = n] Z`.

        From S1 [Rows 9], S3 [Rows 9], S2 [Rows 9] Where S1.A = S2.A and S2.B = S3.B   ->   S1 and S2 are joined first

    Law: inner joins commute and are associative, equality is transitive. Inputs that equalities connect are joined
    first, each with one before it; then what other conditions connect; what nothing connects comes last. Within that
    inputs keep their order, and joins that are in such an order already stay as they are. Outer joins are inputs.
    """
    if not isinstance(node, KeyedJoin) or not is_inner(node) or not _lacks_keys(node):
        return None
    leaves, shape = _taken_apart(node, [])
    terms = terms_of(node, leaves)
    if len(leaves) < 3 or not all(map(depends_on_row_only, map(_condition, terms))):
        return None
    graph = _Graph.of(leaves, terms)
    wanted = graph.connected()
    if graph.faults(wanted, graph.equal) >= graph.faults(shape, graph.stated):
        return None
    joined, order = _Building(leaves, graph).joined(wanted)
    if order == sorted(order):
        return joined
    place = _places(leaves, order)
    return chosen_columns(joined, (place[at] for at in sorted(place)))


def _lacks_keys(node: Rel) -> bool:
    """Tell whether some join in a tree of inner joins has no keys."""
    if not isinstance(node, KeyedJoin) or not is_inner(node):
        return False
    return not node.left_keys or _lacks_keys(node.left) or _lacks_keys(node.right)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which inputs are joined with which: a single one, or a join of two shapes."""

    inputs: frozenset[int]
    sides: tuple[_Shape, _Shape] | None = None

    @classmethod
    def join(cls, left: _Shape, right: _Shape) -> _Shape:
        return cls(left.inputs | right.inputs, (left, right))

    def joins(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """Return the inputs on both sides of each join."""
        if self.sides is None:
            return []
        left, right = self.sides
        return [*left.joins(), *right.joins(), (left.inputs, right.inputs)]


def _taken_apart(node: Rel, leaves: list[Rel]) -> tuple[list[Rel], _Shape]:
    """Return what a tree of inner joins joins, after some leaves that are known, and how."""
    if not isinstance(node, KeyedJoin) or not is_inner(node):
        leaves.append(node)
        return leaves, _Shape(frozenset([len(leaves) - 1]))
    left, right = (_taken_apart(side, leaves)[1] for side in (node.left, node.right))
    return leaves, _Shape.join(left, right)


def _condition(term: Term) -> Expr:
    return equality(*term) if isinstance(term, tuple) else term


Pairs = dict[frozenset[int], Expr]
"""Equalities by the two inputs that they are between."""


@dataclass(frozen=True, slots=True)
class _Graph:
    """How inputs are connected: by conditions, each with the inputs that it reads, and by equalities.

    Some equalities are stated, and others follow from them.
    """

    size: int
    conditions: list[tuple[frozenset[int], Expr]]
    stated: Pairs
    equal: Pairs

    @classmethod
    def of(cls, leaves: Sequence[Rel], terms: Sequence[Term]) -> _Graph:
        owners = [at for at, rel in enumerate(leaves) for _ in rel.schema]

        def reads(expression: Expr) -> frozenset[int]:
            return frozenset(owners[at] for at in columns_read(expression))

        conditions = [(reads(condition), condition) for condition in map(_condition, terms)]
        equalities = [(left, right) for _, condition in conditions for left, right in _sides(condition)]
        stated = {
            frozenset(reads(left) | reads(right)): equality(left, right)
            for left, right in equalities
            if len(reads(left)) == len(reads(right)) == 1 and reads(left) != reads(right)
        }
        equal = dict(stated)
        for expressions in equal_expressions(list(equalities)):
            owned = [(reads(expression), expression) for expression in expressions]
            singles = [(inputs, expression) for inputs, expression in owned if len(inputs) == 1]
            for (inputs, expression), (others, other) in combinations(singles, 2):
                if others != inputs:
                    equal.setdefault(inputs | others, equality(expression, other))
        return cls(len(leaves), conditions, stated, equal)

    def connected(self) -> _Shape:
        """Return a shape that joins what is connected before what is not."""
        neighbours: list[set[int]] = [set() for _ in range(self.size)]
        for pair in self.equal:
            for at in pair:
                neighbours[at] |= pair
        single = [_Shape(frozenset([at])) for at in range(self.size)]
        by_equality = _chained(single, lambda a, b: any(not a.isdisjoint(neighbours[at]) for at in b))
        return reduce(_Shape.join, _chained(by_equality, self._have_condition))

    def faults(self, shape: _Shape, keys: Pairs) -> tuple[int, int]:
        """Return how many joins come before an equality that they could have, and how many before any condition."""
        late = bare = 0
        for left, right in shape.joins():
            both = left | right
            if any(pair <= both and pair & left and pair & right for pair in keys):
                continue
            late += any(pair & both and not (pair <= left or pair <= right) for pair in self.equal)
            bare += not self._have_condition(left, right)
        return late, bare

    def _have_condition(self, left: frozenset[int], right: frozenset[int]) -> bool:
        both = left | right
        return any(reads <= both and reads & left and reads & right for reads, _ in self.conditions)


def _sides(condition: Expr) -> list[tuple[Expr, Expr]]:
    if isinstance(condition, Call) and condition.function == "eq":
        left, right = condition.arguments
        return [(left, right)]
    return []


def _chained(parts: Sequence[_Shape], linked: Callable[[frozenset[int], frozenset[int]], bool]) -> list[_Shape]:
    """Return joins of what is linked, in which each part follows one that it is linked with."""
    rest, made = list(parts), []
    while rest:
        shape = rest.pop(0)
        while following := next((each for each in rest if linked(shape.inputs, each.inputs)), None):
            rest.remove(following)
            shape = _Shape.join(shape, following)
        made.append(shape)
    return made


@dataclass(slots=True)
class _Building:
    """Makes joins of a shape; every condition is tested as soon as what it reads is joined."""

    leaves: Sequence[Rel]
    graph: _Graph
    tested: set[int] = field(default_factory=set)

    def joined(self, shape: _Shape) -> tuple[Rel, list[int]]:
        """Return the join of a shape, and its inputs in the order of their columns."""
        if shape.sides is None:
            (at,) = shape.inputs
            return self.leaves[at], [at]
        (left, lefts), (right, rights) = map(self.joined, shape.sides)
        join = KeyedJoin(JoinType.INNER, left, right)
        order = [*lefts, *rights]
        place = _places(self.leaves, order)
        conditions = self._conditions(*(side.inputs for side in shape.sides))
        return with_condition(join, [moved(each, join, place.__getitem__) for each in conditions]), order

    def _conditions(self, left: frozenset[int], right: frozenset[int]) -> list[Expr]:
        both = left | right
        found = []
        for at, (reads, condition) in enumerate(self.graph.conditions):
            if at not in self.tested and reads <= both:
                self.tested.add(at)
                found.append(condition)
        between = [pair for pair in self.graph.equal if pair <= both and pair & left and pair & right]
        if between and not any(pair in self.graph.stated for pair in between):
            found.append(self.graph.equal[between[0]])
        return found


def _places(leaves: Sequence[Rel], order: Sequence[int]) -> dict[int, int]:
    """Return where the columns of some inputs are found if the inputs come in another order."""
    widths = [len(rel.schema) for rel in leaves]
    columns = [(sum(widths[:leaf]) + at) for leaf in order for at in range(widths[leaf])]
    return {column: at for at, column in enumerate(columns)}
