"""One line for each operator: what it does, in the names of its inputs' columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cql.bound.text import expression_text
from planner import operators as op


def headline(operator: op.Operator, operators: Mapping[str, op.Operator]) -> str:
    """Return what an operator does, without its inputs."""
    return operator.headline(_input_names(operator, operators))


def _input_names(operator: op.Operator, operators: Mapping[str, op.Operator]) -> list[list[str]]:
    """Return the column names of each input; those that several inputs have are qualified by their source."""
    lower = [op.output_names(operators[edge.operator]) for edge in operator.inputs]
    if len(lower) < 2:
        return lower
    count = Counter(name for names in lower for name in set(names))
    return [
        [f"{source}.{name}" if source and count[name] > 1 else name for name in names]
        for names, source in zip(lower, (_source(e.operator, operators) for e in operator.inputs), strict=True)
    ]


def _source(operator_id: str, operators: Mapping[str, op.Operator]) -> str | None:
    """Return the table that an operator's columns come from, if it is only one."""
    operator = operators[operator_id]
    while len(operator.inputs) == 1 and operator.has_rows_of_input:
        operator = operators[operator.inputs[0].operator]
    return operator.table if isinstance(operator, op.Source) else None


def route_text(edge: op.InputEdge, operators: Mapping[str, op.Operator]) -> str:
    """Return how elements get over an edge, in words; nothing for those that stay where they are."""
    if edge.route == "hash":
        names = op.output_names(operators[edge.operator])
        return "hashed by " + ", ".join(expression_text(key, names) for key in edge.keys)
    return "sent to one bucket" if edge.route == "single" else ""
