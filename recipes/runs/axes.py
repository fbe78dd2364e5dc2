"""Axes of figures of recipes, also where there are few points or equal ones."""

import math
import textwrap
from collections.abc import Collection

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

# inches, for titles and legends
MIN_WIDTH = 7.0
# extent of an axis of equal percentages
MIN_PERCENTAGE_RANGE = 5.0


def panels(
    count: int, columns: int, width: float, height: float, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each of ``count`` images, and its panels."""
    columns = min(columns, count)
    rows = -(-count // columns)
    size = max(MIN_WIDTH, width * columns), height * rows + 1
    figure = Figure(figsize=size, layout="constrained")
    # of ten points a letter is about a twelfth of an inch
    line_length = int(12 * size[0])
    lines = [textwrap.fill(line, line_length) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=10)
    axes_list = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in axes_list:
        axes.set_axis_off()
    return figure, axes_list


def style_axes(axes: Axes) -> None:
    """Remove the upper and the right border, and draw a grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)


def label_integers(axis: Axis) -> None:
    """Label whole numbers only, also if there is one value."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def limit_y(axes: Axes, highest: float = math.inf) -> None:
    """Show y from 0 to ``highest`` only, after all is drawn; points at its ends whole.

    For a loss that is never negative, on a linear or a logarithmic axis.
    """
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, 0.0), min(top, highest))
    for line in axes.lines:
        line.set_clip_on(False)


def limit_percentages(axes: Axes) -> None:
    """Show y from 0 to 100 only, and not too few of it, after all is drawn."""
    bottom, top = axes.get_ylim()
    margin = max(0.0, (MIN_PERCENTAGE_RANGE - (top - bottom)) / 2)
    axes.set_ylim(bottom - margin, top + margin)
    limit_y(axes, 100.0)


def make_logarithmic(axis: Axis, values: Collection[float]) -> None:
    """Make an axis logarithmic if all values are positive and differ by ten times."""
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    # ticks few enough not to overlap, and two at least
    axis.set_major_locator(MaxNLocator(4))
    if not 0 < 10 * lowest <= highest:
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if highest < 100 * lowest else (1,))
    )
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
