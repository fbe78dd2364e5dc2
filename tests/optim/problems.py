"""Small problems whose optimum is known without solving them."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from smoothsp.optim import SVRG


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own for every run."""
    return torch.Generator().manual_seed(seed)


def project(z: Tensor) -> Tensor:
    """Euclidean projection of each row onto the simplex, by sorting."""
    ordered = z.sort(descending=True).values
    tau = (ordered.cumsum(-1) - 1) / torch.arange(1, z.shape[-1] + 1)
    support = (ordered > tau).sum(-1, keepdim=True)
    return (z - tau.gather(-1, support - 1)).clamp(min=0)


def smooth_max(z: Tensor, mu: float, kind: str) -> Tensor:
    """Smoothed maximum of each row; its gradient comes from autograd."""
    if mu == 0:
        return z.max(-1).values
    if kind == "entropy":
        return mu * (z / mu).logsumexp(-1)
    u = project(z.detach() / mu)
    return (u * z).sum(-1) + mu / 2 * (1 - (u * u).sum(-1))


@dataclass
class MaxOfAffine:
    """``mean_i max_y (a_iy w + b_iy) + weight_decay/2 |w|^2`` with known minimum.

    Built backwards: subgradient weights on rows that tie at ``best`` and cancel the
    gradient of the regulariser there, so that ``best`` is optimal by construction.
    """

    A: Tensor  # [n, m, d]
    b: Tensor  # [n, m]
    weight_decay: float
    best: Tensor
    minimum: float

    def value(self, w: Tensor, mu: float = 0.0, kind: str = "l2") -> float:
        loss = smooth_max(self.A @ w + self.b, mu, kind).mean()
        return float(loss + self.weight_decay / 2 * (w @ w))

    def range(self, kind: str) -> float:
        """D: the smoothed maximum lies above by at most mu D."""
        return math.log(self.b.shape[1]) if kind == "entropy" else 0.5

    def curvature(self, kind: str) -> float:
        """A: the smoothed terms have gradients that are A/mu-Lipschitz."""
        if kind == "entropy":
            return float((self.A**2).sum(-1).max())
        return float(torch.linalg.matrix_norm(self.A, 2).max() ** 2)


def max_of_affine(n=6, m=5, d=4, weight_decay=0.1, seed=0) -> MaxOfAffine:
    generator = seeded(seed)

    def draw(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    A = (draw(n, m, d) - 0.5) * 2
    active = draw(n, m) < 0.6
    active[:, 0] = True
    weights = draw(n, m) * active
    weights /= weights.sum(1, keepdim=True)
    pull = (weights[:, :, None] * A).sum(1)
    if weight_decay:
        best = -pull.mean(0) / weight_decay
    else:
        # moving all rows of an example moves what its weights combine them to
        A[0] -= pull.sum(0)
        best = draw(d)
    level = draw(n, 1)
    b = level - A @ best - torch.where(active, 0.0, 0.1 + draw(n, m))
    minimum = float(level.mean() + weight_decay / 2 * (best @ best))
    return MaxOfAffine(A, b, weight_decay, best, minimum)


class Vector(nn.Module):
    """A module that is its parameter."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self) -> Tensor:
        return self.w


def closure_of(problem: MaxOfAffine, w: Tensor, optimizer, kind: str):
    """Closures over examples, at the optimizer's mu; no examples means all."""

    def closure(examples=slice(None)):
        z = problem.A[examples] @ w + problem.b[examples]
        loss = smooth_max(z, optimizer.mu, kind).mean()
        loss.backward()
        return loss

    return closure


@dataclass
class Ridge:
    """Least squares with a ridge: ``mean (x w - y)^2 / 2 + weight_decay/2 |w|^2``."""

    X: Tensor  # [n, d]
    y: Tensor  # [n]
    weight_decay: float

    @property
    def best(self) -> Tensor:
        H = self.X.T @ self.X / len(self.X)
        H = H + self.weight_decay * torch.eye(self.X.shape[1], dtype=H.dtype)
        return torch.linalg.solve(H, self.X.T @ self.y / len(self.X))

    def value(self, w: Tensor) -> float:
        w = w.detach()
        loss = (self.X @ w - self.y).square().mean() / 2
        return float(loss + self.weight_decay / 2 * (w @ w))

    def batches(self, size: int) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.X.split(size), self.y.split(size), strict=True))


def ridge(n=40, d=3, weight_decay=0.1, seed=0) -> Ridge:
    generator = seeded(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.randn(n, generator=generator, dtype=torch.float64) + X[:, 0]
    return Ridge(X, y, weight_decay)


def squares(w: Tensor):
    """Closure of a batch of a ``Ridge`` problem, without its regulariser."""

    def closure(batch):
        x, y = batch
        loss = (x @ w - y).square().mean() / 2
        loss.backward()
        return loss

    return closure


def svrg_on(problem: Ridge, lr: float = 0.15, **options):
    """The parameters, at zero, and an optimizer of the whole objective."""
    model = Vector(torch.zeros(problem.X.shape[1], dtype=torch.float64))
    options = {"generator": seeded(), "weight_decay": problem.weight_decay, **options}
    return model.w, SVRG(model.parameters(), lr, **options)


def ridge_gradient(problem: Ridge, w: Tensor, rows=slice(None)) -> Tensor:
    """Of the mean loss of some rows, without the regulariser."""
    x, y = problem.X[rows], problem.y[rows]
    return x.T @ (x @ w - y) / len(y)


@dataclass
class Logistic:
    """Logistic loss ``mean log(1 + exp(-z w)) + weight_decay/2 |w|^2``, rows |z| = 1.

    The terms are 1/4-smooth. Its minimum is found by Newton's method.
    """

    Z: Tensor  # [n, d]
    weight_decay: float

    @property
    def start(self) -> Tensor:
        return torch.zeros(self.Z.shape[1], dtype=torch.float64)

    @property
    def terms(self) -> list[Tensor]:
        return list(torch.arange(len(self.Z)).split(1))

    def value(self, w: Tensor) -> float:
        w = w.detach()
        return float(softplus(-self.Z @ w).mean() + self.weight_decay / 2 * (w @ w))

    @cached_property
    def minimum(self) -> float:
        w, n = self.start, len(self.Z)
        for _ in range(60):
            chance = torch.sigmoid(-self.Z @ w)
            gradient = self.weight_decay * w - self.Z.T @ chance / n
            H = (self.Z.T * (chance * (1 - chance))) @ self.Z / n
            H = H + self.weight_decay * torch.eye(len(w), dtype=w.dtype)
            step, length = torch.linalg.solve(H, gradient), 1.0
            while self.value(w - length * step) > self.value(w) and length > 1e-9:
                length /= 2
            w = w - length * step
        return self.value(w)

    def closure(self, w: Tensor):
        """Closure of a term; the gradient by hand, as many epochs ask for it."""

        @torch.no_grad()
        def closure(rows):
            scores = self.Z[rows] @ w
            w.grad = -self.Z[rows].T @ torch.sigmoid(-scores) / len(rows)
            return softplus(-scores).mean()

        return closure


def logistic(n: int, d: int, weight_decay: float, seed: int = 0) -> Logistic:
    """Points with labels drawn at random: separable where d is large."""
    generator = seeded(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    signs = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0)
    return Logistic(X / X.norm(dim=1, keepdim=True) * signs[:, None], weight_decay)
