"""Answers to questions about a chain in plain PyTorch, step by step: any device.

Each function replaces the Triton kernels of one question in ``on_device``. It computes
in float64 and in log space, a few operations for each step of the longest row. Where a
custom op computes its answer PyTorch records no gradients, so marginals and covariances
are recursions of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

INF = torch.inf


@dataclass(frozen=True)
class Ordered:
    """A chain in float64, whose real positions come first in each row.

    ``emissions[B, T, S]`` are 0 where there is no real position.
    """

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    steps: Tensor
    lengths: Tensor
    real: Tensor

    @classmethod
    def of(cls, chain: tuple[Tensor, ...]) -> "Ordered":
        """The chain of the arguments of an op."""
        emissions, transitions, start, end, steps, lengths = chain
        real = torch.arange(steps.shape[1], device=steps.device) < lengths[:, None]
        at = steps[..., None].expand_as(emissions)
        nodes = emissions.gather(1, at).masked_fill(~real[..., None], 0)
        nodes, moves, heads, tails = (
            x.detach().double() for x in (nodes, transitions, start, end)
        )
        return cls(nodes, moves, heads, tails, steps, lengths, real)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, positions and states."""
        B, T, S = self.emissions.shape
        return B, T, S

    def moves(self, n: int) -> Tensor:
        """Scores ``[B or 1, S, S]`` of the moves into step n."""
        return self.edges(self.transitions, n)

    def edges(self, parts: Tensor, n: int) -> Tensor:
        """Transitions into step n."""
        if parts.dim() == 2:
            return parts[None]
        if self.transitions.dim() == 2:
            return parts[:, 0]
        rows = torch.arange(len(parts), device=parts.device)
        return parts[rows, (self.steps[:, n] - 1).clamp(min=0)]

    def forward(self) -> tuple[list[Tensor], Tensor]:
        """Return the messages of all steps, which sum to 1, and the log-partition.

        ``a_n(j) = e_n(j) + log sum_i exp(a_{n-1}(i) + s(i, j))``, less its log sum;
        from the end of a row on the last of it.
        """
        value = self.emissions.new_zeros(len(self.lengths))
        alphas: list[Tensor] = []
        for n in range(self.sizes[1]):
            if n:
                x = alphas[-1][:, :, None] + self.moves(n)
                going = log_sum(x, 1) + self.emissions[:, n]
            else:
                going = self.start + self.emissions[:, 0]
            norm, here = log_sum(going, 1), self.real[:, n]
            value = value + torch.where(here, norm, 0)
            going = going - finite(norm)[:, None]
            before = alphas[-1] if n else torch.zeros_like(going)
            alphas.append(torch.where(here[:, None], going, before))
        if alphas:
            final = log_sum(alphas[-1] + self.end, 1)
            value = value + torch.where(self.lengths > 0, final, 0)
        return alphas, value

    def backward(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield n, ``b_n`` and ``e_n + b_n``, each ``[B, S]``, from the last step on.

        ``b_{n-1}(i) = log sum_j exp(s(i, j) + e_n(j) + b_n(j))``, less its largest.
        """
        B, T, S = self.sizes
        b = self.end.expand(B, S)
        for n in range(T - 1, -1, -1):
            pull = self.emissions[:, n] + b
            yield n, b, pull
            if n:
                going = log_sum(self.moves(n) + pull[:, None, :], 2)
                going = going - finite(going.amax(1))[:, None]
                b = torch.where(self.real[:, n, None], going, b)


def finite(x: Tensor) -> Tensor:
    """Return x, and 0 for -inf: subtracting that makes no NaN."""
    return x.masked_fill(x == -INF, 0)


def log_sum(x: Tensor, axis: int) -> Tensor:
    """Return the log of the sum of exp along an axis; -inf if all of it is."""
    top = finite(x.amax(axis, keepdim=True))
    return (x - top).exp().sum(axis).log() + top.squeeze(axis)


def shares(x: Tensor, *axes: int) -> Tensor:
    """Return exp of x over its sum along axes; 0 if all of it is -inf."""
    weights = (x - finite(x.amax(axes, keepdim=True))).exp()
    total = weights.sum(axes, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def log_partition(chain: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the log-partition in float64, and the marginals in the chain's dtype."""
    ordered = Ordered.of(chain)
    alphas, value = ordered.forward()
    total = _Total(ordered, chain)
    for n, b, pull in ordered.backward():
        total.nodes[n] = shares(alphas[n] + b, 1)
        if n:
            x = alphas[n - 1][:, :, None] + ordered.moves(n) + pull[:, None, :]
            total.add(n, shares(x, 1, 2))
    return value, *total.parts()


# past_n(j) = v_n(j) + sum_i P(i | j) (past_{n-1}(i) + v(i, j))
# future_{n-1}(i) = sum_j P(j | i) (v(i, j) + v_n(j) + future_n(j))
# Cov(i, j) = P(i, j) (past_{n-1}(i) + v(i, j) + v_n(j) + future_n(j) - E[V])
def covariance(
    chain: tuple[Tensor, ...],
    v_nodes: Tensor,
    v_edges: Tensor,
    v_heads: Tensor,
    v_tails: Tensor,
) -> tuple[Tensor, ...]:
    """Return the covariance of each part with V, the sum of weights v over parts."""
    ordered = Ordered.of(chain)
    alphas, _ = ordered.forward()
    total = _Total(ordered, chain)
    if not alphas:
        return total.parts()
    at = ordered.steps[..., None].expand_as(v_nodes)
    v = v_nodes.double().gather(1, at).masked_fill(~ordered.real[..., None], 0)
    pasts = [v_heads.double() + v[:, 0]]
    for n in range(1, len(alphas)):
        x = alphas[n - 1][:, :, None] + ordered.moves(n)
        along = pasts[-1][:, :, None] + ordered.edges(v_edges, n)
        going = v[:, n] + (shares(x, 1) * along).sum(1)
        pasts.append(torch.where(ordered.real[:, n, None], going, pasts[-1]))
    future = v_tails.double()
    ends = shares(alphas[-1] + ordered.end, 1)
    mean = (ends * (pasts[-1] + future)).sum(1)
    for n, b, pull in ordered.backward():
        along = pasts[n] + future - mean[:, None]
        total.nodes[n] = shares(alphas[n] + b, 1) * along
        if n:
            x = ordered.moves(n) + pull[:, None, :]
            gain = ordered.edges(v_edges, n) + (v[:, n] + future)[:, None, :]
            along = pasts[n - 1][:, :, None] + gain - mean[:, None, None]
            total.add(n, shares(alphas[n - 1][:, :, None] + x, 1, 2) * along)
            going = (shares(x, 2) * gain).sum(2)
            future = torch.where(ordered.real[:, n, None], going, future)
    return total.parts()


class _Total:
    """Parts of all steps, put together to the shapes of the marginals."""

    def __init__(self, ordered: Ordered, chain: tuple[Tensor, ...]) -> None:
        B, T, S = ordered.sizes
        self.ordered, self.dtype = ordered, chain[0].dtype
        self.shared = chain[1].dim() == 2
        self.nodes = list(ordered.emissions.new_zeros(T, B, S))
        steps = 1 if self.shared else max(T - 1, 0)
        self.edges = ordered.emissions.new_zeros(B, steps, S, S)

    def add(self, n: int, x: Tensor) -> None:
        """Add ``[B, S, S]``, what belongs to the moves into step n."""
        here = self.ordered.real[:, n, None, None]
        x = torch.where(here, x, 0)
        if self.shared:
            self.edges[:, 0] += x
        else:
            rows = torch.arange(len(x), device=x.device)
            into = (self.ordered.steps[:, n] - 1).clamp(min=0)
            self.edges.index_put_((rows, into), x, accumulate=True)

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return nodes, edges, heads and tails."""
        ordered = self.ordered
        nodes = torch.zeros_like(ordered.emissions)
        heads = tails = nodes.new_zeros(len(nodes), nodes.shape[2])
        if self.nodes:
            x = torch.stack(self.nodes, 1).masked_fill(~ordered.real[..., None], 0)
            nodes = nodes.scatter(1, ordered.steps[..., None].expand_as(x), x)
            final = (ordered.lengths - 1).clamp(min=0)[:, None, None]
            heads, tails = x[:, 0], x.gather(1, final.expand_as(x[:, :1]))[:, 0]
        found = (nodes, self.edges, heads, tails)
        return tuple(x.to(self.dtype).contiguous() for x in found)  # type: ignore[return-value]


# H_n(j) = sum_i P(i | j) (H_{n-1}(i) - log P(i | j))
def entropy(chain: tuple[Tensor, ...]) -> Tensor:
    """Return the entropy ``[B]`` of each row, in nats."""
    ordered = Ordered.of(chain)
    alphas, _ = ordered.forward()
    B, _, S = ordered.sizes
    h = ordered.emissions.new_zeros(B, S)
    for n in range(1, len(alphas)):
        x = alphas[n - 1][:, :, None] + ordered.moves(n)
        going = _entropy(x, h[:, :, None], 1)
        h = torch.where(ordered.real[:, n, None], going, h)
    if not alphas:
        return chain[0].new_zeros(B)
    found = _entropy(alphas[-1] + ordered.end, h, 1)
    return found.masked_fill(ordered.lengths == 0, 0).to(chain[0].dtype)


def _entropy(x: Tensor, h: Tensor, axis: int) -> Tensor:
    p = shares(x, axis)
    return (p * (h - p.masked_fill(p == 0, 1).log())).sum(axis)


def vjp(weights: Tensor, parts: tuple[Tensor, ...], shared: bool) -> tuple[Tensor, ...]:
    """Return the parts of rows times weights ``[B]``, summed where rows share them."""
    dtype = parts[0].dtype
    nodes, edges, heads, tails = (
        weights.double().reshape(-1, *[1] * (x.dim() - 1)) * x for x in parts
    )
    moves = edges.sum((0, 1)) if shared else edges
    return tuple(x.to(dtype) for x in (nodes, moves, heads.sum(0), tails.sum(0)))


def score(chain: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores ``[B, K]`` in float64, and the first bad position ``[B]``, or -1.

    Terms are added in the order of time, as on the CPU.
    """
    ordered = Ordered.of(chain)
    B, T, S = ordered.sizes
    y = labels.gather(2, ordered.steps[:, None].expand_as(labels))
    real = ordered.real[:, None].expand_as(y)
    bad = real & ((y < 0) | (y >= S))
    y = torch.where(real & ~bad, y, 0)
    value = ordered.emissions.new_zeros(labels.shape[:2])
    rows = torch.arange(B, device=y.device)[:, None].expand(y.shape[:2])
    for n in range(T):
        here, at = real[:, :, n], y[:, :, n]
        if n:
            moves = ordered.moves(n).expand(B, S, S)
            going = moves[rows, y[:, :, n - 1], at]
        else:
            going = ordered.start[at]
        value = value + torch.where(here, going, 0)
        value = value + torch.where(here, ordered.emissions[rows, n, at], 0)
    if T:
        final = (ordered.lengths - 1).clamp(min=0)[:, None, None]
        at = y.gather(2, final.expand(-1, y.shape[1], 1)).squeeze(2)
        value = value + torch.where(real[:, :, 0], ordered.end[at], 0)
    # of the first of the outputs that have one, the first position
    nowhere = labels.shape[1] * T
    output = torch.arange(labels.shape[1], device=y.device)
    place = ordered.steps[:, None] + T * output[:, None]
    place = torch.where(bad, place, nowhere).flatten(1)
    first = place.amin(1) if nowhere else place.new_zeros(B)
    fault = torch.where(first < nowhere, first % max(T, 1), -1)
    return value, fault


def count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights ``[B, K]`` added up over the parts that ``labels`` use.

    What rows share, for each of the ``groups`` of as many rows.
    """
    B, K, T = labels.shape
    new, device = weights.new_zeros, weights.device
    wide = torch.float64
    emissions = new((B, T, S), dtype=wide)
    edges = new((groups, S, S) if shared else (B, max(T - 1, 0), S, S), dtype=wide)
    start, end = new((groups, S), dtype=wide), new((groups, S), dtype=wide)
    y = labels.gather(2, steps[:, None].expand_as(labels))
    row = torch.arange(B, device=device)
    # row b is in the group whose slice [B g // groups, B (g + 1) // groups) holds it
    group = ((row + 1) * groups - 1).div(max(B, 1), rounding_mode="floor")
    for k in range(K):
        w = weights[:, k].double()
        for n in range(T):
            at = y[:, k, n]
            real = (n < lengths) & (at >= 0) & (at < S)
            here = torch.where(real, w, 0)
            at = torch.where(real, at, 0)
            t = steps[:, n]
            _add(emissions, (row, t, at), here)
            if n == 0:
                _add(start, (group, at), here)
            else:
                before = y[:, k, n - 1]
                moved = real & (before >= 0) & (before < S)
                moving = torch.where(moved, w, 0)
                before = torch.where(moved, before, 0)
                into = (t - 1).clamp(min=0)
                where = (group, before, at) if shared else (row, into, before, at)
                _add(edges, where, moving)
            _add(end, (group, at), torch.where(lengths == n + 1, here, 0))
    found = (emissions, edges, start, end)
    return tuple(x.to(weights.dtype) for x in found)  # type: ignore[return-value]


def _add(into: Tensor, where: tuple[Tensor, ...], x: Tensor) -> None:
    into.index_put_(where, x, accumulate=True)


def viterbi(chain: tuple[Tensor, ...]) -> Tensor:
    """Return a maximiser ``[B, T]``, -1 where there is no real position."""
    return viterbi_topk(chain, 1)[0][:, 0]


# list_n(j) = the k best of (a + s(i, j)) + e_n(j) over i and over a in list_{n-1}(i)
def viterbi_topk(chain: tuple[Tensor, ...], k: int) -> tuple[Tensor, Tensor]:
    """Return the k best outputs ``[B, k, T]``, and which of them exist ``[B, k]``.

    Ties go to the lower state, from the end backwards. Sums run in the order of the
    CPU, so answers are equal to the last bit.
    """
    ordered = Ordered.of(chain)
    B, T, S = ordered.sizes
    labels = ordered.steps.new_full((B, k, T), -1)
    empty = ordered.lengths == 0
    if T == 0 or B == 0:
        valid = empty[:, None] & (torch.arange(k, device=labels.device) == 0)
        return labels, valid
    best = ordered.emissions.new_full((B, S, k), -INF)
    best[:, :, 0] = ordered.start + ordered.emissions[:, 0]
    backs = []
    for n in range(1, T):
        reach = best[:, :, :, None] + ordered.moves(n)[:, :, None, :]
        going, back = _largest(reach.flatten(1, 2).mT, k)  # [B, S, k]
        going = going + ordered.emissions[:, n, :, None]
        best = torch.where(ordered.real[:, n, None, None], going, best)
        backs.append(back)
    value, cell = _largest((best + ordered.end[:, None]).flatten(1)[:, None], k)
    value, cell = value[:, 0], cell[:, 0]  # [B, k]
    valid = value > -INF
    rows = torch.arange(B, device=labels.device)
    for n in range(T - 1, -1, -1):
        here = ordered.real[:, n, None]
        state = cell.div(k, rounding_mode="floor")
        said = torch.where(here & valid, state, -1)
        labels[rows, :, ordered.steps[:, n]] = said
        if n:
            before = backs[n - 1].flatten(1).gather(1, cell)
            cell = torch.where(here, before, cell)
    first = torch.arange(k, device=labels.device) == 0
    return labels, torch.where(empty[:, None], first, valid)


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest along the last axis, ties in order, and where; -inf more."""
    if k == 1:  # one pass; of ties the first
        value, at = x.max(-1, keepdim=True)
        return value, at
    value, at = x.sort(dim=-1, descending=True, stable=True)
    more = max(0, k - x.shape[-1])
    value = torch.nn.functional.pad(value, (0, more), value=-INF)
    at = torch.nn.functional.pad(at, (0, more))
    return value[..., :k], at[..., :k]


def sample(chain: tuple[Tensor, ...], uniforms: Tensor) -> Tensor:
    """Return samples ``[B, K, T]`` made from ``uniforms`` of that shape.

    From the end backwards, each the first state whose cumulated weight exceeds u.
    """
    ordered = Ordered.of(chain)
    B, T, S = ordered.sizes
    K = uniforms.shape[1]
    labels = torch.full_like(uniforms, -1, dtype=torch.int64)
    alphas, _ = ordered.forward()
    rows = torch.arange(B, device=labels.device)
    state = torch.arange(S, device=labels.device)
    move = ordered.end.expand(B, K, S)
    for n in range(T - 1, -1, -1):
        here = ordered.real[:, n, None]
        t = ordered.steps[:, n]
        law = shares(alphas[n][:, None] + move, 2)
        u = uniforms[rows, :, t].double()[..., None] * law.sum(2, keepdim=True)
        passed = (law > 0) & (law.cumsum(2) > u)
        first = torch.where(passed, state, S).amin(2)
        # if rounding leaves the sum at most u: the last feasible state
        final = torch.where(law > 0, state, 0).amax(2)
        label = torch.minimum(first, final)
        labels[rows, :, t] = torch.where(here, label, -1)
        if n:
            moves = ordered.moves(n).expand(B, S, S).mT
            going = moves[rows[:, None], label]
            move = torch.where(here[..., None], going, move)
    return labels
