"""Figures of compared runs: medians over seeds, with bands."""

import io
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from smoothsp.optim import _checks

# Lower limit of a band on a logarithmic axis, as a fraction of the median.
_MIN_BAND_RATIO = 1e-3
# Curves with more values have no markers.
_MAX_MARKERS = 30


class CurvePoint(NamedTuple):
    """Value y of a run at cost x; ``record_index`` orders the records."""

    record_index: float
    x: float
    y: float


class Panel(NamedTuple):
    """Axes labels, and the points of each curve by name, a list for each seed."""

    x: str
    y: str
    curves: Mapping[str, Sequence[Sequence[CurvePoint]]]
    logarithmic: bool = True
    title: str = ""


class Band(NamedTuple):
    """Curve of medians (x, y) with the range [low, high] over seeds."""

    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


def median_band(runs: Sequence[Sequence[CurvePoint]]) -> Band:
    """Compute medians and range over seeds, record by record, until a run diverges.

    A run that ended counts with its last value.
    """
    band = Band([], [], [], [])
    runs = [run for run in runs if run]
    for record_index in sorted({point.record_index for run in runs for point in run}):
        run_prefixes = [
            [point for point in run if point.record_index <= record_index]
            for run in runs
        ]
        if not all(run_prefixes):
            continue
        values = sorted(run[-1].y for run in run_prefixes)
        # A curve ends where one of its seeds diverges; NaN is skipped.
        if not all(map(math.isfinite, values)):
            if any(map(math.isinf, values)):
                break
            continue
        costs = [
            run[-1].x for run in run_prefixes if run[-1].record_index == record_index
        ]
        numbers = median(costs), median(values), values[0], values[-1]
        for column, number in zip(band, numbers, strict=True):
            column.append(number)
    return band


def draw(path: str | os.PathLike[str], panels: Sequence[Sequence[Panel]]) -> None:
    """Write a figure with rows of panels, by the ending of its path.

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    ValueError
        For an ending that is not ``.png``, ``.svg`` or ``.pdf``.
    """
    file_format = Path(path).suffix[1:] or "png"
    _checks.choice("path: ending", file_format, ("png", "svg", "pdf"))
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'draw: needs {error.name}: pip install "smoothsp[figures]"',
            name=error.name,
        ) from error
    if not panels:
        raise ValueError("draw: expected finite values of some run, got none")
    rows, columns = len(panels), len(panels[0])
    names = list(
        dict.fromkeys(name for row in panels for panel in row for name in panel.curves)
    )
    lines = -(-len(names) // 3)
    size = max(4.5 * columns, 7.0), 3.1 * rows + 0.25 * lines + 0.3
    figure = Figure(figsize=size, layout="constrained")
    for axes, panel in zip(
        figure.subplots(rows, columns, squeeze=False).flat,
        (panel for row in panels for panel in row),
        strict=True,
    ):
        _draw_panel(axes, panel, names)
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    handles = {name: handles[name] for name in names if name in handles}
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=min(3, max(len(handles), 1)),
        frameon=False,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    write_file(Path(path), buffer.getvalue())


def _draw_panel(axes: Any, panel: Panel, names: Sequence[str]) -> None:
    bands = {name: median_band(panel.curves.get(name, [])) for name in names}
    upper_values = [y for band in bands.values() for y in band.high]
    logarithmic = panel.logarithmic and any(y > 0 for y in upper_values)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    for index, (name, band) in enumerate(bands.items()):
        # Ten colours, twenty distinct curves by line style.
        style = {"color": f"C{index % 10}", "ls": "-" if index < 10 else "--"}
        if logarithmic:
            zeros = [x for x, y in zip(band.x, band.y, strict=True) if y <= 0]
            if zeros:
                axes.set_ylabel(f"{panel.y} (▽: ≤ 0)")
                # Heights of this transform are fractions of the panel.
                edge = {"transform": axes.get_xaxis_transform(), "clip_on": False}
                edge |= {"label": name if len(zeros) == len(band.y) else "_nolegend_"}
                heights = [0.0] * len(zeros)
                axes.plot(zeros, heights, "v", c=style["color"], mfc="none", **edge)
            positive = [k for k, y in enumerate(band.y) if y > 0]
            band = Band(*([column[k] for k in positive] for column in band))
        x, y, low, high = band
        if not x:
            continue
        if logarithmic:
            low = [max(a, _MIN_BAND_RATIO * b) for a, b in zip(low, y, strict=True)]
        marker = "o" if len(x) == 1 else "." if len(x) <= _MAX_MARKERS else ""
        axes.plot(x, y, marker=marker, ms=4, lw=1.4, label=name, **style)
        if low != high:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, lw=0)
    if panel.title:
        axes.set_title(panel.title, fontsize=10)
    if logarithmic:
        axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(nbins=4)
    positive_costs = [x for band in bands.values() for x in band.x if x > 0]
    if positive_costs and max(positive_costs) > 30 * min(positive_costs):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)


def require_file(path: Path) -> None:
    """Raise if the path is a folder or a device."""
    if path.exists() and not path.is_file():
        description = "a folder" if path.is_dir() else "a device"
        raise ValueError(f"path: expected a file, got {description} at {path}")


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically; make its folder, raise if the path is no file."""
    require_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
