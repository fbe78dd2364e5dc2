"""Tables, figures and numbers of ``pose_tree.py``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pose.joints import LIMBS, People, is_correct, limb_scores, scores
from runs import files
from runs.axes import panels

RIGHT, LEFT, MIDDLE, TRUE = "#2a6f97", "#d1661f", "#e0c341", "#ffffff"
ROWS, COLUMNS = 2, 5
STICKS = (
    *((2, 1, RIGHT), (1, 0, RIGHT), (8, 7, RIGHT), (7, 6, RIGHT)),
    *((3, 4, LEFT), (4, 5, LEFT), (9, 10, LEFT), (10, 11, LEFT)),
    *((12, 13, MIDDLE), (12, 2, MIDDLE), (12, 3, MIDDLE), (12, 8, MIDDLE)),
    (12, 9, MIDDLE),
)


def write(
    folder: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    people: People,
    predictions: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """Print the table, write sheet and numbers; return the scores of the first row."""
    rows = {
        name: scores(people, poses) | limb_scores(people, poses)
        for name, poses in predictions.items()
    }
    heads = {"pck": "PCK", "pcp": "PCP"} | {name: name for name in LIMBS}
    widths = {name: max(len(head), 5) + 2 for name, head in heads.items()}
    print(
        f"\n{'test people':<34}"
        + "".join(f"{h:>{widths[n]}}" for n, h in heads.items())
    )
    for name, row in rows.items():
        cells = (f"{100 * row[x]:>{widths[x]}.1f}" for x in heads)
        print(f"{name:<34}{''.join(cells)}")
    ours, others = rows[next(iter(rows))], [*rows][1:]
    result = {"pck": ours["pck"], "pcp": ours["pcp"]}
    result |= {f"{name} pck": rows[name]["pck"] for name in others}
    sheet(folder / "sheet.png", people, predictions[next(iter(rows))])
    content = {"settings": settings, "history": history, "result": result}
    files.write_json(folder / "metrics.json", content | {"scores": rows})
    print(f"\nsee {folder}: metrics.json, sheet.png")
    return result


def sheet(path: Path, people: People, predicted: np.ndarray) -> None:
    """People from the best found to the worst, evenly spaced."""
    right = is_correct(people, predicted) & people.is_marked
    accuracy = right.sum(1) / people.is_marked.sum(1)
    ranked = np.argsort(-accuracy, kind="stable")
    ranks = np.linspace(0, len(ranked) - 1, min(ROWS * COLUMNS, len(ranked))).round()
    figure, all_axes = panels(len(ranks), COLUMNS, 2.3, 2.1)
    for axes, rank in zip(all_axes, ranks, strict=False):
        number = int(ranked[int(rank)])
        is_marked = people.is_marked[number]
        draw(axes, people.images[number], predicted[number])
        axes.plot(
            *people.joints[number][is_marked].T,
            ls="",
            marker="o",
            ms=3,
            mfc="none",
            c=TRUE,
        )
        title = f"{int(right[number].sum())} of {int(is_marked.sum())} joints"
        axes.set_title(title, fontsize=8)
    styles = ((RIGHT, "right limbs"), (LEFT, "left limbs"), (MIDDLE, "body, head"))
    handles = [Line2D([], [], color=c, lw=2, label=text) for c, text in styles]
    ring = {"ls": "", "marker": "o", "mfc": "none", "color": "#777777"}
    handles.append(Line2D([], [], label="true joints (white)", **ring))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    files.write_figure(path, figure, dpi=120)


def draw(axes: Axes, image: np.ndarray, joints: np.ndarray) -> None:
    """A person's sticks over the image."""
    height, width = image.shape[:2]
    axes.imshow(image)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.set_axis_off()
    for begin, end, colour in STICKS:
        axes.plot(*joints[[begin, end]].T, color=colour, lw=1.8)
