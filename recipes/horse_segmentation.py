"""Figure and ground: superpixels under a minimum cut, on photographs of horses.

SLIC cuts an image into superpixels; histograms of colours, textures and places describe
them, contrasts their neighbours. ``smoothsp.oracles.BinaryGraph`` finds the best labels
of all, exactly, by a maximum flow.

    python recipes/horse_segmentation.py                        # drawn animals
    python recipes/horse_segmentation.py --data DIR             # images and masks
    python recipes/horse_segmentation.py --model network --loss cross-entropy
    python recipes/horse_segmentation.py --predict FILE_OR_FOLDER

DIR holds ``images`` (or ``gray``, or ``rgb``) and ``figure_ground`` (or ``masks``) with
the same names, as the Weizmann horses do. Three fifths of the images are for training,
one fifth for model selection, and one fifth for the final test.

``--model linear`` is a structured SVM by block-coordinate pairwise Frank-Wolfe with gap
sampling and a cache, its smoothing weights at least 0: a path over all lambda, each
point with its duality gap, of which the one with the best IoU on dev is solved to
``--tol``. ``--model network`` trains a small convolutional network end to end.

``model`` is a folder that loads without running code; ``checkpoint.pt`` is for
``--resume``. At the end the recipe writes ``metrics.json``, ``sheet.png`` and
``path.png``. Results: ``docs/results/images.md``.

Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs", for the linear model, its features and its solver.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from runs import arguments, checkpoint, files, options, terminal
from runs import folder as run_folder
from runs.interrupts import stopping
from runs.interrupts import whole as whole_solution
from runs.outputs import Outputs
from segmentation import (
    drawn,
    linear,
    model_folder,
    network,
    prediction,
    report,
    training,
    words,
)
from segmentation import folder as image_folder
from segmentation.picture_sets import PictureSet, checksum, prepare
from segmentation.superpixels import COSTS
from smoothsp.linear.solvers import PathPoint
from smoothsp.models.training import seed_all

Kind = Literal["linear", "network"]
Cost = Literal["balanced", "pixels"]
DRAWN_SIDE, DRAWN_SUPERPIXELS = 128, 150


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of images and masks; default: drawn animals."""
    limit: int | None = None
    """Maximum number of images, in random order; default: all, or 100 drawn ones."""
    side: int = 240
    """Longest side of the resized images in pixels; drawn images have 128."""
    predict: Path | None = None
    """Segment this image, or those in this folder, with the model in --out."""
    skip_bad: bool = False
    """With --predict: leave out images that cannot be read."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    model: Kind = "linear"
    """A structured SVM, or a convolutional network."""
    superpixels: int = 300
    """Approximate number per image; half as many for drawn images."""
    backbone: Literal["small", "efficientnet-lite0"] = "small"
    """With network: the convolutional feature extractor."""
    weights: str = "imagenet"
    """With efficientnet-lite0: imagenet for those of its package, a file, or random."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    cost: Cost = "balanced"
    """Cost of wrong pixels: balanced over both classes, or equal for all pixels."""
    loss: training.Loss = "hinge"
    """With network: a loss of the graph, or of each superpixel separately."""
    eps: float = 0.1
    """With linear: suboptimality of the objective along the path."""
    tol: float = 0.01
    """With linear: the duality gap at the chosen lambda."""
    epochs: int = 12
    """With network: passes over the training images."""
    seed: int = 1
    """Seed of the initial weights and the order of images."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/horse_segmentation")
    """Folder of the checkpoint, the model, the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a segmenter, or segment images with a trained one."""


def main(config: Config) -> dict[str, float]:
    """Train, or segment; the numbers that come back are those of the held-out part."""
    check(config)
    if config.predict is not None:
        model = model_folder.load(config.model_folder)
        decode = checkpoint.use(config.model_folder, lambda: prediction.decoder(model))
        return prediction.write(
            config.predict, model, decode, config.out / "predicted", config.skip_bad
        )
    with run_folder.held(config.out, config.model_folder):
        return train(config)


def check(config: Config) -> None:
    arguments.one_of(
        config, model=get_args(Kind), cost=COSTS, backbone=network.BACKBONES
    )
    arguments.one_of(config, loss=get_args(training.Loss))
    arguments.at_least(config, side=32, superpixels=2, epochs=1, seed=0, limit=3)
    for name in ("eps", "tol"):
        if not 0 < getattr(config, name) < 1:
            value = getattr(config, name)
            raise ValueError(f"{name}: expected a number between 0 and 1, got {value}")
    arguments.of_run(config)


def train(config: Config) -> dict[str, float]:
    side, count = config.side, config.superpixels
    if config.data is None:
        side, count = DRAWN_SIDE, min(count, DRAWN_SUPERPIXELS)
        parts = drawn.make(config.limit or 100)
    else:
        parts = image_folder.load(config.data, config.limit, side)
    settings = settings_of(config, checksum(parts))
    saved = checkpoint.to_resume(config.checkpoint, settings, config.resume)
    known = words.learn([example.image for example in parts["train"]])
    sets = prepare(parts, known, count)
    sizes = [len(graph.sizes) for graph in sets["train"].graphs]
    counts = ", ".join(f"{len(own)} {part}" for part, own in sets.items())
    print(f"{counts} images, {np.mean(sizes):.0f} superpixels each")
    about = Trained(config, settings, sets, side)
    with_labels = about.linear if config.model == "linear" else about.network
    labels, weights, more = with_labels(saved)
    model = model_folder.Model(
        config.model, known, side, count, weights, {"settings": settings}
    )
    model_folder.save(config.model_folder, model)
    return finish(config, settings, sets, labels, more)


class Trained:
    """Training of either kind: labels by part and name, weights, and the history."""

    def __init__(
        self,
        config: Config,
        settings: dict[str, Any],
        sets: dict[str, PictureSet],
        side: int,
    ) -> None:
        self.config, self.settings, self.sets, self.side = config, settings, sets, side

    def save(self, **state: Any) -> None:
        content = {"settings": self.settings, "best": {}} | state
        checkpoint.save(self.config.checkpoint, content)

    def linear(self, saved: dict[str, Any] | None) -> tuple[Any, Any, Any]:
        config, sets = self.config, self.sets
        train, dev = sets["train"], sets["dev"]
        problem = linear.problem_of(train.graphs, train.golds, config.cost)
        rows = saved["rows"] if saved else []
        state, whole = None, False
        if saved:
            state, whole = unpacked(saved["path"]), saved["whole"]

        def reached(point: PathPoint) -> None:
            row = {"lam": point.lam, "gap": point.gap, "primal": point.primal}
            row |= {"calls": point.oracle_calls / len(problem)}
            for part, own in (("train", train), ("dev", dev)):
                found = own.scores(linear.labels_of(point.w, own.graphs))
                row |= {f"{part}_{name}": value for name, value in found.items()}
            rows.append(row | {"seconds": point.seconds})
            self.save(rows=rows, path=packed(point.state), whole=False)
            print(
                f"lambda {row['lam']:9.3g}  gap {row['gap']:.4f}  objective"
                f" {row['primal']:.3f}  calls / n {row['calls']:6.1f}  dev IoU"
                f" {100 * row['dev_iou']:.1f}  {point.seconds:.1f} s",
                flush=True,
            )

        if not whole:
            path = linear.path(config.eps, config.seed, reached)
            with stopping("the last lambda"):
                found = whole_solution(path.solve(problem, resume=state))
            print(f"path: {found.status}")
            self.save(rows=rows, path=packed(found.state), whole=True)
        chosen = max(rows, key=lambda row: row["dev_iou"])["lam"]
        print(f"lambda {chosen:.4g} has the best dev IoU; solving it to {config.tol:g}")
        weights, ends = {}, {}
        for name, neighbours in (("alone", False), ("together", True)):
            with stopping("the path"):
                found = linear.solve(
                    problem, chosen, config.tol, config.seed, neighbours
                )
            weights[name] = found.w
            ends[name] = {"lam": chosen, "primal": found.primal, "gap": found.gap}
            ends[name] |= {"calls": found.oracle_calls / len(problem)}
            print(
                f"{name}: objective {found.primal:.4f}, gap {found.gap:.4f},"
                f" {ends[name]['calls']:.0f} calls an image, {found.status}"
            )
        labels = {
            part: {
                "superpixels alone": linear.labels_of(weights["alone"], own.graphs),
                "linear, graph cut": linear.labels_of(weights["together"], own.graphs),
            }
            for part, own in sets.items()
            if part != "train"
        }
        figure = config.out / "path.png"
        report.along_path(figure, rows, chosen, f"{len(train)} images")
        w = torch.from_numpy(weights["together"])
        return labels, {"w": w}, {"history": rows, "solved": ends}

    def network(self, saved: dict[str, Any] | None) -> tuple[Any, Any, Any]:
        config, sets = self.config, self.sets
        seed_all(config.seed, 0)
        model = network.Segmenter(config.backbone, config.weights)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        run = training.Run(model.to(device), config.loss, config.cost, self.side)
        if saved:
            checkpoint.use(config.checkpoint, lambda: run.load(saved))
        count = sum(p.numel() for p in model.parameters())
        print(f"{count:,} weights on {device}, {config.loss}")
        for epoch in range(len(run.history) + 1, config.epochs + 1):
            with stopping(f"epoch {epoch - 1}" if epoch > 1 else ""):
                row = training.train(run, sets, config.seed, config.epochs)
                run.record(row)
                self.save(**run.state())
            print(
                f"epoch {epoch:>2}/{config.epochs}  loss {row['loss']:.4f}  dev IoU"
                f" {100 * row['dev_iou']:.1f}  {row['cpu_seconds']:.1f} s of CPU",
                flush=True,
            )
        model.load_state_dict(run.best)
        name = f"network, {config.loss}"
        labels = {
            part: {
                name: training.labels_of(
                    model,
                    config.loss,
                    [x.image for x in own.examples],
                    own.graphs,
                    self.side,
                )
            }
            for part, own in sets.items()
            if part != "train"
        }
        return labels, model.state_dict(), {"history": run.history}


def finish(
    config: Config,
    settings: dict[str, Any],
    sets: dict[str, PictureSet],
    labels: dict[str, dict[str, list[np.ndarray]]],
    more: dict[str, Any],
) -> dict[str, float]:
    rows = report.tables(sets, labels)
    print(f"\n{report.printed(rows)}")
    ours = list(labels["test"])[-1]
    title = f"{ours}: {len(sets['test'])} held-out images, from best to worst"
    masks = sets["test"].masks(labels["test"][ours])
    report.sheet(config.out / "sheet.png", sets["test"].examples, masks, title)
    content = {"settings": settings, "scores": rows} | more
    files.write_json(config.out / "metrics.json", content)
    print(f"\nsee {config.out}: metrics.json, sheet.png")
    found = {
        f"{part}_{name}": x for part in rows for name, x in rows[part][ours].items()
    }
    known = rows["test"]["mean mask"]
    return found | {f"test_mean_mask_{name}": x for name, x in known.items()}


def packed(state: dict[str, Any]) -> torch.Tensor:
    """Arrays of a solver as the bytes of one file without pickle."""
    sink = io.BytesIO()
    np.savez(sink, **state)
    return torch.frombuffer(bytearray(sink.getbuffer()), dtype=torch.uint8)


def unpacked(content: torch.Tensor) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content.numpy().tobytes())) as arrays:
        return dict(arrays)


def settings_of(config: Config, data: str) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    names = ["superpixels", "model", "cost", "seed"]
    names += (
        ["eps", "tol"]
        if config.model == "linear"
        else ["loss", "backbone", "weights", "epochs"]
    )
    return {"data": data} | {name: getattr(config, name) for name in names}


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
