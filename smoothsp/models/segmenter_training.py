"""Training of a segmenter, by the hinge of the graph or by cross-entropy."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from smoothsp.data.masks import MaskedImage, as_masks
from smoothsp.losses import StructuralHinge
from smoothsp.models.segmenter import BATCH_SIZE, Options, Segmenter, mask_scores
from smoothsp.models.segmenter_network import SegmenterNetwork, collate
from smoothsp.models.superpixels import Cost, Graph, Image, Integers, Mask, build_graph
from smoothsp.models.training_setup import split_dev
from smoothsp.run_folder import MODEL, is_main_process
from smoothsp.training import fit, seed_all

__all__ = ["train"]

# Learning rates of new layers, of layers from ImageNet, and of edge weights (before
# softplus).
RATE, PRETRAINED_RATE, NEIGHBOURS_RATE = 3e-3, 5e-4, 3e-2


@dataclass(frozen=True)
class ImageSet:
    """Scaled images with masks, superpixel graphs and gold superpixel labels."""

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
    trainer: Mapping[str, Any] | None,
) -> Segmenter:
    """Train a segmenter; see ``Segmenter.train``. The folder is locked already."""
    seed_all(options.seed, 0)
    network = SegmenterNetwork(options.backbone, options.weights)
    segmenter = Segmenter(network, options.loss, options.side, options.superpixels)
    examples = as_masks(data)
    split = (
        split_dev(examples) if dev is None else (examples, as_masks(dev, name="dev"))
    )
    examples, dev_examples = split
    train_images, dev_images = (
        _build_image_set(x, segmenter) for x in (examples, dev_examples)
    )
    settings = {
        "model": "Segmenter",
        "data": _describe_images(train_images, dev_images),
    }
    settings |= asdict(options)
    segmenter.about["settings"] = settings

    def save(about: Mapping[str, Any]) -> None:
        segmenter.about |= about
        if out is not None and is_main_process():
            segmenter.save(out / MODEL)

    def evaluate() -> dict[str, float]:
        labels = segmenter.label(dev_images.images, dev_images.graphs)
        pairs = zip(dev_images.graphs, labels, strict=True)
        return mask_scores(
            dev_images.masks,
            [graph.mask(train_images) for graph, train_images in pairs],
        )

    small = options.backbone == "small"
    parts: list[tuple[Any, float]] = [
        (network.backbone.parameters(), RATE if small else PRETRAINED_RATE),
        ([*network.across.parameters(), *network.last.parameters()], RATE),
        ([network.neighbours], NEIGHBOURS_RATE),
    ]
    groups = [{"params": list(weights), "lr": rate} for weights, rate in parts]
    fitted = fit(
        network,
        lambda numbers: _compute_loss(
            segmenter, train_images, numbers.tolist(), options.cost
        ),
        lambda: torch.split(torch.randperm(len(train_images.images)), BATCH_SIZE),
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


def _build_image_set(examples: Sequence[MaskedImage], segmenter: Segmenter) -> ImageSet:
    progress = tqdm(examples, "superpixels", leave=False, disable=None)
    images, masks = map(
        list, zip(*(x.read(segmenter.side) for x in progress), strict=True)
    )
    graphs = [build_graph(image, segmenter.superpixels) for image in images]
    golds = [graph.gold(mask) for graph, mask in zip(graphs, masks, strict=True)]
    return ImageSet(images, masks, graphs, golds)


def _compute_loss(
    segmenter: Segmenter, image_set: ImageSet, image_indices: list[int], cost: Cost
) -> Tensor:
    """Return the mean loss of a batch of images, each mirrored with probability 1/2.

    The costs of an image are scaled to a mean of 1 a superpixel, and its loss is
    divided by the number of superpixels: hinge and cross-entropy have similar scales.
    """
    network = segmenter.network
    images, graphs = [], []
    for number, draw in zip(
        image_indices, torch.rand(len(image_indices)).tolist(), strict=True
    ):
        image, graph = image_set.images[number], image_set.graphs[number]
        if draw < 0.5:
            image, graph = image[:, ::-1], replace(graph, pixels=graph.pixels[:, ::-1])
        images.append(image)
        graphs.append(graph)
    batch = collate(images, graphs, segmenter.side)
    gold = torch.zeros(len(image_indices), batch.max_superpixels, dtype=torch.int64)
    weights = torch.zeros(len(image_indices), batch.max_superpixels)
    for row, (number, graph) in enumerate(zip(image_indices, graphs, strict=True)):
        superpixel_labels = image_set.golds[number]
        gold[row, : len(superpixel_labels)] = torch.from_numpy(superpixel_labels)
        weights[row, : len(superpixel_labels)] = torch.from_numpy(
            len(superpixel_labels) * graph.costs(superpixel_labels, cost)
        )
    batch = batch.to(network.device)
    gold, weights = gold.to(network.device), weights.to(network.device)
    scores, sizes = network(batch), batch.sizes.float()
    if segmenter.loss == "cross-entropy":
        margins = 2 * scores * (2 * gold - 1)
        return ((weights * F.softplus(-margins)).sum(1) / sizes).mean()
    hinge, loss_weights = StructuralHinge(reduction="sum"), 1 / (len(sizes) * sizes)
    costs = weights[..., None] * (1 - F.one_hot(gold, 2))
    total: Tensor = hinge(network.graph(scores, batch), gold, loss_weights, costs)
    return total


def _describe_images(*parts: ImageSet) -> str:
    """Return the number of images and a CRC-32 of images and masks, as text."""
    digest = 0
    for part in parts:
        for image, mask in zip(part.images, part.masks, strict=True):
            digest = zlib.crc32(image.tobytes(), digest)
            digest = zlib.crc32(np.packbits(mask).tobytes(), digest)
    counts = " + ".join(str(len(part.images)) for part in parts)
    return f"{counts} images with checksum {digest:08x}"
