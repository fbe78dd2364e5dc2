r"""Chains with scores so large that sums leave the dtype, or lose the small ones.

Such a chain is asked through a relative: the same outputs, with scores less a number V
of their row. Where no output has to use a large part, the relative forbids the large
negative ones, since other outputs are ahead by more than any dtype can tell. Elsewhere
the scores of best prefixes are taken out of transitions of each step, exactly:

    a_1(j) = start(j) + e_1(j),       a_n(j) = max_i a_{n-1}(i) + s_n(i, j) + e_n(j)
    r_n(i, j) = a_{n-1}(i) + s_n(i, j) + e_n(j) - a_n(j)
    r_end(j) = a_N(j) + end(j) - V,   V = max_j a_N(j) + end(j)

No such score is above 0, and the best output has 0. Numbers that are to be exact are
integers, multiples of ``2^-UNIT``: every float is one.
"""

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._chain.checks import chain_values
from smoothsp.oracles._questions.rounding import weighed

if TYPE_CHECKING:
    from smoothsp.oracles.chain import Chain

UNIT = 1127
FORBIDDEN = -(1 << 4096)
# From here on the square of a score is not finite.
LARGE = {torch.float32: 2.0**64, torch.float64: 2.0**512}
# A score that leaves no chance to an output of a relative.
LOWEST = -1e150


class Relative(NamedTuple):
    """A float64 chain without large scores, and the V of each row; None for zeros.

    ``pruned``: large parts are forbidden and the others as they were.
    """

    chain: "Chain"
    offset: Any
    pruned: bool


def relative(chain: "Chain") -> "Chain":
    """What to ask where V has no part in the answer."""
    return _relative(chain).chain


def score(chain: "Chain", y: Tensor) -> Tensor:
    """Scores of labels ``[B, T]`` or ``[B, K, T]``."""
    return _held(_score(chain, y), chain, "a score")


def decode(chain: "Chain") -> tuple[Tensor, Tensor]:
    """Highest scores, and labels that attain them."""
    y = relative(chain).decode()[1]
    return score(chain, y), y


def decode_topk(chain: "Chain", k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k highest scores, their labels, and which of them exist."""
    found, _, pruned = _relative(chain)
    _, ys, valid = found.decode_topk(k)
    if not pruned or not bool(valid.all()):
        # among the k best are outputs with large parts, which hide the others' order
        ys, valid = _k_best(chain, k)
    existing = torch.where(valid[..., None], ys, ys[:, :1])
    return score(chain, existing).masked_fill(~valid, -torch.inf), ys, valid


def log_partition(chain: "Chain") -> Tensor:
    """Log-partitions."""
    found, offset, _ = _relative(chain)
    value = found._log_partition()
    if offset is not None:
        value = _with_gradient(_exact(_array(value)) + offset, value)
    return _held(value, chain, "a log-partition")


def log_prob(chain: "Chain", y: Tensor) -> Tensor:
    """Log-probabilities of labels ``[B, T]`` or ``[B, K, T]``."""
    return _held(_log_prob(chain, y), chain, "a log-probability")


def log_likelihood(chain: "Chain", y: Tensor, weight: Tensor | float) -> Tensor:
    """Weighted sum of the log-probabilities of ``y`` ``[B, T]``."""
    total = weighed(_log_prob(chain, y), weight).sum()
    return _held(total, chain, "a sum of log-probabilities")


def violation(
    chain: "Chain", y: Tensor, weight: Tensor | float, cost_scale: float
) -> Tensor:
    """Weighted sum of the margin violations of ``y`` ``[B, T]``; Hamming's cost."""
    cost = chain.hamming(y).detach().double() * cost_scale
    best = _make_relative(chain, cost).chain.decode()[1]
    paid = cost.gather(2, best.clamp(min=0)[..., None]).squeeze(2)
    paid = paid.masked_fill(~chain.mask, 0)
    gold = _sums(chain, y)
    excess = _sums(chain, best) + _exact(_array(paid)).sum(1) - gold
    excess[gold < FORBIDDEN // 2] = -FORBIDDEN
    zero = _zeros(chain)
    value = _with_gradient(excess, zero._score(best) - zero._score(y))
    return _held(weighed(value, weight).sum(), chain, "a sum of margin violations")


def scale(chain: "Chain", factor: float) -> "Chain":
    """The chain with every potential multiplied by ``factor > 0``."""
    dtype = chain.emissions.dtype
    top = torch.finfo(dtype).max
    for x in _arrays(chain):
        # the quotient, since the product may leave float64
        if bool((abs(x[x > -np.inf]) > top / factor).any()):
            raise ValueError(
                f"factor: expected products that {dtype} holds, got {factor:.3g} for "
                f"potentials of up to {abs(x[x > -np.inf]).max():.3g}; use a smaller "
                "factor"
            )
    scaled = chain._like(
        *((x.double() * factor).to(dtype) for x in chain._record.potentials)
    )
    scaled._large = chain_values(scaled._record)
    return scaled


def check_cost(chain: "Chain", cost: Tensor) -> None:
    """No sum of a score and a cost may fall below the range: it would forbid."""
    scores = chain.emissions
    lost = (scores + cost == -torch.inf) & (scores > -torch.inf) & (cost > -torch.inf)
    lost &= chain.mask[..., None]
    if bool(lost.any()):
        row, step, state = lost.nonzero()[0].tolist()
        raise ValueError(
            f"cost: expected sums with the emissions that {scores.dtype} holds, got "
            f"{cost[row, step, state].item():.3g} for a score of "
            f"{scores[row, step, state].item():.3g} at row {row}, step {step}, state "
            f"{state}; forbid with -inf"
        )


def _score(chain: "Chain", y: Tensor) -> Tensor:
    """In float64, NaN where that has no such number."""
    value = chain._score(y)
    if _relative(chain).offset is not None:
        return _with_gradient(_sums(chain, y), _zeros(chain)._score(y))
    # large scores are negative: a sum left the range if it is -inf and nothing forbids
    allowed = (torch.where(x > -torch.inf, 0.0, x) for x in chain._record.potentials)
    lost = (value == -torch.inf) & (chain._like(*allowed)._score(y) == 0)
    return value.masked_fill(lost, torch.nan)


def _log_prob(chain: "Chain", y: Tensor) -> Tensor:
    """In float64, NaN where that has no such number."""
    found, offset, _ = _relative(chain)
    value = _score(chain, y)
    log_z = found._log_partition()
    log_z = log_z if y.dim() == 2 else log_z[:, None]
    if offset is None:
        value = value - log_z
    else:
        offset = offset if y.dim() == 2 else offset[:, None]
        exact = _sums(chain, y) - offset - _exact(_array(log_z))
        value = _with_gradient(exact, _zeros(chain)._score(y) - log_z)
    return torch.where(value > 0, value - value.detach(), value)


def _held(value: Tensor, chain: "Chain", what: str) -> Tensor:
    """The value in the dtype of the chain, which has to have such a number."""
    dtype = chain.emissions.dtype
    held = value.to(dtype)
    lost = held.isnan() | (held.isinf() & value.isfinite())
    if bool(lost.any()):
        place = lost.nonzero()[0].tolist()
        where = f" in row {place[0]}" if place else ""
        instead = ", or use float64" if dtype == torch.float32 else ""
        raise ValueError(
            f"{_name_of_largest(chain)}: expected scores so small that {dtype} has "
            f"room for {what}, got one beyond {torch.finfo(dtype).max:.3g}{where}; "
            f"scale the scores down, mask positions, forbid with -inf{instead}"
        )
    return held


def _name_of_largest(chain: "Chain") -> str:
    """The potential that has the largest finite score."""
    names = "emissions", "transitions", "start", "end"
    sizes = [abs(x[x > -np.inf]).max(initial=0) for x in _arrays(chain)]
    return names[int(np.argmax(sizes))]


def _relative(chain: "Chain") -> Relative:
    if chain._relative is None:
        chain._relative = _make_relative(chain)
    return chain._relative


def _make_relative(chain: "Chain", cost: Tensor | None = None) -> Relative:
    """The relative, with a cost ``[B, T, S]`` added to the emissions."""
    limit = LARGE[chain.emissions.dtype]
    B, T, S = chain.emissions.shape
    emissions, *others = _arrays(chain)
    added = np.zeros((B, T, S)) if cost is None else _array(cost)
    # what all labels of a position have in common says nothing about outputs
    top = emissions.max(2)
    same = ((emissions == top[..., None]) | (emissions == -np.inf)).all(2)
    shift = np.where(same & (abs(top) >= limit) & (top > -np.inf), top, 0)
    parts = [emissions - shift[..., None] + added, *others]
    parts = [np.where(x <= -limit, -np.inf, x) for x in parts]
    # any two of the other outputs are closer than a large part is to them
    rest = max(float(abs(x[x > -np.inf]).max(initial=0)) for x in parts)
    close = 8 * (T + 1) * rest + T * np.log(S) + 1e4 < limit
    if not close or not _have_outputs(chain, parts):
        return _by_step(chain, (emissions, *others), added)
    zeros = _zeros(chain)._record.potentials
    potentials = (_like(x, chain) + z for x, z in zip(parts, zeros, strict=True))
    offset = _exact(shift).sum(1) if shift.any() else None
    return Relative(chain._like(*potentials), offset, True)


def _have_outputs(chain: "Chain", parts: list[Any]) -> bool:
    """Whether every row has an output that nothing forbids."""
    emissions, moves, start, end = (x > -np.inf for x in parts)
    steps, lengths = _array(chain._record.positions.steps), _array(chain.lengths)
    rows = np.arange(len(lengths))
    reach = np.broadcast_to(start, (len(lengths), len(start)))
    for n in range(lengths.max(initial=0)):
        t = steps[:, n]
        into = reach
        if n > 0:
            move = moves if moves.ndim == 2 else moves[rows, t - 1]
            into = (reach[:, :, None] & move).any(1)
        reach = np.where((n < lengths)[:, None], into & emissions[rows, t], reach)
    return bool(((reach & end).any(1) | (lengths == 0)).all())


def _by_step(chain: "Chain", parts: Any, cost: Any = 0.0) -> Relative:
    """The relative with transitions of each step, which is exact whatever the sizes."""
    B, T, S = chain.emissions.shape
    emissions, moves, start, end = (_exact(x) for x in parts)
    emissions = emissions + _exact(np.broadcast_to(cost, (B, T, S)))
    steps, lengths = _array(chain._record.positions.steps), _array(chain.lengths)
    first, last = np.zeros((2, B, T, 1))
    ends, edges = np.zeros((B, T, S)), np.zeros((B, max(T - 1, 0), S, S))
    offset = np.zeros(B, object)
    for b, N in enumerate(lengths):
        if N == 0:
            continue
        t = steps[b, 0]
        first[b, t] = 1
        reach = start + emissions[b, t]
        for t in steps[b, 1:N]:
            move = moves if moves.ndim == 2 else moves[b, t - 1]
            pair = reach[:, None] + move + emissions[b, t]
            reach = pair.max(0)
            edges[b, t - 1] = _scores(pair, reach)
        offset[b] = (reach + end).max()
        last[b, t] = 1
        ends[b, t] = _scores(reach + end, offset[b])
    # where rows begin and end differs, so start and end join the emissions
    e, m, s, n = _zeros(chain)._record.potentials
    e = e + _like(ends, chain) + _like(first, chain) * s + _like(last, chain) * n
    m = m.expand(edges.shape) + _like(edges, chain)
    nothing = torch.zeros_like(s.detach())
    return Relative(chain._like(e, m, nothing, nothing), offset, False)


def _k_best(chain: "Chain", k: int) -> tuple[Tensor, Tensor]:
    """Labels ``[B, K, T]`` of the k best outputs, exactly, and which exist.

    Of equal prefixes the one from the lower state comes first, and then the better.
    """
    B, T, S = chain.emissions.shape
    emissions, moves, start, end = (_exact(x) for x in _arrays(chain))
    steps, lengths = _array(chain._record.positions.steps), _array(chain.lengths)
    ys = np.full((B, k, T), -1)
    valid = np.zeros((B, k), bool)
    for b, N in enumerate(lengths):
        # (score, labels) of the best prefixes that end in each state
        lists = [[(x, ())] if s == 0 else [] for s, x in enumerate(end * 0)]
        for n, t in enumerate(steps[b, :N]):
            move = moves if moves.ndim == 2 else moves[b, t - 1]
            into = start[None] if n == 0 else move
            lists = [
                _best_of(
                    (
                        (x + into[i, j] + emissions[b, t, j], (*y, j))
                        for i, prefixes in enumerate(lists)
                        for x, y in prefixes
                    ),
                    k,
                )
                for j in range(S)
            ]
        whole = ((x + end[y[-1]] if y else x, y) for some in lists for x, y in some)
        for r, (_, y) in enumerate(_best_of(whole, k)):
            ys[b, r, steps[b, :N]] = y
            valid[b, r] = True
    device = chain.emissions.device
    return torch.from_numpy(ys).to(device), torch.from_numpy(valid).to(device)


def _best_of(scored: Any, k: int) -> list[Any]:
    """The k highest that nothing forbids; of equal ones the earlier."""
    allowed = (pair for pair in scored if pair[0] >= FORBIDDEN // 2)
    return heapq.nlargest(k, allowed, key=lambda pair: pair[0])


def _scores(sums: Any, best: Any) -> Any:
    """How far sums are below the best ones, as floats."""
    below = sums - best
    floats = np.where(below < -(1 << (UNIT + 498)), LOWEST, _floats(below))
    return np.where(sums < FORBIDDEN // 2, -np.inf, floats)


def _sums(chain: "Chain", y: Tensor) -> Any:
    """Scores of labels ``[B, T]`` or ``[B, K, T]``, exactly."""
    emissions, moves, start, end = _arrays(chain)
    steps, lengths = _array(chain._record.positions.steps), _array(chain.lengths)
    labels = _array(y if y.dim() == 3 else y[:, None])
    B, K, _ = labels.shape
    total = np.zeros((B, K), object)
    for b, k in np.ndindex(B, K):
        t = steps[b, : lengths[b]]
        j = labels[b, k, t]
        if len(t) == 0:
            continue
        move = (
            moves[j[:-1], j[1:]]
            if moves.ndim == 2
            else moves[b, t[1:] - 1, j[:-1], j[1:]]
        )
        used = [start[j[:1]], emissions[b, t, j], move, end[j[-1:]]]
        total[b, k] = _exact(np.concatenate(used)).sum()
    return total if y.dim() == 3 else total[:, 0]


def _zeros(chain: "Chain") -> "Chain":
    """Zeros in float64 whose gradients are those of the potentials."""
    return chain._like(*(_zero(x.double()) for x in chain._record.potentials))


def _zero(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x - x.detach(), 0.0)


def _with_gradient(exact: Any, value: Tensor) -> Tensor:
    """The numbers as floats, NaN where there is none, with the gradient of a value."""
    floats = np.where(exact < FORBIDDEN // 2, -np.inf, _floats(exact))
    floats = np.where(exact > -FORBIDDEN // 2, np.inf, floats)
    return torch.from_numpy(floats).to(value.device) + _zero(value)


def _exact(x: Any) -> Any:
    """Floats as integers."""
    mantissa, exponent = np.frexp(np.where(x == -np.inf, 0, x))
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    whole = whole << (exponent + (UNIT - 53)).astype(object)
    return np.where(x == -np.inf, FORBIDDEN, whole)


def _floats(whole: Any) -> Any:
    """The nearest floats, NaN beyond them."""
    floats = np.empty(whole.shape)
    for place, number in np.ndenumerate(whole):
        try:
            floats[place] = number / (1 << UNIT)
        except OverflowError:
            floats[place] = np.nan
    return floats


def _arrays(chain: "Chain") -> list[Any]:
    """The potentials in float64, 0 where nothing is read."""
    arrays = [_array(x).astype(np.float64) for x in chain._record.potentials]
    real = _array(chain.mask)
    arrays[0][~real] = 0
    if arrays[1].ndim == 4:
        into = real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)
        arrays[1][~into] = 0
    return arrays


def _array(x: Tensor) -> Any:
    return x.detach().cpu().numpy()


def _like(x: Any, chain: "Chain") -> Tensor:
    return torch.from_numpy(x).to(chain.emissions.device)
