"""Compiles expressions: each distinct part becomes one step, and constants are computed when they are compiled.

A program is a list of steps over registers. A part is known by its function and the registers of its operands, so
that equal parts share one register. A CASE that calls user functions evaluates its parts only for the rows that get
there, so that they are never called with arguments that the query excludes; everything else is total, and evaluated
for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.bound import Call, Case, Cast, ColumnRef, Expr, Literal, UserCall, children, walk
from cql.functions.scalars import SCALARS
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints, Mask
from runtime.expressions import arithmetic, logic, patterns, sets, strings, times
from runtime.expressions.casts import cast
from runtime.expressions.plain import fit
from runtime.expressions.user import NO_FUNCTIONS, Functions, user_function
from runtime.expressions.values import Datum, Kernel, canonical, constant, is_constant, null, spread, truths
from runtime.user_errors import UserFunctionFailed

KERNELS: dict[str, Kernel] = {
    **arithmetic.KERNELS,
    **logic.KERNELS,
    **strings.KERNELS,
    **patterns.KERNELS,
    **sets.KERNELS,
    **times.KERNELS,
}
"""How each operator and built-in function is computed, by its name in `cql.functions.scalars`."""

Evaluation = Callable[[Sequence[pa.Array], int], pa.Array]
Step = Callable[[Sequence[Datum], Sequence[pa.Array], int], Datum]


def compile_expression(expression: Expr, functions: Functions = NO_FUNCTIONS) -> Evaluation:
    """Return what computes an expression from the columns of a batch and its length."""
    projection = compile_projection([expression], functions)
    return lambda columns, length: projection(columns, length)[0]


def compile_projection(
    expressions: Sequence[Expr], functions: Functions = NO_FUNCTIONS
) -> Callable[[Sequence[pa.Array], int], list[pa.Array]]:
    """Return what computes several expressions at once; what they have in common is computed once."""
    program = _Program(functions)
    places = [program.add(expression) for expression in expressions]
    types = [expression.type for expression in expressions]

    def evaluate(columns: Sequence[pa.Array], length: int) -> list[pa.Array]:
        if not length:
            return [pa.nulls(0, arrow_type(each)) for each in types]
        registers = program.run(columns, length)
        return [_finished(registers[at], each, length) for at, each in zip(places, types, strict=True)]

    return evaluate


def compile_predicate(
    predicates: Sequence[Expr], functions: Functions = NO_FUNCTIONS
) -> Callable[[Sequence[pa.Array], int], Mask]:
    """Return what tells for which rows of a batch all predicates are true, not NULL."""
    fused = Fused(predicates, functions)

    def evaluate(columns: Sequence[pa.Array], length: int) -> Mask:
        return all_true(list(fused.values(columns, length)), length) if length else np.zeros(0, np.bool_)

    return evaluate


class Fused:
    """Predicates that are all computed for the same rows; what they have in common is computed once."""

    def __init__(self, predicates: Sequence[Expr], functions: Functions = NO_FUNCTIONS) -> None:
        self._program = _Program(functions)
        self._ends: list[tuple[int, int]] = []
        """Up to which step each predicate takes, and in which register it is then."""
        for predicate in predicates:
            place = self._program.add(predicate)
            self._ends.append((len(self._program.steps), place))

    def values(self, columns: Sequence[pa.Array], length: int) -> Iterator[Datum]:
        """Yield what each predicate is for some rows, one after the other."""
        registers, first = self._program.start(), 0
        for last, place in self._ends:
            self._program.go_on(registers, first, last, columns, length)
            first = last
            yield registers[place]


def all_true(conditions: Sequence[Datum], length: int) -> Mask:
    """Return the rows for which all conditions are true, not NULL."""
    if any(is_constant(each) and each.as_py() is not True for each in conditions):
        return np.zeros(length, np.bool_)
    varying = [each for each in conditions if not is_constant(each)]
    return truths(reduce(pc.and_kleene, varying)) if varying else np.ones(length, np.bool_)


class Chosen(Sequence[pa.Array]):
    """The columns of some of the rows; each is taken when it is first read."""

    def __init__(self, columns: Sequence[pa.Array], rows: Ints) -> None:
        self._columns = columns
        self._rows = pa.array(rows)
        self._taken: dict[int, pa.Array] = {}

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, at: Any) -> Any:
        if at not in self._taken:
            self._taken[at] = self._columns[at].take(self._rows)
        return self._taken[at]


def chosen(columns: Sequence[pa.Array], rows: Ints, length: int) -> Sequence[pa.Array]:
    """Return the columns of some rows, of so many."""
    return columns if len(rows) == length else Chosen(columns, rows)


def _finished(datum: Datum, data_type: DataType, length: int) -> pa.Array:
    """Return a register as a result: a column of its type, its doubles in normal form."""
    array = spread(datum, length)
    assert array.type == arrow_type(data_type) and len(array) == length, f"{array.type} is not {data_type}"
    return canonical(array) if data_type.kind is Kind.DOUBLE else array


@dataclass(slots=True)
class _Program:
    """Steps in the order in which they run. A register is a constant or the result of its step."""

    functions: Functions
    registers: list[Datum | None] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    known: dict[Hashable, int] = field(default_factory=dict)

    def run(self, columns: Sequence[pa.Array], length: int) -> list[Datum]:
        """Return all registers for a batch."""
        registers = self.start()
        self.go_on(registers, 0, len(self.steps), columns, length)
        return registers

    def start(self) -> list[Datum]:
        """Return registers that have the constants only."""
        return list(self.registers)

    def go_on(self, registers: list[Datum], first: int, last: int, columns: Sequence[pa.Array], length: int) -> None:
        """Run some of the steps, those before them being done."""
        for place, step in self.steps[first:last]:
            registers[place] = step(registers, columns, length)

    def add(self, expression: Expr) -> int:
        """Return the register of an expression, compiling what is new of it."""
        target = expression.type
        if target.kind is Kind.NULL:
            return self._once((target, None), lambda: self._constant(null(target)))
        match expression:
            case Literal(value=value):
                return self._once((target, value), lambda: self._constant(constant(fit(value, target), target)))
            case ColumnRef(index=index, depth=0):
                return self._once(index, lambda: self._step(lambda registers, columns, length: columns[index]))
            case Call(function=name):
                return self._call(KERNELS[name], name, expression, SCALARS[name].null_in_null_out)
            case Cast(operand=operand):
                return self._call(cast(operand.type, target), "cast", expression, True)
            case UserCall(function=name):
                return self._call(user_function(expression, self.functions[name]), f"user {name}", expression, False)
            case Case() if _calls_user_functions(expression):
                return self._step(_branching(expression, self.functions))
            case Case():
                return self._call(logic.choose, "case", expression, False)
        raise NotImplementedError(f"{type(expression).__name__} is no expression over a row")

    def _once(self, key: Hashable, make: Callable[[], int]) -> int:
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def _call(self, kernel: Kernel, name: str, expression: Expr, null_in_null_out: bool) -> int:
        target = expression.type
        operands = tuple(self.add(operand) for operand in children(expression))
        step = _calling(kernel, target, operands, null(target) if null_in_null_out else None)
        foldable = not isinstance(expression, UserCall) and all(self.registers[at] is not None for at in operands)

        def make() -> int:
            return self._constant(step(self.registers, (), 1)) if foldable else self._step(step)

        return self._once((name, target, operands), make)

    def _constant(self, scalar: pa.Scalar) -> int:
        self.registers.append(scalar)
        return len(self.registers) - 1

    def _step(self, step: Step) -> int:
        self.registers.append(None)
        place = len(self.registers) - 1
        self.steps.append((place, step))
        return place


def _calling(kernel: Kernel, target: DataType, operands: Sequence[int], if_null: pa.Scalar | None) -> Step:
    """Return the step that calls a kernel; `if_null` is what a constant NULL among the operands makes it without."""

    def step(registers: Sequence[Datum], columns: Sequence[pa.Array], length: int) -> Datum:
        arguments = [registers[at] for at in operands]
        if if_null is not None and any(is_constant(each) and not each.is_valid for each in arguments):
            return if_null
        if all(map(is_constant, arguments)):
            return kernel(target, *(pa.repeat(each, 1) for each in arguments))[0]
        try:
            return kernel(target, *arguments)
        except UserFunctionFailed:
            _fail_at_row(kernel, target, arguments, columns, length)
            raise

    return step


def _fail_at_row(
    kernel: Kernel, target: DataType, arguments: Sequence[Datum], columns: Sequence[pa.Array], length: int
) -> None:
    """Raise the failure of a user function again for the first row that triggers it, with the values of that row."""
    for row in range(length):
        try:
            kernel(target, *(each if is_constant(each) else each.slice(row, 1) for each in arguments))
        except UserFunctionFailed as failure:
            failure.values = tuple(column[row].as_py() for column in columns)
            raise


def _calls_user_functions(expression: Case) -> bool:
    return any(isinstance(part, UserCall) for part in walk(expression))


def _branching(case: Case, functions: Functions) -> Step:
    """Return the step that evaluates each part of a CASE for those rows only that get there."""
    branches = [
        (compile_predicate([condition], functions), compile_expression(result, functions))
        for condition, result in case.branches
    ]
    otherwise = compile_expression(case.otherwise, functions)

    def step(registers: Sequence[Datum], columns: Sequence[pa.Array], length: int) -> pa.Array:
        places: list[Ints] = []
        results: list[pa.Array] = []
        left: Ints = np.arange(length)
        for condition, result in branches:
            holds = condition(chosen(columns, left, length), len(left))
            places.append(left[holds])
            results.append(result(chosen(columns, places[-1], length), len(places[-1])))
            left = left[~holds]
        places.append(left)
        results.append(otherwise(chosen(columns, left, length), len(left)))
        back = np.argsort(np.concatenate(places))
        return pa.concat_arrays(results).take(pa.array(back))

    return step
