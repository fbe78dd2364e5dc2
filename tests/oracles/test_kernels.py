"""All ways give the same: lanes, plain loops, log space, lazy enumeration."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp._kernels import (
    chain_lanes_cpu,
    chain_log_cpu,
    chain_max_cpu,
    chain_max_lanes_cpu,
    chain_scaled_cpu,
)
from smoothsp.oracles._chain_arrays import kernel_arrays
from tests.brute_force import ChainCase
from tests.strategies import forbid_some, generators, structure, values

# Rows enough for several groups of lanes, the last one partly idle.
BATCHES = st.sampled_from([1, 7, 8, 9, 21, 33])


@st.composite
def batches(draw: st.DrawFn) -> ChainCase:
    """Many rows, masks with holes, NaN under the mask, sometimes -inf and underflow."""
    generator = draw(generators())
    B, T, S = (
        draw(BATCHES),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([1, 3, 5, 9])),
    )
    spread = draw(st.sampled_from(["ties", "normal", "wide", "huge"]))
    shapes = ((B, T, S), (S, S), (S,), (S,))
    drawn = [values(generator, spread, *shape) for shape in shapes]
    mask = torch.rand(B, T, generator=generator) < draw(st.sampled_from([0.3, 0.8, 1]))
    case = ChainCase(*drawn, mask=mask)
    case = forbid_some(case, generator) if draw(st.booleans()) else case
    emissions = case.emissions.masked_fill(~mask[..., None], torch.nan)
    return case.replace(emissions=emissions)


def answers(kernel: str, case: ChainCase, dtype: type) -> tuple[np.ndarray, list]:
    """Which rows the kernel could do, and its outputs, poisoned before."""
    built = structure(case.replace(**{
        name: value.to(torch.float32 if dtype is np.float32 else torch.float64)
        for name, value in case.potentials().items()
    }))  # fmt: skip
    chain = kernel_arrays(*built._chain())
    B, T, S = case.emissions.shape
    pending = np.ones(B, np.bool_)
    shapes = ((B, T, S), (B, 1, S, S), (B, S), (B, S))
    out = [np.full(B, np.nan), *(np.full(shape, np.nan, dtype) for shape in shapes)]
    floor = float(np.finfo(dtype).tiny / np.finfo(dtype).eps) * T * S * S
    if kernel == "lanes":
        order = np.argsort(-chain[5], kind="stable")
        zeros = np.zeros(64 // np.dtype(dtype).itemsize, dtype)
        groups = -(-B // len(zeros))
        options = (order, zeros, 1 / floor, pending)
        chain_lanes_cpu.forward_backward(0, groups, *chain, *options, *out)
    elif kernel == "scaled":
        zero = np.zeros(1, dtype)
        chain_scaled_cpu.forward_backward(0, B, *chain, zero, floor, pending, *out)
    else:
        chain_log_cpu.forward_backward(0, B, *chain, pending, *out)
    return ~pending, out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", ["lanes", "scaled"])
@settings(max_examples=25)
@given(batches())
def test_a_row_is_right_or_left_pending(kernel, dtype, case):
    done, found = answers(kernel, case, dtype)
    _, expected = answers("log", case, dtype)
    # the potentials themselves are rounded alike; sums of up to 1e4 are not
    tolerance = {np.float32: (1e-4, 1e-5), np.float64: (1e-10, 1e-12)}[dtype]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(
            torch.from_numpy(ours[done].astype(np.float64)),
            torch.from_numpy(theirs[done].astype(np.float64)),
            rtol=tolerance[1],
            atol=tolerance[0],
        )


@pytest.mark.parametrize("kernel", ["lanes", "scaled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ordinary_rows_are_never_left_pending(kernel, dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = ((40, 60, 9), (9, 9), (9,), (9,))
    case = ChainCase(*(3 * values(generator, "normal", *shape) for shape in shapes))
    assert answers(kernel, case, dtype)[0].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_rows_beside_a_long_one_stay_finite(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = ((20, 700, 7), (7, 7), (7,), (7,))
    drawn = [values(generator, "normal", *shape) for shape in shapes]
    lengths = torch.arange(20)
    lengths[-1] = 700
    case = ChainCase(*drawn, lengths=lengths)
    done, found = answers("lanes", case, dtype)
    assert done.all()
    for ours, theirs in zip(found, answers("log", case, dtype)[1], strict=True):
        rounding = 100 * np.finfo(dtype).eps
        np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_does_not_depend_on_the_rows_beside_it(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = ((23, 70, 5), (5, 5), (5,), (5,))
    drawn = [values(generator, "normal", *shape) for shape in shapes]
    mask = torch.rand(23, 70, generator=generator) < 0.7
    mask[3] = False
    together = answers("lanes", ChainCase(*drawn, mask=mask), dtype)[1]
    for b in range(23):
        row = ChainCase(drawn[0][b : b + 1], *drawn[1:], mask=mask[b : b + 1])
        for one, many in zip(answers("lanes", row, dtype)[1], together, strict=True):
            assert np.array_equal(one[0], many[b])


@settings(max_examples=40)
@given(batches(), st.integers(1, 12))
def test_lazy_enumeration_lists_what_merging_lists(case, K):
    built = structure(case)
    chain = kernel_arrays(*built._chain())
    B, T, _ = case.emissions.shape
    order = np.argsort(-chain[5], kind="stable")
    found = []
    for lanes in (True, False):
        labels, valid = np.full((B, K, T), 99), np.full((B, K), lanes)
        if lanes:
            arrays = (order, np.zeros(8), labels, valid)
            chain_max_lanes_cpu.viterbi_topk(0, -(-B // 8), *chain, *arrays)
        else:
            chain_max_cpu.viterbi_topk(0, B, *chain, labels, valid)
        found.append((labels, valid))
    (labels, valid), (other_labels, other_valid) = found
    assert np.array_equal(labels, other_labels)
    assert np.array_equal(valid, other_valid)
    assert np.array_equal(labels[:, 0] >= 0, built.mask.numpy())


@settings(max_examples=40)
@given(batches())
def test_viterbi_in_lanes_finds_what_plain_loops_find(case):
    chain = kernel_arrays(*structure(case)._chain())
    B, T, _ = case.emissions.shape
    order = np.argsort(-chain[5], kind="stable")
    labels, others = np.full((B, T), 99), np.full((B, T), 99)
    chain_max_lanes_cpu.viterbi(0, -(-B // 8), *chain, order, np.zeros(8), labels)
    chain_max_cpu.viterbi(0, B, *chain, others)
    assert np.array_equal(labels, others)
