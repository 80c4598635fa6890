"""One line for each operator: what it does, in the names of its inputs' columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cql import bound
from cql.sizes import size_text
from planner import operators as op
from planner.text import aggregate_text, expression_text, sort_text, window_text


def headline(operator: op.Operator, operators: Mapping[str, op.Operator]) -> str:
    """Return what an operator does, without its inputs."""
    lower = _input_names(operator, operators)
    names = [name for each in lower for name in each]
    match operator:
        case op.Source():
            kind = "stream" if not operator.is_relation else "relation" if operator.time else "static relation"
            return f"source {operator.table} ({kind})"
        case op.Ledger():
            return f"ledger {operator.table}"
        case op.Select():
            return "select " + " AND ".join(expression_text(p, names) for p in operator.predicates)
        case op.Project():
            return "project " + ", ".join(expression_text(item, names) for item in operator.items)
        case op.SeqWindow():
            order = "" if operator.order == "source" else ", ties by value"
            return f"seq-window [{window_text(operator.window, names, operator.time)}]{order}"
        case op.SelectiveJoin() | op.DualJoin():
            worth = getattr(operator, "utility", None)
            by = "" if worth is None else f", utility {expression_text(worth, names)}"
            return f"{operator.kind} (as much as time allows{by}){_condition(operator, lower)}"
        case op.BinaryJoin():
            kind = "" if operator.join == "inner" else f"{operator.join} "
            return f"{kind}binary-join{_condition(operator, lower)}"
        case op.EvictingJoin():
            halves = ", half for each input" if operator.allocation == "fixed" else ""
            held = f"{operator.policy} in {size_text(operator.memory)}{halves}"
            return f"evicting-join ({held}){_condition(operator, lower)}"
        case op.SemiJoin() | op.AntiJoin() | op.StreamJoin():
            return f"{operator.kind}{_condition(operator, lower)}"
        case op.MJoin():
            keys = " = ".join(
                "(" + ", ".join(expression_text(key, own) for key in keys) + ")"
                for own, keys in zip(lower, operator.keys, strict=True)
            )
            rest = f" and {expression_text(operator.residual, names)}" if operator.residual else ""
            return f"mjoin on {keys}{rest}"
        case op.Aggregate():
            calls = ", ".join(aggregate_text(call, names) for call in operator.calls)
            keys = ", ".join(expression_text(key, names) for key in operator.keys)
            empty = "" if operator.keys else f", empty row {operator.empty_row.name.lower().replace('_', ' ')}"
            return f"aggregate {calls}" + (f" by {keys}" if keys else "") + empty
        case op.TopN():
            keys = sort_text([bound.SortKey(k.column, k.descending, k.nulls_first) for k in operator.keys], names)
            within = f" of each ({', '.join(names[at] for at in operator.partition)})" if operator.partition else ""
            return f"top-n {operator.limit}{within} by {keys}" + (", numbered" if operator.numbered else "")
        case op.RStream():
            return "r-stream at every tick" if operator.every_tick else "r-stream at elements and slides"
        case op.WindowDrop():
            return f"window-drop: rows that kept units of {operator.units.schedule} need"
        case op.RandomDrop():
            return "random-drop: passes a share of all rows"
        case op.KeepWindows():
            return f"keep-windows: elements of kept units of {operator.units.schedule}"
        case op.Hold():
            return f"hold: as it is in kept units of {operator.units.schedule}"
        case op.Output():
            return f"output {operator.query}"
        case op.Union() | op.Except() | op.Intersect() | op.DuplicateEliminate() | op.IStream() | op.DStream():
            return operator.kind
    raise AssertionError(f"no headline for {type(operator).__name__}")


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
    while len(operator.inputs) == 1 and not isinstance(operator, op.Aggregate):
        operator = operators[operator.inputs[0].operator]
    return operator.table if isinstance(operator, op.Source) else None


def _condition(
    operator: op.BinaryJoin | op.EvictingJoin | op.SemiJoin | op.AntiJoin | op.StreamJoin, lower: list[list[str]]
) -> str:
    pairs = [
        f"{expression_text(a, lower[0])} = {expression_text(b, lower[1])}"
        for a, b in zip(operator.left_keys, operator.right_keys, strict=True)
    ]
    if operator.residual is not None:
        pairs.append(expression_text(operator.residual, lower[0] + lower[1]))
    return " on " + " and ".join(pairs) if pairs else " of all pairs"


def route_text(edge: op.InputEdge, operators: Mapping[str, op.Operator]) -> str:
    """Return how elements get over an edge, in words; nothing for those that stay where they are."""
    if edge.route == "hash":
        names = op.output_names(operators[edge.operator])
        return "hashed by " + ", ".join(expression_text(key, names) for key in edge.keys)
    return "sent to one bucket" if edge.route == "single" else ""
