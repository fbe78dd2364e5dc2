"""Factor graphs: lists of all outputs, HiGHS and linear programmes as the truth."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.testing import assert_close

from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    LatentHinge,
    MarginalLikelihood,
    MinimumRisk,
    NoiseContrastive,
    Perturbed,
    PerturbedLoss,
    SparseMAP,
    SparseMAPLoss,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import (
    Chain,
    FactorGraph,
    Formula,
    IntegerProgram,
    Matching,
    Multiclass,
    ProjectiveDependencies,
    SpanningTree,
    Structure,
    Subset,
    SumStructure,
)
from smoothsp.oracles._inference.parts import part_counts
from smoothsp.oracles._searches.mixtures import Mixtures
from tests.sweeps import thinned

WIDE = torch.float64
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def label_cells(positions, label):
    """Cells (position, label) of a chain."""
    return torch.stack([positions, torch.full_like(positions, label)], 1)


def every_label(positions, labels):
    return torch.cartesian_prod(positions, torch.arange(labels))


def golden(theta, transitions, **options):
    """A chain of four, label 2 at most once, and an edge between the ends."""
    few = Subset(torch.zeros(1, 4, dtype=WIDE), at_most=1)
    skip = Chain(torch.zeros(1, 2, 3, dtype=WIDE), 0.8 * torch.eye(3, dtype=WIDE))
    ends = every_label(torch.tensor([0, 3]), 3)
    at = torch.arange(4)
    shared = [
        ("tags", label_cells(at, 2), "few", at),
        ("tags", ends, "skip", every_label(torch.arange(2), 3)),
    ]
    tags = Chain(theta.reshape(1, 4, 3), transitions)
    return FactorGraph({"tags": tags, "few": few, "skip": skip}, shared, **options)


THETA = torch.cos(torch.arange(12, dtype=WIDE) * 1.7)
THETA = THETA + torch.tensor([0, 0, 1.5] * 4, dtype=WIDE)
MOVES = torch.sin(torch.arange(9, dtype=WIDE).reshape(3, 3) * 2)
U = """.53879074 .27573948 .18546977 0 1 0 0 .90973029 .09026971
0 .27573948 .72426052"""


def ring(**options):
    """Three binary nodes, each pair of which would differ."""
    differ = -torch.eye(2, dtype=WIDE)
    path = Chain(torch.zeros(1, 3, 2, dtype=WIDE), differ)
    edge = Chain(torch.zeros(1, 2, 2, dtype=WIDE), differ)
    ends = every_label(torch.tensor([0, 2]), 2)
    shared = [("path", ends, "edge", every_label(torch.arange(2), 2))]
    return FactorGraph({"path": path, "edge": edge}, shared, **options)


def test_golden_maximum():
    graph = golden(THETA, MOVES)
    value, y, exact, bound = graph.approximate()
    assert y["tags"].tolist() == [[0, 1, 1, 2]] and y["few"].tolist() == [[0, 0, 0, 1]]
    assert exact.all() and bound.dtype == WIDE
    assert_close(value, torch.tensor([6.4989396917], dtype=WIDE))
    assert_close(bound, value)
    assert_close(graph.score(y), value)
    assert isinstance(graph, Structure) and not isinstance(graph, SumStructure)
    unbounded = {n: x for n, x in graph.structures.items() if n != "few"}
    ends = every_label(torch.tensor([0, 3]), 3)
    shared = [("tags", ends, "skip", every_label(torch.arange(2), 3))]
    assert_close(FactorGraph(unbounded, shared).decode()[0].item(), 6.9134514280)


@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_golden_relaxation_and_its_derivative(strength):
    found = SparseMAP(golden(THETA, MOVES), strength=strength)

    def shares(theta):
        sparse = SparseMAP(golden(theta, MOVES), strength=strength)
        return sparse.marginals()["tags"].flatten()

    slope = torch.autograd.functional.jacobian(shares, THETA)
    u = found.marginals()
    assert (found.gap <= 1e-12).all() and (found.residual <= 1e-12).all()
    assert_close(u["few"], u["tags"][:, :, 2])
    assert_close(u["skip"], u["tags"][:, [0, 3]])
    if strength == 1:
        expected = torch.tensor([float(x) for x in U.split()], dtype=WIDE)
        assert_close(u["tags"].flatten(), expected, rtol=0, atol=1e-8)
        assert_close(found.maximum().item(), 4.7446932150)
        assert_close(slope.trace().item(), 2.0)
        row = torch.tensor([0.52173913, -0.21739130, -0.30434783], dtype=WIDE)
        assert_close(slope[0, :3], row, rtol=0, atol=1e-8)
        assert_close(slope, slope.T)
    else:
        assert_close(found.maximum().item(), 5.8989396917)
        assert_close(slope, torch.zeros_like(slope))
        assert u["tags"].argmax(2).tolist() == [[0, 1, 1, 2]]


def test_a_fractional_solution_is_no_proof():
    graph = ring()
    value, y, exact, bound = graph.approximate()
    assert value.tolist() == [-1] and not exact.any()
    assert_close(bound, torch.zeros(1, dtype=WIDE))
    assert_close(graph.score(y), value)
    with pytest.raises(
        ValueError, match=r"graph: no proof .* 1 of 1 rows: 0; .*1 above"
    ):
        graph.decode()
    relaxed, best = ring(relaxed=True).decode()
    assert_close(relaxed, torch.zeros(1, dtype=WIDE))
    assert_close(graph.score(best), value)


# Graphs of all kinds of structures, and lists of their outputs -----------------------


class Labels:
    """K labels, each 0 or 1, as a user may write it; scores (batch, K, 2)."""

    def __init__(self, scores):
        self.scores = scores

    @property
    def lengths(self):
        return torch.full((len(self.scores),), self.scores.shape[1])

    def score(self, y):
        return self.scores.gather(2, y[..., None]).sum((1, 2))

    def hamming(self, y):
        return 1.0 - torch.nn.functional.one_hot(y, 2).to(self.scores)

    def augment(self, cost):
        return Labels(self.scores + cost)

    def select(self, rows):
        return Labels(self.scores[rows])

    def decode(self):
        values, y = self.scores.max(2)
        return values.sum(1), y


def draw(kind, seed, coarse=False, B=3):
    """Structures and shared cells; ``coarse`` scores are integers, with ties."""
    generator = torch.Generator().manual_seed(seed)

    def scores(*shape):
        found = torch.randn((B, *shape), generator=generator, dtype=WIDE)
        return (2 * found).round() if coarse else found

    at = torch.arange(4)
    order = torch.randperm(4, generator=generator)
    if kind == "chains and a budget":
        structures = {
            "tags": Chain(scores(4, 3), scores(3, 3)[0]),
            "few": Subset(scores(4), 1, 2),
            "other": Chain(scores(4, 2), scores(2, 2)[0]),
        }
        shared = [
            ("tags", label_cells(at, 2), "few", at),
            ("tags", label_cells(order, 0), "other", label_cells(at, 0)),
        ]
    elif kind == "a tree and a budget":
        structures = {
            "tree": SpanningTree(scores(4, 4)),
            "few": Subset(scores(4), 1, 1),
        }
        arcs = torch.tensor([[0, 1], [0, 2], [2, 1], [1, 2]])
        shared = [("few", order, "tree", arcs)]
    elif kind == "a tree and tags":
        structures = {
            "tree": ProjectiveDependencies(scores(4, 4)),
            "tags": Chain(scores(3, 2), scores(2, 2)[0]),
            "one": Multiclass(scores(3)),
        }
        # who hangs from the root has label 1, and is one word
        roots = torch.tensor([[0, 1], [0, 2], [0, 3]])
        words = label_cells(torch.arange(3), 1)
        shared = [
            ("tree", roots, "tags", words),
            ("tags", words, "one", torch.arange(3)),
        ]
    else:
        rule = Formula.from_clauses([[1, 2], [-3, -4], [-1, 4]])
        structures = {"pairs": Matching(scores(3, 3)), "rule": rule(scores(4, 2))}
        cells = torch.tensor([[0, 0], [1, 1], [2, 2], [0, 1]])
        shared = [("pairs", cells, "rule", label_cells(order, 1))]
    return structures, shared


KINDS = (
    *("chains and a budget", "a tree and a budget", "a tree and tags"),
    "a matching under a formula",
)


def lists(structures, b):
    """Scores and parts of all outputs of a row, by structure."""
    found = {}
    for name, structure in structures.items():
        row = structure.select(torch.tensor([b]))
        values, ys, valid = row.decode_topk(200)
        assert not valid.all()
        ys = ys[0][valid[0]]
        alike = row.select(torch.zeros(len(ys), dtype=torch.int64))
        parts = part_counts(alike, ys).numpy()
        found[name] = values[0][valid[0]].detach().numpy(), parts
    return found


def at_cells(parts, index):
    """Parts ``(outputs, k)`` of the cells that an index names."""
    index = index[:, None] if index.dim() == 1 else index
    return parts[(slice(None), *index.numpy().T)]


def best_by_list(structures, shared, b):
    """Highest score of outputs that agree, -inf if none do."""
    listed, axis = lists(structures, b), {n: i for i, n in enumerate(structures)}

    def spread(x, *names):
        sizes = [1] * len(axis)
        for n, size in zip(names, x.shape, strict=True):
            sizes[axis[n]] = size
        return x.reshape(sizes)

    total = sum(spread(values, n) for n, (values, _) in listed.items())
    for a, index_a, c, index_c in shared:
        one, two = at_cells(listed[a][1], index_a), at_cells(listed[c][1], index_c)
        agree = (one[:, None] == two[None]).all(2)
        agree = agree if axis[a] < axis[c] else agree.T
        total = np.where(spread(agree, *sorted((a, c), key=axis.get)), total, -np.inf)
    return total.max()


def best_by_programme(structures, shared, b):
    """Maximum of the relaxation, by a linear programme over all outputs."""
    listed = lists(structures, b)
    first, place = {}, 0
    for n, (values, _) in listed.items():
        first[n], place = slice(place, place + len(values)), place + len(values)
    rows, right = [], []
    for n in listed:
        rows.append(np.zeros(place))
        rows[-1][first[n]] = 1
        right.append(1.0)
    for a, index_a, c, index_c in shared:
        one, two = at_cells(listed[a][1], index_a), at_cells(listed[c][1], index_c)
        for i in range(one.shape[1]):
            rows.append(np.zeros(place))
            rows[-1][first[a]], rows[-1][first[c]] = one[:, i], -two[:, i]
            right.append(0.0)
    scores = np.concatenate([values for values, _ in listed.values()])
    found = linprog(-scores, A_eq=np.array(rows), b_eq=right)
    return -np.inf if found.status == 2 else -found.fun


DRAWN = [(kind, coarse) for coarse in (False, True) for kind in KINDS]


@pytest.mark.parametrize(("kind", "coarse"), thinned(DRAWN, 3))
def test_values_bounds_and_relaxations_are_those_of_lists(kind, coarse):
    proven = 0
    for seed in range(3):
        structures, shared = draw(kind, seed, coarse)
        graph = FactorGraph(structures, shared)
        value, y, exact, bound = graph.approximate()
        for b in range(len(value)):
            best = best_by_list(structures, shared, b)
            assert value[b] <= best + 1e-12 and best <= bound[b] + 1e-12
            assert best == pytest.approx(value[b].item(), abs=1e-9) or not exact[b]
            if best == -np.inf:
                assert all((x[b] == -1).all() for x in y.values())
                continue
            one = graph.select(torch.tensor([b]))
            relaxed = best_by_programme(structures, shared, b)
            assert one.relaxed_maximum().item() == pytest.approx(relaxed, abs=1e-9)
            # equations prove a value wherever the relaxation is tight
            assert bool(exact[b]) == (relaxed <= best + 1e-9)
            proven += int(exact[b])
        there = value > -torch.inf
        assert_close(
            graph.select(there).score({n: x[there] for n, x in y.items()}),
            value[there],
        )
    assert proven >= (1 if "matching" in kind else 3)


@pytest.mark.parametrize("seed", thinned([*range(3)], 3))
def test_the_maximum_is_that_of_an_integer_programme(seed):
    """A chain as a flow, with a budget and a matching of its positions, for HiGHS."""
    generator = torch.Generator().manual_seed(seed)
    T, S = 5, 3
    emissions = torch.randn(4, T, S, generator=generator, dtype=WIDE)
    moves = torch.randn(S, S, generator=generator, dtype=WIDE)
    pairs = torch.randn(4, T, T, generator=generator, dtype=WIDE)
    at = torch.arange(T)
    # positions of label 2 are the matched ones of the diagonal
    graph = FactorGraph(
        {
            "tags": Chain(emissions, moves),
            "few": Subset(torch.zeros(4, T, dtype=WIDE), at_most=2),
            "pairs": Matching(pairs),
        },
        [
            ("tags", label_cells(at, 2), "few", at),
            ("few", at, "pairs", torch.stack([at, at], 1)),
        ],
    )
    nodes = torch.arange(T * S).reshape(T, S)
    edges = T * S + torch.arange((T - 1) * S * S).reshape(T - 1, S, S)
    match = T * S + edges.numel() + torch.arange(T * T).reshape(T, T)
    N = T * S + edges.numel() + T * T
    rows, low, high = [], [], []

    def add(plus, minus=(), least=0.0, most=0.0):
        row = torch.zeros(N, dtype=WIDE)
        row[plus] += 1
        if len(minus):
            row[minus] -= 1
        rows.append(row)
        low.append(least)
        high.append(most)

    for t in range(T):
        add(nodes[t], least=1.0, most=1.0)
        add(match[t], least=1.0, most=1.0)
        add(match[:, t], least=1.0, most=1.0)
        add(nodes[t, 2:], match[t, t : t + 1])
        for s in range(S):
            if t:
                add(edges[t - 1, :, s], nodes[t, s : s + 1])
            if t < T - 1:
                add(edges[t, s], nodes[t, s : s + 1])
    add(nodes[:, 2], least=-torch.inf, most=2.0)
    every = emissions.flatten(1), moves.flatten().repeat(4, T - 1), pairs.flatten(1)
    constraints = torch.stack(rows), torch.tensor(low), torch.tensor(high)
    best, _ = IntegerProgram(torch.cat(every, 1), constraints).decode()
    value, _, exact, bound = graph.approximate()
    assert (value <= best + 1e-6).all() and (best <= bound + 1e-6).all()
    assert exact.any()
    assert_close(value[exact], best[exact], rtol=0, atol=1e-6)


# Relaxations -------------------------------------------------------------------------


def test_one_structure_is_its_sparse_map():
    chain = draw(KINDS[0], 0)[0]["tags"]
    graph = FactorGraph({"tags": chain}, [])
    one, found = SparseMAP(chain, strength=0.7), SparseMAP(graph, strength=0.7)
    assert_close(found.marginals()["tags"], one.marginals(), **CLOSE)
    assert_close(found.maximum(), one.maximum(), **CLOSE)
    assert_close(graph.decode()[0], chain.decode()[0])
    assert repr(found) == "SparseMAP(batch=3, strength=0.7)"


def test_two_halves_are_one_whole():
    chain = draw(KINDS[0], 1)[0]["tags"]
    half, cells = chain.scale(0.5), every_label(torch.arange(4), 3)
    graph = FactorGraph({"a": half, "b": half}, [("a", cells, "b", cells)])
    whole, found = SparseMAP(chain), SparseMAP(graph)
    for name in ("a", "b"):
        assert_close(found.marginals()[name], whole.marginals(), **CLOSE)
    assert_close(found.maximum(), whole.maximum(), **CLOSE)


@pytest.mark.parametrize(
    ("kind", "strength"), thinned([(k, s) for s in (0.5, 5.0) for k in KINDS], 3)
)
def test_regularised_solutions_are_proven(kind, strength):
    structures, shared = draw(kind, 4)
    feasible = [b for b in range(3) if best_by_list(structures, shared, b) > -np.inf]
    graph = FactorGraph(structures, shared).select(torch.tensor(feasible))
    found = SparseMAP(graph, strength=strength)
    u = found.marginals()
    assert (found.gap <= 1e-9).all() and (found.residual <= 1e-9).all()
    for a, index_a, c, index_c in shared:
        one, two = at_cells(u[a], index_a), at_cells(u[c], index_c)
        assert_close(one, two, **CLOSE)
    bound = graph._run_consensus(strength).bound
    assert_close(found.maximum(), bound, **CLOSE)


@pytest.mark.parametrize("kind", thinned([KINDS[3], KINDS[0]], 2))
def test_derivatives_are_differences(kind):
    structures, shared = draw(kind, 2, B=2)
    names = [*structures]
    given = [x._first_potentials.clone().requires_grad_() for x in structures.values()]

    def graph(*mains):
        changed = {
            n: x._with_first_potentials(m)
            for (n, x), m in zip(structures.items(), mains, strict=True)
        }
        return FactorGraph(changed, shared, relaxed=True)

    def shares(*mains):
        return SparseMAP(graph(*mains), strength=1.3).marginals()[names[1]]

    def maximum(*mains):
        return SparseMAP(graph(*mains), strength=1.3).maximum()

    value, y, _, _ = graph(*given).approximate()
    assert (value > -torch.inf).all()
    gold = {n: x.flip(0) for n, x in y.items()}
    gold = y if (graph(*given).score(gold) == -torch.inf).any() else gold
    losses = [
        SparseMAPLoss(cost="hamming"),
        StructuralHinge(cost_scale=1.1),
        PerturbedLoss(samples=2, seed=3),
    ]
    functions = [
        *(shares, maximum, lambda *mains: graph(*mains).relaxed_maximum()),
        *(lambda *mains, loss=loss: loss(graph(*mains), gold) for loss in losses),
    ]
    generator = torch.Generator().manual_seed(9)
    ways = [torch.randn(x.shape, generator=generator, dtype=WIDE) for x in given]

    def moved(step):
        return [(x + step * way).detach() for x, way in zip(given, ways, strict=True)]

    for function in functions:
        value = function(*given)
        weights = torch.linspace(1, 2, value.numel(), dtype=WIDE).reshape(value.shape)
        slopes = torch.autograd.grad((weights * value).sum(), given)
        slope = sum((x * way).sum() for x, way in zip(slopes, ways, strict=True))
        ends = [(weights * function(*moved(h))).sum() for h in (1e-5, -1e-5)]
        assert_close(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-6)
    # second derivatives of the maximum are first ones of its gradient, the shares
    first = torch.autograd.grad(maximum(*given).sum(), given, create_graph=True)
    along = sum((x * way).sum() for x, way in zip(first, ways, strict=True))
    bent = torch.autograd.grad(along, given[1])[0]
    expected = torch.autograd.functional.jvp(shares, tuple(given), tuple(ways))[1]
    assert_close(bent, expected, **CLOSE)
    assert_close(first[1], shares(*given), **CLOSE)


# Losses ------------------------------------------------------------------------------


def test_losses_are_convex_bounds_and_0_with_a_margin():
    structures, shared = draw(KINDS[0], 5, B=6)
    graph = FactorGraph(structures, shared, relaxed=True)
    _, y, exact, _ = graph.approximate()
    hinge = StructuralHinge(reduction="none")(graph, y)
    augmented = graph.augment(graph.hamming(y))
    true = torch.stack(
        [torch.tensor(best_by_list(augmented.structures, shared, b)) for b in range(6)]
    )
    assert exact.any()
    assert (hinge >= true - graph.score(y) - 1e-9).all() and (hinge >= 0).all()
    sparse = SparseMAPLoss(reduction="none")(graph, y)
    assert (sparse >= 0).all() and (sparse > 0).any()
    ahead = {n: x.augment(-50 * x.hamming(y[n])) for n, x in structures.items()}
    graph = FactorGraph(ahead, shared, relaxed=True)
    for loss in (StructuralHinge(), SparseMAPLoss(), StructuredPerceptron()):
        assert loss(graph, y).item() == pytest.approx(0, abs=1e-9)
    # weights of rows, and the mean over rows and not over structures
    three = torch.tensor([1.0, 0, 0, 0, 0, 2.0])
    loss = StructuralHinge()(augmented, y, three)
    rows = StructuralHinge(reduction="none")(augmented, y)
    assert_close(loss, (rows * three).sum() / 3)
    assert_close(StructuralHinge()(augmented, y), rows.mean())


def test_squares_are_of_variables_and_not_of_one_structure():
    structures, shared = draw(KINDS[1], 0)
    graph = FactorGraph(structures, shared)
    value, y = graph.decode()
    loss = SparseMAPLoss(strength=2.0, reduction="none")(graph, y)
    # three arcs, of which one is shared
    expected = SparseMAP(graph, strength=2.0).maximum() - value + 3
    assert_close(loss, expected)


@pytest.mark.parametrize(
    "loss",
    [
        *(CRFLoss(), StructuralHinge(L2(1.0, 2)), StructuralHinge(Entropy(1.0))),
        *(MinimumRisk(2), MinimumRisk(2, over="samples"), LatentHinge()),
        *(MarginalLikelihood(), PerturbedLoss(multiplicative=True)),
    ],
)
def test_losses_that_need_more_name_those_that_do_not(loss):
    graph = golden(THETA, MOVES, relaxed=True)
    with pytest.raises(TypeError, match="train a FactorGraph with SparseMAPLoss"):
        loss(graph, graph.decode()[1])


def test_tensors_of_outputs_are_needed_by_pools_and_samples():
    graph = golden(THETA, MOVES, relaxed=True)
    y = graph.decode()[1]
    with pytest.raises(TypeError, match="y: expected a tensor of outputs, got dict"):
        NoiseContrastive()(graph, y, THETA, y["tags"])
    with pytest.raises(TypeError, match="SparseMAP has marginals of it"):
        Perturbed(graph)


# Batches -----------------------------------------------------------------------------


def tagger(emissions, few, lengths=None, at_most=1, **options):
    """A chain whose last label is used at most so many times."""
    T, S = emissions.shape[1:]
    at = torch.arange(T)
    moves = torch.linspace(-1, 1, S * S).reshape(S, S).to(emissions)
    structures = {
        "tags": Chain(emissions, moves, lengths=lengths),
        "few": Subset(few, at_most=at_most, lengths=lengths),
    }
    shared = [("tags", label_cells(at, S - 1), "few", at)]
    return FactorGraph(structures, shared, **options)


def test_rows_are_computed_alone():
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(5, 6, 3, generator=generator, dtype=WIDE)
    few = torch.randn(5, 6, generator=generator, dtype=WIDE)
    graph = tagger(emissions, few, torch.tensor([6, 4, 0, 1, 5]), relaxed=True)
    found, sparse = graph.approximate(), SparseMAP(graph, strength=0.4)
    assert_close(graph.lengths, torch.tensor([6, 4, 0, 1, 5]))
    assert found[1]["tags"][1].tolist()[4:] == [-1, -1] and found[2][2]
    for b in range(5):
        one = graph.select(torch.tensor([b]))
        value, y, exact, bound = one.approximate()
        assert torch.equal(value, found[0][b : b + 1])
        assert torch.equal(y["few"], found[1]["few"][b : b + 1])
        assert torch.equal(bound, found[3][b : b + 1]) and exact == found[2][b]
        again = SparseMAP(one, strength=0.4).marginals()["tags"]
        assert_close(again, sparse.marginals()["tags"][b : b + 1], **CLOSE)
    counts = graph.label_counts(found[1])
    assert counts.sum(1).tolist() == [6, 4, 0, 1, 5]


def test_an_index_for_each_row_may_leave_cells_out():
    generator = torch.Generator().manual_seed(1)
    emissions = torch.randn(2, 4, 2, generator=generator, dtype=WIDE)
    tags = Chain(emissions, torch.zeros(2, 2, dtype=WIDE))
    few = Subset(torch.full((2, 2), -0.5, dtype=WIDE), 1, 1)
    cells = torch.tensor([[[0, 1], [2, 1]], [[3, 1], [-1, -1]]])
    one = torch.tensor([[0, 1], [0, -1]])
    graph = FactorGraph({"tags": tags, "few": few}, [("tags", cells, "few", one)])
    for b in range(2):
        k = 2 - b
        alone = {n: x.select(torch.tensor([b])) for n, x in graph.structures.items()}
        same = FactorGraph(alone, [("tags", cells[b, :k], "few", one[b, :k])])
        row = graph.select(torch.tensor([b]))
        assert_close(row.decode()[0], same.decode()[0])
        best = best_by_list(alone, [("tags", cells[b, :k], "few", one[b, :k])], 0)
        assert row.decode()[0].item() == pytest.approx(best)


@pytest.mark.parametrize("dtype", [torch.float32, WIDE])
def test_a_structure_of_your_own_is_a_factor(dtype):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 5, 2, generator=generator, dtype=dtype)
    few = torch.randn(4, 5, generator=generator, dtype=dtype)
    at = torch.arange(5)
    shared = [("mine", label_cells(at, 1), "few", at)]
    mine = {"mine": Labels(scores), "few": Subset(few, 2, 2)}
    value, y, exact, bound = FactorGraph(mine, shared).approximate()
    # one structure: each chosen element earns both scores
    whole = Subset(few + scores[:, :, 1] - scores[:, :, 0], 2, 2)
    assert exact.all() and value.dtype == dtype
    assert_close(value, whole.decode()[0] + scores[:, :, 0].sum(1))
    assert torch.equal(y["mine"], y["few"])
    assert_close(bound, value.double(), rtol=1e-5, atol=1e-5)
    assert SparseMAP(FactorGraph(mine, shared)).marginals()["mine"].dtype == dtype


# Traps -------------------------------------------------------------------------------


def test_structures_that_cannot_agree_end():
    emissions = torch.zeros(3, 4, 3, dtype=WIDE)
    emissions[0, :2, :2] = -torch.inf
    graph = tagger(emissions, torch.zeros(3, 4, dtype=WIDE))
    value, y, exact, bound = graph.approximate()
    assert value[0] == bound[0] == -torch.inf and exact.all()
    assert (y["tags"][0] == -1).all() and (y["few"][0] == -1).all()
    assert graph._run_consensus(0.0).rounds.max() < 100
    for ask in (graph.relaxed_maximum, lambda: SparseMAP(graph)):
        with pytest.raises(ValueError, match="no relaxed solution of row 0"):
            ask()
    with pytest.raises(ValueError, match="no outputs of row 0 on which its structures"):
        graph.decode()
    # no list of potentials tells how low a score may be: all rounds
    mine = Labels(torch.zeros(1, 3, 2, dtype=WIDE))
    at = torch.arange(3)
    many = Subset(torch.zeros(1, 3, dtype=WIDE), at_least=2)
    few = Subset(torch.zeros(1, 3, dtype=WIDE), at_most=1)
    cells = label_cells(at, 1)
    shared = [("mine", cells, "many", at), ("mine", cells, "few", at)]
    graph = FactorGraph({"mine": mine, "many": many, "few": few}, shared, 30)
    value, _, exact, _ = graph.approximate()
    assert value.item() == -torch.inf and not exact.any()
    # nor are multipliers without end
    forced = {
        "mine": Labels(torch.full((1, 3, 2), -1e8, dtype=WIDE)),
        "many": Subset(torch.full((1, 3), -1e8, dtype=WIDE), at_least=2),
        "few": few,
    }
    value, _, exact, bound = FactorGraph(forced, shared).approximate()
    assert value.item() == -torch.inf and not exact.any() and bound.isfinite()


def test_what_one_structure_forbids_none_uses():
    emissions = torch.zeros(1, 3, 2, dtype=WIDE)
    emissions[0, :, 1] = torch.tensor([5.0, 1.0, 3.0])
    few = torch.tensor([[-torch.inf, 0.0, -(2.0**41)]], dtype=WIDE)
    graph = tagger(emissions, few, at_most=3)
    assert graph.decode()[1]["few"].tolist() == [[0, 1, 0]]
    shares = SparseMAP(graph, strength=0.1).marginals()
    assert_close(shares["few"], torch.tensor([[0.0, 1.0, 0.0]], dtype=WIDE))
    assert_close(shares["tags"][:, :, 1], shares["few"])


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 2), (2, 3, 2)])
def test_ties_no_rows_and_no_cells(shape):
    graph = tagger(torch.zeros(shape), torch.zeros(shape[:2]))
    graph = FactorGraph(
        {**graph.structures, "tags": Chain(torch.zeros(shape), torch.zeros(2, 2))},
        [
            (
                "tags",
                label_cells(torch.arange(shape[1]), 1),
                "few",
                torch.arange(shape[1]),
            )
        ],
    )
    value, y, exact, bound = graph.approximate()
    assert exact.all() and y["tags"].shape == shape[:2]
    assert_close(value, torch.zeros(shape[0])) and assert_close(bound, value.double())
    assert_close(graph.relaxed_maximum(), value)
    assert SparseMAP(graph).marginals()["tags"].shape == shape


@pytest.mark.parametrize("moves", ["shared", "of each step", "forbidden"])
def test_chains_are_searched_alike_by_both_searches(moves, monkeypatch):
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=WIDE)

    transitions = drawn(3, 3) if moves == "shared" else drawn(5, 6, 3, 3)
    if moves == "forbidden":
        transitions[:, :, 0, 1] = -torch.inf
    # holes, and a row without positions
    mask = torch.rand(5, 7, generator=generator) < 0.8
    mask[0] = False
    cells = every_label(torch.arange(7), 3)
    one = Chain(drawn(5, 7, 3), transitions, drawn(3), drawn(3), mask=mask)
    two = Chain(drawn(5, 7, 3), drawn(3, 3), mask=mask)
    graph = FactorGraph({"one": one, "two": two}, [("one", cells, "two", cells)])
    value, _, exact, bound = graph.approximate()
    shares = SparseMAP(graph, strength=0.3).marginals()
    # each round needs more slots than there are
    monkeypatch.setattr("smoothsp.oracles._chain.warm_mixtures._SLOTS", 2)
    assert torch.equal(graph.approximate()[0], value)
    assert torch.equal(SparseMAP(graph, strength=0.3).marginals()["one"], shares["one"])
    monkeypatch.setattr("smoothsp.oracles.factor_graph.ChainMixtures", Mixtures)
    again = graph.approximate()
    assert torch.equal(again[2], exact) and not exact.all()
    assert_close(again[0], value, **CLOSE)
    assert_close(again[3], bound, **CLOSE)
    other = SparseMAP(graph, strength=0.3).marginals()
    for name in ("one", "two"):
        assert_close(other[name], shares[name], **CLOSE)
    # agreeing taggers are one tagger
    whole = Chain(
        one.emissions + two.emissions,
        transitions + two.transitions,
        one.start,
        one.end,
        mask=mask,
    )
    best, _ = whole.decode()
    assert (value <= best + 1e-9).all() and (best <= bound + 1e-9).all()
    assert_close(value[exact], best[exact], **CLOSE)


def test_a_round_decodes_each_structure_about_once():
    structures, shared = draw(KINDS[0], 6, B=8)
    for gamma in (0.0, 1.0):
        found = FactorGraph(structures, shared)._run_consensus(gamma)
        searched = sum(x.decodes.sum() for x in found.mixtures)
        assert searched <= 1.7 * 3 * found.rounds.sum()
        assert found.rounds.sum() > 20


# Errors ------------------------------------------------------------------------------

TAGS = Chain(torch.zeros(2, 3, 2), torch.zeros(2, 2))
FEW = Subset(torch.zeros(2, 3))
CELLS, AT = torch.tensor([[0, 1], [1, 1]]), torch.arange(2)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: FactorGraph([TAGS], []), TypeError, "structures: expected a dict"),
        (lambda: FactorGraph({"a": 3}, []), TypeError, "'a'.: expected a structure"),
        (
            lambda: FactorGraph({"a": TAGS, "b": FEW.select(AT[:1])}, []),
            ValueError,
            "structures: expected one batch",
        ),
        (
            lambda: FactorGraph({"a": FactorGraph({"b": TAGS}, [])}, []),
            TypeError,
            "pass its structures and shared cells",
        ),
        (
            lambda: FactorGraph({"a": TAGS, "b": FEW}, []),
            ValueError,
            "shared: expected entries",
        ),
        (lambda: FactorGraph({"a": TAGS}, [], 0), ValueError, "max_rounds: "),
        (lambda: FactorGraph({"a": TAGS}, [], tol=0), ValueError, "tol: "),
        (lambda: FactorGraph({"a": TAGS}, [], relaxed=1), TypeError, "relaxed: "),
        (lambda: FactorGraph({"a": TAGS}, [], cost_of="b"), ValueError, "cost_of: "),
    ],
)
def test_wrong_arguments_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("entry", "error", "words"),
    [
        (("a", CELLS, "b"), TypeError, r"shared\[0\]: expected \(\"name\", index"),
        (("a", CELLS, "c", AT), ValueError, "one of 'a', 'b', got 'c'"),
        (("a", CELLS, "a", CELLS), ValueError, "got 'a' twice"),
        (("a", AT, "b", AT), ValueError, r"expected \(k, 2\) or \(batch, k, 2\)"),
        (("a", CELLS.float(), "b", AT), TypeError, "expected an integer dtype"),
        (
            ("a", torch.tensor([[0, 1], [3, 1]]), "b", AT),
            ValueError,
            r"expected a cell of \(3, 2\), or -1 .* got \(3, 1\) at row 0, entry 1",
        ),
        (
            ("a", CELLS, "b", AT[:1]),
            ValueError,
            "expected the number of cells for 'a', 2, got 1",
        ),
        (
            ("a", CELLS, "b", torch.tensor([0, -1])),
            ValueError,
            "expected -1 where the index of 'a' has it",
        ),
        (
            ("a", CELLS, "b", torch.tensor([0, 0])),
            ValueError,
            r"each cell of 'a' to be another variable, got cells \(0, 1\) and \(1, 1\)",
        ),
        (
            ("a", CELLS.expand(3, 2, 2), "b", AT),
            ValueError,
            "an entry for each row",
        ),
    ],
)
def test_wrong_cells_are_named(entry, error, words):
    with pytest.raises(error, match=words):
        FactorGraph({"a": TAGS, "b": FEW}, [entry])


def test_padding_is_no_partner_of_a_real_cell():
    short = Chain(torch.zeros(2, 3, 2), torch.zeros(2, 2), lengths=torch.tensor([3, 1]))
    with pytest.raises(ValueError, match="got padding at row 1, entry 1, for a real"):
        FactorGraph({"a": short, "b": FEW}, [("a", CELLS, "b", AT)])
    with pytest.raises(ValueError, match=r"index of 'a': .*for a real cell of 'b'"):
        FactorGraph({"b": FEW, "a": short}, [("b", AT, "a", CELLS)])


def test_graphs_want_dicts_of_all_outputs():
    graph = golden(THETA, MOVES)
    for y in (torch.zeros(1, 4), {"tags": torch.zeros(1, 4)}):
        with pytest.raises(
            ValueError, match=r"y: expected a dict of outputs of 'tags'"
        ):
            graph.score(y)
    y = graph.decode()[1]
    assert graph.score({**y, "few": 0 * y["few"]}).item() == -torch.inf
    with pytest.raises(TypeError, match="FactorGraph needs values"):
        torch.func.vmap(lambda x: golden(x, MOVES).decode()[0])(THETA[None])


def test_a_potential_changed_in_place_is_noticed():
    theta = THETA.clone()
    graph = golden(theta, MOVES)
    theta.add_(1)
    with pytest.raises(ValueError, match="changed in place"):
        graph.decode()
