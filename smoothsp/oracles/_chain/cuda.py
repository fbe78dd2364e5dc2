"""Inference in chains on CUDA devices, by Triton kernels.

Arguments and results are those of ``kernel_checks.run_cpu_function``, without the name
of the op. The arguments of a chain are those of ``_chain.buffers``. No function copies
to the host or synchronises, unless its docstring mentions it. Triton is imported by the
first call.

Functions that call kernels are wrapped in ``with_fallback``: after a failed check the
process computes on CPU copies instead. Scores, counts and the vector-Jacobian product
are those of ``vectorised``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import validation
from smoothsp.oracles._chain import vectorised
from smoothsp.oracles._chain.kernel_checks import with_fallback
from smoothsp.oracles._inference import score_values
from smoothsp.oracles._inference.checks import label_range_message
from smoothsp.oracles._inference.kernel_checks import is_capturing


def transitions_4d(transitions: Tensor) -> Tensor:
    """Transitions ``[B or 1, T - 1 or 1, S, S]``."""
    return transitions[None, None] if transitions.dim() == 2 else transitions


def _launch(kernel: Callable[..., None], chain: tuple[Tensor, ...], *args: Any) -> None:
    """Call a kernel with a contiguous chain, further inputs and output tensors."""
    emissions, transitions, *others = chain
    inputs = (emissions, transitions_4d(transitions), *others)
    shared = transitions.dim() == 2
    kernel((*(x.detach().contiguous() for x in inputs), shared), *args)


def value_flags(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> int:
    """Kinds of numbers at real positions, as bits of ``chain.cpu.validation``.

    Synchronises to read the flags, and again if a part is forbidden. Returns 0 while a
    CUDA graph is captured.
    """
    if is_capturing(emissions):
        return 0
    T = emissions.shape[1]
    ordered = torch.arange(T, device=emissions.device) < lengths[:, None]
    real = torch.zeros_like(ordered).scatter(1, steps, ordered)
    read_emissions = emissions.masked_fill(~real[..., None], 0)
    masked_transitions = transitions
    if transitions.dim() == 4:
        into = real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)
        masked_transitions = transitions.masked_fill(~into[..., None, None], 0)
    codes = score_values.value_flags_of(
        (read_emissions, masked_transitions, start, end)
    )
    pairs = zip(validation.LOW_BITS, codes, strict=True)
    flags = sum(int(bit) for bit, code in pairs if code & score_values.LOW)
    if any(code & score_values.INVALID for code in codes):
        return flags | validation.HAS_INVALID
    if any(code & score_values.NEG_INF_OR_LOW for code in codes):
        nodes, masked_transitions, heads, tails = map(
            score_values.mask_low_scores,
            (read_emissions, masked_transitions, start, end),
        )
        value, _ = decode(nodes, masked_transitions, heads, tails, steps, lengths)
        if bool((value == -torch.inf).any()):
            flags |= validation.INFEASIBLE
    return flags


def log_partition(*inputs: Any) -> tuple[Tensor, ...]:
    """Log-partition ``[B]`` and marginals: nodes, edges, heads, tails.

    The log-partition is float64 if the last input is True, else it has the dtype of the
    potentials. One launch, or a parallel scan over time in a few launches where
    ``chain.cuda.scan.prefer_scan``.
    """
    pays = _use_scan(inputs[0])
    return (_log_partition_by_scan if pays else _log_partition)(*inputs)


def _use_scan(emissions: Tensor) -> bool:
    try:
        from smoothsp._kernels.chain.cuda import scan
    except ImportError:  # without Triton: the check of the other kernel warns
        return False
    return bool(
        scan.supports_matmul(emissions.dtype) and scan.prefer_scan(*emissions.shape)
    )


@with_fallback("log_partition")
def _log_partition(*inputs: Any) -> tuple[Tensor, ...]:
    from smoothsp._kernels.chain.cuda import forward_backward

    return _log_partition_and_marginals(forward_backward.forward_backward, *inputs)


@with_fallback("log_partition", kernels=4)
def _log_partition_by_scan(*inputs: Any) -> tuple[Tensor, ...]:
    from smoothsp._kernels.chain.cuda import scan

    return _log_partition_and_marginals(scan.forward_backward, *inputs)


def _log_partition_and_marginals(
    kernel: Callable[..., None], *inputs: Any
) -> tuple[Tensor, ...]:
    """Allocate results and call one of the two forward-backward kernels."""
    *chain, returns_float64 = inputs
    emissions, transitions, *_ = chain
    B, T, S = emissions.shape
    new = emissions.new_empty
    value = new((B,), dtype=torch.float64)
    shared = transitions.dim() == 2
    nodes = new((B, T, S))
    edges = new((B, S, S) if shared else transitions.shape)
    heads, tails = new((B, S)), new((B, S))
    steps = edges[:, None] if shared else edges
    _launch(kernel, tuple(chain), value, (nodes, steps, heads, tails))
    return (
        value if returns_float64 else value.to(emissions.dtype),
        nodes,
        edges,
        heads,
        tails,
    )


@with_fallback("covariance")
def covariance(*inputs: Tensor) -> tuple[Tensor, ...]:
    """Covariance of each part with the total weight of an output's parts.

    The weights of nodes, edges, heads and tails are the last four inputs.
    """
    from smoothsp._kernels.chain.cuda import covariance as kernels

    weights = [x.detach().contiguous() for x in inputs[6:]]
    results = tuple(torch.empty_like(v) for v in weights)
    shared = inputs[1].dim() == 2

    def per_step(parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        nodes, edges, *ends = parts
        return nodes, edges[:, None] if shared else edges, *ends

    _launch(kernels.covariance, inputs[:6], per_step(weights), per_step(results))
    return results


@with_fallback("entropy")
def entropy(*chain: Tensor) -> Tensor:
    """Entropy ``[B]`` of each row's distribution, in nats."""
    from smoothsp._kernels.chain.cuda import samples

    value = chain[0].new_empty((len(chain[0]),))
    _launch(samples.entropy, chain, value)
    return value


def score(*inputs: Tensor) -> Tensor:
    """Scores ``[B, K]``, in float64, of labels ``[B, K, T]``, the last input.

    Synchronises to read one flag, whether a label is out of range, and raises an error
    if it is. Not checked while a CUDA graph is captured: such scores are undefined.
    """
    *chain, labels = inputs
    value, wrong = vectorised.score(tuple(chain), labels)
    if not is_capturing(value) and bool(wrong.any()):
        row, _, n = wrong.nonzero()[0].tolist()
        step = int(chain[4][row, n])
        result = labels[row, :, step].tolist()
        label = result[0] if len(result) == 1 else result
        S = chain[0].shape[2]
        raise ValueError(label_range_message(S, label, row, step))
    return value


@with_fallback("decode")
def decode(*chain: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima ``[B]`` and maximisers ``[B, T]``, -1 at masked positions."""
    from smoothsp._kernels.chain.cuda import viterbi

    labels = torch.empty_like(chain[4], memory_format=torch.contiguous_format)
    _launch(viterbi.viterbi, chain, labels)
    value, _ = vectorised.score(chain, labels[:, None])
    return value.squeeze(1).to(chain[0].dtype), labels


@with_fallback("decode_topk")
def decode_topk(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The k best outputs ``[B, k, T]`` and their validity ``[B, k]``.

    k is the last input.
    """
    from smoothsp._kernels.chain.cuda import viterbi

    *chain, k = inputs
    B, T = chain[4].shape
    labels = chain[4].new_empty((B, k, T))
    valid = chain[4].new_empty((B, k), dtype=torch.bool)
    _launch(viterbi.viterbi_topk, tuple(chain), labels, valid)
    return labels, valid


@with_fallback("sample")
def sample(*inputs: Tensor) -> Tensor:
    """Samples ``[B, n, T]`` from uniforms of that shape, the last input."""
    from smoothsp._kernels.chain.cuda import samples

    uniforms = inputs[6].contiguous()
    labels = torch.empty_like(uniforms, dtype=torch.int64)
    _launch(samples.sample, inputs[:6], uniforms, labels)
    return labels


count_parts, vjp = vectorised.count_parts, vectorised.vjp
