"""The rule for numbers on chains: masks of any kind are ``-inf``.

Every answer for potentials with ``finfo.min``, -1e30, -1e18 or -1e13 has the bits of
the answer for those with ``-inf`` in the same places.
"""

import pytest
import torch

from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    LatentHinge,
    MarginalLikelihood,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import Chain
from tests.sweeps import thinned

DTYPES = (torch.float32, torch.float64)
MASKS = ("min", -1e30, -1e18, -1e13)
SIZES = [(3, 6, 4, False), (3, 6, 4, True), (20, 5, 3, False), (2, 4, 40, False)]
VALUES = {
    "decode": lambda c, y, allowed: c.decode()[0],
    "five best": lambda c, y, allowed: c.decode_topk(5)[0].clamp(min=-100),
    "log-partition": lambda c, y, allowed: c.log_partition(),
    "marginals": lambda c, y, allowed: c.marginals()[..., 0],
    "edges": lambda c, y, allowed: c.edge_marginals()[..., 1],
    "entropy": lambda c, y, allowed: c.entropy(),
    "score": lambda c, y, allowed: c.score(y),
    "log_prob": lambda c, y, allowed: c.log_prob(y),
    "log_count": lambda c, y, allowed: c.log_count(),
    "hinge": lambda c, y, allowed: StructuralHinge()(c, y),
    "hinge, a row": lambda c, y, allowed: StructuralHinge(reduction="none")(c, y),
    "entropy hinge": lambda c, y, allowed: StructuralHinge(Entropy(0.5))(c, y),
    "L2 hinge": lambda c, y, allowed: StructuralHinge(L2(0.5, 3))(c, y),
    "perceptron": lambda c, y, allowed: StructuredPerceptron()(c, y),
    "CRF": lambda c, y, allowed: CRFLoss()(c, y),
    "CRF, a row": lambda c, y, allowed: CRFLoss(reduction="none")(c, y),
    "marginal": lambda c, y, allowed: MarginalLikelihood()(c, allowed),
    "latent": lambda c, y, allowed: LatentHinge()(c, allowed),
}


def drawn(B, T, S, per_edge, dtype):
    """Potentials, where they forbid, a gold output that is allowed, and a mask."""
    generator = torch.Generator().manual_seed(B * S)
    moves = (B, T - 1, S, S) if per_edge else (S, S)
    shapes = (B, T, S), moves, (S,), (S,)
    parts = [torch.randn(x, generator=generator, dtype=dtype) for x in shapes]
    hidden = [torch.rand(x, generator=generator) < 0.3 for x in shapes]
    mask = torch.rand(B, T, generator=generator) < 0.8
    # one state may always be used
    y = torch.zeros(B, T, dtype=torch.int64)
    for x in hidden:
        x[..., 0] = False
    return parts, hidden, y, mask


def with_masks(parts, hidden, number):
    dtype = parts[0].dtype
    number = torch.finfo(dtype).min if number == "min" else number
    return [
        x.masked_fill(where, number).requires_grad_()
        for x, where in zip(parts, hidden, strict=True)
    ]


@pytest.mark.parametrize(
    ("B", "T", "S", "per_edge", "dtype"),
    thinned([(*size, dtype) for size in SIZES for dtype in DTYPES], 3),
)
def test_every_mask_has_the_bits_of_minus_infinity(B, T, S, per_edge, dtype):
    parts, hidden, y, mask = drawn(B, T, S, per_edge, dtype)
    allowed = torch.rand(B, T, S, generator=torch.Generator().manual_seed(1)) < 0.7
    allowed[..., 0] = True
    truth = with_masks(parts, hidden, -torch.inf)
    chain = Chain(*truth, mask=mask)
    draws = chain.sample(5, torch.Generator().manual_seed(2))
    for number in MASKS:
        leaves = with_masks(parts, hidden, number)
        other = Chain(*leaves, mask=mask)
        assert torch.equal(other.decode()[1], chain.decode()[1])
        for found, expected in zip(
            other.decode_topk(5), chain.decode_topk(5), strict=True
        ):
            assert torch.equal(found, expected)
        same = other.sample(5, torch.Generator().manual_seed(2))
        assert torch.equal(same, draws)
        for name, value in VALUES.items():
            found, expected = value(other, y, allowed), value(chain, y, allowed)
            assert torch.equal(found, expected), name
            slopes = slopes_of(found, leaves), slopes_of(expected, truth)
            for slope, same, where in zip(*slopes, hidden, strict=True):
                assert torch.equal(slope, same), name
                assert not slope[where].any(), name


def slopes_of(value, leaves):
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    return torch.autograd.grad(
        value.sum(), leaves, retain_graph=True, materialize_grads=True
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", MASKS)
@pytest.mark.parametrize("per_edge", [False, True])
def test_a_row_without_another_output_is_refused(number, per_edge, dtype):
    number = torch.finfo(dtype).min if number == "min" else number
    moves = torch.zeros((2, 2, 2, 2) if per_edge else (2, 2), dtype=dtype)
    shapes = {"emissions": (2, 3, 2), "start": (2,), "end": (2,)}
    zeros = {name: torch.zeros(x, dtype=dtype) for name, x in shapes.items()}
    zeros["transitions"] = moves
    wrong = {name: x.clone() for name, x in zeros.items()}
    wrong["emissions"][1, 1] = number
    with pytest.raises(ValueError, match=r"row 1 has no feasible output.* by step 1"):
        Chain(**wrong)
    for name in ("transitions", "start", "end"):
        with pytest.raises(ValueError, match="row 0 has no feasible output"):
            Chain(**zeros | {name: torch.full_like(zeros[name], number)})
    # behind a masked position nothing is read
    mask = torch.tensor([[True] * 3, [True, False, True]])
    Chain(**wrong, mask=mask).decode()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2.0**40, 1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("per_edge", [False, True])
def test_a_large_number_is_refused_where_it_stands(number, per_edge, dtype):
    moves = (2, 2, 2, 2) if per_edge else (2, 2)
    shapes = {"emissions": (2, 3, 2), "transitions": moves, "start": (2,), "end": (2,)}
    zeros = {name: torch.zeros(x, dtype=dtype) for name, x in shapes.items()}
    places = {
        "emissions": ((1, 2, 0), "row 1, step 2, state 0"),
        "transitions": ((1, 0), "from state 1 to state 0"),
        "start": ((1,), "state 1"),
        "end": ((0,), "state 0"),
    }
    if per_edge:
        places["transitions"] = ((1, 0, 1, 0), "row 1, step 0, from state 1 to state 0")
    for name, (place, where) in places.items():
        wrong = zeros[name].clone()
        wrong[place] = number
        got = wrong[place].item()
        words = rf"^{name}: expected numbers below 2\^40 .* got {got} at {where};"
        with pytest.raises(ValueError, match=words.replace("+", r"\+")):
            Chain(**zeros | {name: wrong})


def test_numbers_below_the_limit_are_scores():
    low = -(2.0**40) * (1 - 2.0**-20)
    for dtype in DTYPES:
        emissions = torch.tensor([[[low, 0.0]]], dtype=dtype)
        chain = Chain(emissions, torch.zeros(2, 2, dtype=dtype))
        assert chain.score(torch.tensor([[0]])).item() == low
        assert chain.decode_topk(2)[0].tolist() == [[0.0, low]]


def test_costs_and_factors_are_held_to_the_rule():
    chain = Chain(torch.tensor([[[1.0, -2.0]]]), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="cost: "):
        chain.augment(torch.full((1, 1, 2), 1.5e12))
    with pytest.raises(ValueError, match="factor: "):
        chain.scale(1.5e12)
    assert chain.scale(2.0**39).emissions.tolist() == [[[2.0**39, -torch.inf]]]
    lowered = chain.augment(torch.tensor([[[-2e12, 0.0]]]))
    assert lowered.emissions.tolist() == [[[-torch.inf, -2.0]]]
    with pytest.raises(ValueError, match=r"^cost: row 0 has no feasible output"):
        chain.augment(torch.full((1, 1, 2), -2e12))
    small = chain.scale(1e-300).emissions
    assert small.tolist() == [[[0.0, 0.0]]]


@pytest.mark.parametrize("number", [*MASKS, -1e20, -torch.inf])
def test_the_k_best_of_few_outputs(number):
    number = torch.finfo(torch.float32).min if number == "min" else number
    for moves in (torch.zeros(1, 0, 2, 2), torch.zeros(2, 2)):
        chain = Chain(torch.zeros(1, 1, 2), moves, start=torch.tensor([0.0, number]))
        values, ys, valid = chain.decode_topk(2)
        assert values.tolist() == [[0.0, -torch.inf]]
        assert ys.tolist() == [[[0], [-1]]]
        assert valid.tolist() == [[True, False]]
    for T in (0, 1, 2):
        for per_edge in (False, True):
            shape = (1, max(T - 1, 0), 2, 2) if per_edge else (2, 2)
            chain = Chain(torch.zeros(1, T, 2), torch.zeros(shape))
            values, _, valid = chain.decode_topk(5)
            assert int(valid.sum()) == 2**T
            assert values.tolist()[0][: 2**T] == [0.0] * 2**T


@pytest.mark.parametrize("per_edge", [False, True])
def test_a_row_is_refused_by_the_step_that_no_prefix_passes(per_edge):
    """Held against the states that are reached step by step, on heavily masked rows."""
    generator = torch.Generator().manual_seed(0)
    refused = 0
    for _ in range(300):
        B, T, S = (int(torch.randint(1, 5, (), generator=generator)) for _ in range(3))
        moves = (B, T - 1, S, S) if per_edge else (S, S)
        shapes = (B, T, S), moves, (S,), (S,)
        open_ = [torch.rand(x, generator=generator) < 0.7 for x in shapes]
        mask = torch.rand(B, T, generator=generator) < 0.8
        parts = [
            torch.where(x, 0.0, (-torch.inf, -1e30)[i % 2]) for i, x in enumerate(open_)
        ]
        stuck = first_stuck(open_, mask)
        if stuck is None:
            Chain(*parts, mask=mask)
            continue
        refused += 1
        words = f"row {stuck[0]} has no feasible output.* by step {stuck[1]};"
        with pytest.raises(ValueError, match=words):
            Chain(*parts, mask=mask)
    assert 50 < refused < 250


def first_stuck(open_, mask):
    emissions, moves, start, end = open_
    for b, row in enumerate(mask):
        steps, reach = row.nonzero().flatten().tolist(), start
        for n, t in enumerate(steps):
            if n > 0:
                reach = (reach[:, None] & move(moves, b, t)).any(0)
            reach = reach & emissions[b, t]
            if n == len(steps) - 1:
                reach = reach & end
            if not reach.any():
                return b, t
    return None


def move(moves, b, t):
    return moves if moves.dim() == 2 else moves[b, t - 1]


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("by_step", [False, True])
def test_costs_are_of_the_dtype_of_the_chain_whatever_the_default(by_step, default):
    moves = (1, 2, 2, 2) if by_step else (2, 2)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        chain = Chain(
            torch.tensor([[[0.0, 1.0]] * 3], dtype=torch.float64),
            torch.zeros(moves, dtype=torch.float64),
        )
        y = torch.zeros(1, 3, dtype=torch.int64)
        found = StructuralHinge(cost_scale=0.1)(chain, y)
    finally:
        torch.set_default_dtype(before)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(3.3, rel=1e-15)
