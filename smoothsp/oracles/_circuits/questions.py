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
from smoothsp._kernels.circuits.cpu import k_best as k_best_cpu
from smoothsp._kernels.circuits.cpu import samples as samples_cpu
from smoothsp._kernels.circuits.cpu import sums as sums_cpu
from smoothsp._kernels.circuits.cpu import tangent as tangent_cpu
from smoothsp._kernels.circuits.cpu.numbers import LN2, furthest
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._circuits import levels
from smoothsp.oracles._circuits.rooms import room
from smoothsp.oracles._circuits.topology import Topology

# Steps of the innermost loop that one product of a vector of rows costs.
SUM_STEPS, MAX_STEPS = 12, 2
# Steps that one leaf of an output costs to find.
TRACE_STEPS = 30
# Lanes of a vector of float64.
WIDE = 8
CPU = torch.device("cpu")


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
    values, labels = _chosen(own, shared, asked, None)
    return values.squeeze(1), labels.squeeze(1)


def k_best(own: Tensor, shared: Tensor, asked: Asked, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores ``[B, k]`` in float64, labels ``[B, k, N]``; on the CPU.

    -inf and -1 where there are fewer outputs.
    """
    found = _chosen(own.cpu(), shared.cpu(), asked, k)
    return found[0].to(own.device), found[1].to(own.device)


def samples(own: Tensor, shared: Tensor, asked: Asked, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``; on the CPU."""
    B, n = seeds.shape
    arrays = _array(own.cpu().double()), _array(shared.cpu().double())
    labels = torch.empty((B, n, asked.topology.labels), dtype=torch.int64, device=CPU)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 2, np.float64)
        rows = (first, last, asked.edges, asked.rows, *arrays)
        samples_cpu.samples(*rows, _array(seeds.cpu()), scratch, labels.numpy())

    work = _work(asked, B, WIDE, SUM_STEPS) + n * B * asked.topology.most * TRACE_STEPS
    run_rows(piece, B, work, together=WIDE)
    return labels.to(own.device)


def entropy(own: Tensor, shared: Tensor, asked: Asked) -> Tensor:
    """Entropy ``[B]`` of the outputs in float64; differentiable once."""
    if _on_cpu(own):
        value: Tensor = _Entropy.apply(own, shared, asked)
        return value
    wanted = _wants_gradient(own, shared)
    leaves = _leaves(own, shared)
    value, chances = _sums_by_levels(leaves, asked, wanted)
    return (value - (chances * _finite(leaves)).sum(1)).clamp(min=0)


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


class _Entropy(torch.autograd.Function):
    """``log Z - <marginals, scores>``, of which the gradient is ``-Cov scores``."""

    @staticmethod
    def forward(own: Tensor, shared: Tensor, asked: Asked) -> Tensor:
        leaves = _finite(_leaves(own, shared))
        value, means, _ = _tangent(own, shared, asked, leaves, False)
        return (value - means).clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        own, shared, ctx.asked = inputs
        ctx.save_for_backward(own, shared)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        own, shared = ctx.saved_tensors
        leaves = _finite(_leaves(own, shared))
        moved = (
            covariance(own, shared, ctx.asked, leaves) * -grad.to(own.dtype)[:, None]
        )
        P = own.shape[1]
        return moved[:, :P], moved[:, P:].sum(0), None


def _finite(leaves: Tensor) -> Tensor:
    """Scores, 0 where they are infinite or stand in the padding of NaN."""
    return torch.where(leaves.abs() < torch.inf, leaves, 0)


def covariance(own: Tensor, shared: Tensor, asked: Asked, along: Tensor) -> Tensor:
    """How the marginals ``[B, P + Q]`` move along such a direction of the leaves."""
    found: Tensor = _Covariance.apply(own, shared, asked, along)
    return found


class _Covariance(torch.autograd.Function):
    """Linear and symmetric in the direction; not differentiable in the scores."""

    @staticmethod
    def forward(own: Tensor, shared: Tensor, asked: Asked, along: Tensor) -> Tensor:
        if not _on_cpu(own):
            return _covariance_by_levels(_leaves(own, shared), asked, along)
        return _tangent(own, shared, asked, along, True)[2]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        own, shared, ctx.asked, _ = inputs
        ctx.save_for_backward(own, shared)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if any(ctx.needs_input_grad[:2]):
            raise NotImplementedError(
                "circuits: third derivatives of the log-partition are not available; "
                "detach what needs no gradient, or differentiate twice at most"
            )
        own, shared = ctx.saved_tensors
        return None, None, None, covariance(own, shared, ctx.asked, grad)


def _covariance_by_levels(leaves: Tensor, asked: Asked, along: Tensor) -> Tensor:
    with torch.enable_grad():
        free = leaves.detach().double().requires_grad_()
        value = levels.log_partition(free, asked.topology, asked.roots)
        (slope,) = torch.autograd.grad(value.sum(), free, create_graph=True)
        (moved,) = torch.autograd.grad((slope * along.double()).sum(), free)
    return moved.to(along.dtype)


def _tangent(
    own: Tensor, shared: Tensor, asked: Asked, along: Tensor, outwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition and mean of ``along`` ``[B]``, and covariances ``[B, P + Q]``."""
    B = len(own)
    arrays = [_array(x.double()) for x in (own, shared, along)]
    value, means, far = np.empty(B), np.empty(B), np.empty(B, np.bool_)
    moved = np.empty((B, asked.topology.leaves if outwards else 0))

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 5, np.float64)
        rows = (first, last, asked.edges, asked.rows, *arrays, scratch)
        tangent_cpu.tangent(*rows, outwards, value, far, means, moved)

    run_rows(piece, B, 3 * _work(asked, B, WIDE, SUM_STEPS), together=WIDE)
    found = [torch.from_numpy(x) for x in (value, means, moved)]
    rows = _truly_far(own.double(), shared.double(), asked, far)
    if len(rows):
        some, leaves = asked.select(rows), _leaves(own[rows], shared).detach().double()
        found[0][rows], chances = _sums_by_levels(leaves, some, False)
        found[1][rows] = (chances * along[rows]).sum(1)
        if outwards:
            found[2][rows] = _covariance_by_levels(leaves, some, along[rows].double())
    return found[0], found[1], found[2].to(own.dtype)


def _chosen(
    own: Tensor, shared: Tensor, asked: Asked, k: int | None
) -> tuple[Tensor, Tensor]:
    """Values ``[B, K]`` and labels ``[B, K, N]`` of the best, or of the k best."""
    if not _wants_gradient(own, shared):
        return _choose(own, shared, asked, k)[:2]
    values, labels, _ = _Chosen.apply(own, shared, asked, k)
    return values, labels


class _Chosen(torch.autograd.Function):
    """A maximum: its gradient counts the leaves of a maximiser (Danskin)."""

    @staticmethod
    def forward(
        own: Tensor, shared: Tensor, asked: Asked, k: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _choose(own, shared, asked, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        own, shared, _, _ = inputs
        _, labels, parts = output
        ctx.mark_non_differentiable(labels, parts)
        ctx.save_for_backward(parts)
        ctx.sizes, ctx.dtype = (own.shape[1], len(shared)), own.dtype

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (parts,) = ctx.saved_tensors
        P, Q = ctx.sizes
        counted = count(grads[0].to(ctx.dtype), parts, P + Q)
        return counted[:, :P], counted[:, P:].sum(0), None, None


def count(weights: Tensor, parts: Tensor, leaves: int) -> Tensor:
    """Weights ``[B, K]`` added up over the leaves of parts ``[B, K, U]``, -1 none."""
    total = weights.new_zeros(len(parts), leaves + 1)
    spread = weights[..., None].expand(parts.shape).flatten(1)
    return total.scatter_add(1, parts.flatten(1).long() + 1, spread)[:, 1:]


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
    rows = _truly_far(own, shared, asked, far)
    if not len(rows):
        return
    some = asked.select(rows)
    if own.dtype == torch.float32:
        found = _sums_in_lanes(own[rows].double(), shared.double(), some, outwards)
    else:
        found = _sums_by_levels(_leaves(own[rows], shared).detach(), some, False)
    value[rows] = found[0].numpy()
    if outwards:
        chances[rows] = found[1].numpy()


def _truly_far(own: Tensor, shared: Tensor, asked: Asked, far: Any) -> Tensor:
    """Of the rows ``far[B]`` those that read what is too large for float exponents."""
    rows = torch.from_numpy(np.flatnonzero(far))
    if not len(rows):
        return rows
    read = torch.empty((len(rows), asked.topology.leaves), dtype=torch.bool, device=CPU)
    faults.reading(asked.edges, asked.roots[rows].numpy(), read.numpy())
    leaves = _leaves(own[rows], shared).detach()
    size = _finite(leaves).masked_fill(~read, 0).abs().amax(1)
    reach = size.double() * asked.topology.most / LN2
    return rows[reach > furthest(64 // own.element_size())]


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


def _choose(
    own: Tensor, shared: Tensor, asked: Asked, k: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Values ``[B, K]``, labels ``[B, K, N]`` and parts ``[B, K, U]``.

    The k best in float64, so that they are sorted when they are rounded.
    """
    B, K, N, U = len(own), k or 1, asked.topology.labels, asked.topology.most
    if k is not None:
        own, shared = own.double(), shared.double()
    arrays = _array(own), _array(shared)
    values = torch.empty((B, K), dtype=torch.float64, device=CPU)
    labels = torch.empty((B, K, N), dtype=torch.int64, device=CPU)
    parts = torch.empty((B, K, U), dtype=torch.int32, device=CPU)
    out = values.numpy(), labels.numpy(), parts.numpy()
    if k is None:
        out = out[0][:, 0], out[1][:, 0], out[2][:, 0]

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 1 if k is None else 2, arrays[0].dtype)
        rows = (first, last, asked.edges, asked.rows, *arrays, scratch)
        (best_cpu.best if k is None else k_best_cpu.k_best)(*rows, *out)

    lanes = 64 // own.element_size()
    work = _work(asked, B, lanes, MAX_STEPS) + K * B * U * TRACE_STEPS
    run_rows(piece, B, work, together=lanes)
    return values, labels, parts


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
