"""Linear models over structures, against all outputs written down."""

import numpy as np
import pytest
import torch
from scipy import sparse

from smoothsp.linear.problems import (
    BatchProblem,
    CallbackProblem,
    LinearProblem,
    Parts,
    Shared,
    StructureProblem,
)
from smoothsp.linear.solvers import (
    BCFW,
    LBFGS,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CasimirSVRG,
)
from smoothsp.oracles import Chain, Multiclass, ProjectiveDependencies
from tests.sweeps import thinned
from tests.truth.frank_wolfe import optimum
from tests.truth.linear_chain import random_chain
from tests.truth.structure_problems import known_problem

RNG = np.random.default_rng(5)
KINDS = [
    ("tree", {"states": True}),
    ("tree_of_each_row", {}),
    ("semi_markov", {"states": True, "cost_scale": np.array([0.5, 1.0, 2.0, 1.0])}),
    ("projective", {"width": 7}),
    ("projective_labelled", {"states": True}),
]


def as_structure(chain, **options):
    """A chain problem, as one over ``Chain``."""
    X = sparse.csr_matrix(
        (chain.values, chain.indices, chain.indptr),
        shape=(len(chain.labels), chain.num_features),
    )
    S, lengths = chain.num_labels, np.diff(chain.offsets)
    features = {
        "emissions": Parts(X, lengths, S),
        "transitions": Shared((S, S)),
        "start": Shared((S,)),
        "end": Shared((S,)),
    }

    def build(potentials, batch):
        return Chain(**potentials, lengths=batch.sizes["emissions"])

    ends = zip(chain.offsets[:-1], chain.offsets[1:], strict=True)
    y = [chain.labels[a:b] for a, b in ends]
    scale = chain.cost_scale
    return StructureProblem(build, features, y, cost_scale=scale, **options)


CHAIN = random_chain(1, n=5, cost_scale=np.array([0.5, 1.0, 2.0, 1.0, 1.0]))


@pytest.fixture(scope="module")
def ours():
    return as_structure(CHAIN)


def near(found, expected, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=[k for k, _ in KINDS])
def test_sums_and_outputs_are_those_of_the_enumeration(kind, options):
    known = known_problem(kind, **options)
    problem, n = known.problem, len(known.loss)
    assert isinstance(problem, BatchProblem) and isinstance(problem, LinearProblem)
    w = RNG.normal(size=problem.num_weights)
    z = known.scores(w)
    hinges = np.array([x.max() for x in z])
    near(problem.hinges(w), hinges)
    slope = sum(known.psi[i][z[i].argmax()] for i in range(n)) / -n
    value, found = problem.risk(w)
    near(value, hinges.mean())
    near(found, slope)
    v, loss, hinge = problem.corners(w, 3.0)
    near(v, -3 * n * slope)
    near(loss, np.mean([known.loss[i][z[i].argmax()] for i in range(n)]))
    near(hinge, hinges.mean())
    near(problem.primal(w, 0.3), 0.15 * w @ w + hinges.mean())
    mu = 0.7
    u = [np.exp((x - x.max()) / mu) for x in z]
    soft = [x.max() + mu * np.log(p.mean()) for x, p in zip(z, u, strict=True)]
    slope = sum(p @ psi / p.sum() for p, psi in zip(u, known.psi, strict=True)) / -n
    value, found = problem.smoothed_risk(w, mu)
    near(value, np.mean(soft))
    near(found, slope)
    near(problem.diameter(), np.mean([np.log(len(x)) for x in z]))
    value, found = problem.likelihood(w)
    p = [np.exp(x) for x in known.scores(w, with_costs=False)]
    near(value, np.mean([np.log(x.sum()) for x in p]))
    near(
        found, sum(x @ psi / x.sum() for x, psi in zip(p, known.psi, strict=True)) / -n
    )
    for i in range(n):
        corner = problem.worst(i, w)
        near(corner.psi.toarray()[0], known.psi[i][z[i].argmax()])
        near(corner.loss, known.loss[i][z[i].argmax()])
        best = known.scores(w, with_costs=False)[i].argmax()
        y = problem.decode(w)[i]
        assert np.array_equal(y, known.outputs[i][best][: len(y)])


@pytest.mark.parametrize("loss", ["hinge", "hinge-l2", "hinge-entropy", "likelihood"])
def test_slopes_of_single_examples_add_up_to_that_of_the_set(loss, ours):
    for problem in (ours, known_problem("projective").problem):
        w = RNG.normal(size=problem.num_weights)
        values, rows = problem.slopes(w, loss, 0.5, 3, np.arange(len(problem)))
        dense = np.zeros((len(problem), problem.num_weights))
        for row, out in zip(rows, dense, strict=True):
            out[row.columns] = row.values
        mean, slope = problem.mean_slope(w, loss, 0.5, 3)
        near(values.mean(), mean)
        near(dense.mean(0), slope)
        near(values, problem.losses(w, loss, 0.5, 3))


def test_small_pieces_of_memory_change_no_result(monkeypatch, ours):
    w = RNG.normal(size=ours.num_weights)
    whole = ours.risk(w), ours.likelihood(w), ours.hinges(w), ours.decode(w)
    monkeypatch.setattr("smoothsp.linear.problems.structure._MAX_CHUNK_SIZE", 1)
    assert len(list(ours._iter_chunks())) == len(ours)
    for a, b in zip(whole[:2], (ours.risk(w), ours.likelihood(w)), strict=True):
        near(a[0], b[0])
        near(a[1], b[1])
    near(whole[2], ours.hinges(w))
    assert all(map(np.array_equal, whole[3], ours.decode(w)))


SOLVERS = {
    "BCFW": BCFW(lam=0.2, tol=1e-3, max_passes=30),
    "pairwise": BCFW(lam=0.2, tol=1e-9, steps="pairwise", cache=True),
    "away": BCFW(lam=0.2, tol=1e-4, max_passes=60, steps="away", sampling="uniform"),
    "best": BCFW(lam=0.2, tol=1e-4, steps="best", sampling="permutation"),
    "bounds": BCFW(lam=0.2, tol=1e-2, steps="pairwise", bounds=(-0.1, 0.2)),
    "averaging": BCFW(lam=0.2, tol=1e-2, averaging=True, max_passes=60),
    "batch": BatchFrankWolfe(lam=0.2, tol=0.05),
    "SGD": SGD(lam=0.2, max_passes=4),
    "Pegasos": SGD(lam=0.2, max_passes=4, decay="pegasos", averaging="uniform"),
    "CRF by SGD": SGD(lam=0.2, max_passes=4, loss="likelihood", averaging="none"),
    "SVRG": SVRG(lam=0.2, loss="likelihood", rate=0.1, max_passes=4),
    # an estimated smoothness is a difference of gradients, which rounding moves
    "Casimir": CasimirSVRG(lam=0.2, smoothness=8.0, loss="hinge-l2", max_passes=4),
    "entropy": CasimirSVRG(lam=0.2, smoothness=8.0, loss="hinge-entropy", max_passes=4),
    "LBFGS": LBFGS(lam=0.2, tol=1e-8),
    "l2 by LBFGS": LBFGS(lam=0.2, loss="hinge-l2", max_passes=9),
}


@pytest.mark.parametrize("name", thinned(SOLVERS, 4))
def test_every_solver_takes_the_steps_of_the_compiled_loops(name, ours):
    fast, found = SOLVERS[name].solve(CHAIN), SOLVERS[name].solve(ours)
    near(found.w, fast.w)
    near([found.primal, found.dual, found.gap], [fast.primal, fast.dual, fast.gap])
    assert (found.passes, found.status) == (fast.passes, fast.status)


def test_the_optimum_is_that_of_the_quadratic_program():
    known, lam = known_problem("projective"), 0.3
    w, value = optimum(*known.columns(), lam)
    found = BCFW(lam=lam, tol=1e-7, steps="pairwise", cache=True).solve(known.problem)
    assert found.converged and found.dual <= value + 1e-8
    near(found.primal, value, 1e-6)
    near(found.w, w, 1e-3)


class BinaryLabels:
    """K labels, each 0 or 1; scores (batch, K, 2): it only decodes."""

    def __init__(self, scores):
        self.scores = scores
        self.lengths = torch.full((len(scores),), scores.shape[1])

    def score(self, y):
        return self.scores.gather(2, y[..., None]).sum((1, 2))

    def hamming(self, y):
        return 1.0 - torch.nn.functional.one_hot(y, 2)

    def augment(self, cost):
        return BinaryLabels(self.scores + cost)

    def decode(self):
        values, y = self.scores.max(2)
        return values.sum(1), y


def binary(n=6, K=3, **options):
    X, y = RNG.normal(size=(n * K, 2)), RNG.integers(2, size=(n, K))
    parts = Parts(X, [K] * n, states=2)
    build = lambda potentials, batch: BinaryLabels(potentials["scores"])  # noqa: E731
    return StructureProblem(build, {"scores": parts}, y, **options), X, y


def test_a_structure_of_ones_own_needs_four_methods():
    problem, X, y = binary()
    found = BCFW(lam=0.3, tol=1e-7, steps="pairwise").solve(problem)
    # each label on its own: a sum of hinges of two classes
    rows = [(k, 1 - g) for k, g in enumerate(y.ravel())]
    psi = np.zeros((2 * len(rows), 2, 2))
    for j, (k, other) in enumerate(rows):
        psi[2 * j + 1, :, 1 - other] += X[k]
        psi[2 * j + 1, :, other] -= X[k]
    owner = np.repeat(np.arange(len(rows)), 2)
    # the mean over labels, times the labels of an example
    _, value = optimum(psi.reshape(-1, 4), np.tile([0.0, 1.0], len(rows)), owner, 0.1)
    near(found.primal, 3 * value, 1e-6)
    for ask in (
        lambda: problem.diameter(),
        lambda: problem.smoothed_risk(np.zeros(4), 1.0),
        lambda: problem.likelihood(np.zeros(4)),
    ):
        with pytest.raises((TypeError, AttributeError), match="log_p"):
            ask()


def test_candidates_of_ragged_rows():
    sizes = np.array([3, 1, 2])
    X, y = RNG.normal(size=(6, 4)), [2, 0, 1]

    def build(potentials, batch):
        scores, size = potentials["scores"], batch.sizes["scores"]
        return Multiclass(scores, torch.arange(scores.shape[1]) < size[:, None])

    problem = StructureProblem(build, {"scores": Parts(X, sizes)}, y)
    w = RNG.normal(size=4)
    rows = np.split(X, [3, 4])
    hinges = [
        max((j != g) + (x[j] - x[g]) @ w for j in range(len(x)))
        for x, g in zip(rows, y, strict=True)
    ]
    near(problem.hinges(w), hinges)
    assert problem.decode(w) == [int((x @ w).argmax()) for x in rows]
    near(problem.diameter(), np.log(sizes).mean())


def trees(potentials, batch):
    return ProjectiveDependencies(
        potentials["arcs"], lengths=batch.sizes["arcs"][:, 0] - 1
    )


def test_sentences_of_any_length_are_those_alone():
    sizes = [4, 1, 2, 3]
    X = RNG.normal(size=(sum(m * m for m in sizes), 5))
    y = [[0, 1, 2], [], [0], [2, 0]]
    shapes = [[m, m] for m in sizes]
    problem = StructureProblem(trees, {"arcs": Parts(X, shapes)}, y)
    w = RNG.normal(size=5)
    alone = []
    for i in range(4):
        one = problem.subset([i])
        assert len(one) == 1
        alone.append(one.risk(w))
        near(one.hinges(w), problem.hinges(w)[i])
        assert np.array_equal(one.decode(w)[0], problem.decode(w)[i])
    assert len(problem.decode(w)[1]) == 0 and alone[1][0] == 0
    near(problem.risk(w)[0], np.mean([value for value, _ in alone]))
    near(problem.risk(w)[1], np.mean([slope for _, slope in alone], axis=0))
    mixed = problem.subset([3, 0])
    near(mixed.hinges(w), problem.hinges(w)[[3, 0]])
    near(
        mixed.structure(w, [1]).log_partition(),
        problem.structure(w, [0]).log_partition(),
    )
    assert mixed.checksum != problem.checksum


def test_costs_of_ones_own():
    cost = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]])
    chain = random_chain(2, n=4, cost=cost)

    def costs(structure, y):
        return torch.from_numpy(cost)[y.clamp(min=0)]

    problem = as_structure(chain, cost=costs)
    w = RNG.normal(size=chain.num_weights)
    near(problem.hinges(w), chain.hinges(w))
    near(problem.worst(2, w).loss, chain.worst(2, w).loss)


def test_a_step_reads_and_writes_only_what_its_features_touch():
    wide = 50_000
    columns = RNG.integers(wide, size=(9, 3))
    columns.sort(1)
    X = sparse.csr_matrix(
        (RNG.normal(size=27), columns.ravel(), np.arange(0, 28, 3)), shape=(9, wide)
    )
    X.sum_duplicates()
    chain = StructureProblem(
        lambda p, batch: Chain(p["e"], p["t"], lengths=batch.sizes["e"]),
        {"e": Parts(X, [4, 5], 5), "t": Shared((5, 5))},
        [[0, 1, 2, 3], [4, 3, 2, 1, 0]],
    )
    assert chain.num_weights == wide * 5 + 25
    found = BCFW(lam=0.1, tol=1e-2, steps="pairwise", cache=True).solve(chain)
    touched = np.zeros(chain.num_weights, dtype=bool)
    touched[-25:] = True
    touched[: wide * 5].reshape(wide, 5)[columns.ravel()] = True
    assert found.converged and not found.w[~touched].any()
    saved = sum(x.nbytes for name, x in found.state.items() if name not in ("w", "lag"))
    assert saved < 100_000


def test_an_oracle_in_python_may_be_sparse():
    known = known_problem("projective")

    def oracle(i, w):
        corner = known.problem.worst(i, w)
        return (corner.psi if lean else corner.psi.toarray()[0]), *corner[1:]

    def few(i, w, k):
        z = known.psi[i] @ w - known.loss[i]
        found = np.argsort(z, kind="stable")[:k]
        rows = [known.psi[i][j] for j in found]
        kept = [sparse.csr_matrix(row) if lean else row for row in rows]
        return [
            (row, known.loss[i][j], int(j)) for row, j in zip(kept, found, strict=True)
        ]

    answers = []
    for lean in (True, False):
        size = len(known.loss), known.problem.num_weights
        problem = CallbackProblem(*size, oracle, few, sparse=lean)
        w = np.ones(problem.num_weights)
        answers.append(
            [
                BCFW(lam=0.2, tol=1e-2, steps="pairwise").solve(problem).w,
                BatchFrankWolfe(lam=0.2, tol=0.5).solve(problem).w,
                SGD(lam=0.2, max_passes=3).solve(problem).w,
                SVRG(lam=0.2, max_passes=3).solve(problem).w,
                problem.risk(w)[1],
                problem.smoothed_risk(w, 0.5)[1],
            ]
        )
    for a, b in zip(*answers, strict=True):
        near(a, b)
    lean = False
    with pytest.raises(TypeError, match="max_oracle: expected a scipy CSR matrix"):
        CallbackProblem(*size, oracle, sparse=True).worst(0, w)


X = np.eye(4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"build": None}, TypeError, "build: expected a function"),
        ({"build": lambda *_: None}, TypeError, "build: .* that returns NoneType"),
        ({"features": X}, TypeError, "features: expected a dict"),
        ({"features": {"arcs": X}}, TypeError, r"features\['arcs'\]: expected Parts"),
        ({"features": {"t": Shared((2,))}}, ValueError, "features: expected Parts of"),
        ({"features": {"arcs": Parts(X, [[2]])}}, ValueError, "a row of features for"),
        ({"features": {"arcs": Parts(X, [1.5])}}, TypeError, "shapes: expected integ"),
        ({"features": {"arcs": Parts(X, [[4], [2, 2]])}}, TypeError, "shapes: .* leng"),
        ({"features": {"arcs": Parts(X[:0], [])}}, ValueError, "at least one example"),
        ({"features": {"arcs": Parts(X * np.nan, [4])}}, ValueError, "features: expec"),
        ({"features": {"arcs": Parts(X, [4]), "b": Parts(X, [2, 2])}}, ValueError,
         r"features\['b'\].shapes: expected one for each of 1 examples"),
        ({"y": [[0], [0]]}, ValueError, "y: expected an output for each of 1"),
        ({"y": 3}, TypeError, "y: expected a list of outputs"),
        ({"y": [[0.5]]}, TypeError, "y: expected integers, got float64 at example 0"),
        ({"y": [[7]]}, ValueError, "y: expected heads"),
        ({"cost": "zero-one"}, ValueError, "cost: expected 'hamming' or a function"),
        ({"cost_scale": [-1.0]}, ValueError, "cost_scale: expected positive"),
        ({"cost": lambda *_: True}, TypeError, "cost: expected a function .* bool"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(change, error, message):
    given = {"build": trees, "features": {"arcs": Parts(X, [[2, 2]])}, "y": [[0]]}
    with pytest.raises(error, match=message):
        StructureProblem(**{**given, **change})


def test_weights_and_rows_that_do_not_fit_are_named():
    problem = StructureProblem(trees, {"arcs": Parts(X, [[2, 2]])}, [[0]])
    with pytest.raises(ValueError, match=r"w: expected \(4,\) weights"):
        problem.risk(np.zeros(3))
    with pytest.raises(ValueError, match="w: expected weights at which the potentials"):
        problem.hinges(np.full(4, np.nan))
    with pytest.raises(IndexError, match="i: expected 0 to 0, got 1"):
        problem.worst(1, np.zeros(4))
    with pytest.raises(ValueError, match="rows: expected at least one example"):
        problem.subset([])
    unknown = StructureProblem(trees, {"arcs": Parts(X, [[2, 2]])})
    assert unknown.decode(np.ones(4))[0].tolist() == [0]
    with pytest.raises(ValueError, match="y: expected the gold outputs, got None"):
        unknown.hinges(np.zeros(4))

    def shifted(potentials, batch):
        return ProjectiveDependencies(potentials["arcs"] + 1)

    with pytest.raises(ValueError, match="linear in the potentials, so 0 at weights 0"):
        StructureProblem(shifted, {"arcs": Parts(X, [[2, 2]])}, [[0]])
