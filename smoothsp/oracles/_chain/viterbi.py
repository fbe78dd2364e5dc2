"""Maximisers and samples of a chain on the CPU."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import (
    forward_backward_float64,
    fused,
    samples,
    viterbi,
)
from smoothsp._kernels.chain.cpu.viterbi_over_states import ROWS_PER_PASS
from smoothsp._kernels.threads.ranges import WORK_PER_THREAD, run_all, run_rows
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._chain.chunks import (
    STATES_OVER_LANES,
    Way,
    in_pieces,
    piece,
    rows_of_answers,
)
from smoothsp.oracles._inference.to_numpy import array


def _longest_first(lengths: Any) -> Any:
    return np.argsort(-lengths, kind="stable")


def _work(chain: ChainBuffers, k: int = 0) -> int:
    """Work of max-product and of k more outputs, as ``run_rows`` reckons.

    Measured: a step of the innermost loop takes a quarter of what it takes elsewhere, a
    label of one more output as long as 40.
    """
    B, T, _ = chain.sizes
    return chain.inner_steps // 4 + 40 * k * B * T


def best_of(
    chain: ChainBuffers, gold: Tensor | None = None, cost: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Highest scores ``[B]``, and maximisers ``[B, T]``, -1 where nothing is real.

    ``cost`` is added, in float64, for each label that differs from ``gold`` ``[B, T]``.
    """
    B, T, S = chain.sizes
    labels = chain.new(B, T, dtype=torch.int64)
    value = chain.new(B)
    if not chain.shared or gold is not None:
        found, scores = labels.numpy(), np.empty(B)
        order = _longest_first(chain.arrays[5])
        right = found if gold is None else array(gold)
        arrays = (chain.arrays, order, right, cost, found, scores)
        run_rows(viterbi.viterbi, B, _work(chain), *arrays, group_size=ROWS_PER_PASS)
        return torch.from_numpy(scores).to(chain.dtype), labels
    where, rows = chain.addresses, rows_of_answers(B, T, S)
    if rows >= B:
        fused.decode(where, labels.data_ptr(), value.data_ptr())
        return value, labels
    run_all(
        [
            partial(
                fused.decode,
                piece(where, b, rows),
                labels[b:].data_ptr(),
                value[b:].data_ptr(),
            )
            for b in range(0, B, rows)
        ]
    )
    return value, labels


def k_best_of(chain: ChainBuffers, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best outputs ``[B, k, T]``, which of them exist, and scores ``[B, k]``."""
    B, T, _ = chain.sizes
    labels = chain.new(B, k, T, dtype=torch.int64)
    valid = chain.new(B, k, dtype=torch.bool)
    work = _work(chain, k)
    if chain.shared and (work < 2 * WORK_PER_THREAD or torch.get_num_threads() == 1):
        values = chain.new(B, k)
        out = labels.data_ptr(), valid.data_ptr(), values.data_ptr()
        fused.decode_topk(chain.addresses, k, *out)
        return labels, valid, values
    order, scores = _longest_first(chain.arrays[5]), np.empty((B, k))
    arrays = (chain.arrays, order, labels.numpy(), valid.numpy(), scores)
    run_rows(viterbi.viterbi_topk, B, work, *arrays, group_size=ROWS_PER_PASS)
    return labels, valid, torch.from_numpy(scores).to(chain.dtype)


def samples_of(chain: ChainBuffers, uniforms: Tensor) -> Tensor:
    """Draws ``[B, n, T]`` made from ``uniforms`` of that shape."""
    (B, n, T), S = uniforms.shape, chain.sizes[2]
    labels, wide = chain.new(B, n, T, dtype=torch.int64), chain.in_float64
    uniforms, pending = uniforms.contiguous(), np.ones(B, np.bool_)
    places = uniforms.data_ptr(), labels.data_ptr(), pending.ctypes.data

    def ask(where: tuple[Any, ...], way: Way, b: int) -> int:
        numbers, found, left = places
        here = numbers + 8 * b * n * T, found + 8 * b * n * T, left + b
        far: int = samples.sample(where, *way, n, *here)
        return far

    # the forward pass of laws takes no longer than both passes over many states; a
    # label of a sample takes a tenth of what all sums at its position take
    few = chain.shared and S <= STATES_OVER_LANES
    if not few or in_pieces(wide.addresses, ask, 1 + n // 10):
        rows = pending.nonzero()[0]
        arrays = (rows, wide.arrays, uniforms.numpy(), labels.numpy())
        work = 2 * (chain.inner_steps + uniforms.numel() * S)
        run_rows(forward_backward_float64.sample, len(rows), work, *arrays)
    return labels
