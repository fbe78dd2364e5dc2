"""The Triton kernels and what their numba twins answer, one function a kernel.

Kernels run on a GPU where there is one, else in Triton's interpreter on the CPU.
"""

import functools
import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import Tensor

from smoothsp.oracles._chain import scores
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._chain.kernel_checks import run_cpu_function
from tests.instances.strategies import fill_padding, forbid_some
from tests.truth.chain_cases import ChainCase

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

WIDE = torch.float64
OLD_LABEL = -77


def kernels(name: str) -> ModuleType:
    """Return the module of Triton kernels of one name, imported only here."""
    return importlib.import_module(f"smoothsp._kernels.chain.cuda.{name}")


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

    @property
    def wide(self) -> tuple[Tensor, ...]:
        """The chain in float64, in which the CPU's kernels are compiled already."""
        return widened(self.chain)

    def sums(self) -> list[Tensor]:
        """The CPU's log-partition, in float64, and marginals."""
        value, *parts = run_cpu_function("log_partition", *self.wide, True)
        return [value, *(x.to(self.chain[0].dtype) for x in parts)]

    def run(self, kernel: Callable[..., None], *rest: Tensor, fill: list[Tensor]):
        """Call a kernel on the chain and more inputs; return the buffers it fills."""
        emissions, transitions, *others = self.chain
        edges = transitions[None, None] if self.shared else transitions
        chain = (emissions, edges, *others, self.shared)
        return self.call(kernel, chain, *rest, fill=fill)

    def call(self, kernel: Callable[..., None], *inputs: object, fill: list[Tensor]):
        """Call a kernel on inputs, each moved to the device of the kernels."""
        inputs = [moved(x) for x in inputs]
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

    def as_kernels_have_them(self, parts: Iterable[Tensor]) -> list[Tensor]:
        """Marginals, or numbers of their shapes, with edges of each step or of one."""
        nodes, edges, *ends = parts
        return [nodes, edges[:, None] if self.shared else edges, *ends]

    def filled_sums(self) -> list[Tensor]:
        """What kernels of sums fill."""
        value, *parts = self.sums()
        return [value, *self.as_kernels_have_them(parts)]

    def forward_backward(self) -> None:
        expected = self.filled_sums()
        fill = [torch.full_like(x, math.nan) for x in expected]
        kernel = of_marginals(kernels("forward_backward").forward_backward)
        self.close(self.run(kernel, fill=fill), expected)

    def scan(self) -> None:
        expected = self.filled_sums()
        fill = [torch.full_like(x, math.nan) for x in expected]
        for chunk in (2, None):
            kernel = functools.partial(kernels("scan").forward_backward, chunk=chunk)
            self.close(self.run(of_marginals(kernel), fill=fill), expected)

    def viterbi(self) -> None:
        B, T, _ = self.sizes
        fill = [torch.full((B, T), OLD_LABEL)]
        (found,) = self.run(kernels("viterbi").viterbi, fill=fill)
        assert torch.equal(found, run_cpu_function("decode", *self.chain)[1])

    def viterbi_topk(self) -> None:
        expected, exist = run_cpu_function("decode_topk", *self.chain, 4)
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
        labels, valid = self.run(kernels("viterbi").viterbi_topk, fill=fill)
        return labels, valid

    def scores(self, labels: Tensor, valid: Tensor) -> Tensor:
        existing = torch.where(valid[..., None], labels, labels[:, :1])
        chain = ChainBuffers.from_op_args(*self.chain)
        value, _ = scores.score_cpu(chain, existing, False)
        return value.masked_fill(~valid, -math.inf)

    def sample(self) -> None:
        B, T, _ = self.sizes
        for k in (1, 3):
            shape = (B, k, T)
            uniforms = torch.rand(shape, generator=self.generator, dtype=WIDE)
            fill = [torch.full(shape, OLD_LABEL)]
            (found,) = self.run(kernels("samples").sample, uniforms, fill=fill)
            assert torch.equal(found, run_cpu_function("sample", *self.wide, uniforms))

    def entropy(self) -> None:
        expected = run_cpu_function("entropy", *self.wide).to(self.chain[0].dtype)
        fill = [torch.full_like(expected, math.nan)]
        self.close(self.run(kernels("samples").entropy, fill=fill), [expected])

    def covariance(self) -> None:
        weights = [self.randn(*x.shape) for x in self.sums()[1:]]
        expected = run_cpu_function("covariance", *self.wide, *widened(weights))
        expected, weights = map(self.as_kernels_have_them, (expected, weights))
        expected = [x.to(weights[0].dtype) for x in expected]
        fill = [torch.full_like(x, math.nan) for x in expected]
        kernel = of_marginals(kernels("covariance").covariance)
        self.close(self.run(kernel, tuple(weights), fill=fill), expected)


def moved(x: object) -> object:
    """Tensors, alone or in a tuple, on the device of the kernels."""
    if isinstance(x, tuple):
        return tuple(map(moved, x))
    return x.to(DEVICE) if isinstance(x, Tensor) else x


def of_marginals(kernel: Callable[..., None]) -> Callable[..., None]:
    """A kernel that takes its last four buffers as one tuple."""
    return lambda *given: kernel(*given[:-4], given[-4:])


def widened(inputs: Iterable[object]) -> tuple[object, ...]:
    """Floats in float64, and all else as it is."""
    return tuple(
        x.to(WIDE) if isinstance(x, Tensor) and x.is_floating_point() else x
        for x in inputs
    )


def ugly_case(B: int, T: int, S: int, per_edge: bool) -> ChainCase:
    """Ragged rows with holes, the last one full and the first one empty if B > 2."""
    generator = torch.Generator().manual_seed(B + T + S)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=WIDE)

    mask = torch.rand(B, T, generator=generator) < 0.7
    mask[-1] = True
    mask[0] &= B < 3
    edges = randn(B, T - 1, S, S) if per_edge else randn(S, S)
    case = ChainCase(randn(B, T, S), edges, randn(S), randn(S), mask=mask)
    return fill_padding(forbid_some(case, generator), math.nan)


# Blocks are powers of two from 16, and from 256 states on (float64: 128) no block of
# states by states fits into registers.
UGLY = [
    (3, 1, 1, False, WIDE),
    (3, 7, 1, True, torch.float32),
    (2, 7, 3, False, torch.float32),
    (2, 7, 5, True, WIDE),
    (2, 7, 9, False, WIDE),
    (2, 7, 9, True, torch.float32),
    (2, 7, 17, False, torch.float32),
    (2, 1, 17, True, WIDE),
    (2, 3, 130, False, torch.float32),
    (2, 3, 130, True, WIDE),
]
KERNELS = (
    "forward_backward",
    "scan",
    "viterbi",
    "viterbi_topk",
    "sample",
    "entropy",
    "covariance",
)
