"""Key points of two views, which of them are the same, and how pairs of them look."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from matching.views import moved

Kind = Literal["sift", "orb"]
# numbers of a descriptor
DESCRIBED: dict[Kind, int] = {"sift": 128, "orb": 256}
# Points nearer to each other than this are one, and so are those of both views.
APART, SAME = 5.0, 3.0
# How far a neighbour may stray, in pixels and in shares of how far it is away.
STRAY, SHARE = 4.0, 0.15
VOTES = 3
FEATURES = 11


@dataclass(frozen=True)
class Points:
    """Places ``(P, 2)`` in pixels, sizes, angles, and descriptors of length 1."""

    places: Tensor
    sizes: Tensor
    angles: Tensor
    descriptors: Tensor
    longest: int

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class Pair:
    """Two views' points, features ``(P, Q, FEATURES)`` of pairs, and the truth."""

    first: Points
    second: Points
    features: Tensor
    columns: Tensor


def detect(
    image: np.ndarray, kind: Kind, most: int, seen: np.ndarray | None = None
) -> Points:
    """The strongest points of an image, no two of them closer than ``APART``."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    if kind == "sift":
        detector = cv2.SIFT_create(contrastThreshold=0.02)
    else:
        detector = cv2.ORB_create(nfeatures=20 * most, fastThreshold=10)
    found, descriptors = detector.detectAndCompute(grey, None)
    order = sorted(
        range(len(found)), key=lambda n: (-found[n].response, *found[n].pt, n)
    )
    kept: list[int] = []
    for number in order:
        x, y = found[number].pt
        inside = seen is None or seen[int(y), int(x)]
        near = (np.hypot(x - found[k].pt[0], y - found[k].pt[1]) < APART for k in kept)
        if inside and not any(near):
            kept.append(number)
        if len(kept) == most:
            break
    points = [found[n] for n in kept]
    return Points(
        torch.tensor([p.pt for p in points]).reshape(-1, 2),
        torch.tensor([p.size for p in points]),
        torch.tensor([p.angle for p in points]).deg2rad(),
        _lengths_of_one(descriptors, kept, kind),
        max(image.shape[:2]),
    )


def _lengths_of_one(
    descriptors: np.ndarray | None, kept: list[int], kind: Kind
) -> Tensor:
    if descriptors is None:
        return torch.zeros(0, DESCRIBED[kind])
    chosen = descriptors[kept]
    if kind == "orb":
        # the product of two is 1 less a share of the bits that differ
        bits = np.unpackbits(chosen, axis=1).astype(np.float32)
        return torch.from_numpy((2 * bits - 1) / 16)
    # distances of square roots are Hellinger's: Arandjelovic and Zisserman (2012)
    shares = chosen / np.maximum(chosen.sum(1, keepdims=True), 1e-9)
    return torch.from_numpy(np.sqrt(shares).astype(np.float32))


def true_columns(first: Points, second: Points, homography: np.ndarray) -> Tensor:
    """The point of the second view that each of the first is, -1 for none: ``(P,)``.

    Two points are the same if they fall within ``SAME`` pixels of each other, and each
    is the nearest to the other.
    """
    columns = torch.full((len(first),), -1)
    if not len(first) or not len(second):
        return columns
    there = torch.from_numpy(moved(first.places.numpy(), homography)).float()
    far = torch.cdist(there, second.places)
    near, column = far.min(1)
    mutual = far.argmin(0)[column] == torch.arange(len(first))
    return torch.where(mutual & (near <= SAME), column, columns)


def pair_of(first: Points, second: Points, homography: np.ndarray) -> Pair:
    columns = true_columns(first, second, homography)
    return Pair(first, second, features(first, second), columns)


def features(first: Points, second: Points) -> Tensor:
    """What the score of a pair is a function of, ``(P, Q, FEATURES)``.

    How alike two points look, compared with others; how the one is turned, zoomed and
    moved to become the other; and how many neighbours move the same way.
    """
    P, Q = len(first), len(second)
    if not P or not Q:
        return torch.zeros(P, Q, FEATURES)
    alike = first.descriptors @ second.descriptors.T
    turn = second.angles - first.angles[:, None]
    zoom = (second.sizes / first.sizes[:, None]).log()
    way = (second.places - first.places[:, None]) / first.longest
    votes = _votes(first, second, alike, turn, zoom)
    logs = (votes + 0.05).log()
    columns = (
        *(10 * (alike - 0.8), 10 * _ahead(alike, 1), 10 * _ahead(alike, 0)),
        *(turn.sin(), turn.cos(), zoom, *way.unbind(2)),
        *(logs, _ahead(logs, 1), _ahead(logs, 0)),
    )
    return torch.stack(columns, 2)


def _ahead(table: Tensor, dim: int) -> Tensor:
    """Each entry less the best other one of its row or column."""
    if table.shape[dim] < 2:
        return torch.zeros_like(table)
    best = table.topk(2, dim).values
    first, second = best.split(1, dim)
    return table - torch.where(table == first, second, first)


def _votes(
    first: Points, second: Points, alike: Tensor, turn: Tensor, zoom: Tensor
) -> Tensor:
    """How many neighbours a pair would move to where they have a likeness: ``(P, Q)``.

    A pair turns and zooms, and so says where every other point of the first view is
    in the second. Those votes count that find a point there that looks the same.
    """
    P = len(first)
    chances = (20 * alike).softmax(1) * (20 * alike).softmax(0)
    weight, likely = chances.topk(min(VOTES, len(second)), 1)
    from_here = first.places - first.places[:, None]
    real, imaginary = (zoom.exp() * turn.cos(), zoom.exp() * turn.sin())
    x, y = (from_here[:, None, :, i] for i in range(2))
    expected = torch.stack(
        [
            real[..., None] * x - imaginary[..., None] * y,
            imaginary[..., None] * x + real[..., None] * y,
        ],
        3,
    )
    # [P, Q, P, votes, 2]: from the second point of the pair to the likely ones
    found = second.places[likely] - second.places[:, None, None]
    miss = (found - expected[:, :, :, None]).square().sum(4)
    reach = STRAY + SHARE * expected.square().sum(3).sqrt()
    count = (weight * torch.exp(-0.5 * miss / reach.square()[..., None])).sum(3)
    return count.masked_fill(torch.eye(P, dtype=torch.bool)[:, None], 0).sum(2)


def batch(pairs: list[Pair]) -> dict[str, Tensor]:
    """Several pairs side by side: what is missing is padded, and says so."""
    P = max((len(pair.first) for pair in pairs), default=0)
    Q = max((len(pair.second) for pair in pairs), default=0)
    filled = {"features": [], "first": [], "second": [], "real": [], "columns": []}
    for pair in pairs:
        p, q = P - len(pair.first), Q - len(pair.second)
        filled["features"].append(F.pad(pair.features, (0, 0, 0, q, 0, p)))
        filled["first"].append(F.pad(pair.first.descriptors, (0, 0, 0, p)))
        filled["second"].append(F.pad(pair.second.descriptors, (0, 0, 0, q)))
        real = torch.ones(len(pair.first), len(pair.second), dtype=torch.bool)
        filled["real"].append(F.pad(real, (0, q, 0, p)))
        filled["columns"].append(F.pad(pair.columns, (0, p), value=-1))
    return {name: torch.stack(rows) for name, rows in filled.items()}
