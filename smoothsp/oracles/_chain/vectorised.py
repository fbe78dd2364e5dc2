"""Scores, counts and vector-Jacobian products of a chain in PyTorch, for devices.

None needs a recursion over time: a few operations serve a batch of any length. Results
are deterministic to the bit. The arguments of a chain are those of ``_chain.buffers``.
"""

import torch
from torch import Tensor


def score(chain: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores ``[B, K]`` in float64, and a mask ``[B, K, T]`` of labels out of range.

    The mask is in the order of ``steps``; scores of such labels are undefined. Terms
    are added in the order of time, as on the CPU.
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
    """Sum columns of ``[N, M]`` sequentially, for the same bits as on the CPU."""
    if torch.are_deterministic_algorithms_enabled():
        # in this mode some versions of PyTorch allocate N by N for cumsum
        total = torch.zeros_like(terms[0])
        for term in terms:
            total += term
        return total
    # cumsum over the first of several axes is sequential on a device; sum is a tree
    return torch.nn.functional.pad(terms, (0, 1)).cumsum(0)[-1, :-1]


def count_parts(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum the weights ``[B, K]`` of ``labels`` ``[B, K, T]`` over the parts they use.

    Shared potentials are summed in float64. Labels out of range count for no part.
    """
    B, K, T = labels.shape
    y, real, wrong = _pack_labels(labels, steps, lengths, S)
    label_weights = (
        weights.detach()[..., None].expand(B, K, T).masked_fill(~real | wrong, 0)
    )
    label_weights_float64 = label_weights.double()
    row = torch.arange(B, device=y.device)[:, None, None].expand(B, K, T)
    t = steps[:, None].expand(B, K, T)
    before, after = y[..., :-1], y[..., 1:]
    edge_weights = label_weights_float64[..., 1:].masked_fill(wrong[..., :-1], 0)
    into = _incoming_steps(t)
    where = () if shared else (row[..., 1:], into)
    edges = (S, S) if shared else (B, max(T - 1, 0), S, S)
    is_last = torch.arange(T, device=y.device) == (lengths - 1)[:, None, None]
    ends = label_weights_float64.masked_fill(~is_last, 0)
    sums = (
        _scatter_add((B, T, S), (row, t, y), label_weights),
        _scatter_add(edges, (*where, before, after), edge_weights),
        _scatter_add((S,), (y[..., :1],), label_weights_float64[..., :1]),
        _scatter_add((S,), (y,), ends),
    )
    nodes, transitions, start, end = (x.to(weights.dtype) for x in sums)
    return nodes, transitions, start, end


def _scatter_add(
    shape: tuple[int, ...], indices: tuple[Tensor, ...], x: Tensor
) -> Tensor:
    """Add numbers at indices, which must be within the shape."""
    # index_put sorts indices on a device, so its sums are deterministic; unsafe=True
    # skips the range check, which would synchronise
    sums: Tensor = torch.ops.aten._index_put_impl_(
        x.new_zeros(shape), indices, x, accumulate=True, unsafe=True
    )
    return sums


def vjp(weights: Tensor, parts: tuple[Tensor, ...], shared: bool) -> tuple[Tensor, ...]:
    """Multiply marginals of rows by weights ``[B]``; sum over rows in float64.

    The backward pass of ``log_partition``, itself not differentiable. Results have the
    shapes of the potentials.
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
    """Indices of the transitions into positions from the second on."""
    return (steps[..., 1:] - 1).clamp(min=0)


def _pack_labels(
    labels: Tensor, steps: Tensor, lengths: Tensor, S: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels in the order of ``steps``, and masks: real, and real but out of range.

    All ``[B, K, T]``. Masked labels and those out of range become 0, a safe index.
    """
    y = labels.gather(2, steps[:, None].expand_as(labels))
    real = torch.arange(y.shape[2], device=y.device) < lengths[:, None, None]
    real = real.expand_as(y)
    wrong = real & ((y < 0) | (y >= S))
    return torch.where(real & ~wrong, y, 0), real, wrong
