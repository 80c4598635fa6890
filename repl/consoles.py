"""Consoles of rich: whatever is rendered leaves as text that does nothing to a terminal, but for rich's own marks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cql.visible import visible_lines


class SafeConsole(Console):
    """A console that spells out what a terminal would obey."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of something, with their texts made safe."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)
