"""Training of a network end to end, under a graph or superpixel by superpixel."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from segmentation.network import STRIDE, Segmenter, Small
from segmentation.picture_sets import PictureSet
from segmentation.superpixels import EDGE_FEATURES, Graph
from smoothsp.divergence import diagnosed, require_sound
from smoothsp.losses import StructuralHinge
from smoothsp.models.resuming import restore
from smoothsp.oracles import BinaryGraph

Loss = Literal["hinge", "cross-entropy"]
# Of new layers, of those from ImageNet, of the weights of neighbours before softplus.
RATE, PRETRAINED_RATE, NEIGHBOURS_RATE = 3e-3, 5e-4, 3e-2
LONGEST_GRADIENT = 5.0
BATCH = 4


@dataclass(frozen=True)
class Pictures:
    """A few images and their graphs as tensors, padded to the largest."""

    images: Tensor
    pixels: Tensor
    edges: Tensor
    index: Tensor
    sizes: Tensor

    @property
    def most(self) -> int:
        return int(max(2, self.sizes.max()))

    def to(self, device: torch.device) -> "Pictures":
        return Pictures(*(x.to(device) for x in self.__dict__.values()))


def pictures(images: list[np.ndarray], graphs: list[Graph], side: int) -> Pictures:
    """On a canvas of one size: scores do not depend on what else is in the batch."""
    sizes = torch.tensor([len(graph.sizes) for graph in graphs])
    most, edges = max(2, int(sizes.max())), max(len(g.index) for g in graphs)
    canvas = -(-side // STRIDE) * STRIDE
    shape = canvas, canvas
    grey = np.full((len(images), *shape, 3), 127, np.float32)
    pixels = np.full((len(images), *shape), most)
    features = np.zeros((len(images), edges, EDGE_FEATURES), np.float32)
    index = np.tile(np.array([0, 1]), (len(images), edges, 1))
    for i, (image, graph) in enumerate(zip(images, graphs, strict=True)):
        height, width = image.shape[:2]
        grey[i, :height, :width] = image
        pixels[i, :height, :width] = graph.pixels
        features[i, : len(graph.edges)] = graph.edges
        index[i, : len(graph.index)] = graph.index
    found = grey.transpose(0, 3, 1, 2), pixels, features, index
    return Pictures(*map(torch.from_numpy, found), sizes)


class Run:
    """A network, and all that training changes."""

    def __init__(self, network: Segmenter, loss: Loss, cost: str, side: int) -> None:
        self.network, self.loss, self.cost, self.side = network, loss, cost, side
        self.hinge = StructuralHinge(reduction="sum")
        self.device = next(network.parameters()).device
        small = isinstance(network.backbone, Small)
        slow = list(network.backbone.parameters())
        groups = [
            {"params": slow, "rate": RATE if small else PRETRAINED_RATE},
            {"params": [*network.across.parameters(), *network.last.parameters()]},
            {"params": [network.neighbours], "rate": NEIGHBOURS_RATE},
        ]
        self.optimizer = torch.optim.Adam([{"rate": RATE} | g for g in groups])
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}

    def epoch(self, train: PictureSet, seed: int, epochs: int) -> float:
        """One pass over the images in an order of their own: the mean loss."""
        number = len(self.history)
        chance = np.random.default_rng([seed, number])
        order = chance.permutation(len(train))
        total, step = 0.0, number * len(order)
        self.network.train()
        bar = tqdm(
            total=len(order), desc=f"epoch {number + 1}", leave=False, disable=None
        )
        with bar:
            for begin in range(0, len(order), BATCH):
                chosen = order[begin : begin + BATCH]
                left = 1 - (step + begin) / (epochs * len(order))
                for group in self.optimizer.param_groups:
                    group["lr"] = group["rate"] * left
                rate = self.optimizer.param_groups[0]["lr"]
                flipped = chance.random(len(chosen)) < 0.5
                with diagnosed(self.network.parameters(), rate):
                    loss = self.loss_of(train, chosen, flipped)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), LONGEST_GRADIENT)
                self.optimizer.step()
                total += require_sound(loss.item(), rate) * len(chosen)
                bar.update(len(chosen))
        first = self.history[0]["loss"] if self.history else None
        return require_sound(total / len(order), rate, first)

    def loss_of(
        self, train: PictureSet, chosen: np.ndarray, turned: np.ndarray
    ) -> Tensor:
        """Of some images, mirrored where ``turned``.

        Costs of an image are scaled to a mean of 1 a superpixel, and its loss is
        divided by their number; so both losses are as large.
        """
        graphs = [train.graphs[i] for i in chosen]
        found = pictures([train.examples[i].image for i in chosen], graphs, self.side)
        for row in np.flatnonzero(turned):
            height, width = graphs[row].pixels.shape
            for x in (found.images[row], found.pixels[row]):
                x[..., :height, :width] = x[..., :height, :width].flip(-1)
        found = found.to(self.device)
        gold = torch.zeros(len(chosen), found.most, dtype=torch.int64)
        weights = torch.zeros(len(chosen), found.most)
        for row, (number, graph) in enumerate(zip(chosen, graphs, strict=True)):
            own = train.golds[number]
            price = len(own) * graph.costs(own, self.cost)
            gold[row, : len(own)] = torch.from_numpy(own)
            weights[row, : len(own)] = torch.from_numpy(price)
        gold, weights = gold.to(self.device), weights.to(self.device)
        scores = self.network(found.images, found.pixels, found.most)
        sizes = found.sizes.float()
        if self.loss == "cross-entropy":
            margins = 2 * scores * (2 * gold - 1)
            return ((weights * F.softplus(-margins)).sum(1) / sizes).mean()
        cost = weights[..., None] * (1 - F.one_hot(gold, 2))
        graph = graph_of(scores, self.network.agreement(found.edges), found.index)
        return self.hinge(graph, gold, 1 / (len(sizes) * sizes), cost)

    def record(self, row: dict[str, Any]) -> bool:
        """Append to the history; remember the weights if they are the best on dev."""
        best = row["dev_iou"] > max((r["dev_iou"] for r in self.history), default=-1)
        if best:
            state = self.network.state_dict()
            self.best = {name: value.clone() for name, value in state.items()}
        self.history.append(row)
        return best

    def state(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "best": self.best,
        }

    def load(self, state: dict[str, Any]) -> None:
        parts = {"network": self.network, "optimizer": self.optimizer}
        needed = ("epoch", "loss", "dev_iou", "cpu_seconds")
        self.history, self.best = restore(state, parts, self.network, needed)


def graph_of(scores: Tensor, agreement: Tensor, index: Tensor) -> BinaryGraph:
    """Scores of superpixels for either label, and of neighbours that agree."""
    return BinaryGraph(torch.stack([-scores, scores], -1), agreement, index)


@torch.no_grad()
def labels_of(
    network: Segmenter,
    loss: Loss,
    images: list[np.ndarray],
    graphs: list[Graph],
    side: int,
) -> list[np.ndarray]:
    """Labels of superpixels: the best of the graph, or each by its own score."""
    network.eval()
    device, labels = next(network.parameters()).device, []
    for begin in range(0, len(images), BATCH):
        rows = slice(begin, begin + BATCH)
        found = pictures(images[rows], graphs[rows], side).to(device)
        scores = network(found.images, found.pixels, found.most)
        if loss == "cross-entropy":
            decoded = (scores > 0).long()
        else:
            agreement = network.agreement(found.edges)
            decoded = graph_of(scores, agreement, found.index).decode()[1]
        for row, size in zip(decoded.cpu().numpy(), found.sizes.tolist(), strict=True):
            labels.append(row[:size])
    return labels


def train(
    run: Run, sets: dict[str, PictureSet], seed: int, epochs: int
) -> dict[str, Any]:
    """One epoch, and how good it is: a row of the history."""
    start, cpu = time.perf_counter(), time.process_time()
    loss = run.epoch(sets["train"], seed, epochs)
    dev = sets["dev"]
    images = [example.image for example in dev.examples]
    scores = dev.scores(labels_of(run.network, run.loss, images, dev.graphs, run.side))
    row = {"epoch": len(run.history) + 1, "loss": loss}
    row |= {f"dev_{name}": value for name, value in scores.items()}
    row |= {"seconds": time.perf_counter() - start}
    return row | {"cpu_seconds": time.process_time() - cpu}
