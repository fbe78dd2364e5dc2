"""Key points of two views, which of them are the same, and how pairs of them look."""

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from matching.settings import Kind
from matching.views import warp_points

# numbers of a descriptor
DESCRIPTOR_SIZES: dict[Kind, int] = {"sift": 128, "orb": 256}
# Points nearer to each other than this are one, and so are those of both views.
MIN_DISTANCE, MATCH_DISTANCE = 5.0, 3.0
# How far a neighbour may stray, in pixels and in shares of how far it is away.
STRAY_PIXELS, STRAY_FRACTION = 4.0, 0.15
VOTES = 3
FEATURES = 11


@dataclass(frozen=True)
class Points:
    """Places ``(P, 2)`` in pixels, sizes, angles, and descriptors of length 1."""

    positions: Tensor
    sizes: Tensor
    angles: Tensor
    descriptors: Tensor
    longest: int

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Pair:
    """Two views' points, features ``(P, Q, FEATURES)`` of pairs, and the truth."""

    first: Points
    second: Points
    pair_features: Tensor
    columns: Tensor


def detect(
    image: np.ndarray, kind: Kind, max_points: int, visible: np.ndarray | None = None
) -> Points:
    """The strongest points of an image, no two of them closer than ``APART``."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    if kind == "sift":
        detector = cv2.SIFT_create(contrastThreshold=0.02)
    else:
        detector = cv2.ORB_create(nfeatures=20 * max_points, fastThreshold=10)
    keypoints, descriptors = detector.detectAndCompute(grey, None)
    order = sorted(
        range(len(keypoints)),
        key=lambda n: (-keypoints[n].response, *keypoints[n].pt, n),
    )
    selected: list[int] = []
    for number in order:
        x, y = keypoints[number].pt
        inside = visible is None or visible[int(y), int(x)]
        near = (
            np.hypot(x - keypoints[k].pt[0], y - keypoints[k].pt[1]) < MIN_DISTANCE
            for k in selected
        )
        if inside and not any(near):
            selected.append(number)
        if len(selected) == max_points:
            break
    points = [keypoints[n] for n in selected]
    return Points(
        torch.tensor([p.pt for p in points]).reshape(-1, 2),
        torch.tensor([p.size for p in points]),
        torch.tensor([p.angle for p in points]).deg2rad(),
        _normalise_descriptors(descriptors, selected, kind),
        max(image.shape[:2]),
    )


def _normalise_descriptors(
    descriptors: np.ndarray | None, selected: list[int], kind: Kind
) -> Tensor:
    if descriptors is None:
        return torch.zeros(0, DESCRIPTOR_SIZES[kind])
    chosen = descriptors[selected]
    if kind == "orb":
        # the product of two is 1 less a share of the bits that differ
        bits = np.unpackbits(chosen, axis=1).astype(np.float32)
        return torch.from_numpy((2 * bits - 1) / 16)
    # distances of square roots are Hellinger's: Arandjelovic and Zisserman (2012)
    fractions = chosen / np.maximum(chosen.sum(1, keepdims=True), 1e-9)
    return torch.from_numpy(np.sqrt(fractions).astype(np.float32))


def true_columns(first: Points, second: Points, homography: np.ndarray) -> Tensor:
    """The point of the second view that each of the first is, -1 for none: ``(P,)``.

    Two points are the same if they fall within ``SAME`` pixels of each other, and each
    is the nearest to the other.
    """
    columns = torch.full((len(first),), -1)
    if not len(first) or not len(second):
        return columns
    warped = torch.from_numpy(warp_points(first.positions.numpy(), homography)).float()
    distances = torch.cdist(warped, second.positions)
    near, column = distances.min(1)
    mutual = distances.argmin(0)[column] == torch.arange(len(first))
    return torch.where(mutual & (near <= MATCH_DISTANCE), column, columns)


def build_pair(first: Points, second: Points, homography: np.ndarray) -> Pair:
    columns = true_columns(first, second, homography)
    return Pair(first, second, pair_features(first, second), columns)


def pair_features(first: Points, second: Points) -> Tensor:
    """What the score of a pair is a function of, ``(P, Q, FEATURES)``.

    How alike two points look, compared with others; how the one is turned, zoomed and
    moved to become the other; and how many neighbours move the same way.
    """
    P, Q = len(first), len(second)
    if not P or not Q:
        return torch.zeros(P, Q, FEATURES)
    similarity = first.descriptors @ second.descriptors.T
    turn = second.angles - first.angles[:, None]
    zoom = (second.sizes / first.sizes[:, None]).log()
    offsets = (second.positions - first.positions[:, None]) / first.longest
    votes = _neighbour_votes(first, second, similarity, turn, zoom)
    logs = (votes + 0.05).log()
    columns = (
        *(
            10 * (similarity - 0.8),
            10 * _margin_over_best_other(similarity, 1),
            10 * _margin_over_best_other(similarity, 0),
        ),
        *(turn.sin(), turn.cos(), zoom, *offsets.unbind(2)),
        *(logs, _margin_over_best_other(logs, 1), _margin_over_best_other(logs, 0)),
    )
    return torch.stack(columns, 2)


def _margin_over_best_other(table: Tensor, dim: int) -> Tensor:
    """Each entry less the best other one of its row or column."""
    if table.shape[dim] < 2:
        return torch.zeros_like(table)
    best = table.topk(2, dim).values
    first, second = best.split(1, dim)
    return table - torch.where(table == first, second, first)


def _neighbour_votes(
    first: Points, second: Points, similarity: Tensor, turn: Tensor, zoom: Tensor
) -> Tensor:
    """How many neighbours a pair would move to where they have a likeness: ``(P, Q)``.

    A pair turns and zooms, and so says where every other point of the first view is
    in the second. Those votes count that find a point there that looks the same.
    """
    P = len(first)
    probs = (20 * similarity).softmax(1) * (20 * similarity).softmax(0)
    weight, likely = probs.topk(min(VOTES, len(second)), 1)
    offsets = first.positions - first.positions[:, None]
    real, imaginary = (zoom.exp() * turn.cos(), zoom.exp() * turn.sin())
    x, y = (offsets[:, None, :, i] for i in range(2))
    expected = torch.stack(
        [
            real[..., None] * x - imaginary[..., None] * y,
            imaginary[..., None] * x + real[..., None] * y,
        ],
        3,
    )
    # [P, Q, P, votes, 2]: from the second point of the pair to the likely ones
    actual = second.positions[likely] - second.positions[:, None, None]
    miss = (actual - expected[:, :, :, None]).square().sum(4)
    tolerance = STRAY_PIXELS + STRAY_FRACTION * expected.square().sum(3).sqrt()
    count = (weight * torch.exp(-0.5 * miss / tolerance.square()[..., None])).sum(3)
    return count.masked_fill(torch.eye(P, dtype=torch.bool)[:, None], 0).sum(2)


def batch(pairs: list[Pair]) -> dict[str, Tensor]:
    """Several pairs side by side: what is missing is padded, and says so."""
    P = max((len(pair.first) for pair in pairs), default=0)
    Q = max((len(pair.second) for pair in pairs), default=0)
    filled = {"features": [], "first": [], "second": [], "real": [], "columns": []}
    for pair in pairs:
        p, q = P - len(pair.first), Q - len(pair.second)
        filled["features"].append(F.pad(pair.pair_features, (0, 0, 0, q, 0, p)))
        filled["first"].append(F.pad(pair.first.descriptors, (0, 0, 0, p)))
        filled["second"].append(F.pad(pair.second.descriptors, (0, 0, 0, q)))
        real = torch.ones(len(pair.first), len(pair.second), dtype=torch.bool)
        filled["real"].append(F.pad(real, (0, q, 0, p)))
        filled["columns"].append(F.pad(pair.columns, (0, p), value=-1))
    return {name: torch.stack(rows) for name, rows in filled.items()}
