"""The answers to questions about a chain, computed where its tensors are.

Each function is the CUDA kernel of the op ``smoothsp::chain_<its name>``: arguments and
answers are those of the CPU kernel. The arguments of a chain are those of
``_chain.buffers``. Nothing moves to the host, and nothing waits for the device, except
where a docstring says so. Triton is imported at the first question.

Functions that call kernels are ``tried``: ``by_steps`` has one of each name, in plain
PyTorch, which replaces all of them in a process where one gave a wrong answer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import validation
from smoothsp.oracles._chain import by_steps
from smoothsp.oracles._chain.trials import tried
from smoothsp.oracles._questions import numbers
from smoothsp.oracles._questions.checks import label_out_of_range

Chain = tuple[Tensor, ...]


def as_edges(transitions: Tensor) -> Tensor:
    """Transitions with an axis for rows and one for steps."""
    return transitions[None, None] if transitions.dim() == 2 else transitions


def _run(kernel: Callable[..., None], chain: tuple[Tensor, ...], *rest: Any) -> None:
    """Call a kernel on a chain, on further inputs and on outputs."""
    emissions, transitions, *others = chain
    inputs = (emissions, as_edges(transitions), *others)
    shared = transitions.dim() == 2
    kernel((*(x.detach().contiguous() for x in inputs), shared), *rest)


def _capturing(near: Tensor) -> bool:
    """Whether a CUDA graph is being captured, when nothing may be read."""
    return near.is_cuda and torch.cuda.is_current_stream_capturing()


def look(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> int:
    """Kinds of numbers that are read, as bits of ``chain.cpu.validation``.

    Waits for the device to read flags, once more where something forbids; while a CUDA
    graph is captured nothing is looked at.
    """
    if _capturing(emissions):
        return 0
    T = emissions.shape[1]
    ordered = torch.arange(T, device=emissions.device) < lengths[:, None]
    real = torch.zeros_like(ordered).scatter(1, steps, ordered)
    read = emissions.masked_fill(~real[..., None], 0)
    moves = transitions
    if transitions.dim() == 4:
        into = real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)
        moves = transitions.masked_fill(~into[..., None, None], 0)
    codes = numbers.look_at_all((read, moves, start, end))
    pairs = zip(validation.LOW_BITS, codes, strict=True)
    found = sum(int(bit) for bit, code in pairs if code & numbers.LOW)
    if any(code & numbers.WRONG for code in codes):
        return found | validation.REFUSED
    if any(code & numbers.FORBIDDEN for code in codes):
        nodes, moves, heads, tails = map(numbers.masked, (read, moves, start, end))
        value, _ = decode(nodes, moves, heads, tails, steps, lengths)
        if bool((value == -torch.inf).any()):
            found |= validation.INFEASIBLE
    return found


def log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    wide: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-partition ``[B]`` and marginals: nodes, edges, heads, tails.

    The log-partition is in float64 if ``wide``, else of the dtype of the potentials.
    One launch, or a few with time in parallel where ``chain.cuda.scan.pays``.
    """
    chain = (emissions, transitions, start, end, steps, lengths)
    parallel = _scan_pays(emissions)
    kernels = _log_partition_in_parallel if parallel else _log_partition_by_step
    value, nodes, edges, heads, tails = kernels(chain)
    return value if wide else value.to(emissions.dtype), nodes, edges, heads, tails


def _scan_pays(emissions: Tensor) -> bool:
    try:
        from smoothsp._kernels.chain.cuda import scan
    except ImportError:  # without Triton: the trial of the other kernel says so
        return False
    return bool(scan.multiplies(emissions.dtype) and scan.pays(*emissions.shape))


@tried(by_steps.log_partition)
def _log_partition_by_step(chain: Chain) -> tuple[Tensor, ...]:
    from smoothsp._kernels.chain.cuda import forward_backward

    return _sums(forward_backward.forward_backward, chain)


@tried(by_steps.log_partition, kernels=4)
def _log_partition_in_parallel(chain: Chain) -> tuple[Tensor, ...]:
    from smoothsp._kernels.chain.cuda import scan

    return _sums(scan.forward_backward, chain)


def _sums(kernel: Callable[..., None], chain: Chain) -> tuple[Tensor, ...]:
    """Log-partition in float64, and marginals, by one of two kernels."""
    emissions, transitions, *_ = chain
    B, T, S = emissions.shape
    new = emissions.new_empty
    value = new((B,), dtype=torch.float64)
    nodes, edges = new((B, T, S)), new((B, *as_edges(transitions).shape[1:]))
    heads, tails = new((B, S)), new((B, S))
    _run(kernel, chain, value, (nodes, edges, heads, tails))
    return value, nodes, edges, heads, tails


@tried(by_steps.vjp)
def vjp(weights: Tensor, parts: tuple[Tensor, ...], shared: bool) -> tuple[Tensor, ...]:
    """Weights ``[B]`` times the parts of their rows, added up to potentials' shapes.

    The backward pass of ``log_partition`` in one launch, without a derivative of its
    own.
    """
    from smoothsp._kernels.chain.cuda import vjp as cuda_vjp

    nodes, edges, heads, tails = (x.contiguous() for x in parts)
    S = heads.shape[1]
    new = nodes.new_empty
    moves = new((S, S) if shared else edges.shape)
    out = (torch.empty_like(nodes), moves, new(S), new(S))
    weights = weights.to(nodes.dtype).contiguous()
    cuda_vjp.vjp(weights, (nodes, edges, heads, tails), shared, out)
    return out


def covariance(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    v_nodes: Tensor,
    v_edges: Tensor,
    v_heads: Tensor,
    v_tails: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Covariance of every part with the sum of weights v over an output's parts."""
    chain = (emissions, transitions, start, end, steps, lengths)
    nodes, edges, heads, tails = _covariance(chain, v_nodes, v_edges, v_heads, v_tails)
    return nodes, edges, heads, tails


@tried(by_steps.covariance)
def _covariance(chain: Chain, *weights: Tensor) -> tuple[Tensor, ...]:
    from smoothsp._kernels.chain.cuda import covariance as kernels

    given = [x.detach().contiguous() for x in weights]
    found = tuple(torch.empty_like(v) for v in given)
    _run(kernels.covariance, chain, given, found)
    return found


def entropy(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    """Entropy ``[B]`` of each row's law, in nats."""
    return _entropy((emissions, transitions, start, end, steps, lengths))


@tried(by_steps.entropy)
def _entropy(chain: Chain) -> Tensor:
    from smoothsp._kernels.chain.cuda import samples

    value = chain[0].new_empty((len(chain[0]),))
    _run(samples.entropy, chain, value)
    return value


def score(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    labels: Tensor,
    trusted: bool = False,
) -> Tensor:
    """Scores ``[B, K]``, in float64, of ``labels`` ``[B, K, T]``.

    Waits for the device to read one flag: is a label out of range? It is not read when
    labels are trusted, such as decoded ones, nor while a CUDA graph is captured; the
    score of such labels then means nothing.
    """
    chain = (emissions, transitions, start, end, steps, lengths)
    value, fault = _score(chain, labels)
    if not trusted:
        _refuse(fault, labels, emissions.shape[2])
    return value


@tried(by_steps.score)
def _score(chain: Chain, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores ``[B, K]``, and ``[B]`` the first step with a bad label, or -1."""
    from smoothsp._kernels.chain.cuda import scores

    B, K, _ = labels.shape
    value = chain[0].new_empty((B, K), dtype=torch.float64)
    fault = chain[5].new_empty((B,))
    _run(scores.score, chain, labels.contiguous(), value, fault)
    return value, fault


def _refuse(fault: Tensor, labels: Tensor, S: int) -> None:
    """Raise for a label out of range, where ``_score`` found one."""
    if len(fault) and not _capturing(fault) and bool((fault >= 0).any()):
        row = int(fault.argmax())
        step = int(fault[row])
        found = labels[row, :, step].tolist()
        label = found[0] if len(found) == 1 else found
        raise ValueError(label_out_of_range(S, label, row, step))


@tried(by_steps.count)
def count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``[B, K]`` added up over the parts that ``labels`` ``[B, K, T]`` use.

    What rows share, for each of the ``groups`` of as many rows.
    """
    from smoothsp._kernels.chain.cuda import scores

    B, _, T = labels.shape
    new = weights.new_zeros
    edges = (groups, 1, S, S) if shared else (B, max(T - 1, 0), S, S)
    emissions = new((B, T, S))
    shapes = (edges, (groups, S), (groups, S))
    moves, start, end = (new(shape, dtype=torch.float64) for shape in shapes)
    given = [x.detach().contiguous() for x in (weights, labels, steps, lengths)]
    kernel: Callable[..., None] = scores.count
    for g in range(groups):
        rows = slice(B * g // groups, B * (g + 1) // groups)
        into = moves[g : g + 1] if shared else moves[rows]
        sums = (emissions[rows], into, start[g], end[g])
        kernel(*(x[rows] for x in given), shared, *sums)
    transitions, start, end = (x.to(weights.dtype) for x in (moves, start, end))
    return emissions, transitions[:, 0] if shared else transitions, start, end


def decode(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """Scores ``[B]`` of maximisers ``[B, T]``, -1 where there is no real position."""
    chain = (emissions, transitions, start, end, steps, lengths)
    labels = _viterbi(chain)
    value = score(*chain, labels[:, None], trusted=True)
    return value.squeeze(1).to(emissions.dtype), labels


@tried(by_steps.viterbi)
def _viterbi(chain: Chain) -> Tensor:
    from smoothsp._kernels.chain.cuda import viterbi

    labels = torch.empty_like(chain[4], memory_format=torch.contiguous_format)
    _run(viterbi.viterbi, chain, labels)
    return labels


def decode_topk(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    k: int,
) -> tuple[Tensor, Tensor]:
    """The k best outputs ``[B, k, T]``, and which of them exist ``[B, k]``."""
    return _viterbi_topk((emissions, transitions, start, end, steps, lengths), k)


@tried(by_steps.viterbi_topk)
def _viterbi_topk(chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    from smoothsp._kernels.chain.cuda import viterbi

    B, T = chain[4].shape
    labels = chain[4].new_empty((B, k, T))
    valid = chain[4].new_empty((B, k), dtype=torch.bool)
    _run(viterbi.viterbi_topk, chain, labels, valid)
    return labels, valid


def sample(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """Draws ``[B, n, T]`` made from ``uniforms`` of that shape."""
    return _sample((emissions, transitions, start, end, steps, lengths), uniforms)


@tried(by_steps.sample)
def _sample(chain: Chain, uniforms: Tensor) -> Tensor:
    from smoothsp._kernels.chain.cuda import samples

    uniforms = uniforms.contiguous()
    labels = torch.empty_like(uniforms, dtype=torch.int64)
    _run(samples.sample, chain, uniforms, labels)
    return labels
