"""Pose estimation: heat maps of a network under a tree of springs between joints.

A convolutional network scores each of 14 joints at each cell of a grid. Learned springs
penalise the offset of a joint from its parent. ``smoothsp.oracles.PictorialStructure``
finds the best pose. The training loss is a hinge whose cost is the distance to the true
joints. Unmarked joints may be anywhere (``LatentHinge``).

    python recipes/pose_tree.py                                  # drawn people
    python recipes/pose_tree.py --data DIR --encoder efficientnet-lite0 --epochs 30

DIR has the layout of Leeds Sports Pose. The last fifth of its people are for testing,
and one in eight of the others for model selection. ``--loss softmax`` trains the heat
map of each joint separately and fits the springs to the training poses.

The recipe writes ``model.safetensors``, the weights of the best epoch, and at the end
``sheet.png`` and ``metrics.json``. ``checkpoint.ckpt`` is for ``--resume``.

Results: ``docs/results/images.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from pose.settings import Config
    from runs import start

    start.read_options(Config)

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pose import augmentation, photographs, report, synthetic
from pose.joints import People, estimate_springs, mean_pose, scores
from pose.network import STRIDE, PoseNetwork, build_encoder
from pose.settings import Config, Loss
from runs import arguments, files, options, terminal
from smoothsp import losses
from smoothsp.models.weights import to_safetensors
from smoothsp.oracles import PictorialStructure
from smoothsp.training import fit, seed_all

MU, TOP_K = 1.0, 5
BATCH, EVAL_BATCH = 8, 40
# Of new layers, and of those from ImageNet.
RATE, PRETRAINED_RATE, WARM_UP = 2e-3, 2e-4, 100
# In cells: from here on a joint is wholly wrong.
COST_RADIUS = 4.0


def main(config: Config) -> dict[str, float]:
    """Train; return the scores of the test people."""
    if config.weights is not None and config.encoder == "small":
        raise ValueError(
            f"weights: expected none with --encoder small, got {config.weights!r}"
        )
    arguments.require_at_least(config, epochs=1, people=20, seed=0)
    with config.locked():
        return train(config)


def load(config: Config) -> dict[str, People]:
    if config.data is None:
        return {part: synthetic.make(part) for part in synthetic.SIZES}
    people = photographs.read(config.data, config.people)
    test = len(people) // 5
    training = range(len(people) - test)
    return {
        "train": people.part([n for n in training if n % 8 != 7]),
        "dev": people.part([n for n in training if n % 8 == 7]),
        "test": people.part([*range(len(people) - test, len(people))]),
    }


def train(config: Config) -> dict[str, float]:
    parts = load(config)
    settings = run_settings(config, parts)
    seed_all(config.seed, 0)
    encoder = build_encoder(config.encoder, config.weights or "imagenet")
    network = PoseNetwork(encoder, *estimate_springs(parts["train"], STRIDE))
    trained = config.encoder != "small" and config.weights != "random"
    groups = [
        {"params": [*encoder.parameters()], "lr": PRETRAINED_RATE if trained else RATE},
        {"params": [w for n, w in network.named_parameters() if "encoder." not in n]},
    ]
    unknown = int((~parts["train"].is_marked).sum())
    print(
        f"{len(parts['train'])} people to train on, {parts['train'].side} pixels wide"
        f" and high, {unknown} joints of them unknown;"
        f" {sum(p.numel() for p in network.parameters()):,} weights"
    )

    def loss_of(numbers: Tensor) -> Tensor:
        people = parts["train"].part(numbers.tolist())
        # drawn people never show their backs, so a mirrored one has sides swapped
        people = augmentation.augment(people, mirror=config.data is not None)
        return loss(config.loss, network(pixels(people, network)), people)

    def save(_: dict[str, Any]) -> None:
        path = config.out / "model.safetensors"
        files.write(path, lambda sink: sink.write(to_safetensors(network)))

    batches = -(-len(parts["train"]) // BATCH)
    fitted = fit(
        network,
        loss_of,
        lambda: torch.randperm(len(parts["train"])).split(BATCH),
        lambda: scores(parts["dev"], predict_poses(network, parts["dev"])[0]),
        monitor="pck",
        optimizer=torch.optim.Adam(groups, RATE, betas=(0.9, 0.95)),
        epochs=config.epochs,
        seed=config.seed,
        warm_up=min(batches, WARM_UP),
        save=save,
        settings=settings,
        out=config.out,
        resume=config.resume,
    )
    if fitted.interrupted:
        raise KeyboardInterrupt
    test = parts["test"]
    tree, alone = predict_poses(network, test)
    mean_poses = np.broadcast_to(mean_pose(parts["train"]), tree.shape)
    predictions = {"tree": tree, "each joint alone, same heat maps": alone}
    predictions["mean pose"] = mean_poses
    return report.write(config.out, settings, fitted.history, test, predictions)


def loss(name: Loss, structure: PictorialStructure, people: People) -> Tensor:
    """The loss of a batch, over what is known."""
    cells, is_marked = augmentation.joint_cells(people, STRIDE)
    cells, is_marked = (x.to(structure.parts.device) for x in (cells, is_marked))
    if name == "softmax":
        number = cells[..., 0] * structure.parts.shape[3] + cells[..., 1]
        each = F.cross_entropy(
            structure.parts.flatten(2).transpose(1, 2), number, reduction="none"
        )
        return (each * is_marked).sum() / len(is_marked)
    unknown = ~is_marked[..., None, None]
    # 0 where the joint is, and everywhere if nobody knows
    cost = structure.distance_cost(cells, COST_RADIUS).masked_fill(unknown, 0.0)
    allowed = (structure.hamming(cells) == 0) | unknown
    smoothing = losses.L2(MU, TOP_K) if name == "hinge-l2" else None
    return losses.LatentHinge(smoothing)(structure, allowed, cost=cost)


def pixels(people: People, network: PoseNetwork) -> Tensor:
    return torch.from_numpy(people.images).to(network.anchors.device)


@torch.no_grad()
def predict_poses(
    network: PoseNetwork, people: People
) -> tuple[np.ndarray, np.ndarray]:
    """Joints ``(n, 14, 2)`` by the tree, and of each joint alone, in pixels."""
    tree, alone = [], []
    for numbers in torch.arange(len(people)).split(EVAL_BATCH):
        structure = network(pixels(people.part(numbers.tolist()), network))
        tree.append(structure.decode()[1].cpu())
        number = structure.parts.flatten(2).argmax(2).cpu()
        width = structure.parts.shape[3]
        alone.append(torch.stack([number // width, number % width], 2))
    return tuple(
        STRIDE * (torch.cat(cells).flip(2).double().numpy() + 0.5)
        for cells in (tree, alone)
    )


def run_settings(config: Config, parts: dict[str, People]) -> dict[str, Any]:
    """Settings that determine the results; --resume requires equal settings."""
    digest = 0
    for part in parts.values():
        for x in (part.images, part.joints, part.is_marked):
            digest = zlib.crc32(np.ascontiguousarray(x).tobytes(), digest)
    count = sum(map(len, parts.values()))
    names = ("loss", "encoder", "weights", "epochs", "seed")
    data = f"{count} people with checksum {digest:08x}"
    return {"data": data} | {name: getattr(config, name) for name in names}


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
