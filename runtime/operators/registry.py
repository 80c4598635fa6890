"""Which class does the work of each kind of operator, and what the pieces of its state are.

An implementation is registered where it is defined, for the nodes of the plan that it is for:

    @implements(op.Union)
    class Union(Operator): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.operators.base import Context, Operator, StepFigures
from runtime.operators.state_words import InputColumns, StatePiece, plain_piece

Make = Callable[[Any, Context], Operator]
Describe = Callable[[Any, InputColumns, str], StatePiece]
"""Says what a piece of the state of a node is, by its name."""

AnyMake = TypeVar("AnyMake", bound=Make)


class Step:
    """What an operator that goes row by row does with rows, wherever they are: made of a node and users' functions."""

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        """Return what becomes of rows."""
        raise NotImplementedError

    def figures(self) -> Sequence[StepFigures]:
        """Return what the parts of it have done since they were to count anew, if it has several."""
        return ()

    def count_anew(self) -> None:
        """Begin to count."""


MakeStep = Callable[[Any, Mapping[str, Any]], Step]


@dataclass(frozen=True, slots=True)
class Implementation:
    """How the work of a kind of operator is done; `make_step` is for those that go row by row."""

    make: Make
    describe: Describe
    make_step: MakeStep | None


IMPLEMENTATIONS: dict[type[op.Operator], Implementation] = {}
"""All but that of sources, which do nothing but pass on what is pushed into them."""


def implements(
    *kinds: type[op.Operator], state: Describe = plain_piece, step: MakeStep | None = None
) -> Callable[[AnyMake], AnyMake]:
    """Return a decorator that registers what makes the operators of some kinds."""

    def register(make: AnyMake) -> AnyMake:
        IMPLEMENTATIONS.update(dict.fromkeys(kinds, Implementation(make, state, step)))
        return make

    return register


def make_operator(node: op.Operator, context: Context) -> Operator:
    """Return an operator of a plan, ready to work."""
    return IMPLEMENTATIONS[type(node)].make(node, context)


def make_step(node: op.Operator, functions: Mapping[str, Any]) -> Step:
    """Return what an operator that goes row by row does with rows."""
    make = IMPLEMENTATIONS[type(node)].make_step
    assert make is not None, f"{node.kind} does not go row by row"
    return make(node, functions)


def piece_of_state(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of an operator is."""
    return IMPLEMENTATIONS[type(node)].describe(node, inputs, piece)
