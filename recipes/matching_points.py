"""Key points of two views: which of them are the same? Learned scores of pairs.

SIFT or ORB points of an image and of a view of it that is turned, zoomed, slanted, in
another light, noisy and partly hidden. A small network scores each pair of points by
how alike they look, how the one is turned and moved, and how many neighbours move the
same way; ``smoothsp.oracles.Matching`` says who belongs to whom, or to nobody.

    python recipes/matching_points.py                            # drawn images
    python recipes/matching_points.py --data FOLDER --loss hinge-l2
    python recipes/matching_points.py --predict A.jpg B.jpg

Of the images of FOLDER one in five chooses the epoch and one in five is for testing.
The views are by homographies drawn at random, so it is known which points are the same.

``model`` is a folder that is loaded without running code, written after every epoch
that is the best so far; ``checkpoint.pt`` is what ``--resume`` needs; ``sheet.png`` and
``metrics.json`` stand there at the end. ``--predict`` writes ``matches.json`` and
``matches.png``.

Results: ``docs/results/images.md``.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import operator
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from localization.folder import read_image
from matching import baselines, points, report, views
from matching.network import PairScores
from matching.points import Kind, Pair
from parsing.training import Run, run_epochs
from runs import arguments, checkpoint, model_folder, options, terminal
from runs import folder as run_folder
from smoothsp import losses
from smoothsp.models.training import seed_all
from smoothsp.oracles import Matching

Loss = Literal["hinge", "hinge-l2", "perturbed", "softmax"]
MU, TOP_K, SAMPLES = 1.0, 5, 8
BATCH = 4
DRAWN = {"train": 120, "dev": 40, "test": 40}
PARTS = ("train", "train", "train", "dev", "test")

Images = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Data:
    """Files."""

    data: Path | None = None
    """Folder of images; default: drawn ones."""
    images: int = 200
    """Most images of the folder that are used."""
    predict: tuple[Path, ...] | None = None
    """Match the points of two images with the model in --out."""


@dataclass(frozen=True)
class Model:
    """What is trained."""

    features: Kind = "sift"
    """What OpenCV finds and describes points with."""
    points: int = 40
    """Most points of a view."""


@dataclass(frozen=True)
class Training:
    """How it is trained."""

    loss: Loss = "hinge"
    """What is minimised; l2 says how the hinge is smoothed, softmax takes each point of
    the first view by itself."""
    epochs: int = 12
    """Passes over the pairs of views."""
    seed: int = 1
    """Of the initial weights and the order of pairs."""


@dataclass(frozen=True)
class Output:
    """What is written."""

    out: Path = Path("runs/matching_points")
    """Folder of the checkpoint, the model, the numbers and the figures."""
    resume: bool = False
    """Continue the run in --out from its last whole epoch."""
    overwrite: bool = False
    """Replace the run in --out."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Learn to match key points of two views, or match those of two files."""

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    @property
    def model(self) -> Path:
        return self.out / "model"


def main(config: Config) -> dict[str, float]:
    """Train, or predict; the numbers that come back are those of the test pairs."""
    check(config)
    if config.predict is not None:
        return predict(config, *config.predict)
    with run_folder.held(config.out, config.model):
        return train(config)


def check(config: Config) -> None:
    arguments.one_of(config, features=get_args(Kind), loss=get_args(Loss))
    arguments.at_least(config, epochs=1, images=5, points=2, seed=0)
    arguments.of_run(config)
    if config.predict is not None and len(config.predict) != 2:
        raise ValueError(
            f"predict: expected two images, got {len(config.predict)}. Give both, as in"
            " --predict A.jpg B.jpg"
        )


def load(config: Config) -> dict[str, list[tuple[Images, Pair]]]:
    """Pairs of views by part; the views do not depend on the seed."""
    parts: dict[str, list[tuple[Images, Pair]]] = {"train": [], "dev": [], "test": []}
    if config.data is None:
        wanted = [(part, n) for part, count in DRAWN.items() for n in range(count)]
        sources = [
            (part, number, lambda n=number: views.draw(n))
            for number, (part, _) in enumerate(wanted)
        ]
    else:
        paths = views.images_of(config.data, config.images)
        sources = [
            (PARTS[number % 5], number, lambda path=path: views.read(path))
            for number, path in enumerate(paths)
        ]
    for part, number, image_of in tqdm(sources, "points", leave=False, disable=None):
        image = image_of()
        view = views.other_view(image, np.random.default_rng([number, 0]))
        first = points.detect(image, config.features, config.points)
        second = points.detect(view.image, config.features, config.points, view.seen)
        pair = points.pair_of(first, second, view.homography)
        parts[part].append(((image, view.image), pair))
    return parts


def criterion_of(loss: Loss) -> nn.Module:
    if loss == "softmax":
        return EachRow()
    if loss == "perturbed":
        return losses.PerturbedLoss(SAMPLES)
    return losses.StructuralHinge(losses.L2(MU, TOP_K) if loss == "hinge-l2" else None)


class EachRow(nn.Module):
    """Cross-entropy of each point's partner, whoever else has it."""

    def forward(self, matching: Matching, columns: Tensor) -> Tensor:
        last = matching.scores.shape[2] - 1
        true = torch.where(columns < 0, last, columns)
        total = F.cross_entropy(
            matching.scores.flatten(0, 1), true.flatten(), reduction="sum"
        )
        return total / len(columns)


def train(config: Config) -> dict[str, float]:
    parts = load(config)
    pairs = {name: [pair for _, pair in rows] for name, rows in parts.items()}
    settings = settings_of(config, pairs)
    path = config.checkpoint
    saved = checkpoint.to_resume(path, settings, config.resume)
    seed_all(config.seed, 0)
    run = Run(PairScores(pairs["train"][0].first.descriptors.shape[1]))
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    print(
        f"{len(pairs['train'])} pairs of views to train on, "
        f"{mean(len(p.first) for p in pairs['train']):.0f} points each, of which "
        f"{mean(int((p.columns >= 0).sum()) for p in pairs['train']):.0f} are in both;"
        f" {sum(p.numel() for p in run.model.parameters()):,} weights"
    )
    criterion = criterion_of(config.loss)

    def loss_of(numbers: Tensor) -> Tensor:
        batch = points.batch([pairs["train"][n] for n in numbers.tolist()])
        return criterion(run.model(batch), batch["columns"])

    def save() -> None:
        about = {"settings": settings, "history": run.history}
        about["described"] = run.model.described
        model_folder.save(config.model, run.average.module, about)

    def evaluate(model: nn.Module) -> dict[str, float]:
        return baselines.scores(pairs["dev"], matched(model, pairs["dev"]))

    run_epochs(
        run,
        path=path,
        about={"settings": settings},
        seed=config.seed,
        epochs=config.epochs,
        shuffled=lambda: list(torch.randperm(len(pairs["train"])).split(BATCH)),
        loss_of=loss_of,
        evaluate=evaluate,
        by="f1",
        save=save,
    )
    run.average.module.load_state_dict(run.best)
    save()
    model, held_out = run.average.module, pairs["test"]
    found = {"matching, learned scores": matched(model, held_out)}
    found["each point alone, same scores"] = matched(model, held_out, alone=True)
    for name, way in baselines.WAYS.items():
        found[name] = [way(pair) for pair in held_out]
    images = [own for own, _ in parts["test"]]
    return report.write(config.out, settings, run.history, held_out, images, found)


def mean(numbers: Any) -> float:
    listed = list(numbers)
    return sum(listed) / max(len(listed), 1)


@torch.no_grad()
def matched(
    model: nn.Module, pairs: Sequence[Pair], alone: bool = False
) -> list[Tensor]:
    """The column of each row, -1 for none; ``alone`` lets rows share columns."""
    model.eval()
    found = []
    for pair in pairs:
        matching = model(points.batch([pair]))
        columns = matching.decode()[1][0]
        if alone:
            columns = matching.scores[0].argmax(1)
            columns = torch.where(columns == len(pair.second), -1, columns)
        found.append(columns)
    return found


def told(about: dict[str, Any]) -> tuple[Kind, int]:
    """Which points a model was trained on, and how many of an image."""
    kind, most = about["settings"]["features"], about["settings"]["points"]
    if kind not in points.KINDS or operator.index(most) < 1:
        raise ValueError(f"{most} points of the kind {kind!r}")
    if about["described"] != points.DESCRIBED[kind]:
        raise ValueError(f"descriptors of {about['described']} numbers for {kind}")
    return kind, most


def predict(config: Config, first: Path, second: Path) -> dict[str, float]:
    """Match the points of two files."""
    model, about = model_folder.load(
        config.model, PairScores, lambda about: PairScores(about["described"])
    )
    kind, most = checkpoint.use(config.model, lambda: told(about))
    images = (views.read(first), views.read(second))
    # of the longer sides, which are not rounded
    zooms = [
        max(image.shape[:2]) / max(read_image(path).shape[:2])
        for image, path in zip(images, (first, second), strict=True)
    ]
    both = (points.detect(image, kind, most) for image in images)
    pair = points.pair_of(*both)
    columns = matched(model, [pair])[0]
    names = (str(first), str(second))
    matches = report.prediction(config.out, names, images, zooms, pair, columns)
    print(
        f"{len(matches)} partners of {len(pair.first)} and {len(pair.second)} points;"
        f" see {config.out / 'matches.png'} and matches.json beside it"
    )
    return {"matches": float(len(matches))}


def settings_of(config: Config, pairs: dict[str, list[Pair]]) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    digest, count = 0, 0
    for pair in (pair for part in pairs.values() for pair in part):
        count += 1
        for x in (pair.first.places, pair.second.places, pair.columns):
            digest = zlib.crc32(x.numpy().tobytes(), digest)
    return {
        "data": f"{count} pairs of views with checksum {digest:08x}",
        "features": config.features,
        "points": config.points,
        "loss": config.loss,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
