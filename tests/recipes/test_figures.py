"""Figures of small runs: nothing is cut, hidden or written over something else."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import shortest_path
from linear_tagging import curves
from linear_tagging.methods import STUDIES
from localization import figures as box_figures
from multiclass import report as multiclass_report
from ner import report as ner_report
from ocr import figures as ocr_figures
from ocr.variants import VARIANTS
from runs import axes, files
from segmentation import report as segmentation_report
from smoothsp.optim.curves import CurvePoint, Panel, draw


@pytest.fixture
def drawn(monkeypatch):
    """Figures that would be written."""
    kept = []
    monkeypatch.setattr(
        files, "write_figure", lambda _, figure, dpi: kept.append(figure)
    )
    # those of races
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: kept.append(figure))
    return kept


def overlapping(axis):
    """Labels of ticks that cover part of the next one."""
    low, high = sorted(axis.get_view_interval())
    ticks = axis.get_major_ticks() + axis.get_minor_ticks()
    seen = [t.label1 for t in ticks if low <= t.get_loc() <= high]
    boxes = [(x.get_window_extent(), x.get_text()) for x in seen if x.get_text()]
    boxes.sort(key=lambda found: found[0].x0)
    pairs = itertools.pairwise(boxes)
    return [text for (one, text), (other, _) in pairs if one.x1 > other.x0]


def hidden(panel, line):
    """Whether no part of a line is in its panel, or it is too short to be seen."""
    points = line.get_transform().transform(np.column_stack(line.get_data()))
    inside = [panel.bbox.padded(1).contains(*point) for point in points]
    marked = line.get_marker() not in ("None", None, "")
    return not any(inside) or (not marked and np.ptp(points, axis=0).max() < 3)


def check(figure):
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0) > -0.03
    assert box.x1 < width + 0.03 and box.y1 < height + 0.03
    for panel in figure.axes:
        assert not overlapping(panel.xaxis)
        # but parts of a box, which may be without extent
        lines = [x for x in panel.lines if x.get_label() != "_nolegend_"]
        assert not [x.get_label() for x in lines if hidden(panel, x)]


@pytest.mark.parametrize("regrets", [[0.0], [0.2], [0.0] * 3])
def test_decisions(regrets, drawn, tmp_path):
    config = shortest_path.Config(sizes=(100,), degrees=(1,), seeds=len(regrets))
    found = {
        ("100", f"degree 1, noise {noise:g}", method): regrets
        for noise in config.noises
        for method in config.methods
    }
    shortest_path.draw(config, found)
    check(drawn[0])
    lines = [line for panel in drawn[0].axes for line in panel.lines]
    # there are no outliers
    colours = {line.get_color() for line in lines if len(line.get_xdata())}
    assert colours == set(shortest_path.COLOURS.values())


@pytest.mark.parametrize("seconds", [(0.0013,), (0.0013, 0.0014), (0.1, 40.0)])
@pytest.mark.parametrize("gap", [0.5, 0.0])
def test_gaps(seconds, gap, drawn, tmp_path):
    history = [
        {"calls": 2.0 + n, "seconds": second, "primal": 3 + gap, "dual": 3.0 - n}
        | {"gap": gap}
        for n, second in enumerate(seconds)
    ]
    rows = [{"variant": str(v), "seed": 0, "history": history} for v in VARIANTS]
    ocr_figures.gaps(tmp_path / "a.png", rows)
    check(drawn[0])


@pytest.mark.parametrize("calls", [(2,), (2, 4)])
def test_solvers(calls, drawn, tmp_path):
    ends = zip(STUDIES["solvers"], (69.0, 43, 55, 0, 2, 3), strict=True)
    rows = [
        {"method": method.name, "c": 1.0, "seed": 0, "calls": n, "seconds": 0.01 * n}
        | {"F": 5.0, "gap": 6.0 / n, "F1": F1}
        for method, F1 in ends
        for n in calls
    ]
    curves.as_comparison(rows).draw(tmp_path / "a.png", 1.0)
    check(drawn[0])


@pytest.mark.parametrize("losses", [[0.0], [3.0], [9.0, 0.0], [9.0, 0.1]])
def test_learning_curves(losses, drawn, tmp_path):
    history = [
        {"epoch": n + 1, "loss": loss, "dev_f1": 0.0} for n, loss in enumerate(losses)
    ]
    ner_report.learning_curve(tmp_path / "a.png", history, 0.0)
    check(drawn[0])
    rows = [
        {"epoch": n + 1, "objective": loss, "corloc": 0.0}
        for n, loss in enumerate(losses)
    ]
    title = "ladybird: 60 training images, linear scores, efficientnet-lite0, random"
    baselines = dict.fromkeys(box_figures.DASHES, 0.5)
    box_figures.curves(tmp_path / "a.png", rows, 2, 2 * title, baselines)
    check(drawn[1])


@pytest.mark.parametrize("losses", [[0.0], [0.0, 0.0], [9.0, 0.0]])
@pytest.mark.parametrize("f1", [0.0, 0.5, 1.0])
def test_axes_show_possible_values_only(losses, f1, drawn, tmp_path):
    history = [
        {"epoch": n, "loss": loss, "objective": loss, "dev_f1": f1, "corloc": f1}
        for n, loss in enumerate(losses, 1)
    ]
    ner_report.learning_curve(tmp_path / "a.png", history, f1)
    baselines = dict.fromkeys(box_figures.DASHES, f1)
    box_figures.curves(tmp_path / "a.png", history, 2, "title", baselines)
    row = {"lam": 1.0, "primal": 1.0, "gap": 0.3, "calls": 3.0}
    row |= {"train_iou": f1, "dev_iou": f1}
    segmentation_report.draw_path(tmp_path / "a.png", [row], 1.0, "4 images")
    ner_axes, box_axes, path_axes = (figure.axes for figure in drawn)
    for axes_of_loss in (ner_axes[0], box_axes[0], path_axes[2]):
        low, high = axes_of_loss.get_ylim()
        assert 0 <= low < high
    for axes_of_percentage in (ner_axes[1], box_axes[1], path_axes[0]):
        low, high = axes_of_percentage.get_ylim()
        assert 0 <= low <= 100 * f1 <= high <= 100 and high - low > 1


def test_zeros_on_a_logarithmic_axis_are_marked_at_its_edge(drawn, tmp_path):
    curves_of_panel = {
        name: [[CurvePoint(n, 1.0 + n, y) for n, y in enumerate(values)]]
        for name, values in (("a", [1.0, 0.1, 0.0]), ("b", [0.0, 0.0, 0.0]))
    }
    draw(tmp_path / "a.png", [[Panel("calls", "gap", curves_of_panel)]])
    check(drawn[0])
    (panel,) = drawn[0].axes
    assert panel.get_yscale() == "log" and "≤ 0" in panel.get_ylabel()
    marked = [list(x.get_xdata()) for x in panel.lines if x.get_marker() == "v"]
    assert marked == [[3.0], [1.0, 2.0, 3.0]]
    texts = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert texts == ["a", "b"]


def test_accuracies(drawn):
    name = "a-set-with-a-long-name-of-which-no-letter-may-be-cut"
    row = {"set": name, "tolerance": 0.1, "log2_c": 0, "accuracy": 96.0, "paper": None}
    check(
        multiclass_report.draw_scores([row], [SimpleNamespace(name=name, classes=10)])
    )


def test_one_lambda_and_one_image(drawn, tmp_path):
    row = {"lam": 5000.0, "primal": 1.0, "gap": 0.3, "calls": 3.0}
    row |= {"train_iou": 0.0, "dev_iou": 0.0}
    segmentation_report.draw_path(tmp_path / "a.png", [row], 5000.0, "4 images")
    check(drawn[0])
    for count in (1, 3, 5):
        figure, panels = axes.panels(count, 4, 2.75, 2, "a title of many words " * 9)
        assert isinstance(figure, Figure) and count <= len(panels) < count + 4
        check(figure)
