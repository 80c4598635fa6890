"""Tables and plots of the experiments on joins that take too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks._plots import save

Lines = Mapping[str, Sequence[float]]


def table(title: str, index: str, at: Sequence[float | str], columns: Lines) -> None:
    """Print a table with a row for each value of an index."""
    width = max(11, *(len(name) + 2 for name in columns))
    print(title)
    print("  " + index.ljust(10) + "".join(name.rjust(width) for name in columns))
    for row, value in enumerate(at):
        name = value if isinstance(value, str) else f"{value:g}"
        print("  " + name.ljust(10) + "".join(f"{column[row]:.3f}".rjust(width) for column in columns.values()))
    print()


def plot(
    name: str,
    across: str,
    up: str,
    panels: Mapping[str, tuple[Sequence[float], Lines]],
    marks: Mapping[str, float] | None = None,
) -> None:
    """Write a plot with a panel for each title; `marks` are vertical lines with a word each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(5.4 * len(panels), 3.7), squeeze=False)
    for axes, (title, (at, lines)) in zip(all_axes[0], panels.items(), strict=True):
        for label, values in lines.items():
            marker = "o" if len(values) <= 16 else None
            axes.plot(at[: len(values)], values, marker=marker, markersize=4, linewidth=1.5, label=label)
        for word, where in (marks or {}).items():
            axes.axvline(where, color="grey", linewidth=0.8, linestyle=":")
            axes.annotate(word, (where, 0.02), xycoords=("data", "axes fraction"), fontsize=8, color="grey")
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    save(name, figure, axes)
