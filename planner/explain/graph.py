"""The plan as a graph: DOT for Graphviz, Mermaid for web pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.explain.headlines import headline, route_text

if TYPE_CHECKING:
    from planner.plan import Plan


def to_dot(plan: Plan) -> str:
    """Return the plan for Graphviz: operators as boxes in their fragments, stores as cylinders."""
    lines = ["digraph plan {", "  rankdir=BT;", '  node [shape=box, fontname="Helvetica"];']
    for fragment in dict.fromkeys(operator.fragment for operator in plan.operators):
        lines += [f"  subgraph {_quoted('cluster_' + fragment)} {{", f"    label={_quoted(fragment)};"]
        lines += [
            f"    {_quoted(o.id)} [label={_quoted(headline(o, plan.by_id))}];"
            for o in plan.operators
            if o.fragment == fragment
        ]
        lines.append("  }")
    for operator in plan.operators:
        for edge in operator.inputs:
            label = route_text(edge, plan.by_id)
            lines.append(f"  {_quoted(edge.operator)} -> {_quoted(operator.id)} [label={_quoted(label)}];")
    owner = {synopsis.id: synopsis.operator for synopsis in plan.synopses}
    for store in plan.stores:
        lines.append(f"  {_quoted(store.id)} [shape=cylinder, label={_quoted(store.id.removeprefix('store/'))}];")
        lines += [f"  {_quoted(owner[stub])} -> {_quoted(store.id)} [style=dashed, dir=none];" for stub in store.stubs]
    return "\n".join([*lines, "}", ""])


def to_mermaid(plan: Plan) -> str:
    """Return the plan for Mermaid."""
    lines = ["flowchart BT"]
    numbers = {operator.id: f"o{at}" for at, operator in enumerate(plan.operators)}
    for fragment in dict.fromkeys(operator.fragment for operator in plan.operators):
        lines.append(f"  subgraph {fragment}")
        lines += [
            f'    {numbers[o.id]}["{_escaped(headline(o, plan.by_id))}"]'
            for o in plan.operators
            if o.fragment == fragment
        ]
        lines.append("  end")
    for operator in plan.operators:
        for edge in operator.inputs:
            route = route_text(edge, plan.by_id)
            arrow = f'-- "{_escaped(route)}" -->' if route else "-->"
            lines.append(f"  {numbers[edge.operator]} {arrow} {numbers[operator.id]}")
    owner = {synopsis.id: synopsis.operator for synopsis in plan.synopses}
    for at, store in enumerate(plan.stores):
        lines.append(f'  s{at}[("{_escaped(store.id.removeprefix("store/"))}")]')
        lines += [f"  {numbers[owner[stub]]} -.- s{at}" for stub in store.stubs]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return text.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
