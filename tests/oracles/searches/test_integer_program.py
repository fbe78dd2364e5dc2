"""Integer programmes: enumeration, scipy, other structures, losses, messages."""

import itertools
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import LinearConstraint, milp
from torch.testing import assert_close

from smoothsp.losses import (
    ImplicitMLE,
    Interpolation,
    LatentHinge,
    NegativeIdentity,
    PerturbedLoss,
    SparseMAPLoss,
    SPOPlus,
    StructuralHinge,
    StructuredPerceptron,
    regret,
)
from smoothsp.oracles import (
    IntegerProgram,
    Knapsack,
    Matching,
    Structure,
    SumStructure,
    TopKStructure,
)
from smoothsp.testing import check_structure

INF = float("inf")
generator = np.random.default_rng


def drawn(seed, B=4, N=5, M=3):
    """Programmes of small integers around an output, constraints of each row."""
    rng = generator(seed)
    scores = torch.from_numpy(rng.normal(size=(B, N)))
    if seed % 2:
        scores = (2 * scores).round()
    A = rng.integers(-3, 4, (B, M, N)).astype(float)
    lower = rng.integers(-1, 1, (B, N)).astype(float)
    upper = lower + rng.integers(0, 3, (B, N))
    inside = rng.integers(lower, upper + 1)
    middle = np.einsum("bmn,bn->bm", A, inside)
    low = np.where(rng.random((B, M)) < 0.4, -INF, middle - rng.integers(0, 4, (B, M)))
    high = np.where(rng.random((B, M)) < 0.4, INF, middle + rng.integers(0, 4, (B, M)))
    return scores, (A, low, high), lower, upper


def outputs_of(scores, constraints, lower, upper):
    """Of each row all outputs, by trying every point within the bounds."""
    found = []
    for b in range(len(scores)):
        A, low, high = (x[b] for x in constraints)
        ranges_ = [
            range(int(a), int(z) + 1) for a, z in zip(lower[b], upper[b], strict=True)
        ]
        points = np.array(list(itertools.product(*ranges_)), float)
        total = points @ A.T
        fine = ((total >= low) & (total <= high)).all(1)
        found.append(torch.from_numpy(points[fine]).long())
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_best_are_those_of_the_enumeration(seed):
    given = drawn(seed)
    built, outputs = IntegerProgram(*given), outputs_of(*given)
    value, y = built.decode()
    assert y.dtype == torch.int64
    assert_close(built.score(y), value)
    assert_close(built.bound(), value, rtol=1e-8, atol=1e-8)
    for b, ys in enumerate(outputs):
        scores = (ys * given[0][b]).sum(1)
        assert_close(value[b], scores.max())
        assert (ys == y[b]).all(1).any()
    lower = torch.from_numpy(given[2])
    assert_close(built.hamming(y), ((y == 0) & (lower >= 0)).double())
    for b, ys in enumerate(outputs):
        row = built.select(torch.tensor([b]))
        assert_close(row.score(ys[None])[0], (ys * given[0][b]).sum(1))


def test_outputs_are_those_of_the_enumeration_and_no_others():
    given = drawn(0)
    built, outputs = IntegerProgram(*given), outputs_of(*given)
    known = {tuple(y) for y in outputs[0].tolist()}
    row, refused = built.select(torch.tensor([0])), 0
    for y in itertools.product(range(-2, 3), repeat=5):
        if y not in known and hash(y) % 40 == 0:
            refused += 1
            with pytest.raises(ValueError, match="y: "):
                row.score(torch.tensor([y]))
    assert refused > 30


def test_forbidden_variables_are_0():
    scores, constraints, lower, upper = drawn(2)
    lower = np.minimum(lower, 0)
    upper = np.maximum(upper, 0)
    barred = torch.zeros_like(scores, dtype=torch.bool)
    outputs = outputs_of(scores, constraints, lower, upper)
    for b, ys in enumerate(outputs):
        barred[b] = ys[-1] == 0
    for masked in (
        IntegerProgram(scores.masked_fill(barred, -INF), constraints, lower, upper),
        IntegerProgram(scores.masked_fill(barred, -1e30), constraints, lower, upper),
        IntegerProgram(scores, constraints, lower, upper).restrict(~barred),
    ):
        value, y = masked.decode()
        assert (y[barred] == 0).all()
        for b, ys in enumerate(outputs):
            kept = ys[(ys[:, barred[b]] == 0).all(1)]
            assert_close(value[b], (kept * scores[b]).sum(1).max())


@pytest.mark.parametrize("integer", ["all", "some", "none"])
def test_the_best_are_those_of_scipy(integer):
    rng = generator(3)
    N, M = 25, 8
    A = rng.integers(0, 9, (M, N)).astype(float)
    high = 0.4 * A.sum(1)
    scores = torch.from_numpy(rng.normal(size=(5, N)))
    kinds = {"all": np.ones(N), "some": rng.integers(0, 2, N), "none": np.zeros(N)}
    mask = kinds[integer].astype(bool)
    upper = rng.integers(1, 4, N)
    built = IntegerProgram(scores, (A, -INF, high), 0, upper, mask)
    value, y = built.decode()
    assert y.dtype == (torch.int64 if mask.all() else torch.float64)
    assert_close(built.bound(), value, rtol=1e-7, atol=1e-7)
    for b in range(5):
        expected = milp(
            -scores[b].numpy(),
            constraints=LinearConstraint(A, -INF, high),
            bounds=(0, upper),
            integrality=mask,
            options={"mip_rel_gap": 0},
        )
        assert_close(value[b].item(), -expected.fun, rtol=1e-7, atol=1e-7)


def test_knapsacks_and_matchings_are_integer_programmes():
    torch.manual_seed(0)
    weights = torch.randint(1, 9, (12,))
    scores = torch.randn(6, 12).double()
    value, y = IntegerProgram(scores, (weights[None], -INF, 20)).decode()
    expected = Knapsack(scores, weights, 20).decode()
    assert_close(value, expected[0])
    assert y.equal(expected[1])
    pairs = torch.randn(3, 4, 4).double()
    rows, columns = np.kron(np.eye(4), np.ones(4)), np.kron(np.ones(4), np.eye(4))
    one = (
        LinearConstraint(sparse.csr_array(rows), 1, 1),
        LinearConstraint(columns, 1, 1),
    )
    value, _ = IntegerProgram(pairs.flatten(1), list(one)).decode()
    assert_close(value, Matching(pairs).decode()[0])


def small(B=3, **more):
    torch.manual_seed(0)
    scores = torch.randn(B, 4, dtype=torch.float64)
    A = torch.tensor([[1.0, 1, 1, 1], [3, 1, 2, 2]])
    return IntegerProgram(
        scores, (A, torch.tensor([1.0, -INF]), torch.tensor([3.0, 5]))
    )


def test_the_laws_of_structures_hold():
    built = small()
    points = torch.tensor(list(itertools.product((0, 1), repeat=4)))
    total = points @ torch.tensor([[1, 3], [1, 1], [1, 2], [1, 2]])
    fine = (total[:, 0] >= 1) & (total[:, 0] <= 3) & (total[:, 1] <= 5)
    check_structure(built, [list(points[fine])] * 3)
    assert isinstance(built, Structure)
    assert not isinstance(built, TopKStructure | SumStructure)


def test_losses_that_need_a_decoder_are_those_of_a_knapsack():
    torch.manual_seed(1)
    weights = torch.tensor([3, 1, 2, 2])
    scores, true = torch.randn(2, 5, 4).double()
    y = Knapsack(true, weights, 5).decode()[1]
    losses = (
        StructuralHinge(),
        StructuredPerceptron(),
        PerturbedLoss(5),
        SparseMAPLoss(),
        lambda s, y: SPOPlus()(s, y, true),
        lambda s, y: regret(s, y, true).sum(),
        lambda s, y: (Interpolation(2.0)(s) * true).sum(),
        lambda s, y: (NegativeIdentity()(s) * true).sum(),
        lambda s, y: (ImplicitMLE(3, 2.0)(s) * true).sum(),
        lambda s, y: LatentHinge()(s, y == 1).sum(),
    )
    kinds = (
        lambda x: Knapsack(x, weights, 5),
        lambda x: IntegerProgram(x, (weights[None], -INF, 5)),
    )
    for loss in losses:
        found = []
        for kind in kinds:
            torch.manual_seed(0)
            x = scores.clone().requires_grad_()
            value = loss(kind(x), y)
            slope = torch.zeros_like(x)
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value, x)
            found.append((value.detach(), slope))
        assert_close(*found)


def test_gradients_are_the_units_of_the_output():
    scores = torch.tensor([[2.0, -1.0, 0.5]], requires_grad=True)
    built = IntegerProgram(scores, ([[1, 1, 1]], -INF, 7), 0, [3, 2, 9])
    value, y = built.decode()
    (7 * value.sum()).backward()
    assert y.tolist() == [[3, 0, 4]]
    assert scores.grad.tolist() == [[21, 0, 28]]
    twice = built.scale(2.0)
    assert_close(twice.decode()[0], 2 * value)


def test_neither_threads_nor_a_warm_start_change_a_value():
    given = drawn(4, B=6, N=6)
    alone = [
        IntegerProgram(
            given[0][[b]], tuple(x[[b]] for x in given[1]), *(x[[b]] for x in given[2:])
        ).decode()[0]
        for b in range(6)
    ]
    rows = torch.arange(6).repeat(3)
    built = IntegerProgram(*given).select(rows)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert_close(built.decode()[0], torch.cat(alone)[rows])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("B", "N"), [(0, 3), (2, 0), (0, 0), (1, 1)])
def test_sizes_of_0_and_1(B, N):
    A = np.ones((2, N))
    built = IntegerProgram(torch.ones(B, N), (A, -INF, 1))
    value, y = built.decode()
    assert y.shape == (B, N) and value.tolist() == [float(min(N, 1))] * B
    assert built.hamming(y).shape == (B, N) and built.bound().shape == (B,)
    assert IntegerProgram(torch.ones(B, N)).decode()[0].tolist() == [float(N)] * B
    none = np.zeros((0, N)), np.zeros(0), np.zeros(0)
    assert IntegerProgram(torch.ones(B, N), none).decode()[1].all()
    if B and not N:
        with pytest.raises(ValueError, match="constraints: row 0 has no output"):
            IntegerProgram(torch.ones(B, N), (A, 1, 1)).decode()


ones = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ones, ([[1, 1]], 3, 4)), "constraints: row 0 has no output: none meets all"),
        ((ones, ([[2, 2]], 1, 1)), "constraints: row 0 has no output"),
        (
            (torch.tensor([[1.0, 1], [-INF, 0]]), ([[1, 0]], 1, 1)),
            "constraints: row 1 has no output: .* forbidden",
        ),
        (
            (torch.tensor([[1.0, 1], [1, -INF]]), None, [0, 1]),
            "constraints: row 1 has no output: .* forbidden",
        ),
        ((ones, None, 0, INF), "scores: row 0 is unbounded.*finite bounds"),
        ((ones, ([[1, -1]], 0, 0), 0, INF), "scores: row 0 is unbounded"),
    ],
)
def test_a_row_without_a_best_output_is_refused_when_decoded(arguments, message):
    built = IntegerProgram(*arguments)
    for ask in (built.decode, built.bound):
        with pytest.raises(ValueError, match=message):
            ask()


NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ones[0],), "scores: "),
        ((torch.tensor([[1.0, NAN]]),), "scores: "),
        ((ones, ([[1, NAN]], 0, 1)), "constraints: "),
        ((ones, ([[1, 1]], NAN, 1)), "constraints, low: "),
        ((ones, ([[1, 1]], 2, 1)), "constraints, low: "),
        ((ones, ([[1, 1, 1]], 0, 1)), "constraints: "),
        ((ones, None, 2, 1), "lower: expected at most upper, got 2 and 1 at 0"),
        ((ones, None, 0, [1, NAN]), "upper: "),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        IntegerProgram(*arguments)


def test_nothing_is_printed(capfd):
    # the second needs integers, and so another model
    values, weights = torch.tensor([[3.0, 2.0, 2.0]]), [[2.0, 1.0, 1.5]]
    for integer in (False, True):
        low, high = [-torch.inf], [2.0]
        program = IntegerProgram(values, (weights, low, high), integer=integer)
        assert program.decode()[0] > 0
    assert capfd.readouterr() == ("", "")


def test_without_its_solver_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(
        ImportError, match=r"pip install \"smoothsp\[integer-programs\]"
    ):
        IntegerProgram(ones)
