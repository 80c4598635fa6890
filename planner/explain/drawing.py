"""The plan as a drawing for notebooks: operators as boxes from left to right, in plain SVG, everything escaped.

Operators stand in the column after the last of their inputs, as high as their inputs do on average. What serves
several queries has a strong border; how elements are sent to an operator, and what it keeps, stands in its box.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from planner import operators as op
from planner.explain.headlines import headline, route_text

if TYPE_CHECKING:
    from planner.plan import Plan

_WIDTH, _GAP_X, _GAP_Y, _MARGIN = 222, 42, 18, 12
_LINE, _PADDING, _LETTERS, _MOST_LINES = 15, 9, 31, 5
_SOURCE, _OUTPUT, _BETWEEN = "#e3eef7", "#e4f2e6", "#f7f7f5"


@dataclass(frozen=True)
class _Box:
    """An operator in the drawing."""

    operator: op.Operator
    lines: tuple[str, ...]
    routes: tuple[str, ...]
    notes: tuple[str, ...]
    users: tuple[str, ...]
    is_output: bool
    x: float
    y: float

    @property
    def height(self) -> float:
        return _height(len(self.lines) + len(self.routes) + len(self.notes))

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def _height(lines: int) -> float:
    return 2 * _PADDING + _LINE * lines


def to_html(plan: Plan) -> str:
    """Return the drawing, and below it the plan as text, folded away."""
    text = escape(plan.explain())
    style = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.35"
    return f'{to_svg(plan)}<details><summary>as text</summary><pre style="{style}">{text}</pre></details>'


def to_svg(plan: Plan) -> str:
    """Return the drawing."""
    boxes = {box.operator.id: box for box in _placed(plan)}
    width = max((box.x + _WIDTH for box in boxes.values()), default=0.0) + _MARGIN
    height = max((box.y + box.height for box in boxes.values()), default=0.0) + _MARGIN
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" style="background:#fff;max-width:none" '
            'font-family="ui-sans-serif,system-ui,sans-serif" font-size="12">',
            *(part for box in boxes.values() for part in _arrows(box, boxes)),
            *(part for box in boxes.values() for part in _drawn(box)),
            "</svg>",
        ]
    )


def _placed(plan: Plan) -> Iterator[_Box]:
    """Yield the operators with their places, column by column."""
    level: dict[str, int] = {}
    for operator in plan.operators:
        level[operator.id] = max((level[edge.operator] + 1 for edge in operator.inputs), default=0)
    middles: dict[str, float] = {}
    for number in range(max(level.values(), default=-1) + 1):
        column = [operator for operator in plan.operators if level[operator.id] == number]
        wanted = {each.id: _mean([middles[edge.operator] for edge in each.inputs]) for each in column}
        bottom = float(_MARGIN)
        for operator in sorted(column, key=lambda each: wanted[each.id]):
            lines = _wrapped(headline(operator, plan.by_id), _MOST_LINES)
            routes, notes = _routes(operator, plan), _notes(operator, plan)
            height = _height(len(lines) + len(routes) + len(notes))
            y = max(bottom, wanted[operator.id] - height / 2)
            x = _MARGIN + number * (_WIDTH + _GAP_X)
            box = _Box(operator, lines, routes, notes, plan.users[operator.id], operator in plan.outputs, x, y)
            middles[operator.id], bottom = box.middle, y + height + _GAP_Y
            yield box


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _routes(operator: op.Operator, plan: Plan) -> tuple[str, ...]:
    """Return how elements get here from other tasks."""
    routes = dict.fromkeys(route_text(edge, plan.by_id) for edge in operator.inputs)
    return tuple(line for route in routes if route for line in _wrapped(f"({route})", 2))


def _notes(operator: op.Operator, plan: Plan) -> tuple[str, ...]:
    kept = [f"keeps {synopsis.holds}" for synopsis in plan.synopses if synopsis.operator == operator.id]
    return tuple(line for note in dict.fromkeys(kept) for line in _wrapped(note, 2))


def _wrapped(text: str, most: int) -> tuple[str, ...]:
    return tuple(textwrap.wrap(text, _LETTERS, max_lines=most, placeholder=" ..")) or ("",)


def _drawn(box: _Box) -> Iterator[str]:
    is_shared = len(box.users) > 1
    fill = _OUTPUT if box.is_output else _BETWEEN if box.operator.inputs else _SOURCE
    line = 'stroke="#444" stroke-width="2"' if is_shared else 'stroke="#b5b5b5" stroke-width="1"'
    for_whom = f", for {', '.join(box.users)}" if is_shared else ""
    yield f"<g><title>{escape(' '.join(box.lines))}  #{escape(box.operator.id)}{escape(for_whom)}</title>"
    yield f'<rect x="{box.x:g}" y="{box.y:g}" width="{_WIDTH}" height="{box.height:g}" rx="6" fill="{fill}" {line}/>'
    texts = [(line, "#222") for line in box.lines]
    texts += [(route, "#777") for route in box.routes] + [(note, "#8a5a2b") for note in box.notes]
    for number, (text, colour) in enumerate(texts):
        y = box.y + _PADDING + _LINE * (number + 0.78)
        weight = ' font-weight="600"' if number == 0 else ""
        yield f'<text x="{box.x + 10:g}" y="{y:g}" fill="{colour}"{weight}>{escape(text)}</text>'
    yield "</g>"


def _arrows(box: _Box, boxes: Mapping[str, _Box]) -> Iterator[str]:
    for edge in box.operator.inputs:
        start = boxes[edge.operator]
        x, y, to_x, to_y = start.x + _WIDTH, start.middle, box.x, box.middle
        bend = (to_x - x) / 2
        yield (
            f'<path d="M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x - 6:g},{to_y:g}" '
            'fill="none" stroke="#999" stroke-width="1.4"/>'
            f'<path d="M{to_x:g},{to_y:g} l-7,-4 v8 z" fill="#999"/>'
        )
