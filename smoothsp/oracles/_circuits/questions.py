"""Questions to a circuit, and their gradients.

``own`` are the leaves ``[B, P]`` of the rows, ``shared`` ``[Q]`` those of all rows;
``Asked`` says of which circuit, and which of its items answers for each row.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.circuits import Rows
from smoothsp._kernels.circuits.cpu import best as best_cpu
from smoothsp._kernels.circuits.cpu import faults
from smoothsp._kernels.circuits.cpu import sums as sums_cpu
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._circuits import levels
from smoothsp.oracles._circuits.rooms import room
from smoothsp.oracles._circuits.topology import Topology

# Steps of the innermost loop that one product of a vector of rows costs.
SUM_STEPS, MAX_STEPS = 12, 2


class Asked:
    """A topology and the roots ``[B]`` of the rows, int64 on the CPU."""

    def __init__(self, topology: Topology, roots: Tensor) -> None:
        self.topology, self.roots = topology, roots
        found = roots.numpy()
        place = topology.edges.place[found]
        order = np.argsort(-place, kind="stable")
        self.rows = Rows(order, found)
        self.edges = topology.edges
        self.products = int(self.edges.runs[:, 0].sum())
        self.alike = not len(found) or bool((found == found[0]).all())

    def select(self, rows: Any) -> "Asked":
        """Of some rows."""
        return Asked(self.topology, self.roots[rows])


def log_partition(own: Tensor, shared: Tensor, asked: Asked) -> Tensor:
    """Logarithm of the sum over all outputs ``[B]``, float64; differentiable twice."""
    return _sums(own, shared, asked, _wants_gradient(own, shared))[0]


def marginals(own: Tensor, shared: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """Log-partition ``[B]`` and marginals ``[B, P + Q]``; differentiable once."""
    return _sums(own, shared, asked, True)


def best(own: Tensor, shared: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """Highest scores ``[B]`` in float64, and the labels ``[B, N]`` of an output."""
    if not _on_cpu(own):
        return _best_by_levels(own, shared, asked)
    if not _wants_gradient(own, shared):
        return _best_in_lanes(own, shared, asked)[:2]
    value, labels, _ = _Best.apply(own, shared, asked)
    return value, labels


def _sums(
    own: Tensor, shared: Tensor, asked: Asked, outwards: bool
) -> tuple[Tensor, Tensor]:
    if not _on_cpu(own):
        wanted = _wants_gradient(own, shared)
        return _sums_by_levels(_leaves(own, shared), asked, wanted)
    if not _wants_gradient(own, shared):
        return _sums_in_lanes(own, shared, asked, outwards)
    found: tuple[Tensor, Tensor] = _Sums.apply(own, shared, asked)
    return found


def _on_cpu(own: Tensor) -> bool:
    return own.device.type == "cpu"


def _wants_gradient(*leaves: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in leaves)


class _Sums(torch.autograd.Function):
    """Log-partition and marginals: the second is the gradient of the first."""

    @staticmethod
    def forward(own: Tensor, shared: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
        return _sums_in_lanes(own, shared, asked, True)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        own, shared, asked = inputs
        ctx.save_for_backward(own, shared, output[1])
        ctx.asked = asked
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        of_value, of_marginals = grads
        own, shared, chances = ctx.saved_tensors
        moved = torch.zeros_like(chances)
        if of_value is not None:
            moved = of_value.to(own.dtype)[:, None] * chances
        if of_marginals is not None:
            moved = moved + covariance(own, shared, ctx.asked, of_marginals)
        P = own.shape[1]
        return moved[:, :P], moved[:, P:].sum(0), None


def covariance(own: Tensor, shared: Tensor, asked: Asked, along: Tensor) -> Tensor:
    """How the marginals ``[B, P + Q]`` move along a direction of the leaves."""
    with torch.enable_grad():
        leaves = _leaves(own, shared).detach().double().requires_grad_()
        value = levels.log_partition(leaves, asked.topology, asked.roots)
        (slope,) = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        (moved,) = torch.autograd.grad((slope * along.double()).sum(), leaves)
    return moved.to(own.dtype)


class _Best(torch.autograd.Function):
    """A maximum: its gradient counts the leaves of a maximiser (Danskin)."""

    @staticmethod
    def forward(
        own: Tensor, shared: Tensor, asked: Asked
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _best_in_lanes(own, shared, asked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        own, shared, _ = inputs
        _, labels, parts = output
        ctx.mark_non_differentiable(labels, parts)
        ctx.save_for_backward(parts)
        ctx.sizes, ctx.dtype = (own.shape[1], len(shared)), own.dtype

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (parts,) = ctx.saved_tensors
        P, Q = ctx.sizes
        counted = count(grads[0].to(ctx.dtype), parts, P + Q)
        return counted[:, :P], counted[:, P:].sum(0), None


def count(weights: Tensor, parts: Tensor, leaves: int) -> Tensor:
    """``[B, leaves]``: weights ``[B]`` added up over the parts ``[B, U]``, -1 none."""
    total = weights.new_zeros(len(parts), leaves + 1)
    spread = weights[:, None].expand(parts.shape)
    return total.scatter_add(1, parts.long() + 1, spread)[:, 1:]


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _sums_in_lanes(
    own: Tensor, shared: Tensor, asked: Asked, outwards: bool
) -> tuple[Tensor, Tensor]:
    """Float32 as long as it reaches, then float64, then in log space."""
    arrays = _array(own), _array(shared)
    value, far, chances = _run_sums(*arrays, asked, outwards)
    if far.any():
        _redo_far(own, shared, asked, outwards, far, value, chances)
    return torch.from_numpy(value), torch.from_numpy(chances)


def _run_sums(own: Any, shared: Any, asked: Asked, outwards: bool) -> tuple[Any, ...]:
    B = len(own)
    value, far = np.empty(B), np.empty(B, np.bool_)
    width = asked.topology.leaves if outwards else 0
    chances = np.empty((B, width), own.dtype)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 3, own.dtype)
        rows = (first, last, asked.edges, asked.rows, own, shared, scratch)
        sums_cpu.sums(*rows, outwards, value, far, chances)

    lanes = 64 // own.itemsize
    run_rows(piece, B, _work(asked, B, lanes, SUM_STEPS), together=lanes)
    return value, far, chances


def _work(asked: Asked, B: int, lanes: int, steps: int) -> int:
    return asked.products * steps * -(-B // lanes)


def _redo_far(
    own: Tensor,
    shared: Tensor,
    asked: Asked,
    outwards: bool,
    far: Any,
    value: Any,
    chances: Any,
) -> None:
    """Answer again for rows whose scores are too large, unless nothing reads these."""
    rows = np.flatnonzero(far)
    some = asked.select(torch.from_numpy(rows))
    read = np.empty((len(rows), asked.topology.leaves), np.bool_)
    faults.reading(asked.edges, some.rows.roots, read)
    leaves = torch.cat([own[rows], shared.expand(len(rows), -1)], 1).detach()
    large = leaves.masked_fill(~torch.from_numpy(read), 0)
    large = large.masked_fill(large == -torch.inf, 0).abs().amax(1).double()
    limit = 2.0**20 if own.dtype == torch.float32 else 2.0**48
    truly = (large * asked.topology.most > limit).numpy()
    if not truly.any():
        return
    rows, some = rows[truly], asked.select(torch.from_numpy(rows[truly]))
    if own.dtype == torch.float32:
        found = _sums_in_lanes(own[rows].double(), shared.double(), some, outwards)
    else:
        found = _sums_by_levels(_leaves(own[rows], shared).detach(), some, False)
    value[rows] = found[0].numpy()
    if outwards:
        chances[rows] = found[1].numpy()


def _leaves(own: Tensor, shared: Tensor) -> Tensor:
    """``[B, P + Q]``: those of the rows, and those that all share."""
    return torch.cat([own, shared.expand(len(own), -1)], 1)


def _sums_by_levels(leaves: Tensor, asked: Asked, graph: bool) -> tuple[Tensor, Tensor]:
    """Value and marginals on any device, in log space, with a graph if wanted."""
    with torch.enable_grad():
        leaves = leaves if leaves.requires_grad else leaves.detach().requires_grad_()
        value = levels.log_partition(leaves, asked.topology, asked.roots)
        (chances,) = torch.autograd.grad(value.sum(), leaves, create_graph=graph)
    return value.double() if graph else value.detach().double(), chances


def _best_in_lanes(
    own: Tensor, shared: Tensor, asked: Asked
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, labels and parts ``[B, U]``."""
    B, N = len(own), asked.topology.labels
    arrays = _array(own), _array(shared)
    value, labels = np.empty(B), np.empty((B, N), np.int64)
    parts = np.empty((B, asked.topology.most), np.int32)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 1, arrays[0].dtype)
        rows = (first, last, asked.edges, asked.rows, *arrays, scratch)
        best_cpu.best(*rows, value, labels, parts)

    lanes = 64 // own.element_size()
    run_rows(piece, B, _work(asked, B, lanes, MAX_STEPS), together=lanes)
    return tuple(torch.from_numpy(x) for x in (value, labels, parts))  # type: ignore[return-value]


def _best_by_levels(own: Tensor, shared: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """On any device: the gradient of a maximum marks the leaves of a maximiser."""
    leaves, device = _leaves(own, shared), own.device
    with torch.enable_grad():
        free = leaves.detach().requires_grad_()
        value = levels.best(free, asked.topology, asked.roots)
        (used,) = torch.autograd.grad(value.sum(), free)
    value = (used * torch.where(used > 0, leaves, 0)).sum(1, dtype=torch.float64)
    edges = asked.topology.edges
    tables = (torch.from_numpy(x[1:]).long() for x in (edges.positions, edges.values))
    positions, values = (x.to(device) for x in tables)
    said = (used > 0) & (positions >= 0)
    labels = torch.full((len(own), asked.topology.labels + 1), -1, device=device)
    at = torch.where(said, positions + 1, 0)
    return value, labels.scatter(1, at, torch.where(said, values, -1))[:, 1:]


def score(own: Tensor, shared: Tensor, used: Tensor) -> Tensor:
    """Sums ``[B, K]``, in float64, of the leaves ``used`` ``[B, K, U]``, -1 none."""
    B, K, U = used.shape
    P = own.shape[1]
    flat = used.reshape(B, K * U)
    mine = (flat >= 0) & (flat < P)
    if not P:
        value = own.new_zeros(B, K * U)
    else:
        value = own.gather(1, torch.where(mine, flat, 0)).masked_fill(~mine, 0)
    if len(shared):
        common = shared[(flat - P).clamp(min=0)].masked_fill(flat < P, 0)
        value = value + common
    return value.reshape(B, K, U).sum(2, dtype=torch.float64)
