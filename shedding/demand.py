"""Which rows the answers of a stretch of time need: demand, from the output of a query down to its streams.

Follows sections 5.4, 5.5 and 14 of the sheet `papers/windrop.md`, with the instants of CQL, which are ends of windows.
A unit with end E is about the answers whose last step is in (E - length, E]. An operator that is asked for what it puts
out at some instants asks its inputs for others: a window of T ticks for the T ticks before, an Istream for one instant
more. What is asked of a stream in the end, over all places where units and slides can lie to each other, is the size
of the window that a drop operator has to keep.

This module knows steps, not plans: `shedding/insert_drops.py` makes steps of operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Literal, NamedTuple

Kind = Literal["stream", "log", "static", "same", "window", "count", "difference", "contents", "probe"]

EVERYTHING = -(2**62)
"""The start of a demand that has none: of windows that count rows, or keep all of a stream."""

MOST_ENDS = 2048
"""How many ends of units are tried; where slides line up less often, sizes are those of the worst case."""


@dataclass(frozen=True, slots=True)
class DemandStep:
    """An operator, as far as it matters at which instants it needs its inputs.

    | kind | what it is | what it needs |
    |---|---|---|
    | stream | a registered stream | |
    | log, static | a relation that changes or does not | |
    | same | filters, projections, joins, aggregates, .. | its inputs at the same instants |
    | window | `[Range length Slide slide]` | the elements of the last `length` ticks |
    | count | a window that counts rows, or has no bound | everything before |
    | difference | Istream, Dstream | the relation at the instant and at the one before |
    | contents | Rstream at multiples of `slide`, or at every tick | the relation at the instant |
    | probe | elements of the first input, joined with the second | both at the instants of the elements |
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    length: int = 0
    slide: int | None = None


class Grain(NamedTuple):
    """At multiples of what the output of a step changes, and the elements of a stream are; 0 for never."""

    changes: int
    elements: int


class InstantSpan(NamedTuple):
    """Instants from a first to a last one; none if they are the wrong way round."""

    first: int
    last: int


class Delivering(NamedTuple):
    """A window whose answers leave the query as they are; without a slide it moves with every tick."""

    length: int
    slide: int | None


def grains(steps: Sequence[DemandStep]) -> dict[str, Grain]:
    """Return the grains of steps, of which inputs come before readers."""
    found: dict[str, Grain] = {}
    for step in steps:
        below = [found[name] for name in step.inputs]
        changes = gcd(*(grain.changes for grain in below))
        match step.kind:
            case "static":
                grain = Grain(0, 0)
            case "window":
                changes = step.slide or gcd(below[0].elements, step.length)
                grain = Grain(changes, changes)
            case "difference":
                grain = Grain(changes, changes)
            case "contents":
                grain = Grain(changes, step.slide or 1)
            case "probe" | "same":
                grain = Grain(changes, below[0].elements)
            case _:
                grain = Grain(1, 1)
        found[step.name] = grain
    return found


def grain(steps: Sequence[DemandStep]) -> int:
    """Return at multiples of what the answer of a query changes; its last step is the output."""
    return grains(steps)[steps[-1].name].changes or 1


def delivering(steps: Sequence[DemandStep]) -> list[Delivering]:
    """Return the topmost windows; a stream that is read without one counts as a window of one tick."""
    by_name = {step.name: step for step in steps}
    found: dict[str, Delivering] = {}
    seen: set[str] = set()
    stack = [steps[-1].name]
    while stack:
        step = by_name[stack.pop()]
        if step.name in seen:
            continue
        seen.add(step.name)
        if step.kind == "window":
            found[step.name] = Delivering(step.length, step.slide)
        elif step.kind == "stream":
            found[step.name] = Delivering(1, None)
        elif step.kind != "count":
            stack.extend(step.inputs)
    return list(found.values())


def needed(steps: Sequence[DemandStep], length: int, end: int, *, aligned: bool = True) -> dict[str, InstantSpan]:
    """Return the instants of each step that the unit with some end needs.

    If not `aligned`, every slide is taken to lie as badly as it can.
    """
    known = grains(steps)
    step_size = grain(steps)
    needs: dict[str, InstantSpan] = {steps[-1].name: InstantSpan(end - length + step_size, end + step_size - 1)}
    for step in reversed(steps):
        asked = needs.get(step.name)
        if asked is not None and asked.first <= asked.last:
            for name, span in _asked_of_inputs(step, asked, known, aligned):
                other = needs.get(name, span)
                needs[name] = InstantSpan(min(span.first, other.first), max(span.last, other.last))
    return needs


def _asked_of_inputs(
    step: DemandStep, asked: InstantSpan, known: dict[str, Grain], aligned: bool
) -> Iterator[tuple[str, InstantSpan]]:
    """Yield the inputs of a step with the instants at which it needs them."""
    below = [known[name] for name in step.inputs]
    spans = [asked] * len(below)
    match step.kind:
        case "window":
            evaluated = _down(asked, step.slide or 1, aligned)
            spans = [InstantSpan(evaluated.first - step.length + 1, evaluated.last)]
        case "count":
            spans = [InstantSpan(EVERYTHING, asked.last)]
        case "difference":
            inside = _inside(asked, below[0].changes, aligned)
            spans = [InstantSpan(inside.first - 1, inside.last)]
        case "contents" if step.slide:
            spans = [_inside(asked, step.slide, aligned)]
        case "probe":
            spans[1] = _inside(asked, below[0].elements, aligned)
    return zip(step.inputs, spans, strict=True)


def _down(span: InstantSpan, grid: int, aligned: bool) -> InstantSpan:
    """Return the multiples of a grid that are in force during a stretch of time."""
    first = span.first // grid * grid if aligned else span.first - grid + 1
    return InstantSpan(max(first, EVERYTHING), span.last // grid * grid)


def _inside(span: InstantSpan, grid: int, aligned: bool) -> InstantSpan:
    """Return the multiples of a grid inside a stretch of time."""
    if grid == 0:
        return InstantSpan(1, 0)
    first = -(-span.first // grid) * grid if aligned and span.first > EVERYTHING else span.first
    return InstantSpan(first, span.last // grid * grid)


def sizes(steps: Sequence[DemandStep], length: int) -> dict[str, int | None]:
    """Return for each stream how many ticks up to the end of a unit that unit needs; None: all there ever were."""
    slides = [step.slide for step in steps if step.slide]
    ends = lcm(length, *slides) // length
    aligned = ends <= MOST_ENDS
    tried = range(0, ends * length, length) if aligned else range(0, length, length)
    streams = [step.name for step in steps if step.kind == "stream"]
    found: dict[str, int | None] = dict.fromkeys(streams, 1)
    for end in tried:
        needs = needed(steps, length, end, aligned=aligned)
        for name in streams:
            span, known = needs.get(name), found[name]
            if span is None or span.first > span.last or known is None:
                continue
            assert span.last <= end, f"the unit that ends at {end} needs {name} up to {span.last}"
            found[name] = None if span.first < EVERYTHING // 2 else max(known, end - span.first + 1)
    return found


def formula(steps: Sequence[DemandStep], length: int) -> int:
    """Return the largest size by the paper's rules: L + w - d for a window that delivers, w - 1 for each one below."""
    most = length
    asked: dict[str, int] = {}
    on_top = {steps[-1].name}
    for step in reversed(steps):
        size = asked.get(step.name, 0)
        if step.kind == "window":
            size = size + step.length - 1 if size else 0
            if step.name in on_top:
                size = max(size, length - (step.slide or 1) + step.length)
        elif step.name in on_top:
            on_top.update(step.inputs)
        if step.kind == "stream":
            most = max(most, size)
        for name in step.inputs:
            asked[name] = max(size, asked.get(name, 0))
    return most


class Cut(NamedTuple):
    """How the time of a query is cut: units of `length` ticks, of which up to `batch` in a row may be lost."""

    length: int
    batch: int


def cut(steps: Sequence[DemandStep], max_gap: int, shortest: int) -> Cut:
    """Return the units of a query that may lose `max_gap` windows in a row.

    Units are as long as it takes for all slides to come round. Windows without a slide change with every tick: then a
    unit is as long as the longest of them, and not shorter than `shortest`, and the gap counts units. If the gap is
    less than one such unit, units are shorter.
    """
    windows = delivering(steps)
    slides = [window.slide for window in windows if window.slide]
    loose = [window.length for window in windows if not window.slide]
    longest = max([*loose, shortest]) if loose else 0
    if not slides:
        return Cut(longest, max_gap)
    common, finest = lcm(*slides), min(slides)
    for length in (-(-longest // common) * common or common, common):
        if max_gap * finest >= length:
            return Cut(length, max_gap * finest // length)
    return Cut(finest, max_gap)


def drops_early(size: int, length: int, batch: int) -> bool:
    """Tell whether a run of lost units leaves rows that nobody needs.

    >>> drops_early(109, 100, 10), drops_early(20, 5, 3), drops_early(18, 5, 3)
    (True, False, True)
    """
    return batch >= size // length
