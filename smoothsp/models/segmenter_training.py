"""Training of a segmenter, under a graph or superpixel by superpixel."""

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
from smoothsp.models.segmenter import BATCH, Options, Segmenter, mask_scores
from smoothsp.models.segmenter_network import SegmenterNetwork, collate
from smoothsp.models.superpixels import Cost, Graph, Image, Integers, Mask, build_graph
from smoothsp.models.training_setup import split_dev
from smoothsp.run_folder import MODEL, is_main_process
from smoothsp.training import fit, seed_all

__all__ = ["train"]

# Of new layers, of those from ImageNet, of the weights of neighbours before softplus.
RATE, PRETRAINED_RATE, NEIGHBOURS_RATE = 3e-3, 5e-4, 3e-2


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
    trainer: Mapping[str, Any] | None,
) -> Segmenter:
    """Train as ``Segmenter.train``, in a folder that is held."""
    seed_all(options.seed, 0)
    network = SegmenterNetwork(options.backbone, options.weights)
    segmenter = Segmenter(network, options.loss, options.side, options.superpixels)
    examples = as_masks(data)
    split = (
        split_dev(examples) if dev is None else (examples, as_masks(dev, name="dev"))
    )
    examples, held_out = split
    own, others = (_pictures(x, segmenter) for x in (examples, held_out))
    settings = {"model": "Segmenter", "data": _checksum(own, others)}
    settings |= asdict(options)
    segmenter.about["settings"] = settings

    def save(about: Mapping[str, Any]) -> None:
        segmenter.about |= about
        if out is not None and is_main_process():
            segmenter.save(out / MODEL)

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
        lambda: torch.split(torch.randperm(len(own.images)), BATCH),
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
    graphs = [build_graph(image, segmenter.superpixels) for image in images]
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
    for number, draws in zip(numbers, torch.rand(len(numbers)).tolist(), strict=True):
        image, graph = pictures.images[number], pictures.graphs[number]
        if draws < 0.5:
            image, graph = image[:, ::-1], replace(graph, pixels=graph.pixels[:, ::-1])
        images.append(image)
        graphs.append(graph)
    batch = collate(images, graphs, segmenter.side)
    gold = torch.zeros(len(numbers), batch.most, dtype=torch.int64)
    weights = torch.zeros(len(numbers), batch.most)
    for row, (number, graph) in enumerate(zip(numbers, graphs, strict=True)):
        own = pictures.golds[number]
        gold[row, : len(own)] = torch.from_numpy(own)
        weights[row, : len(own)] = torch.from_numpy(len(own) * graph.costs(own, cost))
    batch = batch.to(network.device)
    gold, weights = gold.to(network.device), weights.to(network.device)
    scores, sizes = network(batch), batch.sizes.float()
    if segmenter.loss == "cross-entropy":
        margins = 2 * scores * (2 * gold - 1)
        return ((weights * F.softplus(-margins)).sum(1) / sizes).mean()
    hinge, each = StructuralHinge(reduction="sum"), 1 / (len(sizes) * sizes)
    costs = weights[..., None] * (1 - F.one_hot(gold, 2))
    total: Tensor = hinge(network.graph(scores, batch), gold, each, costs)
    return total


def _checksum(*parts: Pictures) -> str:
    """Number of images, and a digest of them and their masks."""
    digest = 0
    for part in parts:
        for image, mask in zip(part.images, part.masks, strict=True):
            digest = zlib.crc32(image.tobytes(), digest)
            digest = zlib.crc32(np.packbits(mask).tobytes(), digest)
    counts = " + ".join(str(len(part.images)) for part in parts)
    return f"{counts} images with checksum {digest:08x}"
