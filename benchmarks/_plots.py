"""How plots of benchmarks are finished and where they go: `docs/plots`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLOTS = Path(__file__).parent.parent / "docs" / "plots"


def empty() -> tuple[Figure, Axes]:
    """Return a figure with empty axes, of the size that documents show."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(6, 3.6))


def save(name: str, figure: Figure, axes: Axes) -> None:
    """Add a grid and a legend, and write a figure."""
    from matplotlib import pyplot

    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{name}.png", dpi=110)
    pyplot.close(figure)
