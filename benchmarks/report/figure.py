"""Time against the number of states and against the length, all methods, log axes."""

from importlib.util import find_spec
from pathlib import Path

from inference.problems import AGAINST_STATES, AGAINST_TIME, SMALL, Case
from inference.questions import DECODE, NLL
from methods import ours, peers
from report.results import FIGURE, Results, Row

COLOURS = ("k", "C1", "C0", "C2", "C8", "C3", "C4")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
AXES = {
    f"states S, at B = {SMALL.batch}, T = {SMALL.time}": (AGAINST_STATES, "states"),
    f"length T, at B = {SMALL.batch}, S = {SMALL.states}": (AGAINST_TIME, "time"),
}


def draw(results: Results, path: Path) -> None:
    if find_spec("matplotlib") is None:
        print("no figure is drawn: pip install matplotlib")
        return
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    style = {
        "font.size": 11,
        "axes.grid": True,
        "grid.color": "0.9",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with plt.rc_context(style):
        grid = plt.subplots(2, 2, figsize=(10, 7.4), sharex="col", layout="constrained")
        figure, axes = grid
        for row, question in zip(axes, (NLL, DECODE), strict=True):
            for panel, (label, (cases, axis)) in zip(row, AXES.items(), strict=True):
                draw_panel(panel, results, question, cases, axis)
                panel.set(xscale="log", yscale="log", title=question)
                ticks = [getattr(case, axis) for case in cases]
                panel.set_xticks(ticks, map(str, ticks))
                panel.minorticks_off()
                panel.yaxis.set_major_formatter(EngFormatter("s"))
                if question == DECODE:
                    panel.set_xlabel(label)
            row[0].set_ylabel("time of a call")
            row[1].sharey(row[0])
        handles = {
            name: line
            for panel in axes.flat
            for line, name in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        names = [name for name in peers.NAMES if name in handles]
        figure.legend(
            [handles[name] for name in names],
            names,
            loc="outside lower center",
            ncols=4,
            frameon=False,
        )
        figure.suptitle("float32, one thread; lower is faster", fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_panel(panel, results: Results, question: str, cases, axis: str) -> None:
    for name, colour, marker in zip(peers.NAMES, COLOURS, MARKERS, strict=True):
        points = list(points_of(results, question, name, cases, axis))
        if not points:
            continue
        width = 2.5 if name == ours.NAME else 1.3
        x, y = zip(*points, strict=True)
        panel.plot(x, y, color=colour, marker=marker, ms=5, lw=width, label=name)


def points_of(
    results: Results, question: str, name: str, cases: tuple[Case, ...], axis: str
):
    for case in cases:
        row: Row | None = results.first(
            section=FIGURE, question=question, method=name, case=str(case)
        )
        if row is not None and row.measured:
            yield getattr(case, axis), row.median
