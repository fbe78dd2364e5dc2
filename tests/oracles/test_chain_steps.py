"""Entropies, draws, edge marginals and second derivatives, against plain PyTorch."""

import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain
from smoothsp.oracles._inference import rules
from tests.truth import chain_in_log_space

# PyTorch's own, once, when forward derivatives are first taken
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")

F32, F64 = torch.float32, torch.float64
# few rows and many, in lanes and over states, empty ones
SHAPES = [
    (0, 3, 2),
    (3, 0, 4),
    (5, 1, 1),
    (17, 7, 9),
    (40, 6, 3),
    (3, 9, 17),
    (6, 5, 40),
]


def drawn(shape, dtype=F64, scale=1.0):
    """Potentials with forbidden moves, and lengths that include 0 and 1."""
    B, T, S = shape
    generator = torch.Generator().manual_seed(B + T + S)
    sizes = (shape, (S, S), (S,), (S,))
    potentials = [
        torch.randn(size, generator=generator, dtype=dtype) * scale for size in sizes
    ]
    if S > 2:
        potentials[1][0, 1] = potentials[1][2, 2] = -torch.inf
    lengths = torch.randint(T + 1, (B,), generator=generator)
    lengths[:2] = torch.tensor([0, 1])[:B].clamp(max=T)
    return potentials, lengths


def both(shape, dtype=F64, scale=1.0):
    """A chain, and the same in float64 with transitions of each step."""
    potentials, lengths = drawn(shape, dtype, scale)
    B, T, S = shape
    emissions, moves, start, end = (x.double() for x in potentials)
    edges = moves.expand(B, max(T - 1, 0), S, S)
    apart = Chain(emissions, edges, start, end, lengths=lengths)
    return Chain(*potentials, lengths=lengths), apart


@pytest.mark.parametrize("gap", [0.5, 10.0, 20.0, 25.0, 40.0, 80.0])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("rows", [1, 40])
def test_entropies_of_nearly_sure_chains_keep_their_digits(gap, dtype, rows):
    # independent positions: the entropy of one, times their number
    T, S = 6, 3
    odds = math.exp(-gap)
    one = math.log1p(odds) + odds * gap / (1 + odds)
    expected = torch.full((rows,), T * one, dtype=F64)
    tolerance = 1e-6 if dtype == F32 else 1e-14
    for best in (0.0, gap):
        emissions = torch.full((rows, T, S), -torch.inf, dtype=dtype)
        emissions[..., 0], emissions[..., 2] = best, best - gap
        found = Chain(emissions, torch.zeros(S, S, dtype=dtype)).entropy()
        assert_close(found.double(), expected, rtol=tolerance, atol=0)


def special(kind, T, S, dtype, generator):
    """Emissions and transitions whose probabilities are exact, tied or far apart."""

    def small(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator).to(dtype)

    if kind == "dyadic":
        return (0.5 ** small(0, 4, T, S)).log(), (0.5 ** small(0, 4, S, S)).log()
    if kind == "integers":
        return small(-1, 2, T, S), small(-1, 2, S, S)
    return small(0, 1, T, S), -650 * small(0, 2, S, S) - small(0, 2, S, S)


@pytest.mark.parametrize("kind", ["dyadic", "integers", "far moves"])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_entropies_of_exact_halves_and_of_ties_are_those_of_the_enumeration(
    kind, dtype
):
    generator = torch.Generator().manual_seed(0)
    for T, S in 10 * [(1, 3), (2, 2), (2, 3), (3, 4), (4, 2)]:
        emissions, moves = special(kind, T, S, dtype, generator)
        ys = torch.cartesian_prod(*[torch.arange(S)] * T).reshape(-1, T)
        scores = emissions.double()[torch.arange(T), ys].sum(1)
        scores += moves.double()[ys[:, :-1], ys[:, 1:]].sum(1)
        expected = torch.distributions.Categorical(logits=scores).entropy()
        found = Chain(emissions[None], moves).entropy()[0]
        tolerance = 1e-6 if dtype == F32 else 1e-12
        assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_the_entropy_beside_a_probability_of_one_half():
    emissions = torch.tensor([[[0.5, 0.2, 0.3]]], dtype=F64).log()
    found = Chain(emissions, torch.zeros(3, 3, dtype=F64)).entropy().item()
    assert found == pytest.approx(1.0296530140645737, rel=1e-14)


def test_log_space_adds_start_and_emissions_in_float64():
    # the gap is lost if their sum is rounded to float32
    start = torch.tensor([10_000.1, -10_000.3, 7_000.7])
    emissions = -start + torch.tensor([20.0, 1.0, 0.0])
    exact = emissions.double() + start.double()
    law = exact.log_softmax(0)
    expected = -(law.exp() * law).sum()
    found = Chain(emissions.expand(2, 1, 3), torch.zeros(3, 3), start).entropy()
    assert_close(found.double(), expected.expand(2), rtol=1e-6, atol=0)


def inputs(chain):
    """Arguments of an op, with positions."""
    positions = chain._buffers.positions
    return (*chain._buffers.potentials, positions.steps, positions.lengths)


def entropy_of(scores):
    """Of weights ``exp(scores)`` along axis 0, as a sum of positive terms."""
    behind = scores - scores.amax(0)
    weights = behind.exp().scatter(0, scores.argmax(0, keepdim=True), 0)
    terms = weights * behind.masked_fill(weights == 0, 0)
    return weights.sum(0).log1p() - terms.sum(0) / (1 + weights.sum(0))


def entropies(chain):
    """Of the last label, and of each label when the next one is known.

    Labels that no sequence reaches have no entropy, and NaN here.
    """
    found = []
    for b, n in enumerate(chain.lengths.tolist()):
        nodes, moves = chain.emissions[b, :n], chain.transitions[b]
        ends = [nodes[0] + chain.start] if n else []
        into = []
        for t in range(1, n):
            into.append(ends[-1][:, None] + moves[t - 1])
            ends.append(nodes[t] + into[-1].logsumexp(0))
        last = ends[-1] + chain.end if n else torch.zeros(1, dtype=F64)
        chances, total = last.softmax(0), entropy_of(last)
        for scores in reversed(into):
            total = total + (entropy_of(scores) * chances).nansum()
            chances = (scores.softmax(0) * chances).nansum(1)
        found.append(total)
    return torch.stack(found) if found else chain.emissions.new_zeros(0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_entropies_and_edges_are_those_of_log_space(shape, scale, dtype):
    chain, apart = both(shape, dtype, scale)
    given = inputs(apart)
    expected = entropies(apart)
    found = chain.entropy().double(), apart.entropy()
    rtol = 1e-6 if dtype == F32 else 1e-9
    for entropy, tolerance in zip(found, (rtol, 1e-9), strict=True):
        assert_close(entropy, expected, rtol=tolerance, atol=torch.finfo(F32).tiny)
    edges = chain.edge_marginals()
    assert edges.dtype == dtype
    expected = chain_in_log_space.log_partition(given)[2]
    assert_close(edges.double(), expected, rtol=0, atol=10 * rtol)
    assert_close(apart.edge_marginals(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_draws_are_those_of_log_space(shape, scale):
    chain, apart = both(shape, F32, scale)
    for n in (1, 50):
        draws = [
            x.sample(n, generator=torch.Generator().manual_seed(n))
            for x in (chain, apart)
        ]
        assert torch.equal(*draws)


def test_draws_never_leave_what_is_possible():
    moves = torch.full((9, 9), -torch.inf)
    moves[torch.arange(9), (torch.arange(9) + 1) % 9] = 0
    chain = Chain(torch.zeros(3, 20, 9), moves)
    draws = chain.sample(100)
    assert torch.equal(draws.diff(dim=2) % 9, torch.ones(3, 100, 19).long())
    assert len(draws[..., 0].unique()) == 9


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_covariances_are_those_of_log_space(shape, scale):
    generator = torch.Generator().manual_seed(0)
    for chain in both(shape, F64, scale):
        record = chain._buffers
        B, T, S = shape
        Q = 1 if record.shared_transitions else max(T - 1, 0)
        sizes = ((B, T, S), (B, Q, S, S), (B, S), (B, S))
        v = [torch.randn(size, generator=generator, dtype=F64) for size in sizes]
        expected = chain_in_log_space.covariance(inputs(chain), *v)
        v[1], *_ = v[1].unbind(1) if record.shared_transitions else v[1:2]
        nodes, edges, *ends = rules.covariance(record, v)
        found = nodes, edges[:, None] if record.shared_transitions else edges, *ends
        for ours, theirs in zip(found, expected, strict=True):
            assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_covariances_leave_rows_that_underflow_to_log_space():
    emissions, moves, start, end = drawn((17, 7, 9), F64)[0]
    emissions[3] *= 1e4
    emissions[3, :, 0] = 0
    leaves = [x.requires_grad_() for x in (emissions, start, end)]
    chain = Chain(leaves[0], moves, *leaves[1:])
    found = torch.autograd.grad(chain.entropy().sum(), leaves)
    alone = Chain(leaves[0][3:4], moves, *leaves[1:]).entropy().sum()
    (mine,) = torch.autograd.grad(alone, leaves[:1])
    assert_close(found[0][3], mine[3], rtol=1e-9, atol=1e-12)
    assert all(bool(x.isfinite().all()) for x in found)


@pytest.mark.parametrize("states", [2, 9])
def test_entropies_and_edges_are_differentiated(states):
    (emissions, moves, start, end), _ = drawn((2, 4, states), F64)
    moves = torch.where(moves > -torch.inf, moves, 0.5)
    lengths = torch.tensor([4, 2])
    leaves = [x.requires_grad_() for x in (emissions, moves, start, end)]

    def entropy(*given):
        return Chain(*given, lengths=lengths).entropy()

    def edges(*given):
        return Chain(*given, lengths=lengths).edge_marginals()[:, :, :2, 0]

    for question in (entropy, edges):
        assert torch.autograd.gradcheck(question, leaves)
    direction = tuple(torch.ones_like(x) * 0.3 for x in leaves)
    plain = tuple(x.detach() for x in leaves)
    moved = torch.func.jvp(edges, plain, direction)[1]
    step = 1e-6
    there = edges(*(x + step * d for x, d in zip(plain, direction, strict=True)))
    assert_close(moved, (there - edges(*plain)) / step, rtol=1e-4, atol=1e-6)
