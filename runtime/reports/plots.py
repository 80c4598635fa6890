"""A figure of a run over time, from the history of its micro-batches. Knows nothing of engines.

Matplotlib is an extra (`pip install 'cql-on-spark[plots]'`) and is loaded only when a figure is asked for. Figures
belong to nobody: they are not among those that pyplot shows by itself, and notebooks draw them because they are values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from cql.errors import Code, fail
from runtime.reports.progress import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LIVE_SECONDS = 86_400.0
"""Results that are further behind the clock on the wall are those of recorded streams, where that says nothing."""

_COLOURS = ("#2f6f9f", "#d1733f", "#4f9a6b", "#9b5fa5", "#c9a227", "#5b7083", "#b5485d", "#7a8b3a")
_INK, _FAINT, _GRID = "#222222", "#6b6b6b", "#e4e4e4"
_PANEL_INCHES = 1.55
_WIDTH_INCHES = 9.0
_FEW_POINTS = 12
"""Up to how many points are marked, so that one alone can be seen."""

Line = tuple[str, list[float], list[float]]
"""A name, and where its points are."""


def plot(history: Sequence[Batch], query: str | None = None) -> Figure:
    """Return a figure of a run: what came in and went out, and what it took; with a query, of its part of the run."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter, MaxNLocator
    except ImportError:
        message = "plots are drawn by matplotlib, which is not installed"
        raise fail(Code.MISSING, message, hint="pip install 'cql-on-spark[plots]'") from None
    if query is not None:
        parts = {batch.part for batch in history if query in batch.queries}
        history = [batch for batch in history if batch.part in parts]
    begin = min((batch.at - batch.seconds for batch in history), default=0.0)
    panels = [panel for panel in _panels(history, begin, query) if panel[2]]
    height = _PANEL_INCHES * max(len(panels), 1) + 0.9
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained", facecolor="white")
    rows = figure.subplots(max(len(panels), 1), 1, sharex=True, squeeze=False)[:, 0]
    figure.suptitle(_title(history, query), x=0.01, ha="left", fontsize=12, color=_INK)
    for axes, (name, unit, lines, is_filled) in zip(rows, panels, strict=False):
        _draw(axes, name, lines, is_filled)
        axes.yaxis.set_major_formatter(EngFormatter(unit=unit, sep="" if not unit else " "))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2, steps=[1, 2, 5, 10]))
    if panels:
        rows[-1].set_xlabel("seconds since the start", color=_FAINT, fontsize=9)
    else:
        rows[0].set_axis_off()
        rows[0].text(0.5, 0.5, "nothing has happened yet", ha="center", color=_FAINT)
    return figure


def _title(history: Sequence[Batch], query: str | None) -> str:
    rows_in = sum(batch.rows_in for batch in history)
    counts = (batch.rows_out if query is None else batch.queries.get(query, 0) for batch in history)
    what = "" if query is None else f"{query}: "
    return f"{what}{rows_in:,} rows in, {sum(counts):,} results, {len(history):,} micro-batches"


def _panels(history: Sequence[Batch], begin: float, query: str | None) -> Iterator[tuple[str, str, list[Line], bool]]:
    """Yield what is drawn in each panel: its name, the unit, the lines, and whether they are filled below."""
    tables = _names(batch.tables for batch in history)
    queries = [query] if query is not None else _names(batch.queries for batch in history)
    read = [(name, *_rates([(batch.at - begin, batch.tables.get(name, 0)) for batch in history])) for name in tables]
    made = [(name, *_rates([(batch.at - begin, batch.queries.get(name, 0)) for batch in history])) for name in queries]
    is_live = any(0 <= (batch.behind_now or -1.0) < _LIVE_SECONDS for batch in history)
    times = [batch.at - begin for batch in history]
    left_out = (("late", [batch.late for batch in history]), ("not readable", [batch.skipped for batch in history]))
    yield "rows read per second", "", read, False
    yield "results per second", "", made, False
    yield "time of a micro-batch", "s", _by_part(history, begin, lambda batch: batch.seconds), False
    yield "results behind now", "s", _by_part(history, begin, lambda b: b.behind_now) if is_live else [], False
    yield "results behind the newest row", "s", _by_part(history, begin, lambda batch: batch.lag), False
    yield "state", "B", _by_part(history, begin, lambda batch: batch.state_bytes), True
    yield "rows left out, in all", "", [(name, times, _sums(counts)) for name, counts in left_out if any(counts)], True


def _by_part(history: Sequence[Batch], begin: float, value: Callable[[Batch], float | None]) -> list[Line]:
    """Return a line for each part of the run of which a figure is known and not always nothing."""
    found = []
    for part in _names([batch.part] for batch in history):
        own = [batch for batch in history if batch.part == part]
        if any(map(value, own)):
            found.append((part, [batch.at - begin for batch in own], [value(batch) or 0.0 for batch in own]))
    return found


def _names(counted: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in counted for name in names))


def _sums(counts: Iterable[int]) -> list[float]:
    return [float(total) for total in accumulate(counts)]


def _rates(counted: Sequence[tuple[float, int]], most: int = 200) -> tuple[list[float], list[float]]:
    """Return how much there was per second, over stretches of time of equal length.

    >>> _rates([(1.0, 10), (2.0, 30), (4.0, 20)], most=4)
    ([0.5, 1.5, 2.5, 3.5], [10.0, 30.0, 0.0, 20.0])
    """
    if not counted:
        return [], []
    end = max(max(at for at, _ in counted), 1e-3)
    step = end / max(min(len(counted) // 2, most), min(4, most))
    buckets = [0.0] * round(end / step)
    for at, count in counted:
        buckets[min(max(int((at - 1e-9) / step), 0), len(buckets) - 1)] += count / step
    return [(number + 0.5) * step for number in range(len(buckets))], buckets


def _draw(axes: Axes, name: str, lines: Sequence[Line], is_filled: bool) -> None:
    """Draw one panel."""
    for (label, x, y), colour in zip(lines, _COLOURS * (len(lines) // len(_COLOURS) + 1), strict=False):
        marker = "o" if len(x) < _FEW_POINTS else None
        axes.plot(x, y, color=colour, linewidth=1.6, label=label, solid_capstyle="round", marker=marker, markersize=3.5)
        if is_filled or len(lines) == 1:
            axes.fill_between(x, y, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(name, loc="left", fontsize=9.5, color=_INK, pad=4)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=_FAINT, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)
    labels = [label for label, _, _ in lines]
    if len(labels) > 1 or name.startswith(("rows", "results per")):
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5, frameon=False, labelcolor=_INK)
