"""Figure and ground: superpixels under a minimum cut, on photographs of horses.

SLIC cuts an image into superpixels; histograms of colours, textures and places describe
them, contrasts their neighbours. ``smoothsp.oracles.BinaryGraph`` finds the best labels
of all, exactly, by a maximum flow.

    python recipes/horse_segmentation.py                        # drawn animals
    python recipes/horse_segmentation.py --data DIR             # images and masks
    python recipes/horse_segmentation.py --model network --loss cross-entropy

DIR holds ``images`` (or ``gray``, or ``rgb``) and ``figure_ground`` (or ``masks``) with
the same names, as the Weizmann horses do. Three fifths of the images are for training,
one fifth for model selection, and one fifth for the final test.

``--model linear`` is a structured SVM by block-coordinate pairwise Frank-Wolfe with gap
sampling and a cache, its smoothing weights at least 0: a path over all lambda, each
point with its duality gap, of which the one with the best IoU on dev is solved to
``--tol``. ``--model network`` trains a ``smoothsp.models.Segmenter`` end to end.

``--model network`` writes the folder ``model``: ``smoothsp predict`` and
``smoothsp.models.load`` take it. ``checkpoint.ckpt`` is for ``--resume``. At the end
the recipe writes ``metrics.json``, ``sheet.png`` and, with ``linear``, ``path.png``.
Results: ``docs/results/images.md``.

Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs", for the linear model, its features and its solver.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from runs import start
    from segmentation.settings import Config

    start.read_options(Config)

import io
from typing import Any

import numpy as np
import torch

from runs import arguments, files, options, terminal
from runs.interrupts import print_resume_hint, raise_if_interrupted
from segmentation import linear, report, synthetic
from segmentation.examples import Part, checksum, load, prepare, split
from segmentation.settings import Config
from smoothsp.checkpoints import read, require_same, write
from smoothsp.linear.solvers import PathPoint
from smoothsp.models import Segmenter
from smoothsp.run_folder import CHECKPOINT, held, require_free

DRAWN, DRAWN_SIDE, DRAWN_SUPERPIXELS = 100, 128, 150
# Masks by part and name, and further content of metrics.json.
MasksAndMetrics = tuple[dict[str, dict[str, list[np.ndarray]]], dict[str, Any]]


def main(config: Config) -> dict[str, float]:
    """Train; return the scores of the images for model selection and for the test."""
    arguments.require_at_least(
        config, side=32, superpixels=2, epochs=1, seed=0, limit=3
    )
    for name in ("eps", "tol"):
        if not 0 < getattr(config, name) < 1:
            value = getattr(config, name)
            raise ValueError(f"{name}: expected a number between 0 and 1, got {value}")
    require_free(config.out, config.resume, config.overwrite)
    if config.data is None:
        side, count = DRAWN_SIDE, min(config.superpixels, DRAWN_SUPERPIXELS)
        examples = synthetic.make(config.limit or DRAWN)
    else:
        side, count = config.side, config.superpixels
        examples = load(config.data, config.limit, side)
    sets = prepare(split(examples), count, config.model == "linear")
    sizes = [len(graph.sizes) for graph in sets["train"].graphs]
    counts = ", ".join(
        f"{len(part_images)} {part}" for part, part_images in sets.items()
    )
    print(f"{counts} images, {np.mean(sizes):.0f} superpixels each")
    if config.model == "linear":
        with held(config.out):
            masks, metrics = fit_linear(config, sets)
    else:
        masks, metrics = train_network(config, sets, side, count)
    rows = report.score_tables(sets, masks)
    print(f"\n{report.to_markdown(rows)}")
    ours = list(masks["test"])[-1]
    title = f"{ours}: {len(sets['test'])} held-out images, from best to worst"
    sheet = config.out / "sheet.png"
    report.sheet(sheet, sets["test"].examples, masks["test"][ours], title)
    files.write_json(config.out / "metrics.json", {"scores": rows} | metrics)
    print(f"\nsee {config.out}: metrics.json, sheet.png")
    result = {
        f"{part}_{name}": x for part in rows for name, x in rows[part][ours].items()
    }
    baseline = rows["test"]["mean mask"]
    return result | {f"test_mean_mask_{name}": x for name, x in baseline.items()}


def train_network(
    config: Config, sets: dict[str, Part], side: int, count: int
) -> MasksAndMetrics:
    names = ("backbone", "weights", "cost", "loss", "epochs", "seed")
    names += ("out", "resume", "overwrite")
    options = {name: getattr(config, name) for name in names}
    segmenter = Segmenter.train(
        sets["train"].examples,
        sets["dev"].examples,
        side=side,
        superpixels=count,
        **options,
    )
    if segmenter.about["interrupted"]:
        raise KeyboardInterrupt
    masks = {
        part: {
            f"network, {config.loss}": segmenter.predict(
                [example.image for example in sets[part].examples]
            )
        }
        for part in ("dev", "test")
    }
    return masks, segmenter.about


def fit_linear(config: Config, sets: dict[str, Part]) -> MasksAndMetrics:
    """The path over lambda, and both models at the lambda that is best on dev."""
    parts = {part: subset.examples for part, subset in sets.items()}
    names = ("superpixels", "model", "cost", "seed", "eps", "tol")
    settings = {"data": checksum(parts)}
    settings |= {name: getattr(config, name) for name in names}
    checkpoint = config.out / CHECKPOINT
    rows, state, done = [], None, False
    if config.resume:
        saved = read(checkpoint)
        require_same(checkpoint, saved.get("settings"), settings)
        rows, state, done = saved["rows"], unpack_state(saved["path"]), saved["whole"]
        print(f"resuming {checkpoint}")
    train, dev = sets["train"], sets["dev"]
    problem = linear.build_problem(train.graphs, train.gold_labels, config.cost)

    def save(state: dict[str, Any], is_complete: bool) -> None:
        content = {"settings": settings, "rows": rows, "whole": is_complete}
        write(checkpoint, content | {"path": pack_state(state)})

    def record_point(point: PathPoint) -> None:
        row = {"lam": point.lam, "gap": point.gap, "primal": point.primal}
        row |= {"calls": point.oracle_calls / len(problem)}
        for part, subset in (("train", train), ("dev", dev)):
            scores = subset.scores(
                subset.masks(linear.predict_labels(point.w, subset.graphs))
            )
            row |= {f"{part}_{name}": value for name, value in scores.items()}
        rows.append(row | {"seconds": point.seconds})
        save(point.state, False)
        print(
            f"lambda {row['lam']:9.3g}  gap {row['gap']:.4f}  objective"
            f" {row['primal']:.3f}  calls / n {row['calls']:6.1f}  dev IoU"
            f" {100 * row['dev_iou']:.1f}  {point.seconds:.1f} s",
            flush=True,
        )

    if not done:
        path = linear.regularisation_path(config.eps, config.seed, record_point)
        with print_resume_hint("the last lambda"):
            solution = raise_if_interrupted(path.solve(problem, resume=state))
        print(f"path: {solution.status}")
        save(solution.state, True)
    chosen = max(rows, key=lambda row: row["dev_iou"])["lam"]
    print(f"lambda {chosen:.4g} has the best dev IoU; solving it to {config.tol:g}")
    masks: dict[str, dict[str, list[np.ndarray]]] = {"dev": {}, "test": {}}
    solved = {}
    for name, neighbours in (("superpixels alone", False), ("linear, graph cut", True)):
        with print_resume_hint("the path"):
            solution = linear.solve(
                problem, chosen, config.tol, config.seed, neighbours
            )
        calls = solution.oracle_calls / len(problem)
        solved[name] = {"lam": chosen, "primal": solution.primal, "gap": solution.gap}
        solved[name]["calls"] = calls
        print(
            f"{name}: objective {solution.primal:.4f}, gap {solution.gap:.4f},"
            f" {calls:.0f} calls an image, {solution.status}"
        )
        for part, subset in masks.items():
            graphs = sets[part].graphs
            subset[name] = sets[part].masks(linear.predict_labels(solution.w, graphs))
    figure = config.out / "path.png"
    report.draw_path(figure, rows, chosen, f"{len(train)} images")
    return masks, {"settings": settings, "history": rows, "solved": solved}


def pack_state(state: dict[str, Any]) -> torch.Tensor:
    """Arrays of a solver as the bytes of one file without pickle."""
    sink = io.BytesIO()
    np.savez(sink, **state)
    return torch.frombuffer(bytearray(sink.getbuffer()), dtype=torch.uint8)


def unpack_state(content: torch.Tensor) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content.numpy().tobytes())) as arrays:
        return dict(arrays)


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
