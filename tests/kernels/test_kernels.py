"""All ways to sum give the same: lanes, states, laws, plain PyTorch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp._kernels.chain.cpu import forward_backward_float64
from smoothsp._kernels.chain.cpu.forward_backward import forward_backward
from smoothsp._kernels.vectors.lane_products import prefer_lanes
from tests.instances.strategies import forbid_some, generators, structure, values
from tests.sweeps import thinned
from tests.truth import chain_in_log_space
from tests.truth.chain_cases import ChainCase

# Rows enough for several groups of lanes, the last one partly idle.
BATCHES = st.sampled_from([1, 7, 8, 9, 21, 33])


@st.composite
def batches(draw: st.DrawFn) -> ChainCase:
    """Many rows, masks with holes, NaN under the mask, sometimes -inf and underflow."""
    generator = draw(generators())
    B, T, S = (
        draw(BATCHES),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([1, 3, 5, 8, 9, 16, 17])),
    )
    spread = draw(st.sampled_from(["ties", "normal", "wide", "huge"]))
    shapes = ((B, T, S), (S, S), (S,), (S,))
    drawn = [values(generator, spread, *shape) for shape in shapes]
    mask = torch.rand(B, T, generator=generator) < draw(st.sampled_from([0.3, 0.8, 1]))
    case = ChainCase(*drawn, mask=mask)
    case = forbid_some(case, generator) if draw(st.booleans()) else case
    emissions = case.emissions.masked_fill(~mask[..., None], torch.nan)
    return case.replace(emissions=emissions)


def arrays(case: ChainCase, dtype: type) -> tuple:
    built = structure(case.replace(**{
        name: value.to(torch.float32 if dtype is np.float32 else torch.float64)
        for name, value in case.potentials().items()
    }))  # fmt: skip
    return built._buffers.arrays


def answers(kernel: str, case: ChainCase, dtype: type) -> tuple[np.ndarray, list]:
    return run(kernel, arrays(case, dtype), dtype)


def run(kernel: str, chain: tuple, dtype: type) -> tuple[np.ndarray, list]:
    """Which rows the kernel could do, and its outputs, poisoned before."""
    B, T, S = chain[0].shape
    pending = np.ones(B, np.bool_)
    shapes = ((B, T, S), (B, *chain[1].shape[1:]), (B, S), (B, S))
    kinds = chain[0].dtype
    out = [
        np.full((B, 2), np.nan),
        *(np.full(shape, np.nan, kinds) for shape in shapes),
    ]
    floor = float(np.finfo(dtype).tiny / np.finfo(dtype).eps) * T * S * S
    order = np.argsort(-chain[5], kind="stable")
    zeros = np.zeros(64 // np.dtype(dtype).itemsize, dtype)
    options = (order, zeros, 1 / floor, pending)
    if kernel in ("lanes", "states"):
        way, rows = ((1, None), len(zeros)) if kernel == "lanes" else ((None, 1), 4)
        forward_backward(
            0, -(-B // rows), chain, *options, out[0], tuple(out[1:]), *way
        )
    else:
        chain = (*(x.astype(np.float64) for x in chain[:4]), *chain[4:])
        out = [out[0], *(x.astype(np.float64) for x in out[1:])]
        forward_backward_float64.forward_backward(
            0, B, np.arange(B), chain, out[0], tuple(out[1:])
        )
        pending[:] = False
    # the log-partition is a sum of two numbers
    return ~pending, [out[0].sum(1), *out[1:]]


def own_edges(case: ChainCase) -> ChainCase:
    """The same scores, as transitions for each step of each row."""
    B, T, S = case.emissions.shape
    return case.replace(transitions=case.transitions.expand(B, T - 1, S, S))


def random_batch(B: int, T: int, S: int, scale: float = 1.0, **real) -> ChainCase:
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, T, S), (S, S), (S,), (S,))
    drawn = [scale * values(generator, "normal", *shape) for shape in shapes]
    return ChainCase(*drawn, **real)


dtypes = pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
shared_kernels = pytest.mark.parametrize("kernel", ["lanes", "states"])


def assert_right(found, expected, done, rtol, atol):
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(
            torch.from_numpy(ours[done].astype(np.float64)),
            torch.from_numpy(theirs[done].astype(np.float64)),
            rtol=rtol,
            atol=atol,
        )


@settings(max_examples=25)
@given(batches(), st.booleans())
def test_laws_are_those_of_plain_pytorch(case, per_edge):
    case = own_edges(case) if per_edge else case
    built = structure(case.map(lambda v: v.double()))
    _, found = run("laws", built._buffers.arrays, np.float64)
    positions = built._buffers.positions
    chain = (*built._buffers.potentials, positions.steps, positions.lengths)
    for ours, theirs in zip(
        found, chain_in_log_space.log_partition(chain), strict=True
    ):
        assert_close(torch.from_numpy(ours), theirs, rtol=1e-12, atol=1e-10)


@dtypes
@shared_kernels
@settings(max_examples=25)
@given(batches())
def test_a_row_is_right_or_left_pending(kernel, dtype, case):
    done, found = answers(kernel, case, dtype)
    _, expected = answers("laws", case, dtype)
    # the potentials themselves are rounded alike; sums of up to 1e4 are not
    atol, rtol = {np.float32: (1e-4, 1e-5), np.float64: (1e-10, 1e-12)}[dtype]
    assert_right(found, expected, done, rtol, atol)


@dtypes
@pytest.mark.parametrize("kernel", ["lanes", "states"])
def test_ordinary_rows_are_never_left_pending(kernel, dtype):
    case = random_batch(40, 60, 9, scale=3)
    assert answers(kernel, case, dtype)[0].all()


# each is compiled for these dtypes here alone
@pytest.mark.parametrize("kernel", thinned(["lanes", "states"], 2))
def test_float32_potentials_in_float64_are_as_good_as_float64(kernel):
    mask = torch.rand(11, 20, generator=torch.Generator().manual_seed(0)) < 0.7
    case = random_batch(11, 20, 9, scale=20, mask=mask).map(lambda v: v.float())
    done, found = run(kernel, arrays(case, np.float32), np.float64)
    _, expected = answers("laws", case.map(lambda v: v.double()), np.float64)
    assert done.all()
    assert found[1].dtype == np.float32
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert_right(found[1:], expected[1:], done, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("kernel", thinned(["lanes", "states"], 2))
def test_at_the_edge_of_a_range_a_row_is_right_or_left_pending(kernel):
    shares = []
    for scale in (9, 12, 14, 16, 18, 24):
        case = random_batch(64, 40, 9, scale=scale).map(lambda v: v.float().double())
        done, found = answers(kernel, case, np.float32)
        shares.append(done.mean())
        # value, and chances: no more than what float32 rounds
        _, expected = answers("laws", case, np.float64)
        assert_right(found, expected, done, rtol=5e-6, atol=2e-6)
    assert shares[0] > 0.9
    assert shares[-1] < 0.1
    assert 0 < np.mean(shares[1:-1]) < 1


def half_lost(place: str, dtype: type) -> ChainCase:
    """Two outputs on both sides of what a dtype holds, one e times likelier.

    Beside them stands one that the scores of ``place`` prefer by far, but impossible.
    """
    tiny, least = {np.float32: (87.0, 103.28), np.float64: (708.0, 744.44)}[dtype]
    scores = torch.tensor([0.0, 0.5 - tiny, -0.5 - tiny], dtype=torch.float64)
    emissions, start, end = torch.zeros(1, 3, 3), torch.zeros(3), torch.zeros(3)
    same = torch.full((3, 3), -torch.inf).fill_diagonal_(0)
    case = ChainCase(emissions, same, start, end).map(lambda v: v.double())
    impossible = torch.tensor([-torch.inf, 0, 0]).double()
    if place == "start":
        return case.replace(
            emissions=case.emissions[:, :1], start=scores, end=impossible
        )
    if place == "end":
        return case.replace(end=scores, start=impossible)
    if place == "emissions":
        case.emissions[0, 1] = scores
        return case.replace(emissions=case.emissions[:, :2], start=impossible)
    if place == "transitions":
        case.transitions[:] = -torch.inf
        case.transitions[0, 0] = 0
        case.transitions[1] = torch.tensor([-torch.inf, *scores[1:]])
        only = torch.tensor([-torch.inf, 0, -torch.inf]).double()
        return case.replace(emissions=case.emissions[:, :2], start=only)
    # a product of numbers that are held, but which is as large as its rounding
    moves = torch.full((5, 5), -torch.inf).double()
    moves[0, 1] = 0
    moves[1, 2:4] = 0.6 * tiny - least + torch.tensor([0.8, 1.3]).log()
    emissions = torch.zeros(1, 3, 5).double()
    emissions[0, 1, 1] = -0.6 * tiny
    emissions[0, 2, [0, 1, 4]] = -torch.inf
    start = torch.tensor([0.0, *[-torch.inf] * 4]).double()
    return ChainCase(emissions, moves, start, torch.zeros(5).double())


@dtypes
@pytest.mark.parametrize("kernel", ["lanes", "states"])
@pytest.mark.parametrize(
    "place", ["start", "end", "emissions", "transitions", "products"]
)
def test_a_row_of_which_half_is_lost_is_left_pending(place, kernel, dtype):
    case = half_lost(place, dtype)
    done, found = answers(kernel, case, dtype)
    _, expected = answers("laws", case, dtype)
    rounding = 1000 * np.finfo(dtype).eps
    assert_right(found, expected, done, rounding, rounding)
    # it is not that the rest would be too much
    mild = case.map(lambda v: v / 8)
    assert answers(kernel, mild, dtype)[0].all()


# Whole tiles of four vectors and what is left over, in both dtypes.
@dtypes
@pytest.mark.parametrize("S", [32, 33, 40, 64, 66, 100])
@pytest.mark.parametrize("B", [1, 2, 3, 6])
def test_many_states_in_few_rows(B, S, dtype):
    mask = torch.rand(B, 7, generator=torch.Generator().manual_seed(B)) < 0.7
    mask[0] = True
    case = random_batch(B, 7, S, mask=mask)
    rounding = 50 * np.finfo(dtype).eps
    _, expected = answers("laws", case, dtype)
    for kernel in ("lanes", "states"):
        done, found = answers(kernel, case, dtype)
        assert done.all()
        assert_right(found, expected, done, rounding, rounding)


@dtypes
@shared_kernels
def test_short_rows_beside_a_long_one_stay_finite(kernel, dtype):
    lengths = torch.arange(20)
    lengths[-1] = 700
    case = random_batch(20, 700, 7, lengths=lengths)
    done, found = answers(kernel, case, dtype)
    assert done.all()
    rounding = 100 * np.finfo(dtype).eps
    assert_right(found, answers("laws", case, dtype)[1], done, rounding, rounding)


@shared_kernels
def test_a_short_row_beside_a_long_one_may_end_where_nothing_follows(kernel):
    case = random_batch(2, 9, 2, lengths=torch.tensor([9, 1]))
    case.transitions[1] = case.transitions[0, 1] = -torch.inf
    case.emissions[1, 0, 0] = -torch.inf
    done, found = answers(kernel, case, np.float64)
    assert done.all()
    assert_right(found, answers("laws", case, np.float64)[1], done, 1e-13, 1e-13)


@shared_kernels
@pytest.mark.parametrize("S", [5, 66])
def test_sums_over_many_steps_are_as_good_as_over_few(kernel, S):
    case = random_batch(2, 1500 if S == 5 else 300, S).map(lambda v: v.float().double())
    done, found = answers(kernel, case, np.float32)
    assert done.all()
    _, expected = answers("laws", case, np.float64)
    assert_right(found, expected, done, rtol=2e-6, atol=2e-6)


@dtypes
@shared_kernels
@pytest.mark.parametrize("S", [5, 33, 66])
def test_a_row_does_not_depend_on_the_rows_beside_it(S, kernel, dtype):
    mask = torch.rand(11, 30, generator=torch.Generator().manual_seed(0)) < 0.7
    mask[3] = False
    case = random_batch(11, 30, S, mask=mask)
    together = answers(kernel, case, dtype)[1]
    for b in range(11):
        row = case.replace(emissions=case.emissions[b : b + 1], mask=mask[b : b + 1])
        for one, many in zip(answers(kernel, row, dtype)[1], together, strict=True):
            assert np.array_equal(one[0], many[b])


@shared_kernels
def test_an_empty_row_beside_impossible_scores_is_empty(kernel):
    case = random_batch(3, 3, 5, lengths=torch.tensor([0, 3, 0]))
    chain = arrays(case, np.float64)
    chain[2][:] = -np.inf
    done, found = run(kernel, chain, np.float64)
    assert done.tolist() == [True, False, True]
    assert all((x[done] == 0).all() for x in found)


def test_kernels_are_chosen_by_how_full_the_lanes_are():
    assert prefer_lanes(32, 9, 16)
    assert prefer_lanes(128, 9, 8)
    assert not prefer_lanes(1, 9, 16)
    assert not prefer_lanes(32, 50, 16)
    assert prefer_lanes(16, 32, 16)
    assert not prefer_lanes(17, 32, 16)
