"""Training of a segmenter, under a graph or superpixel by superpixel."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from smoothsp import run_folder
from smoothsp.data.masks import MaskedImage, as_masks
from smoothsp.losses import StructuralHinge
from smoothsp.models.segmenter import BATCH, Loss, Segmenter, mask_scores
from smoothsp.models.segmenter_network import Backbone, SegmenterNetwork, batch_of
from smoothsp.models.superpixels import Cost, Graph, Image, Integers, Mask, graph_of
from smoothsp.training import fit

__all__ = ["Options", "train"]

# Of new layers, of those from ImageNet, of the weights of neighbours before softplus.
RATE, PRETRAINED_RATE, NEIGHBOURS_RATE = 3e-3, 5e-4, 3e-2
# One image in so many is held out if no others choose the best epoch.
HELD_OUT = 10


@dataclass(frozen=True)
class Options:
    """Keywords of ``Segmenter.train``."""

    backbone: Backbone = "small"
    """Convolutional feature extractor."""
    weights: str = "imagenet"
    """With efficientnet-lite0: imagenet for those of its package, a file, or random."""
    superpixels: int = 300
    """Approximate number per image."""
    side: int = 240
    """Longest side of the resized images in pixels."""
    loss: Loss = "hinge"
    """Loss of the whole graph, or of each superpixel separately."""
    cost: Cost = "balanced"
    """Cost of wrong pixels: balanced over both classes, or equal for all pixels."""
    epochs: int = 12
    """Passes over the training images."""
    seed: int = 0
    """Seed of the initial weights, and of the order and the mirroring of images."""


@dataclass(frozen=True)
class Pictures:
    """Scaled images, their masks and graphs, and the nearest labels of superpixels."""

    images: list[Image]
    masks: list[Mask]
    graphs: list[Graph]
    golds: list[Integers]


def train(
    data: Any,
    dev: Any,
    options: Options,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    trainer: Mapping[str, Any] | None,
) -> Segmenter:
    """Train as ``Segmenter.train``."""
    if options.cost not in get_args(Cost):
        expected = ", ".join(get_args(Cost))
        raise ValueError(f"cost: expected one of {expected}, got {options.cost!r}")
    for name, least in (("epochs", 1), ("seed", 0)):
        value = getattr(options, name)
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if out is None:
        return _train(data, dev, options, out, resume, trainer)
    run_folder.require_free(out, resume, overwrite)
    with run_folder.held(out, out / run_folder.MODEL):
        return _train(data, dev, options, out, resume, trainer)


def _train(
    data: Any,
    dev: Any,
    options: Options,
    out: Path | None,
    resume: bool,
    trainer: Mapping[str, Any] | None,
) -> Segmenter:
    torch.manual_seed(options.seed)
    network = SegmenterNetwork(options.backbone, options.weights)
    segmenter = Segmenter(network, options.loss, options.side, options.superpixels)
    examples = as_masks(data)
    if dev is not None:
        held_out = as_masks(dev)
    elif len(examples) < 2 * HELD_OUT:
        held_out = examples
    else:
        held_out = examples[::HELD_OUT]
        examples = [x for n, x in enumerate(examples) if n % HELD_OUT]
    own, others = (_pictures(x, segmenter) for x in (examples, held_out))
    settings = {"data": _checksum(own, others)} | asdict(options)
    segmenter.about["settings"] = settings

    def save(about: Mapping[str, Any]) -> None:
        segmenter.about |= about
        if out is not None and run_folder.is_main_process():
            segmenter.save(out / run_folder.MODEL)

    def evaluate() -> dict[str, float]:
        labels = segmenter.label(others.images, others.graphs)
        found = zip(others.graphs, labels, strict=True)
        return mask_scores(others.masks, [graph.mask(own) for graph, own in found])

    small = options.backbone == "small"
    parts: list[tuple[Any, float]] = [
        (network.backbone.parameters(), RATE if small else PRETRAINED_RATE),
        ([*network.across.parameters(), *network.last.parameters()], RATE),
        ([network.neighbours], NEIGHBOURS_RATE),
    ]
    groups = [{"params": list(weights), "lr": rate} for weights, rate in parts]
    fitted = fit(
        network,
        lambda numbers: _loss(segmenter, own, numbers.tolist(), options.cost),
        lambda: torch.randperm(len(own.images)).split(BATCH),
        evaluate,
        monitor="iou",
        optimizer=torch.optim.Adam(groups),
        epochs=options.epochs,
        seed=options.seed,
        save=save,
        settings=settings,
        out=out,
        resume=resume,
        trainer=trainer,
    )
    save(asdict(fitted))
    return segmenter


def _pictures(examples: Sequence[MaskedImage], segmenter: Segmenter) -> Pictures:
    bar = tqdm(examples, "superpixels", leave=False, disable=None)
    images, masks = map(list, zip(*(x.read(segmenter.side) for x in bar), strict=True))
    graphs = [graph_of(image, segmenter.superpixels) for image in images]
    golds = [graph.gold(mask) for graph, mask in zip(graphs, masks, strict=True)]
    return Pictures(images, masks, graphs, golds)


def _loss(
    segmenter: Segmenter, pictures: Pictures, numbers: list[int], cost: Cost
) -> Tensor:
    """Mean loss of some images, half of them mirrored.

    Costs of an image are scaled to a mean of 1 a superpixel, and its loss is divided by
    their number; so both losses are as large.
    """
    network = segmenter.network
    images, graphs = [], []
    for number, chance in zip(numbers, torch.rand(len(numbers)).tolist(), strict=True):
        image, graph = pictures.images[number], pictures.graphs[number]
        if chance < 0.5:
            image, graph = image[:, ::-1], replace(graph, pixels=graph.pixels[:, ::-1])
        images.append(image)
        graphs.append(graph)
    batch = batch_of(images, graphs, segmenter.side)
    gold = torch.zeros(len(numbers), batch.most, dtype=torch.int64)
    weights = torch.zeros(len(numbers), batch.most)
    for row, (number, graph) in enumerate(zip(numbers, graphs, strict=True)):
        own = pictures.golds[number]
        gold[row, : len(own)] = torch.from_numpy(own)
        weights[row, : len(own)] = torch.from_numpy(len(own) * graph.costs(own, cost))
    batch, gold, weights = (x.to(network.device) for x in (batch, gold, weights))
    scores, sizes = network(batch), batch.sizes.float()
    if segmenter.loss == "cross-entropy":
        margins = 2 * scores * (2 * gold - 1)
        return ((weights * F.softplus(-margins)).sum(1) / sizes).mean()
    hinge, each = StructuralHinge(reduction="sum"), 1 / (len(sizes) * sizes)
    costs = weights[..., None] * (1 - F.one_hot(gold, 2))
    total: Tensor = hinge(network.graph(scores, batch), gold, each, costs)
    return total


def _checksum(*parts: Pictures) -> str:
    """How many images there are, and a digest of them and their masks."""
    digest = 0
    for part in parts:
        for image, mask in zip(part.images, part.masks, strict=True):
            digest = zlib.crc32(np.ascontiguousarray(image), digest)
            digest = zlib.crc32(np.packbits(mask), digest)
    counts = " + ".join(str(len(part.images)) for part in parts)
    return f"{counts} images with checksum {digest:08x}"
