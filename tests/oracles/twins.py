"""The Triton kernels and what their numba twins answer, one function a kernel.

Kernels run on a GPU where there is one, else in Triton's interpreter on the CPU.
"""

import importlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import Tensor

from tests.brute_force import ChainCase

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Read when Triton is imported, and again when it decorates a kernel.
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

OPS = torch.ops.smoothsp
WIDE = torch.float64
OLD_LABEL = -77


def kernels(name: str) -> ModuleType:
    """Return the module of Triton kernels of one name, imported only here."""
    return importlib.import_module(f"smoothsp._kernels.chain_{name}_cuda")


@dataclass(frozen=True)
class Twins:
    """A chain as ops take it, and answers of both twins to what is asked of it."""

    chain: tuple[Tensor, ...]
    generator: torch.Generator

    @classmethod
    def of(cls, case: ChainCase, dtype: torch.dtype, generator: torch.Generator):
        case = case.map(lambda x: x.to(dtype))
        zero = case.emissions.new_zeros(case.emissions.shape[2])
        start = zero if case.start is None else case.start
        end = zero if case.end is None else case.end
        steps = torch.sort(~case.real, dim=1, stable=True).indices
        lengths = case.real.sum(1)
        chain = (case.emissions, case.transitions, start, end, steps, lengths)
        return cls(tuple(x.contiguous() for x in chain), generator)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return tuple(self.chain[0].shape)

    @property
    def shared(self) -> bool:
        return self.chain[1].dim() == 2

    @property
    def tolerance(self) -> dict[str, float]:
        narrow = self.chain[0].dtype == torch.float32
        return {"rtol": 2e-5, "atol": 1e-5} if narrow else {"rtol": 1e-9, "atol": 1e-9}

    def run(self, kernel: Callable[..., None], *rest: Tensor, fill: list[Tensor]):
        """Call a kernel on the chain and more inputs; return the buffers it fills."""
        emissions, transitions, *others = self.chain
        edges = transitions[None, None] if self.shared else transitions
        return self.call(
            kernel, emissions, edges, *others, self.shared, *rest, fill=fill
        )

    def call(self, kernel: Callable[..., None], *inputs: object, fill: list[Tensor]):
        """Call a kernel on inputs, each moved to the device of the kernels."""
        inputs = [x.to(DEVICE) if isinstance(x, Tensor) else x for x in inputs]
        buffers = [x.to(DEVICE).contiguous().clone() for x in fill]
        kernel(*inputs, *buffers)
        return [x.cpu() for x in buffers]

    def labels(self, K: int) -> Tensor:
        """Return any labels [B, K, T], out of range where there is no position."""
        B, T, S = self.sizes
        steps, lengths = self.chain[4:]
        real = torch.arange(T) < lengths[:, None]
        real = torch.zeros(B, T).bool().scatter(1, steps, real)
        y = torch.randint(0, S, (B, K, T), generator=self.generator)
        return torch.where(real[:, None], y, -100)

    def randn(self, *shape: int) -> Tensor:
        dtype = self.chain[0].dtype
        return torch.randn(shape, generator=self.generator, dtype=WIDE).to(dtype)

    def close(self, found: list[Tensor], expected: list[Tensor]) -> None:
        torch.testing.assert_close(found, list(expected), **self.tolerance)

    def forward_backward(self) -> None:
        expected = OPS.chain_log_partition(*self.chain)
        fill = [torch.full_like(x, math.nan) for x in expected]
        self.close(self.run(kernels("scaled").forward_backward, fill=fill), expected)

    def viterbi(self) -> None:
        B, T, _ = self.sizes
        fill = [torch.full((B, T), OLD_LABEL)]
        (found,) = self.run(kernels("max").viterbi, fill=fill)
        assert torch.equal(found, OPS.chain_decode(*self.chain))

    def viterbi_topk(self) -> None:
        expected, exist = OPS.chain_topk(*self.chain, 4)
        labels, valid = self.topk(4)
        assert torch.equal(valid, exist)
        # equal to the last bit: the sums run in the same order
        found = self.scores(labels, valid)
        assert torch.equal(found, self.scores(expected, exist))
        assert (labels[~valid] == -1).all()
        for row, many in zip(labels.tolist(), valid.sum(1).tolist(), strict=True):
            assert len(set(map(tuple, row[:many]))) == many
        fewer, _ = self.topk(2)
        assert torch.equal(fewer, labels[:, :2])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        B, T, _ = self.sizes
        fill = [torch.full((B, k, T), OLD_LABEL), torch.ones(B, k).bool()]
        labels, valid = self.run(kernels("max").viterbi_topk, fill=fill)
        return labels, valid

    def scores(self, labels: Tensor, valid: Tensor) -> Tensor:
        existing = torch.where(valid[..., None], labels, labels[:, :1])
        return OPS.chain_score(*self.chain, existing).masked_fill(~valid, -math.inf)

    def sample(self) -> None:
        B, T, _ = self.sizes
        for k in (1, 3):
            shape = (B, k, T)
            uniforms = torch.rand(shape, generator=self.generator, dtype=WIDE)
            fill = [torch.full(shape, OLD_LABEL)]
            (found,) = self.run(kernels("sample").sample, uniforms, fill=fill)
            assert torch.equal(found, OPS.chain_sample(*self.chain, uniforms))

    def entropy(self) -> None:
        expected = OPS.chain_entropy(*self.chain)
        fill = [torch.full_like(expected, math.nan)]
        self.close(self.run(kernels("sample").entropy, fill=fill), [expected])

    def score(self) -> None:
        for k in (1, 3):
            y = self.labels(k)
            expected = OPS.chain_score(*self.chain, y)
            fill = [torch.full_like(expected, math.nan), torch.full((len(y),), -9)]
            found, fault = self.run(kernels("path").score, y, fill=fill)
            assert torch.equal(found, expected)
            assert (fault == -1).all()

    def count(self) -> None:
        B, T, S = self.sizes
        steps, lengths = self.chain[4:]
        for k in (1, 3):
            y, weights = self.labels(k), self.randn(B, k)
            expected = OPS.chain_count(weights, y, steps, lengths, S, self.shared)
            edges = (1, 1, S, S) if self.shared else (B, max(T - 1, 0), S, S)
            sums = [torch.zeros(x, dtype=WIDE) for x in (edges, (S,), (S,))]
            fill = [weights.new_zeros(B, T, S), *sums]
            kernel, given = kernels("path").count, (weights, y, steps, lengths)
            found = self.call(kernel, *given, self.shared, fill=fill)
            pairs = zip(found, expected, strict=True)
            self.close([x.to(e.dtype).view_as(e) for x, e in pairs], expected)

    def residual(self) -> None:
        y = self.labels(1)[:, 0].contiguous()
        _, *expected = OPS.chain_log_prob(*self.chain, y)
        _, *fill = OPS.chain_log_partition(*self.chain)
        given = (y, *self.chain[4:], self.shared)
        self.close(self.call(kernels("path").residual, *given, fill=fill), expected)

    def covariance(self) -> None:
        shapes = [x.shape for x in OPS.chain_log_partition(*self.chain)[1:]]
        weights = [self.randn(*shape) for shape in shapes]
        expected = OPS.chain_covariance(*self.chain, *weights)
        fill = [torch.full_like(x, math.nan) for x in expected]
        kernel = kernels("covariance").covariance
        self.close(self.run(kernel, *weights, fill=fill), expected)


KERNELS = (
    "forward_backward",
    "viterbi",
    "viterbi_topk",
    "sample",
    "entropy",
    "score",
    "count",
    "residual",
    "covariance",
)
