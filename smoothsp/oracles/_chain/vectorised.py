"""Scores, counts and vector-Jacobian products of a chain in PyTorch, for devices.

All are sums of products without a recursion, a few operations for a batch of any
length. The bits of a result do not change from run to run. The arguments of a chain are
those of ``_chain.buffers``.
"""

import torch
from torch import Tensor


def score(chain: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores ``[B, K]`` in float64, and which labels are out of range.

    The latter are ``[B, K, T]``, in the order of ``steps``; a score that uses one means
    nothing. Terms are added in the order of time, as on the CPU.
    """
    emissions, transitions, start, end, steps, lengths = (x.detach() for x in chain)
    B, K, T = labels.shape
    y, real, wrong = _pack_labels(labels, steps, lengths, emissions.shape[2])
    rows = torch.arange(B, device=y.device)[:, None, None]
    nodes = emissions[rows, steps[:, None], y]
    before, after = y[..., :-1], y[..., 1:]
    if transitions.dim() == 2:
        transition_scores = transitions[before, after]
    else:
        transition_scores = transitions[
            rows, _incoming_steps(steps)[:, None], before, after
        ]
    into = torch.cat([start[y[..., :1]], transition_scores], 2)
    terms = torch.stack([into, nodes], 3).masked_fill(~real[..., None], 0).flatten(2)
    final = (lengths - 1).clamp(min=0)[:, None, None].expand(B, K, min(T, 1))
    ends = end[y.gather(2, final)].masked_fill((lengths == 0)[:, None, None], 0)
    terms = torch.cat([terms, ends.sum(2, keepdim=True)], 2).double()
    return _sum_left_to_right(terms.flatten(0, 1).T).view(B, K), wrong


def _sum_left_to_right(terms: Tensor) -> Tensor:
    """Return the sums of columns ``[N, M]``, one term after the other."""
    if torch.are_deterministic_algorithms_enabled():
        # versions of PyTorch take memory of N by N for cumsum then
        total = torch.zeros_like(terms[0])
        for term in terms:
            total += term
        return total
    # a device adds along the first of several axes in order, but a vector in a tree
    return torch.nn.functional.pad(terms, (0, 1)).cumsum(0)[-1, :-1]


def count_parts(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights ``[B, K]`` added up over the parts that ``labels`` use.

    What rows share is added up in float64. Labels out of range use nothing.
    """
    B, K, T = labels.shape
    y, real, wrong = _pack_labels(labels, steps, lengths, S)
    float64_weights = (
        weights.detach()[..., None].expand(B, K, T).masked_fill(~real | wrong, 0)
    )
    row_weights = float64_weights.double()
    row = torch.arange(B, device=y.device)[:, None, None].expand(B, K, T)
    t = steps[:, None].expand(B, K, T)
    before, after = y[..., :-1], y[..., 1:]
    is_transition = row_weights[..., 1:].masked_fill(wrong[..., :-1], 0)
    into = _incoming_steps(t)
    where = () if shared else (row[..., 1:], into)
    edges = (S, S) if shared else (B, max(T - 1, 0), S, S)
    is_last = torch.arange(T, device=y.device) == (lengths - 1)[:, None, None]
    ends = row_weights.masked_fill(~is_last, 0)
    emissions_grad = (
        _scatter_add((B, T, S), (row, t, y), float64_weights),
        _scatter_add(edges, (*where, before, after), is_transition),
        _scatter_add((S,), (y[..., :1],), row_weights[..., :1]),
        _scatter_add((S,), (y,), ends),
    )
    nodes, transitions, start, end = (x.to(weights.dtype) for x in emissions_grad)
    return nodes, transitions, start, end


def _scatter_add(
    shape: tuple[int, ...], indices: tuple[Tensor, ...], x: Tensor
) -> Tensor:
    """Return numbers added up at indices, which are within the shape."""
    # index_put, which sorts indices on a device, without a check that may wait for it
    sums: Tensor = torch.ops.aten._index_put_impl_(
        x.new_zeros(shape), indices, x, accumulate=True, unsafe=True
    )
    return sums


def vjp(weights: Tensor, parts: tuple[Tensor, ...], shared: bool) -> tuple[Tensor, ...]:
    """Return parts of rows times weights ``[B]``, added up to potentials' shapes.

    The backward pass of ``log_partition``, without a derivative of its own. Sums over
    rows are taken in float64.
    """
    nodes, edges, heads, tails = (x.detach() for x in parts)
    weights = weights.detach().to(nodes.dtype)

    def scaled(x: Tensor) -> Tensor:
        return weights.view(-1, *[1] * (x.dim() - 1)) * x

    def summed(x: Tensor) -> Tensor:
        return (weights.double().view(-1, *[1] * (x.dim() - 1)) * x).sum(0).to(x.dtype)

    transitions = summed(edges) if shared else scaled(edges)
    return scaled(nodes), transitions, summed(heads), summed(tails)


def _incoming_steps(steps: Tensor) -> Tensor:
    """Return which transitions lead into positions from the second on."""
    return (steps[..., 1:] - 1).clamp(min=0)


def _pack_labels(
    labels: Tensor, steps: Tensor, lengths: Tensor, S: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return labels, real positions first, which are real, which are out of range.

    Labels that are not real or out of range are 0.
    """
    y = labels.gather(2, steps[:, None].expand_as(labels))
    real = torch.arange(y.shape[2], device=y.device) < lengths[:, None, None]
    real = real.expand_as(y)
    wrong = real & ((y < 0) | (y >= S))
    return torch.where(real & ~wrong, y, 0), real, wrong
